//@ cflags: -O1
/* System calls with bad pointers fail with EFAULT and raise no signal; partial transfers stop where
 * memory ends; the kernel writes into pages of every kind. */
#include "check.h"
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/utsname.h>

static void faults(void)
{
    int ends[2];
    MUST(pipe(ends) == 0);
    MUST(write(ends[1], "0123456789", 10) == 10);
    char *none = map_pages(8192, PROT_NONE);
    MUST(mprotect(none, 4096, PROT_READ | PROT_WRITE) == 0);
    CHECK(write(ends[1], (void *)8, 4) == -1 && errno == EFAULT, "write from nowhere");
    CHECK(read(ends[0], (void *)8, 4) == -1 && errno == EFAULT, "read to nowhere");
    CHECK(read(ends[0], (void *)faults, 4) == -1 && errno == EFAULT, "read over the program's text");
    CHECK(uname((void *)0x1000) == -1 && errno == EFAULT, "uname");
    CHECK(stat((void *)0x10, NULL) == -1 && errno == EFAULT, "stat");
    CHECK(syscall(SYS_rt_sigaction, SIGUSR1, 8, 0, 8) == -1 && errno == EFAULT, "rt_sigaction");
    CHECK(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, 8) == -1 && errno == EFAULT, "clock_gettime");
    CHECK(syscall(SYS_execve, 8, 0, 0) == -1 && errno == EFAULT, "execve");
    CHECK(syscall(SYS_getrandom, 1ul << 63, 8, 0) == -1 && errno == EFAULT, "not canonical");
    struct iovec parts[2] = {{none + 4090, 6}, {none + 4096, 4}};
    while (fcntl(ends[0], F_GETFD) == 0 && read(ends[0], none, 1) == 1 && none[0] != '3')
        ;
    ssize_t got = readv(ends[0], parts, 2);
    CHECK(got == 6 || got == -1, "readv across the end gives %zd", got);
}

static void into_code(void)
{
    /* The kernel writes code that has run before: read, pread, recv, readv, and process_vm_writev. */
    unsigned char *page = map_pages(4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    int (*run)(void) = (int (*)(void))page;
    int file = memfd_create("code", 0);
    MUST(file >= 0);
    for (int i = 0; i < 60; i++) {
        unsigned char code[6] = {0xb8, i, 0, 0, 0, 0xc3};
        MUST(pwrite(file, code, 6, 0) == 6);
        lseek(file, 0, SEEK_SET);
        ssize_t got = 0;
        switch (i % 4) {
        case 0: got = read(file, page, 6); break;
        case 1: got = pread(file, page, 6, 0); break;
        case 2: {
            struct iovec part = {page, 6};
            got = readv(file, &part, 1);
            break;
        }
        case 3: {
            struct iovec from = {code, 6}, to = {page, 6};
            got = process_vm_writev(getpid(), &from, 1, &to, 1, 0);
            break;
        }
        }
        CHECK_EQ(got, 6, "way %d writes into a code page (%s)", i % 4, strerror(errno));
        CHECK_EQ(run(), i, "way %d: the new code runs", i % 4);
        if (check_failures)
            return;
    }
    struct utsname *names = (void *)(page + 1024);
    CHECK_EQ(uname(names), 0, "uname into a code page");
    CHECK(strcmp(names->sysname, "Linux") == 0, "its result");
    int memory = open("/proc/self/mem", O_RDWR);
    MUST(memory >= 0);
    for (int i = 0; i < 10; i++) {
        unsigned char code[6] = {0xb8, 100 + i, 0, 0, 0, 0xc3};
        CHECK_EQ(pwrite(memory, code, 6, (uintptr_t)page), 6, "/proc/self/mem");
        CHECK_EQ(run(), 100 + i, "code written through /proc/self/mem");
    }
    close(memory);
    close(file);
}

int main(void)
{
    RUN(faults);
    RUN(into_code);
    return done();
}
