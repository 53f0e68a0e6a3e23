// Indirect calls whose numbers are known. The first argument says under which circumstances.
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define FUNCTION __attribute__((noinline, noclone))

static volatile long sink;

FUNCTION void f0(void) { sink = 0; }
FUNCTION void f1(void) { sink = 1; }
FUNCTION void f2(void) { sink = 2; }
FUNCTION void f3(void) { sink = 3; }

typedef void (*function)(void);
static function volatile functions[] = {f0, f1, f2, f3};

/* Calls f0 as often as f1, f2 and f3 together, and those in the ratio 3 : 2 : 1; `rounds` times 12 in all. */
FUNCTION void drive(long rounds) {
    static const char order[] = {0, 1, 0, 2, 0, 1, 0, 3, 0, 2, 0, 1};
    for (long n = 0; n < rounds * 12; n++) functions[(int)order[n % 12]]();
}

/* Threads of a process and of its child, each with a number of rounds of its own: 10,000 in all. */
FUNCTION void *thread(void *rounds) {
    drive((long)rounds);
    return 0;
}

static void in_threads(long each) {
    pthread_t ids[4];
    for (long n = 0; n < 4; n++) pthread_create(&ids[n], 0, thread, (void *)(each * (n + 1)));
    for (int n = 0; n < 4; n++) pthread_join(ids[n], 0);
}

static void forks(void) {
    for (int n = 0; n < 2; n++) {
        if (fork() == 0) {
            in_threads(300);
            _exit(0);
        }
    }
    in_threads(400);
    while (wait(0) > 0) {}
}

/* Signals arrive at any instruction of a thread that drives; the handler calls, too. */
static atomic_long handled;
static atomic_int over;

FUNCTION void handler(int number) {
    (void)number;
    functions[3]();
    handled++;
}

FUNCTION void *storm(void *target) {
    while (!over) {
        pthread_kill(*(pthread_t *)target, SIGUSR1);
        for (volatile int n = 0; n < 300; n++) {}
    }
    return 0;
}

static void signals(void) {
    pthread_t self = pthread_self(), other;
    signal(SIGUSR1, handler);
    pthread_create(&other, 0, storm, &self);
    while (handled < 2000) drive(50), sink++;
    over = 1;
    pthread_join(other, 0);
}

/* Calls that fault: the return address cannot be pushed, the target cannot be read, nor be executed. */
static sigjmp_buf back;

static void faulted(int number) {
    (void)number;
    siglongjmp(back, 1);
}

/* Calls through `pointer` with the stack pointer at `stack`. */
FUNCTION void call_at(function *pointer, char *stack) {
    __asm__ volatile("mov %%rsp, %%rbx\n mov %1, %%rsp\n call *%0\n mov %%rbx, %%rsp"
                     :: "r"(*pointer), "r"(stack) : "rbx", "memory");
}

FUNCTION void call_through(function *pointer) { (*pointer)(); }

static void faults(void) {
    static char alternative[65536];
    static long data;
    stack_t stack = {.ss_sp = alternative, .ss_size = sizeof alternative};
    sigaltstack(&stack, 0);
    struct sigaction action = {.sa_handler = faulted, .sa_flags = SA_ONSTACK};
    sigaction(SIGSEGV, &action, 0);
    char *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(page, 4096, PROT_NONE);
    function good = f1, bad = (function)(void *)&data;
    for (volatile int n = 0; n < 100; n++) {
        call_at(&good, page + 8192);
        if (!sigsetjmp(back, 1)) call_at(&good, page + 4096);
        call_through(&good);
        if (!sigsetjmp(back, 1)) call_through((function *)page);
        if (!sigsetjmp(back, 1)) call_through(&bad);
    }
}

/* More targets of one call than there is room to count them in. */
FUNCTION void call_all(char *code, long functions, long distance) {
    for (long n = 0; n < functions; n++) ((function)(void *)(code + n * distance))();
}

static void many(void) {
    enum { FUNCTIONS = 30000, DISTANCE = 16 };
    long bytes = FUNCTIONS * DISTANCE;
    char *code = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(code, 0xc3, bytes);
    mprotect(code, bytes, PROT_READ | PROT_EXEC);
    for (int round = 0; round < 3; round++) call_all(code, FUNCTIONS, DISTANCE);
}

/* A child is killed while it drives. */
static void killed(void) {
    int pipes[2];
    if (pipe(pipes)) exit(1);
    pid_t child = fork();
    if (child == 0) {
        drive(10);
        if (write(pipes[1], "", 1) != 1) _exit(1);
        for (;;) drive(1);
    }
    char byte;
    if (read(pipes[0], &byte, 1) != 1) exit(1);
    usleep(20000);
    kill(child, SIGKILL);
    waitpid(child, 0, 0);
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "";
    if (!strcmp(what, "forks")) forks();
    if (!strcmp(what, "signals")) signals();
    if (!strcmp(what, "faults")) faults();
    if (!strcmp(what, "many")) many();
    if (!strcmp(what, "killed")) killed();
    printf("%ld\n", (long)handled);
    return 0;
}
