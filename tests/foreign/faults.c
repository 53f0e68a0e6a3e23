/* Takes faults, behind each of which a handler moves the program on. Prints their number, and the
 * nanoseconds that one takes. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <ucontext.h>

enum { LOAD_BYTES = 2 };

static volatile long taken;

static void move_on(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)info;
    ucontext_t *at = context;
    at->uc_mcontext.gregs[REG_RIP] += LOAD_BYTES;
    taken++;
}

int main(int argc, char **argv) {
    long count = argc > 1 ? atol(argv[1]) : 100000;
    struct sigaction action = {.sa_sigaction = move_on, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    struct timespec begun, ended;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (long at = 0; at < count; at++) {
        /* mov eax, [rcx] */
        __asm__ volatile(".byte 0x8b, 0x01" : : "c"(8L) : "rax", "memory");
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    double ns = (ended.tv_sec - begun.tv_sec) * 1e9 + (ended.tv_nsec - begun.tv_nsec);
    printf("%ld faults, %.0f ns each\n", taken, ns / count);
    return taken != count;
}
