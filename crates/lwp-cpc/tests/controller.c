/*
 * A client of libcpc and libpctx: it runs itself under control, binds a set to its one LWP, and lets it
 * switch the counters off and on. Prints nothing and exits with 0 if all is well.
 */

#define _GNU_SOURCE
#include <libcpc.h>
#include <libpctx.h>

#include "check.h"

static cpc_t *cpc;
static cpc_set_t *set, *replaced, *empty;
static cpc_buf_t *first, *last;
static uint64_t counted;
static int started, ended;

/* The program under control. */
static int controlled(void)
{
    cpc = cpc_open(CPC_VER_CURRENT);
    CHECK(cpc != NULL);
    FAILS(cpc_enable(cpc), EINVAL); /* they run already */
    CHECK(cpc_disable(cpc) == 0);
    FAILS(cpc_disable(cpc), EINVAL);
    spin(60);
    CHECK(cpc_enable(cpc) == 0);
    spin(20);
    /* A set of its own comes first, while it has one. */
    cpc_set_t *own = cpc_set_create(cpc);
    CHECK(cpc_set_add_request(cpc, own, "page-faults", 0, CPC_COUNT_USER, 0, NULL) == 0);
    CHECK(cpc_bind_curlwp(cpc, own, 0) == 0);
    CHECK(cpc_disable(cpc) == 0 && cpc_enable(cpc) == 0);
    CHECK(cpc_unbind(cpc, own) == 0);
    CHECK(cpc_close(cpc) == 0);
    return 0;
}

static cpc_set_t *clock_set(void)
{
    cpc_set_t *made = cpc_set_create(cpc);
    CHECK(cpc_set_add_request(cpc, made, "task-clock", 0, CPC_COUNT_USER, 0, NULL) == 0);
    return made;
}

static int heard;

static void hear(const char *fn, int subcode, const char *fmt, va_list ap)
{
    char text[1024];
    vsnprintf(text, sizeof text, fmt, ap);
    CHECK(strcmp(fn, "cpc_bind_pctx") == 0 && text[strlen(text) - 1] == '\n');
    heard = subcode;
}

/* The refusal of a request, with the name of the function. */
static int refused(pctx_t *pctx, id_t lwp, const char *event, uint_t flags)
{
    cpc_set_t *bad = cpc_set_create(cpc);
    heard = 0;
    CHECK(cpc_seterrhndlr(cpc, hear) == 0);
    CHECK(cpc_set_add_request(cpc, bad, event, -(uint64_t)100, flags, 0, NULL) == 0);
    CHECK(cpc_bind_pctx(cpc, pctx, lwp, bad, 0) == -1);
    int number = errno;
    CHECK(cpc_set_destroy(cpc, bad) == 0 && cpc_seterrhndlr(cpc, NULL) == 0);
    return number;
}

static int init_lwp(pctx_t *pctx, pid_t pid, id_t lwp, void *arg)
{
    CHECK(refused(pctx, lwp, "task-clock", 0x100) == EINVAL && heard == CPC_REQ_INVALID_FLAGS);
    /* Another thread's overflows cannot be signalled to it. */
    CHECK(refused(pctx, lwp, "task-clock", CPC_COUNT_USER | CPC_OVF_NOTIFY_EMT) == ENOTSUP);
    CHECK(heard == 0);
    CHECK(pid > 0 && arg == &counted);
    FAILS(cpc_bind_pctx(cpc, pctx, (int)lwp, set, 1), EINVAL);
    FAILS(cpc_bind_pctx(cpc, pctx, (int)lwp, empty, 0), EINVAL);
    FAILS(cpc_bind_pctx(cpc, pctx, 99, set, 0), ESRCH);
    FAILS(cpc_bind_pctx(cpc, pctx, -1, set, 0), ESRCH);
    /* The next set takes the place of the one before. */
    CHECK(cpc_bind_pctx(cpc, pctx, (int)lwp, replaced, 0) == 0);
    CHECK(cpc_bind_pctx(cpc, pctx, (int)lwp, set, 0) == 0);
    CHECK(cpc_set_sample(cpc, set, first) == 0);
    FAILS(cpc_disable(cpc), EINVAL); /* the controller itself has none */
    started++;
    return 0;
}

static int fini_lwp(pctx_t *pctx, pid_t pid, id_t lwp, void *arg)
{
    (void)pctx, (void)pid, (void)lwp, (void)arg;
    CHECK(cpc_set_sample(cpc, set, last) == 0);
    cpc_buf_sub(cpc, last, last, first);
    CHECK(cpc_buf_get(cpc, last, 0, &counted) == 0);
    CHECK(cpc_unbind(cpc, set) == 0);
    FAILS(cpc_unbind(cpc, set), EINVAL);
    ended++;
    return 0;
}

static void exited(pctx_t *pctx, pid_t pid, id_t lwp, int status, void *arg)
{
    (void)pctx, (void)pid, (void)lwp, (void)arg;
    CHECK(status == 0);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1)
        return controlled();
    char *const command[] = {"controlled", "yes", NULL};
    cpc = cpc_open(CPC_VER_CURRENT);
    CHECK(cpc != NULL);
    set = clock_set();
    replaced = clock_set();
    empty = cpc_set_create(cpc);
    first = cpc_buf_create(cpc, set);
    last = cpc_buf_create(cpc, set);
    pctx_t *pctx = pctx_create("/proc/self/exe", command, &counted, 1, NULL);
    CHECK(pctx != NULL);
    CHECK(pctx_set_events(pctx, PCTX_INIT_LWP_EVENT, init_lwp, PCTX_FINI_LWP_EVENT, fini_lwp,
                          PCTX_SYSC_EXIT_EVENT, exited, PCTX_NULL_EVENT) == 0);
    CHECK(pctx_run(pctx, 0, 0, NULL) == 0);
    CHECK(started == 1 && ended == 1);
    CHECK(counted >= 20000000 && counted < 75000000); /* without the 60 ms of the pause */
    pctx_release(pctx);
    FAILS(cpc_bind_pctx(cpc, pctx, 1, set, 0), ESRCH);
    FAILS(cpc_unbind(cpc, set), EINVAL);
    cpc_terminate(cpc);
    CHECK(cpc_close(cpc) == 0);
    return 0;
}

/* Promise: C6, C11 */
