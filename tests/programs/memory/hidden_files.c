//@ variants: pie static
/* What fstat and its relatives say of the files of /proc that show mappings is the same as natively: by each of the
 * calls, by every descriptor, in children and behind exec. */
#include "check.h"
#include <dirent.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

static void result(const char *what, long result)
{
    say("%s: %ld, error %d", what, result, result < 0 ? errno : 0);
}

static void say_stat(const char *what, const char *path, const struct stat *told)
{
    struct stat real;
    MUST(stat(path, &real) == 0);
    say("%s: size %ld, blocks %ld of %ld, mode %o, links %lu, of a device %lu", what, (long)told->st_size,
        (long)told->st_blocks, (long)told->st_blksize, told->st_mode, (unsigned long)told->st_nlink,
        (unsigned long)told->st_rdev);
    CHECK_EQ(told->st_dev, real.st_dev, "the device");
    CHECK_EQ(told->st_ino, real.st_ino, "the inode");
    CHECK(told->st_uid == real.st_uid && told->st_gid == real.st_gid, "the owner");
    CHECK_EQ(told->st_mtime, real.st_mtime, "the time of its last change");
    CHECK_EQ(told->st_ctim.tv_nsec, real.st_ctim.tv_nsec, "the time of its last change, more exactly");
}

static void told(const char *path, int fd)
{
    struct stat stat;
    MUST(syscall(SYS_fstat, fd, &stat) == 0);
    say_stat("fstat", path, &stat);
    memset(&stat, 0, sizeof stat);
    MUST(syscall(SYS_newfstatat, fd, "", &stat, AT_EMPTY_PATH) == 0);
    say_stat("fstatat", path, &stat);
    memset(&stat, 0, sizeof stat);
    MUST(fstat(fd, &stat) == 0);
    say_stat("the library", path, &stat);
    struct statx more, real;
    memset(&more, 0, sizeof more);
    memset(&real, 0, sizeof real);
    if (statx(fd, "", AT_EMPTY_PATH, STATX_ALL, &more) == 0) {
        MUST(statx(AT_FDCWD, path, 0, STATX_ALL, &real) == 0);
        say("statx: %x, %llu bytes", more.stx_mask, (unsigned long long)more.stx_size);
        CHECK(memcmp(&more, &real, 144) == 0, "all of it");
    }
    result("wrongly", syscall(SYS_newfstatat, fd, "", &stat, 0x10));
    result("wrongly", syscall(SYS_fstat, fd, (void *)8));
    struct statfs system;
    MUST(fstatfs(fd, &system) == 0);
    say("%lx: %ld %ld %ld, names of %ld", (long)system.f_type, (long)system.f_bsize, (long)system.f_blocks,
        (long)system.f_files, (long)system.f_namelen);
}

static void each_file(void)
{
    static const char *const names[] = {"maps", "smaps", "smaps_rollup", "numa_maps", "statm", "stat", "status", "limits"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        char path[64];
        sprintf(path, "/proc/self/%s", names[i]);
        int fd = open(path, O_RDONLY);
        say("%s", names[i]);
        if (fd < 0) {
            say("%s", strerror(errno));
            continue;
        }
        told(path, fd);
        close(fd);
    }
}

static void each_descriptor(void)
{
    int fd = open("/proc/self/maps", O_RDONLY), other;
    char byte;
    MUST(fd >= 0);
    MUST((other = dup(fd)) >= 0);
    told("/proc/self/maps", other);
    result("the end", lseek(other, 0, SEEK_END));
    MUST(close(other) == 0 && dup2(fd, 70) == 70);
    told("/proc/self/maps", 70);
    MUST((other = fcntl(70, F_DUPFD_CLOEXEC, 10)) >= 10 && close(70) == 0);
    told("/proc/self/maps", other);
    MUST(dup3(other, 20, O_CLOEXEC) == 20);
    result("the end", lseek(20, 0, SEEK_END));
    MUST(pread(20, &byte, 1, 0) == 1);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        char path[64];
        sprintf(path, "/proc/%d/maps", getppid());
        told(path, 20);
        _exit(check_failures);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0, "the child");
    /* Another file under the same number. */
    struct stat told_of;
    MUST(dup2(open("/dev/null", O_RDONLY), 20) == 20 && fstat(20, &told_of) == 0);
    say("another: %d", S_ISCHR(told_of.st_mode) != 0);
}

static void a_directory(void)
{
    DIR *directory = opendir("/proc/self/map_files");
    MUST(directory);
    int count[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        struct dirent *entry;
        while ((entry = readdir(directory)))
            count[i]++;
        struct stat told_of;
        MUST(fstat(dirfd(directory), &told_of) == 0 && S_ISDIR(told_of.st_mode));
        rewinddir(directory);
    }
    rewinddir(directory);
    int by_old = 2, bytes;
    char entries[4096];
    while ((bytes = syscall(SYS_getdents, dirfd(directory), entries, sizeof entries)) > 0)
        for (int at = 0; at < bytes; at += *(unsigned short *)(entries + at + 16))
            by_old += entries[at + 18] != '.';
    MUST(bytes == 0);
    int mapped = 0;
    char line[512];
    FILE *file = fopen("/proc/self/maps", "r");
    MUST(file);
    while (fgets(line, sizeof line, file))
        mapped += strchr(line, '/') != NULL;
    fclose(file);
    say("entries: %d %d %d", count[0] - 2 == mapped, count[1] == count[0], by_old == count[0]);
    closedir(directory);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        result("behind exec", lseek(atoi(argv[1]), 0, SEEK_END));
        struct stat told_of;
        MUST(fstat(atoi(argv[1]), &told_of) == 0);
        say("size %ld", (long)told_of.st_size);
        return done();
    }
    RUN(each_file);
    RUN(each_descriptor);
    RUN(a_directory);
    if (check_failures)
        return done();
    int fd = open("/proc/self/status", O_RDONLY);
    char number[16];
    sprintf(number, "%d", fd);
    execl(argv[0], argv[0], number, NULL);
    return 97;
}

/* Promise: F22 */
