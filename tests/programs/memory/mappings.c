//@ variants: pie static
//@ cflags: -O1
/* mmap, munmap, mremap, mprotect, madvise, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_32BIT, growth, sharing. */
#include "check.h"
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

static void fixed(void)
{
    char *area = map_pages(16 * 4096, PROT_READ | PROT_WRITE);
    memset(area, 1, 16 * 4096);
    char *again = mmap(area + 4096, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(again == area + 4096, "MAP_FIXED at %p", again);
    CHECK(again[0] == 0 && again[8191] == 0 && area[0] == 1 && area[3 * 4096] == 1, "only two pages are new");
    void *refused = mmap(area, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(refused == MAP_FAILED && errno == EEXIST, "MAP_FIXED_NOREPLACE over a mapping: %p", refused);
    munmap(area, 16 * 4096);
    void *free_now = mmap(area, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(free_now == area, "MAP_FIXED_NOREPLACE on a free place: %p", free_now);
    munmap(area, 4096);
    void *hint = mmap(area, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(hint == area, "a hint that is free is taken: %p, want %p", hint, area);
    munmap(hint, 4096);
}

static void low(void)
{
    for (int i = 0; i < 20; i++) {
        char *at = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
        CHECK(at != MAP_FAILED && (uintptr_t)at < 1ul << 31, "MAP_32BIT gives %p", at);
        at[0] = at[(1 << 20) - 1] = 1;
    }
    static const uintptr_t places[] = {0x10000, 0x100000000, 0x200000000, 0x1000000000};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        void *at = mmap((void *)places[i], 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        CHECK(at == (void *)places[i], "%#lx is free for the program: %s", places[i], strerror(errno));
        if (at == (void *)places[i])
            munmap(at, 65536);
    }
}

static void remap(void)
{
    char *at = map_pages(4 * 4096, PROT_READ | PROT_WRITE);
    for (int i = 0; i < 4; i++)
        memset(at + i * 4096, i + 1, 4096);
    char *larger = mremap(at, 4 * 4096, 600 * 4096, MREMAP_MAYMOVE);
    MUST(larger != MAP_FAILED);
    CHECK(larger[0] == 1 && larger[3 * 4096] == 4 && larger[4 * 4096] == 0, "contents move along");
    larger[599 * 4096] = 9;
    char *target = map_pages(4096, PROT_READ);
    char *moved = mremap(larger, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, target);
    CHECK(moved == target && moved[5] == 1, "MREMAP_FIXED");
    char *smaller = mremap(larger + 4096, 599 * 4096, 4096, 0);
    CHECK(smaller == larger + 4096 && smaller[0] == 2, "shrink in place");
    CHECK(msync(larger + 2 * 4096, 4096, MS_ASYNC) == -1 && errno == ENOMEM, "the rest is unmapped");
}

static void holes(void)
{
    enum { N = 200 };
    char *area = map_pages(N * 4096, PROT_READ | PROT_WRITE);
    for (int i = 0; i < N; i++)
        area[i * 4096] = i;
    for (int i = 1; i < N; i += 3)
        MUST(munmap(area + i * 4096, 4096) == 0);
    for (int i = 2; i < N; i += 3)
        MUST(mprotect(area + i * 4096, 4096, PROT_READ) == 0);
    int there = 0;
    for (int i = 0; i < N; i++) {
        unsigned char vector;
        if (mincore(area + i * 4096, 4096, &vector) == 0)
            there++;
        if (i % 3 != 1)
            CHECK_EQ((unsigned char)area[i * 4096], i, "page %d", i);
    }
    CHECK_EQ(there, N - (N + 1) / 3, "pages left");
    munmap(area, N * 4096);
}

static void advice(void)
{
    char *area = map_pages(8 * 4096, PROT_READ | PROT_WRITE);
    memset(area, 7, 8 * 4096);
    CHECK_EQ(madvise(area + 4096, 4096, MADV_DONTNEED), 0, "MADV_DONTNEED");
    CHECK(area[0] == 7 && area[4096] == 0 && area[8192] == 7, "one page is zero again");
    CHECK_EQ(madvise(area, 8 * 4096, MADV_DONTFORK), 0, "MADV_DONTFORK");
    CHECK_EQ(madvise(area, 8 * 4096, MADV_DOFORK), 0, "MADV_DOFORK");
    CHECK(madvise(area + 1, 4096, MADV_DONTNEED) == -1 && errno == EINVAL, "unaligned");
    munmap(area, 8 * 4096);
}

static void sharing(void)
{
    int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int *own = map_pages(4096, PROT_READ | PROT_WRITE);
    MUST(shared != MAP_FAILED);
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        *shared = 5;
        *own = 6;
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    CHECK(*shared == 5 && *own == 0, "shared %d, private %d", *shared, *own);
    char name[] = "mapXXXXXX";
    int fd = mkstemp(name);
    MUST(fd >= 0 && ftruncate(fd, 8192) == 0);
    unlink(name);
    char *a = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *b = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    strcpy(a, "through the file");
    CHECK(strcmp(b, "through the file") == 0, "a private mapping sees the file");
    b[0] = 'T';
    CHECK(a[0] == 't', "and keeps its writes");
    close(fd);
}

static void errors(void)
{
    CHECK(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL, "length 0");
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 77, 0) == MAP_FAILED && errno == EBADF, "bad descriptor");
    CHECK(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, 77, 0) == MAP_FAILED && errno == EBADF, "bad descriptor, executable");
    CHECK(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 77) == MAP_FAILED && errno == EINVAL, "bad offset");
    CHECK(mmap(NULL, 1ul << 60, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == ENOMEM, "too large");
    CHECK(mprotect((void *)1, 4096, PROT_READ) == -1 && errno == EINVAL, "unaligned mprotect");
    CHECK(mprotect((void *)0x5000, 4096, PROT_READ | PROT_EXEC) == -1 && errno == ENOMEM, "mprotect of nothing");
    CHECK(munmap((void *)1, 4096) == -1 && errno == EINVAL, "unaligned munmap");
    CHECK_EQ(munmap((void *)0x5000, 4096), 0, "munmap of nothing");
    CHECK(mremap((void *)0x5000, 4096, 8192, 0) == MAP_FAILED && errno == EFAULT, "mremap of nothing");
}

static void churn(void)
{
    uint64_t x = 1;
    char *slots[64] = {0};
    size_t sizes[64] = {0};
    for (int i = 0; i < 4000; i++) {
        x = x * 6364136223846793005u + 1;
        int slot = x >> 58;
        if (slots[slot]) {
            CHECK_EQ(slots[slot][sizes[slot] - 1], slot, "contents of slot %d", slot);
            munmap(slots[slot], sizes[slot]);
            slots[slot] = NULL;
            continue;
        }
        sizes[slot] = ((x >> 20 & 63) + 1) * 4096;
        int protection = PROT_READ | PROT_WRITE | (x >> 40 & 1 ? PROT_EXEC : 0);
        slots[slot] = map_pages(sizes[slot], protection);
        slots[slot][sizes[slot] - 1] = slot;
        if (protection & PROT_EXEC) {
            memcpy(slots[slot], "\xb8\x00\x00\x00\x00\xc3", 6);
            memcpy(slots[slot] + 1, &i, 4);
            CHECK_EQ(((int (*)(void))slots[slot])(), i, "code in slot %d", slot);
        }
    }
}

static void reserve(void)
{
    char *huge = mmap(NULL, 1ul << 40, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(huge != MAP_FAILED, "a terabyte of reserved addresses: %s", strerror(errno));
    MUST(mprotect(huge + (1ul << 39), 4096, PROT_READ | PROT_WRITE) == 0);
    huge[1ul << 39] = 1;
    CHECK_EQ(munmap(huge, 1ul << 40), 0, "munmap");
    char *code = mmap(NULL, 1ul << 36, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(code != MAP_FAILED, "64 GiB of reserved code: %s", strerror(errno));
    memcpy(code + (1ul << 35), "\xb8\x2a\x00\x00\x00\xc3", 6);
    CHECK_EQ(((int (*)(void))(code + (1ul << 35)))(), 42, "code in the middle");
    CHECK_EQ(munmap(code, 1ul << 36), 0, "munmap");
}

int main(void)
{
    RUN(fixed);
    RUN(low);
    RUN(remap);
    RUN(holes);
    RUN(advice);
    RUN(sharing);
    RUN(errors);
    RUN(churn);
    RUN(reserve);
    return done();
}
