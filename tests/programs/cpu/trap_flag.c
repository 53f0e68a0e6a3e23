//@ compare: expectation
//@ variants: pie
/* A program that sets TF to single-step itself. Natively a SIGTRAP comes after every instruction. A
 * virtual CPU may leave TF out (documented), but must then not break the program. */
#include "check.h"

static volatile int traps;
static void on_trap(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    traps++;
    if (traps > 100)
        regs_of(context)[REG_EFL] &= ~0x100;
}

int main(void)
{
    on_signal(SIGTRAP, on_trap, 0);
    uint64_t result = 0;
    __asm__ volatile("pushfq\n orq $0x100, (%%rsp)\n popfq\n"
                     "addq $1, %0\n addq $2, %0\n addq $3, %0\n"
                     "pushfq\n andq $~0x100, (%%rsp)\n popfq\n addq $4, %0"
                     : "+r"(result)::"cc", "memory");
    CHECK_EQ(result, 10, "the computation");
    CHECK(traps == 0 || traps == 6, "traps: %d", traps);
    say("# %s", traps ? "single-stepped" : "TF has no effect");
    return done();
}
