//@ variants: pie static
//@ cflags: -O1
/* Code behind the new end of a file that has been cut short: the instruction that cannot be fetched raises SIGBUS with
 * the state of a fetch, and those before it in its block have been executed. */
#include "check.h"

enum { PAGE = 4096 };

/* rdi: movb $1, (%rdi); movl $7, %eax; ret */
static const unsigned char code[] = {0xc6, 7, 1, 0xb8, 7, 0, 0, 0, 0xc3};
static sigjmp_buf back;
static unsigned char *base;

static void on_fault(int number, siginfo_t *info, void *context)
{
    greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
    say("  signal %d, code %d: at %ld, address %ld, cr2 %ld, trap %ld, error %#lx", number, info->si_code,
        (long)(regs[REG_RIP] - (greg_t)base), (long)((unsigned char *)info->si_addr - base),
        (long)(regs[REG_CR2] - (greg_t)base), (long)regs[REG_TRAPNO], (long)regs[REG_ERR]);
    siglongjmp(back, number);
}

static void call(const char *when, long offset)
{
    char done = 0;
    say("%s, code at %ld", when, offset);
    int number = sigsetjmp(back, 1);
    if (number == 0)
        say("  returns %d", ((int (*)(char *))(base + offset))(&done));
    say("  first instruction executed: %d", done);
}

/* Code that begins at `offset` of a file, before and after the file has been cut to one page. */
static void cut(long offset, int protection, int flags)
{
    int fd = memfd_create("code", 0);
    MUST(fd >= 0 && ftruncate(fd, 2 * PAGE) == 0 && pwrite(fd, code, sizeof code, offset) == sizeof code);
    base = mmap(NULL, 2 * PAGE, protection, flags, fd, 0);
    MUST(base != MAP_FAILED);
    call("before", offset);
    MUST(ftruncate(fd, PAGE) == 0);
    call("cut short", offset);
    call("again", offset);
    MUST(ftruncate(fd, 2 * PAGE) == 0 && pwrite(fd, code, sizeof code, offset) == sizeof code);
    call("whole again", offset);
    munmap(base, 2 * PAGE);
    close(fd);
}

static void everywhere(int protection, int flags)
{
    cut(PAGE, protection, flags);
    cut(PAGE - 3, protection, flags);
    cut(PAGE - 2, protection, flags);
    cut(PAGE - 5, protection, flags);
    cut(PAGE - 8, protection, flags);
}

static void private(void)
{
    everywhere(PROT_READ | PROT_EXEC, MAP_PRIVATE);
}

static void shared(void)
{
    everywhere(PROT_READ | PROT_EXEC, MAP_SHARED);
}

static void shared_and_writable(void)
{
    everywhere(PROT_READ | PROT_WRITE | PROT_EXEC, MAP_SHARED);
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    MUST(sigaction(SIGBUS, &action, NULL) == 0 && sigaction(SIGSEGV, &action, NULL) == 0);
    RUN(private);
    RUN(shared);
    RUN(shared_and_writable);
    return done();
}

/* Promise: F10 */
/* Promise: F10: if a file loses code, SIGBUS comes at the instruction that can't be fetched */
