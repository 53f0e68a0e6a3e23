/* For ports: high-resolution times, after Solaris' gethrtime(3C). Licence: MIT OR Apache-2.0. */

#ifndef _COMPAT_GETHRTIME_H
#define _COMPAT_GETHRTIME_H

#include <libcpc.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Nanoseconds on the clock of cpc_buf_hrtime(). In libcpc.so.1. */
extern hrtime_t gethrtime(void);

/* Nanoseconds the calling thread has been running. In libcpc.so.1. */
extern hrtime_t gethrvtime(void);

#ifdef __cplusplus
}
#endif

#endif
