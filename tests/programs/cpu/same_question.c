//@ variants: pie static
/* CPUID asked over and over, on one processor: the same answer every time, nothing else touched, also while signals
 * arrive, in threads, and after fork; and on each processor its own number. */
#include "check.h"
#include <sched.h>

static const struct {
    unsigned leaf, subleaf;
} questions[] = {
    {0, 0},          {0, 77},         {2, 0},          {4, 0},          {4, 1},  {4, 2},
    {4, 3},          {4, 4},          {7, 0},          {7, 1},          {0xd, 0}, {0xd, 1},
    {0xd, 2},        {0x14, 0},       {0x80000000, 0}, {0x80000001, 5}, {0x80000008, 0},
    {0x80000002, 0}, {0x80000003, 1}, {0x80000004, 2}, {1, 0},         {0xb, 0}, {0xb, 1},
};
enum { QUESTIONS = sizeof questions / sizeof *questions };

struct answer {
    uint32_t word[4];
};

static struct answer first[QUESTIONS];
static volatile sig_atomic_t signals;

static void on_alarm(int signal)
{
    (void)signal;
    signals = signals + 1;
}

struct frame {
    uint64_t in[2], out[4], kept[10], set, flags;
};
_Static_assert(offsetof(struct frame, set) == 128, "the offsets below");

/* Asks with garbage in the upper halves, all other registers known, and all flags set; then with none. */
static struct answer ask(unsigned leaf, unsigned subleaf, unsigned round)
{
    struct frame frame = {
        .in = {leaf | (uint64_t)round << 32, subleaf | (uint64_t)~round << 32},
        .set = round & 1 ? 0x8d5 : 0,
    };
    uint64_t pointer = (uint64_t)&frame;
    __asm__ volatile("push %%rbp\n\t"
                     "sub $512, %%rsp\n\t" /* beyond the red zone */
                     "push %%rax\n\t"
                     "push 128(%%rax)\n\t"
                     "mov 8(%%rax), %%rcx\n\t"
                     "mov (%%rax), %%rax\n\t"
                     "mov $101, %%ebp\n\tmov $102, %%esi\n\tmov $103, %%edi\n\tmov $108, %%r8d\n\t"
                     "mov $109, %%r9d\n\tmov $110, %%r10d\n\tmov $111, %%r11d\n\tmov $112, %%r12d\n\t"
                     "mov $113, %%r13d\n\tmov $114, %%r14d\n\t"
                     "popfq\n\t"
                     "cpuid\n\t"
                     "mov (%%rsp), %%r15\n\t"
                     "mov %%rax, 16(%%r15)\n\tmov %%rbx, 24(%%r15)\n\tmov %%rcx, 32(%%r15)\n\t"
                     "mov %%rdx, 40(%%r15)\n\t"
                     "mov %%rbp, 48(%%r15)\n\tmov %%rsi, 56(%%r15)\n\tmov %%rdi, 64(%%r15)\n\t"
                     "mov %%r8, 72(%%r15)\n\tmov %%r9, 80(%%r15)\n\tmov %%r10, 88(%%r15)\n\t"
                     "mov %%r11, 96(%%r15)\n\tmov %%r12, 104(%%r15)\n\tmov %%r13, 112(%%r15)\n\t"
                     "mov %%r14, 120(%%r15)\n\t"
                     "pushfq\n\tpop 136(%%r15)\n\t"
                     "pop %%rax\n\t"
                     "add $512, %%rsp\n\tpop %%rbp\n\t"
                     : "+a"(pointer)
                     :
                     : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
                       "r15", "cc", "memory");
    static const uint64_t want[10] = {101, 102, 103, 108, 109, 110, 111, 112, 113, 114};
    CHECK(memcmp(frame.kept, want, sizeof want) == 0, "registers beside the answer, leaf %#x", leaf);
    CHECK_EQ(frame.flags & 0x8d5, frame.set, "flags");
    struct answer answer;
    for (int i = 0; i < 4; i++) {
        CHECK(frame.out[i] >> 32 == 0, "upper half of word %d, leaf %#x", i, leaf);
        answer.word[i] = (uint32_t)frame.out[i];
    }
    return answer;
}

static void *ask_all(void *argument)
{
    unsigned rounds = (unsigned)(uintptr_t)argument;
    for (unsigned round = 0; round < rounds; round++)
        for (unsigned i = 0; i < QUESTIONS; i++) {
            struct answer now = ask(questions[i].leaf, questions[i].subleaf, round);
            CHECK(memcmp(&now, &first[i], sizeof now) == 0, "leaf %#x.%u in round %u", questions[i].leaf,
                  questions[i].subleaf, round);
        }
    return NULL;
}

/* Runs on this processor alone. */
static bool stay_on(int processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0;
}

/* Every processor has its own number, the same in leaves 1 and 0xb. */
static void numbers(const cpu_set_t *allowed)
{
    uint32_t seen[64];
    int count = 0;
    for (int processor = 0; processor < 64; processor++) {
        if (!CPU_ISSET(processor, allowed) || !stay_on(processor))
            continue;
        uint32_t number = ask(1, 0, 0).word[1] >> 24;
        if (ask(0, 0, 0).word[0] >= 0xb && ask(0xb, 0, 0).word[1] != 0)
            CHECK_EQ(ask(0xb, 0, 0).word[3] & 0xff, number, "leaf 0xb");
        for (int i = 0; i < count; i++)
            CHECK(seen[i] != number, "processors %d and %d of the same number %u", i, count, number);
        seen[count++] = number;
    }
}

int main(void)
{
    cpu_set_t allowed;
    MUST(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    numbers(&allowed);
    for (unsigned i = 0; i < QUESTIONS; i++)
        first[i] = ask(questions[i].leaf, questions[i].subleaf, 0);
    say("alone");
    ask_all((void *)20);

    say("under signals");
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    MUST(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int i = 0; i < 200 && signals < 50; i++)
        ask_all((void *)10);
    MUST(setitimer(ITIMER_REAL, &never, NULL) == 0);
    CHECK(signals > 0, "no signals came");

    say("in threads");
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        MUST(pthread_create(&threads[i], NULL, ask_all, (void *)50) == 0);
    for (int i = 0; i < 3; i++)
        MUST(pthread_join(threads[i], NULL) == 0);

    say("after fork");
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        ask_all((void *)20);
        _exit(check_failures != 0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0, "the child's status");
    return check_failures != 0;
}
