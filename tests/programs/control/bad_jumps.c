//@ variants: pie static
//@ cflags: -O1
/* Control that goes where no code is: si_addr and REG_RIP are the target itself, the stack is as the
 * branch left it, and the program can go on. */
#include "check.h"

__asm__(".text\n.globl go_jump, go_call, go_ret, go_call_mem, go_jcc_direct, go_home\n"
        "go_jump: pushq %rbx\n movq %rsp, go_stack(%rip)\n movl $0x5ca1e, %ebx\n jmp *%rdi\n"
        "go_call: pushq %rbx\n movq %rsp, go_stack(%rip)\n movl $0x5ca1e, %ebx\n call *%rdi\n.globl go_call_back\ngo_call_back: ud2\n"
        "go_ret: pushq %rbx\n movq %rsp, go_stack(%rip)\n movl $0x5ca1e, %ebx\n pushq %rdi\n ret\n"
        "go_call_mem: pushq %rbx\n movq %rsp, go_stack(%rip)\n movl $0x5ca1e, %ebx\n movq %rdi, go_target(%rip)\n"
        " call *go_target(%rip)\n.globl go_call_mem_back\ngo_call_mem_back: ud2\n"
        "go_home: movq go_stack(%rip), %rsp\n popq %rbx\n ret\n"
        ".data\n.balign 8\n.globl go_stack\ngo_stack: .quad 0\ngo_target: .quad 0\n.text\n");
typedef void goer(uint64_t target);
goer go_jump, go_call, go_ret, go_call_mem;
extern char go_home[], go_call_back[], go_call_mem_back[];
extern uint64_t go_stack;

static struct { int count, number, code, error; uintptr_t addr, rip, rsp, rbx, top; } seen;

static void handler(int number, siginfo_t *info, void *context)
{
    greg_t *regs = regs_of(context);
    seen.count++;
    seen.number = number;
    seen.code = info->si_code;
    seen.addr = (uintptr_t)info->si_addr;
    seen.rip = regs[REG_RIP];
    seen.rsp = regs[REG_RSP];
    seen.rbx = regs[REG_RBX];
    seen.error = regs[REG_ERR];
    seen.top = *(uintptr_t *)regs[REG_RSP];
    regs[REG_RIP] = (uintptr_t)go_home;
}

static void expect(const char *name, uint64_t target, int number, int code, uint64_t addr)
{
    static const struct { const char *name; goer *go; char *back; } ways[] = {
        {"jump", go_jump, NULL}, {"call", go_call, go_call_back}, {"return", go_ret, NULL},
        {"call through memory", go_call_mem, go_call_mem_back}};
    for (int w = 0; w < 4; w++)
        for (int round = 0; round < 3; round++) {
            memset(&seen, 0, sizeof seen);
            ways[w].go(target);
            CHECK_EQ(seen.count, 1, "%s to %s: signals", ways[w].name, name);
            CHECK_EQ(seen.number, number, "%s to %s: signal", ways[w].name, name);
            CHECK_EQ(seen.code, code, "%s to %s: si_code", ways[w].name, name);
            CHECK_EQ(seen.addr, addr, "%s to %s: si_addr", ways[w].name, name);
            CHECK_EQ(seen.rip, target, "%s to %s: rip", ways[w].name, name);
            CHECK_EQ(seen.rbx, 0x5ca1e, "%s to %s: rbx", ways[w].name, name);
            CHECK_EQ(seen.rsp, go_stack - 8 * (ways[w].back != NULL), "%s to %s: rsp", ways[w].name, name);
            if (ways[w].back)
                CHECK_EQ(seen.top, (uintptr_t)ways[w].back, "%s to %s: return address", ways[w].name, name);
        }
}

static void unmapped(void)
{
    expect("null", 0, SIGSEGV, SEGV_MAPERR, 0);
    expect("0x1234", 0x1234, SIGSEGV, SEGV_MAPERR, 0x1234);
    char *page = map_pages(4096, PROT_READ | PROT_EXEC);
    munmap(page, 4096);
    expect("a page that is gone", (uintptr_t)page, SIGSEGV, SEGV_MAPERR, (uintptr_t)page);
    expect("the middle of a page that is gone", (uintptr_t)page + 77, SIGSEGV, SEGV_MAPERR, (uintptr_t)page + 77);
}

static void not_executable(void)
{
    unsigned char *page = map_pages(4096, PROT_READ | PROT_WRITE);
    memset(page, 0xc3, 4096);
    expect("writable data", (uintptr_t)page + 5, SIGSEGV, SEGV_ACCERR, (uintptr_t)page + 5);
    MUST(mprotect(page, 4096, PROT_READ) == 0);
    expect("read-only data", (uintptr_t)page + 5, SIGSEGV, SEGV_ACCERR, (uintptr_t)page + 5);
    MUST(mprotect(page, 4096, PROT_NONE) == 0);
    expect("an inaccessible page", (uintptr_t)page, SIGSEGV, SEGV_ACCERR, (uintptr_t)page);
    /* Executed before, then no longer executable. */
    MUST(mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0);
    for (int i = 0; i < 100; i++)
        ((void (*)(void))page)();
    MUST(mprotect(page, 4096, PROT_READ) == 0);
    expect("code that lost its permission", (uintptr_t)page, SIGSEGV, SEGV_ACCERR, (uintptr_t)page);
    MUST(mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0);
    ((void (*)(void))page)();
    munmap(page, 4096);
    expect("code that was unmapped", (uintptr_t)page, SIGSEGV, SEGV_MAPERR, (uintptr_t)page);
    static char data[64];
    expect("a variable", (uintptr_t)data, SIGSEGV, SEGV_ACCERR, (uintptr_t)data);
    char local[64];
    expect("the stack", (uintptr_t)local, SIGSEGV, SEGV_ACCERR, (uintptr_t)local);
}

static void kernel_half(void)
{
    expect("the kernel", 0xffffffff81000000, SIGSEGV, SEGV_MAPERR, 0xffffffff81000000);
}

/* A call or return to an address that is not canonical faults: at the branch itself on most processors,
 * at the target on the virtual CPU, so that rip is not compared (a known limit). */
static void not_canonical(void)
{
    memset(&seen, 0, sizeof seen);
    go_jump(1ull << 62);
    CHECK_EQ(seen.count, 1, "signals");
    CHECK_EQ(seen.number, SIGSEGV, "signal");
    CHECK_EQ(seen.rbx, 0x5ca1e, "rbx");
    CHECK_EQ(seen.code, SI_KERNEL, "si_code");
}

/* Execution that runs off the end of a page into nothing. */
static void off_the_end(void)
{
    char *pages = map_pages(8192, PROT_READ | PROT_WRITE);
    MUST(munmap(pages + 4096, 4096) == 0);
    memset(pages, 0x90, 4096);
    MUST(mprotect(pages, 4096, PROT_READ | PROT_EXEC) == 0);
    memset(&seen, 0, sizeof seen);
    go_jump((uintptr_t)pages + 4000);
    CHECK_EQ(seen.count, 1, "nops into an unmapped page");
    CHECK_EQ(seen.rip, (uintptr_t)pages + 4096, "rip");
    CHECK_EQ(seen.addr, (uintptr_t)pages + 4096, "si_addr");
    /* An instruction that begins on the page and ends beyond: rip is its start, si_addr the page. */
    MUST(mprotect(pages, 4096, PROT_READ | PROT_WRITE) == 0);
    memcpy(pages + 4093, "\x48\xb8\x11", 3); /* movabs, cut off */
    MUST(mprotect(pages, 4096, PROT_READ | PROT_EXEC) == 0);
    memset(&seen, 0, sizeof seen);
    go_jump((uintptr_t)pages + 4000);
    CHECK_EQ(seen.count, 1, "an instruction cut off");
    CHECK_EQ(seen.rip, (uintptr_t)pages + 4093, "rip of an instruction cut off");
    CHECK_EQ(seen.addr, (uintptr_t)pages + 4096, "si_addr of an instruction cut off");
    munmap(pages, 4096);
}

/* A conditional branch whose untaken side leads nowhere must not matter. */
static void untaken(void)
{
    char *page = map_pages(4096, PROT_READ | PROT_WRITE);
    /* xor eax,eax; jnz +0x7000000; jmp over; ud2; over: ret */
    memcpy(page, "\x31\xc0\x0f\x85\x00\x00\x00\x07\xeb\x02\x0f\x0b\xc3", 13);
    MUST(mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0);
    for (int i = 0; i < 10; i++)
        ((void (*)(void))page)();
    /* Code at the very end of a mapping, nothing behind it. */
    char *last = map_pages(4096, PROT_READ | PROT_WRITE);
    memcpy(last + 4095, "\xc3", 1);
    MUST(mprotect(last, 4096, PROT_READ | PROT_EXEC) == 0);
    for (int i = 0; i < 10; i++)
        ((void (*)(void))(last + 4095))();
}

int main(void)
{
    static char alternate[65536];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    sigaltstack(&stack, NULL);
    on_signal(SIGSEGV, handler, SA_ONSTACK);
    RUN(unmapped);
    RUN(not_executable);
    RUN(kernel_half);
    RUN(not_canonical);
    RUN(off_the_end);
    RUN(untaken);
    return done();
}

/* Promise: F7 */
/* Promise: L6: signal and code */
