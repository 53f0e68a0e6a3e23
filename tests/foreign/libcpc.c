/*
 * What libcpc(3LIB) does, one line a fact, the same on every system that keeps to its documents: a program for
 * illumos, for Solaris and for our library. Run by libcpc.sh, which names an event that can be counted.
 */

#include <errno.h>
#include <libcpc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef EMT_CPCOVF
#define EMT_CPCOVF 1 /* <sys/machsig.h>, hidden in some environments */
#endif

static cpc_t *cpc;
static const char *event;
static int heard, subcode, given;
static char where[64];

static const char *outcome(int result)
{
    static char other[32];
    if (result != -1)
        return "ok";
    switch (errno) {
    case EINVAL: return "EINVAL";
    case EAGAIN: return "EAGAIN";
    case EACCES: return "EACCES";
    case ENOTSUP: return "ENOTSUP";
    default: snprintf(other, sizeof other, "errno %d", errno); return other;
    }
}

static void hear(const char *function, int code, const char *format, va_list arguments)
{
    (void)format, (void)arguments;
    heard++;
    subcode = code;
    snprintf(where, sizeof where, "%s", function);
}

/* The outcome of a call, and what the handler of errors heard. */
#define SAY(call)                                                      \
    do {                                                               \
        int result_;                                                   \
        heard = 0, errno = 0;                                          \
        result_ = (call);                                              \
        printf("%s: %s", #call, outcome(result_));                     \
        if (heard)                                                     \
            printf(", heard %d from %s, code %d", heard, where, subcode); \
        printf("\n");                                                  \
    } while (0)
#define TELL(text, condition) printf("%s: %s\n", text, (condition) ? "yes" : "no")

static int add(cpc_set_t *set, const char *name, uint64_t preset, uint_t flags)
{
    return cpc_set_add_request(cpc, set, name, preset, flags, 0, NULL);
}

static uint64_t value(cpc_buf_t *buf, int index)
{
    uint64_t v = 0;
    (void)cpc_buf_get(cpc, buf, index, &v);
    return v;
}

static void work(void)
{
    volatile unsigned long i;
    for (i = 0; i < 20000000; i++)
        ;
}

static void opening(void)
{
    errno = 0;
    TELL("cpc_open of version 77 fails with EINVAL", cpc_open(77) == NULL && errno == EINVAL);
    cpc = cpc_open(CPC_VER_CURRENT);
    if (cpc == NULL) {
        perror("libcpc: cpc_open");
        exit(77);
    }
    TELL("there are counters", cpc_npic(cpc) > 0);
    TELL("cpc_cciname and cpc_cpuref say something", *cpc_cciname(cpc) != '\0' && *cpc_cpuref(cpc) != '\0');
    (void)cpc_seterrhndlr(cpc, hear);
}

static void on_request(void *arg, int index, const char *name, uint64_t preset, uint_t flags, int nattrs,
                       const cpc_attr_t *attrs)
{
    (void)arg, (void)attrs;
    printf("walked: request %d, event %s, preset %llu, flags %u, %d attributes\n", index,
           strcmp(name, event) == 0 ? "as added" : name, (unsigned long long)preset, flags, nattrs);
}

static void on_attribute(void *arg, const char *name)
{
    snprintf((char *)arg, CPC_MAX_ATTR_LEN, "%s", name);
}

static void requests(void)
{
    char last[CPC_MAX_ATTR_LEN] = "";
    cpc_set_t *set = cpc_set_create(cpc);
    cpc_attr_t none = {(char *)"no_such_attribute", 1}, pic = {(char *)"picnum", 100000};
    cpc_walk_attrs(cpc, last, on_attribute);
    TELL("picnum is the last attribute", strcmp(last, "picnum") == 0);
    SAY(add(set, "no_such_event", 0, CPC_COUNT_USER));
    SAY(cpc_set_add_request(cpc, set, event, 0, CPC_COUNT_USER, 1, &none));
    SAY(cpc_set_add_request(cpc, set, event, 0, CPC_COUNT_USER, 1, &pic));
    TELL("the first request has index 0", add(set, event, 5, CPC_COUNT_USER) == 0);
    TELL("the second has index 1", add(set, event, 6, CPC_COUNT_USER | CPC_COUNT_SYSTEM) == 1);
    cpc_walk_requests(cpc, set, NULL, on_request);
    SAY(cpc_set_destroy(cpc, set));
    SAY(cpc_set_destroy(cpc, set));
}

static void buffers(void)
{
    cpc_set_t *set = cpc_set_create(cpc);
    cpc_buf_t *a, *b, *sum;
    (void)add(set, event, 0, CPC_COUNT_USER);
    a = cpc_buf_create(cpc, set);
    b = cpc_buf_create(cpc, set);
    sum = cpc_buf_create(cpc, set);
    TELL("a new buffer is zero", value(a, 0) == 0 && cpc_buf_hrtime(cpc, a) == 0 && cpc_buf_tick(cpc, a) == 0);
    SAY(cpc_buf_set(cpc, a, 0, 3));
    SAY(cpc_buf_set(cpc, b, 0, 5));
    cpc_buf_sub(cpc, sum, a, b);
    TELL("3 - 5 wraps", value(sum, 0) == (uint64_t)-2);
    cpc_buf_add(cpc, sum, sum, b);
    TELL("adding 5 gives 3 again", value(sum, 0) == 3);
    cpc_buf_copy(cpc, sum, b);
    TELL("a copy has the value", value(sum, 0) == 5);
    cpc_buf_zero(cpc, sum);
    TELL("zero is zero", value(sum, 0) == 0);
    SAY(cpc_buf_destroy(cpc, a));
    SAY(cpc_buf_destroy(cpc, a));
    SAY(cpc_buf_destroy(cpc, b));
    SAY(cpc_buf_destroy(cpc, sum));
    SAY(cpc_set_destroy(cpc, set));
}

static void counting(void)
{
    uint64_t first, second;
    cpc_set_t *set = cpc_set_create(cpc), *empty = cpc_set_create(cpc), *wrong = cpc_set_create(cpc);
    cpc_buf_t *buf;
    (void)add(set, event, 1000, CPC_COUNT_USER);
    (void)add(wrong, event, 0, CPC_COUNT_USER | 0x1000);
    buf = cpc_buf_create(cpc, set);
    SAY(cpc_bind_curlwp(cpc, empty, 0));
    SAY(cpc_bind_curlwp(cpc, wrong, 0));
    SAY(cpc_bind_curlwp(cpc, set, 0x1000));
    SAY(cpc_set_sample(cpc, set, buf));
    SAY(cpc_unbind(cpc, set));
    SAY(cpc_enable(cpc));
    SAY(cpc_bind_curlwp(cpc, set, 0));
    SAY(add(set, event, 0, CPC_COUNT_USER));
    SAY(cpc_set_sample(cpc, set, buf));
    first = value(buf, 0);
    work();
    SAY(cpc_set_sample(cpc, set, buf));
    second = value(buf, 0);
    TELL("counting starts at the preset and goes up", first >= 1000 && second > first);
    TELL("the time of a sample is known", cpc_buf_hrtime(cpc, buf) > 0 && cpc_buf_tick(cpc, buf) > 0);
    SAY(cpc_enable(cpc));
    SAY(cpc_disable(cpc));
    SAY(cpc_set_sample(cpc, set, buf));
    first = value(buf, 0);
    work();
    SAY(cpc_set_sample(cpc, set, buf));
    TELL("nothing is counted while disabled", value(buf, 0) == first);
    SAY(cpc_disable(cpc));
    SAY(cpc_enable(cpc));
    work();
    SAY(cpc_set_sample(cpc, set, buf));
    TELL("counting goes on where it was", value(buf, 0) > first);
    SAY(cpc_request_preset(cpc, 0, 1ull << 40));
    SAY(cpc_request_preset(cpc, 7, 1));
    SAY(cpc_set_restart(cpc, set));
    SAY(cpc_set_sample(cpc, set, buf));
    TELL("a restart begins at the new preset", value(buf, 0) >= 1ull << 40);
    SAY(cpc_unbind(cpc, set));
    SAY(cpc_set_sample(cpc, set, buf));
    SAY(cpc_set_destroy(cpc, wrong));
    SAY(cpc_set_destroy(cpc, empty));
    SAY(cpc_set_destroy(cpc, set));
}

static volatile int overflows, unexpected;

static void on_overflow(int sig, siginfo_t *info, void *context)
{
    (void)context;
    overflows++;
    unexpected |= sig != SIGEMT || info == NULL || info->si_code != EMT_CPCOVF;
}

static void overflowing(void)
{
    struct sigaction action;
    cpc_set_t *set = cpc_set_create(cpc);
    cpc_buf_t *buf;
    uint64_t first;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_overflow;
    action.sa_flags = SA_SIGINFO;
    (void)sigaction(SIGEMT, &action, NULL);
    (void)add(set, event, UINT64_MAX - 1000000, CPC_COUNT_USER | CPC_OVF_NOTIFY_EMT);
    buf = cpc_buf_create(cpc, set);
    SAY(cpc_bind_curlwp(cpc, set, 0));
    work();
    TELL("one overflow, one signal with its code", overflows == 1 && !unexpected);
    SAY(cpc_set_sample(cpc, set, buf));
    first = value(buf, 0);
    work();
    SAY(cpc_set_sample(cpc, set, buf));
    TELL("the set is frozen behind an overflow", value(buf, 0) == first && first < 1ull << 40);
    SAY(cpc_set_restart(cpc, set));
    work();
    TELL("a restart arms it again", overflows == 2);
    SAY(cpc_unbind(cpc, set));
    SAY(cpc_set_destroy(cpc, set));
}

static void *inherited(void *arg)
{
    cpc_set_t *set = (cpc_set_t *)arg;
    cpc_buf_t *buf = cpc_buf_create(cpc, set);
    errno = 0;
    given = cpc_set_sample(cpc, set, buf) == 0;
    return NULL;
}

static void threads(void)
{
    pthread_t thread;
    int flags;
    for (flags = 0; flags <= CPC_BIND_LWP_INHERIT; flags += CPC_BIND_LWP_INHERIT) {
        cpc_set_t *set = cpc_set_create(cpc);
        (void)add(set, event, 0, CPC_COUNT_USER);
        SAY(cpc_bind_curlwp(cpc, set, (uint_t)flags));
        (void)pthread_create(&thread, NULL, inherited, set);
        (void)pthread_join(thread, NULL);
        TELL("a new thread has the set", given);
        SAY(cpc_set_destroy(cpc, set));
    }
}

int main(int argc, char **argv)
{
    event = argc > 1 ? argv[1] : "PAPI_tot_cyc";
    opening();
    requests();
    buffers();
    counting();
    overflowing();
    threads();
    SAY(cpc_close(cpc));
    return 0;
}
