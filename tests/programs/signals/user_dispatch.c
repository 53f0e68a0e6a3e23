//@ cflags: -O1
/* prctl(PR_SET_SYSCALL_USER_DISPATCH): calls become SIGSYS by the place where they are made and a byte of the
 * program's; children and threads begin without it, and a byte without a meaning ends the process. */
#include "check.h"
#include <sys/prctl.h>

#define SET_USER_DISPATCH 59

static volatile unsigned char selector;
static volatile int stopped, code, number;
static volatile long behind;
static atomic_int begun, done_without;
extern char after_call[];

static void on_sys(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    selector = 0;
    stopped++;
    code = info->si_code;
    number = info->si_syscall;
    behind = (char *)info->si_call_addr - after_call;
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RAX] = 4242;
}

/* A call at a place of its own, whose number the compiler does not see. */
__attribute__((noinline)) static long call(long what)
{
    long result;
    asm volatile("syscall\n.globl after_call\nafter_call:"
                 : "=a"(result) : "a"(what) : "rcx", "r11", "memory");
    return result;
}

__attribute__((noinline)) static long known_call(void)
{
    long result;
    asm volatile("mov $39, %%eax\n\tsyscall" : "=a"(result) : : "rcx", "r11", "memory");
    return result;
}

static int set(long mode, long offset, long bytes, volatile void *byte)
{
    return prctl(SET_USER_DISPATCH, mode, offset, bytes, byte) ? errno : 0;
}

/* The first thread makes no call meanwhile: the byte is its own too. */
static void *without(void *nothing)
{
    while (!atomic_load(&begun))
        ;
    selector = 1;
    long own = call(SYS_getpid);
    selector = 0;
    CHECK(own == getpid(), "a thread begins with it");
    atomic_store(&done_without, 1);
    return nothing;
}

/* How a child ends that makes a call with this byte. */
static int end_with(volatile unsigned char *byte, unsigned char value)
{
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        signal(SIGSYS, SIG_IGN);
        signal(SIGSEGV, SIG_IGN);
        MUST(set(1, 0, 0, byte) == 0);
        selector = value;
        call(SYS_getpid);
        selector = 0;
        _exit(1);
    }
    int status = 0;
    MUST(waitpid(child, &status, 0) == child);
    return status & 0x7f;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = on_sys, .sa_flags = SA_SIGINFO};
    MUST(sigaction(SIGSYS, &action, NULL) == 0);
    say("refused %d %d %d %d", set(7, 0, 0, 0), set(0, 1, 0, 0), set(1, 4096, 0, &selector),
        set(1, 0, 0, (void *)-4096));

    MUST(set(1, 0, 0, &selector) == 0);
    selector = 1;
    long result = call(SYS_getpid);
    say("one: %d times, code %d, number %d, %ld behind, result %ld", stopped, code, number, behind, result);
    CHECK(call(SYS_getpid) == getpid(), "a call that is allowed");
    CHECK(known_call() == getpid(), "another one");
    selector = 1;
    CHECK(known_call() == 4242 && stopped == 2, "a number that the code says");
    selector = 1;
    CHECK(call(0x1234567) == 4242 && number == 0x1234567, "no number of Linux: %x", number);
    for (int i = 0; i < 300; i++) {
        selector = 1;
        CHECK(call(SYS_getppid) == 4242, "call %d was made", i);
        CHECK(call(SYS_getpid) == getpid(), "call %d was not made", i);
    }
    say("all: %d times", stopped);

    pthread_t thread;
    MUST(pthread_create(&thread, NULL, without, NULL) == 0);
    atomic_store(&begun, 1);
    while (!atomic_load(&done_without))
        ;
    MUST(pthread_join(thread, NULL) == 0);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        selector = 1;
        long own = call(SYS_getpid);
        selector = 0;
        _exit(own == getpid() ? 7 : 8);
    }
    int status = 0;
    MUST(waitpid(child, &status, 0) == child);
    say("child %d", WEXITSTATUS(status));
    say("ends %d %d", end_with(&selector, 2), end_with((volatile unsigned char *)16, 1));

    /* The range in which calls are made all the same. */
    long start = (long)after_call - 2;
    MUST(set(1, start, 3, &selector) == 0);
    selector = 1;
    result = call(SYS_getpid);
    long other = known_call();
    selector = 0;
    CHECK(result == getpid() && other == 4242, "the range: %ld, %ld", result, other);
    say("off %d", set(0, 0, 0, 0));
    selector = 1;
    CHECK(call(SYS_getpid) == getpid(), "a call after the end");
    return done();
}

/* Promise: F8, F38 */
