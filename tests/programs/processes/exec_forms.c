//@ variants: pie static
//@ cflags: -O1
/* exec in all forms: a chain of itself, scripts, fexecve of a file in memory, failures after which the
 * program goes on, long arguments, descriptors and close-on-exec, vanished and unreadable files. */
#include "check.h"
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

extern char **environ;
static char self[PATH_MAX];

static void write_file(const char *path, const char *text, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
    MUST(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    MUST(chmod(path, mode) == 0);
}

static void failures(void)
{
    char *const argv[] = {"x", NULL};
    write_file("not-executable", "#!/bin/sh\n", 0644);
    write_file("garbage", "this is not a program", 0755);
    write_file("empty", "", 0755);
    write_file("bad-interpreter", "#!/nonexistent/sh\n", 0755);
    write_file("bad-elf", "\177ELF\2\1\1", 0755);
    static const struct { const char *path; int error; } cases[] = {
        {"/nonexistent/x", ENOENT}, {"not-executable", EACCES}, {"garbage", ENOEXEC}, {"empty", ENOEXEC},
        {"bad-interpreter", ENOENT}, {"bad-elf", ENOEXEC}, {"/", EACCES}, {"garbage/x", ENOTDIR}, {"", ENOENT}};
    for (int round = 0; round < 10; round++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            errno = 0;
            CHECK_EQ(execve(cases[i].path, argv, environ), -1, "%s", cases[i].path);
            CHECK_EQ(errno, cases[i].error, "error of %s", cases[i].path);
        }
    CHECK(execve(self, (char *const *)8, environ) == -1 && errno == EFAULT, "bad argument vector");
    size_t size = 4 << 20;
    char *huge = malloc(size);
    memset(huge, 'x', size);
    huge[size - 1] = 0;
    char *const too_long[] = {"x", huge, NULL};
    CHECK(execve(self, too_long, environ) == -1 && errno == E2BIG, "an argument of 4 MiB");
    free(huge);
}

static void status_of(const char *what, int want, void (*child)(void))
{
    int status = in_child(child);
    CHECK_EQ(status, want << 8, "%s", what);
}

static void script(void) { execl("script", "script", "one", "two", NULL); }
static void script_in_path(void) { setenv("PATH", ".", 1); execlp("script", "script", "one", "two", NULL); }
static void no_shebang(void) { execlp("./plain-script", "plain-script", NULL); }
static void nested_script(void) { execl("outer-script", "outer-script", NULL); }
static void by_descriptor(void)
{
    int fd = open("/bin/sh", O_RDONLY | O_CLOEXEC);
    char *const argv[] = {"sh", "-c", "exit 9", NULL};
    fexecve(fd, argv, environ);
}
static void from_memory(void)
{
    int in = open("/proc/self/exe", O_RDONLY), out = memfd_create("copy", MFD_CLOEXEC);
    char buffer[65536];
    ssize_t got;
    while ((got = read(in, buffer, sizeof buffer)) > 0)
        MUST(write(out, buffer, got) == got);
    close(in);
    char *const argv[] = {self, "code", "33", NULL};
    fexecve(out, argv, environ);
}
static void deleted_file(void)
{
    int in = open("/proc/self/exe", O_RDONLY), out = open("copy", O_WRONLY | O_CREAT | O_TRUNC, 0755);
    char buffer[65536];
    ssize_t got;
    while ((got = read(in, buffer, sizeof buffer)) > 0)
        MUST(write(out, buffer, got) == got);
    close(out), close(in);
    execl("./copy", "./copy", "delete", NULL);
}
static void chain(void) { execl(self, self, "chain", "25", NULL); }
static void no_arguments(void)
{
    char *const argv[] = {"sh", NULL};
    char *const none[] = {NULL};
    int fd = open("/dev/null", O_RDONLY);
    dup2(fd, 0);
    execve("/bin/sh", argv, none);
}
static void descriptors(void)
{
    int kept = open("/dev/null", O_RDONLY), closed = open("/dev/null", O_RDONLY | O_CLOEXEC);
    char a[16], b[16];
    sprintf(a, "%d", kept), sprintf(b, "%d", closed);
    execl(self, self, "descriptors", a, b, NULL);
}
static void many_arguments(void)
{
    static char *argv[2003];
    argv[0] = self, argv[1] = "count";
    for (int i = 2; i < 2002; i++)
        argv[i] = "an argument of some length";
    execv(self, argv);
}
static void with_limits(void)
{
    struct rlimit small = {512 << 10, 8 << 20};
    setrlimit(RLIMIT_STACK, &small);
    execl(self, self, "code", "34", NULL);
}
static void no_new_privileges(void)
{
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    execl(self, self, "code", "35", NULL);
}
static void not_dumpable(void)
{
    /* Executable but not readable. */
    int in = open("/proc/self/exe", O_RDONLY), out = open("unreadable", O_WRONLY | O_CREAT | O_TRUNC, 0755);
    char buffer[65536];
    ssize_t got;
    while ((got = read(in, buffer, sizeof buffer)) > 0)
        MUST(write(out, buffer, got) == got);
    close(out), close(in);
    MUST(chmod("unreadable", 0111) == 0);
    execl("./unreadable", "./unreadable", "code", "36", NULL);
}

static int as_child(int argc, char **argv)
{
    if (strcmp(argv[1], "code") == 0)
        return atoi(argv[2]);
    if (strcmp(argv[1], "count") == 0)
        return argc == 2002 ? 37 : 1;
    if (strcmp(argv[1], "delete") == 0) {
        char path[PATH_MAX] = "";
        unlink("copy");
        MUST(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
        return strstr(path, "(deleted)") ? 38 : 1;
    }
    if (strcmp(argv[1], "descriptors") == 0)
        return fcntl(atoi(argv[2]), F_GETFD) == 0 && fcntl(atoi(argv[3]), F_GETFD) == -1 ? 39 : 1;
    if (strcmp(argv[1], "chain") == 0) {
        int left = atoi(argv[2]);
        if (left == 0)
            return 40;
        char next[16];
        sprintf(next, "%d", left - 1);
        execl("/proc/self/exe", argv[0], "chain", next, NULL);
    }
    return 99;
}

int main(int argc, char **argv)
{
    MUST(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    if (argc > 1)
        return as_child(argc, argv);
    write_file("script", "#!/bin/sh -e\ntest \"$1\" = one && test \"$2\" = two && exit 7\n", 0755);
    write_file("plain-script", "exit 8\n", 0755);
    write_file("inner-script", "#!/bin/sh\nexit 10\n", 0755);
    write_file("outer-script", "#!./inner-script\n", 0755);
    RUN(failures);
    status_of("a script", 7, script);
    status_of("a script in PATH", 7, script_in_path);
    status_of("a script without #!", 8, no_shebang);
    status_of("a script whose interpreter is a script", 10, nested_script);
    status_of("fexecve", 9, by_descriptor);
    status_of("fexecve of a memfd", 33, from_memory);
    status_of("a limited stack", 34, with_limits);
    status_of("no new privileges", 35, no_new_privileges);
    status_of("a file that cannot be read", 36, not_dumpable);
    status_of("many arguments", 37, many_arguments);
    status_of("a deleted file", 38, deleted_file);
    status_of("descriptors", 39, descriptors);
    status_of("a chain of 25", 40, chain);
    status_of("an empty environment", 0, no_arguments);
    return done();
}

/* Promise: F9 */
