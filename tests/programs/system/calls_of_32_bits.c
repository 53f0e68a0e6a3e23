//@ variants: pie static
//@ cflags: -O1
/* Calls that INT 0x80 makes do and tell what those of SYSCALL do: of files in /proc, of memory, of filters. Where the
 * kernel has no such calls, all of them are refused. */
#include "int80.h"
#include "status.h"
#include <sys/prctl.h>
#include <sys/uio.h>

enum { EXIT = 1, READ = 3, OPEN = 5, CLOSE = 6, MSYNC = 144, MLOCKALL = 152, MUNLOCKALL = 153, PRCTL = 172, MINCORE = 218, OPENAT = 295, ARCH_PRCTL = 384, RSEQ = 386 };

/* What calls are told lies where 32 bits reach. */
struct low {
    char path[64];
    char resident[4096];
    char area[64] __attribute__((aligned(64)));
    char pages[3 * 4096] __attribute__((aligned(4096)));
};
static struct low *low;

static int read_all(int fd, char *into, int room)
{
    int bytes = 0, count;
    while ((count = read(fd, into + bytes, room - bytes)) > 0)
        bytes += count;
    close(fd);
    return bytes;
}

static void files(void)
{
    static const char *const names[] = {"/proc/self/maps", "/proc/self/smaps_rollup", "/proc/self/limits"};
    static char one[1 << 16], other[1 << 16];
    for (int i = 0; i < 3; i++) {
        strcpy(low->path, names[i]);
        int fd = open(names[i], O_RDONLY), by_open = call32(OPEN, (uintptr_t)low->path, O_RDONLY, 0, 0, 0);
        MUST(fd >= 0);
        int bytes = read_all(fd, one, sizeof one);
        if (by_open == -38)
            return;
        MUST(by_open >= 0);
        CHECK_EQ(read_all(by_open, other, sizeof other), bytes, "%s by open", names[i]);
        int by_openat = call32(OPENAT, -100u, (uintptr_t)low->path, O_RDONLY, 0, 0);
        MUST(by_openat >= 0);
        CHECK_EQ(read_all(by_openat, other, sizeof other), bytes, "%s by openat", names[i]);
        CHECK(i == 1 || memcmp(one, other, bytes) == 0, "%s: other text", names[i]);
    }
}

/* Memory in which there is nothing of the program's. */
static void holes(void)
{
    char *page = low->pages + 4096;
    MUST(munmap(page, 4096) == 0);
    say("mincore: %ld %ld", call32(MINCORE, (uintptr_t)low->pages, 4096, (uintptr_t)low->resident, 0, 0), call32(MINCORE, (uintptr_t)low->pages, 3 * 4096, (uintptr_t)low->resident, 0, 0));
    say("msync: %ld %ld", call32(MSYNC, (uintptr_t)low->pages, 4096, MS_ASYNC, 0, 0), call32(MSYNC, (uintptr_t)low->pages, 3 * 4096, MS_ASYNC, 0, 0));
    long found = 0;
    for (uintptr_t at = 0x70000000; at < 0x70000000 + (18 << 20); at += 1 << 20)
        found += call32(MINCORE, at, 4096, (uintptr_t)low->resident, 0, 0) == 0;
    say("pages of nobody: %ld", found);
}

static void locks(void)
{
    locked();
    int by_syscall = mlockall(MCL_CURRENT) == 0 ? 0 : -errno;
    long size = locked();
    munlockall();
    long result = call32(MLOCKALL, MCL_CURRENT, 0, 0, 0, 0);
    if (result == -38)
        return;
    CHECK_EQ(result, by_syscall, "mlockall");
    CHECK_EQ(locked(), size, "what is locked");
    call32(MUNLOCKALL, 0, 0, 0, 0, 0);
    CHECK_EQ(locked(), 0, "what is locked still");
    CHECK_EQ(call32(MLOCKALL, 0, 0, 0, 0, 0), -22, "no flags");
}

static int square(int n) { return n * n; }

/* A filter that allows read, write and exit, and kills for everything else. */
static void confined(void)
{
    long result = call32(PRCTL, PR_SET_SECCOMP, 1, 0, 0, 0);
    if (result != 0)
        syscall(SYS_exit, 0);
    volatile int (*of)(int) = (volatile int (*)(int))square;
    int sum = 0;
    for (int i = 0; i < 10000; i++)
        sum += of(i & 7);
    char text[32];
    int length = snprintf(text, sizeof text, "confined: %d\n", sum);
    syscall(SYS_write, 1, text, length);
    syscall(SYS_exit, sum != 175000);
}

static void others(void)
{
    long result = call32(RSEQ, (uintptr_t)low->area, 32, 8, 0, 0);
    CHECK(result == -22 || result == -38, "rseq with flags: %ld", result);
    result = call32(RSEQ, (uintptr_t)low->area + 1, 32, 0, 0, 0);
    CHECK(result == -22 || result == -38, "rseq at an odd address: %ld", result);
    result = call32(ARCH_PRCTL, 0x1011, 0, 0, 0, 0);
    CHECK(result == 1 || result == -38, "faulting of CPUID: %ld", result);
}

int main(void)
{
    on_signal(SIGSEGV, on_fault, 0);
    low = low_memory(sizeof *low);
    RUN(files);
    RUN(locks);
    RUN(others);
    RUN(holes);
    say("ends with %#x", in_child(confined));
    return done();
}

/* Promise: F31 */
