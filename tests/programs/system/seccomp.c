//@ variants: pie static
//@ cflags: -O1
/* Programs that put themselves under seccomp: strict mode, filters that deny, trap, and kill;
 * calls that the program did not make must not be held against it. */
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

/* exit_group is not allowed in strict mode: the raw call is. */
static void leave(int code)
{
    syscall(SYS_exit, code);
}

static void strict(void)
{
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
    int sum = cold_work(5);
    say("strict %d", sum);
    leave(sum == 0 ? 1 : 21);
}

static void strict_violation(void)
{
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
    cold_work(6);
    syscall(SYS_getpid);
    leave(1);
}

#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
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

static void denying(void)
{
    INSTALL(LOAD(nr), IF_NUMBER(SYS_getppid, SECCOMP_RET_ERRNO | 77), IF_NUMBER(SYS_mkdir, SECCOMP_RET_ERRNO | EROFS), ALLOW);
    for (int i = 0; i < 50; i++) {
        CHECK(syscall(SYS_getppid) == -1 && errno == 77, "getppid is denied");
        CHECK(syscall(SYS_mkdir, "folder", 0700) == -1 && errno == EROFS, "mkdir is denied");
        CHECK(syscall(SYS_getpid) > 0, "getpid is allowed");
    }
    CHECK(cold_work(7) != 0, "work");
    pid_t pid = fork();
    if (pid == 0)
        _exit(syscall(SYS_getppid) == -1 && errno == 77 ? 0 : 1);
    int status = -1;
    waitpid(pid, &status, 0);
    CHECK_EQ(status, 0, "a child inherits the filter");
    char *page = map_pages(4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    memcpy(page, "\xb8\x2a\x00\x00\x00\xc3", 6);
    CHECK_EQ(((int (*)(void))page)(), 42, "generated code");
}

static volatile int trapped, trapped_number;
static volatile uintptr_t trapped_call, trapped_rip;
static void on_sys(int number, siginfo_t *info, void *context)
{
    trapped++;
    trapped_number = info->si_syscall;
    trapped_call = (uintptr_t)info->si_call_addr;
    trapped_rip = regs_of(context)[REG_RIP];
    CHECK_EQ(number, SIGSYS, "signal");
    CHECK_EQ(info->si_code, 1, "SYS_SECCOMP");
    CHECK_EQ(info->si_errno, 5, "data of the filter");
    CHECK_EQ(info->si_arch, AUDIT_ARCH_X86_64, "architecture");
    regs_of(context)[REG_RAX] = 4242;
}
__asm__(".text\n.globl trap_call, trap_next\ntrap_call: movl $110, %eax\n syscall\ntrap_next: ret\n");
long trap_call(void);
extern char trap_next[];

static void trapping(void)
{
    on_signal(SIGSYS, on_sys, 0);
    INSTALL(LOAD(nr), IF_NUMBER(SYS_getppid, SECCOMP_RET_TRAP | 5), ALLOW);
    for (int i = 0; i < 50; i++) {
        trapped = 0;
        CHECK_EQ(trap_call(), 4242, "the handler's result");
        CHECK_EQ(trapped, 1, "SIGSYS");
        CHECK_EQ(trapped_number, SYS_getppid, "si_syscall");
        CHECK_EQ(trapped_call, (uintptr_t)trap_next, "si_call_addr");
        CHECK_EQ(trapped_rip, (uintptr_t)trap_next, "rip");
    }
}

static void killing(void)
{
    INSTALL(LOAD(nr), IF_NUMBER(SYS_getppid, SECCOMP_RET_KILL_PROCESS), ALLOW);
    cold_work(8);
    syscall(SYS_getppid);
    say("not reached");
}

int main(void)
{
    CHECK_EQ(in_child(strict), 21 << 8, "strict mode");
    CHECK_EQ(in_child(strict_violation) & 0x7f, SIGKILL, "a forbidden call in strict mode");
    CHECK_EQ(in_child(denying), 0, "a filter that denies");
    CHECK_EQ(in_child(trapping), 0, "a filter that traps");
    CHECK_EQ(in_child(killing) & 0x7f, SIGSYS, "a filter that kills");
    CHECK_EQ(prctl(PR_GET_SECCOMP), 0, "this process has none");
    return done();
}

/* Promise: B2 */
