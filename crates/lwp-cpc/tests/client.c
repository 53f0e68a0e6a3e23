/*
 * A client of libcpc, one scenario a run. A scenario that ends well prints nothing and exits with 0.
 * Events are the kernel's own, so that every machine can run it.
 */

#define _GNU_SOURCE
#include <libcpc.h>

#include <errno.h>
#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

#define USER CPC_COUNT_USER
#define PAGE 4096

static cpc_t *open_cpc(void)
{
    cpc_t *cpc = cpc_open(CPC_VER_CURRENT);
    CHECK(cpc != NULL);
    return cpc;
}

/* Takes `pages` page faults. */
static void faults(size_t pages)
{
    volatile char *p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    madvise((void *)p, pages * PAGE, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < pages; i++)
        p[i * PAGE] = 1;
    munmap((void *)p, pages * PAGE);
}

static uint64_t value(cpc_t *cpc, cpc_buf_t *buf, int index)
{
    uint64_t v = 0xdead;
    CHECK(cpc_buf_get(cpc, buf, index, &v) == 0);
    return v;
}

static int about(uint64_t v, uint64_t expected)
{
    /* The program takes a few faults of its own: stacks, tables, the C library. */
    return v >= expected && v < expected + 64;
}

/* ---- overflow: a handler that samples and restarts ---- */

static struct {
    cpc_t *cpc;
    cpc_set_t *set;
    cpc_buf_t *buf;
    int restart, strict;
    volatile int hits, wrong;
    volatile uint64_t first, last;
} emt;

static void on_emt(int sig, siginfo_t *info, void *context)
{
    uint64_t v = 0;
    ucontext_t *uc = context;
    int saved = errno;
    if (sig != SIGEMT || info->si_code != EMT_CPCOVF)
        emt.wrong = 1;
    if (emt.strict && info->si_addr != NULL &&
        info->si_addr != (void *)uc->uc_mcontext.gregs[REG_RIP])
        emt.wrong = 2;
    if (cpc_set_sample(emt.cpc, emt.set, emt.buf) != 0 || cpc_buf_get(emt.cpc, emt.buf, 0, &v) != 0)
        emt.wrong = 3;
    if (emt.hits++ == 0)
        emt.first = v;
    emt.last = v;
    if (emt.restart && cpc_set_restart(emt.cpc, emt.set) != 0)
        emt.wrong = 4;
    errno = saved;
}

static void handle_emt(cpc_t *cpc, cpc_set_t *set, cpc_buf_t *buf, int restart)
{
    struct sigaction action = {0};
    action.sa_sigaction = on_emt;
    action.sa_flags = SA_SIGINFO;
    CHECK(sigaction(SIGEMT, &action, NULL) == 0);
    emt.cpc = cpc;
    emt.set = set;
    emt.buf = buf;
    emt.restart = restart;
    emt.strict = 1;
    emt.hits = emt.wrong = 0;
}

/* Promise: C4 */
static void overflow(void)
{
    cpc_t *cpc = open_cpc();
    cpc_set_t *set = cpc_set_create(cpc);
    CHECK(cpc_set_add_request(cpc, set, "page-faults", UINT64_MAX - 99, USER | CPC_OVF_NOTIFY_EMT,
                              0, NULL) == 0);
    CHECK(cpc_set_add_request(cpc, set, "task-clock", 0, USER, 0, NULL) == 1);
    cpc_buf_t *buf = cpc_buf_create(cpc, set);
    handle_emt(cpc, set, buf, 1);
    CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
    faults(1000);
    CHECK(cpc_unbind(cpc, set) == 0);
    CHECK(emt.wrong == 0);
    CHECK(emt.hits >= 10 && emt.hits <= 11);
    CHECK(emt.first == 0 && emt.last == 0); /* the instruction that overflows is the last one */
    int hits = emt.hits;
    faults(1000);
    CHECK(emt.hits == hits);
    CHECK(cpc_close(cpc) == 0);
}

/* Without a restart the set stays frozen; cpc_enable() lets it go on, without another signal. */
/* Promise: C4 */
static void frozen(void)
{
    cpc_t *cpc = open_cpc();
    cpc_set_t *set = cpc_set_create(cpc);
    CHECK(cpc_set_add_request(cpc, set, "page-faults", UINT64_MAX - 49, USER | CPC_OVF_NOTIFY_EMT,
                              0, NULL) == 0);
    CHECK(cpc_set_add_request(cpc, set, "task-clock", 0, USER, 0, NULL) == 1);
    cpc_buf_t *a = cpc_buf_create(cpc, set), *b = cpc_buf_create(cpc, set);
    handle_emt(cpc, set, a, 0);
    CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
    faults(500);
    spin(2);
    CHECK(emt.hits == 1 && emt.wrong == 0 && emt.first == 0);
    CHECK(cpc_set_sample(cpc, set, a) == 0);
    spin(2);
    CHECK(cpc_set_sample(cpc, set, b) == 0);
    CHECK(value(cpc, a, 0) == 0 && value(cpc, b, 0) == 0);
    CHECK(value(cpc, a, 1) == value(cpc, b, 1));
    CHECK(cpc_buf_tick(cpc, a) == cpc_buf_tick(cpc, b));
    CHECK(cpc_buf_hrtime(cpc, b) > cpc_buf_hrtime(cpc, a));
    CHECK(cpc_enable(cpc) == 0);
    faults(200);
    CHECK(cpc_set_sample(cpc, set, b) == 0);
    CHECK(about(value(cpc, b, 0), 200) && emt.hits == 1);
    CHECK(cpc_set_restart(cpc, set) == 0);
    faults(50);
    CHECK(emt.hits == 2);
    CHECK(cpc_close(cpc) == 0);
}

/* Several requests signal; a new preset takes effect with the next restart. */
/* Promise: C4 */
static void presets(void)
{
    cpc_t *cpc = open_cpc();
    cpc_set_t *set = cpc_set_create(cpc);
    unsigned flags = USER | CPC_OVF_NOTIFY_EMT;
    CHECK(cpc_set_add_request(cpc, set, "page-faults", UINT64_MAX - 299, flags, 0, NULL) == 0);
    CHECK(cpc_set_add_request(cpc, set, "minor-faults", UINT64_MAX - 99, flags, 0, NULL) == 1);
    cpc_buf_t *buf = cpc_buf_create(cpc, set);
    handle_emt(cpc, set, buf, 1);
    CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
    faults(1000);
    CHECK(emt.wrong == 0 && emt.hits >= 10 && emt.hits <= 11);
    CHECK(emt.last == UINT64_MAX - 299 + 100); /* the other request stopped the set */
    CHECK(cpc_request_preset(cpc, 1, 0) == 0);
    CHECK(cpc_set_request_preset(cpc, set, 0, UINT64_MAX - 499) == 0);
    CHECK(cpc_set_restart(cpc, set) == 0);
    emt.hits = 0;
    faults(1000);
    CHECK(emt.wrong == 0 && emt.hits == 2 && emt.last == 0);
    CHECK(cpc_unbind(cpc, set) == 0);
    /* Binding again starts from the presets the requests were added with. */
    emt.hits = 0;
    CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
    faults(200);
    CHECK(emt.hits == 2);
    FAILS(cpc_request_preset(cpc, 2, 0), EINVAL);
    FAILS(cpc_request_preset(cpc, -1, 0), EINVAL);
    CHECK(cpc_close(cpc) == 0);
    cpc = open_cpc();
    FAILS(cpc_request_preset(cpc, 0, 0), EINVAL);
    CHECK(cpc_close(cpc) == 0);
}

/* A handler that binds another set. */
static cpc_set_t *next_set;
static void on_rebind(int sig)
{
    (void)sig;
    emt.hits++;
    if (cpc_bind_curlwp(emt.cpc, next_set, 0) != 0)
        emt.wrong = 5;
}

/* Promise: C4 */
static void rebind(void)
{
    cpc_t *cpc = open_cpc();
    cpc_set_t *set = cpc_set_create(cpc);
    next_set = cpc_set_create(cpc);
    CHECK(cpc_set_add_request(cpc, set, "page-faults", UINT64_MAX - 9, USER | CPC_OVF_NOTIFY_EMT, 0,
                              NULL) == 0);
    CHECK(cpc_set_add_request(cpc, next_set, "page-faults", 0, USER, 0, NULL) == 0);
    cpc_buf_t *buf = cpc_buf_create(cpc, next_set);
    handle_emt(cpc, set, buf, 0);
    CHECK(signal(SIGEMT, on_rebind) != SIG_ERR);
    CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
    faults(110);
    CHECK(emt.hits == 1 && emt.wrong == 0);
    FAILS(cpc_set_sample(cpc, set, buf), EINVAL);
    CHECK(cpc_set_sample(cpc, next_set, buf) == 0);
    CHECK(about(value(cpc, buf, 0), 100));
    CHECK(cpc_close(cpc) == 0);
}

/*
 * Calls of the allocator while a handler of SIGEMT runs: one may have interrupted another call of it, so
 * there must be none.
 */
static _Thread_local volatile int handling;
static volatile int allocated;
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

void *malloc(size_t size)
{
    allocated |= handling;
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    allocated |= handling;
    return __libc_calloc(n, size);
}

void *realloc(void *old, size_t size)
{
    allocated |= handling;
    return __libc_realloc(old, size);
}

void free(void *p)
{
    allocated |= handling && p != NULL;
    __libc_free(p);
}

static cpc_buf_t *spare;

/* All that a handler may call. */
static void on_busy(int sig)
{
    uint64_t v;
    handling = 1;
    if (sig != SIGEMT || cpc_set_sample(emt.cpc, emt.set, emt.buf) != 0)
        emt.wrong = 1;
    cpc_buf_sub(emt.cpc, spare, emt.buf, spare);
    cpc_buf_add(emt.cpc, spare, emt.buf, spare);
    cpc_buf_copy(emt.cpc, spare, emt.buf);
    if (cpc_buf_get(emt.cpc, spare, 0, &v) != 0 || cpc_buf_set(emt.cpc, spare, 0, v) != 0 ||
        cpc_buf_hrtime(emt.cpc, spare) == 0)
        emt.wrong = 2;
    cpc_buf_zero(emt.cpc, spare);
    if (cpc_enable(emt.cpc) != 0 || cpc_disable(emt.cpc) != 0 || cpc_disable(emt.cpc) == 0 ||
        cpc_request_preset(emt.cpc, 0, emt.first) != 0 || cpc_request_preset(emt.cpc, 7, 0) == 0 ||
        cpc_buf_get(emt.cpc, spare, 7, &v) == 0)
        emt.wrong = 3;
    if (++emt.hits < 200 ? cpc_set_restart(emt.cpc, emt.set) != 0
                         : cpc_unbind(emt.cpc, emt.set) != 0)
        emt.wrong = 4;
    handling = 0;
}

static void handle_busily(const char *event, uint64_t preset)
{
    void *kept[64] = {0};
    cpc_t *cpc = open_cpc();
    cpc_set_t *set = cpc_set_create(cpc);
    CHECK(cpc_set_add_request(cpc, set, event, preset, USER | CPC_OVF_NOTIFY_EMT, 0, NULL) == 0);
    spare = cpc_buf_create(cpc, set);
    handle_emt(cpc, set, cpc_buf_create(cpc, set), 0);
    emt.first = preset;
    CHECK(signal(SIGEMT, on_busy) != SIG_ERR);
    CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
    /* Most overflows find the allocator at work. */
    for (unsigned i = 0; emt.hits < 200 && i < 50000000; i++) {
        unsigned place = i * 7 % 64;
        free(kept[place]);
        kept[place] = malloc(16 + i % 5000);
        CHECK(kept[place] != NULL);
        if (i % 64 == 0 && strcmp(event, "page-faults") == 0)
            faults(8);
    }
    CHECK(emt.wrong == 0 && emt.hits == 200 && !allocated);
    FAILS(cpc_unbind(cpc, set), EINVAL); /* the last one has done it */
    CHECK(cpc_close(cpc) == 0);
}

/* Promise: C17 */
static void handlers(void)
{
    handle_busily("page-faults", UINT64_MAX - 9);
}

/* Without a handler: ignored, blocked and waited for, left by a jump. The default ends the program. */
static jmp_buf landing;

static void on_jump(int sig)
{
    (void)sig;
    emt.hits++;
    siglongjmp(landing, 1);
}

static void ways_of_emt(const char *event, uint64_t preset, void (*work)(void))
{
    cpc_t *cpc = open_cpc();
    cpc_set_t *set = cpc_set_create(cpc);
    cpc_buf_t *buf;
    siginfo_t info;
    sigset_t mask;
    struct timespec minute = {60, 0};
    CHECK(cpc_set_add_request(cpc, set, event, preset, USER | CPC_OVF_NOTIFY_EMT, 0, NULL) == 0);
    buf = cpc_buf_create(cpc, set);
    CHECK(signal(SIGEMT, SIG_IGN) != SIG_ERR);
    CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
    work();
    CHECK(cpc_set_sample(cpc, set, buf) == 0);
    uint64_t frozen = value(cpc, buf, 0);
    CHECK(frozen < preset);
    work();
    CHECK(cpc_set_sample(cpc, set, buf) == 0 && value(cpc, buf, 0) == frozen);
    CHECK(signal(SIGEMT, SIG_DFL) != SIG_ERR);
    sigemptyset(&mask);
    sigaddset(&mask, SIGEMT);
    CHECK(sigprocmask(SIG_BLOCK, &mask, NULL) == 0);
    CHECK(cpc_set_restart(cpc, set) == 0);
    work();
    CHECK(sigtimedwait(&mask, &info, &minute) == SIGEMT && info.si_code == EMT_CPCOVF);
    CHECK(sigprocmask(SIG_UNBLOCK, &mask, NULL) == 0);
    CHECK(signal(SIGEMT, on_jump) != SIG_ERR);
    emt.hits = 0;
    while (sigsetjmp(landing, 1) == 0 || emt.hits < 5) {
        CHECK(cpc_set_restart(cpc, set) == 0);
        work();
        CHECK(0);
    }
    pid_t child = fork();
    if (child == 0) {
        signal(SIGEMT, SIG_DFL);
        CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
        work();
        exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGEMT);
    CHECK(cpc_close(cpc) == 0);
}

static void many_faults(void)
{
    faults(500);
}

/* Promise: C4, C17 */
static void ways(void)
{
    ways_of_emt("page-faults", UINT64_MAX - 99, many_faults);
}

/* ---- threads ---- */

static struct {
    cpc_t *cpc;
    cpc_set_t *set;
    pthread_barrier_t barrier;
} shared;

static void *shares(void *arg)
{
    size_t n = (size_t)arg;
    cpc_buf_t *buf = cpc_buf_create(shared.cpc, shared.set);
    CHECK(buf != NULL);
    FAILS(cpc_set_sample(shared.cpc, shared.set, buf), EINVAL);
    pthread_barrier_wait(&shared.barrier);
    CHECK(cpc_bind_curlwp(shared.cpc, shared.set, 0) == 0);
    faults(n);
    CHECK(cpc_set_sample(shared.cpc, shared.set, buf) == 0);
    CHECK(about(value(shared.cpc, buf, 0), n));
    CHECK(cpc_set_restart(shared.cpc, shared.set) == 0);
    pthread_barrier_wait(&shared.barrier);
    faults(10);
    CHECK(cpc_set_sample(shared.cpc, shared.set, buf) == 0);
    CHECK(about(value(shared.cpc, buf, 0), 10));
    CHECK(cpc_unbind(shared.cpc, shared.set) == 0);
    FAILS(cpc_unbind(shared.cpc, shared.set), EINVAL);
    CHECK(cpc_buf_destroy(shared.cpc, buf) == 0);
    return NULL;
}

/* One set, bound by many threads: each counts for itself. */
/* Promise: C5 */
static void threads(void)
{
    enum { N = 16 };
    pthread_t thread[N];
    shared.cpc = open_cpc();
    shared.set = cpc_set_create(shared.cpc);
    CHECK(cpc_set_add_request(shared.cpc, shared.set, "page-faults", 0, USER, 0, NULL) == 0);
    pthread_barrier_init(&shared.barrier, NULL, N);
    for (size_t i = 0; i < N; i++)
        CHECK(pthread_create(&thread[i], NULL, shares, (void *)(100 + 100 * i)) == 0);
    for (size_t i = 0; i < N; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    CHECK(cpc_close(shared.cpc) == 0);
}

#ifdef _OPENMP
/* Promise: C5 */
static void openmp(void)
{
    cpc_t *cpc = open_cpc();
    cpc_set_t *set = cpc_set_create(cpc);
    CHECK(cpc_set_add_request(cpc, set, "page-faults", 0, USER, 0, NULL) == 0);
    int right = 0;
#pragma omp parallel num_threads(4) reduction(+ : right)
    {
        cpc_buf_t *before = cpc_buf_create(cpc, set), *after = cpc_buf_create(cpc, set);
        CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
        CHECK(cpc_set_sample(cpc, set, before) == 0);
#pragma omp for schedule(static, 1)
        for (int i = 0; i < 4; i++)
            faults(500);
        CHECK(cpc_set_sample(cpc, set, after) == 0);
        cpc_buf_sub(cpc, after, after, before);
        right += about(value(cpc, after, 0), 500);
        CHECK(cpc_unbind(cpc, set) == 0);
    }
    CHECK(right == 4);
    CHECK(cpc_close(cpc) == 0);
}
#endif

static void *alone(void *arg)
{
    (void)arg;
    for (int i = 0; i < 20; i++) {
        cpc_t *cpc = open_cpc();
        cpc_set_t *set = cpc_set_create(cpc);
        CHECK(cpc_set_add_request(cpc, set, "page-faults", 0, USER, 0, NULL) == 0);
        cpc_buf_t *buf = cpc_buf_create(cpc, set);
        CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
        faults(50);
        CHECK(cpc_set_sample(cpc, set, buf) == 0);
        CHECK(about(value(cpc, buf, 0), 50));
        if (i % 3 == 0)
            CHECK(cpc_buf_destroy(cpc, buf) == 0);
        if (i % 2 == 0)
            CHECK(cpc_set_destroy(cpc, set) == 0);
        CHECK(cpc_close(cpc) == 0);
    }
    return NULL;
}

/* 64 threads open, bind, sample and close at once. */
/* Promise: C5 */
static void crowd(void)
{
    pthread_t thread[64];
    for (int i = 0; i < 64; i++)
        CHECK(pthread_create(&thread[i], NULL, alone, NULL) == 0);
    for (int i = 0; i < 64; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
}

/* One handle for 64 threads, which make, use and destroy objects of it all at once. */
static void *neighbour(void *arg)
{
    cpc_t *cpc = shared.cpc;
    size_t me = (size_t)arg;
    for (int i = 0; i < 20; i++) {
        cpc_set_t *set = cpc_set_create(cpc);
        CHECK(cpc_set_add_request(cpc, set, "page-faults", 0, USER, 0, NULL) == 0);
        cpc_buf_t *buf = cpc_buf_create(cpc, set), *other = cpc_buf_create(cpc, set);
        CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
        faults(50 + me);
        CHECK(cpc_set_sample(cpc, set, buf) == 0);
        cpc_buf_copy(cpc, other, buf);
        CHECK(about(value(cpc, other, 0), 50 + me));
        if (i % 4 == 0)
            CHECK(cpc_unbind(cpc, set) == 0);
        CHECK(cpc_buf_destroy(cpc, buf) == 0);
        if (i % 2 == 0)
            CHECK(cpc_buf_destroy(cpc, other) == 0);
        if (i % 5 != 0)
            CHECK(cpc_set_destroy(cpc, set) == 0);
        CHECK(cpc_npic(cpc) > 0 && cpc_cciname(cpc) != NULL);
        /* Not at every turn: no thread is to wait for another. */
        if (i == 10)
            CHECK(cpc_seterrhndlr(cpc, NULL) == 0);
    }
    return NULL;
}

/* Uses a set that its owner destroys meanwhile, and a handle that is closed. */
static void *tenant(void *arg)
{
    cpc_buf_t *buf = cpc_buf_create(shared.cpc, shared.set);
    int closed = arg != NULL;
    CHECK(cpc_bind_curlwp(shared.cpc, shared.set, 0) == 0);
    CHECK(cpc_set_sample(shared.cpc, shared.set, buf) == 0);
    pthread_barrier_wait(&shared.barrier);
    pthread_barrier_wait(&shared.barrier);
    FAILS(cpc_set_sample(shared.cpc, shared.set, buf), EINVAL);
    FAILS(cpc_unbind(shared.cpc, shared.set), EINVAL);
    FAILS(cpc_set_restart(shared.cpc, shared.set), EINVAL);
    FAILS(cpc_disable(shared.cpc), EINVAL);
    if (closed)
        FAILS(cpc_buf_destroy(shared.cpc, buf), EINVAL);
    else
        CHECK(cpc_buf_destroy(shared.cpc, buf) == 0);
    return NULL;
}

/* Promise: C5, C6 */
static void neighbours(void)
{
    pthread_t thread[64];
    shared.cpc = open_cpc();
    for (size_t i = 0; i < 64; i++)
        CHECK(pthread_create(&thread[i], NULL, neighbour, (void *)i) == 0);
    for (int i = 0; i < 64; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    pthread_barrier_init(&shared.barrier, NULL, 2);
    for (int closes = 0; closes < 2; closes++) {
        shared.set = cpc_set_create(shared.cpc);
        CHECK(cpc_set_add_request(shared.cpc, shared.set, "page-faults", 0, USER, 0, NULL) == 0);
        void *arg = closes ? &shared : NULL;
        CHECK(pthread_create(&thread[0], NULL, tenant, arg) == 0);
        pthread_barrier_wait(&shared.barrier);
        CHECK((closes ? cpc_close(shared.cpc) : cpc_set_destroy(shared.cpc, shared.set)) == 0);
        pthread_barrier_wait(&shared.barrier);
        CHECK(pthread_join(thread[0], NULL) == 0);
    }
}

/* ---- inheritance ---- */

static void *inheritor(void *arg)
{
    cpc_buf_t *buf = cpc_buf_create(shared.cpc, shared.set);
    faults(300);
    CHECK(cpc_set_sample(shared.cpc, shared.set, buf) == 0);
    CHECK(about(value(shared.cpc, buf, 0), 1000000 + 300));
    if (arg != NULL) {
        pthread_t child;
        CHECK(pthread_create(&child, NULL, inheritor, NULL) == 0);
        CHECK(pthread_join(child, NULL) == 0);
    }
    return NULL;
}

static void *heirless(void *arg)
{
    cpc_buf_t *buf = cpc_buf_create(shared.cpc, shared.set);
    (void)arg;
    FAILS(cpc_set_sample(shared.cpc, shared.set, buf), EINVAL);
    return NULL;
}

/* Promise: C5 */
static void inherit(void)
{
    pthread_t thread;
    shared.cpc = open_cpc();
    shared.set = cpc_set_create(shared.cpc);
    CHECK(cpc_set_add_request(shared.cpc, shared.set, "page-faults", 1000000, USER, 0, NULL) == 0);
    cpc_buf_t *buf = cpc_buf_create(shared.cpc, shared.set);
    CHECK(cpc_bind_curlwp(shared.cpc, shared.set, CPC_BIND_LWP_INHERIT) == 0);
    faults(100);
    CHECK(pthread_create(&thread, NULL, inheritor, shared.cpc) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(cpc_set_sample(shared.cpc, shared.set, buf) == 0);
    CHECK(about(value(shared.cpc, buf, 0), 1000100)); /* nothing is summed into the parent */
    CHECK(cpc_bind_curlwp(shared.cpc, shared.set, 0) == 0);
    CHECK(pthread_create(&thread, NULL, heirless, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(cpc_close(shared.cpc) == 0);
}

static void *signalled(void *arg)
{
    cpc_buf_t *buf = cpc_buf_create(shared.cpc, shared.set);
    (void)arg;
    CHECK(emt.hits == 1 && emt.wrong == 0 && emt.first == UINT64_MAX);
    faults(100);
    CHECK(cpc_set_sample(shared.cpc, shared.set, buf) == 0);
    CHECK(value(shared.cpc, buf, 0) == UINT64_MAX); /* frozen until restarted */
    CHECK(cpc_set_restart(shared.cpc, shared.set) == 0);
    faults(100);
    CHECK(emt.hits == 2);
    return NULL;
}

/* A new thread is signalled at once. */
/* Promise: C5 */
static void inherit_overflow(void)
{
    pthread_t thread;
    shared.cpc = open_cpc();
    shared.set = cpc_set_create(shared.cpc);
    CHECK(cpc_set_add_request(shared.cpc, shared.set, "page-faults", UINT64_MAX - 79,
                              USER | CPC_OVF_NOTIFY_EMT, 0, NULL) == 0);
    cpc_buf_t *buf = cpc_buf_create(shared.cpc, shared.set);
    handle_emt(shared.cpc, shared.set, buf, 0);
    CHECK(cpc_bind_curlwp(shared.cpc, shared.set, CPC_BIND_LWP_INHERIT) == 0);
    CHECK(pthread_create(&thread, NULL, signalled, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(cpc_close(shared.cpc) == 0);
}

/* ---- switching on and off, rotation, fork ---- */

static void enable(void)
{
    cpc_t *cpc = open_cpc();
    FAILS(cpc_enable(cpc), EINVAL); /* a program run without a controller */
    FAILS(cpc_disable(cpc), EINVAL);
    cpc_set_t *set = cpc_set_create(cpc);
    CHECK(cpc_set_add_request(cpc, set, "page-faults", 0, USER, 0, NULL) == 0);
    CHECK(cpc_set_add_request(cpc, set, "task-clock", 0, USER, 0, NULL) == 1);
    cpc_buf_t *buf = cpc_buf_create(cpc, set);
    CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
    FAILS(cpc_enable(cpc), EINVAL);
    CHECK(cpc_disable(cpc) == 0);
    FAILS(cpc_disable(cpc), EINVAL);
    faults(1000);
    CHECK(cpc_enable(cpc) == 0);
    faults(100);
    CHECK(cpc_disable(cpc) == 0);
    faults(1000);
    CHECK(cpc_set_sample(cpc, set, buf) == 0);
    CHECK(about(value(cpc, buf, 0), 100));
    CHECK(value(cpc, buf, 1) > 0);
    CHECK(cpc_close(cpc) == 0);
}

/* Two sets take turns; each bind starts at the presets, and each total is the sum of its turns. */
static void rotate(void)
{
    cpc_t *cpc = open_cpc();
    cpc_set_t *set[2];
    cpc_buf_t *now[2], *total[2];
    const char *event[2] = {"page-faults", "minor-faults"};
    for (int i = 0; i < 2; i++) {
        set[i] = cpc_set_create(cpc);
        CHECK(cpc_set_add_request(cpc, set[i], event[i], 0, USER, 0, NULL) == 0);
        now[i] = cpc_buf_create(cpc, set[i]);
        total[i] = cpc_buf_create(cpc, set[i]);
    }
    for (int turn = 0; turn < 10; turn++) {
        int i = turn % 2;
        CHECK(cpc_bind_curlwp(cpc, set[i], 0) == 0); /* in place of the other */
        faults(100);
        CHECK(cpc_set_sample(cpc, set[i], now[i]) == 0);
        FAILS(cpc_set_sample(cpc, set[1 - i], now[1 - i]), EINVAL);
        CHECK(about(value(cpc, now[i], 0), 100));
        cpc_buf_add(cpc, total[i], total[i], now[i]);
    }
    for (int i = 0; i < 2; i++)
        CHECK(value(cpc, total[i], 0) >= 500 && value(cpc, total[i], 0) < 900);
    CHECK(cpc_close(cpc) == 0);
}

static void forked(void)
{
    cpc_t *cpc = open_cpc();
    cpc_set_t *set = cpc_set_create(cpc);
    CHECK(cpc_set_add_request(cpc, set, "page-faults", 0, USER, 0, NULL) == 0);
    cpc_buf_t *buf = cpc_buf_create(cpc, set);
    CHECK(cpc_bind_curlwp(cpc, set, CPC_BIND_LWP_INHERIT) == 0);
    pid_t child = fork();
    if (child == 0) {
        FAILS(cpc_set_sample(cpc, set, buf), EINVAL);
        FAILS(cpc_disable(cpc), EINVAL);
        CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
        faults(2000);
        CHECK(cpc_set_sample(cpc, set, buf) == 0);
        CHECK(about(value(cpc, buf, 0), 2000));
        CHECK(cpc_close(cpc) == 0);
        exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    faults(300);
    CHECK(cpc_set_sample(cpc, set, buf) == 0);
    CHECK(value(cpc, buf, 0) >= 300 && value(cpc, buf, 0) < 1500); /* without the child's */
    CHECK(cpc_close(cpc) == 0);
}

/* ---- buffers ---- */

/* Promise: C9 */
static void buffers(void)
{
    cpc_t *cpc = open_cpc();
    cpc_set_t *set = cpc_set_create(cpc), *clone = cpc_set_create(cpc);
    for (int i = 0; i < 3; i++) {
        CHECK(cpc_set_add_request(cpc, set, "page-faults", 0, USER, 0, NULL) == i);
        CHECK(cpc_set_add_request(cpc, clone, "task-clock", 0, USER, 0, NULL) == i);
    }
    cpc_buf_t *a = cpc_buf_create(cpc, set), *b = cpc_buf_create(cpc, set);
    cpc_buf_t *d = cpc_buf_create(cpc, clone); /* of a clone, as cputrack does */
    CHECK(value(cpc, a, 2) == 0 && cpc_buf_hrtime(cpc, a) == 0 && cpc_buf_tick(cpc, a) == 0);
    for (int i = 0; i < 3; i++) {
        CHECK(cpc_buf_set(cpc, a, i, 10 * i) == 0);
        CHECK(cpc_buf_set(cpc, b, i, UINT64_MAX - i) == 0);
    }
    cpc_buf_sub(cpc, d, a, b);
    CHECK(value(cpc, d, 0) == 1 && value(cpc, d, 2) == 23);
    cpc_buf_add(cpc, d, d, b);
    CHECK(value(cpc, d, 1) == 10);
    cpc_buf_add(cpc, d, d, d);
    CHECK(value(cpc, d, 1) == 20);
    cpc_buf_copy(cpc, a, d);
    CHECK(value(cpc, a, 2) == 40);
    CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
    spin(1);
    CHECK(cpc_set_sample(cpc, set, a) == 0);
    spin(1);
    CHECK(cpc_buf_sample(cpc, set, b) == 0);
    CHECK(cpc_buf_tick(cpc, b) > cpc_buf_tick(cpc, a) && cpc_buf_tick(cpc, a) > 0);
    uint64_t ticks = cpc_buf_tick(cpc, b) - cpc_buf_tick(cpc, a);
    hrtime_t later = cpc_buf_hrtime(cpc, b);
    cpc_buf_sub(cpc, d, b, a);
    CHECK(cpc_buf_tick(cpc, d) == ticks && cpc_buf_hrtime(cpc, d) == later);
    cpc_buf_sub(cpc, d, a, b);
    CHECK(cpc_buf_hrtime(cpc, d) == later && cpc_buf_tick(cpc, d) == -ticks);
    cpc_buf_zero(cpc, d);
    CHECK(value(cpc, d, 0) == 0 && cpc_buf_hrtime(cpc, d) == 0 && cpc_buf_tick(cpc, d) == 0);
    FAILS(cpc_buf_get(cpc, a, 3, &ticks), EINVAL);
    FAILS(cpc_buf_get(cpc, a, -1, &ticks), EINVAL);
    FAILS(cpc_buf_get(cpc, a, 0, NULL), EINVAL);
    FAILS(cpc_buf_set(cpc, a, 3, 0), EINVAL);
    /* A request added later does not fit into an older buffer. */
    CHECK(cpc_unbind(cpc, set) == 0);
    CHECK(cpc_set_add_request(cpc, set, "page-faults", 0, USER, 0, NULL) == 3);
    CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
    FAILS(cpc_set_sample(cpc, set, a), EINVAL);
    CHECK(cpc_close(cpc) == 0);
}

/* ---- errors ---- */

static struct {
    char fn[64], text[1024];
    int subcode, calls;
} heard;

static void hear(const char *fn, int subcode, const char *fmt, va_list ap)
{
    snprintf(heard.fn, sizeof heard.fn, "%s", fn);
    vsnprintf(heard.text, sizeof heard.text, fmt, ap);
    heard.subcode = subcode;
    heard.calls++;
    errno = 12345; /* is put back */
}

#define HEARD(call, number, function, code)                                  \
    do {                                                                     \
        heard.calls = 0;                                                     \
        FAILS(call, number);                                                 \
        CHECK(heard.calls == 1);                                             \
        CHECK(strcmp(heard.fn, function) == 0 && heard.subcode == (code));   \
        CHECK(heard.text[strlen(heard.text) - 1] == '\n');                   \
    } while (0)
#define UNHEARD(call, number)  \
    do {                       \
        heard.calls = 0;       \
        FAILS(call, number);   \
        CHECK(heard.calls == 0); \
    } while (0)

static int add(cpc_t *cpc, cpc_set_t *set, const char *event, unsigned flags, const char *name,
               uint64_t v)
{
    cpc_attr_t attr = {(char *)name, v};
    return cpc_set_add_request(cpc, set, event, 0, flags, name != NULL, &attr);
}

/* The error `call` of binding a set with one request. */
static int bind_one(cpc_t *cpc, const char *event, unsigned flags)
{
    cpc_set_t *set = cpc_set_create(cpc);
    CHECK(add(cpc, set, event, flags, NULL, 0) == 0);
    int result = cpc_bind_curlwp(cpc, set, 0), saved = errno;
    CHECK(cpc_set_destroy(cpc, set) == 0);
    errno = saved;
    return result;
}

/* Promise: C6 */
static void errors(void)
{
    const char *adding = "cpc_set_add_request", *binding = "cpc_bind_curlwp";
    CHECK(cpc_open(1) == NULL && errno == EINVAL);
    CHECK(cpc_open(CPC_VER_NONE) == NULL && errno == EINVAL);
    cpc_t *cpc = open_cpc();
    CHECK(cpc_seterrhndlr(cpc, hear) == 0);
    cpc_set_t *set = cpc_set_create(cpc);
    HEARD(add(cpc, set, "no-such-event", USER, NULL, 0), EINVAL, adding, CPC_INVALID_EVENT);
    CHECK(strstr(heard.text, "no-such-event") != NULL);
    HEARD(add(cpc, set, "100%s%n", USER, NULL, 0), EINVAL, adding, CPC_INVALID_EVENT);
    CHECK(strstr(heard.text, "100%s%n") != NULL); /* text, not a conversion */
    HEARD(add(cpc, set, "", USER, NULL, 0), EINVAL, adding, CPC_INVALID_EVENT);
    HEARD(add(cpc, set, "page-faults", USER, "picnum", 1000), EINVAL, adding, CPC_INVALID_PICNUM);
    HEARD(add(cpc, set, "page-faults", USER, "", 1), EINVAL, adding, CPC_INVALID_ATTRIBUTE);
    HEARD(add(cpc, set, "page-faults", USER, "colour", 1), EINVAL, adding, CPC_INVALID_ATTRIBUTE);
    UNHEARD(cpc_set_add_request(cpc, set, NULL, 0, USER, 0, NULL), EINVAL);
    UNHEARD(cpc_set_add_request(cpc, set, "page-faults", 0, USER, 1, NULL), EINVAL);
    UNHEARD(cpc_bind_curlwp(cpc, set, 0), EINVAL); /* empty */
    HEARD(bind_one(cpc, "page-faults", USER | 0x100), EINVAL, binding, CPC_REQ_INVALID_FLAGS);
    HEARD(bind_one(cpc, "page-faults", 0), EINVAL, binding, CPC_REQ_INVALID_FLAGS);
    HEARD(bind_one(cpc, "context-switches", USER), EINVAL, binding, CPC_REQ_INVALID_FLAGS);
    for (int i = 0; i < 2; i++) {
        cpc_attr_t room = {"smpl_nrecs", i ? UINT64_MAX : 0};
        cpc_set_t *roomy = cpc_set_create(cpc);
        CHECK(cpc_set_add_request(cpc, roomy, "task-clock", -(uint64_t)1000000, USER | CPC_HW_SMPL,
                                  1, &room) == 0);
        HEARD(cpc_bind_curlwp(cpc, roomy, 0), EINVAL, binding, CPC_ATTRIBUTE_OUT_OF_RANGE);
    }
    CHECK(bind_one(cpc, "context-switches", USER | CPC_COUNT_SYSTEM) == 0);
    CHECK(add(cpc, set, "page-faults", USER, "picnum", cpc_npic(cpc) - 1) == 0);
    CHECK(add(cpc, set, "task-clock", USER, "picnum", cpc_npic(cpc) - 1) == 1);
    UNHEARD(cpc_bind_curlwp(cpc, set, 0), EINVAL); /* the same counter twice */
    CHECK(cpc_set_destroy(cpc, set) == 0);
    set = cpc_set_create(cpc);
    CHECK(add(cpc, set, "page-faults", USER, NULL, 0) == 0);
    UNHEARD(cpc_bind_curlwp(cpc, set, 2), EINVAL);
    UNHEARD(cpc_bind_cpu(cpc, 0, set, 1), EINVAL);
    UNHEARD(cpc_bind_cpu(cpc, -1, set, 0), EINVAL);
    UNHEARD(cpc_bind_cpu(cpc, 100000, set, 0), EINVAL);
    cpc_set_t *wrong = cpc_set_create(cpc);
    CHECK(add(cpc, wrong, "page-faults", USER | 0x100, NULL, 0) == 0);
    HEARD(cpc_bind_cpu(cpc, 0, wrong, 0), EINVAL, "cpc_bind_cpu", CPC_REQ_INVALID_FLAGS);
    FAILS(cpc_unbind(cpc, wrong), EINVAL);
    UNHEARD(cpc_bind_pctx(cpc, NULL, 1, set, 0), EINVAL);
    UNHEARD(cpc_unbind(cpc, set), EINVAL);
    UNHEARD(cpc_set_restart(cpc, set), EINVAL);
    CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
    UNHEARD(add(cpc, set, "page-faults", USER, NULL, 0), EINVAL); /* bound */
    /* After a failed bind the thread has nothing bound. */
    cpc_set_t *bad = cpc_set_create(cpc);
    CHECK(add(cpc, bad, "page-faults", USER | 0x100, NULL, 0) == 0);
    HEARD(cpc_bind_curlwp(cpc, bad, 0), EINVAL, binding, CPC_REQ_INVALID_FLAGS);
    UNHEARD(cpc_unbind(cpc, set), EINVAL);
    /* A set has at most 100 requests, a request at most 50 attributes. */
    cpc_set_t *full = cpc_set_create(cpc);
    for (int i = 0; i < 100; i++)
        CHECK(add(cpc, full, "page-faults", USER, NULL, 0) == i);
    UNHEARD(add(cpc, full, "page-faults", USER, NULL, 0), EINVAL);
    cpc_attr_t many[51] = {{0}};
    for (int i = 0; i < 51; i++)
        many[i].ca_name = "picnum";
    UNHEARD(cpc_set_add_request(cpc, full, "page-faults", 0, USER, 51, many), EINVAL);
    CHECK(cpc_close(cpc) == 0);
}

/* Without memory there is an error, and the program lives on. */
static void memory(void)
{
    cpc_t *cpc = open_cpc();
    cpc_set_t *set = cpc_set_create(cpc), *small = cpc_set_create(cpc);
    cpc_attr_t room = {"smpl_nrecs", 1 << 22};
    struct rlimit limit = {1500000000, 1500000000};
    CHECK(cpc_seterrhndlr(cpc, hear) == 0);
    for (int i = 0; i < 20; i++)
        CHECK(cpc_set_add_request(cpc, set, "task-clock", -(uint64_t)1000000, USER | CPC_HW_SMPL, 1,
                                  &room) == i);
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    errno = 0;
    CHECK(cpc_buf_create(cpc, set) == NULL && errno == ENOMEM);
    FAILS(cpc_bind_curlwp(cpc, set, 0), ENOMEM);
    CHECK(add(cpc, small, "page-faults", USER, NULL, 0) == 0);
    cpc_buf_t *buf = cpc_buf_create(cpc, small);
    CHECK(buf != NULL && cpc_bind_curlwp(cpc, small, 0) == 0);
    CHECK(cpc_set_sample(cpc, small, buf) == 0);
    CHECK(cpc_close(cpc) == 0);
}

static int descriptors(void);

/* Has the kernel refuse a system call from now on. */
static void deny(int call)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* What a sandbox denies has its subcode, and the text says who denies it. */
/* Promise: C6 */
static void denied(void)
{
    cpc_t *cpc = open_cpc();
    CHECK(cpc_seterrhndlr(cpc, hear) == 0);
    cpc_set_t *set = cpc_set_create(cpc);
    CHECK(add(cpc, set, "cpu-clock", USER | CPC_COUNT_SYSTEM, NULL, 0) == 0);
    deny(SYS_sched_setaffinity);
    HEARD(cpc_bind_cpu(cpc, 0, set, 0), EPERM, "cpc_bind_cpu", CPC_PBIND_FAILED);
    CHECK(strstr(heard.text, "processor 0") != NULL);
    FAILS(cpc_unbind(cpc, set), EINVAL);
    deny(SYS_perf_event_open);
    int before = descriptors();
    HEARD(cpc_bind_curlwp(cpc, set, 0), EACCES, "cpc_bind_curlwp", CPC_RESOURCE_UNAVAIL);
    CHECK(strstr(heard.text, "seccomp") != NULL);
    CHECK(descriptors() == before);
    CHECK(cpc_close(cpc) == 0);
    /* With nothing that counts there is no handle, if the processor has no LWP. */
    cpc = cpc_open(CPC_VER_CURRENT);
    CHECK(cpc != NULL || errno == EACCES || errno == ENOTSUP);
}

/* Without a handler the message goes to standard error; the test reads it. */
static void default_handler(void)
{
    cpc_t *cpc = open_cpc();
    cpc_set_t *set = cpc_set_create(cpc);
    CHECK(cpc_seterrhndlr(cpc, hear) == 0 && cpc_seterrhndlr(cpc, NULL) == 0);
    FAILS(add(cpc, set, "no-such-event", USER, NULL, 0), EINVAL);
    CHECK(heard.calls == 0);
}

/* What hardware counts is refused on a machine without it, with the reason. */
/* Promise: C1 */
static void hardware(void)
{
    cpc_t *cpc = open_cpc();
    CHECK(cpc_seterrhndlr(cpc, hear) == 0);
    cpc_set_t *set = cpc_set_create(cpc);
    int added = add(cpc, set, "PAPI_tot_ins", USER, NULL, 0);
    if (added == -1) {
        CHECK(errno == EINVAL && heard.subcode == CPC_INVALID_EVENT);
        CHECK(strstr(heard.text, "Lightweight Profiling") != NULL);
        CHECK(strstr(heard.text, "hardware counters") != NULL);
        CHECK(add(cpc, set, "0xc0", USER, NULL, 0) == 0); /* looked at when it is bound */
        HEARD(cpc_bind_curlwp(cpc, set, 0), EINVAL, "cpc_bind_curlwp", CPC_INVALID_EVENT);
    } else {
        cpc_buf_t *buf = cpc_buf_create(cpc, set);
        CHECK(cpc_bind_curlwp(cpc, set, 0) == 0 && cpc_set_sample(cpc, set, buf) == 0);
        spin(1);
        CHECK(value(cpc, buf, 0) > 0);
    }
    CHECK(cpc_close(cpc) == 0);
}

/* ---- objects: wrong, foreign, freed, in every order ---- */

/* Promise: C6 */
static void objects(void)
{
    cpc_t *cpc = open_cpc(), *other = open_cpc();
    cpc_set_t *set = cpc_set_create(cpc), *foreign = cpc_set_create(other);
    CHECK(add(cpc, set, "page-faults", USER, NULL, 0) == 0);
    CHECK(add(other, foreign, "page-faults", USER, NULL, 0) == 0);
    cpc_buf_t *buf = cpc_buf_create(cpc, set), *foreign_buf = cpc_buf_create(other, foreign);
    int local;
    FAILS(add(cpc, foreign, "page-faults", USER, NULL, 0), EINVAL);
    CHECK(cpc_buf_create(cpc, foreign) == NULL && errno == EINVAL);
    FAILS(cpc_set_destroy(cpc, foreign), EINVAL);
    FAILS(cpc_buf_destroy(cpc, foreign_buf), EINVAL);
    FAILS(cpc_unbind(cpc, foreign), EINVAL);
    FAILS(cpc_bind_curlwp(cpc, foreign, 0), EINVAL);
    CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
    FAILS(cpc_set_sample(cpc, set, foreign_buf), EINVAL);
    FAILS(cpc_set_sample(other, set, buf), EINVAL);
    CHECK(cpc_set_sample(cpc, set, buf) == 0);
    /* NULL. */
    FAILS(cpc_close(NULL), EINVAL);
    CHECK(cpc_set_create(NULL) == NULL && errno == EINVAL);
    FAILS(cpc_set_destroy(cpc, NULL), EINVAL);
    FAILS(cpc_buf_destroy(cpc, NULL), EINVAL);
    FAILS(cpc_set_sample(cpc, set, NULL), EINVAL);
    FAILS(cpc_set_sample(cpc, NULL, buf), EINVAL);
    FAILS(cpc_bind_curlwp(NULL, set, 0), EINVAL);
    FAILS(cpc_seterrhndlr(NULL, NULL), EINVAL);
    CHECK(cpc_npic(NULL) == 0 && cpc_caps(NULL) == 0 && cpc_cciname(NULL) == NULL);
    cpc_buf_add(cpc, NULL, buf, buf);
    cpc_buf_sub(cpc, buf, NULL, buf);
    cpc_buf_copy(cpc, buf, NULL);
    cpc_buf_zero(cpc, NULL);
    CHECK(cpc_buf_hrtime(cpc, NULL) == 0 && cpc_buf_tick(cpc, NULL) == 0);
    cpc_walk_events_all(NULL, NULL, NULL);
    cpc_walk_requests(cpc, set, NULL, NULL);
    /* Not an object at all: destroying does not look at it. */
    FAILS(cpc_buf_destroy(cpc, (cpc_buf_t *)&local), EINVAL);
    FAILS(cpc_set_destroy(cpc, (cpc_set_t *)(uintptr_t)0x1235), EINVAL);
    FAILS(cpc_buf_destroy(cpc, (cpc_buf_t *)set), EINVAL);
    FAILS(cpc_set_sample(cpc, set, (cpc_buf_t *)set), EINVAL); /* of another kind */
    /* Destroyed twice, as cputrack does with aliased buffers; used after that. */
    CHECK(cpc_buf_destroy(cpc, buf) == 0);
    FAILS(cpc_buf_destroy(cpc, buf), EINVAL);
    uint64_t v;
    FAILS(cpc_buf_get(cpc, buf, 0, &v), EINVAL);
    FAILS(cpc_set_sample(cpc, set, buf), EINVAL);
    /* Destroying a bound set unbinds it. */
    CHECK(cpc_set_destroy(cpc, set) == 0);
    FAILS(cpc_set_destroy(cpc, set), EINVAL);
    FAILS(cpc_disable(cpc), EINVAL);
    FAILS(cpc_bind_curlwp(cpc, set, 0), EINVAL);
    CHECK(cpc_close(cpc) == 0);
    FAILS(cpc_close(cpc), EINVAL);
    FAILS(cpc_enable(cpc), EINVAL);
    CHECK(cpc_set_create(cpc) == NULL && errno == EINVAL);
    CHECK(cpc_close(other) == 0);
    /* Every order of destroying set, buffer and handle, bound and not. */
    for (int order = 0; order < 12; order++) {
        cpc = open_cpc();
        set = cpc_set_create(cpc);
        CHECK(add(cpc, set, "page-faults", USER, NULL, 0) == 0);
        buf = cpc_buf_create(cpc, set);
        if (order >= 6)
            CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
        for (int step = 0; step < 3; step++) {
            static const char *const orders[] = {"sbc", "scb", "bsc", "bcs", "csb", "cbs"};
            switch (orders[order % 6][step]) {
            case 's': cpc_set_destroy(cpc, set); break;
            case 'b': cpc_buf_destroy(cpc, buf); break;
            default: CHECK(cpc_close(cpc) == 0);
            }
        }
        cpc = open_cpc();
        FAILS(cpc_disable(cpc), EINVAL); /* nothing stayed bound */
        CHECK(cpc_close(cpc) == 0);
    }
}

static int descriptors(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

/* Ends with a set bound. */
static void *leaves_bound(void *arg)
{
    (void)arg;
    CHECK(cpc_bind_curlwp(shared.cpc, shared.set, 0) == 0);
    return NULL;
}

/* 10 000 binds and unbinds leave no descriptor behind, threads that end none either. */
/* Promise: C7 */
static void cycles(void)
{
    cpc_t *cpc = shared.cpc = open_cpc();
    cpc_set_t *set = cpc_set_create(cpc);
    CHECK(add(cpc, set, "page-faults", USER, NULL, 0) == 0);
    CHECK(add(cpc, set, "task-clock", USER, NULL, 0) == 1);
    int before = descriptors();
    for (int i = 0; i < 10000; i++) {
        CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
        if (i % 2)
            CHECK(cpc_unbind(cpc, set) == 0);
    }
    CHECK(cpc_unbind(cpc, set) == -1);
    CHECK(descriptors() == before);
    shared.set = set;
    for (int i = 0; i < 1000; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, leaves_bound, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    CHECK(descriptors() == before);
    CHECK(add(cpc, set, "page-faults", USER, NULL, 0) == 2); /* nobody has it bound */
    /* A failed bind leaves none either. */
    cpc_set_t *bad = cpc_set_create(cpc);
    CHECK(cpc_seterrhndlr(cpc, hear) == 0);
    CHECK(add(cpc, bad, "page-faults", USER, NULL, 0) == 0);
    CHECK(add(cpc, bad, "context-switches", USER, NULL, 0) == 1);
    for (int i = 0; i < 1000; i++)
        FAILS(cpc_bind_curlwp(cpc, bad, 0), EINVAL);
    CHECK(descriptors() == before);
    CHECK(cpc_close(cpc) == 0);
}

/* ---- a processor ---- */

static void *other_lwp(void *arg)
{
    cpc_set_t **set = arg;
    cpc_buf_t *buf = cpc_buf_create(shared.cpc, *set);
    FAILS(cpc_set_sample(shared.cpc, *set, buf), EAGAIN);
    cpc_set_t *mine = cpc_set_create(shared.cpc);
    CHECK(add(shared.cpc, mine, "cpu-clock", USER | CPC_COUNT_SYSTEM, NULL, 0) == 0);
    FAILS(cpc_bind_cpu(shared.cpc, 0, mine, 0), EAGAIN); /* taken */
    return NULL;
}

static void processor(void)
{
    pthread_t thread;
    cpu_set_t before, now;
    cpc_t *cpc = shared.cpc = open_cpc();
    cpc_set_t *set = cpc_set_create(cpc);
    CHECK(cpc_seterrhndlr(cpc, hear) == 0);
    CHECK(add(cpc, set, "cpu-clock", USER | CPC_COUNT_SYSTEM, NULL, 0) == 0);
    CHECK(add(cpc, set, "page-faults", USER, NULL, 0) == 1);
    cpc_buf_t *buf = cpc_buf_create(cpc, set);
    CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
    if (cpc_bind_cpu(cpc, 0, set, 0) != 0) {
        /* Not everybody may count whole processors; then it is said why. */
        CHECK(errno == EACCES && strstr(heard.text, "perf_event_paranoid") != NULL);
        CHECK(sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&before, &now));
        return;
    }
    CHECK(sched_getcpu() == 0);
    FAILS(cpc_disable(cpc), EINVAL); /* is not about processors */
    faults(500);
    spin(5);
    CHECK(cpc_set_sample(cpc, set, buf) == 0);
    CHECK(value(cpc, buf, 0) > 1000000 && value(cpc, buf, 1) >= 500);
    CHECK(pthread_create(&thread, NULL, other_lwp, &set) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    if (CPU_COUNT(&before) > 1) {
        CPU_ZERO(&now);
        CPU_SET(1, &now);
        CHECK(sched_setaffinity(0, sizeof now, &now) == 0); /* moved away */
        FAILS(cpc_set_sample(cpc, set, buf), EAGAIN);
    }
    CHECK(cpc_unbind(cpc, set) == 0);
    CHECK(sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&before, &now));
    FAILS(cpc_unbind(cpc, set), EINVAL);
    CHECK(cpc_bind_cpu(cpc, 0, set, 0) == 0);
    CHECK(cpc_close(cpc) == 0);
    CHECK(sched_getaffinity(0, sizeof now, &now) == 0 && CPU_EQUAL(&before, &now));
}

/* ---- walkers ---- */

struct walk {
    int n;
    char names[400][CPC_MAX_EVENT_LEN];
    int indices[400];
};

static void on_name(void *arg, const char *name)
{
    struct walk *walk = arg;
    CHECK(walk->n < 400);
    strcpy(walk->names[walk->n++], name);
}

static void on_pic_name(void *arg, uint_t picno, const char *name)
{
    (void)picno;
    on_name(arg, name);
}

static void on_item(void *arg, const char *name, int index)
{
    struct walk *walk = arg;
    walk->indices[walk->n] = index;
    on_name(arg, name);
}

static void on_request(void *arg, int index, const char *event, uint64_t preset, uint_t flags,
                       int nattrs, const cpc_attr_t *attrs)
{
    struct walk *walk = arg;
    walk->indices[walk->n] = index;
    on_name(arg, event);
    CHECK(preset == (uint64_t)index && flags == USER);
    CHECK(nattrs == (index == 1) && (nattrs == 0 || strcmp(attrs[0].ca_name, "picnum") == 0));
}

static int has(struct walk *walk, const char *name)
{
    for (int i = 0; i < walk->n; i++)
        if (strcmp(walk->names[i], name) == 0)
            return 1;
    return 0;
}

static void walkers(void)
{
    static struct walk all, generic, pic, attrs, requests;
    cpc_t *cpc = open_cpc();
    cpc_walk_events_all(cpc, &all, on_name);
    CHECK(has(&all, "page-faults") && has(&all, "task-clock"));
    cpc_walk_generic_events_all(cpc, &generic, on_name);
    for (int i = 0; i < generic.n; i++)
        CHECK(strncmp(generic.names[i], "PAPI", 4) == 0);
    for (int i = 0; i < all.n; i++) {
        CHECK(strncmp(all.names[i], "PAPI", 4) != 0);
        for (int k = 0; k < i; k++)
            CHECK(strcmp(all.names[i], all.names[k]) != 0);
    }
    uint_t last = cpc_npic(cpc) - 1;
    cpc_walk_events_pic(cpc, last, &pic, on_pic_name);
    CHECK(pic.n > 0 && has(&all, pic.names[0]));
    /* All names, in the reverse order of first appearance. */
    if (last < 8)
        for (int i = 0; i < all.n; i++)
            CHECK(strcmp(all.names[i], pic.names[all.n - 1 - i]) == 0);
    pic.n = 0;
    errno = 0;
    cpc_walk_events_pic(cpc, last + 1, &pic, on_pic_name);
    CHECK(pic.n == 0 && errno == EINVAL);
    errno = 0;
    cpc_walk_generic_events_pic(cpc, last + 1, &pic, on_pic_name);
    CHECK(pic.n == 0 && errno == EINVAL);
    cpc_walk_attrs(cpc, &attrs, on_name);
    CHECK(attrs.n > 0 && strcmp(attrs.names[attrs.n - 1], "picnum") == 0);
    cpc_set_t *set = cpc_set_create(cpc);
    cpc_attr_t attr = {"picnum", cpc_npic(cpc) - 1};
    CHECK(cpc_set_add_request(cpc, set, "page-faults", 0, USER, 0, NULL) == 0);
    CHECK(cpc_set_add_request(cpc, set, "task-clock", 1, USER, 1, &attr) == 1);
    CHECK(cpc_set_add_request(cpc, set, "page-faults", 2, USER, 0, NULL) == 2);
    cpc_walk_requests(cpc, set, &requests, on_request);
    CHECK(requests.n == 3); /* the newest first */
    CHECK(requests.indices[0] == 2 && requests.indices[1] == 1 && requests.indices[2] == 0);
    CHECK(strlen(cpc_cciname(cpc)) > 0 && strlen(cpc_cciname(cpc)) < CPC_MAX_IMPL_NAME);
    CHECK(strlen(cpc_cpuref(cpc)) > 0 && strlen(cpc_cpuref(cpc)) < CPC_MAX_CPUREF);
    CHECK(cpc_close(cpc) == 0);
}

/* ---- records ---- */

/* Uses more than so many milliseconds of the processor, nearly all of them in user mode: asking for the time is not. */
static void spin_in_user_mode(long milliseconds)
{
    for (long spun = 0; spun < milliseconds; spun++) {
        for (volatile int i = 0; i < 1000000; i++)
            ;
        spin(1);
    }
}

/* More intervals than there is room for: each is a record or lost, and the events say how many they are. */
static void every_interval(const char *event, uint64_t interval)
{
    cpc_t *cpc = open_cpc();
    cpc_set_t *set = cpc_set_create(cpc);
    cpc_attr_t room = {"smpl_nrecs", 16};
    uint64_t lost = 0, told = 0, passed = 0;
    uint_t n = 0;
    CHECK(cpc_set_add_request(cpc, set, event, -interval, USER | CPC_HW_SMPL, 1, &room) == 0);
    CHECK(add(cpc, set, event, USER, NULL, 0) == 1);
    cpc_buf_t *buf = cpc_buf_create(cpc, set);
    CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
    for (int i = 0; i < 3; i++) {
        spin_in_user_mode(20);
        CHECK(cpc_set_sample(cpc, set, buf) == 0);
        CHECK(cpc_buf_smpl_rec_count(cpc, buf, 0, &n) == 0 && n == 16);
        CHECK(cpc_buf_smpl_lost_count(cpc, buf, 0, &lost) == 0 && lost > 16);
        told += n + lost;
        passed = value(cpc, buf, 1) / interval;
        /* The counter and the records are read one after the other. */
        CHECK(told >= passed && told <= passed + 200);
    }
    CHECK(cpc_close(cpc) == 0);
}

/* Promise: C3, C6 */
static void records(void)
{
    static struct walk items, of_request, events;
    cpc_t *cpc = open_cpc();
    uint64_t v, pc = 0;
    uint_t n = 0;
    CHECK(cpc_caps(cpc) & CPC_CAP_SMPL);
    CHECK(cpc_smpl_npic(cpc) > 0 && cpc_smpl_iname(cpc) != NULL);
    cpc_walk_smpl_recitems(cpc, &items, on_item);
    CHECK(items.n > 4 && strcmp(items.names[0], "pc") == 0 && items.indices[0] == 0);
    cpc_walk_events_all_common(cpc, &events, CPC_TARGET_SMPL, on_name);
    CHECK(has(&events, "task-clock") && !has(&events, "page-faults"));
    errno = 0;
    cpc_walk_events_all_common(cpc, &events, 4, on_name);
    CHECK(errno == EINVAL);
    cpc_set_t *set = cpc_set_create(cpc);
    int counts = add(cpc, set, "page-faults", USER, NULL, 0);
    int clock = cpc_set_add_request(cpc, set, "task-clock", -(uint64_t)100000, USER | CPC_HW_SMPL,
                                    0, NULL);
    CHECK(counts == 0 && clock == 1);
    cpc_walk_smpl_recitems_req(cpc, set, clock, &of_request, on_item);
    CHECK(of_request.n > 0 && strcmp(of_request.names[0], "pc") == 0);
    errno = 0;
    cpc_walk_smpl_recitems_req(cpc, set, counts, &of_request, on_item);
    CHECK(errno == EINVAL);
    cpc_buf_t *buf = cpc_buf_create(cpc, set), *copy = cpc_buf_create(cpc, set);
    CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
    spin(20);
    CHECK(cpc_set_sample(cpc, set, buf) == 0);
    CHECK(cpc_buf_smpl_rec_count(cpc, buf, clock, &n) == 0);
    CHECK(n > 10); /* 20 ms, one each 0.1 ms */
    for (uint_t i = 0; i < n; i++) {
        uint64_t *record = cpc_buf_smpl_get_record(cpc, buf, clock, i);
        CHECK(cpc_buf_smpl_get_item(cpc, buf, clock, i, SMPL_REC_ITEM_PC, &pc) == 0);
        CHECK(record != NULL && record[0] == pc && pc != 0);
        CHECK(cpc_buf_smpl_get_item(cpc, buf, clock, i, 0, &v) == 0 && v == pc);
    }
    /* Items that records of a clock do not have. */
    FAILS(cpc_buf_smpl_get_item(cpc, buf, clock, 0, 1, &v), EINVAL);
    FAILS(cpc_buf_smpl_get_item(cpc, buf, clock, 0, 13, &v), EINVAL);
    CHECK(cpc_buf_smpl_get_item(cpc, buf, clock, 0, 9, &v) == 0 && v != 0);
    /* Reading consumes nothing, copying copies, arithmetic leaves records alone. */
    cpc_buf_copy(cpc, copy, buf);
    cpc_buf_sub(cpc, buf, buf, buf);
    uint_t again = 0;
    CHECK(cpc_buf_smpl_rec_count(cpc, buf, clock, &again) == 0 && again == n);
    CHECK(cpc_buf_smpl_rec_count(cpc, copy, clock, &again) == 0 && again == n);
    CHECK(value(cpc, buf, counts) == 0);
    /* Every wrong argument. */
    FAILS(cpc_buf_get(cpc, buf, clock, &v), EINVAL);
    FAILS(cpc_buf_set(cpc, buf, clock, 0), EINVAL);
    FAILS(cpc_buf_smpl_rec_count(cpc, buf, counts, &n), EINVAL);
    FAILS(cpc_buf_smpl_rec_count(cpc, buf, 2, &n), EINVAL);
    FAILS(cpc_buf_smpl_rec_count(cpc, buf, -1, &n), EINVAL);
    FAILS(cpc_buf_smpl_get_item(cpc, buf, counts, 0, 0, &v), EINVAL);
    FAILS(cpc_buf_smpl_get_item(cpc, buf, clock, (int)n, 0, &v), EINVAL);
    FAILS(cpc_buf_smpl_get_item(cpc, buf, clock, -1, 0, &v), EINVAL);
    FAILS(cpc_buf_smpl_get_item(cpc, buf, clock, 0, items.n, &v), EINVAL);
    FAILS(cpc_buf_smpl_get_item(cpc, buf, clock, 0, -9, &v), EINVAL);
    CHECK(cpc_buf_smpl_get_record(cpc, buf, clock, (int)n) == NULL && errno == EINVAL);
    CHECK(cpc_buf_smpl_get_record(cpc, buf, counts, 0) == NULL && errno == EINVAL);
    cpc_buf_zero(cpc, buf);
    CHECK(cpc_buf_smpl_rec_count(cpc, buf, clock, &again) == 0 && again == 0);
    CHECK(cpc_close(cpc) == 0);
    every_interval("task-clock", 100000);
    /* A handle for counting alone. */
    cpc = cpc_open(CPC_VER_CPC_ONLY);
    CHECK(cpc != NULL && (cpc_caps(cpc) & CPC_CAP_SMPL) == 0);
    CHECK(cpc_smpl_npic(cpc) == 0 && cpc_smpl_iname(cpc) == NULL);
    set = cpc_set_create(cpc);
    CHECK(add(cpc, set, "page-faults", USER, NULL, 0) == 0);
    buf = cpc_buf_create(cpc, set);
    FAILS(cpc_buf_smpl_rec_count(cpc, buf, 0, &n), EINVAL);
    errno = 0;
    cpc_walk_smpl_recitems(cpc, &items, on_item);
    CHECK(errno == EINVAL);
    CHECK(cpc_seterrhndlr(cpc, hear) == 0);
    HEARD(bind_one(cpc, "task-clock", USER | CPC_HW_SMPL), EINVAL, "cpc_bind_curlwp",
          CPC_REQ_INVALID_FLAGS);
    CHECK(cpc_close(cpc) == 0);
}

/* ---- Lightweight Profiling: needs a processor that has it ---- */

/* Three instructions and a branch a turn, one of each more. */
extern void turns(long n);
__asm__(".text\nturns: mov %rdi, %rcx\n1: nop\n dec %rcx\n jnz 1b\n ret\n");

/* Exit code 77: this processor has no LWP. */
static cpc_t *open_lwp(void)
{
    cpc_t *cpc = open_cpc();
    if (strncmp(cpc_cciname(cpc), "AMD Lightweight Profiling", 25) != 0)
        exit(77);
    return cpc;
}

/* Promise: C2, C22 */
static void lwp_counts(void)
{
    cpc_t *cpc = open_lwp();
    cpc_set_t *set = cpc_set_create(cpc);
    CHECK(add(cpc, set, "instructions", USER, NULL, 0) == 0);
    CHECK(add(cpc, set, "lwp_bre", USER, NULL, 0) == 1);
    cpc_buf_t *before = cpc_buf_create(cpc, set), *after = cpc_buf_create(cpc, set);
    CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
    /* The first one costs about what every other does: nothing is found out at the program's expense. */
    CHECK(cpc_set_sample(cpc, set, before) == 0);
    CHECK(cpc_set_sample(cpc, set, after) == 0);
    CHECK(value(cpc, after, 0) - value(cpc, before, 0) < 20000);
    /* A sample costs instructions too, always as many: for several milliseconds, so that the clocks are read in all
     * of their ways. */
    uint64_t cost[2][2];
    for (int round = 0; round < 20000; round++) {
        CHECK(cpc_set_sample(cpc, set, before) == 0);
        turns(round % 2 ? 1001 : 1);
        CHECK(cpc_set_sample(cpc, set, after) == 0);
        cpc_buf_sub(cpc, after, after, before);
        for (int i = 0; i < 2; i++) {
            if (round < 2)
                cost[round][i] = value(cpc, after, i);
            CHECK(value(cpc, after, i) == cost[round % 2][i]);
        }
    }
    CHECK(cost[1][0] - cost[0][0] == 3000);
    CHECK(cost[1][1] - cost[0][1] == 1000);
    CHECK(cpc_close(cpc) == 0);
}

static void *lwp_counter(void *arg)
{
    cpc_buf_t *buf = cpc_buf_create(shared.cpc, shared.set);
    long n = (long)(intptr_t)arg;
    pthread_barrier_wait(&shared.barrier);
    CHECK(cpc_bind_curlwp(shared.cpc, shared.set, 0) == 0);
    turns(n);
    CHECK(cpc_set_sample(shared.cpc, shared.set, buf) == 0);
    CHECK(value(shared.cpc, buf, 0) == 3 * (uint64_t)n + 2);
    turns(n);
    turns(n);
    CHECK(cpc_set_sample(shared.cpc, shared.set, buf) == 0);
    CHECK(value(shared.cpc, buf, 0) == 3 * (3 * (uint64_t)n + 2));
    return NULL; /* the thread's end unbinds */
}

/* Threads that share a set have units of their own. The filter leaves the instructions of turns(). */
/* Promise: C5 */
static void lwp_threads(void)
{
    enum { N = 64 };
    pthread_t thread[N];
    uint64_t start = (uint64_t)(uintptr_t)turns;
    cpc_attr_t range[] = {{"base_ip", start}, {"limit_ip", start + 9}};
    shared.cpc = open_lwp();
    shared.set = cpc_set_create(shared.cpc);
    CHECK(cpc_set_add_request(shared.cpc, shared.set, "lwp_ire", 0, USER, 2, range) == 0);
    pthread_barrier_init(&shared.barrier, NULL, N);
    for (intptr_t i = 0; i < N; i++)
        CHECK(pthread_create(&thread[i], NULL, lwp_counter, (void *)(1000 * (i + 1))) == 0);
    for (int i = 0; i < N; i++)
        CHECK(pthread_join(thread[i], NULL) == 0);
    CHECK(cpc_close(shared.cpc) == 0);
}

/* Every tenth branch, and the items of its record. */
/* Promise: C3 */
static void lwp_records(void)
{
    cpc_t *cpc = open_lwp();
    cpc_set_t *sampled = cpc_set_create(cpc);
    CHECK(cpc_set_add_request(cpc, sampled, "lwp_bre", -(uint64_t)10, USER | CPC_HW_SMPL, 0,
                              NULL) == 0);
    cpc_buf_t *records = cpc_buf_create(cpc, sampled);
    CHECK(cpc_bind_curlwp(cpc, sampled, 0) == 0);
    turns(500);
    CHECK(cpc_set_sample(cpc, sampled, records) == 0);
    uint_t n = 0, inside = 0;
    CHECK(cpc_buf_smpl_rec_count(cpc, records, 0, &n) == 0 && n >= 50);
    for (uint_t i = 0; i < n; i++) {
        uint64_t *record = cpc_buf_smpl_get_record(cpc, records, 0, i);
        uint64_t pc = record[0], start = (uint64_t)(uintptr_t)turns;
        CHECK(record[4] == 3 && pc != 0);
        if (pc == start + 7) { /* the jump; all but the last are taken, to the label */
            inside++;
            CHECK(record[13] == (record[10] ? start + 3 : start + 9));
        }
    }
    CHECK(inside >= 49 && inside <= 50);
    /* Items that the event does not have, or nobody asked for. */
    uint64_t v = 0;
    CHECK(cpc_buf_smpl_get_item(cpc, records, 0, 0, 13, &v) == 0 && v != 0);
    FAILS(cpc_buf_smpl_get_item(cpc, records, 0, 0, SMPL_REC_ITEM_DLINA, &v), EINVAL);
    FAILS(cpc_buf_smpl_get_item(cpc, records, 0, 0, SMPL_REC_ITEM_LAT, &v), EINVAL);
    FAILS(cpc_buf_smpl_get_item(cpc, records, 0, 0, 9, &v), EINVAL); /* no ptsc */
    CHECK(cpc_close(cpc) == 0);
}

/* The error of binding a set of one request with an attribute. */
static int bind_with(cpc_t *cpc, const char *event, uint64_t preset, unsigned flags,
                     const char *name, uint64_t v)
{
    cpc_attr_t attr = {(char *)name, v};
    cpc_set_t *set = cpc_set_create(cpc);
    CHECK(cpc_set_add_request(cpc, set, event, preset, flags, 1, &attr) == 0);
    int result = cpc_bind_curlwp(cpc, set, 0), saved = errno;
    CHECK(cpc_set_destroy(cpc, set) == 0);
    errno = saved;
    return result;
}

/* The subcodes that software events alone cannot provoke. */
/* Promise: C6 */
static void lwp_errors(void)
{
    const char *adding = "cpc_set_add_request", *binding = "cpc_bind_curlwp";
    cpc_t *cpc = open_lwp();
    CHECK(cpc_seterrhndlr(cpc, hear) == 0);
    cpc_set_t *set = cpc_set_create(cpc);
    HEARD(add(cpc, set, "lwp_ire", USER, "picnum", 0), EINVAL, adding, CPC_PIC_NOT_CAPABLE);
    HEARD(add(cpc, set, "lwp_ire", USER, "picnum", 99), EINVAL, adding, CPC_INVALID_PICNUM);
    HEARD(add(cpc, set, "lwp_no_such", USER, NULL, 0), EINVAL, adding, CPC_INVALID_EVENT);
    HEARD(bind_one(cpc, "lwp_ire", USER | CPC_COUNT_SYSTEM), EINVAL, binding,
          CPC_REQ_INVALID_FLAGS);
    HEARD(bind_one(cpc, "lwp_ins", USER), EINVAL, binding, CPC_INVALID_EVENT);
    HEARD(bind_with(cpc, "lwp_ire", 0, USER, "ncb", 1), EINVAL, binding, CPC_INVALID_ATTRIBUTE);
    HEARD(bind_with(cpc, "lwp_bre", 0, USER, "ncb", 2), EINVAL, binding,
          CPC_ATTRIBUTE_OUT_OF_RANGE);
    HEARD(bind_with(cpc, "lwp_ire", 1, USER | CPC_HW_SMPL, "smpl_nrecs", 9), EINVAL, binding,
          CPC_ATTRIBUTE_OUT_OF_RANGE);
    CHECK(add(cpc, set, "lwp_ire", USER, NULL, 0) == 0);
    CHECK(add(cpc, set, "PAPI_tot_ins", USER, NULL, 0) == 1);
    HEARD(cpc_bind_curlwp(cpc, set, 0), EINVAL, binding, CPC_RESOURCE_UNAVAIL);
    CHECK(cpc_set_destroy(cpc, set) == 0);
    set = cpc_set_create(cpc);
    CHECK(add(cpc, set, "lwp_ire", USER, "base_ip", 1) == 0);
    CHECK(add(cpc, set, "lwp_bre", USER, "base_ip", 2) == 1);
    HEARD(cpc_bind_curlwp(cpc, set, 0), EINVAL, binding, CPC_CONFLICTING_REQS);
    CHECK(cpc_set_destroy(cpc, set) == 0);
    set = cpc_set_create(cpc);
    CHECK(add(cpc, set, "lwp_ire", USER, NULL, 0) == 0);
    HEARD(cpc_bind_cpu(cpc, 0, set, 0), ENOTSUP, "cpc_bind_cpu", CPC_RESOURCE_UNAVAIL);
    CHECK(strstr(heard.text, "Lightweight Profiling") != NULL);
    CHECK(cpc_close(cpc) == 0);
}

static volatile uint64_t collected, gone;

static void on_room(int sig)
{
    uint_t n = 0;
    uint64_t lost = 7;
    handling = 1;
    if (sig != SIGEMT || cpc_set_sample(emt.cpc, emt.set, emt.buf) != 0 ||
        cpc_buf_smpl_rec_count(emt.cpc, emt.buf, 0, &n) != 0 ||
        cpc_buf_smpl_lost_count(emt.cpc, emt.buf, 0, &lost) != 0 ||
        cpc_set_restart(emt.cpc, emt.set) != 0)
        emt.wrong = 1;
    collected += n;
    gone += lost;
    emt.hits++;
    handling = 0;
}

/* Room that fills signals in time, and where nobody listens what is lost is counted. */
/* Promise: C3, C4, C17 */
static void lwp_room(void)
{
    cpc_t *cpc = open_lwp();
    cpc_attr_t room = {"smpl_nrecs", 100};
    uint_t n = 0;
    uint64_t lost = 0;
    for (int signals = 0; signals < 2; signals++) {
        cpc_set_t *set = cpc_set_create(cpc);
        unsigned flags = USER | CPC_HW_SMPL | (signals ? CPC_OVF_NOTIFY_EMT : 0);
        CHECK(cpc_set_add_request(cpc, set, "lwp_bre", -(uint64_t)1000, flags, 1, &room) == 0);
        cpc_buf_t *buf = cpc_buf_create(cpc, set);
        handle_emt(cpc, set, buf, 0);
        CHECK(signal(SIGEMT, on_room) != SIG_ERR);
        CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
        turns(1000000);
        CHECK(cpc_set_sample(cpc, set, buf) == 0);
        CHECK(cpc_buf_smpl_rec_count(cpc, buf, 0, &n) == 0);
        CHECK(cpc_buf_smpl_lost_count(cpc, buf, 0, &lost) == 0);
        if (signals) {
            CHECK(emt.wrong == 0 && emt.hits >= 10 && emt.hits <= 15);
            CHECK(!allocated && lost == 0 && gone == 0 && collected >= 75 * (uint64_t)emt.hits);
        } else {
            /* One of a thousand branches; the library has some of its own. */
            CHECK(n == 100 && lost >= 900 && lost < 950 && emt.hits == 0);
        }
        FAILS(cpc_buf_smpl_lost_count(cpc, buf, 1, &lost), EINVAL);
        FAILS(cpc_buf_smpl_lost_count(cpc, buf, 0, NULL), EINVAL);
        CHECK(cpc_unbind(cpc, set) == 0);
    }
    CHECK(cpc_close(cpc) == 0);
}

/* Overflows through the threshold interrupt; the handler restarts. */
/* Promise: C4 */
static void lwp_overflow(void)
{
    cpc_t *cpc = open_lwp();
    cpc_set_t *set = cpc_set_create(cpc);
    CHECK(cpc_caps(cpc) & CPC_CAP_OVERFLOW_INTERRUPT);
    CHECK(cpc_set_add_request(cpc, set, "lwp_ire", -(uint64_t)3000, USER | CPC_OVF_NOTIFY_EMT, 0,
                              NULL) == 0);
    cpc_buf_t *buf = cpc_buf_create(cpc, set);
    handle_emt(cpc, set, buf, 1);
    /* An overflow inside the library is signalled when the call ends. */
    emt.strict = 0;
    CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
    turns(10000);
    CHECK(cpc_unbind(cpc, set) == 0);
    /* Wrapped, by not more than the way into the handler. */
    CHECK(emt.wrong == 0 && emt.first < 3000 && emt.last < 3000);
    CHECK(emt.hits >= 8 && emt.hits <= 13);
    CHECK(cpc_close(cpc) == 0);
}

static void many_turns(void)
{
    turns(10000);
}

/* Promise: C4, C17 */
static void lwp_handlers(void)
{
    CHECK(cpc_close(open_lwp()) == 0);
    handle_busily("lwp_ire", -(uint64_t)20000);
    ways_of_emt("lwp_ire", -(uint64_t)20000, many_turns);
}

/* The events that turns() retires alone, for a set that several threads or turns count with. */
static cpc_set_t *set_of_turns(cpc_t *cpc, uint64_t preset, unsigned flags)
{
    uint64_t start = (uint64_t)(uintptr_t)turns;
    cpc_attr_t range[] = {{"base_ip", start}, {"limit_ip", start + 9}};
    cpc_set_t *set = cpc_set_create(cpc);
    CHECK(cpc_set_add_request(cpc, set, "PAPI_tot_ins", preset, flags, 2, range) == 0);
    return set;
}

static void *lwp_inheritor(void *arg)
{
    cpc_buf_t *buf = cpc_buf_create(shared.cpc, shared.set);
    turns(100);
    CHECK(cpc_set_sample(shared.cpc, shared.set, buf) == 0);
    CHECK(value(shared.cpc, buf, 0) == 1000302);
    if (arg != NULL) {
        pthread_t child;
        CHECK(pthread_create(&child, NULL, lwp_inheritor, NULL) == 0);
        CHECK(pthread_join(child, NULL) == 0);
    }
    return NULL;
}

static void *lwp_signalled(void *arg)
{
    cpc_buf_t *buf = cpc_buf_create(shared.cpc, shared.set);
    (void)arg;
    CHECK(emt.hits == 1 && emt.wrong == 0 && emt.first == UINT64_MAX);
    turns(10000);
    CHECK(cpc_set_sample(shared.cpc, shared.set, buf) == 0);
    CHECK(value(shared.cpc, buf, 0) == UINT64_MAX);
    CHECK(cpc_set_restart(shared.cpc, shared.set) == 0);
    turns(10000);
    CHECK(emt.hits == 2 && emt.wrong == 0);
    return NULL;
}

/* Copies for new threads, one set in many threads, turns of two sets, pauses, a fork, many binds. */
/* Promise: C5, C7 */
static void lwp_sets(void)
{
    pthread_t thread;
    cpc_t *cpc = shared.cpc = open_lwp();
    cpc_set_t *set = shared.set = set_of_turns(cpc, 1000000, USER);
    cpc_buf_t *buf = cpc_buf_create(cpc, set);
    CHECK(cpc_bind_curlwp(cpc, set, CPC_BIND_LWP_INHERIT) == 0);
    turns(1000);
    CHECK(pthread_create(&thread, NULL, lwp_inheritor, cpc) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(cpc_set_sample(cpc, set, buf) == 0 && value(cpc, buf, 0) == 1003002);
    CHECK(cpc_disable(cpc) == 0);
    FAILS(cpc_disable(cpc), EINVAL);
    turns(1000);
    CHECK(cpc_enable(cpc) == 0);
    turns(1);
    CHECK(cpc_set_sample(cpc, set, buf) == 0 && value(cpc, buf, 0) == 1003002 + 5);
    pid_t child = fork();
    if (child == 0) {
        turns(1000);
        FAILS(cpc_set_sample(cpc, set, buf), EINVAL);
        CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
        turns(10);
        CHECK(cpc_set_sample(cpc, set, buf) == 0 && value(cpc, buf, 0) == 1000032);
        exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(cpc_set_sample(cpc, set, buf) == 0 && value(cpc, buf, 0) == 1003007);
    CHECK(cpc_request_preset(cpc, 0, 5) == 0 && cpc_set_restart(cpc, set) == 0);
    turns(10);
    CHECK(cpc_set_sample(cpc, set, buf) == 0 && value(cpc, buf, 0) == 5 + 32);
    cpc_set_t *other = set_of_turns(cpc, 0, USER);
    for (int turn = 0; turn < 10000; turn++) {
        CHECK(cpc_bind_curlwp(cpc, turn % 2 ? set : other, 0) == 0);
        if (turn % 3 == 0)
            CHECK(cpc_unbind(cpc, turn % 2 ? set : other) == 0);
    }
    FAILS(cpc_unbind(cpc, set), EINVAL);
    CHECK(cpc_bind_curlwp(cpc, other, 0) == 0);
    turns(10);
    CHECK(cpc_set_sample(cpc, other, buf) == 0 && value(cpc, buf, 0) == 32);
    shared.set = set_of_turns(cpc, -(uint64_t)20000, USER | CPC_OVF_NOTIFY_EMT);
    handle_emt(cpc, shared.set, cpc_buf_create(cpc, shared.set), 0);
    emt.strict = 0;
    CHECK(cpc_bind_curlwp(cpc, shared.set, CPC_BIND_LWP_INHERIT) == 0);
    CHECK(pthread_create(&thread, NULL, lwp_signalled, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(cpc_close(cpc) == 0);
}

#ifdef _OPENMP
/* One set, bound by the threads of a parallel region: each counts its own share, to the instruction. */
/* Promise: C5 */
static void lwp_openmp(void)
{
    cpc_t *cpc = open_lwp();
    cpc_set_t *set = set_of_turns(cpc, 0, USER);
    int right = 0;
#pragma omp parallel num_threads(4) reduction(+ : right)
    {
        cpc_buf_t *buf = cpc_buf_create(cpc, set);
        CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
#pragma omp for schedule(static, 1)
        for (int i = 0; i < 8; i++)
            turns(1000);
        CHECK(cpc_set_sample(cpc, set, buf) == 0);
        right += value(cpc, buf, 0) == 2 * 3002;
        CHECK(cpc_unbind(cpc, set) == 0);
    }
    CHECK(right == 4);
    CHECK(cpc_close(cpc) == 0);
}
#endif

/* Prints how many instructions of turns() were counted. */
static void lwp_turns(long n)
{
    uint64_t start = (uint64_t)(uintptr_t)turns;
    cpc_attr_t range[] = {{"base_ip", start}, {"limit_ip", start + 9}};
    cpc_t *cpc = open_lwp();
    cpc_set_t *set = cpc_set_create(cpc);
    CHECK(cpc_set_add_request(cpc, set, "lwp_ire", 0, USER, 2, range) == 0);
    cpc_buf_t *buf = cpc_buf_create(cpc, set);
    CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
    turns(n);
    CHECK(cpc_set_sample(cpc, set, buf) == 0);
    printf("%llu\n", (unsigned long long)value(cpc, buf, 0));
    CHECK(cpc_close(cpc) == 0);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "lwp_turns") == 0) {
        lwp_turns(atol(argv[2]));
        return 0;
    }
    static const struct {
        const char *name;
        void (*run)(void);
    } scenarios[] = {
        {"overflow", overflow},   {"frozen", frozen},     {"presets", presets},
        {"rebind", rebind},       {"threads", threads},   {"crowd", crowd},
        {"inherit", inherit},     {"enable", enable},     {"rotate", rotate},
        {"forked", forked},       {"buffers", buffers},   {"errors", errors},
        {"hardware", hardware},   {"objects", objects},   {"cycles", cycles},
        {"processor", processor}, {"walkers", walkers},   {"records", records},
        {"lwp_counts", lwp_counts}, {"lwp_records", lwp_records}, {"lwp_overflow", lwp_overflow},
        {"lwp_threads", lwp_threads}, {"lwp_errors", lwp_errors}, {"lwp_room", lwp_room},
        {"denied", denied}, {"handlers", handlers}, {"ways", ways}, {"neighbours", neighbours}, {"memory", memory},
        {"lwp_handlers", lwp_handlers}, {"lwp_sets", lwp_sets},
        {"inherit_overflow", inherit_overflow},
        {"default_handler", default_handler},
#ifdef _OPENMP
        {"openmp", openmp},     {"lwp_openmp", lwp_openmp},
#endif
    };
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++)
        if (argc == 2 && strcmp(argv[1], scenarios[i].name) == 0) {
            scenarios[i].run();
            return 0;
        }
    fprintf(stderr, "no scenario\n");
    return 2;
}
