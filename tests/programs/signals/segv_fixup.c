//@ variants: pie no-pie static
//@ cflags: -O1
/* A SIGSEGV handler that repairs the mapping and returns; it reads the instruction at REG_RIP, so that
 * address must be the program's own and hold the program's own bytes. */
#include "check.h"

/* Each access is one instruction at a label, 16 of them: an encoding each. */
__asm__(".text\n.globl access_table, access_count\n"
        ".macro A text:vararg\n.balign 16\n991: \\text\n ret\n.pushsection .rodata.access,\"a\"\n.quad 991b - access_table\n"
        ".popsection\n.endm\n"
        ".pushsection .rodata.access,\"a\"\n.balign 8\n.globl access_table\naccess_table:\n.popsection\n"
        "A movb $1, (%rdi)\n"
        "A movl $0x12345678, 4(%rdi)\n"
        "A movq %rsi, (%rdi)\n"
        "A addq %rsi, 8(%rdi)\n"
        "A lock incl (%rdi)\n"
        "A movups %xmm0, (%rdi)\n"
        "A movb (%rdi), %al\n"
        "A cmpq $0, (%rdi)\n"
        "A xchgq %rax, (%rdi)\n"
        "A imulq 24(%rdi), %rax\n"
        "A stosb\n"
        "A movzwl (%rdi,%rcx,4), %eax\n"
        "A btsq $3, (%rdi)\n"
        "A fnstcw 32(%rdi)\n"
        "A cmpxchgq %rsi, (%rdi)\n"
        "A notq 16(%rdi)\n"
        ".pushsection .rodata.access,\"a\"\naccess_count: .quad (access_count - access_table) / 8\n.popsection\n"
        ".globl do_access\ndo_access: xorl %ecx, %ecx\n xorl %eax, %eax\n jmp *%rdx\n");
extern const int64_t access_table[], access_count[];
void do_access(char *page, uint64_t value, const void *code);

static char *page;
static volatile uintptr_t want_rip;
static volatile int handled;
static unsigned char want_bytes[4];

static void handler(int number, siginfo_t *info, void *context)
{
    greg_t *regs = regs_of(context);
    handled++;
    CHECK_EQ(number, SIGSEGV, "signal");
    CHECK_EQ(info->si_code, SEGV_ACCERR, "si_code");
    CHECK_EQ((uintptr_t)info->si_addr & ~4095ul, (uintptr_t)page, "si_addr");
    CHECK_EQ(regs[REG_RIP], want_rip, "REG_RIP");
    CHECK(memcmp((void *)regs[REG_RIP], want_bytes, 4) == 0, "bytes at REG_RIP");
    CHECK_EQ(regs[REG_RDI], (uintptr_t)page, "rdi");
    CHECK_EQ(regs[REG_RSI], 0x5151515151515151, "rsi");
    CHECK_EQ(regs[REG_TRAPNO], 14, "trap number");
    CHECK_EQ(regs[REG_CR2], (uintptr_t)info->si_addr, "cr2");
    MUST(mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0);
}

int main(void)
{
    page = map_pages(4096, PROT_READ | PROT_WRITE);
    on_signal(SIGSEGV, handler, 0);
    int count = access_count[0];
    CHECK_EQ(count, 16, "accesses");
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < count; i++) {
            const char *code = (const char *)access_table + access_table[i];
            memcpy(want_bytes, code, 4);
            want_rip = (uintptr_t)code;
            MUST(mprotect(page, 4096, PROT_NONE) == 0);
            handled = 0;
            do_access(page, 0x5151515151515151, code);
            CHECK_EQ(handled, 1, "faults of access %d", i);
        }
    }
    uint64_t sum = 0;
    for (int i = 0; i < 4096; i++)
        sum = sum * 31 + (unsigned char)page[i];
    say("page %016lx", sum);
    return done();
}

/* Promise: F8 */
