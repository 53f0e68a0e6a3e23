//@ variants: pie static
/* Code in the middle of a reservation so large that nothing else can lie within reach of it. It executes millions
 * of instructions, with operands, branches and calls relative to their own place; it is interrupted, changed,
 * copied by fork, and executed by several threads. */
#include "check.h"

#define GIB (1ul << 30)
#define RESERVED (14 * GIB)
#define ROUNDS 2000000

/* Position independent: code in its first page, data in its second. */
__asm__(".text\n.balign 4096\n.globl island\n"
        "island:\n"
        "run: pushq %rbx\n movl %edi, %ebx\n xorl %eax, %eax\n"
        "1: addl island_step(%rip), %eax\n movl %eax, island_last(%rip)\n incq island_turns(%rip)\n"
        " pushq island_add(%rip)\n addq %rcx, (%rsp)\n popq %rdx\n"
        " movdqa island_vector(%rip), %xmm0\n paddd %xmm0, %xmm1\n"
        " leaq island_vector(%rip), %rsi\n movq (%rsi), %r8\n"
        " stc\n adcl island_step(%rip), %eax\n"
        " callq *island_call(%rip)\n jmpq *island_jump(%rip)\n"
        "2: decl %ebx\n jnz 1b\n popq %rbx\n ret\n"
        "callee: cmpl $7, island_step(%rip)\n jne 3f\n addl $1, %eax\n3: ret\n"
        ".globl island_patched\nisland_patched: movl $1, %eax\n ret\n"
        ".balign 4096\n"
        ".globl island_data, island_step, island_last, island_turns, island_call, island_jump\n"
        "island_data:\n"
        "island_vector: .long 1, 2, 3, 4\n"
        "island_step: .long 7\n island_last: .long 0\n island_turns: .quad 0\n island_add: .quad 5\n"
        "island_call: .quad callee - island\n island_jump: .quad 2b - island\n"
        ".balign 4096\n.globl island_end\nisland_end:\n");
extern char island[], island_end[], island_data[], island_patched[], island_step[], island_last[], island_turns[],
    island_call[], island_jump[];

static char *place;

static void *there(char *symbol)
{
    return place + (symbol - island);
}

static unsigned turn(int rounds)
{
    return ((unsigned (*)(int))there(island))(rounds);
}

static unsigned expected(unsigned rounds)
{
    return rounds * (7 + 7 + 1 + 1);
}

static void settle(void)
{
    char *reserved = mmap(0, RESERVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MUST(reserved != MAP_FAILED);
    place = reserved + RESERVED / 2;
    MUST(mprotect(place, island_end - island, PROT_READ | PROT_WRITE) == 0);
    memcpy(place, island, island_end - island);
    *(uint64_t *)there(island_call) += (uint64_t)place;
    *(uint64_t *)there(island_jump) += (uint64_t)place;
    MUST(mprotect(place, island_data - island, PROT_READ | PROT_EXEC) == 0);
}

static volatile sig_atomic_t inside, wrong;

static void interrupted(int signal, siginfo_t *info, void *context)
{
    ucontext_t *at = context;
    char *pc = (char *)at->uc_mcontext.gregs[REG_RIP];
    (void)signal, (void)info;
    if (pc >= place && pc < place + (island_data - island)) {
        inside++;
        if (*(uint64_t *)there(island_call) < (uint64_t)place)
            wrong++;
    }
}

static void interrupt(void)
{
    struct sigaction action = {.sa_sigaction = interrupted, .sa_flags = SA_SIGINFO | SA_RESTART};
    MUST(sigaction(SIGALRM, &action, 0) == 0);
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    MUST(setitimer(ITIMER_REAL, &often, 0) == 0);
    for (int i = 0; i < 1000 && inside < 20; i++)
        CHECK_EQ(turn(ROUNDS / 10), expected(ROUNDS / 10), "interrupted");
    MUST(setitimer(ITIMER_REAL, &never, 0) == 0);
    CHECK(inside >= 20, "interrupted inside");
    CHECK_EQ(wrong, 0, "of them wrong");
}

static void *thread(void *unused)
{
    return (void *)(uintptr_t)turn(ROUNDS / 10 + (unused != 0));
}

int main(void)
{
    settle();
    CHECK_EQ(turn(ROUNDS), expected(ROUNDS), "a long run");
    CHECK_EQ(*(uint64_t *)there(island_turns), ROUNDS, "turns");
    interrupt();

    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        MUST(pthread_create(&threads[i], 0, thread, 0) == 0);
    for (int i = 0; i < 4; i++) {
        void *result;
        MUST(pthread_join(threads[i], &result) == 0);
        CHECK_EQ((unsigned)(uintptr_t)result, expected(ROUNDS / 10), "thread");
    }

    pid_t pid = fork();
    if (pid == 0) {
        CHECK_EQ(turn(ROUNDS / 10), expected(ROUNDS / 10), "in a child");
        _exit(check_failures ? 1 : 0);
    }
    int status = -1;
    MUST(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0, "the child's end");

    MUST(mprotect(place, island_data - island, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
    for (int value = 1; value < 10; value++) {
        ((unsigned char *)there(island_patched))[1] = value;
        for (int i = 0; i < 3; i++)
            CHECK_EQ(((int (*)(void))there(island_patched))(), value, "changed");
        CHECK_EQ(turn(ROUNDS / 100), expected(ROUNDS / 100), "beside changes");
    }
    return done();
}

/* Promise: F10 */
/* Promise: F10: in a large reservation, without room for translations nearby */
