//@ variants: pie
//@ cflags: -O1
/* XBEGIN starts a transaction or aborts where the processor knows it, and is an undefined opcode elsewhere. */
#include "check.h"

static volatile int undefined;

static void on_undefined(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    undefined++;
    regs_of(context)[REG_RIP] += 6;
}

int main(void)
{
    on_signal(SIGILL, on_undefined, 0);
    for (int i = 0; i < 3; i++) {
        unsigned status = ~0u;
        /* xbegin to the next instruction; a transaction that has begun is aborted. */
        __asm__ volatile(".byte 0xc7, 0xf8, 0, 0, 0, 0" : "+a"(status) : : "memory");
        if (!undefined && status == ~0u)
            __asm__ volatile(".byte 0xc6, 0xf8, 1" : "+a"(status) : : "memory");
    }
    say("undefined %d", undefined);
    return done();
}
