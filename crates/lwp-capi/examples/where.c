/* Where a program takes its branches, found by itself: the addresses that most samples name.
 *
 *     cc examples/where.c $(pkg-config --cflags --libs lwp) -o where
 *     lwp run -- ./where
 */
#include <lwp.h>
#include <stdio.h>

enum { EVERY = 100, ADDRESSES = 64, SHOWN = 3 };

/* How often an address was sampled. */
struct place {
    uint64_t address;
    unsigned samples;
};

/* Steps of the Collatz sequence from n to 1. */
static unsigned steps(unsigned long n)
{
    unsigned count = 0;
    for (; n != 1; count++)
        n = n % 2 ? 3 * n + 1 : n / 2;
    return count;
}

static unsigned long longest_below(unsigned long limit)
{
    unsigned long n, longest = 1;
    for (n = 1; n < limit; n++)
        if (steps(n) > steps(longest))
            longest = n;
    return longest;
}

/* Counts a sample, and keeps the places in order. */
static void add(struct place *places, uint64_t address)
{
    unsigned at = 0;
    while (at < ADDRESSES - 1 && places[at].samples != 0 && places[at].address != address)
        at++;
    places[at].address = address;
    places[at].samples++;
    for (; at > 0 && places[at].samples > places[at - 1].samples; at--) {
        struct place swapped = places[at];
        places[at] = places[at - 1];
        places[at - 1] = swapped;
    }
}

int main(void)
{
    static struct place places[ADDRESSES];
    struct lwp_options options;
    struct lwp_session *session;
    struct lwp_record record;
    uint64_t missed = 0;
    unsigned long longest;
    unsigned samples = 0, at;

    lwp_options_init(&options);
    options.every[LWP_EVENT_BRANCHES_RETIRED] = EVERY;
    options.random_bits = 4; /* out of step with the loops */
    session = lwp_open(&options);
    if (session == NULL || lwp_start(session) != 0) {
        fprintf(stderr, "where: %s\n", lwp_last_error());
        return 1;
    }
    longest = longest_below(400);
    lwp_stop(session);

    for (; lwp_read(session, &record, 1) == 1; samples++)
        add(places, record.instruction_address);
    lwp_missed(session, &missed);
    lwp_close(session);
    for (at = 0; at < SHOWN && places[at].samples != 0; at++)
        printf("%5u of %u samples at %#llx\n", places[at].samples, samples,
               (unsigned long long)places[at].address);
    printf("longest %lu; %llu samples were lost\n", longest, (unsigned long long)missed);
    return 0;
}
