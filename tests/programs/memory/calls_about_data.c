//@ variants: pie static
/* munmap and mprotect, nearly always about data and now and then about code: nothing but the result changes, also while
 * signals arrive and in threads, and code that is gone is gone. */
#include "check.h"
#include <setjmp.h>

#define PAGE 4096
#define MANY 60

static volatile sig_atomic_t signals;
static sigjmp_buf back;

static void on_alarm(int signal)
{
    (void)signal;
    signals = signals + 1;
}

static void on_fault(int signal)
{
    siglongjmp(back, signal);
}

struct frame {
    uint64_t number, argument[3], result, kept[9], set, flags;
};
_Static_assert(offsetof(struct frame, kept) == 40 && offsetof(struct frame, set) == 112, "the offsets below");

/* The call with all other registers known, and all flags set, or none. The number is in front of the instruction, or
 * out of sight. */
#define CALL(load_number)                                                                          \
    __asm__ volatile("push %%rbp\n\tsub $512, %%rsp\n\tpush %%rax\n\tpush 112(%%rax)\n\t"          \
                     "mov %%rax, %%rbx\n\t"                                                        \
                     "mov 8(%%rbx), %%rdi\n\tmov 16(%%rbx), %%rsi\n\tmov 24(%%rbx), %%rdx\n\t"     \
                     "mov $101, %%ebp\n\tmov $108, %%r8d\n\tmov $109, %%r9d\n\tmov $110, %%r10d\n\t" \
                     "mov $112, %%r12d\n\tmov $113, %%r13d\n\tmov $114, %%r14d\n\tmov %%rbx, %%r15\n\t" \
                     "popfq\n\t" load_number "\n\tsyscall\n\t"                                     \
                     "mov %%rax, 32(%%r15)\n\tmov %%rbp, 40(%%r15)\n\tmov %%rbx, 48(%%r15)\n\t"    \
                     "mov %%r8, 56(%%r15)\n\tmov %%r9, 64(%%r15)\n\tmov %%r10, 72(%%r15)\n\t"      \
                     "mov %%r12, 80(%%r15)\n\tmov %%r13, 88(%%r15)\n\tmov %%r14, 96(%%r15)\n\t"    \
                     "pushfq\n\tpop 120(%%r15)\n\t"                                                \
                     "pop %%rax\n\tadd $512, %%rsp\n\tpop %%rbp\n\t"                               \
                     : "+a"(pointer)                                                               \
                     :                                                                             \
                     : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", \
                       "r15", "cc", "memory")

static int64_t call(uint64_t number, void *at, uint64_t bytes, uint64_t prot, unsigned round)
{
    struct frame frame = {
        .number = number,
        .argument = {(uint64_t)at, bytes, prot},
        .set = round & 1 ? 0x8d5 : 0,
    };
    uint64_t pointer = (uint64_t)&frame;
    if (round & 2)
        CALL("mov (%%rbx), %%rax");
    else if (number == SYS_munmap)
        CALL("mov $11, %%eax");
    else
        CALL("mov $10, %%eax");
    uint64_t want[8] = {101, (uint64_t)&frame, 108, 109, 110, 112, 113, 114};
    CHECK(memcmp(frame.kept, want, sizeof want) == 0, "registers beside the result, round %u", round);
    CHECK_EQ(frame.flags & 0x8d5, frame.set, "flags");
    return frame.result;
}

static void *data(void *rounds)
{
    for (unsigned round = 0; round < (unsigned)(uintptr_t)rounds; round++) {
        char *at = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        MUST(at != MAP_FAILED);
        at[PAGE] = 1;
        CHECK_EQ(call(SYS_mprotect, at, 2 * PAGE, PROT_READ, round), 0, "mprotect");
        CHECK_EQ(call(SYS_mprotect, at + 1, PAGE, PROT_READ, round), -EINVAL, "mprotect of half a page");
        CHECK_EQ(call(SYS_munmap, at, 0, 0, round), -EINVAL, "munmap of nothing");
        CHECK_EQ(call(SYS_munmap, at, -1, 0, round), -EINVAL, "munmap of everything");
        CHECK_EQ(call(SYS_munmap, at, 4 * PAGE, 0, round), 0, "munmap");
    }
    return NULL;
}

typedef int function(void);

/* `mov eax, result; ret` in memory of its own. */
static function *make(int result)
{
    unsigned char *code = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(code != MAP_FAILED);
    unsigned char bytes[] = {0xb8, result, 0, 0, 0, 0xc3};
    memcpy(code, bytes, sizeof bytes);
    MUST(mprotect(code, PAGE, PROT_READ | PROT_EXEC) == 0);
    CHECK_EQ(((function *)code)(), result, "made code");
    return (function *)code;
}

/* More pieces of code than anybody wants to look through, each of them taken away. */
static void code(int pieces)
{
    function *made[MANY];
    struct sigaction fault = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};
    MUST(sigaction(SIGSEGV, &fault, NULL) == 0);
    for (int i = 0; i < pieces; i++)
        made[i] = make(i);
    for (volatile int i = 0; i < pieces; i++) {
        CHECK_EQ(made[i](), i, "code that is still there");
        switch (i % 3) {
        case 0: CHECK_EQ(call(SYS_munmap, made[i], PAGE, 0, i), 0, "munmap of code"); break;
        case 1: CHECK_EQ(call(SYS_mprotect, made[i], PAGE, PROT_READ, i), 0, "mprotect of code"); break;
        default: CHECK_EQ(call(SYS_mprotect, made[i], 1, PROT_NONE, i), 0, "mprotect of a byte of code");
        }
        volatile int came = 0;
        if (sigsetjmp(back, 1) == 0) {
            made[i]();
            came = 1;
        }
        CHECK(!came, "code that is gone, piece %d", i);
    }
}

int main(void)
{
    say("data");
    data((void *)50);
    say("code");
    code(5);
    code(MANY);
    say("under signals");
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval often = {{0, 150}, {0, 150}}, never = {{0, 0}, {0, 0}};
    MUST(setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (int i = 0; i < 300 && signals < 50; i++)
        data((void *)20);
    MUST(setitimer(ITIMER_REAL, &never, NULL) == 0);
    CHECK(signals > 0, "no signals came");
    say("in threads");
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        MUST(pthread_create(&threads[i], NULL, data, (void *)100) == 0);
    for (int i = 0; i < 3; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
    say("after fork");
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        data((void *)20);
        code(5);
        _exit(check_failures != 0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0, "the child's status");
    return check_failures != 0;
}
