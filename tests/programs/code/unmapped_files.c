//@ variants: pie
/* Code of a file that is no longer mapped: going there faults, and what is mapped there next is what
 * runs. */
#include "check.h"
#include <sys/stat.h>

static sigjmp_buf back;
static volatile uintptr_t fault_at, fault_rip;
static volatile int fault_code;

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)number;
    fault_at = (uintptr_t)info->si_addr;
    fault_code = info->si_code;
    fault_rip = regs_of(context)[REG_RIP];
    siglongjmp(back, 1);
}

/* A file whose only page is a function that returns `value`. */
static int file_returning(const char *name, int value)
{
    unsigned char code[4096] = {0xb8};
    memcpy(code + 1, &value, 4);
    code[5] = 0xc3;
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0700);
    MUST(fd >= 0 && write(fd, code, sizeof code) == sizeof code);
    close(fd);
    fd = open(name, O_RDONLY);
    MUST(fd >= 0);
    return fd;
}

typedef int getter(void);

static void expect_fault(getter *function, const char *what)
{
    fault_at = 0;
    if (!sigsetjmp(back, 1)) {
        function();
        CHECK(false, "%s is still executed", what);
        return;
    }
    CHECK_EQ(fault_at, (uintptr_t)function, "%s: si_addr", what);
    CHECK_EQ(fault_rip, (uintptr_t)function, "%s: rip", what);
    CHECK_EQ(fault_code, SEGV_MAPERR, "%s: si_code", what);
}

static void files(void)
{
    int one = file_returning("one.bin", 1), two = file_returning("two.bin", 2);
    void *place = NULL;
    for (int round = 0; round < 5; round++) {
        getter *first = mmap(place, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | (place ? MAP_FIXED : 0), one, 0);
        MUST(first != MAP_FAILED);
        place = first;
        for (int i = 0; i < 20; i++)
            CHECK_EQ(first(), 1, "the first file, round %d", round);
        MUST(munmap(place, 4096) == 0);
        expect_fault(first, "a file that was unmapped");
        getter *second = mmap(place, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, two, 0);
        MUST(second == first);
        for (int i = 0; i < 20; i++)
            CHECK_EQ(second(), 2, "the second file, round %d", round);
        /* Over it, without unmapping. */
        MUST(mmap(place, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, one, 0) == place);
        CHECK_EQ(first(), 1, "the first file again, round %d", round);
        MUST(munmap(place, 4096) == 0);
        expect_fault(first, "a file that was unmapped again");
    }
    close(one);
    close(two);
}

static void moved(void)
{
    int one = file_returning("three.bin", 3);
    getter *first = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, one, 0);
    void *elsewhere = map_pages(4096, PROT_NONE);
    CHECK_EQ(first(), 3, "before it is moved");
    getter *second = mremap((void *)first, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, elsewhere);
    MUST((void *)second == elsewhere);
    CHECK_EQ(second(), 3, "after it is moved");
    expect_fault(first, "where it was before");
    munmap((void *)second, 4096);
    expect_fault(second, "the moved one, unmapped");
    close(one);
}

static int called_from_thread;
static void *caller(void *function)
{
    called_from_thread = ((getter *)function)();
    return NULL;
}

/* Another thread unmaps. */
static void *unmapper(void *at)
{
    munmap(at, 4096);
    return NULL;
}

static void by_threads(void)
{
    int one = file_returning("four.bin", 4);
    getter *first = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, one, 0);
    CHECK_EQ(first(), 4, "in this thread");
    pthread_t thread;
    pthread_create(&thread, NULL, caller, (void *)first);
    pthread_join(thread, NULL);
    CHECK_EQ(called_from_thread, 4, "in another thread");
    pthread_create(&thread, NULL, unmapper, (void *)first);
    pthread_join(thread, NULL);
    expect_fault(first, "a file that another thread unmapped");
    close(one);
}

/* A child's unmapping does not concern its parent. */
static void in_a_child(void)
{
    int one = file_returning("five.bin", 5);
    getter *first = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, one, 0);
    CHECK_EQ(first(), 5, "before the fork");
    pid_t child = fork();
    if (child == 0) {
        CHECK_EQ(first(), 5, "in the child");
        munmap((void *)first, 4096);
        expect_fault(first, "unmapped in the child");
        _exit(check_failures ? 1 : 0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0, "the child");
    CHECK_EQ(first(), 5, "after the child's unmapping");
    munmap((void *)first, 4096);
    expect_fault(first, "unmapped in the parent");
    close(one);
}

int main(void)
{
    on_signal(SIGSEGV, on_fault, SA_NODEFER);
    RUN(files);
    RUN(moved);
    RUN(by_threads);
    RUN(in_a_child);
    return done();
}

/* Promise: F10 */
/* Promise: F10: a file's code after munmap */
