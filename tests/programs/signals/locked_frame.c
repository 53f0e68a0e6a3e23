//@ variants: pie static
//@ cflags: -O1
/* A handler makes the stack that it runs on read-only and returns: the kernel has only to read the frame. */
#include "check.h"

static char stack[65536] __attribute__((aligned(4096), used));
static volatile int returned;

/* Makes no use of its stack after the call: mprotect(stack, sizeof stack, PROT_READ). */
void handler(int number);
__asm__(".text\nhandler:\n mov $10, %eax\n lea stack(%rip), %rdi\n mov $65536, %esi\n mov $1, %edx\n syscall\n ret\n");

int main(void)
{
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    MUST(sigaltstack(&alternate, NULL) == 0);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    MUST(sigaction(SIGHUP, &action, NULL) == 0);
    for (int i = 0; i < 3; i++) {
        MUST(mprotect(stack, sizeof stack, PROT_READ | PROT_WRITE) == 0);
        register long kept __asm__("r12") = 4711;
        __asm__ volatile("" : "+r"(kept));
        raise(SIGHUP);
        __asm__ volatile("" : "+r"(kept));
        CHECK_EQ(kept, 4711, "a register");
        returned = returned + 1;
    }
    CHECK_EQ(returned, 3, "returns");
    return done();
}

/* Promise: F8 */
