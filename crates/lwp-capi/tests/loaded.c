/* Loads the library given as argument when it is running already, uses it on threads, unloads it, and ends while
 * it is profiled. */
#ifndef _GNU_SOURCE /* C++ compilers define it. */
#define _GNU_SOURCE
#endif
#include <lwp.h>

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

/* The functions of the library, by their names. */
static struct lwp_session *(*open_session)(const struct lwp_options *);
static int (*start)(struct lwp_session *);
static int (*stop)(struct lwp_session *);
static ssize_t (*read_records)(struct lwp_session *, struct lwp_record *, size_t);
static int (*close_session)(struct lwp_session *);
static const char *(*last_error)(void);

#define lwp_last_error last_error
#include "check.h"

/* How often malloc and calloc are called while `counting`. Volatile: compilers know that they change nothing. */
static __thread volatile unsigned counting, allocations;

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);

void *malloc(size_t size)
{
    allocations = allocations + counting;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    allocations = allocations + counting;
    return __libc_calloc(count, size);
}

static void *load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *found[6];
    const char *names[6] = {"lwp_open", "lwp_start", "lwp_stop", "lwp_read", "lwp_close", "lwp_last_error"};
    int at;
    if (library == NULL)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(library != NULL);
    for (at = 0; at < 6; at++)
        CHECK((found[at] = dlsym(library, names[at])) != NULL);
    /* ISO C has no cast from objects to functions. */
    memcpy(&open_session, &found[0], sizeof(void *));
    memcpy(&start, &found[1], sizeof(void *));
    memcpy(&stop, &found[2], sizeof(void *));
    memcpy(&read_records, &found[3], sizeof(void *));
    memcpy(&close_session, &found[4], sizeof(void *));
    memcpy(&last_error, &found[5], sizeof(void *));
    return library;
}

static struct lwp_session *opened(void)
{
    struct lwp_options options;
    struct lwp_session *session;
    lwp_options_init(&options);
    session = open_session(&options);
    CHECK(session != NULL);
    return session;
}

/* A new thread's first calls of the library: what it keeps for the thread is there before it is profiled. */
static void *profiled(void *unused)
{
    struct lwp_session *session = opened();
    struct lwp_record record;
    (void)unused;
    CHECK(start(session) == 0);
    counting = 1;
    __lwpins64(1, 2, 3);
    CHECK(read_records(session, &record, 1) == 1 && record.data1 == 2);
    FAILS(start(session), EBUSY);
    CHECK(stop(session) == 0);
    counting = 0;
    CHECK(allocations == 0);
    CHECK(close_session(session) == 0);
    return NULL;
}

static void *left_running(void *session)
{
    CHECK(start((struct lwp_session *)session) == 0);
    return NULL;
}

static void on_a_thread(void *(*function)(void *), void *argument)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, function, argument) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

int main(int argc, char **argv)
{
    struct lwp_session *session;
    void *library;
    int round;
    CHECK(argc == 2);
    for (round = 0; round < 3; round++) {
        library = load(argv[1]);
        on_a_thread(profiled, NULL);
        session = opened();
        on_a_thread(left_running, session);
        CHECK(close_session(session) == 0);
        CHECK(dlclose(library) == 0);
    }
    load(argv[1]);
    CHECK(start(opened()) == 0);
    puts("profiled until the end");
    return 0;
}
