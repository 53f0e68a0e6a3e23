//@ cflags: -O1
/* Children that die of every signal whose default is fatal: the parent sees the right status. */
#include "check.h"
#include <sys/resource.h>

static int wanted;
static void by_raise(void) { raise(wanted); say("not reached"); }
static void by_kill(void) { kill(getpid(), wanted); for (;;) pause(); }
static void by_null(void) { *(volatile int *)0 = 1; }
static void by_jump(void) { ((void (*)(void))0x1234)(); }
static void by_ud2(void) { __builtin_trap(); }
static void by_int3(void) { __asm__ volatile("int3"); say("not reached"); }
static void by_division(void) { __asm__ volatile("xorl %%ecx, %%ecx\n divl %%ecx" ::: "eax", "ecx", "edx"); }
static void by_hlt(void) { __asm__ volatile("hlt"); }
static void by_abort(void) { abort(); }

/* A fault whose signal is blocked or ignored kills all the same. */
static void blocked_fault(void)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    *(volatile int *)8 = 1;
}
static void ignored_fault(void)
{
    signal(SIGSEGV, SIG_IGN);
    *(volatile int *)8 = 1;
}
static void blocked_trap(void)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    __asm__ volatile("int3");
    say("not reached");
}
static void ignored_trap(void)
{
    signal(SIGTRAP, SIG_IGN);
    __asm__ volatile("int3");
    say("not reached");
}
static void handler(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    *(volatile int *)16 = 1;
}
static void fault_in_own_handler(void)
{
    on_signal(SIGSEGV, handler, 0);
    *(volatile int *)8 = 1;
}

static void expect(const char *name, void (*function)(void), int number)
{
    int status = in_child(function);
    CHECK(WIFSIGNALED(status), "%s: status %#x", name, status);
    CHECK_EQ(status & 0x7f, number, "%s", name);
}

int main(void)
{
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    for (wanted = 1; wanted < 32; wanted++) {
        if (wanted == SIGCHLD || wanted == SIGURG || wanted == SIGWINCH || wanted == SIGCONT || wanted == SIGSTOP ||
            wanted == SIGTSTP || wanted == SIGTTIN || wanted == SIGTTOU)
            continue;
        expect("raise", by_raise, wanted);
        expect("kill", by_kill, wanted);
    }
    wanted = SIGRTMIN + 5;
    expect("a real-time signal", by_raise, wanted);
    expect("null store", by_null, SIGSEGV);
    expect("jump to an unmapped page", by_jump, SIGSEGV);
    expect("ud2", by_ud2, SIGILL);
    expect("int3", by_int3, SIGTRAP);
    expect("division", by_division, SIGFPE);
    expect("hlt", by_hlt, SIGSEGV);
    expect("abort", by_abort, SIGABRT);
    expect("blocked fault", blocked_fault, SIGSEGV);
    expect("ignored fault", ignored_fault, SIGSEGV);
    expect("blocked trap", blocked_trap, SIGTRAP);
    expect("ignored trap", ignored_trap, SIGTRAP);
    expect("fault in its own handler", fault_in_own_handler, SIGSEGV);
    return done();
}

/* Promise: F8 */
