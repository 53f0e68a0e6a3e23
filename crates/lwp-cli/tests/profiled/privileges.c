/* A child that has given up its privileges, or sits in a sandbox, attacks its parent through everything that the
 * virtual CPU maps. The argument says how. The parent says whether it came to harm. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <linux/seccomp.h>

#define SECRET 0x1122334455667788ul

__attribute__((noinline)) static uint64_t secret(void)
{
    uint64_t value;
    __asm__("movabs $0x1122334455667788, %0" : "=r"(value));
    return value;
}

static void taken_over(void)
{
    (void)!write(1, "taken over\n", 11);
    _exit(42);
}

struct mapping {
    uint64_t start, end;
    int executable, writable;
};

static struct mapping ours[256];
static int count;

/* The mappings as they are: under another name the file is not recognised. */
static FILE *true_maps(void)
{
    unlink("true_maps");
    if (symlink("/proc/self/maps", "true_maps"))
        return NULL;
    FILE *maps = fopen("true_maps", "r");
    unlink("true_maps");
    return maps;
}

static void find_ours(void)
{
    FILE *maps = true_maps();
    char line[512], flags[8];
    while (maps && count < 256 && fgets(line, sizeof line, maps)) {
        struct mapping *it = &ours[count];
        if (!strstr(line, "memfd:lwp"))
            continue;
        sscanf(line, "%lx-%lx %7s", &it->start, &it->end, flags);
        it->executable = flags[2] == 'x', it->writable = flags[1] == 'w' && flags[3] == 's';
        count++;
    }
    if (maps)
        fclose(maps);
    if (!count)
        puts("nothing of the virtual CPU's was found");
}

static void drop(void)
{
    setgroups(0, NULL);
    if (setgid(65534) || setuid(65534))
        _exit(9);
}

/* Makes translated code writable, and patches what the parent executes. */
static void patch_code(void)
{
    uint64_t wanted = SECRET, other = 0xdeadbeefcafef00dul;
    for (int i = 0; i < count; i++) {
        if (!ours[i].executable || mprotect((void *)ours[i].start, ours[i].end - ours[i].start, 7))
            continue;
        uint64_t end = ours[i].start + (4ul << 20) < ours[i].end ? ours[i].start + (4ul << 20) : ours[i].end;
        for (char *at = (char *)ours[i].start; at < (char *)end - 8; at++)
            if (!memcmp(at, &wanted, 8))
                memcpy(at, &other, 8);
    }
}

/* Throws translated code and contexts away. */
static void remove_pages(void)
{
    for (int i = 0; i < count; i++)
        if (!ours[i].writable)
            madvise((void *)ours[i].start, ours[i].end - ours[i].start, MADV_REMOVE);
}

/* Writes an address into every word of the mailboxes. */
static void answer_requests(void)
{
    time_t end = time(NULL) + 2;
    while (time(NULL) < end)
        for (int i = 0; i < count; i++)
            for (uint64_t at = ours[i].start; ours[i].writable && at < ours[i].end; at += 24ul << 20)
                if (at != ours[i].start)
                    ((volatile uint64_t *)at)[0x60 / 8] = (uint64_t)taken_over;
}

/* The files of the host, by their descriptors there. */
static void change_files(pid_t host)
{
    for (int fd = 3; fd < 200; fd++) {
        char path[64], name[128];
        snprintf(path, sizeof path, "/proc/%d/fd/%d", host, fd);
        ssize_t len = readlink(path, name, sizeof name - 1);
        if (len < 0)
            continue;
        name[len] = 0;
        if (!strstr(name, "memfd:lwp"))
            continue;
        int file = open(path, O_RDWR);
        if (file < 0)
            continue;
        if (ftruncate(file, 4096) == 0)
            printf("%s: shortened\n", name);
        if (strstr(name, "memfd:lwp "))
            if (pwrite(file, "\xcc", 1, 0) == 1 || mmap(0, 4096, 3, MAP_SHARED, file, 0) != MAP_FAILED)
                printf("%s: written to\n", name);
        close(file);
    }
}

int main(int arguments, char **argument)
{
    const char *how = arguments > 1 ? argument[1] : "code";
    pid_t host = getppid();
    setvbuf(stdout, NULL, _IONBF, 0);
    secret();
    find_ours();
    pid_t child = fork();
    if (child == 0) {
        if (!strcmp(how, "files"))
            change_files(host);
        else if (!strcmp(how, "sandbox")) {
            prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0);
            for (long i = 0; i < 20000000; i++)
                for (int map = 0; map < count; map++)
                    if (ours[map].writable)
                        ((volatile uint64_t *)ours[map].start)[0x800 / 8] = i;
            syscall(SYS_exit, 0);
        } else {
            drop();
            if (!strcmp(how, "code"))
                patch_code();
            else if (!strcmp(how, "remove"))
                remove_pages();
            else
                answer_requests();
        }
        _exit(0);
    }
    time_t end = time(NULL) + 3;
    while (time(NULL) < end) {
        if (secret() != SECRET) {
            puts("the parent's code was changed");
            return 43;
        }
        void *page = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        munmap(page, 4096);
        usleep(100);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    puts("unharmed");
    return 0;
}
