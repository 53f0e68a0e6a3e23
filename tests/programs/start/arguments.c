//@ variants: pie static static-pie
//@ args: one two three
/* What a new program finds: arguments, environment, auxiliary vector, descriptors, /proc/self. */
#include "check.h"
#include <elf.h>
#include <sys/auxv.h>

extern char **environ;
extern const char _start[];

static void vectors(int argc, char **argv)
{
    CHECK_EQ(argc, 4, "argument count");
    CHECK(strcmp(argv[1], "one") == 0 && strcmp(argv[3], "three") == 0, "%s %s", argv[1], argv[3]);
    CHECK(argv[argc] == NULL, "argv is terminated");
    CHECK(environ == argv + argc + 1, "environment follows argv");
    CHECK(getenv("TMPDIR") && getenv("LWP_TESTS_RUN"), "environment is passed on");
    CHECK(getenv("LD_PRELOAD") == NULL, "nothing is preloaded: %s", getenv("LD_PRELOAD"));
}

static void auxiliary(char **argv)
{
    CHECK_EQ(getauxval(AT_PAGESZ), 4096, "AT_PAGESZ");
    CHECK_EQ(getauxval(AT_ENTRY), (uintptr_t)_start, "AT_ENTRY is this program's entry");
    const Elf64_Phdr *headers = (void *)getauxval(AT_PHDR);
    intptr_t distance = (char *)headers - _start;
    CHECK(distance > -(1 << 24) && distance < 1 << 24, "AT_PHDR is %p", headers);
    CHECK_EQ(getauxval(AT_PHENT), sizeof(Elf64_Phdr), "AT_PHENT");
    CHECK_EQ(getauxval(AT_SECURE), 0, "AT_SECURE");
    CHECK_EQ(getauxval(AT_UID), getuid(), "AT_UID");
    CHECK(getauxval(AT_RANDOM) != 0, "AT_RANDOM");
    const char *file = (char *)getauxval(AT_EXECFN);
    CHECK(file && strcmp(file, argv[0]) == 0, "AT_EXECFN is %s", file);
    const char *platform = (char *)getauxval(AT_PLATFORM);
    CHECK(platform && strcmp(platform, "x86_64") == 0, "AT_PLATFORM is %s", platform);
}

static void descriptors(void)
{
    for (int fd = 0; fd < 3; fd++)
        CHECK(fcntl(fd, F_GETFD) == 0, "descriptor %d is open", fd);
    int fd = open("/dev/null", O_RDONLY);
    CHECK_EQ(fd, 3, "the lowest free descriptor");
    close(fd);
    for (int other = 4; other < 1024; other++)
        CHECK(fcntl(other, F_GETFD) == -1, "descriptor %d is open", other);
}

static void identity(char **argv)
{
    char path[PATH_MAX] = {0};
    MUST(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
    CHECK(strcmp(path, argv[0]) == 0, "/proc/self/exe is %s", path);
    char text[4096] = {0};
    int fd = open("/proc/self/cmdline", O_RDONLY);
    MUST(fd >= 0);
    ssize_t length = read(fd, text, sizeof text);
    close(fd);
    CHECK_EQ(length, strlen(argv[0]) + 1 + 14, "/proc/self/cmdline length");
    CHECK(strcmp(text, argv[0]) == 0, "/proc/self/cmdline is %s", text);
    memset(text, 0, sizeof text);
    fd = open("/proc/self/comm", O_RDONLY);
    MUST(fd >= 0);
    length = read(fd, text, sizeof text);
    close(fd);
    CHECK(strcmp(text, "arguments\n") == 0, "/proc/self/comm is %s", text);
}

static void inherited_signals(void)
{
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    for (int number = 1; number < 32; number++) {
        struct sigaction action;
        CHECK(!sigismember(&mask, number), "signal %d is blocked at start", number);
        sigaction(number, NULL, &action);
        CHECK(action.sa_handler == SIG_DFL, "signal %d is not at its default", number);
    }
}

int main(int argc, char **argv)
{
    vectors(argc, argv);
    auxiliary(argv);
    descriptors();
    identity(argv);
    RUN(inherited_signals);
    return done();
}
