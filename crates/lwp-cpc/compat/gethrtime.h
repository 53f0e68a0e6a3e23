/* For ports: high-resolution times, after Solaris' gethrtime(3C). Licence: MIT OR Apache-2.0. */

#ifndef _COMPAT_GETHRTIME_H
#define _COMPAT_GETHRTIME_H

#include <libcpc.h>
#include <time.h>

/* Nanoseconds on the clock of cpc_buf_hrtime(). */
static inline hrtime_t gethrtime(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (hrtime_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Nanoseconds the calling thread has been running. */
static inline hrtime_t gethrvtime(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (hrtime_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#endif
