//@ cflags: -O1
/* A process has the personality that it was given or has given itself: in children and behind exec too. */
#include "check.h"
#include <sys/personality.h>

static char self[4096];

/* What /proc tells of a process. */
static const char *told_by(const char *process)
{
    static char line[64];
    char path[64];
    sprintf(path, "/proc/%s/personality", process);
    FILE *file = fopen(path, "r");
    if (!file)
        return strerror(errno);
    MUST(fgets(line, sizeof line, file));
    fclose(file);
    line[strcspn(line, "\n")] = 0;
    return line;
}

/* The call by INT 0x80; -38 where the kernel has no such calls. */
static sigjmp_buf back;
static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    siglongjmp(back, 1);
}

static long by_int80(unsigned long persona)
{
    long result, own = persona | 0x500000000;
    if (sigsetjmp(back, 1))
        return -38;
    asm volatile("int $0x80" : "=a"(result), "+b"(own) : "a"(136) : "r8", "r9", "r10", "r11", "memory");
    CHECK(own == (long)(persona | 0x500000000), "rbx is %#lx", own);
    return result;
}

static void tell(const char *where)
{
    char line[512] = "";
    FILE *file = fopen("/proc/self/stat", "r");
    MUST(file && fgets(line, sizeof line, file));
    fclose(file);
    unsigned flags = 0;
    MUST(sscanf(strrchr(line, ')') + 2, "%*c %*d %*d %*d %*d %*d %u", &flags) == 1);
    say("%s: %#x, %s", where, personality(0xffffffff), told_by("self"));
    /* It is that of the program that has been executed. */
    if (!strncmp(where, "at", 2) || !strncmp(where, "behind", 6))
        say("random layout: %d", !!(flags & 0x400000));
}

static void become(unsigned long persona)
{
    say("was %#x", personality(persona));
    tell("set");
    say("by INT 0x80: %#lx, was %#lx", by_int80(0xffffffff), by_int80(persona));
    tell("set again");
    char parent[16];
    sprintf(parent, "%d", getppid());
    say("its parent's: %s", told_by(parent));
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
    on_signal(SIGSEGV, on_fault, 0);
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

/* Promise: F33: in /proc and by INT 0x80 too */
