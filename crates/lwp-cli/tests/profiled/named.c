// Threads that have names of their own: one names itself, one is named by another, and a child of
// fork names itself too.
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile unsigned long sum;

static void work(void) {
    for (unsigned long n = 0; n < 100000; n++) sum += n;
}

static void *names_itself(void *unused) {
    prctl(PR_SET_NAME, "itself 1");
    work();
    return unused;
}

static pthread_barrier_t named;

static void *is_named(void *unused) {
    pthread_barrier_wait(&named);
    work();
    return unused;
}

int main(void) {
    pthread_t one, two;
    pthread_barrier_init(&named, 0, 2);
    pthread_create(&one, 0, names_itself, 0);
    pthread_join(one, 0);
    pthread_create(&two, 0, is_named, 0);
    pthread_setname_np(two, "by-another");
    pthread_barrier_wait(&named);
    pthread_join(two, 0);
    if (fork() == 0) {
        prctl(PR_SET_NAME, "child");
        work();
        _exit(0);
    }
    wait(0);
    work();
}
