//@ cflags: -O1
/* Daemons: double fork, a new session, and life beyond the parent; the virtual CPU must keep such a
 * process running after the first program has ended, and the last output must still arrive. */
#include "check.h"

int main(void)
{
    int ends[2];
    MUST(pipe(ends) == 0);
    for (int i = 0; i < 5; i++) {
        pid_t pid = fork();
        MUST(pid >= 0);
        if (pid == 0) {
            setsid();
            if (fork() != 0)
                _exit(0);
            close(ends[0]);
            usleep(30000 + i * 10000);
            CHECK(getsid(0) != getpid(), "not a session leader");
            char message[32];
            int length = snprintf(message, sizeof message, "daemon %d %d\n", i, check_failures);
            MUST(write(ends[1], message, length) == length);
            _exit(0);
        }
        int status;
        MUST(waitpid(pid, &status, 0) == pid);
        CHECK_EQ(status, 0, "the middle process");
    }
    close(ends[1]);
    FILE *from = fdopen(ends[0], "r");
    char line[64];
    int count = 0;
    while (fgets(line, sizeof line, from)) {
        CHECK(strstr(line, " 0\n") != NULL, "%s", line);
        count++;
    }
    CHECK_EQ(count, 5, "daemons that reported");
    /* One more that outlives the program itself by a little. */
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        usleep(150000);
        say("after the end");
        _exit(0);
    }
    return done();
}

/* Promise: F9 */
