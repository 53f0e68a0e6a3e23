//@ variants: static static-pie no-pie pie
#include <stdio.h>

int main(void)
{
    puts("hello");
    return 0;
}
