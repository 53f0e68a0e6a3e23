//@ variants: pie static
//@ cflags: -O1 -pthread
/* Programs that look into others of their own by ptrace(2): leak checkers, crash reporters, samplers of stacks.
 * Registers and memory are the program's own, and the thread that was looked into goes on as if nothing had been. */
#include "check.h"
#include <elf.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

static volatile long word = 0x1122334455667788;
static atomic_int *shared;

/* Turns until *go is set, with known registers; returns their sum. */
long turns(atomic_int *go);
extern char turns_begin[], turns_end[];
__asm__(".text\n.globl turns\nturns: pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
        " movl $0x1001, %ebx\n movl $0x1002, %r12d\n movl $0x1003, %r13d\n movl $0x1004, %r14d\n movl $0x1005, %r15d\n"
        " movq %rbx, %xmm7\n movl $1, 4(%rdi)\n.globl turns_begin\nturns_begin:\n cmpl $0, (%rdi)\n je turns_begin\n"
        ".globl turns_end\nturns_end:\n leaq (%rbx,%r12), %rax\n addq %r13, %rax\n addq %r14, %rax\n addq %r15, %rax\n"
        " popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n ret\n");
enum { SUM = 0x1001 + 0x1002 + 0x1003 + 0x1004 + 0x1005 };

static void pass(void) { usleep(2000); }

/* A child that turns, by now. */
static pid_t turning(void)
{
    shared[0] = shared[1] = 0;
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0)
        _exit(turns(shared) == SUM ? 40 : 41);
    while (!shared[1])
        pass();
    return pid;
}

static void ends(pid_t pid, int code)
{
    int status = 0;
    shared[0] = 1;
    CHECK_EQ(waitpid(pid, &status, 0), pid, "%s", strerror(errno));
    CHECK_EQ(status, code << 8, "its status");
}

static void has_turning_registers(pid_t tid)
{
    struct user_regs_struct regs = {0}, set = {0};
    struct iovec io = {&set, sizeof set};
    CHECK_EQ(ptrace(PTRACE_GETREGS, tid, NULL, &regs), 0, "%s", strerror(errno));
    CHECK(regs.rip >= (uintptr_t)turns_begin && regs.rip < (uintptr_t)turns_end, "rip %#llx", regs.rip);
    CHECK_EQ(regs.rbx, 0x1001, "rbx");
    CHECK_EQ(regs.r12, 0x1002, "r12");
    CHECK_EQ(regs.r15, 0x1005, "r15");
    CHECK_EQ(regs.rdi, (uintptr_t)shared, "rdi");
    CHECK_EQ(regs.gs_base, 0, "gs_base");
    CHECK_EQ(ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &io), 0, "%s", strerror(errno));
    CHECK_EQ(io.iov_len, sizeof set, "all of them");
    CHECK(memcmp(&regs, &set, sizeof set) == 0, "the same registers");
    CHECK_EQ(ptrace(PTRACE_PEEKUSER, tid, offsetof(struct user, regs.r13), NULL), 0x1003, "r13");
    struct user_fpregs_struct floating;
    CHECK_EQ(ptrace(PTRACE_GETFPREGS, tid, NULL, &floating), 0, "%s", strerror(errno));
    CHECK_EQ(floating.xmm_space[7 * 4], 0x1001, "xmm7");
    static char state[1 << 16];
    io = (struct iovec){state, sizeof state};
    CHECK_EQ(ptrace(PTRACE_GETREGSET, tid, NT_X86_XSTATE, &io), 0, "%s", strerror(errno));
    CHECK(io.iov_len >= 576 && io.iov_len < sizeof state, "%zu bytes", io.iov_len);
    io = (struct iovec){state, 16};
    CHECK_EQ(ptrace(PTRACE_GETREGSET, tid, NT_PRSTATUS, &io), 0, "%s", strerror(errno));
    CHECK_EQ(io.iov_len, 16, "what there was room for");
    errno = 0;
    CHECK_EQ(ptrace(PTRACE_PEEKDATA, tid, &word, NULL), word, "%s", strerror(errno));
    CHECK_EQ(ptrace(PTRACE_PEEKTEXT, tid, turns, NULL), *(long *)turns, "%s", strerror(errno));
    CHECK(ptrace(PTRACE_PEEKDATA, tid, 8, NULL) == -1 && errno == EIO, "nothing is there: %s", strerror(errno));
}

static void attaching(void)
{
    for (int i = 0; i < 20; i++) {
        pid_t pid = turning();
        int status = 0;
        CHECK_EQ(ptrace(PTRACE_ATTACH, pid, NULL, NULL), 0, "%s", strerror(errno));
        CHECK_EQ(waitpid(pid, &status, __WALL), pid, "%s", strerror(errno));
        CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP, "%#x", status);
        CHECK_EQ(waitpid(pid, &status, __WALL | WNOHANG), 0, "it has told");
        has_turning_registers(pid);
        CHECK(ptrace(PTRACE_ATTACH, pid, NULL, NULL) == -1 && errno == EPERM, "twice: %s", strerror(errno));
        if (i % 2) {
            CHECK_EQ(ptrace(PTRACE_CONT, pid, NULL, NULL), 0, "%s", strerror(errno));
            CHECK(ptrace(PTRACE_GETREGS, pid, NULL, NULL) == -1 && errno == ESRCH, "it runs: %s", strerror(errno));
            shared[0] = 1;
        } else {
            CHECK_EQ(ptrace(PTRACE_DETACH, pid, NULL, NULL), 0, "%s", strerror(errno));
            CHECK(ptrace(PTRACE_GETREGS, pid, NULL, NULL) == -1 && errno == ESRCH, "let go: %s", strerror(errno));
        }
        ends(pid, 40);
    }
}

static void seizing(void)
{
    pid_t pid = turning();
    int status = 0;
    CHECK_EQ(ptrace(PTRACE_SEIZE, pid, NULL, NULL), 0, "%s", strerror(errno));
    CHECK_EQ(waitpid(pid, &status, __WALL | WNOHANG), 0, "it runs");
    CHECK_EQ(ptrace(PTRACE_INTERRUPT, pid, NULL, NULL), 0, "%s", strerror(errno));
    CHECK_EQ(waitpid(-1, &status, __WALL), pid, "%s", strerror(errno));
    CHECK_EQ(status, (PTRACE_EVENT_STOP << 16 | SIGTRAP << 8 | 0x7f), "the stop");
    has_turning_registers(pid);
    CHECK_EQ(ptrace(PTRACE_DETACH, pid, NULL, NULL), 0, "%s", strerror(errno));
    ends(pid, 40);
}

/* A thread that sleeps in a call, which goes on undisturbed. */
static void in_a_call(void)
{
    int ends_of[2], status = 0;
    MUST(pipe(ends_of) == 0);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        char byte = 0;
        shared[1] = 1;
        _exit(read(ends_of[0], &byte, 1) == 1 ? byte : 42);
    }
    usleep(50000);
    CHECK_EQ(ptrace(PTRACE_ATTACH, pid, NULL, NULL), 0, "%s", strerror(errno));
    CHECK_EQ(waitpid(pid, &status, __WALL), pid, "%s", strerror(errno));
    struct user_regs_struct regs = {0};
    CHECK_EQ(ptrace(PTRACE_GETREGS, pid, NULL, &regs), 0, "%s", strerror(errno));
    CHECK_EQ(regs.orig_rax, SYS_read, "its call");
    CHECK_EQ(regs.rdi, ends_of[0], "the call's argument");
    CHECK_EQ(ptrace(PTRACE_DETACH, pid, NULL, NULL), 0, "%s", strerror(errno));
    MUST(write(ends_of[1], "\x2b", 1) == 1);
    ends(pid, 0x2b);
    close(ends_of[0]), close(ends_of[1]);
}

enum { THREADS = 4, STACK = 65536 };
static char stack[STACK] __attribute__((aligned(64)));
static volatile int tids[THREADS], looked_into, finished;
static atomic_int own[2];

static void *turns_in_thread(void *number)
{
    tids[(long)number] = syscall(SYS_gettid);
    return (void *)turns(own);
}

/* As leak checkers do: a process that shares the memory of the threads that it looks into. */
static int looks_at_all(void *unused)
{
    for (int i = 0; i < THREADS; i++) {
        int status = 0;
        if (ptrace(PTRACE_ATTACH, tids[i], NULL, NULL) != 0)
            return 1;
        if (syscall(SYS_wait4, tids[i], &status, __WALL, NULL) != tids[i] || status != (SIGSTOP << 8 | 0x7f))
            return 2;
    }
    for (int i = 0; i < THREADS; i++) {
        struct user_regs_struct regs;
        if (ptrace(PTRACE_GETREGS, tids[i], NULL, &regs) != 0)
            return 3;
        looked_into += regs.rbx == 0x1001 && regs.r14 == 0x1004;
    }
    for (int i = 0; i < THREADS; i++)
        if (ptrace(PTRACE_DETACH, tids[i], NULL, NULL) != 0)
            return 4;
    finished = 1;
    return 0;
}

static void sharing_memory(void)
{
    pthread_t threads[THREADS];
    own[0] = own[1] = 0;
    for (long i = 0; i < THREADS; i++)
        MUST(pthread_create(threads + i, NULL, turns_in_thread, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        while (!tids[i])
            pass();
    usleep(20000);
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_UNTRACED, status = 0;
    int pid = clone(looks_at_all, stack + STACK, flags, NULL);
    MUST(pid > 0);
    prctl(PR_SET_PTRACER, pid, 0, 0, 0);
    while (!finished && waitpid(pid, &status, __WALL | WNOHANG) == 0)
        sched_yield();
    if (finished)
        CHECK_EQ(waitpid(pid, &status, __WALL), pid, "%s", strerror(errno));
    CHECK_EQ(status, 0, "it has looked at all");
    CHECK_EQ(looked_into, THREADS, "registers of threads");
    own[0] = 1;
    for (int i = 0; i < THREADS; i++) {
        void *sum = NULL;
        pthread_join(threads[i], &sum);
        CHECK_EQ((long)sum, SUM, "thread %d", i);
    }
}

/* Whose tracer dies goes on; so does one that is traced while it ends. */
static void tracers_that_die(void)
{
    pid_t pid = turning();
    pid_t tracer = fork();
    int status = 0;
    MUST(tracer >= 0);
    if (tracer == 0) {
        if (ptrace(PTRACE_ATTACH, pid, NULL, NULL) != 0 || waitpid(pid, &status, __WALL) != pid)
            _exit(60);
        _exit(61);
    }
    CHECK_EQ(waitpid(tracer, &status, 0), tracer, "%s", strerror(errno));
    CHECK_EQ(status, 61 << 8, "the tracer's status");
    ends(pid, 40);
    pid = turning();
    tracer = fork();
    MUST(tracer >= 0);
    if (tracer == 0) {
        if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) != 0)
            _exit(60);
        shared[0] = 1;
        _exit(waitpid(pid, &status, __WALL) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 61);
    }
    CHECK_EQ(waitpid(tracer, &status, 0), tracer, "%s", strerror(errno));
    CHECK_EQ(status, 40 << 8, "it tells how it has ended");
    ends(pid, 40);
}

static void refusals(void)
{
    CHECK(ptrace(PTRACE_ATTACH, getpid(), NULL, NULL) == -1 && errno == EPERM, "itself: %s", strerror(errno));
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0)
        _exit(0);
    MUST(waitpid(pid, NULL, 0) == pid);
    CHECK(ptrace(PTRACE_ATTACH, pid, NULL, NULL) == -1 && errno == ESRCH, "nobody: %s", strerror(errno));
    CHECK(ptrace(PTRACE_GETREGS, pid, NULL, NULL) == -1 && errno == ESRCH, "nobody: %s", strerror(errno));
    CHECK(waitpid(pid, NULL, __WALL) == -1 && errno == ECHILD, "nobody: %s", strerror(errno));
    pid = turning();
    CHECK(ptrace(PTRACE_DETACH, pid, NULL, NULL) == -1 && errno == ESRCH, "not traced: %s", strerror(errno));
    ends(pid, 40);
}

int main(void)
{
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(shared != MAP_FAILED);
    RUN(attaching);
    RUN(seizing);
    RUN(in_a_call);
    RUN(sharing_memory);
    RUN(tracers_that_die);
    RUN(refusals);
    return done();
}

/* Promise: L5 */
