//@ variants: pie static
//@ cflags: -O1
/* setjmp and longjmp across many frames; __builtin_setjmp; jumps in both directions between contexts. */
#include "check.h"

static jmp_buf outer;
static volatile int levels;

__attribute__((noinline)) static int descend(int depth, int value)
{
    volatile int local = depth;
    levels++;
    if (depth == 0)
        longjmp(outer, value);
    int result = descend(depth - 1, value) + 1;
    return result + local;
}

static void across_frames(void)
{
    for (volatile int i = 1; i <= 3000; i++) {
        levels = 0;
        int value = setjmp(outer);
        if (value == 0) {
            descend(i % 100, i);
            CHECK(0, "descend returned");
        }
        CHECK_EQ(value, i, "the value passed");
        CHECK_EQ(levels, i % 100 + 1, "levels");
    }
}

static void zero_becomes_one(void)
{
    volatile int first = 1;
    int value = setjmp(outer);
    if (first) {
        first = 0;
        longjmp(outer, 0);
    }
    CHECK_EQ(value, 1, "longjmp with 0");
}

static void *buffer[5];
__attribute__((noinline)) static void built_in_jump(void) { __builtin_longjmp(buffer, 1); }
static void built_in(void)
{
    volatile int rounds = 0;
    __builtin_setjmp(buffer);
    rounds++;
    if (rounds < 1000)
        built_in_jump();
    CHECK_EQ(rounds, 1000, "rounds");
}

/* Callee-saved registers hold what they held at setjmp. */
__asm__(".text\n.globl saved_test\nsaved_test: pushq %rbx\n pushq %rbp\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
        " subq $8, %rsp\n movl $0xb, %ebx\n movl $0x12, %r12d\n movl $0x13, %r13d\n movl $0x14, %r14d\n movl $0x15, %r15d\n"
        " call _setjmp\n testl %eax, %eax\n jnz 1f\n"
        " xorl %ebx, %ebx\n xorl %r12d, %r12d\n xorl %r13d, %r13d\n xorl %r14d, %r14d\n xorl %r15d, %r15d\n"
        " call saved_jump\n ud2\n"
        "1: leaq (%rbx,%r12), %rax\n shlq $8, %rax\n orq %r13, %rax\n shlq $8, %rax\n orq %r14, %rax\n shlq $8, %rax\n orq %r15, %rax\n"
        " addq $8, %rsp\n popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbp\n popq %rbx\n ret\n");
uint64_t saved_test(jmp_buf at);
static jmp_buf saved_at;
__attribute__((used, noreturn)) void saved_jump(void) { longjmp(saved_at, 1); }

static void registers_restored(void)
{
    for (int i = 0; i < 100; i++)
        CHECK_EQ(saved_test(saved_at), 0x1d131415, "callee-saved registers");
}

int main(void)
{
    RUN(across_frames);
    RUN(zero_becomes_one);
    RUN(built_in);
    RUN(registers_restored);
    return done();
}

/* Promise: F7 */
