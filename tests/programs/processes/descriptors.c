//@ variants: pie static
//@ cflags: -O1
/* The program owns its descriptor table: every number can be closed, used, or limited; a virtual CPU has
 * none of its own in it. Pipes and pipelines. */
#include "check.h"
#include <dirent.h>
#include <sys/resource.h>
#include <sys/socket.h>

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4
#endif

static int open_count(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = -3; /* ".", ".." and the folder itself */
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static int call_cold_code(int x)
{
    char text[64];
    snprintf(text, sizeof text, "%a %d %s", x * 1.5, x, "cold");
    unsigned sum = 0;
    for (char *p = text; *p; p++)
        sum = sum * 31 + *p;
    return sum != 0;
}

static void closed_child(void)
{
    int out = dup(1);
    for (int fd = 0; fd < 1024; fd++)
        if (fd != out)
            close(fd);
    CHECK(call_cold_code(3), "new code after everything was closed");
    void *page = map_pages(4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    memcpy(page, "\xb8\x2a\x00\x00\x00\xc3", 6);
    CHECK_EQ(((int (*)(void))page)(), 42, "generated code");
    pid_t pid = fork();
    if (pid == 0)
        _exit(call_cold_code(4) ? 5 : 6);
    int status = 0;
    waitpid(pid, &status, 0);
    if (status != 5 << 8)
        _exit(90);
    /* The lowest numbers are free again. */
    for (int want = 0; want < 3; want++)
        if (open("/dev/null", O_RDWR) != want)
            _exit(91);
    _exit(check_failures ? 92 : 44);
}

static void range_child(void)
{
    syscall(SYS_close_range, 0, ~0u, 0);
    if (open("/dev/null", O_RDWR) != 0)
        _exit(93);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", "exit 45", NULL);
        _exit(94);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    _exit(WEXITSTATUS(status));
}

static void limited_child(void)
{
    struct rlimit few = {4, 4};
    MUST(setrlimit(RLIMIT_NOFILE, &few) == 0);
    int fd = open("/dev/null", O_RDONLY);
    CHECK_EQ(fd, 3, "one more is allowed");
    CHECK(open("/dev/null", O_RDONLY) == -1 && errno == EMFILE, "a second one is not");
    CHECK(call_cold_code(5), "new code at the limit");
    void *page = map_pages(4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    memcpy(page, "\xb8\x2a\x00\x00\x00\xc3", 6);
    CHECK_EQ(((int (*)(void))page)(), 42, "generated code at the limit");
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0)
        _exit(call_cold_code(6) ? 46 : 1);
    int status;
    waitpid(pid, &status, 0);
    _exit(check_failures ? 95 : WEXITSTATUS(status));
}

static void no_limit_child(void)
{
    struct rlimit none = {0, 0};
    MUST(setrlimit(RLIMIT_NOFILE, &none) == 0);
    CHECK(open("/dev/null", O_RDONLY) == -1 && errno == EMFILE, "none is allowed");
    CHECK(call_cold_code(7), "new code");
    _exit(check_failures ? 96 : 47);
}

static void exec_limited_child(void)
{
    struct rlimit few = {8, 8};
    MUST(setrlimit(RLIMIT_NOFILE, &few) == 0);
    execl("/bin/sh", "sh", "-c", "x=$(echo 48); exit $x", NULL);
    _exit(97);
}

static void ownership(void)
{
    int before = open_count();
    CHECK_EQ(before, 3, "open descriptors of a new program");
    CHECK_EQ(in_child(closed_child), 44 << 8, "every descriptor closed");
    CHECK_EQ(in_child(range_child), 45 << 8, "close_range over all");
    CHECK_EQ(in_child(limited_child), 46 << 8, "RLIMIT_NOFILE of 4");
    CHECK_EQ(in_child(no_limit_child), 47 << 8, "RLIMIT_NOFILE of 0");
    CHECK_EQ(in_child(exec_limited_child), 48 << 8, "exec with RLIMIT_NOFILE of 8");
    CHECK_EQ(open_count(), before, "open descriptors afterwards");
    /* Every number up to the limit can be used. */
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    int top = limit.rlim_cur < 4096 ? (int)limit.rlim_cur : 4096;
    for (int fd = 3; fd < top; fd++)
        CHECK_EQ(dup(0), fd, "the next descriptor");
    CHECK(call_cold_code(8), "new code with many descriptors");
    CHECK_EQ(syscall(SYS_close_range, 3, ~0u, 0), 0, "close_range");
}

static void pipeline(void)
{
    /* parent | add one | add one | ... | parent, each stage a process */
    enum { STAGES = 12, NUMBERS = 3000 };
    int in = -1, first;
    int ends[2];
    MUST(pipe(ends) == 0);
    first = ends[1];
    in = ends[0];
    pid_t pids[STAGES];
    for (int i = 0; i < STAGES; i++) {
        int next[2];
        MUST(pipe(next) == 0);
        pids[i] = fork();
        MUST(pids[i] >= 0);
        if (pids[i] == 0) {
            close(first), close(next[0]);
            FILE *from = fdopen(in, "r"), *to = fdopen(next[1], "w");
            long number;
            while (fscanf(from, "%ld", &number) == 1)
                fprintf(to, "%ld\n", number + 1);
            fclose(to);
            _exit(0);
        }
        close(in), close(next[1]);
        in = next[0];
    }
    pid_t writer = fork();
    MUST(writer >= 0);
    if (writer == 0) {
        FILE *to = fdopen(first, "w");
        for (long i = 0; i < NUMBERS; i++)
            fprintf(to, "%ld\n", i * i);
        fclose(to);
        _exit(0);
    }
    close(first);
    FILE *from = fdopen(in, "r");
    long number, count = 0;
    while (fscanf(from, "%ld", &number) == 1) {
        CHECK_EQ(number, count * count + STAGES, "number %ld", count);
        count++;
    }
    CHECK_EQ(count, NUMBERS, "numbers through the pipeline");
    fclose(from);
    int status;
    while (wait(&status) > 0)
        CHECK_EQ(status, 0, "a stage");
    (void)pids;
}

static void broken_pipe_child(void)
{
    int ends[2];
    MUST(pipe(ends) == 0);
    close(ends[0]);
    (void)!write(ends[1], "x", 1);
}

static void passing(void)
{
    /* A descriptor sent to a child over a socket. */
    int pair[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t pid = fork();
    MUST(pid >= 0);
    char control[CMSG_SPACE(sizeof(int))], byte = 'x';
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (pid == 0) {
        MUST(recvmsg(pair[1], &message, 0) == 1);
        int fd;
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
        MUST(write(fd, "sent\n", 5) == 5);
        _exit(0);
    }
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    int fd = 1;
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    MUST(sendmsg(pair[0], &message, 0) == 1);
    int status;
    waitpid(pid, &status, 0);
    CHECK_EQ(status, 0, "the receiver");
}

int main(void)
{
    RUN(ownership);
    RUN(pipeline);
    CHECK_EQ(in_child(broken_pipe_child), SIGPIPE, "a broken pipe");
    RUN(passing);
    return done();
}

/* Promise: F9, B2 */
