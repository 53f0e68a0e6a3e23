//@ variants: pie static
//@ cflags: -O1
/* clone and clone3 with CLONE_UNTRACED, by numbers in sight and out of it: the child is a child as any other. */
#include "check.h"
#include <linux/sched.h>

enum { STACK = 65536 };
static char stacks[8][STACK] __attribute__((aligned(64)));

/* The caller's rdi behind the call goes to *first; the child's too, where it has memory of its own. */
__asm__(".text\n.globl copied\ncopied: pushq %rbx\n movq %rsi, %rbx\n xorl %esi, %esi\n xorl %edx, %edx\n"
        " xorl %r10d, %r10d\n xorl %r8d, %r8d\n movl $56, %eax\n syscall\n movq %rdi, (%rbx)\n popq %rbx\n ret\n"
        ".globl copied3\ncopied3: pushq %rbx\n movq %rdx, %rbx\n movl $435, %eax\n syscall\n movq %rdi, (%rbx)\n popq %rbx\n"
        " ret\n"
        /* The child takes a function off its stack, calls it, and exits with its result. */
        ".globl beside\nbeside: xorl %r10d, %r10d\n movl $56, %eax\n syscall\n testq %rax, %rax\n jz child\n ret\n"
        ".globl beside3\nbeside3: movl $435, %eax\n syscall\n testq %rax, %rax\n jz child\n ret\n"
        "child: xorl %ebp, %ebp\n popq %rax\n call *%rax\n movl %eax, %edi\n movl $60, %eax\n syscall\n ud2\n");
long copied(unsigned long flags, unsigned long *first);
long copied3(const struct clone_args *arguments, size_t size, unsigned long *first);
/* flags, stack, parent tid */
long beside(unsigned long flags, void *stack, int *tid);
long beside3(const struct clone_args *arguments, size_t size);

typedef int (*function)(void);

static int three(void) { return 3; }
static int four(void) { return 4; }

/* Something that the parent has not executed yet. */
static void work(int number)
{
    static const function all[] = {three, four};
    long sum = 0;
    for (int i = 0; i < 20000; i++)
        sum += all[(i * 7 + number) % 2]();
    _exit(sum == 70000 ? number : 99);
}

static void ends(long pid, int number)
{
    int status = 0;
    if (pid == 0)
        work(number);
    MUST(pid > 0);
    CHECK(waitpid(pid, &status, 0) == pid, "%s", strerror(errno));
    CHECK_EQ(status, number << 8, "its status");
}

static const struct clone_args constant = {.flags = CLONE_UNTRACED, .exit_signal = SIGCHLD};

static void by_copies(void)
{
    unsigned long first = 0;
    long pid = copied(CLONE_UNTRACED | SIGCHLD, &first);
    CHECK_EQ(first, CLONE_UNTRACED | SIGCHLD, "the argument");
    ends(pid, check_failures ? 98 : 11);
    ends(syscall(SYS_clone, CLONE_UNTRACED | SIGCHLD, NULL, NULL, NULL, 0), 12);
    pid = copied3(&constant, sizeof constant, &first);
    CHECK(first == (unsigned long)&constant, "the argument");
    ends(pid, check_failures ? 98 : 13);
    ends(syscall(SYS_clone3, &constant, sizeof constant), 14);
    CHECK(constant.flags == CLONE_UNTRACED, "the flags");
    /* Another one by each of its children. */
    pid = copied(CLONE_UNTRACED | SIGCHLD, &first);
    if (pid == 0) {
        ends(copied3(&constant, sizeof constant, &first), 15);
        _exit(check_failures ? 98 : 16);
    }
    ends(pid, 16);
}

static volatile int shared;

static int adds(void)
{
    for (int i = 0; i < 1000; i++)
        __asm__ volatile("lock incl %0" : "+m"(shared)::"cc");
    return 0;
}

static void *stack_for(int index, function first)
{
    void **top = (void **)(stacks[index] + STACK);
    *--top = NULL;
    *--top = (void *)first;
    return top;
}

enum { THREAD = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_UNTRACED };

static void by_threads(void)
{
    for (int i = 0; i < 4; i++)
        MUST(beside(THREAD, stack_for(i, adds), NULL) > 0);
    for (int i = 4; i < 8; i++) {
        void *top = stack_for(i, adds);
        struct clone_args arguments = {.flags = THREAD, .stack = (uintptr_t)stacks[i], .stack_size = (char *)top - stacks[i]};
        MUST(beside3(&arguments, sizeof arguments) > 0);
    }
    double until = patience();
    while (shared < 8000 && now_seconds() < until)
        sched_yield();
    CHECK_EQ(shared, 8000, "additions");
}

static int becomes(void)
{
    char *arguments[] = {"sh", "-c", "exit 21", NULL};
    execv("/bin/sh", arguments);
    return 97;
}

static void by_vfork(void)
{
    int status;
    long pid = beside(CLONE_VM | CLONE_VFORK | CLONE_UNTRACED | SIGCHLD, stack_for(0, becomes), NULL);
    MUST(pid > 0);
    CHECK(waitpid(pid, &status, 0) == pid && status == 21 << 8, "%x", status);
    void *top = stack_for(1, becomes);
    struct clone_args arguments = {.flags = CLONE_VM | CLONE_VFORK | CLONE_UNTRACED, .exit_signal = SIGCHLD,
                                   .stack = (uintptr_t)stacks[1], .stack_size = (char *)top - stacks[1]};
    pid = beside3(&arguments, sizeof arguments);
    MUST(pid > 0);
    CHECK(waitpid(pid, &status, 0) == pid && status == 21 << 8, "%x", status);
}

static void result(const char *what, long result)
{
    say("%s: %ld, %d", what, result, result < 0 ? errno : 0);
}

static void errors(void)
{
    struct clone_args arguments = {.flags = CLONE_UNTRACED | CLONE_THREAD};
    result("at nothing", syscall(SYS_clone3, (void *)8, sizeof arguments));
    result("too small", syscall(SYS_clone3, &constant, 8));
    result("too large", syscall(SYS_clone3, &constant, 1 << 20));
    result("not allowed", syscall(SYS_clone3, &arguments, sizeof arguments));
    result("not allowed", syscall(SYS_clone, CLONE_UNTRACED | CLONE_THREAD, NULL, NULL, NULL, 0));
    char *pages = map_pages(2 * 4096, PROT_READ | PROT_WRITE);
    MUST(munmap(pages + 4096, 4096) == 0);
    memcpy(pages + 4096 - 16, &constant, 16);
    result("half of it", syscall(SYS_clone3, pages + 4096 - 16, sizeof constant));
}

int main(void)
{
    RUN(by_copies);
    RUN(by_threads);
    RUN(by_vfork);
    RUN(errors);
    return done();
}

/* Promise: F9 */
