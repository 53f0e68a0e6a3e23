//@ variants: pie static
//@ cflags: -O1
/* Code that changes where nobody stores to it: in a private mapping of a file that is written to, or cut short, in
 * memory whose content is taken away, and wherever /proc/PID/mem reaches. */
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

/* A file that nobody has open for writing when it is mapped. */
static int closed_file(char *path, void **at)
{
    int fd = mkstemp(path);
    MUST(fd >= 0 && ftruncate(fd, 8192) == 0 && pwrite(fd, code, sizeof code, 0) == sizeof code);
    close(fd);
    fd = open(path, O_RDONLY);
    MUST(fd >= 0);
    *at = map_code(fd);
    close(fd);
    return open(path, O_RDWR);
}

static void opened_later(void)
{
    char path[] = "changed-XXXXXX", other[] = "changed-XXXXXX";
    void *at;
    int fd = closed_file(path, &at);
    MUST(fd >= 0 && pwrite(fd, "\7", 1, 1) == 1);
    CHECK_EQ(result_of(at), 7, "after pwrite");
    close(fd);
    munmap(at, 8192);
    unlink(path);

    fd = closed_file(other, &at);
    unsigned char *shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MUST(fd >= 0 && shared != MAP_FAILED);
    close(fd);
    for (int i = 8; i < 20; i++) {
        shared[1] = i;
        CHECK_EQ(result_of(at), i, "after a store to another mapping");
    }
    munmap(shared, 8192), munmap(at, 8192);
    unlink(other);
}

static void opened_by_child(void)
{
    char path[] = "changed-XXXXXX";
    void *at;
    int fd = closed_file(path, &at);
    MUST(fd >= 0);
    close(fd);
    CHECK_EQ(result_of(at), 1, "before");
    pid_t pid = fork();
    if (pid == 0) {
        fd = creat(path, 0600);
        _exit(fd < 0 || write(fd, "\xb8\5\0\0\0\xc3", 6) != 6);
    }
    int status;
    MUST(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK_EQ(result_of(at), 5, "after a child's write");
    munmap(at, 8192);
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

/* In the program itself, which is the kernel's to protect. */
__attribute__((noinline, noclone)) static int one(void)
{
    int value;
    __asm__ volatile("movl $1, %0" : "=a"(value));
    return value;
}

/* Where the operand of `one`'s instruction is. */
static off_t operand_of(void)
{
    const unsigned char *at = (const unsigned char *)one;
    for (int i = 0; i < 32; i++)
        if (at[i] == 0xb8 && memcmp(at + i + 2, "\0\0\0", 3) == 0)
            return (off_t)(uintptr_t)(at + i + 1);
    return 0;
}

static int memory_of(const char *path)
{
    int fd = open(path, O_RDWR);
    MUST(fd >= 0);
    return fd;
}

static void own_memory(void)
{
    off_t at = operand_of();
    MUST(at != 0);
    unsigned char *page = map_pages(8192, PROT_READ | PROT_WRITE);
    memcpy(page, code, sizeof code);
    MUST(mprotect(page, 8192, PROT_READ | PROT_EXEC) == 0);
    CHECK_EQ(result_of(page), 1, "before");
    CHECK_EQ(one(), 1, "before");
    const char *paths[] = {"/proc/self/mem", "/proc/thread-self/mem"};
    for (int p = 0; p < 2; p++) {
        int fd = memory_of(paths[p]);
        for (unsigned char i = 20 * p + 2; i < 20 * p + 12; i++) {
            MUST(pwrite(fd, &i, 1, at) == 1);
            CHECK_EQ(one(), i, "the program's own code");
            MUST(lseek(fd, (off_t)(uintptr_t)page + 1, SEEK_SET) > 0 && write(fd, &i, 1) == 1);
            CHECK_EQ(result_of(page), i, "code in memory of no file");
        }
        close(fd);
    }
    munmap(page, 8192);
}

static void memory_of_child(void)
{
    int ask[2], tell[2], value;
    char path[64], byte;
    off_t at = operand_of();
    MUST(at != 0 && pipe(ask) == 0 && pipe(tell) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(ask[1]);
        while (read(ask[0], &byte, 1) == 1) {
            value = one();
            if (write(tell[1], &value, sizeof value) != sizeof value)
                _exit(1);
        }
        _exit(0);
    }
    MUST(write(ask[1], "", 1) == 1 && read(tell[0], &value, sizeof value) == sizeof value);
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    int fd = memory_of(path);
    for (unsigned char i = 51; i < 60; i++) {
        MUST(pwrite(fd, &i, 1, at) == 1);
        MUST(write(ask[1], "", 1) == 1 && read(tell[0], &value, sizeof value) == sizeof value);
        CHECK_EQ(value, i, "a child's code");
    }
    CHECK(one() != 59, "only the child's");
    close(fd);
    close(ask[1]);
    int status;
    MUST(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0, "the child");
    close(ask[0]), close(tell[0]), close(tell[1]);
}

int main(void)
{
    RUN(written);
    RUN(written_by_path);
    RUN(opened_later);
    RUN(opened_by_child);
    RUN(stored);
    RUN(by_child);
    RUN(cut_short);
    RUN(thrown_away);
    RUN(own_memory);
    RUN(memory_of_child);
    return done();
}

/* Promise: F10 */
/* Promise: F10: by writes to its file, by any process of the run and through a descriptor of any age, and to */
/*   /proc/PID/mem */
