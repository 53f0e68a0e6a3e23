//@ variants: pie static
/* A limit on data holds what the program has, and is shown as it was set. */
#include "check.h"
#include <sys/resource.h>

static struct rlimit limit_of(int resource)
{
    struct rlimit limit;
    MUST(getrlimit(resource, &limit) == 0);
    return limit;
}

/* Pieces of 64 KiB that there is room for. */
static int room(void)
{
    int pieces = 0;
    while (pieces < 10000
           && mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
        pieces++;
    return pieces;
}

static void shown(rlim_t bytes)
{
    char line[200], wanted[100];
    bool found = false;
    FILE *file = fopen("/proc/self/limits", "r");
    MUST(file);
    snprintf(wanted, sizeof wanted, "Max data size             %-21lu", (unsigned long)bytes);
    while (fgets(line, sizeof line, file))
        found |= strncmp(line, wanted, strlen(wanted)) == 0;
    fclose(file);
    CHECK(found, "the limit in /proc");
    CHECK_EQ(limit_of(RLIMIT_DATA).rlim_cur, bytes, "the limit");
}

int main(int argc, char **argv)
{
    (void)argc;
    enum { SET = 40 << 20 };
    if (getenv("EXECUTED") == NULL) {
        struct rlimit limit = limit_of(RLIMIT_DATA);
        limit.rlim_cur = SET;
        MUST(setrlimit(RLIMIT_DATA, &limit) == 0);
        shown(SET);
        pid_t child = fork();
        MUST(child >= 0);
        if (child == 0) {
            shown(SET);
            int pieces = room();
            CHECK(pieces > 630 && pieces <= 640, "pieces in a child: %d", pieces);
            _exit(check_failures);
        }
        int status;
        MUST(waitpid(child, &status, 0) == child);
        CHECK_EQ(status, 0, "the child");
        setenv("EXECUTED", "1", 1);
        execv(argv[0], argv);
        return 97;
    }
    shown(SET);
    int pieces = room();
    CHECK(pieces > 630 && pieces <= 640, "pieces after exec: %d", pieces);
    return done();
}

/* Promise: F14 */
