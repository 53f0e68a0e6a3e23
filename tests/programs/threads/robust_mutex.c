//@ variants: pie static
//@ cflags: -O1 -pthread
/* Robust and process-shared mutexes: an owner that dies, in a thread and in a process. The list of held
 * robust locks is registered with the kernel by address. */
#include "check.h"

static pthread_mutex_t *shared;

static void make(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_NONE);
    MUST(pthread_mutex_init(mutex, &attributes) == 0);
}

static void *dying_owner(void *argument)
{
    pthread_mutex_lock(argument);
    return NULL;
}

static void *waiting(void *argument)
{
    return (void *)(intptr_t)pthread_mutex_lock(argument);
}

static void owner_thread_dies(void)
{
    for (int i = 0; i < 50; i++) {
        make(shared);
        pthread_t id;
        MUST(pthread_create(&id, NULL, dying_owner, shared) == 0);
        pthread_join(id, NULL);
        CHECK_EQ(pthread_mutex_lock(shared), EOWNERDEAD, "lock after the owner's death");
        CHECK_EQ(pthread_mutex_consistent(shared), 0, "made consistent");
        CHECK_EQ(pthread_mutex_unlock(shared), 0, "unlock");
        CHECK_EQ(pthread_mutex_lock(shared), 0, "lock again");
        pthread_mutex_unlock(shared);
    }
}

static void owner_process_dies(void)
{
    for (int i = 0; i < 30; i++) {
        make(shared);
        pid_t pid = fork();
        MUST(pid >= 0);
        if (pid == 0) {
            pthread_mutex_lock(shared);
            if (i & 1)
                raise(SIGKILL);
            _exit(0);
        }
        waitpid(pid, NULL, 0);
        CHECK_EQ(pthread_mutex_lock(shared), EOWNERDEAD, "lock after the process's death");
        pthread_mutex_consistent(shared);
        pthread_mutex_unlock(shared);
    }
}

static void waiter_is_woken(void)
{
    for (int i = 0; i < 20; i++) {
        make(shared);
        int ends[2];
        MUST(pipe(ends) == 0);
        pid_t pid = fork();
        MUST(pid >= 0);
        if (pid == 0) {
            pthread_mutex_lock(shared);
            MUST(write(ends[1], "x", 1) == 1);
            usleep(5000);
            _exit(0);
        }
        char byte;
        MUST(read(ends[0], &byte, 1) == 1);
        pthread_t id;
        void *result;
        MUST(pthread_create(&id, NULL, waiting, shared) == 0);
        pthread_join(id, &result);
        CHECK_EQ((intptr_t)result, EOWNERDEAD, "a waiter is woken by the owner's death");
        waitpid(pid, NULL, 0);
        close(ends[0]), close(ends[1]);
    }
}

int main(void)
{
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(shared != MAP_FAILED);
    RUN(owner_thread_dies);
    RUN(owner_process_dies);
    RUN(waiter_is_woken);
    return done();
}

/* Promise: F9 */
