//@ variants: pie static
//@ cflags: -O1
/* A filter that allows three system calls and kills for every other: what the virtual CPU itself needs from
 * the program's process must not be among the rest. */
#include "check.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

static int cold_work(int x)
{
    char text[100];
    snprintf(text, sizeof text, "%.10f %x %s", x / 3.0, x * 77, "first time");
    int sum = 0;
    for (char *p = text; *p; p++)
        sum += *p;
    return sum;
}

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define IF_NUMBER(number, action) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, action)

static void install(struct sock_filter *filter, size_t count)
{
    struct sock_fprog program = {count, filter};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
}
#define INSTALL(...)                                                                               \
    do {                                                                                           \
        struct sock_filter filter[] = {__VA_ARGS__};                                               \
        install(filter, sizeof filter / sizeof *filter);                                           \
    } while (0)

static void allow_list(void)
{
    void *page = map_pages(4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    memcpy(page, "\xb8\x2a\x00\x00\x00\xc3", 6);
    INSTALL(LOAD(arch), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
            LOAD(nr), IF_NUMBER(SYS_write, SECCOMP_RET_ALLOW), IF_NUMBER(SYS_exit_group, SECCOMP_RET_ALLOW), IF_NUMBER(SYS_exit, SECCOMP_RET_ALLOW),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
    CHECK(cold_work(9) != 0, "code that runs for the first time");
    CHECK_EQ(((int (*)(void))page)(), 42, "generated code");
    say("allow list");
    _exit(check_failures ? 1 : 22);
}

/* What is allowed is not made into another call, which is not. */
static void restartable(void)
{
    INSTALL(LOAD(nr), IF_NUMBER(SYS_rseq, SECCOMP_RET_ALLOW), IF_NUMBER(SYS_munmap, SECCOMP_RET_ALLOW),
            IF_NUMBER(SYS_prlimit64, SECCOMP_RET_ALLOW), IF_NUMBER(SYS_mprotect, SECCOMP_RET_ALLOW),
            IF_NUMBER(SYS_write, SECCOMP_RET_ALLOW), IF_NUMBER(SYS_exit_group, SECCOMP_RET_ALLOW),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
    static char here[4096];
    CHECK(syscall(SYS_rseq, here, 32, 0, 0) != 0 || here[0] == 0, "rseq");
    CHECK(syscall(SYS_prlimit64, 0, 7, 0, here) == 0, "prlimit64");
    CHECK(syscall(SYS_munmap, 1, 4096) != 0, "munmap of no page");
    CHECK(syscall(SYS_mprotect, 1, 4096, 0) != 0, "mprotect of no page");
    _exit(check_failures ? 1 : 23);
}

int main(void)
{
    CHECK_EQ(in_child(allow_list), 22 << 8, "a filter that allows three calls");
    CHECK_EQ(in_child(restartable), 23 << 8, "a filter that allows calls that the virtual CPU answers or watches");
    return done();
}

/* Promise: B2 */
