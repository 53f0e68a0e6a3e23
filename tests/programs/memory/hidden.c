//@ variants: pie static
/* What /proc says about a process is the same as natively, by whatever way it is asked: mappings, sizes, limits, states;
 * about this process, its threads and others; again from the same descriptor. */
#include "check.h"
#include <dirent.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#ifndef SYS_openat2
#define SYS_openat2 437
#endif

static char text[1 << 20];

static char *contents(int fd)
{
    size_t length = 0;
    ssize_t got;
    while ((got = read(fd, text + length, sizeof text - 1 - length)) > 0)
        length += got;
    MUST(got == 0);
    text[length] = 0;
    return text;
}

static char *contents_of(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        say("%s: %s", path, strerror(errno));
        return strcpy(text, "");
    }
    MUST(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    contents(fd);
    close(fd);
    return text;
}

/* Permissions, offset and the end of the name of each mapping; how large most are depends on the machine. */
static void show_mappings(const char *what, char *lines)
{
    int count = 0, executable = 0;
    for (char *line = strtok(lines, "\n"); line; line = strtok(NULL, "\n")) {
        unsigned long start, end, offset;
        char permissions[5], name[512] = "";
        if (sscanf(line, "%lx-%lx %4s %lx %*s %*s %511[^\n]", &start, &end, permissions, &offset, name) < 4)
            continue;
        char *last = strrchr(name, '/');
        say("%s: %s %lx %s", what, permissions, offset, last ? last + 1 : name);
        count++;
        executable += permissions[2] == 'x';
    }
    say("%s: %d, %d executable", what, count, executable);
}

static void mappings(void)
{
    show_mappings("maps", contents_of("/proc/self/maps"));
    show_mappings("smaps", contents_of("/proc/self/smaps"));
    show_mappings("thread", contents_of("/proc/thread-self/maps"));
}

static void same(const char *what, int fd, const char *want)
{
    MUST(fd >= 0);
    CHECK(strcmp(contents(fd), want) == 0, "%s: %s", what, text);
    close(fd);
    say("%s", what);
}

static void by_any_way(void)
{
    int directory = open("/proc/self", O_RDONLY | O_DIRECTORY);
    MUST(directory >= 0);
    /* The heap is there before it is looked at. */
    char *want = malloc(1 << 16);
    MUST(strlen(contents_of("/proc/self/maps")) < 1 << 16);
    free(malloc(1 << 15));
    strcpy(want, contents_of("/proc/self/maps"));
    same("by its directory", openat(directory, "maps", O_RDONLY), want);
    MUST(chdir("/proc") == 0);
    same("from there", open("self/maps", O_RDONLY), want);
    same("not as usual", open("/proc//self/../self/./maps", O_RDONLY), want);
    same("by a call with a number out of sight", syscall(SYS_open, "/proc/self/maps", O_RDONLY), want);
    struct { uint64_t flags, mode, resolve; } how = {.flags = O_RDONLY};
    int fd = syscall(SYS_openat2, AT_FDCWD, "/proc/self/maps", &how, sizeof how);
    if (fd >= 0 || errno != ENOSYS)
        same("by openat2", fd, want);
    else
        say("by openat2");
    char path[64];
    sprintf(path, "/proc/%d/task/%d/maps", getpid(), getpid());
    same("by number", open(path, O_RDONLY), want);
    free(want);
    close(directory);
    MUST(chdir("/") == 0);
}

static long field(const char *lines, const char *name)
{
    const char *at = strstr(lines, name);
    return at ? atol(at + strlen(name)) : -1;
}

static void sizes(void)
{
    contents_of("/proc/self/status");
    long size = field(text, "VmSize:"), data = field(text, "VmData:"), resident = field(text, "VmRSS:");
    say("size %ld, data %ld, libraries %ld, tracer %ld, threads %ld", size, data, field(text, "VmLib:"),
        field(text, "TracerPid:"), field(text, "Threads:"));
    CHECK(field(text, "VmPeak:") < size + 400, "%s", text);
    CHECK(resident < 8 * 1024 && field(text, "RssShmem:") == 0, "%s", text);
    say("%s", strncmp(strstr(text, "State:"), "State:\tR (running)\n", 19) ? "sleeps" : "runs");
    long pages, resident_pages, shared, code, data_pages;
    MUST(sscanf(contents_of("/proc/self/statm"), "%ld %ld %ld %ld 0 %ld 0\n", &pages, &resident_pages, &shared, &code,
                &data_pages) == 5);
    say("statm %d %ld", pages * 4 == size, data_pages);
    CHECK(resident_pages < 2048 && shared < resident_pages, "%s", text);
    char state;
    long bytes, more_pages;
    MUST(sscanf(contents_of("/proc/self/stat"),
                "%*d %*s %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %*u %lu %ld", &state,
                &bytes, &more_pages) == 3);
    say("stat %c %d", state, bytes == size * 1024);
    CHECK(more_pages < 2048, "%s", text);
    contents_of("/proc/self/smaps_rollup");
    CHECK(field(text, "Rss:") < 8 * 1024 && field(text, "Pss_Shmem:") == 0, "%s", text);
    struct rlimit limit = {3l << 30, RLIM_INFINITY};
    MUST(setrlimit(RLIMIT_AS, &limit) == 0);
    char *line = strstr(contents_of("/proc/self/limits"), "Max address space");
    MUST(line);
    say("%.*s|", (int)(strchr(line, '\n') - line), line);
    limit.rlim_cur = RLIM_INFINITY;
    MUST(setrlimit(RLIMIT_AS, &limit) == 0);
}

/* A parent, which waits; a child, which does too. */
static void others(void)
{
    int ready[2], go[2];
    MUST(pipe(ready) == 0 && pipe(go) == 0);
    pid_t child = fork();
    if (child == 0) {
        char path[64];
        sprintf(path, "/proc/%d/maps", getppid());
        show_mappings("parent", contents_of(path));
        sprintf(path, "/proc/%d/status", getppid());
        say("parent's tracer %ld, size %d", field(contents_of(path), "TracerPid:"), field(text, "VmSize:") < 64 * 1024);
        char byte = 0;
        MUST(write(ready[1], &byte, 1) == 1 && read(go[0], &byte, 1) == 1);
        _exit(0);
    }
    char byte, path[64];
    MUST(read(ready[0], &byte, 1) == 1);
    sprintf(path, "/proc/%d/maps", child);
    show_mappings("child", contents_of(path));
    MUST(write(go[1], &byte, 1) == 1);
    MUST(waitpid(child, NULL, 0) == child);
}

/* The descriptor stays, and what it shows is of the moment when it is read from the beginning. */
static void again(void)
{
    int fd = open("/proc/self/maps", O_RDONLY);
    MUST(fd >= 0);
    char *name = "/memfd:seen_again";
    CHECK(strstr(contents(fd), name) == NULL, "%s", text);
    int file = memfd_create("seen_again", 0);
    MUST(file >= 0 && ftruncate(file, 4096) == 0);
    char *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
    MUST(at != MAP_FAILED && lseek(fd, 0, SEEK_SET) == 0);
    CHECK(strstr(contents(fd), name) != NULL, "%s", text);
    MUST(munmap(at, 4096) == 0);
    ssize_t length = pread(fd, text, sizeof text - 1, 0);
    MUST(length > 0);
    text[length] = 0;
    CHECK(strstr(text, name) == NULL, "%s", text);
    MUST(lseek(fd, 0, SEEK_END) != 0 || errno);
    close(fd);
    /* Another file under the same number is another file. */
    MUST(write(file, "some text", 9) == 9);
    MUST(dup2(file, fd) == fd && lseek(fd, 5, SEEK_SET) == 5);
    char word[5] = "";
    MUST(read(fd, word, 4) == 4);
    say("read %s, pread %d", word, (int)pread(fd, word, 4, 1));
    close(fd);
    close(file);
}

static volatile int asked_for_long;
static volatile pid_t busy;

/* Always in a system call or about to make one, and never asleep. */
static void *is_busy(void *unused)
{
    char name[16];
    busy = gettid();
    while (!asked_for_long)
        prctl(PR_GET_NAME, name);
    return unused;
}

static void states(void)
{
    pthread_t thread;
    char path[64], state;
    int asleep = 0;
    MUST(pthread_create(&thread, NULL, is_busy, NULL) == 0);
    while (busy == 0)
        sched_yield();
    sprintf(path, "/proc/self/task/%d/stat", busy);
    for (int i = 0; i < 300; i++) {
        MUST(sscanf(contents_of(path), "%*d %*s %c", &state) == 1);
        asleep += state != 'R';
    }
    asked_for_long = 1;
    MUST(pthread_join(thread, NULL) == 0);
    say("a busy thread: asleep %d times", asleep);
}

static void *in_thread(void *unused)
{
    (void)unused;
    int fd = open("/proc/thread-self/status", O_RDONLY);
    MUST(fd >= 0);
    contents(fd);
    say("in a thread: %ld threads, %s", field(text, "Threads:"), strstr(text, "State:\tR") ? "runs" : "sleeps");
    MUST(lseek(fd, 0, SEEK_SET) == 0);
    say("tracer %ld", field(contents(fd), "TracerPid:"));
    close(fd);
    return NULL;
}

static void threads(void)
{
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, in_thread, NULL) == 0);
    MUST(pthread_join(thread, NULL) == 0);
}

static void entries(void)
{
    DIR *directory = opendir("/proc/self/map_files");
    MUST(directory);
    int count = 0, mapped = 0;
    while (readdir(directory))
        count++;
    closedir(directory);
    for (char *line = strtok(contents_of("/proc/self/maps"), "\n"); line; line = strtok(NULL, "\n"))
        mapped += strchr(line, '/') != NULL;
    say("map_files: %d", count - 2 == mapped);
}

/* Names that cannot be read, and files that are only called so. */
static void errors(void)
{
    char *pages = map_pages(2 * 4096, PROT_READ | PROT_WRITE);
    MUST(munmap(pages + 4096, 4096) == 0);
    memset(pages, 'x', 4096);
    const char *const paths[] = {(char *)8, pages, pages + 4090, "", "/proc/self/maps/x", "/proc/1234567/maps", "/nowhere/stat"};
    for (int i = 0; i < 7; i++) {
        int results[3];
        results[0] = open(paths[i], O_RDONLY) < 0 ? errno : 0;
        results[1] = openat(AT_FDCWD, paths[i], O_RDONLY) < 0 ? errno : 0;
        results[2] = syscall(SYS_open, paths[i], O_RDONLY) < 0 ? errno : 0;
        say("path %d: %d %d %d", i, results[0], results[1], results[2]);
    }
    char *longest = malloc(5001);
    memset(longest, '/', 5000);
    longest[5000] = 0;
    errno = 0;
    say("long: %d %d", open(longest, O_RDONLY), errno);
    free(longest);
    errno = 0;
    say("to be written: %d %d", open("/proc/self/maps", O_WRONLY | O_NOFOLLOW) >= 0 && geteuid(), geteuid() ? errno : 0);
    char name[] = "/tmp/hidden-XXXXXX";
    MUST(mkdtemp(name) && chdir(name) == 0);
    int fd = open("maps", O_RDWR | O_CREAT, 0600);
    MUST(fd >= 0 && write(fd, "not maps", 8) == 8);
    close(fd);
    say("%s", contents_of("maps"));
    MUST(unlink("maps") == 0 && chdir("/") == 0 && rmdir(name) == 0);
}

/* Another user, and another root directory. */
static void elsewhere(void)
{
    if (geteuid() != 0) {
        say("# not root: nobody else to become");
        return;
    }
    int proc = open("/proc", O_RDONLY | O_DIRECTORY);
    MUST(proc >= 0 && chroot("/proc/self/fdinfo") == 0);
    int fd = openat(proc, "self/maps", O_RDONLY);
    MUST(fd >= 0);
    show_mappings("chroot", contents(fd));
    MUST(setgid(65534) == 0 && setuid(65534) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0);
    fd = openat(proc, "self/maps", O_RDONLY);
    MUST(fd >= 0);
    show_mappings("nobody", contents(fd));
}

int main(void)
{
    RUN(mappings);
    RUN(by_any_way);
    RUN(sizes);
    RUN(others);
    RUN(states);
    RUN(again);
    RUN(threads);
    RUN(entries);
    RUN(errors);
    say("elsewhere: %x", in_child(elsewhere));
    return done();
}

/* Promise: F22 */
