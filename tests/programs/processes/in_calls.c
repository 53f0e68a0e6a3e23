//@ variants: pie static
//@ cflags: -O1
/* /proc/PID/syscall and wchan tell of other threads and processes which calls they are in, and from where: as natively,
 * at the program's own code. */
#include "check.h"

static volatile int tid, ended;
static int ends[2], word;

static void *reads(void *argument)
{
    char byte;
    tid = gettid();
    MUST(read(ends[0], &byte, 1) == 1);
    return argument;
}

static void *waits(void *argument)
{
    tid = gettid();
    syscall(SYS_futex, &word, 0, 0, NULL);
    return argument;
}

static void *runs(void *argument)
{
    tid = gettid();
    while (!ended)
        ;
    return argument;
}

static void text_of(int process, const char *name, char *text)
{
    char path[64];
    sprintf(path, "/proc/%d/%s", process, name);
    int fd = open(path, O_RDONLY), bytes = fd < 0 ? -1 : (int)read(fd, text, 255);
    if (bytes < 0)
        bytes = sprintf(text, "%s", strerror(errno));
    text[bytes] = 0;
    text[strcspn(text, "\n")] = 0;
    close(fd);
}

/* Whether it is in a file that is mapped here. */
static bool in_a_file(unsigned long address)
{
    char line[512];
    unsigned long start, end;
    bool found = false;
    FILE *file = fopen("/proc/self/maps", "r");
    MUST(file);
    while (fgets(line, sizeof line, file))
        found |= sscanf(line, "%lx-%lx", &start, &end) == 2 && start <= address && address < end && strchr(line, '/');
    fclose(file);
    return found;
}

/* The call that a thread or process is in; until it is in this one. */
static void tell(const char *what, int process, long wanted)
{
    char text[256];
    unsigned long number, words[6], stack, pc;
    double until = patience();
    do {
        text_of(process, "syscall", text);
        int found = sscanf(text, "%lu %lx %lx %lx %lx %lx %lx %lx %lx", &number, words, words + 1, words + 2, words + 3,
                           words + 4, words + 5, &stack, &pc);
        if (found == 9 && (long)number == wanted)
            break;
        sched_yield();
    } while (now_seconds() < until);
    if (!strchr(text, ' ')) {
        say("%s: %s", what, text);
        return;
    }
    const unsigned char *behind = (const unsigned char *)pc;
    say("%s: call %lu, of a file: %d, behind a system call instruction: %d", what, number, in_a_file(pc),
        behind[-2] == 0x0f && behind[-1] == 0x05);
    CHECK(wanted != SYS_read || words[0] == (unsigned long)ends[0], "%s: %s", what, text);
    CHECK(wanted != SYS_futex || words[0] == (unsigned long)&word, "%s: %s", what, text);
    text_of(process, "wchan", text);
    say("%s: waits in %s", what, text);
}

static pthread_t start(void *(*function)(void *))
{
    pthread_t thread;
    tid = 0;
    MUST(pthread_create(&thread, NULL, function, NULL) == 0);
    double until = patience();
    while (tid == 0 && now_seconds() < until)
        sched_yield();
    return thread;
}

int main(void)
{
    char text[256];
    MUST(pipe(ends) == 0);
    pthread_t thread = start(reads);
    tell("a reader", tid, SYS_read);
    MUST(write(ends[1], "x", 1) == 1 && pthread_join(thread, NULL) == 0);
    thread = start(waits);
    tell("a waiter", tid, SYS_futex);
    word = 1;
    while (syscall(SYS_futex, &word, 1, 1, NULL) != 1)
        sched_yield();
    MUST(pthread_join(thread, NULL) == 0);
    pid_t child = fork();
    if (child == 0) {
        for (;;)
            pause();
    }
    tell("a child", child, SYS_pause);
    MUST(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    thread = start(runs);
    text_of(tid, "syscall", text);
    say("one that runs: %s", text);
    text_of(tid, "wchan", text);
    say("one that runs waits in %s", text);
    ended = 1;
    MUST(pthread_join(thread, NULL) == 0);
    text_of(getpid(), "syscall", text);
    say("itself: %.2s", text);
    return done();
}

/* Promise: F9, F22 */
