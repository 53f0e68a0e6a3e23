//@ variants: pie static
//@ cflags: -O1
/* Threads and processes that INT 0x80 makes, by each of its calls, traced or not: each is a child as any other, with its
 * maker's registers. Where the kernel has no such calls, all of them are refused. */
#include "int80.h"
#include <linux/sched.h>

enum { FORK = 2, WAIT4 = 114, CLONE = 120, VFORK = 190, CLONE3 = 435, STACK = 16384 };

/* Stacks and arguments lie where 32 bits reach. */
static struct low {
    struct clone_args arguments;
    int tid[2];
    _Alignas(64) char stacks[8][STACK];
} *low;

/* A child on a stack of its own takes a function off it, calls it, and exits with its result. Whoever makes one with its
 * own stack goes on; rbx holds what it did, all of it. */
__asm__(".text\n.globl make\nmake: pushq %rbx\n pushq %rbp\n pushq %r12\n movq %rdi, %rax\n movq %rsi, %r12\n movq %rsi, %rbx\n"
        " movq %rdx, %rcx\n movq %r8, %rdx\n movq %r9, %rdi\n xorl %esi, %esi\n int $0x80\n cmpq %r12, %rbx\n je 1f\n ud2\n"
        "1: testl %eax, %eax\n jnz 2f\n testq %rcx, %rcx\n jz 2f\n xorl %ebp, %ebp\n popq %rax\n call *%rax\n movl %eax, %edi\n"
        " movl $60, %eax\n syscall\n2: popq %r12\n popq %rbp\n popq %rbx\n ret\n"
        /* clone3: the stack is in its arguments. */
        ".globl make3\nmake3: pushq %rbx\n movq %rdi, %rbx\n movq %rsi, %rcx\n movl $435, %eax\n int $0x80\n testl %eax, %eax\n"
        " jnz 3f\n testq %rdx, %rdx\n jz 3f\n xorl %ebp, %ebp\n popq %rax\n call *%rax\n movl %eax, %edi\n movl $60, %eax\n"
        " syscall\n3: popq %rbx\n ret\n");
/* number, flags, stack, -, parent's word, child's word */
long make(long number, unsigned long flags, void *stack, long none, int *parent, int *child);
long make3(struct clone_args *arguments, size_t bytes, long on_stack);

static long made(long number, unsigned long flags, void *stack, int *parent, int *child)
{
    if (sigsetjmp(attempt, 1))
        return -38;
    return make(number, flags | 0x700000000, stack, 0, parent, child);
}

static volatile int shared;
static int adds(void)
{
    for (int i = 0; i < 1000; i++)
        __asm__ volatile("lock incl %0" : "+m"(shared)::"cc");
    return 5;
}

static int becomes(void)
{
    char *arguments[] = {"sh", "-c", "exit 21", NULL};
    execv("/bin/sh", arguments);
    return 97;
}

static void *stack_for(int index, int (*first)(void))
{
    void **top = (void **)(low->stacks[index] + STACK);
    *--top = NULL;
    *--top = (void *)first;
    return top;
}

static int ended(long pid)
{
    int status = -1;
    if (pid <= 0)
        return pid;
    while (waitpid(pid, &status, __WALL) < 0)
        MUST(errno == EINTR);
    return status;
}

static volatile int mine;
static void processes(void)
{
    static const unsigned long flags[] = {SIGCHLD, CLONE_UNTRACED | SIGCHLD, CLONE_UNTRACED | CLONE_FS | SIGCHLD};
    for (int i = 0; i < 3; i++) {
        long pid = made(CLONE, flags[i], NULL, NULL, NULL);
        if (pid == 0) {
            adds();
            mine = 1;
            _exit(7 + i);
        }
        say("clone: %#x", ended(pid));
    }
    long pid = made(FORK, 0, NULL, NULL, NULL);
    if (pid == 0)
        _exit(adds());
    say("fork: %#x", ended(pid));
    say("its own: %d %d", shared, mine);
}

static void of_one_memory(void)
{
    static const unsigned long flags[] = {0, CLONE_UNTRACED};
    for (int i = 0; i < 2; i++) {
        shared = 0;
        say("clone: %#x", ended(made(CLONE, flags[i] | CLONE_VM | SIGCHLD, stack_for(0, adds), NULL, NULL)));
        say("additions: %d", shared);
        say("exec: %#x", ended(made(CLONE, flags[i] | CLONE_VM | CLONE_VFORK | SIGCHLD, stack_for(1, becomes), NULL, NULL)));
        adds();
        say("additions: %d", shared);
    }
}

static void threads(void)
{
    unsigned long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
    for (int i = 0; i < 8; i++) {
        shared = 0;
        low->tid[0] = low->tid[1] = 1;
        long tid = made(CLONE, flags | (i & 1 ? CLONE_UNTRACED : 0), stack_for(i, adds), &low->tid[0], &low->tid[1]);
        if (tid == -38)
            return;
        MUST(tid > 0);
        double until = patience();
        while (*(volatile int *)&low->tid[1] != 0 && now_seconds() < until)
            sched_yield();
        CHECK_EQ(low->tid[0], tid, "its number");
        CHECK_EQ(shared, 1000, "additions of thread %d", i);
    }
}

static long made3(size_t bytes, long on_stack)
{
    if (sigsetjmp(attempt, 1))
        return -38;
    return (int)make3(&low->arguments, bytes, on_stack);
}

static void by_clone3(void)
{
    for (int i = 0; i < 4; i++) {
        shared = 0;
        unsigned long flags = (i & 1 ? CLONE_UNTRACED : 0) | (i & 2 ? CLONE_VM : 0);
        void *top = stack_for(0, adds);
        low->arguments = (struct clone_args){.flags = flags, .exit_signal = SIGCHLD};
        if (i & 2) {
            low->arguments.stack = (uintptr_t)low->stacks[0];
            low->arguments.stack_size = (char *)top - low->stacks[0];
        }
        long pid = made3(sizeof low->arguments, i & 2);
        if (pid == 0)
            _exit(low->arguments.flags == flags ? 9 : 10);
        say("clone3: %#x", ended(pid));
        CHECK_EQ(low->arguments.flags, flags, "the flags");
        say("additions: %d", shared);
    }
    say("too small: %ld", made3(8, 0));
}

int main(void)
{
    on_signal(SIGSEGV, on_fault, 0);
    low = low_memory(sizeof *low);
    RUN(processes);
    RUN(of_one_memory);
    RUN(threads);
    RUN(by_clone3);
    return done();
}

/* Promise: F9, F31 */
