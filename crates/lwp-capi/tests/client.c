/* A client of liblwp: `client SCENARIO`. Ends with 0 if everything is as the header says. C and C++. */
#ifndef _GNU_SOURCE /* C++ compilers define it. */
#define _GNU_SOURCE
#endif
#include <lwp.h>

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* ---- What the scenarios share ------------------------------------------------------------------------ */

static struct lwp_options nothing(void)
{
    struct lwp_options options;
    lwp_options_init(&options);
    return options;
}

static struct lwp_session *opened(const struct lwp_options *options)
{
    struct lwp_session *session = lwp_open(options);
    if (session == NULL)
        fprintf(stderr, "lwp_open: %s\n", lwp_last_error());
    CHECK(session != NULL);
    return session;
}

/* A session of a ring of `records` that records what is inserted. */
static struct lwp_session *of_inserts(uint32_t records)
{
    struct lwp_options options = nothing();
    options.ring_records = records;
    return opened(&options);
}

/* lwp_open() fails with the number and leaves a text that has `words`. */
static void refused(const struct lwp_options *options, int number, const char *words)
{
    errno = 0;
    CHECK(lwp_open(options) == NULL);
    if (errno != number || strstr(lwp_last_error(), words) == NULL)
        fprintf(stderr, "%d %s\n", errno, lwp_last_error());
    CHECK(errno == number);
    CHECK(strstr(lwp_last_error(), words) != NULL);
}

/* Inserts the records `from` to `to` - 1. Returns how many were lost. */
static unsigned insert(unsigned from, unsigned to)
{
    unsigned lost = 0;
    for (; from < to; from++)
        lost += __lwpins64((uint64_t)from << 32 | (uint32_t)~from, from, 0x4c57);
    return lost;
}

/* Reads `count` records, which are those from number `from` on. */
static void expect(struct lwp_session *session, unsigned from, unsigned count)
{
    struct lwp_record record;
    for (; count != 0; count--, from++) {
        CHECK(lwp_read(session, &record, 1) == 1);
        CHECK(record.event_id == LWP_EVENT_PROGRAMMED && record.flags == 0x4c57);
        CHECK(record.data1 == from && record.data2 == ((uint64_t)from << 32 | (uint32_t)~from));
    }
}

static uint64_t missed(struct lwp_session *session)
{
    uint64_t number = 4711;
    SUCCEEDS(lwp_missed(session, &number));
    return number;
}

/* Turns `n` times, one taken branch each but the last. */
static void turn(unsigned long n)
{
    __asm__ __volatile__("1: dec %0; jnz 1b" : "+r"(n) : : "cc");
}

/* What malloc and its relatives are asked for on this thread, while `counting`. Volatile: compilers know that
 * malloc changes nothing. */
static __thread volatile int counting;
static __thread volatile unsigned allocations;

#ifdef __cplusplus
extern "C" {
#endif
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *place, size_t size);
extern void __libc_free(void *place);

void *malloc(size_t size)
{
    allocations = allocations + (unsigned)counting;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    allocations = allocations + (unsigned)counting;
    return __libc_calloc(count, size);
}

void *realloc(void *place, size_t size)
{
    allocations = allocations + (unsigned)counting;
    return __libc_realloc(place, size);
}

void free(void *place)
{
    allocations = allocations + (unsigned)counting;
    __libc_free(place);
}
#ifdef __cplusplus
}
#endif

/* ---- Scenarios --------------------------------------------------------------------------------------- */

/* Natively: says what lwp_available() and lwp_open() say. */
static void available(void)
{
    struct lwp_options options = nothing();
    int there = lwp_available();
    if (there == 0) {
        puts("available");
        return;
    }
    CHECK(there == -1 && errno == ENODEV);
    printf("%s\n", lwp_last_error());
    refused(&options, ENODEV, lwp_last_error());
}

/* Promise: Y1 */
static void records(void)
{
    struct lwp_options options = nothing();
    struct lwp_session *session;
    struct lwp_record many[64];
    ssize_t taken, at;
    CHECK(lwp_last_error()[0] == '\0');
    SUCCEEDS(lwp_available());
    options.every[LWP_EVENT_BRANCHES_RETIRED] = 100;
    options.every[LWP_EVENT_VALUE_SAMPLE] = 3;
    session = opened(&options);
    CHECK(lwp_capacity(session) == 4096);
    CHECK(lwp_read(session, many, 64) == 0);
    SUCCEEDS(lwp_start(session));
    turn(5000);
    SUCCEEDS(lwp_stop(session));
    /* Those of turn(), and a few before and behind. */
    taken = lwp_read(session, many, 64);
    CHECK(taken == 50 || taken == 51);
    for (at = 1; at < 49; at++) {
        CHECK(many[at].event_id == LWP_EVENT_BRANCHES_RETIRED);
        CHECK(many[at].flags & LWP_BRANCH_TAKEN);
        CHECK(many[at].instruction_address == many[1].instruction_address);
        CHECK(many[at].instruction_address - many[at].data2 == 3);
        CHECK(many[at].time_stamp == 0);
    }
    CHECK(lwp_read(session, many, 64) == 0);
    turn(5000);
    CHECK(lwp_read(session, many, 64) == 0);
    CHECK(missed(session) == 0);
    SUCCEEDS(lwp_close(session));

    /* Not stopped: closing does it. */
    options.every[LWP_EVENT_BRANCHES_RETIRED] = 0;
    session = opened(&options);
    SUCCEEDS(lwp_start(session));
    for (at = 0; at < 20; at++)
        __lwpval64((uint64_t)at, (uint32_t)at, 7);
    SUCCEEDS(lwp_stop(session));
    CHECK(lwp_read(session, many, 4) == 4);
    CHECK(lwp_read(session, many + 4, 4) == 2);
    for (at = 0; at < 6; at++)
        CHECK(many[at].event_id == LWP_EVENT_VALUE_SAMPLE && many[at].data1 == (uint32_t)at * 3 + 2);
    SUCCEEDS(lwp_start(session));
    SUCCEEDS(lwp_close(session));
    CHECK(__slwpcb() == NULL);
}

/* A ring that is full loses what comes, and says how much. */
/* Promise: Y1 */
static void full(void)
{
    struct lwp_session *session = of_inserts(1);
    unsigned capacity = (unsigned)lwp_capacity(session);
    CHECK(lwp_capacity(session) >= 1);
    SUCCEEDS(lwp_start(session));
    CHECK(insert(0, capacity + 10) == 10);
    SUCCEEDS(lwp_stop(session));
    CHECK(missed(session) == 10);
    expect(session, 0, capacity);
    FAILS(lwp_missed(session, NULL), EFAULT);
    FAILS(lwp_read(session, NULL, 1), EFAULT);
    CHECK(lwp_read(session, NULL, 0) == 0);
    SUCCEEDS(lwp_close(session));
}

/* A thread that reads its own ring, and neither allocates nor frees meanwhile. */
/* Promise: Y2, Y3 */
static void own(void)
{
    struct lwp_session *session = of_inserts(64);
    void *volatile place;
    unsigned round;
    SUCCEEDS(lwp_start(session));
    counting = 1;
    for (round = 0; round < 100; round++) {
        CHECK(insert(round * 50, round * 50 + 50) == 0);
        SUCCEEDS(lwp_flush(session));
        expect(session, round * 50, 50);
        CHECK(missed(session) == 0);
        FAILS(lwp_start(session), EBUSY);
    }
    SUCCEEDS(lwp_stop(session));
    SUCCEEDS(lwp_start(session));
    SUCCEEDS(lwp_stop(session));
    counting = 0;
    CHECK(allocations == 0);
    counting = 1;
    place = malloc(1);
    free(place); /* The counter counts. */
    counting = 0;
    CHECK(allocations == 2);
    FAILS(lwp_flush(session), EINVAL);
    SUCCEEDS(lwp_close(session));
}

/* Filters by address and by kind. */
static void filters(void)
{
    struct lwp_options options = nothing();
    struct lwp_session *session;
    struct lwp_record some[300];
    int inverted;
    options.every[LWP_EVENT_BRANCHES_RETIRED] = 10;
    for (inverted = 0; inverted < 2; inverted++) {
        options.filters = LWP_FILTER_IPF | (inverted ? LWP_FILTER_IPI : 0);
        options.base_ip = 0;
        options.limit_ip = 4095;
        session = opened(&options);
        SUCCEEDS(lwp_start(session));
        turn(2000);
        SUCCEEDS(lwp_stop(session));
        CHECK(inverted ? lwp_read(session, some, 300) >= 200 : lwp_read(session, some, 300) == 0);
        SUCCEEDS(lwp_close(session));
    }
    options.filters = LWP_FILTER_NCB;
    session = opened(&options);
    SUCCEEDS(lwp_start(session));
    turn(2000);
    SUCCEEDS(lwp_stop(session));
    CHECK(lwp_read(session, some, 300) <= 2);
    SUCCEEDS(lwp_close(session));
}

/* Options of a later program: behind what this one knows there is more. */
struct longer {
    struct lwp_options options;
    uint64_t more[2];
};

/* Promise: Y5 */
static void wrong_options(void)
{
    struct lwp_options options = nothing();
    struct longer later;
    struct lwp_session *session;
    refused(NULL, EINVAL, "no options");
    options.size = 0;
    refused(&options, EINVAL, "size");
    options.size = sizeof options - 1;
    refused(&options, EINVAL, "size");
    memset(&later, 0, sizeof later);
    later.options.size = sizeof later;
    session = opened(&later.options);
    SUCCEEDS(lwp_close(session));
    later.more[1] = 1;
    refused(&later.options, E2BIG, "does not know");

    options = nothing();
    options.flags = UINT32_C(1) << 31;
    refused(&options, EINVAL, "flag");
    options = nothing();
    options.filters = UINT32_C(1) << 20;
    refused(&options, EINVAL, "filter");
    options.filters = LWP_FILTER_IPI;
    refused(&options, EINVAL, "filter");
    options = nothing();
    options.every[LWP_EVENT_BRANCHES_RETIRED] = (UINT32_C(1) << 25) + 1;
    refused(&options, ERANGE, "33554433");
    options.every[LWP_EVENT_BRANCHES_RETIRED] = 0;
    options.random_bits = 16;
    refused(&options, ERANGE, "16 random bits");
    options.random_bits = 0;
    options.ring_records = UINT32_C(1) << 23;
    refused(&options, ERANGE, "8388608 records");
    options.ring_records = 0;
    options.every[31] = 1;
    refused(&options, ENOTSUP, "event");
    options.every[31] = 0;
    options.every[0] = 1;
    refused(&options, ENOTSUP, "event");
}

/* On a processor that lacks most of it. */
static void lacking(void)
{
    struct lwp_options options = nothing();
    options.every[LWP_EVENT_DCACHE_MISSES] = 10;
    refused(&options, ENOTSUP, "DcacheMisses");
    options = nothing();
    options.flags = LWP_OPEN_TIME_STAMPS;
    refused(&options, ENOTSUP, "time stamps");
    options = nothing();
    options.filters = LWP_FILTER_IPF;
    refused(&options, ENOTSUP, "address");
    options.filters = LWP_FILTER_MIN_LATENCY(32);
    refused(&options, ENOTSUP, "latency");
}

static void *stops(void *session)
{
    FAILS(lwp_stop((struct lwp_session *)session), EPERM);
    FAILS(lwp_flush((struct lwp_session *)session), EPERM);
    FAILS(lwp_start((struct lwp_session *)session), EBUSY);
    FAILS(lwp_close((struct lwp_session *)session), EBUSY);
    return NULL;
}

static void *starts(void *session)
{
    SUCCEEDS(lwp_start((struct lwp_session *)session));
    insert(100, 110);
    return NULL; /* Without stopping. */
}

static void on_a_thread(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, function, argument) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* Sessions belong to threads while they run. */
/* Promise: Y4 */
static void threads(void)
{
    struct lwp_session *session = of_inserts(64), *other = of_inserts(64);
    FAILS(lwp_stop(session), EINVAL);
    SUCCEEDS(lwp_start(session));
    FAILS(lwp_start(other), EBUSY);
    on_a_thread(stops, session);
    insert(0, 5);
    SUCCEEDS(lwp_stop(session));
    expect(session, 0, 5);
    /* The session of a thread that has ended can be used on. */
    on_a_thread(starts, session);
    SUCCEEDS(lwp_start(session));
    insert(110, 115);
    SUCCEEDS(lwp_stop(session));
    expect(session, 100, 15);
    on_a_thread(starts, session);
    SUCCEEDS(lwp_close(session));
    SUCCEEDS(lwp_start(other));
    SUCCEEDS(lwp_stop(other));
    SUCCEEDS(lwp_close(other));
}

enum { DRAINED = 20000 };
static volatile int inserted;

static void *inserts(void *session)
{
    unsigned number;
    SUCCEEDS(lwp_start((struct lwp_session *)session));
    for (number = 0; number < DRAINED; number++)
        while (insert(number, number + 1) != 0)
            usleep(10);
    SUCCEEDS(lwp_stop((struct lwp_session *)session));
    inserted = 1;
    return NULL;
}

/* One thread drains what another records, while it runs. */
/* Promise: Y2 */
static void drained(void)
{
    struct lwp_session *session = of_inserts(100);
    struct lwp_record some[16];
    unsigned number = 0;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, inserts, session) == 0);
    while (number < DRAINED) {
        int finished = inserted;
        ssize_t taken = lwp_read(session, some, 16), at;
        CHECK(taken > 0 || (taken == 0 && !finished));
        for (at = 0; at < taken; at++, number++) {
            CHECK(some[at].data1 == number);
            CHECK(some[at].data2 == ((uint64_t)number << 32 | (uint32_t)~number));
        }
        if (taken == 0)
            usleep(10);
    }
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(lwp_read(session, some, 16) == 0);
    SUCCEEDS(lwp_close(session));
}

static unsigned char seen[DRAINED];

/* Reads what there is; where another thread reads just now it is refused. */
static void *reads(void *session)
{
    struct lwp_record some[4];
    int finished;
    do {
        ssize_t taken, at;
        finished = inserted;
        while ((taken = lwp_read((struct lwp_session *)session, some, 4)) != 0) {
            if (taken == -1) {
                CHECK(errno == EBUSY);
                finished = 0;
                break;
            }
            for (at = 0; at < taken; at++)
                __atomic_fetch_add(&seen[some[at].data1], 1, __ATOMIC_RELAXED);
        }
        usleep(1);
    } while (!finished);
    return NULL;
}

/* Threads that read the same ring do not get a record twice, nor lose one. */
/* Promise: Y2 */
static void contended(void)
{
    struct lwp_session *session = of_inserts(100);
    pthread_t inserter, readers[3];
    unsigned at;
    for (at = 0; at < 3; at++)
        CHECK(pthread_create(&readers[at], NULL, reads, session) == 0);
    CHECK(pthread_create(&inserter, NULL, inserts, session) == 0);
    CHECK(pthread_join(inserter, NULL) == 0);
    for (at = 0; at < 3; at++)
        CHECK(pthread_join(readers[at], NULL) == 0);
    for (at = 0; at < DRAINED; at++)
        CHECK(seen[at] == 1);
    SUCCEEDS(lwp_close(session));
}

static void child_succeeds(pid_t child)
{
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A child has no session, can have one of its own, and does its parent no harm. */
/* Promise: Y4 */
static void forked(void)
{
    struct lwp_session *session = of_inserts(64), *own;
    struct lwp_record record;
    uint64_t number;
    pid_t child;
    SUCCEEDS(lwp_start(session));
    insert(0, 3);
    child = fork();
    if (child == 0) {
        CHECK(__slwpcb() == NULL);
        FAILS(lwp_start(session), EINVAL);
        FAILS(lwp_stop(session), EINVAL);
        FAILS(lwp_flush(session), EINVAL);
        FAILS(lwp_read(session, &record, 1), EINVAL);
        FAILS(lwp_missed(session, &number), EINVAL);
        FAILS(lwp_capacity(session), EINVAL);
        FAILS(lwp_fd(session), EINVAL);
        FAILS(lwp_close(session), EINVAL);
        own = of_inserts(64);
        SUCCEEDS(lwp_start(own));
        insert(50, 60);
        SUCCEEDS(lwp_stop(own));
        expect(own, 50, 10);
        SUCCEEDS(lwp_close(own));
        _exit(0);
    }
    child_succeeds(child);
    insert(3, 6);
    SUCCEEDS(lwp_stop(session));
    expect(session, 0, 6);
    SUCCEEDS(lwp_close(session));
}

/* Another process reads the ring by its descriptor. */
/* Promise: Y2 */
static void shared(void)
{
    struct lwp_options options = nothing();
    struct lwp_session *session, *attached;
    struct lwp_record record;
    int descriptor;
    pid_t child;
    options.flags = LWP_OPEN_SHARED;
    options.ring_records = 50;
    session = opened(&options);
    descriptor = lwp_fd(session);
    CHECK(descriptor >= 0);
    child = fork();
    if (child == 0) {
        unsigned number = 0;
        attached = lwp_attach(descriptor);
        CHECK(attached != NULL && lwp_capacity(attached) >= 50);
        FAILS(lwp_start(attached), EINVAL);
        while (number < 1000) {
            ssize_t taken = lwp_read(attached, &record, 1);
            CHECK(taken >= 0);
            if (taken == 1)
                CHECK(record.data1 == number++);
            else
                usleep(10);
        }
        SUCCEEDS(lwp_close(attached));
        _exit(0);
    }
    SUCCEEDS(lwp_start(session));
    for (descriptor = 0; descriptor < 1000; descriptor++)
        while (insert((unsigned)descriptor, (unsigned)descriptor + 1) != 0)
            usleep(10);
    SUCCEEDS(lwp_stop(session));
    child_succeeds(child);
    SUCCEEDS(lwp_close(session));

    errno = 0;
    CHECK(lwp_attach(-1) == NULL && errno == EBADF);
    CHECK(lwp_attach(999) == NULL && errno == EBADF);
    CHECK(lwp_attach(0) == NULL && errno == EINVAL);
    session = of_inserts(8);
    FAILS(lwp_fd(session), EINVAL);
    SUCCEEDS(lwp_close(session));
}

static struct lwp_session *interrupted;
static volatile unsigned handled, interrupts;

static void on_threshold(int signal)
{
    struct lwp_record some[64];
    ssize_t taken;
    (void)signal;
    interrupts++;
    while ((taken = lwp_read(interrupted, some, 64)) > 0)
        handled += (unsigned)taken;
}

/* A handler of the threshold interrupt empties the ring. */
/* Promise: Y2 */
static void threshold(void)
{
    struct lwp_options options = nothing();
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_threshold;
    CHECK(sigaction(SIGPWR, &action, NULL) == 0);
    options.ring_records = 64;
    options.threshold_records = 40;
    interrupted = opened(&options);
    SUCCEEDS(lwp_start(interrupted));
    CHECK(insert(0, 4000) == 0);
    SUCCEEDS(lwp_stop(interrupted));
    CHECK(interrupts == 100 && handled == 4000 && missed(interrupted) == 0);
    SUCCEEDS(lwp_close(interrupted));
}

/* No session at all. */
/* Promise: Y5 */
static void none(void)
{
    struct lwp_record record;
    uint64_t number;
    FAILS(lwp_start(NULL), EINVAL);
    FAILS(lwp_stop(NULL), EINVAL);
    FAILS(lwp_flush(NULL), EINVAL);
    FAILS(lwp_read(NULL, &record, 1), EINVAL);
    FAILS(lwp_missed(NULL, &number), EINVAL);
    FAILS(lwp_capacity(NULL), EINVAL);
    FAILS(lwp_fd(NULL), EINVAL);
    FAILS(lwp_close(NULL), EINVAL);
}

/* The lines of a process's list of generated code; -1 without one. The list is removed. */
static int lines_of(pid_t process, const char *words)
{
    char path[64], line[256];
    int lines = 0;
    FILE *file;
    snprintf(path, sizeof path, "/tmp/perf-%d.map", (int)process);
    file = fopen(path, "r");
    if (file == NULL)
        return -1;
    while (fgets(line, sizeof line, file) != NULL)
        if (strstr(line, words) != NULL)
            lines++;
    fclose(file);
    CHECK(remove(path) == 0);
    return lines;
}

/* Names of generated code: every process has its own list. */
/* Promise: Y7 */
static void code(void)
{
    static const char bytes[64] = {0};
    pid_t child;
    FAILS(lwp_register_code(NULL, 1, "a"), EINVAL);
    FAILS(lwp_register_code(bytes, 0, "a"), EINVAL);
    FAILS(lwp_register_code(bytes, 1, NULL), EINVAL);
    FAILS(lwp_register_code(bytes, 1, ""), EINVAL);
    FAILS(lwp_register_code(bytes, 1, "a\n10 10 b"), EINVAL);
    FAILS(lwp_register_code(bytes, SIZE_MAX, "a"), EINVAL);
    SUCCEEDS(lwp_register_code(bytes, 32, "of the parent"));
    child = fork();
    if (child == 0) {
        SUCCEEDS(lwp_register_code(bytes + 32, 32, "of the child"));
        _exit(0);
    }
    child_succeeds(child);
    CHECK(lines_of(child, " 20 of the child") == 1);
    CHECK(lines_of(getpid(), " 20 of the parent") == 1);
}

struct scenario {
    const char *name;
    void (*run)(void);
};

int main(int argc, char **argv)
{
    static const struct scenario scenarios[] = {
        {"available", available}, {"records", records},     {"full", full},         {"own", own},
        {"filters", filters},     {"threads", threads},     {"drained", drained},   {"forked", forked},
        {"shared", shared},       {"threshold", threshold}, {"none", none},         {"code", code},
        {"contended", contended}, {"lacking", lacking},     {"wrong_options", wrong_options},
    };
    size_t at;
    for (at = 0; at < sizeof scenarios / sizeof *scenarios; at++)
        if (argc == 2 && strcmp(argv[1], scenarios[at].name) == 0) {
            scenarios[at].run();
            return 0;
        }
    fprintf(stderr, "which scenario?\n");
    return 2;
}
