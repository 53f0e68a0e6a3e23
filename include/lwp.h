/* Lightweight Profiling (LWP) for C and C++: the library, liblwp.so.1, and with it the instructions and
 * layouts of <lwp_arch.h>.
 *
 *     #include <lwp.h>
 *
 *     struct lwp_options options;
 *     struct lwp_session *session;
 *     struct lwp_record record;
 *
 *     lwp_options_init(&options);
 *     options.every[LWP_EVENT_BRANCHES_RETIRED] = 1000;
 *     session = lwp_open(&options);
 *     if (session == NULL || lwp_start(session) != 0)
 *         return puts(lwp_last_error());
 *     work();
 *     lwp_stop(session);
 *     while (lwp_read(session, &record, 1) == 1)
 *         printf("%#llx\n", (unsigned long long)record.instruction_address);
 *     lwp_close(session);
 *
 * Link with -llwp (`pkg-config --cflags --libs lwp`). The functions declared `extern` below are the
 * library's; all others, and the intrinsics, are inline and need no library. The manual begins at lwp(3).
 *
 * A function that fails returns -1 or NULL, sets errno, and leaves a text for lwp_last_error(). A function
 * that succeeds leaves errno unchanged. For a session that is NULL, or that a parent process has opened,
 * every function fails with EINVAL: the child of fork() has no sessions.
 *
 * Licence: MIT OR Apache-2.0. */
#ifndef LWP_H
#define LWP_H

#include "lwp_arch.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether LWP can be used here. Asks CPUID; executes no LWP instruction.
 *
 * Returns 0 if it can. Errors:
 *     ENODEV  the processor has no LWP; under `lwp run` it would
 *     ENOSYS  the processor has it, the system has not enabled it
 *     EIO     CPUID contradicts itself */
extern int lwp_available(void);

/* Why the last function that failed on this thread did so: one lower-case clause without a full stop; ""
 * before the first failure. The text is the thread's; it changes when a function fails on the same
 * thread. Never fails. */
extern const char *lwp_last_error(void);

/* ---- Sessions ------------------------------------------------------------------------------------ */

/* What one thread at a time records, and the ring that it goes to. */
struct lwp_session;

/* The ring can be read in other processes: lwp_fd(), lwp_attach(). */
#define LWP_OPEN_SHARED (UINT32_C(1) << 0)
/* Each record has a time stamp of the performance time-stamp counter (100 MHz). */
#define LWP_OPEN_TIME_STAMPS (UINT32_C(1) << 1)

/* What a session records. Call lwp_options_init() first: later versions may append members, and treat
 * members that the program does not know as zero. */
struct lwp_options {
    uint32_t size;  /* bytes of this structure, as the program knows it */
    uint32_t flags; /* LWP_OPEN_..., or 0 */

    /* every[id] = n, with an EventId (LWP_EVENT_...) and n from 1 to 2^25, records every n-th occurrence;
     * 0 records none. Records that LWPINS inserts (LWP_EVENT_PROGRAMMED) need no request and have no
     * element. */
    uint32_t every[32];

    uint32_t ring_records;      /* room for this many unread records, at most 8388606; 0 means 4096. The
                                   ring may be larger if the processor requires it: lwp_capacity() */
    uint32_t random_bits;       /* number of low bits of every interval that are random, 0 to 15 */
    uint32_t filters;           /* LWP_FILTER_..., combined with |; events must pass all; 0: no filter */
    uint32_t threshold_records; /* interrupt the thread when this many records are unread; 0: never. The
                                   system turns the interrupt into a signal: `lwp run --interrupt` */

    uint64_t base_ip;  /* with LWP_FILTER_IPF: only instructions from base_ip to limit_ip count; with */
    uint64_t limit_ip; /* LWP_FILTER_IPI too: only those outside. Never filters LWPINS and LWPVAL */
};

/* Sets options->size and clears all other members, which requests nothing. */
static __inline__ void lwp_options_init(struct lwp_options *options)
{
    memset(options, 0, sizeof *options);
    options->size = (uint32_t)sizeof *options;
}

/* Opens a session, which does not run yet, and allocates all memory that it will need.
 *
 * Returns the session, which lwp_close() frees, or NULL. Errors: those of lwp_available(), and
 *     ENOTSUP  this LWP lacks an event, a filter, time stamps or the interrupt; nothing is left out
 *              silently
 *     ERANGE   an interval, random_bits or ring_records is out of range
 *     EINVAL   `options` is NULL or of a size that no version had, a flag or filter is not known, or
 *              LWP_FILTER_IPI comes without LWP_FILTER_IPF
 *     E2BIG    `options` has members that this version of the library does not know, and sets them
 *     ENOMEM, EMFILE, ENFILE  no memory or, for LWP_OPEN_SHARED, no descriptor is left */
extern struct lwp_session *lwp_open(const struct lwp_options *options);

/* Profiles the calling thread from the return of this call on. Counters and ring continue where they
 * were at lwp_stop(). Between this call and lwp_stop() the functions for sessions neither allocate nor
 * wait, nor make system calls. A thread that ends stops its session.
 *
 * Returns 0. Errors:
 *     EBUSY   this thread is profiled already, the session runs on another one, or another
 *             call of lwp_start(), lwp_stop() or lwp_flush() for the session is not finished
 *     EINVAL  the session was made by lwp_attach()
 *     EIO     the processor did not grant what it offered; nothing runs
 *     EAGAIN  the thread is ending: this is called by a destructor of thread-local data */
extern int lwp_start(struct lwp_session *session);

/* Ends profiling of the calling thread. All its records are in the ring then.
 *
 * Returns 0. Errors:
 *     EINVAL  the session does not run
 *     EPERM   it runs on another thread, which alone can stop it
 *     EBUSY   as above */
extern int lwp_stop(struct lwp_session *session);

/* Writes to memory what the processor still holds for the calling thread: records, position, counters. A
 * thread that reads its own ring while it is profiled calls this first. It costs one instruction, and
 * signal handlers may call it.
 *
 * Returns 0. Errors: as lwp_stop(). */
extern int lwp_flush(struct lwp_session *session);

/* Takes at most `count` records out of the ring, oldest first, and frees their places for new records. Any
 * thread may call this, even while the session profiles another thread, and signal handlers may call
 * it too. It does not wait.
 *
 * Returns how many were taken, 0 if there are none now. Errors:
 *     EBUSY   another call of this function for the session is not finished
 *     EFAULT  `records` is NULL and `count` is not 0 */
extern ssize_t lwp_read(struct lwp_session *session, struct lwp_record *records, size_t count);

/* Stores in *missed how many records have been lost because the ring was full, since the session was
 * opened. Any thread and any signal handler may call this.
 *
 * Returns 0. Errors:
 *     EBUSY   a call of lwp_read() for the session is not finished
 *     EFAULT  `missed` is NULL */
extern int lwp_missed(struct lwp_session *session, uint64_t *missed);

/* Returns how many records can be unread at the same time, which is at least ring_records; or -1. */
extern int lwp_capacity(struct lwp_session *session);

/* The descriptor by which another process reads the session with lwp_attach(). It is the session's: it
 * is closed on exec, and by lwp_close(). Pass it on by SCM_RIGHTS or dup(). Whoever has it can
 * change the control block, so only give it to processes that you trust.
 *
 * Returns the descriptor. Errors:
 *     EINVAL  the session was not opened with LWP_OPEN_SHARED */
extern int lwp_fd(struct lwp_session *session);

/* Opens the ring of another process, or of this one, for lwp_read(), lwp_missed() and lwp_capacity().
 * The calling process needs no LWP, and the descriptor is not needed afterwards. A ring has one reader: the
 * session that was opened with it must not be read from.
 *
 * Returns a session that lwp_close() frees, or NULL. Errors:
 *     EBADF            `descriptor` is not open
 *     EINVAL           it does not come from lwp_fd()
 *     ENOMEM           no memory */
extern struct lwp_session *lwp_attach(int descriptor);

/* Frees the session. If it runs on the calling thread, this stops it first. No other call may use the session
 * at the same time or afterwards.
 *
 * Returns 0. Errors:
 *     EBUSY  it runs on another thread; nothing was freed */
extern int lwp_close(struct lwp_session *session);

/* ---- Generated code ------------------------------------------------------------------------------ */

/* Gives `length` bytes of generated code at `address` a name for profilers, `lwp record` and perf alike, by
 * adding a line to /tmp/perf-PID.map. Needs no LWP. Each call opens, writes and closes the file, so the
 * name is there when the call returns. The first call drops lines that an earlier process with the same
 * number left behind. Any thread may call this; in a child of fork(), the list begins empty. Names cannot
 * be removed; if an address is named twice, the later name wins.
 *
 * Returns 0. Errors:
 *     EINVAL  `address` or `name` is NULL, the code has no bytes or goes beyond the address space, or the
 *             name is empty or has a control character, such as a line feed
 *     EPERM   the file is not this user's own regular file; it is not touched
 *     others of open(2) and write(2), ENOSPC among them */
extern int lwp_register_code(const void *address, size_t length, const char *name);

#ifdef __cplusplus
}
#endif

#endif /* LWP_H */
