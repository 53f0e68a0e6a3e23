/*
 * A program as it was written for Solaris: its threads, locks, times and processors, with the headers that
 * are installed for ports. Prints nothing and exits with 0 if all is well.
 */

#include <libcpc.h>
#include <stdio.h>
#include <string.h>
#include <sys/ksynch.h>
#include <sys/lwp.h>
#include <sys/processor.h>
#include <sys/pset.h>
#include <sys/systeminfo.h>
#include <sys/time.h>
#include <thread.h>

#include "check.h"

static cpc_t *cpc;
static cpc_set_t *set;
static mutex_t lock = DEFAULTMUTEX;
static cond_t changed = DEFAULTCV;
static sema_t ready;
static int counted;

static void *worker(void *arg)
{
    uint64_t before = 0, after = 0;
    cpc_buf_t *buf = cpc_buf_create(cpc, set);
    CHECK(_lwp_self() > 0 && thr_self() != 0);
    sema_wait(&ready);
    CHECK(cpc_bind_curlwp(cpc, set, 0) == 0);
    CHECK(cpc_set_sample(cpc, set, buf) == 0 && cpc_buf_get(cpc, buf, 0, &before) == 0);
    spin(2);
    CHECK(cpc_set_sample(cpc, set, buf) == 0 && cpc_buf_get(cpc, buf, 0, &after) == 0);
    CHECK(after > before && cpc_buf_hrtime(cpc, buf) <= gethrtime() && gethrvtime() >= 2000000);
    mutex_lock(&lock);
    counted++;
    cond_signal(&changed);
    mutex_unlock(&lock);
    return arg;
}

int main(void)
{
    enum { N = 4 };
    thread_t thread[N], departed;
    processorid_t bound = 7;
    psetid_t pset = 7;
    char name[8];
    void *status;
    int i;
    CHECK((cpc = cpc_open(CPC_VER_CURRENT)) != NULL && (set = cpc_set_create(cpc)) != NULL);
    CHECK(cpc_set_add_request(cpc, set, "task-clock", 0, CPC_COUNT_USER, 0, NULL) == 0);
    CHECK(sema_init(&ready, 0, USYNC_THREAD, NULL) == 0 && sema_trywait(&ready) == EBUSY);
    CHECK(thr_setconcurrency(N) == 0);
    CHECK(thr_create(NULL, 0, worker, NULL, THR_SUSPENDED, NULL) != 0);
    for (i = 0; i < N; i++)
        CHECK(thr_create(NULL, 0, worker, &thread[i], THR_BOUND, &thread[i]) == 0);
    for (i = 0; i < N; i++)
        sema_post(&ready);
    mutex_lock(&lock);
    while (counted < N)
        cond_wait(&changed, &lock);
    mutex_unlock(&lock);
    for (i = 0; i < N; i++)
        CHECK(thr_join(thread[i], &departed, &status) == 0 && departed == thread[i] &&
              status == &thread[i]);
    CHECK(p_online(0, P_STATUS) == P_ONLINE && p_online(100000, P_STATUS) == -1);
    CHECK(processor_bind(P_LWPID, P_MYID, 0, &bound) == 0 && bound != 7);
    CHECK(processor_bind(P_LWPID, P_MYID, PBIND_QUERY, &bound) == 0 && bound == 0);
    CHECK(processor_bind(P_LWPID, P_MYID, PBIND_NONE, NULL) == 0);
    CHECK(processor_bind(P_LWPID, P_MYID, 100000, NULL) == -1);
    CHECK(pset_bind(PS_QUERY, P_LWPID, P_MYID, &pset) == 0 && pset == PS_NONE);
    CHECK(sysinfo(SI_SYSNAME, name, 3) == 6 && strcmp(name, "Li") == 0);
    CHECK(cpc_close(cpc) == 0);
    return 0;
}
