//@ variants: pie static
//@ cflags: -O1
/* What INT 0x80 tells of the files of /proc that show mappings is what SYSCALL tells: their entries, sizes, numbers,
 * content and ends. Where the kernel has no such calls, all of them are refused. */
#include "int80.h"
#include <dirent.h>
#include <sys/stat.h>
#include <sys/statfs.h>

enum { LSEEK = 19, DUP = 41, FSTATFS = 100, FSTAT = 108, LLSEEK = 140, GETDENTS = 141, PREAD64 = 180, FSTAT64 = 197, GETDENTS64 = 220, FSTATFS64 = 269, FSTATAT64 = 300, STATX = 383 };

/* What calls are told lies where 32 bits reach. */
static struct low {
    char path[64];
    _Alignas(16) char out[65536];
} *low;

static uint32_t half(int at)
{
    uint32_t value;
    memcpy(&value, low->out + at, 4);
    return value;
}

static uint64_t word(int at) { return half(at) | (uint64_t)half(at + 4) << 32; }

static void told(const char *path)
{
    struct stat real;
    struct statfs system;
    uintptr_t out = (uintptr_t)low->out, empty = (uintptr_t)low->path;
    int fd = open(path, O_RDONLY);
    MUST(fd >= 0 && stat(path, &real) == 0 && statfs(path, &system) == 0);
    low->path[0] = 0;
    say("fstat: %ld", call32(FSTAT, fd, out, 0, 0, 0));
    say("mode %o, links %u, size %u, blocks %u of %u", half(8) & 0xffff, half(8) >> 16, half(20), half(28), half(24));
    CHECK(half(0) == real.st_dev && half(4) == real.st_ino, "%s: another file", path);
    CHECK(half(40) == real.st_mtime && half(52) == real.st_ctim.tv_nsec, "%s: its times", path);
    for (int i = 0; i < 2; i++) {
        memset(low->out, 0, 96);
        say("fstat64: %ld", i ? call32(FSTATAT64, fd, empty, out, AT_EMPTY_PATH, 0) : call32(FSTAT64, fd, out, 0, 0, 0));
        say("mode %o, links %u, size %lu, blocks %lu of %u", half(16), half(20), word(44), word(56), half(52));
        CHECK(word(0) == real.st_dev && word(88) == real.st_ino, "%s: another file", path);
        CHECK(half(72) == real.st_mtime && half(84) == real.st_ctim.tv_nsec, "%s: its times", path);
    }
    struct statx more;
    if (statx(AT_FDCWD, path, 0, STATX_ALL, &more) == 0) {
        say("statx: %ld", call32(STATX, fd, empty, AT_EMPTY_PATH, STATX_ALL, out));
        CHECK(memcmp(&more, low->out, 144) == 0, "%s: statx", path);
    }
    long result = call32(FSTATFS, fd, out, 0, 0, 0);
    say("fstatfs: %ld, %x %u %u, names of %u", result, half(0), half(4), half(8), half(36));
    result = call32(FSTATFS64, fd, 84, out, 0, 0);
    say("fstatfs64: %ld, %x %u %lu, names of %u", result, half(0), half(4), word(8), half(56));
    int other = call32(DUP, fd, 0, 0, 0, 0);
    say("the end: %ld %ld %ld", call32(LSEEK, fd, 0, SEEK_END, 0, 0), call32(LLSEEK, fd, 0, 0, out, SEEK_END), other < 0 ? -22 : (long)lseek(other, 0, SEEK_END) - errno);
    close(other);
    close(fd);
}

/* Whoever reads from the beginning once more reads what is now. */
static void again(void)
{
    static char one[65536];
    uintptr_t out = (uintptr_t)low->out;
    int fd = open("/proc/self/maps", O_RDONLY), fresh;
    MUST(fd >= 0);
    for (int i = 0; i < 2; i++) {
        void *more = mmap(NULL, 4096, PROT_READ | i, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        MUST(more != MAP_FAILED);
        long bytes = i ? call32(PREAD64, fd, out, 4000, 0, 0) : call32(LSEEK, fd, 0, SEEK_SET, 0, 0);
        if (i == 0)
            bytes = read(fd, low->out, 4000);
        if (bytes == -38)
            return;
        MUST((fresh = open("/proc/self/maps", O_RDONLY)) >= 0);
        CHECK_EQ(read(fresh, one, 4000), bytes, "bytes");
        CHECK(memcmp(one, low->out, bytes) == 0, "what is mapped");
        close(fresh);
    }
    say("pread64 behind 4 GiB: %ld", call32(PREAD64, fd, out, 4000, 0, 1));
    close(fd);
}

static void entries(void)
{
    DIR *directory = opendir("/proc/self/map_files");
    int count[3] = {0, 0, 0}, bytes;
    MUST(directory);
    while (readdir(directory))
        count[0]++;
    for (int i = 1; i < 3; i++) {
        int length_at = i == 1 ? 16 : 8, name_at = i == 1 ? 19 : 10;
        rewinddir(directory);
        while ((bytes = call32(i == 1 ? GETDENTS64 : GETDENTS, dirfd(directory), (uintptr_t)low->out, 4096, 0, 0)) > 0)
            for (int at = 0; at < bytes; at += *(unsigned short *)(low->out + at + length_at))
                count[i] += low->out[at + name_at] != 0;
        if (bytes == -38)
            return;
        CHECK_EQ(bytes, 0, "the last entries");
        CHECK_EQ(count[i], count[0], "entries");
    }
    closedir(directory);
}

int main(void)
{
    on_signal(SIGSEGV, on_fault, 0);
    low = low_memory(sizeof *low);
    if (call32(20, 0, 0, 0, 0, 0) == -38)
        return done();
    told("/proc/self/maps");
    told("/proc/self/status");
    told("/proc/self/personality");
    RUN(again);
    RUN(entries);
    return done();
}

/* Promise: F31 */
