/*
 * libpctx: control of a process, with the interface of Solaris' library of that name.
 *
 * Licence: MIT OR Apache-2.0. The manual pages pctx_capture(3CPC), pctx_set_events(3CPC) and
 * libpctx(3LIB) describe the functions.
 */

#ifndef _LIBPCTX_H
#define _LIBPCTX_H

#include <fcntl.h>
#include <stdarg.h>
#include <sys/types.h>

/* A strict standard hides id_t, and Linux lacks uint_t. Repeated typedefs are the same type. */
#if defined(__GLIBC__) && !defined(__id_t_defined)
typedef __id_t id_t;
#define __id_t_defined
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct __pctx pctx_t;

/* Told why a function failed. The message ends with a newline. */
typedef void(pctx_errfn_t)(const char *__fn, const char *__fmt, va_list __ap);

typedef enum {
    PCTX_NULL_EVENT = 0, /* ends the list of pctx_set_events() */
    PCTX_SYSC_EXEC_EVENT,
    PCTX_SYSC_FORK_EVENT,
    PCTX_SYSC_EXIT_EVENT,
    PCTX_SYSC_LWP_CREATE_EVENT,
    PCTX_INIT_LWP_EVENT,
    PCTX_FINI_LWP_EVENT,
    PCTX_SYSC_LWP_EXIT_EVENT
} pctx_event_t;

/* Handlers. The id is that of the LWP, the last argument that of pctx_create() or pctx_capture(). */
typedef int pctx_sysc_execfn_t(pctx_t *, pid_t, id_t, char *__command, void *);
typedef void pctx_sysc_forkfn_t(pctx_t *, pid_t __parent, pid_t __child, id_t, void *);
typedef void pctx_sysc_exitfn_t(pctx_t *, pid_t, id_t, int __status, void *);
typedef int pctx_sysc_lwp_createfn_t(pctx_t *, pid_t, id_t, void *);
typedef int pctx_init_lwpfn_t(pctx_t *, pid_t, id_t, void *);
typedef int pctx_fini_lwpfn_t(pctx_t *, pid_t, id_t, void *);
typedef int pctx_sysc_lwp_exitfn_t(pctx_t *, pid_t, id_t, void *);

extern pctx_t *pctx_create(const char *__filename, char *const *__argv, void *__arg, int __verbose,
                           pctx_errfn_t *__errfn);
extern pctx_t *pctx_capture(pid_t __pid, void *__arg, int __verbose, pctx_errfn_t *__errfn);
extern int pctx_set_events(pctx_t *__pctx, ...);
extern int pctx_run(pctx_t *__pctx, unsigned int __msec, unsigned int __nsamples,
                    int (*__tick)(pctx_t *, pid_t, id_t, void *));
extern void pctx_release(pctx_t *__pctx);

/* Makes pctx_run() return. May be called by handlers of signals. */
extern void pctx_terminate(pctx_t *__pctx);

#ifdef __cplusplus
}
#endif

#endif /* _LIBPCTX_H */
