//@ variants: pie static
//@ cflags: -O1
/* The same code bytes at two addresses: one writable, one executable. No fault ever tells of the
 * write. Also through a file, another process, and three mappings at once. */
#include "check.h"

static void emit(volatile unsigned char *at, int value)
{
    at[0] = 0xb8;
    for (int i = 0; i < 4; i++)
        at[1 + i] = value >> 8 * i;
    at[5] = 0xc3;
}

static void dual(void)
{
    int fd = memfd_create("jit", MFD_CLOEXEC);
    MUST(fd >= 0 && ftruncate(fd, 16384) == 0);
    unsigned char *writable = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    unsigned char *executable = mmap(NULL, 16384, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    unsigned char *executable_too = mmap(NULL, 16384, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    MUST(writable != MAP_FAILED && executable != MAP_FAILED && executable_too != MAP_FAILED);
    for (int i = 0; i < 2000; i++) {
        size_t at = i * 48 % 12000;
        emit(writable + at, i);
        CHECK_EQ(((int (*)(void))(executable + at))(), i, "round %d", i);
        CHECK_EQ(((int (*)(void))(executable_too + at))(), i, "the second view in round %d", i);
        if (check_failures)
            return;
    }
    for (int i = 0; i < 2000; i++) {
        emit(writable, i);
        CHECK_EQ(((int (*)(void))executable)(), i, "the same place, round %d", i);
        if (check_failures)
            return;
    }
    /* By write() to the file. */
    for (int i = 0; i < 500; i++) {
        unsigned char code[6] = {0xb8, i, i >> 8, 0, 0, 0xc3};
        MUST(pwrite(fd, code, 6, 4096) == 6);
        CHECK_EQ(((int (*)(void))(executable + 4096))(), i, "written to the file, round %d", i);
        if (check_failures)
            return;
    }
    close(fd);
}

static void other_process(void)
{
    unsigned char *writable = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(writable != MAP_FAILED);
    int to_child[2], to_parent[2];
    MUST(pipe(to_child) == 0 && pipe(to_parent) == 0);
    emit(writable, -1);
    CHECK_EQ(((int (*)(void))writable)(), -1, "before the child");
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        char byte;
        for (int i = 0; i < 100; i++) {
            MUST(read(to_child[0], &byte, 1) == 1);
            emit(writable, i);
            MUST(write(to_parent[1], "x", 1) == 1);
        }
        _exit(0);
    }
    for (int i = 0; i < 100; i++) {
        char byte;
        MUST(write(to_child[1], "x", 1) == 1);
        MUST(read(to_parent[0], &byte, 1) == 1);
        CHECK_EQ(((int (*)(void))writable)(), i, "code written by the child, round %d", i);
        if (check_failures)
            break;
    }
    close(to_child[1]);
    close(to_child[0]);
    waitpid(pid, NULL, 0);
}

static void relocated(void)
{
    /* mremap moves code that has run; the old place gets other code. */
    unsigned char *page = map_pages(4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    emit(page, 1);
    CHECK_EQ(((int (*)(void))page)(), 1, "at the first place");
    unsigned char *target = map_pages(4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    emit(target, 2);
    CHECK_EQ(((int (*)(void))target)(), 2, "what was at the target");
    MUST(mremap(page, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target);
    CHECK_EQ(((int (*)(void))target)(), 1, "code that was moved over other code");
    unsigned char *again = mmap(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    emit(again, 3);
    CHECK_EQ(((int (*)(void))again)(), 3, "new code at the old place");
}

int main(void)
{
    RUN(dual);
    RUN(other_process);
    RUN(relocated);
    return done();
}

/* Promise: F10 */
