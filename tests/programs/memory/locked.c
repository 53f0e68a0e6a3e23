//@ variants: pie static
/* mlockall: what is locked is the program's and all of it, now and later; who may not lock so much fails as natively. */
#include "status.h"
#include <sys/prctl.h>
#include <sys/resource.h>

#define PAGE 4096
#define PAGES 10

static int resident(char *at)
{
    unsigned char pages[PAGES];
    MUST(mincore(at, PAGES * PAGE, pages) == 0);
    int count = 0;
    for (int i = 0; i < PAGES; i++)
        count += pages[i] & 1;
    return count;
}

static void unlock(void)
{
    int result = munlockall();
    say("unlocked: %d, %ld kB", result, locked());
}

static void arguments(void)
{
    static const int flags[] = {0, 8, -1, MCL_ONFAULT};
    for (int i = 0; i < 4; i++) {
        errno = 0;
        int result = mlockall(flags[i]);
        say("mlockall(%d): %d %d", flags[i], result, errno);
    }
}

static void current(void)
{
    char *before = map_pages(PAGES * PAGE, PROT_READ | PROT_WRITE);
    int result = mlockall(MCL_CURRENT);
    say("current: %d, %d resident, later %d", result, resident(before),
        resident(map_pages(PAGES * PAGE, PROT_READ | PROT_WRITE)));
    CHECK(locked() < 100 * 1024, "%ld kB are locked", locked());
    unlock();
}

static void on_fault(void)
{
    char *before = map_pages(PAGES * PAGE, PROT_READ | PROT_WRITE);
    int result = mlockall(MCL_CURRENT | MCL_ONFAULT);
    say("on fault: %d, %d resident", result, resident(before));
    unlock();
}

static void future(void)
{
    char *before = map_pages(PAGES * PAGE, PROT_READ | PROT_WRITE);
    int result = mlockall(MCL_FUTURE);
    say("future: %d, %d resident, later %d", result, resident(before),
        resident(map_pages(PAGES * PAGE, PROT_READ | PROT_WRITE)));
    /* Code of its own, far from everything. */
    unsigned char *code = mmap((void *)0x10000000000, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    MUST(code != MAP_FAILED);
    memcpy(code, "\xb8\x07\0\0\0\xc3", 6);
    MUST(mprotect(code, PAGE, PROT_READ | PROT_EXEC) == 0);
    say("code: %d", ((int (*)(void))code)());
    CHECK(locked() < 100 * 1024, "%ld kB are locked", locked());
    result = mlockall(MCL_CURRENT);
    say("no longer: %d, %d resident, later %d", result, resident(before),
        resident(map_pages(PAGES * PAGE, PROT_READ | PROT_WRITE)));
    unlock();
}

/* As a user without privileges, with a limit that the program fits into and the virtual CPU does not; with one that it
 * does not fit into; and with none at all. */
static void limited(void)
{
    static const long limits[] = {8 << 20, 64 << 10, 0};
    if (geteuid() == 0) {
        MUST(setgid(65534) == 0);
        MUST(setuid(65534) == 0);
    }
    for (int i = 0; i < 3; i++) {
        struct rlimit limit;
        MUST(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
        if (limit.rlim_max < (rlim_t)limits[i]) {
            say("# the limit is %ld, for ever", (long)limit.rlim_max);
            continue;
        }
        limit.rlim_cur = limits[i];
        MUST(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
        errno = 0;
        int result = mlockall(MCL_CURRENT);
        say("limit %ld: %d %d", limits[i], result, result ? errno : 0);
        unlock();
        errno = 0;
        result = mlockall(MCL_FUTURE);
        say("future, limit %ld: %d %d", limits[i], result, result ? errno : 0);
        char *later = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        say("a mapping: %s", later == MAP_FAILED ? "no" : resident(later) == PAGES ? "resident" : "there");
        munlockall();
    }
}

int main(void)
{
    RUN(arguments);
    RUN(current);
    RUN(on_fault);
    RUN(future);
    say("limited: %x", in_child(limited));
    return done();
}

/* Promise: F21 */
