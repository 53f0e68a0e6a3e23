/* A sandbox that allows the calls which the program makes itself and kills for every other one:
 * threads, one after the other and at once, and processes in it. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const int allowed[] = {
    SYS_read,           SYS_write,        SYS_exit,        SYS_exit_group,     SYS_rt_sigreturn,
    SYS_clone,          SYS_clone3,       SYS_fork,        SYS_vfork,          SYS_set_robust_list,
    SYS_rseq,           SYS_mmap,         SYS_munmap,      SYS_mprotect,       SYS_futex,
    SYS_wait4,          SYS_gettid,       SYS_getpid,      SYS_sigaltstack,    SYS_rt_sigprocmask,
    SYS_rt_sigaction,   SYS_madvise,      SYS_brk,         SYS_clock_nanosleep, SYS_getrandom,
    SYS_prlimit64,
};
enum { CALLS = sizeof allowed / sizeof *allowed };

static void install(void)
{
    struct sock_filter code[CALLS + 3];
    int at = 0;
    code[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
    for (int i = 0; i < CALLS; i++)
        code[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], CALLS - i, 0);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    code[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {at, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0))
        _exit(98);
}

static void *seven(void *unused)
{
    (void)unused;
    return (void *)7;
}

static void tell(const char *what, int number)
{
    char line[64];
    if (write(1, line, snprintf(line, sizeof line, "%s %d\n", what, number)) < 0)
        _exit(99);
}

int main(void)
{
    install();
    int good = 0;
    pthread_t threads[20];
    for (int i = 0; i < 5; i++) {
        void *result = NULL;
        if (pthread_create(&threads[0], NULL, seven, NULL) == 0)
            pthread_join(threads[0], &result);
        good += result == (void *)7;
    }
    tell("threads", good);
    good = 0;
    for (int i = 0; i < 5; i++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0)
            _exit(9);
        waitpid(child, &status, 0);
        good += WIFEXITED(status) && WEXITSTATUS(status) == 9;
    }
    tell("forks", good);
    good = 0;
    for (int i = 0; i < 20; i++)
        good += pthread_create(&threads[i], NULL, seven, NULL) == 0;
    for (int i = 0; i < good; i++)
        pthread_join(threads[i], NULL);
    tell("at once", good);
    return 0;
}
