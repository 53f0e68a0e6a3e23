//@ variants: pie
//@ cflags: -O1 -D_GNU_SOURCE
/* Instructions that begin in one mapping and end in the next: one page of code is protected otherwise than the one before
 * it. They are executed often, changed at either end, and cut short. */
#include "check.h"

enum { PAGE = 4096 };

static sigjmp_buf back;
static void *address;

static void faulted(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    address = info->si_addr;
    siglongjmp(back, 1);
}

static int call(void *code)
{
    return ((int (*)(void))code)();
}

/* mov eax, value; ret. */
static void function(unsigned char *code, int value)
{
    code[0] = 0xb8;
    memcpy(code + 1, &value, 4);
    code[5] = 0xc3;
}

/* A function that begins `before` bytes before the second page, in pages with these protections. */
static void across(int before, int first, int second)
{
    unsigned char *pages = map_pages(3 * PAGE, PROT_READ | PROT_WRITE);
    unsigned char *code = pages + PAGE - before;
    function(code, 0x01020304);
    MUST(mprotect(pages, PAGE, first) == 0 && mprotect(pages + PAGE, PAGE, second) == 0);
    long sum = 0;
    for (int times = 0; times < 100000; times++)
        sum += call(code);
    CHECK_EQ(sum, 0x01020304L * 100000, "%d bytes before the end", before);
    /* Changed behind the end, where that can be done. */
    MUST(mprotect(pages + PAGE, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
    for (int value = 1; value < 5; value++) {
        if (before < 5)
            code[4] = value;
        CHECK_EQ(call(code) >> 24, before < 5 ? value : 1, "changed behind the end");
    }
    /* And at the beginning. */
    MUST(mprotect(pages, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
    function(code, 77);
    CHECK_EQ(call(code), 77, "changed before the end");
    MUST(mprotect(pages, PAGE, PROT_READ | PROT_EXEC) == 0);
    CHECK_EQ(call(code), 77, "protected again");
    /* Cut short: the fault is the next page's. */
    struct sigaction action = {.sa_sigaction = faulted, .sa_flags = SA_SIGINFO};
    MUST(sigaction(SIGSEGV, &action, 0) == 0);
    MUST(mprotect(pages + PAGE, PAGE, PROT_READ) == 0);
    address = 0;
    if (!sigsetjmp(back, 1))
        call(code);
    CHECK_EQ(address == pages + PAGE, 1, "cut short at the page's end");
    MUST(munmap(pages + PAGE, PAGE) == 0);
    address = 0;
    if (!sigsetjmp(back, 1))
        call(code);
    CHECK_EQ(address == pages + PAGE, 1, "nothing behind the page's end");
    munmap(pages, PAGE);
}

int main(void)
{
    int all = PROT_READ | PROT_WRITE | PROT_EXEC;
    for (int before = 1; before < 6; before++) {
        across(before, PROT_READ | PROT_EXEC, all);
        across(before, all, PROT_READ | PROT_EXEC);
    }
    return check_failures != 0;
}

/* Promise: F30 */
