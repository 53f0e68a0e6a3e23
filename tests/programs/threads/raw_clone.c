//@ variants: pie static
//@ cflags: -O1
/* clone and clone3 without the C library's threads: shared memory, own stacks, tid futexes, TLS, flags of
 * every kind, errors. */
#include "check.h"
#include <linux/futex.h>
#include <linux/sched.h>

enum { STACK = 65536 };
static char stacks[16][STACK] __attribute__((aligned(64)));
static volatile int shared;

/* The child takes a function and its argument off its new stack, calls it, and exits with its result. */
__asm__(".text\n.globl raw_clone\nraw_clone: movq %rcx, %r10\n movl $56, %eax\n syscall\n testq %rax, %rax\n jz raw_child\n ret\n"
        ".globl raw_clone3\nraw_clone3: movl $435, %eax\n syscall\n testq %rax, %rax\n jz raw_child\n ret\n"
        "raw_child: xorl %ebp, %ebp\n popq %rax\n popq %rdi\n call *%rax\n movl %eax, %edi\n movl $60, %eax\n syscall\n ud2\n");
/* flags, stack, parent tid, child tid, tls */
long raw_clone(unsigned long flags, void *stack, int *ptid, int *ctid, unsigned long tls);
long raw_clone3(void *arguments, size_t size);

static void *prepared(int index, int (*function)(long), long argument)
{
    void **top = (void **)(stacks[index] + STACK);
    *--top = NULL;
    *--top = (void *)argument;
    *--top = (void *)function;
    return top;
}

static void futex_wait_zero(volatile int *word)
{
    int value;
    while ((value = *word) != 0)
        syscall(SYS_futex, word, FUTEX_WAIT, value, NULL, NULL, 0);
}

/* Runs without thread-local storage of its own: no errno, no stdio. */
static int add_to_shared(long n)
{
    for (long i = 0; i < n; i++)
        __asm__ volatile("lock incl %0" : "+m"(shared)::"cc");
    return 0;
}

enum { THREAD = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM };

static void as_threads(void)
{
    static volatile int tids[8];
    for (int round = 0; round < 30; round++) {
        shared = 0;
        for (int i = 0; i < 8; i++) {
            tids[i] = -1;
            long tid = raw_clone(THREAD | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID, prepared(i, add_to_shared, 1000), (int *)&tids[i], (int *)&tids[i], 0);
            MUST(tid > 0);
        }
        for (int i = 0; i < 8; i++)
            futex_wait_zero(&tids[i]);
        CHECK_EQ(shared, 8000, "increments in round %d", round);
    }
}

static int exit_status(long n)
{
    shared = n;
    return n & 0xff;
}

static void as_processes(void)
{
    /* Shared memory without being a thread: its own process with a status. */
    for (int round = 0; round < 20; round++) {
        long pid = raw_clone(CLONE_VM | SIGCHLD, prepared(0, exit_status, round), NULL, NULL, 0);
        MUST(pid > 0);
        int status;
        MUST(waitpid(pid, &status, 0) == pid);
        CHECK_EQ(status, round << 8, "status");
        CHECK_EQ(shared, round, "memory is shared");
    }
    /* Not shared, other exit signal: only __WALL sees it. */
    shared = -1;
    long pid = raw_clone(0, prepared(1, exit_status, 5), NULL, NULL, 0);
    MUST(pid > 0);
    int status;
    CHECK(waitpid(pid, &status, 0) == -1 && errno == ECHILD, "no exit signal: not seen by an ordinary wait");
    MUST(waitpid(pid, &status, __WALL) == pid);
    CHECK_EQ(status, 5 << 8, "status");
    CHECK_EQ(shared, -1, "memory is not shared");
    pid = raw_clone(CLONE_VM | CLONE_VFORK | SIGCHLD, prepared(2, exit_status, 9), NULL, NULL, 0);
    CHECK_EQ(shared, 9, "CLONE_VFORK waits for the child");
    MUST(waitpid(pid, &status, 0) == pid);
}

static int fs_word(long unused)
{
    int value;
    (void)unused;
    __asm__ volatile("movl %%fs:0, %0" : "=r"(value));
    return value;
}

static void with_tls(void)
{
    static int block = 0x5a;
    long pid = raw_clone(CLONE_VM | CLONE_SETTLS | SIGCHLD, prepared(0, fs_word, 0), NULL, NULL, (unsigned long)&block);
    MUST(pid > 0);
    int status;
    MUST(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0x5a << 8, "fs of the child");
}

static void by_clone3(void)
{
    struct clone_args arguments = {.flags = CLONE_VM, .exit_signal = SIGCHLD};
    for (int round = 0; round < 20; round++) {
        char *top = prepared(3, exit_status, round + 100);
        arguments.stack = (uintptr_t)stacks[3];
        arguments.stack_size = top - stacks[3];
        long pid = raw_clone3(&arguments, sizeof arguments);
        if (pid == -ENOSYS) {
            say("# no clone3");
            return;
        }
        MUST(pid > 0);
        int status;
        MUST(waitpid(pid, &status, 0) == pid);
        CHECK_EQ(status, (round + 100) << 8, "status");
        CHECK_EQ(shared, round + 100, "memory is shared");
    }
    int descriptor = -1;
    arguments.flags = CLONE_VM | CLONE_PIDFD;
    arguments.pidfd = (uintptr_t)&descriptor;
    arguments.stack_size = (char *)prepared(3, exit_status, 7) - stacks[3];
    long pid = raw_clone3(&arguments, sizeof arguments);
    MUST(pid > 0);
    CHECK(descriptor > 2, "a pidfd: %d", descriptor);
    siginfo_t info;
    CHECK_EQ(waitid(P_PIDFD, descriptor, &info, WEXITED), 0, "wait by pidfd");
    CHECK_EQ(info.si_status, 7, "status");
    close(descriptor);
    arguments.exit_signal = 0x1234;
    CHECK_EQ(raw_clone3(&arguments, sizeof arguments), -EINVAL, "a bad exit signal");
    CHECK_EQ(raw_clone3((void *)8, sizeof arguments), -EFAULT, "bad arguments");
    CHECK_EQ(raw_clone3(&arguments, 8), -EINVAL, "too small");
}

static void errors(void)
{
    CHECK_EQ(raw_clone(CLONE_SIGHAND, stacks[0] + 1000, NULL, NULL, 0), -EINVAL, "CLONE_SIGHAND without CLONE_VM");
    CHECK_EQ(raw_clone(CLONE_THREAD | CLONE_VM, stacks[0] + 1000, NULL, NULL, 0), -EINVAL, "CLONE_THREAD without CLONE_SIGHAND");
    CHECK_EQ(raw_clone(CLONE_FS | CLONE_NEWNS, stacks[0] + 1000, NULL, NULL, 0), -EINVAL, "CLONE_FS with CLONE_NEWNS");
}

static int close_three(long unused)
{
    (void)unused;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_close), "D"(30L) : "rcx", "r11", "memory");
    return result == 0 ? 0 : 1;
}

static void shared_files(void)
{
    int status;
    MUST(dup2(1, 30) == 30);
    long pid = raw_clone(CLONE_VM | SIGCHLD, prepared(4, close_three, 0), NULL, NULL, 0);
    MUST(waitpid(pid, &status, 0) == pid);
    CHECK(fcntl(30, F_GETFD) == 0, "without CLONE_FILES the descriptor stays");
    pid = raw_clone(CLONE_VM | CLONE_FILES | SIGCHLD, prepared(4, close_three, 0), NULL, NULL, 0);
    MUST(waitpid(pid, &status, 0) == pid);
    CHECK(fcntl(30, F_GETFD) == -1, "with CLONE_FILES it is gone");
}

int main(void)
{
    RUN(as_threads);
    RUN(as_processes);
    RUN(with_tls);
    RUN(by_clone3);
    RUN(errors);
    RUN(shared_files);
    return done();
}

/* Promise: F9 */
