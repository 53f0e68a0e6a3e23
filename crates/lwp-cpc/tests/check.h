/* What the C programs of these tests share. */

#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Ends the program where the condition does not hold. */
#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "%s:%d: not: %s (errno %d)\n", __FILE__, __LINE__, #condition, \
                    errno);                                                                \
            exit(1);                                                                       \
        }                                                                                  \
    } while (0)

/* A call that fails with this errno. */
#define FAILS(call, number)       \
    do {                          \
        errno = 0;                \
        CHECK((call) == -1);      \
        CHECK(errno == (number)); \
    } while (0)

/* Keeps the processor busy for this much time of the thread. */
static inline void spin(long ms)
{
    struct timespec t;
    long long now, end = 0;
    do {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        now = t.tv_sec * 1000000000LL + t.tv_nsec;
        if (end == 0)
            end = now + ms * 1000000;
    } while (now < end);
}

#endif
