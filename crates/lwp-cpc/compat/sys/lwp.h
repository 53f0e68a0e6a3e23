/* For ports: LWPs are threads here, after Solaris' <sys/lwp.h>. Licence: MIT OR Apache-2.0. */

#ifndef _COMPAT_SYS_LWP_H
#define _COMPAT_SYS_LWP_H

#include <libcpc.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef int lwpid_t;

/* The kernel's number of the calling thread. */
static inline lwpid_t _lwp_self(void)
{
    return (lwpid_t)syscall(SYS_gettid);
}

#endif
