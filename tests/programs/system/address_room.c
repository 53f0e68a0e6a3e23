//@ variants: pie static
/* A limit on address space holds what the program has and nothing else: as much room as natively, also with many
 * threads, in children and behind exec; and it is shown as it was set, by every call and for other processes. */
#include "check.h"
#include <sys/resource.h>

enum { PIECE = 1 << 16 };
#define SET (512ul << 20)

static unsigned long size_of_all(void)
{
    unsigned long pages;
    FILE *file = fopen("/proc/self/statm", "r");
    MUST(file && fscanf(file, "%lu", &pages) == 1);
    fclose(file);
    return pages * 4096;
}

/* As many pieces as the limit leaves room for, which are given back. */
static void room(unsigned long limit)
{
    static char *pieces[20000];
    long found = 0, wanted = ((long)limit - (long)size_of_all()) / PIECE;
    while (found < 20000) {
        char *piece = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (piece == MAP_FAILED)
            break;
        pieces[found++] = piece;
    }
    for (long i = 0; i < found; i++)
        MUST(munmap(pieces[i], PIECE) == 0);
    CHECK(found >= wanted - 40 && found <= wanted + 1, "%ld pieces, wanted %ld", found, wanted);
}

static void shown(rlim_t soft, rlim_t hard)
{
    struct rlimit limit;
    char line[200], wanted[100], soft_text[30], hard_text[30];
    bool found = false;
    MUST(getrlimit(RLIMIT_AS, &limit) == 0);
    CHECK(limit.rlim_cur == soft && limit.rlim_max == hard, "getrlimit: %lu %lu", limit.rlim_cur, limit.rlim_max);
    MUST(prlimit(getpid(), RLIMIT_AS, NULL, &limit) == 0);
    CHECK(limit.rlim_cur == soft && limit.rlim_max == hard, "prlimit: %lu %lu", limit.rlim_cur, limit.rlim_max);
    MUST(syscall(SYS_getrlimit, RLIMIT_AS, &limit) == 0);
    CHECK(limit.rlim_cur == soft && limit.rlim_max == hard, "the call: %lu %lu", limit.rlim_cur, limit.rlim_max);
    snprintf(soft_text, sizeof soft_text, soft == RLIM_INFINITY ? "unlimited" : "%lu", soft);
    snprintf(hard_text, sizeof hard_text, hard == RLIM_INFINITY ? "unlimited" : "%lu", hard);
    snprintf(wanted, sizeof wanted, "Max address space         %-21s%-21s", soft_text, hard_text);
    FILE *file = fopen("/proc/self/limits", "r");
    MUST(file);
    while (fgets(line, sizeof line, file))
        found |= strncmp(line, wanted, strlen(wanted)) == 0;
    fclose(file);
    CHECK(found, "the limit in /proc");
}

static void set(int process, rlim_t soft, rlim_t hard)
{
    struct rlimit limit = {soft, hard};
    MUST(prlimit(process, RLIMIT_AS, &limit, NULL) == 0);
}

static pthread_barrier_t barrier;

static void *waits(void *unused)
{
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return unused;
}

/* Threads with small stacks. */
static void threads(void)
{
    enum { MANY = 20 };
    pthread_t all[MANY];
    pthread_attr_t attributes;
    MUST(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, 1 << 16) == 0);
    MUST(pthread_barrier_init(&barrier, NULL, MANY + 1) == 0);
    for (int i = 0; i < MANY; i++)
        MUST(pthread_create(&all[i], &attributes, waits, NULL) == 0);
    pthread_barrier_wait(&barrier);
    shown(SET, 4 * SET);
    room(SET);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < MANY; i++)
        MUST(pthread_join(all[i], NULL) == 0);
    shown(SET, 4 * SET);
    room(SET);
}

/* A child is limited by its parent and looked at; and looks at the parent. */
static void others(void)
{
    int ready[2], go[2];
    MUST(pipe(ready) == 0 && pipe(go) == 0);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        char byte = 0;
        shown(SET, 4 * SET);
        room(SET);
        MUST(write(ready[1], &byte, 1) == 1 && read(go[0], &byte, 1) == 1);
        shown(SET / 2, 2 * SET);
        room(SET / 2);
        struct rlimit limit;
        MUST(prlimit(getppid(), RLIMIT_AS, NULL, &limit) == 0);
        CHECK(limit.rlim_cur == SET && limit.rlim_max == 4 * SET, "the parent's: %lu %lu", limit.rlim_cur, limit.rlim_max);
        _exit(check_failures);
    }
    char byte;
    struct rlimit limit = {SET / 2, 2 * SET}, old = {0, 0};
    MUST(read(ready[0], &byte, 1) == 1);
    MUST(prlimit(child, RLIMIT_AS, &limit, &old) == 0);
    CHECK(old.rlim_cur == SET && old.rlim_max == 4 * SET, "the child's before: %lu %lu", old.rlim_cur, old.rlim_max);
    MUST(prlimit(child, RLIMIT_AS, NULL, &old) == 0);
    CHECK(old.rlim_cur == SET / 2 && old.rlim_max == 2 * SET, "the child's: %lu %lu", old.rlim_cur, old.rlim_max);
    MUST(write(go[1], &byte, 1) == 1);
    int status;
    MUST(waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0, "the child");
}

int main(int argc, char **argv)
{
    (void)argc;
    if (getenv("EXECUTED") == NULL) {
        set(0, SET, 4 * SET);
        shown(SET, 4 * SET);
        room(SET);
        RUN(threads);
        RUN(others);
        /* As high as it may be. */
        set(0, 4 * SET, 4 * SET);
        shown(4 * SET, 4 * SET);
        struct rlimit limit = {4 * SET + 1, 4 * SET};
        errno = 0;
        say("too high: %d", setrlimit(RLIMIT_AS, &limit));
        set(0, SET, 4 * SET);
        setenv("EXECUTED", "1", 1);
        execv(argv[0], argv);
        return 97;
    }
    shown(SET, 4 * SET);
    room(SET);
    return done();
}

/* Promise: F14 */
