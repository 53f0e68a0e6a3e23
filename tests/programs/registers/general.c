//@ variants: pie no-pie static
//@ cflags: -O1
/* All general registers survive every control transfer, rcx and r11 above all. */
#include "check.h"

/* Order of the frames below. */
#define REGISTERS(X)                                                                               \
    X(rax) X(rbx) X(rcx) X(rdx) X(rsi) X(rdi) X(rbp) X(r8) X(r9) X(r10) X(r11) X(r12) X(r13)       \
    X(r14) X(r15)
enum {
#define NUMBER(r) N_##r,
    REGISTERS(NUMBER) COUNT
};
static const char *const names[] = {
#define TEXT(r) #r,
    REGISTERS(TEXT)};

uint64_t frame_in[COUNT], frame_out[COUNT];
uint64_t flags_in, flags_out, rsp_in, rsp_out, target;

#define LOAD(r, n) "movq frame_in+8*" #n "(%rip), %" #r "\n"
#define STORE(r, n) "movq %" #r ", frame_out+8*" #n "(%rip)\n"
#define EACH(F)                                                                                    \
    F(rax, 0) F(rbx, 1) F(rcx, 2) F(rdx, 3) F(rsi, 4) F(rdi, 5) F(rbp, 6) F(r8, 7) F(r9, 8)        \
    F(r10, 9) F(r11, 10) F(r12, 11) F(r13, 12) F(r14, 13) F(r15, 14)

/* Loads every register, jumps to `target`, and stores every register when it comes to probe_back. */
__asm__(".text\n.globl probe, probe_back, just_return\n"
        "probe: pushq %rbx\n pushq %rbp\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
        " movq %rsp, rsp_in(%rip)\n pushq flags_in(%rip)\n popfq\n" EACH(LOAD)
        " jmp *target(%rip)\n"
        "probe_back: " EACH(STORE) " movq %rsp, rsp_out(%rip)\n movq rsp_in(%rip), %rsp\n"
        " pushfq\n popq flags_out(%rip)\n cld\n"
        " popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbp\n popq %rbx\n ret\n"
        "just_return: ret\n"
        ".macro SNIPPET name:vararg\n.globl \\name\n\\name:\n.endm\n"
        "SNIPPET s_nothing\n jmp probe_back\n"
        "SNIPPET s_call\n call just_return\n jmp probe_back\n"
        "SNIPPET s_call_mem\n call *just_pointer(%rip)\n jmp probe_back\n"
        "SNIPPET s_call_push\n pushq just_pointer(%rip)\n call *(%rsp)\n popq scratch(%rip)\n jmp probe_back\n"
        "SNIPPET s_call_rsp_index\n pushq just_pointer(%rip)\n pushq $0\n call *8(%rsp)\n"
        " popq scratch(%rip)\n popq scratch(%rip)\n jmp probe_back\n"
        "SNIPPET s_jmp_mem\n jmp *back_pointer(%rip)\n ud2\n"
        "SNIPPET s_ret\n pushq back_pointer(%rip)\n ret\n ud2\n"
        "SNIPPET s_ret_imm\n pushq $0\n pushq back_pointer(%rip)\n ret $8\n ud2\n"
        "SNIPPET s_jcc_taken\n jc 1f\n ud2\n1: jmp probe_back\n"
        "SNIPPET s_jcc_not\n jnc 1f\n jmp probe_back\n1: ud2\n"
        "SNIPPET s_jrcxz_not\n jrcxz 1f\n jmp probe_back\n1: ud2\n"
        "SNIPPET s_nested\n call 1f\n jmp probe_back\n1: call 2f\n ret\n2: call *just_pointer(%rip)\n ret\n"
        "SNIPPET s_rip_relative\n cmpq $0, scratch(%rip)\n lock incq scratch(%rip)\n pushq flags_in(%rip)\n"
        " popfq\n jmp probe_back\n"
        "SNIPPET s_prefetch\n prefetcht0 scratch(%rip)\n testb $0, %al\n pushq flags_in(%rip)\n popfq\n jmp probe_back\n"
        "SNIPPET s_gettid\n movl $186, %eax\n syscall\n jmp probe_back\n"
        ".macro THROUGH r\n"
        ".globl s_call_\\r, s_jmp_\\r, s_index_\\r\n"
        "s_call_\\r: leaq just_return(%rip), %\\r\n call *%\\r\n jmp probe_back\n"
        "s_jmp_\\r: leaq 1f(%rip), %\\r\n jmp *%\\r\n ud2\n1: jmp probe_back\n"
        "s_index_\\r: leaq just_pointer-16(%rip), %\\r\n call *16(%\\r)\n jmp probe_back\n"
        ".endm\n"
        ".irp r, rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15\n"
        "THROUGH \\r\n.endr\n"
        ".data\n.balign 8\njust_pointer: .quad just_return\nback_pointer: .quad probe_back\n"
        "scratch: .quad 0\n.text\n");

extern char s_nothing[], s_call[], s_call_mem[], s_call_push[], s_call_rsp_index[], s_jmp_mem[],
    s_ret[], s_ret_imm[], s_jcc_taken[], s_jcc_not[], s_jrcxz_not[], s_nested[], s_rip_relative[],
    s_prefetch[], s_gettid[];
#define DECLARE(r) extern char s_call_##r[], s_jmp_##r[], s_index_##r[];
REGISTERS(DECLARE)
void probe(void);

/* Bits of `changed` are registers the snippet itself writes. */
static void try(const char *name, char *code, unsigned changed)
{
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < COUNT; i++) {
            frame_in[i] = 0x1111111111111111ull * (i + 1) ^ 0x8000000000000001ull * round;
            frame_out[i] = 0;
        }
        flags_in = round == 1 ? 0xed7 : 0x203; /* CF set for the conditional jumps */
        target = (uintptr_t)code;
        rsp_out = 0;
        probe();
        for (int i = 0; i < COUNT; i++)
            if (!(changed >> i & 1))
                CHECK_EQ(frame_out[i], frame_in[i], "%s changed %s", name, names[i]);
        CHECK_EQ(rsp_out, rsp_in, "%s moved rsp", name);
        CHECK_EQ(flags_out & 0xcd5, flags_in & 0xcd5, "%s changed the flags", name);
    }
}

int main(void)
{
#define TRY(name) try(#name, name, 0)
    TRY(s_nothing);
    TRY(s_call);
    TRY(s_call_mem);
    TRY(s_call_push);
    TRY(s_call_rsp_index);
    TRY(s_jmp_mem);
    TRY(s_ret);
    TRY(s_ret_imm);
    TRY(s_jcc_taken);
    TRY(s_jcc_not);
    TRY(s_jrcxz_not);
    TRY(s_nested);
    TRY(s_rip_relative);
    TRY(s_prefetch);
    try("s_gettid", s_gettid, 1 << N_rax | 1 << N_rcx | 1 << N_r11);
#define THROUGH(r)                                                                                 \
    try("call *%" #r, s_call_##r, 1 << N_##r);                                                     \
    try("jmp *%" #r, s_jmp_##r, 1 << N_##r);                                                       \
    try("call *16(%" #r ")", s_index_##r, 1 << N_##r);
    REGISTERS(THROUGH)
    return done();
}

/* Promise: F7 */
