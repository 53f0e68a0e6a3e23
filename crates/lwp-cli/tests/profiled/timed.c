/* Takes CPU time in functions of its own, and measures them with the clock of its thread.
 *
 *     timed SECONDS MODE
 *
 * Modes: c one thread; t two threads, the other in `beside`; p a child process in `in_child`, which executes this
 * program again; k system calls too, in `reading`. Prints each function with its nanoseconds, then `all` with those of
 * the process and its children by getrusage(2). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile uint64_t result;
static double seconds;

static uint64_t clock_ns(clockid_t id) {
    struct timespec time;
    clock_gettime(id, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

#define WORK(name, factor)                                                 \
    __attribute__((noinline, noclone)) static void name(void) {            \
        uint64_t value = factor;                                           \
        for (uint64_t step = 0; step < 30000u * factor; step++)            \
            value = value * 2862933555777941757u + step;                   \
        result = value;                                                    \
    }
WORK(heavy, 70)
WORK(light, 30)
WORK(beside, 50)
WORK(in_child, 40)

static char buffer[1 << 16];
static int zero;

__attribute__((noinline, noclone)) static void reading(void) {
    for (int times = 0; times < 200; times++)
        if (read(zero, buffer, sizeof buffer) < 0)
            abort();
}

struct part {
    const char *name;
    void (*work)(void);
    uint64_t ns;
};

static void take_turns(struct part *parts, int count) {
    uint64_t begin = clock_ns(CLOCK_THREAD_CPUTIME_ID), now = begin;
    while ((double)(now - begin) < seconds * 1e9)
        for (int at = 0; at < count; at++) {
            uint64_t before = clock_ns(CLOCK_THREAD_CPUTIME_ID);
            parts[at].work();
            now = clock_ns(CLOCK_THREAD_CPUTIME_ID);
            parts[at].ns += now - before;
        }
}

static void print(const struct part *parts, int count) {
    for (int at = 0; at < count; at++)
        printf("%s %llu\n", parts[at].name, (unsigned long long)parts[at].ns);
}

static void *other_thread(void *part) {
    pthread_setname_np(pthread_self(), "other");
    take_turns(part, 1);
    return NULL;
}

static uint64_t used(int whose) {
    struct rusage usage;
    getrusage(whose, &usage);
    struct timeval user = usage.ru_utime, system = usage.ru_stime;
    return (uint64_t)(user.tv_sec + system.tv_sec) * 1000000000u + (uint64_t)(user.tv_usec + system.tv_usec) * 1000u;
}

int main(int count, char **arguments) {
    seconds = count > 1 ? atof(arguments[1]) : 1;
    char mode = count > 2 ? arguments[2][0] : 'c';
    if (mode == 'x') {
        struct part part = {"in_child", in_child, 0};
        take_turns(&part, 1);
        print(&part, 1);
        return 0;
    }
    zero = open("/dev/zero", O_RDONLY);
    struct part parts[] = {{"heavy", heavy, 0}, {"light", light, 0}, {"reading", reading, 0}};
    struct part other = {"beside", beside, 0};
    pthread_t thread;
    if (mode == 't' && pthread_create(&thread, NULL, other_thread, &other) != 0)
        return 1;
    if (mode == 'p' && fork() == 0) {
        execl("/proc/self/exe", "again", arguments[1], "x", (char *)NULL);
        _exit(1);
    }
    int own = mode == 'k' ? 3 : 2;
    take_turns(parts, own);
    if (mode == 't') {
        pthread_join(thread, NULL);
        print(&other, 1);
    }
    if (mode == 'p')
        wait(NULL);
    print(parts, own);
    printf("all %llu\n", (unsigned long long)(used(RUSAGE_SELF) + used(RUSAGE_CHILDREN)));
    return 0;
}
