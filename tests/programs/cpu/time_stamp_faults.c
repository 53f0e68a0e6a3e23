//@ cflags: -O1
/* prctl(PR_SET_TSC): reading the time stamp counter raises SIGSEGV, in children and new threads too, until it is
 * allowed again. */
#include "check.h"
#include <sys/prctl.h>

static sigjmp_buf back;

static void on_fault(int number)
{
    siglongjmp(back, number);
}

/* The signal that a read raises, 0 for none. */
static int raised(bool with_processor)
{
    int signal = sigsetjmp(back, 1);
    if (signal)
        return signal;
    if (with_processor)
        asm volatile("rdtscp" : : : "eax", "edx", "ecx");
    else
        asm volatile("rdtsc" : : : "eax", "edx");
    return 0;
}

static void *in_thread(void *nothing)
{
    int mode = 0;
    MUST(prctl(PR_GET_TSC, &mode) == 0);
    say("thread: mode %d, %d", mode, raised(false));
    return nothing;
}

int main(void)
{
    signal(SIGSEGV, on_fault);
    say("before %d %d", raised(false), raised(true));
    say("refused %d", prctl(PR_SET_TSC, 7, 0, 0, 0) ? errno : 0);
    MUST(prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) == 0);
    say("then %d %d", raised(false), raised(true));
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, in_thread, NULL) == 0);
    MUST(pthread_join(thread, NULL) == 0);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0)
        _exit(raised(true));
    int status = 0;
    MUST(waitpid(child, &status, 0) == child);
    say("child %d", WEXITSTATUS(status));
    MUST(prctl(PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0) == 0);
    say("after %d %d", raised(false), raised(true));
    return done();
}

/* Promise: F40 */
