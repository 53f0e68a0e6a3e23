/* For ports: threads, after Solaris' <thread.h>, on pthreads. Licence: MIT OR Apache-2.0. */

#ifndef _COMPAT_THREAD_H
#define _COMPAT_THREAD_H

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <synch.h>

typedef pthread_t thread_t;
typedef pthread_key_t thread_key_t;

/* Flags of thr_create(). Every thread is bound to an LWP of its own. */
#define THR_BOUND     0x01
#define THR_NEW_LWP   0x02
#define THR_DETACHED  0x40
#define THR_SUSPENDED 0x80 /* refused: ENOTSUP */
#define THR_DAEMON    0x100

/* A size of 0 is the system's; a stack is used only together with its size. */
static inline int thr_create(void *stack, size_t size, void *(*start)(void *), void *arg, long flags,
                             thread_t *made)
{
    pthread_attr_t attr;
    pthread_t thread;
    int error;
    if (flags & THR_SUSPENDED)
        return ENOTSUP;
    error = pthread_attr_init(&attr);
    if (error != 0)
        return error;
    if (stack != NULL)
        error = pthread_attr_setstack(&attr, stack, size);
    else if (size != 0)
        error = pthread_attr_setstacksize(&attr, size);
    if (error == 0 && (flags & (THR_DETACHED | THR_DAEMON)))
        error = pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (error == 0)
        error = pthread_create(&thread, &attr, start, arg);
    if (error == 0 && made != NULL)
        *made = thread;
    pthread_attr_destroy(&attr);
    return error;
}

/* Waits for one thread; that any may be waited for (0) has no counterpart: ESRCH. */
static inline int thr_join(thread_t thread, thread_t *departed, void **status)
{
    int error;
    if (thread == 0)
        return ESRCH;
    error = pthread_join(thread, status);
    if (error == 0 && departed != NULL)
        *departed = thread;
    return error;
}

static inline thread_t thr_self(void)
{
    return pthread_self();
}

static inline void thr_exit(void *status)
{
    pthread_exit(status);
}

static inline void thr_yield(void)
{
    sched_yield();
}

static inline int thr_kill(thread_t thread, int sig)
{
    return pthread_kill(thread, sig);
}

static inline int thr_sigsetmask(int how, const sigset_t *set, sigset_t *before)
{
    return pthread_sigmask(how, set, before);
}

/* Every thread runs on its own anyway. */
static inline int thr_setconcurrency(int level)
{
    return level < 0 ? EINVAL : 0;
}

static inline int thr_keycreate(thread_key_t *key, void (*destroy)(void *))
{
    return pthread_key_create(key, destroy);
}

static inline int thr_setspecific(thread_key_t key, void *value)
{
    return pthread_setspecific(key, value);
}

static inline int thr_getspecific(thread_key_t key, void **value)
{
    *value = pthread_getspecific(key);
    return 0;
}

#endif
