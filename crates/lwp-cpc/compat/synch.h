/* For ports: locks, after Solaris' <synch.h>, on pthreads. Licence: MIT OR Apache-2.0. */

#ifndef _COMPAT_SYNCH_H
#define _COMPAT_SYNCH_H

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <time.h>

typedef pthread_mutex_t mutex_t;
typedef pthread_cond_t cond_t;
typedef sem_t sema_t;
typedef struct timespec timestruc_t;

#define DEFAULTMUTEX PTHREAD_MUTEX_INITIALIZER
#define DEFAULTCV    PTHREAD_COND_INITIALIZER

/* Of this process, or of all that map the memory. */
#define USYNC_THREAD  0
#define USYNC_PROCESS 1

static inline int mutex_init(mutex_t *mutex, int type, void *arg)
{
    pthread_mutexattr_t attr;
    int error;
    (void)arg;
    if (type != USYNC_THREAD && type != USYNC_PROCESS)
        return EINVAL;
    error = pthread_mutexattr_init(&attr);
    if (error == 0 && type == USYNC_PROCESS)
        error = pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    if (error == 0)
        error = pthread_mutex_init(mutex, &attr);
    pthread_mutexattr_destroy(&attr);
    return error;
}

static inline int mutex_destroy(mutex_t *mutex)
{
    return pthread_mutex_destroy(mutex);
}

static inline int mutex_lock(mutex_t *mutex)
{
    return pthread_mutex_lock(mutex);
}

static inline int mutex_trylock(mutex_t *mutex)
{
    return pthread_mutex_trylock(mutex);
}

static inline int mutex_unlock(mutex_t *mutex)
{
    return pthread_mutex_unlock(mutex);
}

static inline int cond_init(cond_t *cond, int type, void *arg)
{
    pthread_condattr_t attr;
    int error;
    (void)arg;
    if (type != USYNC_THREAD && type != USYNC_PROCESS)
        return EINVAL;
    error = pthread_condattr_init(&attr);
    if (error == 0 && type == USYNC_PROCESS)
        error = pthread_condattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    if (error == 0)
        error = pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
    return error;
}

static inline int cond_destroy(cond_t *cond)
{
    return pthread_cond_destroy(cond);
}

static inline int cond_wait(cond_t *cond, mutex_t *mutex)
{
    return pthread_cond_wait(cond, mutex);
}

/* ETIME when the time, on the clock of the day, has come. */
static inline int cond_timedwait(cond_t *cond, mutex_t *mutex, const timestruc_t *until)
{
    int error = pthread_cond_timedwait(cond, mutex, until);
    return error == ETIMEDOUT ? ETIME : error;
}

static inline int cond_signal(cond_t *cond)
{
    return pthread_cond_signal(cond);
}

static inline int cond_broadcast(cond_t *cond)
{
    return pthread_cond_broadcast(cond);
}

static inline int sema_init(sema_t *sema, unsigned int count, int type, void *arg)
{
    (void)arg;
    if (type != USYNC_THREAD && type != USYNC_PROCESS)
        return EINVAL;
    return sem_init(sema, type == USYNC_PROCESS, count) == 0 ? 0 : errno;
}

static inline int sema_destroy(sema_t *sema)
{
    return sem_destroy(sema) == 0 ? 0 : errno;
}

static inline int sema_wait(sema_t *sema)
{
    return sem_wait(sema) == 0 ? 0 : errno;
}

static inline int sema_trywait(sema_t *sema)
{
    if (sem_trywait(sema) == 0)
        return 0;
    return errno == EAGAIN ? EBUSY : errno;
}

static inline int sema_post(sema_t *sema)
{
    return sem_post(sema) == 0 ? 0 : errno;
}

#endif
