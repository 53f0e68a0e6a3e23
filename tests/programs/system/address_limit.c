//@ variants: pie static
//@ cflags: -O1
/* A program that limits its own address space: what a virtual CPU has reserved must not count. */
#include "check.h"
#include <sys/resource.h>

static void address_space(void)
{
    struct rlimit limit = {2ul << 30, RLIM_INFINITY};
    MUST(setrlimit(RLIMIT_AS, &limit) == 0);
    char *page = map_pages(65536, PROT_READ | PROT_WRITE | PROT_EXEC);
    memcpy(page, "\xb8\x2a\x00\x00\x00\xc3", 6);
    CHECK_EQ(((int (*)(void))page)(), 42, "generated code");
    char text[64];
    snprintf(text, sizeof text, "%a", 2.5);
    CHECK(mmap(NULL, 8ul << 30, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED, "the limit holds");
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", "exit 12", NULL);
        _exit(1);
    }
    int status;
    waitpid(pid, &status, 0);
    CHECK_EQ(status, 12 << 8, "exec under the limit");
}

int main(void)
{
    CHECK_EQ(in_child(address_space), 0, "RLIMIT_AS");
    return done();
}

/* Promise: F14 */
