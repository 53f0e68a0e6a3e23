/* Runs a program as container engines do: without the system calls that their documented default profile
 * refuses, with no new privileges, and, where its first argument says so, without more.
 *
 *     contained MODE PROGRAM [ARGUMENT]...
 *
 * MODE is "default"; "old", as on kernels before 4.8, where tracing was refused too; or "noread", where
 * only reading and writing the memory of others is. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* With EPERM, whatever the arguments are. */
static const int refused[] = {
    SYS_acct, SYS_add_key, SYS_bpf, SYS_clock_adjtime, SYS_clock_settime, SYS_delete_module,
    SYS_finit_module, SYS_fsconfig, SYS_fsmount, SYS_fsopen, SYS_fspick, SYS_get_mempolicy,
    SYS_init_module, SYS_io_uring_enter, SYS_io_uring_register, SYS_io_uring_setup, SYS_ioperm, SYS_iopl,
    SYS_kexec_file_load, SYS_kexec_load, SYS_keyctl, SYS_lookup_dcookie, SYS_mbind, SYS_mount,
    SYS_mount_setattr, SYS_move_mount, SYS_move_pages, SYS_name_to_handle_at, SYS_open_by_handle_at,
    SYS_open_tree, SYS_perf_event_open, SYS_pivot_root, SYS_quotactl, SYS_reboot, SYS_request_key,
    SYS_set_mempolicy, SYS_setns, SYS_settimeofday, SYS_swapoff, SYS_swapon, SYS_syslog, SYS_sysfs,
    SYS_umount2, SYS_unshare, SYS_userfaultfd, SYS_ustat, SYS_vhangup,
};
static const int tracing[] = {SYS_ptrace, SYS_kcmp};
static const int memory[] = {SYS_process_vm_readv, SYS_process_vm_writev};

static struct sock_filter filter[256];
static unsigned short length;

static void add(unsigned short code, unsigned jt, unsigned jf, unsigned k)
{
    filter[length++] = (struct sock_filter){code, (unsigned char)jt, (unsigned char)jf, k};
}

static void answer(unsigned result)
{
    add(BPF_RET | BPF_K, 0, 0, result);
}

static void load(size_t offset)
{
    add(BPF_LD | BPF_W | BPF_ABS, 0, 0, (unsigned)offset);
}

static void refuse(const int *calls, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        add(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, (unsigned)calls[i]);
        answer(SECCOMP_RET_ERRNO | EPERM);
    }
}
#define REFUSE(calls) refuse(calls, sizeof calls / sizeof *calls)

int main(int argc, char **argv)
{
    if (argc < 3)
        return 125;
    load(offsetof(struct seccomp_data, nr));
    /* The C library falls back to clone, whose flags a filter can see. */
    add(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_clone3);
    answer(SECCOMP_RET_ERRNO | ENOSYS);
    REFUSE(refused);
    if (!strcmp(argv[1], "old"))
        REFUSE(tracing);
    if (strcmp(argv[1], "default"))
        REFUSE(memory);
    /* personality: the plain ones and the question only. */
    static const unsigned plain[] = {0, 8, 0x20000, 0x20008, 0xffffffff};
    add(BPF_JMP | BPF_JEQ | BPF_K, 0, 2 + 5, SYS_personality);
    load(offsetof(struct seccomp_data, args[0]));
    for (unsigned i = 0; i < 5; i++)
        add(BPF_JMP | BPF_JEQ | BPF_K, 5 - i, 0, plain[i]);
    answer(SECCOMP_RET_ERRNO | EPERM);
    load(offsetof(struct seccomp_data, nr));
    /* No new namespaces by clone. */
    add(BPF_JMP | BPF_JEQ | BPF_K, 0, 3, SYS_clone);
    load(offsetof(struct seccomp_data, args[0]));
    add(BPF_JMP | BPF_JSET | BPF_K, 0, 1, CLONE_NEWNS | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET);
    answer(SECCOMP_RET_ERRNO | EPERM);
    answer(SECCOMP_RET_ALLOW);

    struct sock_fprog program = {length, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) {
        perror("contained: seccomp");
        return 125;
    }
    /* It must bite. */
    errno = 0;
    if (personality(ADDR_NO_RANDOMIZE) != -1 || errno != EPERM || syscall(SYS_perf_event_open, 0, 0, 0, 0, 0) != -1 ||
        errno != EPERM) {
        fprintf(stderr, "contained: the filter does not hold\n");
        return 125;
    }
    execvp(argv[2], argv + 2);
    perror(argv[2]);
    return 127;
}
