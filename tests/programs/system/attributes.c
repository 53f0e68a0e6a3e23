//@ variants: pie static
//@ cflags: -O1 -pthread
/* Process attributes: prctl, personality, priorities, affinity, names, resource limits, uname, credentials,
 * umask, working directory, /proc/self entries of a process that changes them. */
#include "check.h"
#include <grp.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

static void control(void)
{
    char name[32] = "";
    CHECK_EQ(prctl(PR_SET_NAME, "renamed-now"), 0, "PR_SET_NAME");
    CHECK_EQ(prctl(PR_GET_NAME, name), 0, "PR_GET_NAME");
    CHECK(strcmp(name, "renamed-now") == 0, "name is %s", name);
    CHECK_EQ(prctl(PR_GET_DUMPABLE), 1, "dumpable");
    CHECK_EQ(prctl(PR_SET_DUMPABLE, 0), 0, "PR_SET_DUMPABLE");
    CHECK_EQ(prctl(PR_GET_DUMPABLE), 0, "not dumpable");
    /* New code still runs, though such a process is protected from inspection. */
    char text[64];
    snprintf(text, sizeof text, "%Lg", 1.5L);
    CHECK(strcmp(text, "1.5") == 0, "%s", text);
    prctl(PR_SET_DUMPABLE, 1);
    CHECK_EQ(prctl(PR_GET_KEEPCAPS), 0, "keepcaps");
    int signal_number = -1;
    CHECK_EQ(prctl(PR_SET_PDEATHSIG, SIGUSR1), 0, "PR_SET_PDEATHSIG");
    prctl(PR_GET_PDEATHSIG, &signal_number);
    CHECK_EQ(signal_number, SIGUSR1, "PR_GET_PDEATHSIG");
    prctl(PR_SET_PDEATHSIG, 0);
    say("timer slack %d", prctl(PR_GET_TIMERSLACK));
    int mode = 0;
    CHECK_EQ(prctl(PR_GET_TSC, &mode), 0, "PR_GET_TSC");
    CHECK_EQ(mode, PR_TSC_ENABLE, "time stamps are enabled");
    CHECK(prctl(12345) == -1 && errno == EINVAL, "no such operation");
    CHECK_EQ(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 0, "no_new_privs is not set from outside");
    CHECK_EQ(prctl(PR_GET_CHILD_SUBREAPER, &mode), 0, "subreaper");
    CHECK_EQ(mode, 0, "not a subreaper");
}

static void no_time_stamps(void)
{
    MUST(prctl(PR_SET_TSC, PR_TSC_SIGSEGV) == 0);
    __asm__ volatile("rdtsc" ::: "eax", "edx");
}

static void scheduling(void)
{
    /* Whoever runs the tests may be nice. */
    int before = getpriority(PRIO_PROCESS, 0), wanted = before + 3 < 19 ? before + 3 : 19;
    CHECK_EQ(nice(3), wanted, "nice");
    CHECK_EQ(getpriority(PRIO_PROCESS, 0), wanted, "nice value");
    CHECK_EQ(sched_getscheduler(0), SCHED_OTHER, "scheduler");
    cpu_set_t all, one;
    CHECK_EQ(sched_getaffinity(0, sizeof all, &all), 0, "affinity");
    CHECK(CPU_COUNT(&all) >= 1, "some CPU");
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all)) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0, "affinity to CPU %d", cpu);
            CHECK_EQ(sched_getcpu(), cpu, "the CPU we run on");
        }
    sched_setaffinity(0, sizeof all, &all);
    say("CPUs %d", CPU_COUNT(&all));
}

static void limits(void)
{
    for (int resource = 0; resource < RLIM_NLIMITS; resource++) {
        struct rlimit limit;
        CHECK_EQ(getrlimit(resource, &limit), 0, "limit %d", resource);
        if (resource != RLIMIT_CORE && resource != RLIMIT_SIGPENDING)
            say("limit %d: %lx %lx", resource, (long)limit.rlim_cur, (long)limit.rlim_max);
    }
}

static void file_size(void)
{
    /* A limit on file size: shared memory of a virtual CPU must not count. */
    struct rlimit limit = {4096, 4096};
    signal(SIGXFSZ, SIG_IGN);
    MUST(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    char *page = map_pages(65536, PROT_READ | PROT_WRITE | PROT_EXEC);
    memcpy(page, "\xb8\x2b\x00\x00\x00\xc3", 6);
    CHECK_EQ(((int (*)(void))page)(), 43, "generated code");
    int fd = open("file", O_RDWR | O_CREAT, 0600);
    static char data[8192];
    CHECK_EQ(write(fd, data, sizeof data), 4096, "a short write at the limit");
    CHECK(write(fd, data, 10) == -1 && errno == EFBIG, "and none beyond");
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0)
        _exit(snprintf(data, 100, "%d", 5));
    int status;
    waitpid(pid, &status, 0);
    CHECK_EQ(status, 1 << 8, "a child under the limit");
}

static void process_count(void)
{
    if (geteuid() == 0 && (setgroups(0, NULL) || setgid(65534) || setuid(65534)))
        return;
    CHECK(setuid(0) == -1 && errno == EPERM, "privileges are gone");
    char text[64];
    snprintf(text, sizeof text, "%g", 3.25);
    char *page = map_pages(4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    memcpy(page, "\xb8\x2c\x00\x00\x00\xc3", 6);
    CHECK_EQ(((int (*)(void))page)(), 44, "generated code as another user");
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", "exit 13", NULL);
        _exit(1);
    }
    int status;
    waitpid(pid, &status, 0);
    CHECK_EQ(status, 13 << 8, "exec as another user");
}

static void system_information(void)
{
    struct utsname names;
    struct sysinfo info;
    CHECK_EQ(uname(&names), 0, "uname");
    CHECK(strcmp(names.machine, "x86_64") == 0, "machine %s", names.machine);
    CHECK_EQ(sysinfo(&info), 0, "sysinfo");
    say("processors %ld", sysconf(_SC_NPROCESSORS_ONLN));
    say("umask %o", umask(027));
    CHECK_EQ(umask(022), 027, "umask is set");
    char folder[PATH_MAX];
    MUST(mkdir("inside", 0755) == 0 && chdir("inside") == 0);
    CHECK(getcwd(folder, sizeof folder) && strstr(folder, "/inside"), "working directory %s", folder);
    CHECK_EQ(personality(0xffffffff) & ~ADDR_NO_RANDOMIZE, 0, "personality");
}

static void rooted(void)
{
    if (geteuid() != 0)
        return;
    MUST(chroot(".") == 0 && chdir("/") == 0);
    /* /proc, /dev and /tmp are out of reach now. */
    CHECK(open("/proc/self/maps", O_RDONLY) == -1, "no /proc");
    char *page = map_pages(4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    memcpy(page, "\xb8\x2d\x00\x00\x00\xc3", 6);
    CHECK_EQ(((int (*)(void))page)(), 45, "generated code in a chroot");
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        char text[40];
        _exit(snprintf(text, sizeof text, "%e", 1.0));
    }
    int status;
    waitpid(pid, &status, 0);
    CHECK_EQ(status, 12 << 8, "a child in a chroot");
}

int main(void)
{
    RUN(control);
    CHECK_EQ(in_child(no_time_stamps), SIGSEGV, "rdtsc is refused after PR_SET_TSC");
    RUN(scheduling);
    RUN(limits);
    CHECK_EQ(in_child(file_size), 0, "RLIMIT_FSIZE");
    CHECK_EQ(in_child(process_count), 0, "another user");
    RUN(system_information);
    CHECK_EQ(in_child(rooted), 0, "chroot");
    return done();
}
