//@ variants: pie static
//@ cflags: -O1
/* Code that changes where nobody stores to it: in a private mapping of a file that is written to, or cut short, and in
 * memory whose content is taken away. */
#include "check.h"

typedef int function(void);
static const unsigned char code[] = {0xb8, 1, 0, 0, 0, 0xc3};
static sigjmp_buf back;

static void on_fault(int number)
{
    siglongjmp(back, number);
}

/* What the code returns, or the negated number of the signal that it raises. */
static int result_of(void *at)
{
    signal(SIGSEGV, on_fault), signal(SIGBUS, on_fault), signal(SIGILL, on_fault);
    int number = sigsetjmp(back, 1);
    return number ? -number : ((function *)at)();
}

static int new_file(void)
{
    int fd = memfd_create("code", 0);
    MUST(fd >= 0 && ftruncate(fd, 8192) == 0 && pwrite(fd, code, sizeof code, 0) == sizeof code);
    return fd;
}

static void *map_code(int fd)
{
    void *at = mmap(NULL, 8192, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    MUST(at != MAP_FAILED);
    CHECK_EQ(result_of(at), 1, "before");
    return at;
}

static void written(void)
{
    int fd = new_file();
    void *at = map_code(fd);
    for (int i = 2; i < 50; i++) {
        unsigned char byte = i;
        MUST(pwrite(fd, &byte, 1, 1) == 1);
        CHECK_EQ(result_of(at), i, "after pwrite");
    }
    munmap(at, 8192);
    close(fd);
}

static void written_by_path(void)
{
    char path[] = "changed-XXXXXX";
    int fd = mkstemp(path);
    MUST(fd >= 0 && ftruncate(fd, 8192) == 0 && pwrite(fd, code, sizeof code, 0) == sizeof code);
    void *at = map_code(fd);
    MUST(pwrite(fd, "\7", 1, 1) == 1);
    CHECK_EQ(result_of(at), 7, "after pwrite");
    munmap(at, 8192);
    close(fd);
    unlink(path);
}

static void stored(void)
{
    int fd = new_file();
    unsigned char *other = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MUST(other != MAP_FAILED);
    void *at = map_code(fd);
    for (int i = 2; i < 50; i++) {
        other[1] = i;
        CHECK_EQ(result_of(at), i, "after a store to another mapping");
    }
    munmap(at, 8192), munmap(other, 8192);
    close(fd);
}

static void by_child(void)
{
    int fd = new_file();
    void *at = map_code(fd);
    pid_t pid = fork();
    if (pid == 0)
        _exit(pwrite(fd, "\5", 1, 1) != 1);
    MUST(waitpid(pid, NULL, 0) == pid);
    CHECK_EQ(result_of(at), 5, "after a child's pwrite");
    munmap(at, 8192);
    close(fd);
}

static void cut_short(void)
{
    int fd = new_file();
    void *at = map_code(fd);
    MUST(ftruncate(fd, 0) == 0);
    CHECK_EQ(result_of(at), -SIGBUS, "behind the file's end");
    munmap(at, 8192);
    close(fd);
}

static void thrown_away(void)
{
    unsigned char *at = map_pages(8192, PROT_READ | PROT_WRITE);
    memcpy(at, code, sizeof code);
    MUST(mprotect(at, 8192, PROT_READ | PROT_EXEC) == 0);
    CHECK_EQ(result_of(at), 1, "before");
    MUST(madvise(at, 8192, MADV_DONTNEED) == 0);
    /* Zeros are `add [rax], al`. */
    CHECK_EQ(result_of(at), -SIGSEGV, "after MADV_DONTNEED");
    munmap(at, 8192);
    int fd = new_file();
    at = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE, fd, 0);
    MUST(at != MAP_FAILED);
    at[1] = 7;
    CHECK_EQ(result_of(at), 7, "the copied page");
    MUST(mprotect(at, 8192, PROT_READ | PROT_EXEC) == 0);
    CHECK_EQ(result_of(at), 7, "the copied page, protected");
    MUST(madvise(at, 8192, MADV_DONTNEED) == 0);
    CHECK_EQ(result_of(at), 1, "the file's page again");
    munmap(at, 8192);
    close(fd);
}

int main(void)
{
    RUN(written);
    RUN(written_by_path);
    RUN(stored);
    RUN(by_child);
    RUN(cut_short);
    RUN(thrown_away);
    return done();
}
