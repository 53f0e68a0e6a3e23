//@ variants: pie static
/* Straight-line code far longer than any translation unit, blocks across page ends, many small blocks,
 * many distinct return sites. */
#include "check.h"

__asm__(".text\n.balign 4096\n"
        ".globl b_long\nb_long: xorl %eax, %eax\n movq %rdi, %rcx\n"
        ".set k, 1\n.rept 30000\n leaq k(%rax,%rcx), %rax\n .set k, k + 1\n.endr\n ret\n"
        ".globl b_mixed\nb_mixed: xorl %eax, %eax\n"
        ".rept 8000\n addq %rdi, %rax\n rolq $7, %rax\n xorq b_word(%rip), %rax\n.endr\n ret\n"
        ".globl b_branchy\nb_branchy: xorl %eax, %eax\n movq %rdi, %rdx\n"
        ".rept 8000\n shrq $1, %rdx\n jnc 1f\n incq %rax\n1: addq $3, %rdx\n.endr\n ret\n"
        ".globl b_calls\nb_calls: xorl %eax, %eax\n.rept 8000\n call b_leaf\n.endr\n ret\n"
        "b_leaf: incl %eax\n ret\n"
        ".globl b_memory\nb_memory: pushq %rbx\n leaq b_area(%rip), %rbx\n"
        ".rept 4000\n incq (%rbx)\n movq (%rbx), %rax\n addq %rax, 8(%rbx)\n.endr\n movq 8(%rbx), %rax\n popq %rbx\n ret\n"
        ".data\n.balign 8\nb_word: .quad 0x123456789abcdef\nb_area: .quad 0, 0\n.text\n");
typedef uint64_t routine(uint64_t);
routine b_long, b_mixed, b_branchy, b_calls, b_memory;

static volatile int ticks;
static void tick(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    ticks++;
}

int main(void)
{
    CHECK_EQ(b_long(5), 30000ull * 30001 / 2 + 30000 * 5, "long");
    say("mixed %016lx", b_mixed(77));
    say("branchy %016lx", b_branchy(0x123456789));
    CHECK_EQ(b_calls(0), 8000, "calls");
    CHECK_EQ(b_memory(0), 4000ull * 4001 / 2, "memory");
    /* Signals in the middle of long blocks. */
    on_signal(SIGALRM, tick, 0);
    struct itimerval timer = {{0, 500}, {0, 500}}, off = {0};
    setitimer(ITIMER_REAL, &timer, NULL);
    uint64_t want = b_mixed(77), branchy = b_branchy(99);
    double end = patience();
    while (ticks < 200 && now_seconds() < end) {
        CHECK_EQ(b_long(1), 30000ull * 30001 / 2 + 30000, "long");
        CHECK_EQ(b_mixed(77), want, "mixed");
        CHECK_EQ(b_branchy(99), branchy, "branchy");
        CHECK_EQ(b_calls(0), 8000, "calls");
        if (check_failures)
            break;
    }
    setitimer(ITIMER_REAL, &off, NULL);
    CHECK(ticks >= 200, "only %d signals", ticks);
    return done();
}

/* Promise: F7 */
