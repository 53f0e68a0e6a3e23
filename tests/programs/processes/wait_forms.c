//@ cflags: -O1 -pthread
/* waitpid, waitid, wait4 with every option and selector; statuses; process groups; errors; subreapers;
 * a wait from another thread. */
#include "check.h"
#include <sys/prctl.h>
#include <sys/resource.h>

static pid_t child(int code, int milliseconds)
{
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        usleep(milliseconds * 1000);
        _exit(code);
    }
    return pid;
}

static void selectors(void)
{
    int status;
    pid_t a = child(1, 0), b = child(2, 5);
    CHECK_EQ(waitpid(b, &status, 0), b, "one child");
    CHECK_EQ(status, 2 << 8, "its status");
    CHECK_EQ(wait(&status), a, "any child");
    CHECK_EQ(status, 1 << 8, "its status");
    CHECK(wait(&status) == -1 && errno == ECHILD, "no child left");
    a = child(3, 0);
    setpgid(a, a);
    CHECK(waitpid(0, &status, 0) == -1 && errno == ECHILD, "our process group");
    CHECK_EQ(waitpid(-a, &status, 0), a, "its process group");
    CHECK(waitpid(1, &status, 0) == -1 && errno == ECHILD, "not our child");
    CHECK(waitpid(-1, &status, 0x12345) == -1 && errno == EINVAL, "bad options");
    a = child(0, 0);
    CHECK(waitpid(a, (int *)8, 0) == -1 && errno == EFAULT, "bad pointer");
}

static void no_hang(void)
{
    int status = 77, ends[2];
    MUST(pipe(ends) == 0);
    pid_t a = fork();
    MUST(a >= 0);
    if (a == 0) {
        char byte;
        MUST(read(ends[0], &byte, 1) == 1);
        _exit(4);
    }
    CHECK_EQ(waitpid(a, &status, WNOHANG), 0, "still running");
    CHECK_EQ(status, 77, "status untouched");
    MUST(write(ends[1], "x", 1) == 1);
    double end = patience();
    pid_t got;
    while ((got = waitpid(a, &status, WNOHANG)) == 0 && now_seconds() < end)
        usleep(1000);
    CHECK_EQ(got, a, "done");
    CHECK_EQ(status, 4 << 8, "status");
    close(ends[0]), close(ends[1]);
}

static void by_waitid(void)
{
    siginfo_t info;
    pid_t a = child(5, 0);
    memset(&info, 0, sizeof info);
    CHECK_EQ(waitid(P_PID, a, &info, WEXITED | WNOWAIT), 0, "WNOWAIT");
    CHECK(info.si_pid == a && info.si_status == 5 && info.si_code == CLD_EXITED, "%d %d %d", info.si_pid, info.si_status, info.si_code);
    CHECK_EQ(waitid(P_ALL, 0, &info, WEXITED), 0, "again");
    CHECK_EQ(info.si_pid, a, "still there");
    CHECK(waitid(P_PID, a, &info, WEXITED) == -1 && errno == ECHILD, "gone");
    CHECK(waitid(P_ALL, 0, &info, 0) == -1 && errno == EINVAL, "no event asked for");
    a = child(0, 600000);
    kill(a, SIGSTOP);
    CHECK_EQ(waitid(P_PID, a, &info, WSTOPPED), 0, "WSTOPPED");
    CHECK(info.si_code == CLD_STOPPED && info.si_status == SIGSTOP, "%d %d", info.si_code, info.si_status);
    kill(a, SIGCONT);
    CHECK_EQ(waitid(P_PID, a, &info, WCONTINUED), 0, "WCONTINUED");
    CHECK(info.si_code == CLD_CONTINUED && info.si_status == SIGCONT, "%d %d", info.si_code, info.si_status);
    info.si_pid = 5;
    CHECK_EQ(waitid(P_PID, a, &info, WEXITED | WNOHANG), 0, "WNOHANG");
    CHECK_EQ(info.si_pid, 0, "nothing yet");
    kill(a, SIGKILL);
    CHECK_EQ(waitid(P_PID, a, &info, WEXITED), 0, "WEXITED");
    CHECK(info.si_code == CLD_KILLED && info.si_status == SIGKILL, "%d %d", info.si_code, info.si_status);
}

static void usage(void)
{
    struct rusage usage;
    int status;
    pid_t a = fork();
    MUST(a >= 0);
    if (a == 0) {
        volatile unsigned long x = 0;
        struct timespec taken;
        do {
            x++;
            MUST(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &taken) == 0);
        } while (taken.tv_sec == 0 && taken.tv_nsec < 50000000);
        _exit(0);
    }
    CHECK_EQ(wait4(a, &status, 0, &usage), a, "wait4");
    double seconds = usage.ru_utime.tv_sec + usage.ru_utime.tv_usec / 1e6 + usage.ru_stime.tv_sec + usage.ru_stime.tv_usec / 1e6;
    CHECK(seconds > 0.005 && seconds < 20, "CPU time of the child: %f", seconds);
}

static void subreaper(void)
{
    MUST(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
    int ends[2];
    MUST(pipe(ends) == 0);
    pid_t middle = fork();
    MUST(middle >= 0);
    if (middle == 0) {
        pid_t orphan = fork();
        if (orphan == 0) {
            usleep(20000);
            _exit(42);
        }
        MUST(write(ends[1], &orphan, sizeof orphan) == sizeof orphan);
        _exit(0);
    }
    pid_t orphan;
    int status;
    MUST(read(ends[0], &orphan, sizeof orphan) == sizeof orphan);
    CHECK_EQ(waitpid(middle, &status, 0), middle, "the middle one");
    CHECK_EQ(waitpid(orphan, &status, 0), orphan, "the orphan comes to us");
    CHECK_EQ(status, 42 << 8, "its status");
    prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
}

static void *wait_in_thread(void *argument)
{
    int status = 0;
    pid_t pid = *(pid_t *)argument;
    CHECK_EQ(waitpid(pid, &status, 0), pid, "another thread waits for our child");
    CHECK_EQ(status, 6 << 8, "status");
    pid = child(7, 0);
    CHECK(waitpid(pid, &status, __WNOTHREAD) == pid, "__WNOTHREAD for its own child");
    return NULL;
}

static void in_thread(void)
{
    pid_t a = child(6, 10);
    pthread_t id;
    MUST(pthread_create(&id, NULL, wait_in_thread, &a) == 0);
    pthread_join(id, NULL);
}

static void parent_death(void)
{
    int ends[2];
    MUST(pipe(ends) == 0);
    pid_t middle = fork();
    MUST(middle >= 0);
    if (middle == 0) {
        pid_t inner = fork();
        if (inner == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            MUST(write(ends[1], "r", 1) == 1);
            for (;;)
                pause();
        }
        char byte;
        MUST(read(ends[0], &byte, 1) == 1);
        _exit(0);
    }
    close(ends[1]);
    waitpid(middle, NULL, 0);
    char byte;
    /* End of file: the inner one, which held the other end, is dead. */
    CHECK_EQ(read(ends[0], &byte, 1), 0, "killed by its parent's death");
}

static void process_descriptor(void)
{
    pid_t a = child(9, 20);
    int fd = syscall(SYS_pidfd_open, a, 0);
    MUST(fd >= 0);
    siginfo_t info;
    CHECK_EQ(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0), 0, "pidfd_send_signal");
    CHECK_EQ(waitid(P_PIDFD, fd, &info, WEXITED), 0, "waitid");
    CHECK_EQ(info.si_status, 9, "status");
    close(fd);
}

int main(void)
{
    RUN(selectors);
    RUN(no_hang);
    RUN(by_waitid);
    RUN(usage);
    RUN(subreaper);
    RUN(in_thread);
    RUN(parent_death);
    RUN(process_descriptor);
    return done();
}

/* Promise: F9 */
