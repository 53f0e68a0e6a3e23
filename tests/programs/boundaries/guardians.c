//@ cflags: -O1
/* The virtual CPU lets processes control others of the same rights. Rights in a user namespace of
 * one's own are none outside of it. */
#include "boundaries.h"
#include <sys/eventfd.h>

enum { TAKE = 0x6c777001, STOP = 0x6c777003 };


static void attacker(void)
{
    pid_t root = getppid();
    become_nobody();
    MUST(prctl(PR_SET_DUMPABLE, 1) == 0);
    int bell = eventfd(0, EFD_NONBLOCK);
    bool inside = unshare(CLONE_NEWUSER) == 0;
    CHECK_EQ(syscall(SYS_ptrace, TAKE, root, (long)bell, 1L), -1, "in a namespace: %d", inside);
    syscall(SYS_ptrace, STOP, root, 0L, 0L);
    _exit(check_failures ? 97 : 0);
}

int main(void)
{
    need_root();
    CHECK_EQ(in_child(attacker), 0, "the attacker");
    for (int i = 0; i < 20; i++) {
        usleep(10000);
        make_code();
    }
    return done();
}

/* Promise: B10 */
