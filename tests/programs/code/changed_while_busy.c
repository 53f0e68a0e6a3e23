//@ cflags: -O1 -pthread -D_GNU_SOURCE
/* Code that is changed and called at once, now and then, by a thread, while another one starts programs all the time:
 * a write waits until its notice has been taken, however long something else takes. */
#include <spawn.h>

#include "check.h"

enum { FUNCTIONS = 16, CHANGES = 150 };

static atomic_int over, started;

static void *starter(void *argument)
{
    char *words[] = {"true", NULL}, *nothing[] = {NULL};
    while (!atomic_load(&over)) {
        pid_t pid;
        int status = -1;
        MUST(posix_spawn(&pid, "/bin/true", NULL, NULL, words, nothing) == 0);
        MUST(waitpid(pid, &status, 0) == pid && status == 0);
        atomic_fetch_add(&started, 1);
    }
    return argument;
}

int main(void)
{
    unsigned char *page = map_pages(4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    for (int i = 0; i < FUNCTIONS; i++)
        memcpy(page + i * 16, "\xb8\0\0\0\0\xc3", 6); /* mov eax, 0; ret */
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, starter, NULL) == 0);
    for (int i = 1; i <= CHANGES; i++) {
        unsigned char *function = page + i % FUNCTIONS * 16;
        ((int (*)(void))function)();
        /* Not so often that the page is taken for one that changes all the time. */
        usleep(12000);
        ((int (*)(void))function)();
        memcpy(function + 1, &i, 4);
        CHECK_EQ(((int (*)(void))function)(), i, "change %d", i);
    }
    atomic_store(&over, 1);
    MUST(pthread_join(thread, NULL) == 0);
    CHECK(started > 0, "programs were started");
    return done();
}

/* Promise: F10 */
/* Promise: F10: while the host is busy */
/* Promise: F27: code that changes */
