//@ compare: expectation
//@ cflags: -O1 -pthread
/* Restartable sequences are refused on the virtual CPU with ENOSYS (documented): their abort addresses
 * would be compared with translated ones. The C library must work either way. */
#include "check.h"
#include <sys/auxv.h>

static void *thread(void *argument)
{
    return (void *)(intptr_t)(sched_getcpu() >= 0);
}

int main(void)
{
    static char area[1024] __attribute__((aligned(256)));
    memset(area, 0, sizeof area);
    long result = syscall(SYS_rseq, area, 32, 0, 0x53053053);
    int error = result == 0 ? 0 : errno;
    /* Natively the C library has registered its own area already: EINVAL or EBUSY, or none: success. */
    CHECK(error == 0 || error == ENOSYS || error == EINVAL || error == EBUSY || error == EPERM, "rseq: %s", strerror(error));
    CHECK(sched_getcpu() >= 0, "sched_getcpu");
    for (int i = 0; i < 20; i++) {
        pthread_t id;
        void *fine = NULL;
        MUST(pthread_create(&id, NULL, thread, NULL) == 0);
        pthread_join(id, &fine);
        CHECK(fine != NULL, "sched_getcpu in a thread");
    }
    say("# rseq: %s", strerror(error));
    return done();
}
