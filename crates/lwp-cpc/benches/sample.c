/*
 * What a call of cpc_set_sample() costs, by kind of counters and size of the set. Prints one line for
 * each set that this machine can bind: the name, requests, and nanoseconds a call (the least mean of
 * several rounds, so that what else runs on the machine counts little).
 */

#include <libcpc.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 20 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void quiet(const char *fn, int subcode, const char *format, va_list arguments)
{
    (void)fn, (void)subcode, (void)format, (void)arguments;
}

static void measure(const char *name, const char *const *events, int calls)
{
    cpc_t *cpc = cpc_open(CPC_VER_CURRENT);
    int n = 0, failed = cpc == NULL;
    if (failed)
        exit(1);
    cpc_seterrhndlr(cpc, quiet);
    cpc_set_t *set = cpc_set_create(cpc);
    for (; events[n] != NULL; n++)
        failed |= cpc_set_add_request(cpc, set, events[n], 0, CPC_COUNT_USER, 0, NULL) < 0;
    cpc_buf_t *buf = cpc_buf_create(cpc, set);
    if (!failed && cpc_bind_curlwp(cpc, set, 0) == 0) {
        double least = 0;
        for (int round = 0; round <= ROUNDS; round++) {
            double start = now();
            for (int i = 0; i < calls; i++)
                failed |= cpc_set_sample(cpc, set, buf) != 0;
            double mean = (now() - start) / calls;
            if (round == 1 || (round > 1 && mean < least))
                least = mean;
        }
        if (failed)
            exit(1);
        printf("%s %d %.1f\n", name, n, least);
    }
    cpc_close(cpc);
}

int main(void)
{
    static const char *const lwp_one[] = {"lwp_ire", NULL};
    static const char *const lwp_two[] = {"lwp_ire", "lwp_bre", NULL};
    static const char *const lwp_three[] = {"lwp_ire", "lwp_bre", "lwp_rnh", NULL};
    static const char *const pmu_one[] = {"instructions", NULL};
    static const char *const pmu_three[] = {"instructions", "cycles", "branches", NULL};
    static const char *const software_one[] = {"page-faults", NULL};
    static const char *const software_four[] = {"page-faults", "minor-faults", "major-faults",
                                                "task-clock", NULL};
    measure("lwp", lwp_one, 100000);
    measure("lwp", lwp_two, 100000);
    measure("lwp", lwp_three, 100000);
    measure("pmu", pmu_one, 20000);
    measure("pmu", pmu_three, 20000);
    measure("software", software_one, 5000);
    measure("software", software_four, 5000);
    return 0;
}
