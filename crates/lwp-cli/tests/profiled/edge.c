/* A thread whose stack pointer is a few bytes above its guard, and which blocks all signals: a fault that is not its own
 * would cost the process its action. */
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>

static char *lowest;
static unsigned sum;

static void handle(int signal) { (void)signal; }

__attribute__((noinline)) static void spin(void) {
    unsigned all = 0;
    for (int index = 0; index < 200000; index++) all = all * 31 + index;
    sum = all;
}

static void *run(void *unused) {
    (void)unused;
    char *here = __builtin_frame_address(0), *pointer;
    volatile char *most = alloca(here - lowest - 400);
    most[0] = 1;
    __asm__ volatile("mov %%rsp, %0" : "=r"(pointer));
    long left = (pointer - lowest - 24) & ~15L;
    if (left > 16) {
        volatile char *rest = alloca(left - 16);
        rest[0] = 1;
    }
    spin();
    return NULL;
}

int main(void) {
    char *guard = mmap(NULL, 4096 + 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(guard, 4096, PROT_NONE);
    lowest = guard + 4096;
    struct sigaction action = {.sa_handler = handle}, now;
    sigaction(SIGSEGV, &action, NULL);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, lowest, 16384);
    pthread_t thread;
    if (pthread_create(&thread, &attributes, run, NULL)) return 1;
    pthread_join(thread, NULL);
    sigaction(SIGSEGV, NULL, &now);
    printf("%u %s\n", sum, now.sa_handler == handle ? "own" : "lost");
}
