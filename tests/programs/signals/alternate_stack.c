//@ variants: pie static
//@ cflags: -O1
/* sigaltstack: delivery on it, its state, stack overflow handled on it, SS_AUTODISARM, one per thread. */
#include "check.h"

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif

static char stack_a[65536] __attribute__((aligned(16)));
static volatile bool on_alternate;
static volatile int flags_inside;
static sigjmp_buf back;

static void use(char *memory, size_t size, int flags)
{
    stack_t stack = {.ss_sp = memory, .ss_size = size, .ss_flags = flags};
    MUST(sigaltstack(&stack, NULL) == 0);
}

static void where(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    char local;
    on_alternate = &local > stack_a && &local < stack_a + sizeof stack_a;
    stack_t now;
    sigaltstack(NULL, &now);
    flags_inside = now.ss_flags;
    CHECK(((ucontext_t *)context)->uc_stack.ss_sp == stack_a || !on_alternate, "uc_stack");
}

static void delivery(void)
{
    use(stack_a, sizeof stack_a, 0);
    on_signal(SIGUSR1, where, SA_ONSTACK);
    raise(SIGUSR1);
    CHECK(on_alternate, "with SA_ONSTACK");
    CHECK_EQ(flags_inside, SS_ONSTACK, "flags inside");
    on_signal(SIGUSR1, where, 0);
    raise(SIGUSR1);
    CHECK(!on_alternate, "without SA_ONSTACK");
    stack_t now;
    sigaltstack(NULL, &now);
    CHECK_EQ(now.ss_flags, 0, "flags outside");
    use(stack_a, sizeof stack_a, SS_AUTODISARM);
    on_signal(SIGUSR1, where, SA_ONSTACK);
    raise(SIGUSR1);
    CHECK(on_alternate, "with SS_AUTODISARM");
    CHECK_EQ(flags_inside, SS_DISABLE, "disarmed inside");
    use(stack_a, sizeof stack_a, 0);
    stack_t small = {.ss_sp = stack_a, .ss_size = 100};
    CHECK(sigaltstack(&small, NULL) == -1 && errno == ENOMEM, "too small a stack");
}

static volatile int overflows;
static void overflow_handler(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    overflows++;
    siglongjmp(back, 1);
}

__attribute__((noinline)) static int devour(volatile char *above)
{
    volatile char frame[512];
    frame[0] = above ? above[0] + 1 : 0;
    return devour(frame) + frame[0];
}

static void overflow(void)
{
    on_signal(SIGSEGV, overflow_handler, SA_ONSTACK);
    for (int i = 0; i < 5; i++)
        if (sigsetjmp(back, 1) == 0)
            devour(NULL);
    CHECK_EQ(overflows, 5, "stack overflows handled");
    signal(SIGSEGV, SIG_DFL);
}

static void *thread(void *argument)
{
    stack_t now;
    sigaltstack(NULL, &now);
    CHECK_EQ(now.ss_flags, SS_DISABLE, "a new thread has no alternate stack");
    raise(SIGUSR1);
    CHECK(!on_alternate, "the other thread's stack is not used");
    return argument;
}

static void per_thread(void)
{
    pthread_t id;
    on_signal(SIGUSR1, where, SA_ONSTACK);
    MUST(pthread_create(&id, NULL, thread, NULL) == 0);
    pthread_join(id, NULL);
    raise(SIGUSR1);
    CHECK(on_alternate, "the first thread still has its own");
}

/* The kernel kills a process whose signal frame cannot be written. */
static void no_room(void)
{
    static char *tiny;
    tiny = map_pages(3 * 4096, PROT_READ | PROT_WRITE);
    use(tiny, 3 * 4096, 0);
    on_signal(SIGUSR1, where, SA_ONSTACK);
    MUST(mprotect(tiny, 3 * 4096, PROT_NONE) == 0);
    raise(SIGUSR1);
    say("not reached");
}

int main(void)
{
    RUN(delivery);
    RUN(overflow);
    RUN(per_thread);
    CHECK_EQ(in_child(no_room) & 0x7f, SIGSEGV, "a frame that cannot be written");
    return done();
}

/* Promise: F8 */
