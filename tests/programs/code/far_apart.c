//@ variants: pie static
/* Code far away from program and libraries, in processes that have parted before it is executed: what one of
 * them is given to execute it is not there for the others. */
#include "check.h"

typedef int function(void);
static unsigned char *far;

static void write_code(int value)
{
    unsigned char code[] = {0xb8, value, 0, 0, 0, 0xc3};
    MUST(mprotect(far, 4096, PROT_READ | PROT_WRITE) == 0);
    memcpy(far, code, sizeof code);
    MUST(mprotect(far, 4096, PROT_READ | PROT_EXEC) == 0);
}

static void map_far(int where)
{
    far = mmap((void *)(0x200000000000ul + ((uintptr_t)where << 36)), 4096, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    MUST(far != MAP_FAILED);
}

static void run(int value)
{
    write_code(value);
    for (int i = 0; i < 10; i++)
        CHECK_EQ(((function *)far)(), value, "process %d", value);
}

/* The child is there before its parent executes the code, and executes it afterwards. */
static void parent_first(void)
{
    int go[2];
    MUST(pipe(go) == 0);
    map_far(1);
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        MUST(read(go[0], &byte, 1) == 1);
        run(2);
        _exit(check_failures ? 1 : 0);
    }
    run(1);
    MUST(write(go[1], "", 1) == 1);
    int status = -1;
    MUST(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0, "the child's end");
    run(3);
}

static void child_first(void)
{
    map_far(2);
    pid_t pid = fork();
    if (pid == 0) {
        run(4);
        _exit(check_failures ? 1 : 0);
    }
    int status = -1;
    MUST(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0, "the child's end");
    run(5);
}

/* Both make something of their own at the other's place, and go on where they were before. */
static void crosswise(void)
{
    int there[2], back[2];
    char byte;
    MUST(pipe(there) == 0 && pipe(back) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        map_far(3);
        run(6);
        MUST(write(there[1], "", 1) == 1);
        MUST(read(back[0], &byte, 1) == 1);
        map_far(4);
        run(7);
        _exit(check_failures ? 1 : 0);
    }
    MUST(read(there[0], &byte, 1) == 1);
    map_far(4);
    run(8);
    map_far(3);
    run(9);
    MUST(write(back[1], "", 1) == 1);
    int status = -1;
    MUST(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0, "the child's end");
}

/* Something is mapped beside far code and unmapped all the time, while the code is executed for the first
 * time: what was room a moment ago is none any more. */
static volatile int over;
static void *mapper(void *unused)
{
    (void)unused;
    uintptr_t around = (uintptr_t)far & ~0x1ffffful;
    void *places[] = {(void *)(around - (128ul << 20)), (void *)(around + (130ul << 20))};
    while (!over) {
        for (int i = 0; i < 2; i++)
            mmap(places[i], 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        for (int i = 0; i < 2; i++)
            munmap(places[i], 4096);
    }
    return NULL;
}

static void crowded(void)
{
    for (int round = 0; round < 2; round++) {
        map_far(6 + round);
        over = 0;
        pthread_t thread;
        MUST(pthread_create(&thread, NULL, mapper, NULL) == 0);
        usleep(2000);
        run(11 + round);
        over = 1;
        pthread_join(thread, NULL);
    }
}

/* Many threads come to far code at the same time. */
static void *thread(void *count)
{
    for (int i = 0; i < 1000; i++)
        if (((function *)far)() != 10)
            ++*(int *)count;
    return NULL;
}

static void threads(void)
{
    map_far(5);
    write_code(10);
    pthread_t threads[4];
    int wrong[4] = {0};
    for (int i = 0; i < 4; i++)
        MUST(pthread_create(&threads[i], NULL, thread, &wrong[i]) == 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ(wrong[i], 0, "thread %d", i);
    }
}

int main(void)
{
    RUN(crowded);
    RUN(parent_first);
    RUN(child_first);
    RUN(crosswise);
    RUN(threads);
    return done();
}

/* Promise: F10 */
/* Promise: F10: far from everything else, by many threads and processes */
