//@ variants: pie static
//@ cflags: -O1 -pthread
/* makecontext and swapcontext coroutines, also under a timer and moved between threads; hand-written
 * stack switches. */
#include "check.h"

enum { FIBRES = 8, ROUNDS = 500 };
static ucontext_t scheduler, fibres[FIBRES];
static uint64_t state[FIBRES];
static int current;

static void fibre(int id)
{
    for (int i = 0; i < ROUNDS; i++) {
        volatile uint64_t local = id * 1000 + i;
        state[id] = state[id] * 31 + i;
        swapcontext(&fibres[id], &scheduler);
        CHECK_EQ(local, id * 1000 + i, "local of fibre %d", id);
    }
}

static void run_all(void)
{
    memset(state, 0, sizeof state);
    char *stacks = map_pages(FIBRES * 65536, PROT_READ | PROT_WRITE);
    for (int i = 0; i < FIBRES; i++) {
        getcontext(&fibres[i]);
        fibres[i].uc_stack.ss_sp = stacks + i * 65536;
        fibres[i].uc_stack.ss_size = 65536;
        fibres[i].uc_link = &scheduler;
        makecontext(&fibres[i], (void (*)(void))fibre, 1, i);
    }
    for (int round = 0; round <= ROUNDS; round++)
        for (current = 0; current < FIBRES; current++)
            swapcontext(&scheduler, &fibres[current]);
    uint64_t want = 0;
    for (int i = 0; i < ROUNDS; i++)
        want = want * 31 + i;
    for (int i = 0; i < FIBRES; i++)
        CHECK_EQ(state[i], want, "state of fibre %d", i);
    munmap(stacks, FIBRES * 65536);
}

static volatile int ticks;
static void tick(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    ticks++;
}

static void under_timer(void)
{
    on_signal(SIGALRM, tick, SA_RESTART);
    struct itimerval timer = {{0, 700}, {0, 700}}, off = {0};
    setitimer(ITIMER_REAL, &timer, NULL);
    double end = patience();
    for (int i = 0; (i < 5 || ticks < 30) && now_seconds() < end; i++)
        run_all();
    setitimer(ITIMER_REAL, &off, NULL);
    CHECK(ticks >= 30, "only %d signals", ticks);
}

/* switch_to(&save_rsp_here, rsp_to_load): pushes what a callee must keep, swaps stacks, returns. */
__asm__(".text\n.globl switch_to\nswitch_to: pushq %rbx\n pushq %rbp\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
        " movq %rsp, (%rdi)\n movq %rsi, %rsp\n popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbp\n popq %rbx\n ret\n");
void switch_to(void **save, void *load);
static void *main_stack, *side_stack;
static volatile int hand_rounds;

static void side(void)
{
    for (;;) {
        hand_rounds++;
        switch_to(&side_stack, main_stack);
    }
}

static void by_hand(void)
{
    static char memory[65536] __attribute__((aligned(16)));
    void **top = (void **)(memory + sizeof memory);
    *--top = NULL;
    *--top = (void *)side;
    for (int i = 0; i < 6; i++)
        *--top = NULL;
    side_stack = top;
    for (int i = 0; i < 10000; i++)
        switch_to(&main_stack, side_stack);
    CHECK_EQ(hand_rounds, 10000, "switches");
}

static void *resume_here(void *argument)
{
    (void)argument;
    for (int i = 0; i < 100; i++)
        switch_to(&main_stack, side_stack);
    return NULL;
}

static void moved_to_thread(void)
{
    hand_rounds = 0;
    pthread_t id;
    for (int i = 0; i < 10; i++) {
        MUST(pthread_create(&id, NULL, resume_here, NULL) == 0);
        pthread_join(id, NULL);
    }
    CHECK_EQ(hand_rounds, 1000, "a stack that runs on several threads");
}

int main(void)
{
    RUN(run_all);
    RUN(under_timer);
    RUN(by_hand);
    RUN(moved_to_thread);
    return done();
}

/* Promise: F7 */
