//@ cflags: -O1
/* A process gives rights up after it has been made, in every way, and then overwrites what is mapped
 * in it of the virtual CPU's: its maker, which has kept them, must not notice. */
#include "boundaries.h"

static void user(void) { become_nobody(); }

static void capabilities(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {};
    MUST(syscall(SYS_capset, &header, none) == 0);
}

static void filter(void) { install_filter(); }

static void user_namespace(void)
{
    become_nobody();
    prctl(PR_SET_DUMPABLE, 1);
    if (unshare(CLONE_NEWUSER) != 0)
        return;
}

static void mount_namespace(void)
{
    MUST(unshare(CLONE_NEWNS) == 0);
    become_nobody();
}

static void root_directory(void)
{
    MUST(chroot("/proc") == 0);
    become_nobody();
}

/* Its answers are overwritten while its maker goes on asking. */
static void attack(const char *name, void (*give_up)(void), unsigned long flags)
{
    uint64_t contexts = mapping_with("memfd:lwp-contexts");
    pid_t child = make_process(flags);
    MUST(child >= 0);
    if (child == 0) {
        give_up();
        /* What it has of its own it may spoil as it likes. */
        if (contexts != 0)
            forge_answers((volatile uint64_t *)contexts, 0.1);
        _exit(0);
    }
    double end = now_seconds() + 0.15;
    while (now_seconds() < end) {
        make_code();
        usleep(50);
    }
    kill(child, SIGKILL);
    status_of(child);
    say("%s: its maker goes on", name);
}

static void all_ways(unsigned long flags)
{
    attack("user", user, flags);
    attack("capabilities", capabilities, flags);
    attack("filter", filter, flags);
    attack("user namespace", user_namespace, flags);
    attack("mount namespace", mount_namespace, flags);
    attack("root directory", root_directory, flags);
}

/* In a child each, because there is no way back. */
static void plain(void) { all_ways(0); }

static void under_a_filter(void)
{
    install_filter();
    all_ways(0);
}

static void with_shared_descriptors(void) { all_ways(CLONE_FILES); }

static void in_a_namespace(void)
{
    MUST(unshare(CLONE_NEWPID | CLONE_NEWNS) == 0);
    pid_t inner = make_process(0);
    if (inner == 0) {
        MUST(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
        MUST(mount("proc", "/proc", "proc", 0, NULL) == 0);
        attack("user in a process namespace", user, 0);
        _exit(0);
    }
    CHECK_EQ(status_of(inner), 0, "the first of the namespace");
}

static void without_descriptors(void)
{
    while (open("/dev/null", O_RDONLY) >= 0)
        ;
    /* The kernel's list cannot be opened any more, but it has been seen. */
    CHECK_EQ(errno, EMFILE, "all descriptors");
    for (int i = 0; i < 4; i++) {
        pid_t child = make_process(0);
        if (child == 0)
            _exit(7);
        CHECK_EQ(status_of(child), 0x700, "a child without descriptors");
    }
}

int main(void)
{
    need_root();
    CHECK_EQ(in_child(plain), 0, "plain");
    CHECK_EQ(in_child(under_a_filter), 0, "under a filter");
    CHECK_EQ(in_child(with_shared_descriptors), 0, "with shared descriptors");
    CHECK_EQ(in_child(in_a_namespace), 0, "in a namespace");
    CHECK_EQ(in_child(without_descriptors), 0, "without descriptors");
    return done();
}

/* Promise: B2 */
