/* For ports: Linux' own <signal.h>, with sigset() whatever standard is asked for. Licence: MIT OR Apache-2.0. */

#ifndef _COMPAT_SIGNAL_H
#define _COMPAT_SIGNAL_H

#pragma GCC system_header
#include_next <signal.h>

/* The C library has sigset(), and hides it where _XOPEN_SOURCE does not ask for it. */
#ifndef SIG_HOLD
#define SIG_HOLD ((void (*)(int))2)
extern void (*sigset(int sig, void (*handler)(int)))(int);
#endif

typedef void (*_compat_handler)(int);

/* Without the warning that POSIX has withdrawn it. */
static inline _compat_handler _compat_sigset(int sig, _compat_handler handler)
{
    return sigset(sig, handler);
}
#define sigset(sig, handler) _compat_sigset(sig, handler)

#endif
