// Every way to change a stack that a shadow of it would have to be told of: mutual recursion, tail
// calls, exceptions, switches between stacks, signals, realigned frames, threads, fork. The names say who
// may stand on whom.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define OUTLINE __attribute__((noipa))

extern "C" {

volatile long sink;

OUTLINE long odd(long n);
OUTLINE long even(long n) { return n == 0 ? 1 : odd(n - 1) + 1; }
OUTLINE long odd(long n) { return n == 0 ? 0 : even(n - 1) + 2; }
OUTLINE void recursion() {
    for (long n = 1; n < 40; n++) sink = sink + even(n);
}

OUTLINE long tail_to(long n) {
    for (long i = 0; i < 20; i++) sink = sink + i;
    return n;
}
OUTLINE long tail_from(long n) { return tail_to(n + sink % 2); }
OUTLINE void tails() {
    for (long n = 0; n < 40; n++) sink = sink + tail_from(n);
}

OUTLINE void thrower(long n) {
    if (n % 2) throw n;
    sink = sink + n;
}
OUTLINE void middle(long n) {
    thrower(n);
    sink = sink + 1;
}
OUTLINE void catcher(long n) {
    try {
        middle(n);
    } catch (long caught) {
        sink = sink + caught;
    }
}
OUTLINE void exceptions() {
    for (long n = 0; n < 10; n++) catcher(n);
}

ucontext_t outside, inside;
char other_stack[64 * 1024];

OUTLINE void co_leaf(long n) { sink = sink + n; }
OUTLINE void co_body() {
    for (long n = 0; n < 20; n++) {
        co_leaf(n);
        swapcontext(&inside, &outside);
    }
}
OUTLINE void pump() {
    getcontext(&inside);
    inside.uc_stack.ss_sp = other_stack;
    inside.uc_stack.ss_size = sizeof other_stack;
    inside.uc_link = &outside;
    makecontext(&inside, co_body, 0);
    for (long n = 0; n < 15; n++) swapcontext(&outside, &inside);
}

OUTLINE void handler_work() { sink = sink + 3; }
OUTLINE void on_signal(int) {
    for (long n = 0; n < 5; n++) handler_work();
    // Work behind the last call keeps it from being a tail call.
    sink = sink + 1;
}
OUTLINE void signals() {
    signal(SIGUSR1, on_signal);
    for (long n = 0; n < 5; n++) raise(SIGUSR1);
}

OUTLINE void aligned_leaf(char *area) { sink = sink + area[3]; }
OUTLINE void aligned(long n) {
    // A frame aligned beyond the stack's own alignment, and of a size known only now.
    char area[n] __attribute__((aligned(64)));
    alignas(128) char fixed[256];
    area[3] = 1;
    fixed[3] = 2;
    aligned_leaf(area);
    aligned_leaf(fixed);
}
OUTLINE void alignments() {
    for (long n = 100; n < 120; n++) aligned(n);
}

OUTLINE void thread_leaf(long n) { sink = sink + n; }
OUTLINE void *worker(void *) {
    for (long n = 0; n < 100; n++) thread_leaf(n);
    return nullptr;
}
OUTLINE void threads() {
    pthread_t thread;
    pthread_create(&thread, nullptr, worker, nullptr);
    pthread_join(thread, nullptr);
}

OUTLINE void child_leaf(long n) { sink = sink + n; }
OUTLINE void forks() {
    pid_t child = fork();
    if (child == 0) {
        for (long n = 0; n < 100; n++) child_leaf(n);
        _exit(0);
    }
    waitpid(child, nullptr, 0);
}

int main() {
    recursion();
    tails();
    exceptions();
    pump();
    signals();
    alignments();
    threads();
    forks();
    return 0;
}
}
