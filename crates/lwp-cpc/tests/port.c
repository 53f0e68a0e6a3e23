/*
 * A program as it was written for Solaris: its threads, locks, times and processors, with the headers that
 * are installed for ports. Prints nothing and exits with 0 if all is well.
 */

#include <kstat.h>
#include <libcpc.h>
#include <libcpc_impl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <stropts.h>
#include <sys/buf.h>
#include <sys/fxpriocntl.h>
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

static volatile int interrupted;

static void on_signal(int sig)
{
    interrupted = sig;
}

/* The word for a state of a processor. */
static const char *state_named(int state)
{
    switch (state) {
    case P_ONLINE: return "on-line";
    case P_OFFLINE: return "off-line";
    case P_NOINTR: return "no-intr";
    case P_POWEROFF: return "powered-off";
    case P_FAULTED: return "faulted";
    case P_SPARE: return "spare";
    default: return "unknown";
    }
}

/* What a command that counts processors asks before it starts: which there are, on which chips, in which
 * sets, and for a priority that lets it run in time. */
static void look_around(void)
{
    kstat_ctl_t *control = kstat_open();
    kstat_t *info;
    kstat_named_t *named;
    pcinfo_t scheduling;
    pcparms_t parameters;
    psetid_t pset = 7;
    long id, online = 0;
    CHECK(control != NULL && kstat_lookup(control, (char *)"no_such", -1, NULL) == NULL && errno == ENOENT);
    for (id = 0; id <= sysconf(_SC_CPUID_MAX); id++) {
        int state = p_online((processorid_t)id, P_STATUS);
        if (state == -1)
            continue;
        online += state == P_ONLINE;
        CHECK(pset_assign(PS_QUERY, (processorid_t)id, &pset) == 0 && pset == PS_NONE);
        info = kstat_lookup(control, (char *)"cpu_info", (int)id, NULL);
        CHECK(info != NULL && kstat_read(control, info, NULL) != -1);
        named = (kstat_named_t *)kstat_data_lookup(info, (char *)"chip_id");
        CHECK(named != NULL && named->data_type == KSTAT_DATA_INT32 && named->value.i32 >= -1);
        named = (kstat_named_t *)kstat_data_lookup(info, (char *)"state");
        CHECK(named != NULL && strcmp(named->value.c, state_named(state)) == 0);
        named = (kstat_named_t *)kstat_data_lookup(info, (char *)"brand");
        CHECK(named != NULL && KSTAT_NAMED_STR_PTR(named) != NULL);
        CHECK(kstat_data_lookup(info, (char *)"no_such") == NULL);
    }
    CHECK(online == sysconf(_SC_NPROCESSORS_ONLN));
    CHECK(pset_assign(1, 0, NULL) == -1 && pset_assign(PS_QUERY, 100000, NULL) == -1);
    CHECK(kstat_chain_update(control) == 0 && kstat_close(control) == 0);
    strcpy(scheduling.pc_clname, "FX");
    CHECK(priocntl((idtype_t)0, 0, PC_GETCID, &scheduling) == -1 && errno == ENOSYS);
    CHECK(sizeof(fxparms_t) <= sizeof parameters.pc_clparms);
    CHECK(sigset(SIGUSR1, on_signal) != SIG_ERR && raise(SIGUSR1) == 0 && interrupted == SIGUSR1);
    CHECK(sigset(SIGUSR1, SIG_DFL) == on_signal);
    CHECK(strcmp(CPC_TICKREG_NAME, "tsc") == 0);
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
    look_around();
    CHECK(strcmp(strdupa("Li" "nux"), "Linux") == 0);
    CHECK(cpc_close(cpc) == 0);
    return 0;
}
