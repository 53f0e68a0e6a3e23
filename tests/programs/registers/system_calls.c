//@ variants: pie static
/* Registers across the SYSCALL instruction: rcx is the next instruction's address, r11 the flags, rax
 * the result; everything else is kept, and all six arguments arrive. */
#include "check.h"

struct frame {
    uint64_t rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15, flags, rsp;
};
struct frame in, out;
uint64_t saved_rsp;

__asm__(".text\n.globl raw_call, raw_next\nraw_call: pushq %rbx\n pushq %rbp\n pushq %r12\n pushq %r13\n pushq %r14\n"
        " pushq %r15\n movq %rsp, saved_rsp(%rip)\n"
        " pushq in+120(%rip)\n popfq\n"
        " movq in+0(%rip), %rax\n movq in+8(%rip), %rbx\n movq in+16(%rip), %rcx\n movq in+24(%rip), %rdx\n"
        " movq in+32(%rip), %rsi\n movq in+40(%rip), %rdi\n movq in+48(%rip), %rbp\n movq in+56(%rip), %r8\n"
        " movq in+64(%rip), %r9\n movq in+72(%rip), %r10\n movq in+80(%rip), %r11\n movq in+88(%rip), %r12\n"
        " movq in+96(%rip), %r13\n movq in+104(%rip), %r14\n movq in+112(%rip), %r15\n"
        " syscall\n"
        "raw_next: movq %rax, out+0(%rip)\n movq %rbx, out+8(%rip)\n movq %rcx, out+16(%rip)\n movq %rdx, out+24(%rip)\n"
        " movq %rsi, out+32(%rip)\n movq %rdi, out+40(%rip)\n movq %rbp, out+48(%rip)\n movq %r8, out+56(%rip)\n"
        " movq %r9, out+64(%rip)\n movq %r10, out+72(%rip)\n movq %r11, out+80(%rip)\n movq %r12, out+88(%rip)\n"
        " movq %r13, out+96(%rip)\n movq %r14, out+104(%rip)\n movq %r15, out+112(%rip)\n movq %rsp, out+128(%rip)\n"
        " movq saved_rsp(%rip), %rsp\n pushfq\n popq out+120(%rip)\n cld\n"
        " popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbp\n popq %rbx\n ret\n");
void raw_call(void);
extern char raw_next[];

static void call(const char *name, uint64_t flags)
{
    in.rbx = 0xb1b1b1b1b1b1b1b1;
    in.rbp = 0xb2b2b2b2b2b2b2b2;
    in.rcx = 0xc1c1c1c1c1c1c1c1;
    in.r11 = 0x1111111111111111;
    in.r12 = 0x1212121212121212;
    in.r13 = 0x1313131313131313;
    in.r14 = 0x1414141414141414;
    in.r15 = 0x1515151515151515;
    in.flags = flags;
    memset(&out, 0, sizeof out);
    raw_call();
    CHECK_EQ(out.rcx, (uintptr_t)raw_next, "%s: rcx is the next instruction", name);
    CHECK_EQ(out.r11 & ~2, flags & ~2, "%s: r11 is the flags", name);
    CHECK_EQ(out.flags & ~2, flags & ~2, "%s: flags are kept", name);
    CHECK_EQ(out.rsp, saved_rsp, "%s: rsp", name);
#define KEPT(r) CHECK_EQ(out.r, in.r, "%s: " #r, name)
    KEPT(rbx); KEPT(rdx); KEPT(rsi); KEPT(rdi); KEPT(rbp); KEPT(r8); KEPT(r9); KEPT(r10);
    KEPT(r12); KEPT(r13); KEPT(r14); KEPT(r15);
}

static void arguments(uint64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f)
{
    in.rax = number;
    in.rdi = a, in.rsi = b, in.rdx = c, in.r10 = d, in.r8 = e, in.r9 = f;
}

int main(void)
{
    static const uint64_t flag_sets[] = {0x202, 0x203, 0x246, 0xad7, 0xed7, 0x602, 0x286, 0xa02};
    const uint64_t u = 0xdeadbeefcafef00d;
    for (size_t i = 0; i < sizeof flag_sets / sizeof *flag_sets; i++) {
        uint64_t flags = flag_sets[i];
        arguments(SYS_getpid, u, u + 1, u + 2, u + 3, u + 4, u + 5);
        call("getpid", flags);
        CHECK_EQ(out.rax, getpid(), "getpid");
        /* The kernel ignores the upper half of rax for a valid number. */
        arguments(SYS_getpid | 0xabcdef0100000000, u, u, u, u, u, u);
        call("getpid with garbage above", flags);
        CHECK(out.rax == (uint64_t)getpid() || out.rax == (uint64_t)-ENOSYS, "rax is %#lx", out.rax);
        say("garbage above: %s", out.rax == (uint64_t)getpid() ? "ignored" : "ENOSYS");
        static const uint64_t invalid[] = {100000, 0xffffffff, 0x7fffffff, 511, 387, 1000, (uint64_t)-1, 0x40000000 | 100000};
        for (size_t n = 0; n < sizeof invalid / sizeof *invalid; n++) {
            arguments(invalid[n], u, u, u, u, u, u);
            call("invalid number", flags);
            CHECK_EQ(out.rax, (uint64_t)-ENOSYS, "call number %#lx", invalid[n]);
        }
        /* All six arguments matter here. */
        int file = memfd_create("six", 0);
        MUST(file >= 0 && ftruncate(file, 3 * 4096) == 0);
        MUST(pwrite(file, "third page", 10, 8192) == 10);
        arguments(SYS_mmap, 0, 4096, PROT_READ, MAP_PRIVATE, file, 8192);
        call("mmap", flags);
        CHECK(memcmp((void *)out.rax, "third page", 10) == 0, "mmap with an offset");
        arguments(SYS_munmap, out.rax, 4096, u, u, u, u);
        call("munmap", flags);
        CHECK_EQ(out.rax, 0, "munmap");
        close(file);
        /* Executable mappings take another path inside a translator. */
        arguments(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        call("executable mmap", flags);
        uint64_t at = out.rax;
        CHECK(at < (uint64_t)-4095, "executable mmap: %#lx", at);
        arguments(SYS_mprotect, at, 4096, PROT_READ | PROT_EXEC, u, u, u);
        call("mprotect", flags);
        CHECK_EQ(out.rax, 0, "mprotect");
        arguments(SYS_munmap, at, 4096, u, u, u, u);
        call("executable munmap", flags);
        CHECK_EQ(out.rax, 0, "munmap");
        arguments(SYS_rt_sigprocmask, SIG_BLOCK, 0, 0, 8, u, u);
        call("rt_sigprocmask", flags);
        CHECK_EQ(out.rax, 0, "rt_sigprocmask");
        arguments(SYS_read, 77, u, 1, u, u, u);
        call("read", flags);
        CHECK_EQ(out.rax, (uint64_t)-EBADF, "read from a closed descriptor");
        arguments(SYS_rt_sigaction, SIGUSR2, 0, 0, 7, u, u);
        call("rt_sigaction", flags);
        CHECK_EQ(out.rax, (uint64_t)-EINVAL, "rt_sigaction with a wrong size");
    }
    return done();
}

/* Promise: F7 */
