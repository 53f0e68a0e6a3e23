//@ signal: 11
/* The program itself ends by a fault. */
#include "check.h"

int main(void)
{
    say("before");
    *(volatile int *)0x10 = 1;
    say("after");
    return 0;
}

/* Promise: F8 */
