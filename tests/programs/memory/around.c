//@ variants: pie no-pie static
/* Calls about ranges that hold something of the program's at their ends and nothing in between: they end at the hole,
 * go on behind it, or fail, as natively. The virtual CPU has memory in some of these holes. */
#include "status.h"
#include <sys/shm.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef SYS_mseal
#define SYS_mseal 462
#endif
#define PAGE 4096ul
#define MIB (1ul << 20)

static const char *name;
static char *low, *high;
static size_t bytes;

static char *page_at(char *at)
{
    char *page = mmap(at, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (page != at)
        return NULL;
    memset(page, 7, PAGE);
    return page;
}

static void make(void)
{
    MUST(page_at(low) && page_at(high));
    bytes = high + PAGE - low;
}

static bool is_mapped(char *page)
{
    unsigned char resident;
    return mincore(page, PAGE, &resident) == 0;
}

static bool is_writable(char *page)
{
    int ends[2];
    MUST(pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
    bool written = read(ends[0], page, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    return written;
}

static void told(const char *call, long result)
{
    int error = result == 0 ? 0 : errno;
    int there = is_mapped(low) + 2 * is_mapped(high);
    int writable = there == 3 ? is_writable(low) + 2 * is_writable(high) : -1;
    int full = there == 3 ? (low[9] == 7) + 2 * (high[9] == 7) : -1;
    say("%s: %s: %ld, error %d; there %d, writable %d, full %d, locked %ld", name, call, result, error, there, writable,
        full, locked());
}

static void looking(void)
{
    unsigned char *pages = mmap(NULL, bytes / PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                                -1, 0);
    MUST(pages != MAP_FAILED);
    pages[0] = pages[1] = 77;
    told("mincore", mincore(low, bytes, pages));
    say("%d %d", pages[0] & 77, pages[1]);
    told("mincore, wrongly", mincore(low + 1, bytes, pages));
    munmap(pages, bytes / PAGE);
    told("msync", msync(low, bytes, MS_ASYNC));
    told("msync, at once", msync(low, bytes, MS_SYNC));
    told("msync, wrongly", msync(low, bytes, 8));
}

static void locking(void)
{
    told("mlock", mlock(low + 100, bytes - 200));
    told("munlock", munlock(low + 100, bytes - 200));
    told("munlock", munlock(high, PAGE));
    told("mlock2", syscall(SYS_mlock2, low, bytes, MLOCK_ONFAULT));
    munlock(low, PAGE);
    munlock(high, PAGE);
}

static void protecting(void)
{
    told("mprotect", mprotect(low, bytes, PROT_READ));
    told("mprotect, wrongly", mprotect(low, bytes, 1 << 20));
    told("pkey_mprotect", syscall(SYS_pkey_mprotect, low, bytes, PROT_READ | PROT_WRITE, -1));
    told("from the hole", mprotect(low + PAGE, bytes - PAGE, PROT_READ));
}

static void advising(void)
{
    told("madvise, wrongly", madvise(low, bytes, 12345));
    told("populate", madvise(low, bytes, 23 /* MADV_POPULATE_WRITE */));
    told("from the hole", madvise(low + PAGE, bytes - PAGE, MADV_DONTNEED));
    memset(high, 7, PAGE);
    told("don't need", madvise(low, bytes, MADV_DONTNEED));
    memset(low, 7, PAGE);
    memset(high, 7, PAGE);
}

static void others(void)
{
    told("mremap", mremap(low, bytes, bytes + PAGE, 0) == MAP_FAILED ? -1 : 0);
    told("remap_file_pages", syscall(SYS_remap_file_pages, low, bytes, 0, 0, 0));
    long sealed = syscall(SYS_mseal, low, bytes, 0);
    told("mseal", sealed);
    told("mseal, wrongly", syscall(SYS_mseal, low, bytes, 1));
}

static void unmapping(void)
{
    told("munmap, wrongly", munmap(low + 1, bytes));
    told("munmap, too much", munmap(low, 1ul << 47));
    told("from the hole", munmap(low + PAGE, bytes - PAGE));
    MUST(page_at(high));
    told("munmap", munmap(low, bytes));
    told("again", munmap(low, bytes));
}

static void around(const char *which, uintptr_t from, uintptr_t to)
{
    name = which;
    low = (char *)from;
    high = (char *)to;
    make();
    looking();
    locking();
    protecting();
    advising();
    others();
    unmapping();
}

/* From below the program, or below its libraries, up to it. */
static void below(const char *which, void *code)
{
    uintptr_t at = (uintptr_t)code & -MIB, from = at > 2304 * MIB ? at - 2304 * MIB : 0;
    char line[512];
    uintptr_t start, end, before = 0x20000, hole_from = 0, hole_to = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    MUST(file);
    /* The largest hole there. */
    while (fgets(line, sizeof line, file)) {
        MUST(sscanf(line, "%lx-%lx", &start, &end) == 2);
        uintptr_t hole = before > from ? before : from;
        uintptr_t until = start < at + 2304 * MIB ? start : at + 2304 * MIB;
        if (hole < until && until - hole > hole_to - hole_from) {
            hole_from = hole;
            hole_to = until;
        }
        before = end;
    }
    fclose(file);
    MUST(hole_to - hole_from > 64 * MIB);
    around(which, hole_from + 16 * MIB, hole_to - 16 * MIB);
}

static void near_code(void)
{
    below("program", (void *)near_code);
    below("libraries", stdout);
}

/* Where the low window and the contexts are. The kernel places libraries above 0x7efbf0000000, unless the stack may be
 * larger than 128 MiB: one start in sixty would else have its libraries in the second hole. */
static void near_ours(void)
{
    around("low", 0x6fff0000, 0x73000000);
    around("contexts", 0x7e7fffffe000, 0x7efb00000000);
    unsigned char resident;
    say("inside: %d %d %d %d", mincore((void *)0x70001000, PAGE, &resident), mlock((void *)0x70001000, PAGE),
        mprotect((void *)0x70001000, PAGE, PROT_READ), madvise((void *)0x70001000, PAGE, MADV_DONTNEED));
    say("inside: %d %d", munmap((void *)0x70001000, PAGE), msync((void *)0x70001000, PAGE, MS_SYNC));
}

/* Shared memory at a place of the program's choice. */
static void attaching(void)
{
    int segment = shmget(IPC_PRIVATE, 256 * MIB, 0600 | IPC_CREAT | SHM_NORESERVE);
    if (segment < 0) {
        say("# no shared memory");
        return;
    }
    int attached = 0, over = 0, tried = 0;
    uintptr_t middle = (uintptr_t)attaching & -MIB;
    uintptr_t from = middle > 2560 * MIB ? middle - 2048 * MIB : 512 * MIB;
    for (uintptr_t at = from; at < middle + 2048 * MIB; at += 192 * MIB) {
        char *free = mmap((void *)at, 256 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        bool there = free == (void *)at;
        if (there)
            munmap(free, 256 * MIB);
        if (!there || (at < 0x72000000 && at + 256 * MIB > 0x70000000))
            continue;
        tried++;
        if (shmat(segment, (void *)at, 0) == (void *)at) {
            attached++;
            MUST(shmdt((void *)at) == 0);
        }
        CHECK_EQ(getppid() > 0, 1, "a call of the library");
        MUST(page_at((char *)at));
        if (shmat(segment, (void *)at, SHM_REMAP) == (void *)at) {
            over++;
            MUST(shmdt((void *)at) == 0);
        }
    }
    CHECK(tried > 5 && attached == tried && over == tried, "%d places, %d attached, %d over a page", tried, attached, over);
    shmctl(segment, IPC_RMID, NULL);
}

int main(void)
{
    RUN(near_ours);
    RUN(near_code);
    RUN(attaching);
    return done();
}

/* Promise: F28 */
/* Promise: F23: by shmat */
