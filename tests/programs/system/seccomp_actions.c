//@ cflags: -O1
/* A filter's answers to one call: an error, a signal, death of a thread or of the process; in other threads, in
 * children and behind exec. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static int answer(unsigned action, unsigned flags)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

static void ask(const char *who)
{
    errno = 0;
    long result = syscall(SYS_getppid);
    say("%s: %d, errno %d", who, result > 0 ? 1 : (int)result, errno);
}

static void on_sys(int number, siginfo_t *info, void *context)
{
    greg_t *regs = regs_of(context);
    say("signal %d, code %d, data %d, call %d, at %d, rax %d", number, info->si_code, info->si_errno, info->si_syscall,
        (greg_t)info->si_call_addr == regs[REG_RIP], (int)regs[REG_RAX]);
    regs[REG_RAX] = 42;
}

static void *asking(void *nothing)
{
    ask("another thread");
    return nothing;
}

static atomic_int go;
static void *asking_later(void *nothing)
{
    for (double end = patience(); !atomic_load(&go) && now_seconds() < end;)
        sched_yield();
    return asking(nothing);
}

static void error(void) { answer(SECCOMP_RET_ERRNO | 77, 0), ask("error"); }
static void largest_error(void) { answer(SECCOMP_RET_ERRNO | 0xffff, 0), ask("largest error"); }
static void no_tracer(void) { answer(SECCOMP_RET_TRACE | 5, 0), ask("nobody to ask"); }
static void logged(void) { answer(SECCOMP_RET_LOG, 0), ask("logged"); }
static void trap(void)
{
    on_signal(SIGSYS, on_sys, 0);
    answer(SECCOMP_RET_TRAP | 123, 0);
    ask("behind the handler");
}

static void fatal_trap(void) { answer(SECCOMP_RET_TRAP, 0), ask("not reached"); }
static void death(void) { answer(SECCOMP_RET_KILL_PROCESS, 0), ask("not reached"); }

static void death_of_a_thread(void)
{
    pthread_t thread;
    answer(SECCOMP_RET_KILL_THREAD, 0);
    MUST(pthread_create(&thread, NULL, asking, NULL) == 0 && pthread_join(thread, NULL) == 0);
    say("the other lives");
}

static void everywhere(void)
{
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, asking_later, NULL) == 0);
    say("for all threads: %d", answer(SECCOMP_RET_ERRNO | 8, SECCOMP_FILTER_FLAG_TSYNC));
    atomic_store(&go, 1);
    MUST(pthread_join(thread, NULL) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        ask("a child");
        _exit(0);
    }
    MUST(waitpid(pid, NULL, 0) == pid);
    execl("/bin/sh", "sh", "-c", "grep Seccomp: /proc/self/status", (char *)NULL);
}

int main(void)
{
    static void (*const all[])(void) = {error, largest_error, no_tracer, logged, trap, fatal_trap, death, death_of_a_thread, everywhere};
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    for (int i = 0; i < 9; i++)
        say("%d: %#x", i, in_child(all[i]));
    return done();
}

/* Promise: B2 */
