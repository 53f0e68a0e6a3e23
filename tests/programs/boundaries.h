/* For programs of two users: one tries to get at the other by what the virtual CPU has in their
 * processes. Natively there is nothing of the kind, so they print the same, whatever they find. */
#ifndef BOUNDARIES_H
#define BOUNDARIES_H

#include "check.h"
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define NOBODY 65534

/* Ends the program where it has nothing to say: it takes root to be two users. */
__attribute__((unused)) static void need_root(void)
{
    if (geteuid() != 0) {
        say("ok");
        _exit(0);
    }
}

__attribute__((unused)) static void become_nobody(void)
{
    MUST(setgroups(0, NULL) == 0);
    MUST(setgid(NOBODY) == 0);
    MUST(setuid(NOBODY) == 0);
}

/* A filter that lets everything pass, as every container has one. */
__attribute__((unused)) static void install_filter(void)
{
    struct sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog filter = {1, code};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0);
}

/* Opens the kernel's own list of mappings, under a name that does not give it away. */
__attribute__((unused)) static FILE *kernel_maps(void)
{
    char name[64];
    snprintf(name, sizeof name, "/tmp/lwp-link-%d", (int)syscall(SYS_gettid));
    unlink(name);
    MUST(symlink("/proc/self/maps", name) == 0);
    FILE *file = fopen(name, "r");
    unlink(name);
    MUST(file != NULL);
    return file;
}

/* The address of the first mapping whose line has `word` in it; 0 without one. */
__attribute__((unused)) static uint64_t mapping_with(const char *word)
{
    char line[512];
    uint64_t found = 0;
    FILE *maps = kernel_maps();
    while (found == 0 && fgets(line, sizeof line, maps))
        if (strstr(line, word))
            found = strtoull(line, NULL, 16);
    fclose(maps);
    return found;
}

/* The end of that mapping. */
__attribute__((unused)) static uint64_t mapping_end(const char *word)
{
    char line[512];
    uint64_t found = 0;
    FILE *maps = kernel_maps();
    while (found == 0 && fgets(line, sizeof line, maps))
        if (strstr(line, word))
            found = strtoull(strchr(line, '-') + 1, NULL, 16);
    fclose(maps);
    return found;
}

/* Code that nothing calls: whoever executes it has been led there. */
__attribute__((unused)) static void never_called(void)
{
    say("led astray: process of user %d", (int)geteuid());
    _exit(42);
}

/* Overwrites the answers that threads wait for, in contexts mapped at `contexts`. */
__attribute__((unused)) static void forge_answers(volatile uint64_t *contexts, double seconds)
{
    double end = now_seconds() + seconds;
    while (now_seconds() < end)
        for (int i = 0; i < 1000; i++)
            for (int word = 0x58 / 8; word <= 0x68 / 8; word++)
                contexts[word] = (uint64_t)never_called;
}

/* Work for which the virtual CPU asks its host. */
__attribute__((unused)) static void make_code(void)
{
    for (int i = 0; i < 20; i++) {
        unsigned char *page = map_pages(4096, PROT_READ | PROT_WRITE | PROT_EXEC);
        *page = 0xc3;
        ((void (*)(void))page)();
        munmap(page, 4096);
    }
}

__attribute__((unused)) static pid_t make_process(unsigned long flags)
{
    return syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
}

__attribute__((unused)) static int status_of(pid_t pid)
{
    int status = -1;
    while (waitpid(pid, &status, 0) < 0)
        MUST(errno == EINTR);
    return status;
}

#endif
