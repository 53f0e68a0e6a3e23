//@ variants: static
//@ cflags: -O1
/* Instructions that fault and are restarted count once; those that a handler skips do not count. */
#include "check.h"

static char *page;
static volatile int handled;

static void repair(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    handled++;
    mprotect(page, 8192, PROT_READ | PROT_WRITE);
}

static void skip(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    handled++;
    regs_of(context)[REG_RIP] += 2;
}

int main(void)
{
    page = map_pages(8192, PROT_READ | PROT_WRITE);
    on_signal(SIGSEGV, repair, 0);
    on_signal(SIGILL, skip, 0);
    on_signal(SIGFPE, skip, 0);
    for (int i = 0; i < 20; i++) {
        mprotect(page, 8192, PROT_NONE);
        __asm__ volatile("movl $1, %%eax\n addl %%eax, %0\n xorl %%eax, %%eax" : "+m"(*(int *)page)::"eax", "cc");
        mprotect(page + 4096, 4096, PROT_NONE);
        void *to = page + 4000;
        size_t count = 200;
        __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(i) : "memory");
        __asm__ volatile("nop\n ud2\n nop");
        __asm__ volatile("xorl %%ecx, %%ecx\n divl %%ecx\n" ::: "eax", "ecx", "edx", "cc");
    }
    CHECK_EQ(handled, 80, "signals");
    return done();
}
