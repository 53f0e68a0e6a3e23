//@ variants: pie static
//@ compare: expectation
//@ cflags: -O1
/* A seccomp filter that judges a call by the address it comes from. Translated code makes its calls from
 * elsewhere, and the kernel offers no way to tell the filter otherwise: documented, so only both forms
 * of the outcome are checked. */
#include "check.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))

static void install(struct sock_filter *filter, size_t count)
{
    struct sock_fprog program = {count, filter};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
}
__asm__(".text\n.globl gate_call, gate_next\ngate_call: movl $39, %eax\n syscall\ngate_next: ret\n");
long gate_call(void);
extern char gate_next[];
static void by_address(void)
{
    uint32_t low = (uintptr_t)gate_next, high = (uintptr_t)gate_next >> 32;
    struct sock_filter filter[] = {
        LOAD(nr), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpid, 1, 0), ALLOW,
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, low, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer) + 4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, high, 0, 1), ALLOW,
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)};
    install(filter, sizeof filter / sizeof *filter);
    long gate = gate_call(), other = syscall(SYS_getpid);
    _exit(gate > 0 ? other == -1 ? 23 : 24 : 25);
}

int main(void)
{
    int status = in_child(by_address);
    CHECK(status == 23 << 8 || status == 25 << 8, "status %#x", status);
    say("# %s", status == 23 << 8 ? "the address is the program's" : "the address is the translation's");
    return done();
}

/* Promise: B2 */
