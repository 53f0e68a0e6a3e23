//@ cflags: -O1
/* A process has the personality that it was given or has given itself: in children and behind exec too. */
#include "check.h"
#include <sys/personality.h>

static char self[4096];

static void tell(const char *where)
{
    char line[512] = "";
    FILE *file = fopen("/proc/self/stat", "r");
    MUST(file && fgets(line, sizeof line, file));
    fclose(file);
    unsigned flags = 0;
    MUST(sscanf(strrchr(line, ')') + 2, "%*c %*d %*d %*d %*d %*d %u", &flags) == 1);
    say("%s: %#x", where, personality(0xffffffff));
    /* It is that of the program that has been executed. */
    if (!strncmp(where, "at", 2) || !strncmp(where, "behind", 6))
        say("random layout: %d", !!(flags & 0x400000));
}

static void become(unsigned long persona)
{
    say("was %#x", personality(persona));
    tell("set");
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        tell("in a child");
        _exit(0);
    }
    MUST(waitpid(pid, &status, 0) == pid);
    execl(self, "personality", "again", (char *)NULL);
    _exit(1);
}

int main(int count, char **arguments)
{
    (void)arguments;
    if (count > 1) {
        tell("behind exec");
        return 0;
    }
    MUST(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    tell("at first");
    static const unsigned long all[] = {0, ADDR_NO_RANDOMIZE, ADDR_COMPAT_LAYOUT, STICKY_TIMEOUTS | WHOLE_SECONDS, PER_LINUX32};
    for (int i = 0; i < 5; i++) {
        int status = -1;
        pid_t pid = fork();
        if (pid == 0)
            become(all[i]);
        MUST(waitpid(pid, &status, 0) == pid);
        say("%#lx: %#x", all[i], status);
    }
    return done();
}
