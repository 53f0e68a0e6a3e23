//@ variants: static pie
//@ cflags: -O1
/* Signals sent by the program to itself: handlers and their returns are part of the count. */
#include "check.h"

static volatile int handled;
static sigjmp_buf back;
static void handler(int number, siginfo_t *info, void *context)
{
    (void)info, (void)context;
    handled++;
    if (number == SIGUSR2)
        siglongjmp(back, 1);
}

int main(void)
{
    on_signal(SIGUSR1, handler, 0);
    on_signal(SIGUSR2, handler, 0);
    signal(SIGWINCH, SIG_IGN);
    for (volatile int i = 0; i < 30; i++) {
        kill(getpid(), SIGUSR1);
        kill(getpid(), SIGWINCH);
        kill(getpid(), SIGURG);
        if (sigsetjmp(back, 1) == 0)
            raise(SIGUSR2);
    }
    CHECK_EQ(handled, 60, "signals");
    return done();
}
