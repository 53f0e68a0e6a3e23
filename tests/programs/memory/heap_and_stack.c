//@ variants: pie static
//@ cflags: -O1 -pthread
/* brk, malloc of all sizes, stack growth of the first thread and of others, guard pages, alloca,
 * RLIMIT_STACK, mlockall. */
#include "check.h"
#include <alloca.h>
#include <sys/resource.h>

static void program_break(void)
{
    char *start = sbrk(0);
    CHECK(start != (void *)-1, "sbrk");
    char *old = sbrk(1 << 20);
    CHECK(old == start, "sbrk returns the old break");
    memset(old, 3, 1 << 20);
    CHECK(sbrk(0) == start + (1 << 20), "the new break");
    CHECK(sbrk(-(1 << 19)) == start + (1 << 20), "shrink");
    CHECK(start[(1 << 19) - 1] == 3, "what stays");
    sbrk(1 << 19);
    CHECK(start[(1 << 19)] == 0, "what comes back is zero");
    CHECK_EQ(brk(start), 0, "brk");
    long raw = syscall(SYS_brk, 0);
    CHECK_EQ(raw, (uintptr_t)start, "the raw call");
    CHECK_EQ(syscall(SYS_brk, 1), raw, "an impossible break changes nothing");
}

static void allocator(void)
{
    void *blocks[300];
    uint64_t x = 7, sum = 0;
    memset(blocks, 0, sizeof blocks);
    for (int i = 0; i < 60000; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        int slot = (x >> 33) % 300;
        size_t size = x >> 50 & 1 ? x >> 40 & 0xff : x >> 40 & 0xffff;
        if (i % 3 == 0)
            blocks[slot] = realloc(blocks[slot], size + 1);
        else
            free(blocks[slot]), blocks[slot] = malloc(size + 1);
        ((unsigned char *)blocks[slot])[size] = i;
        sum += ((unsigned char *)blocks[slot])[size];
    }
    for (int i = 0; i < 300; i++)
        free(blocks[i]);
    say("allocator %lu", sum);
}

__attribute__((noinline)) static uint64_t frames(int depth)
{
    volatile char frame[4000];
    frame[0] = depth;
    frame[3999] = depth >> 8;
    return depth == 0 ? 0 : frames(depth - 1) + (unsigned char)frame[0];
}

static void stack_growth(void)
{
    say("frames %lu", frames(1800)); /* 7 MiB of the usual 8 */
    volatile char *far = alloca(6 << 20);
    far[0] = 1;
    far[(6 << 20) - 1] = 2;
    CHECK_EQ(far[0] + far[(6 << 20) - 1], 3, "a jump down the stack");
}

static void *thread(void *argument)
{
    *(uint64_t *)argument = frames(400);
    return NULL;
}

static void thread_stacks(void)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 2 << 20);
    for (int i = 0; i < 20; i++) {
        pthread_t id;
        uint64_t result = 0;
        MUST(pthread_create(&id, &attributes, thread, &result) == 0);
        pthread_join(id, NULL);
        CHECK_EQ(result, frames(400), "frames in a thread");
    }
}

static volatile int faults;
static sigjmp_buf back;
static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context, (void)info;
    faults++;
    siglongjmp(back, 1);
}

static void limited(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_STACK, &limit);
    limit.rlim_cur = 1 << 20;
    MUST(setrlimit(RLIMIT_STACK, &limit) == 0);
    static char alternate[65536];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    sigaltstack(&stack, NULL);
    on_signal(SIGSEGV, on_fault, SA_ONSTACK);
    if (sigsetjmp(back, 1) == 0)
        frames(100000);
    CHECK_EQ(faults, 1, "a limited stack overflows");
}

static void locked(void)
{
    /* May be refused by a limit; either way nothing else may change. */
    int result = mlockall(MCL_CURRENT);
    say("mlockall %s", result == 0 ? "works" : strerror(errno));
    char *page = map_pages(4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    memcpy(page, "\xb8\x07\x00\x00\x00\xc3", 6);
    CHECK_EQ(((int (*)(void))page)(), 7, "new code after mlockall");
    munlockall();
    result = mlock(page, 4096);
    say("mlock %s", result == 0 ? "works" : strerror(errno));
}

int main(void)
{
    RUN(program_break);
    RUN(allocator);
    RUN(stack_growth);
    RUN(thread_stacks);
    CHECK_EQ(in_child(limited), 0, "child with a limited stack");
    RUN(locked);
    return done();
}
