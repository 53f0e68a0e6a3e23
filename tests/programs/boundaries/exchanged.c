//@ cflags: -O1
/* What the host uses in a process is exchanged meanwhile: the descriptors that it hands over
 * through, by a process that shares them, and the instruction by which it makes calls. */
#include "boundaries.h"

static atomic_int over;
static atomic_long beats;
static int full[2];

/* Puts a full socket over any other. */
static void *exchange_sockets(void *unused)
{
    (void)unused;
    while (!over)
        for (int fd = 5; fd < 12; fd++) {
            struct stat file;
            if (fstat(fd, &file) == 0 && S_ISSOCK(file.st_mode))
                dup2(full[0], fd);
        }
    return NULL;
}

static void sockets(void)
{
    MUST(mkdir("/tmp/lwp-empty", 0755) == 0 || errno == EEXIST);
    MUST(chroot("/tmp/lwp-empty") == 0 && chdir("/") == 0);
    int pair[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    MUST(fcntl(pair[0], F_SETFL, O_NONBLOCK) == 0);
    char bytes[4096] = {0};
    while (write(pair[0], bytes, sizeof bytes) > 0)
        ;
    MUST(fcntl(pair[0], F_SETFL, 0) == 0);
    for (int i = 0; i < 2; i++) {
        full[i] = fcntl(pair[i], F_DUPFD, 100);
        close(pair[i]);
    }
    for (int fd = 3; fd < 8; fd++)
        MUST(dup2(0, fd) == fd);
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, exchange_sockets, NULL) == 0);
    for (int i = 0; i < 150; i++) {
        pid_t child = make_process(i % 8 ? CLONE_FILES : 0);
        if (child == 0)
            _exit(7);
        CHECK_EQ(status_of(child), 0x700, "a child in an empty directory");
        for (int fd = 8; fd < 12; fd++)
            close(fd);
    }
    over = 1;
    pthread_join(thread, NULL);
}

static volatile unsigned char *site;

/* Turns `syscall` into `ud2` and back. */
static void *toggle(void *unused)
{
    (void)unused;
    unsigned random = 1;
    while (!over) {
        site[1] = 0x05;
        random = random * 1103515245 + 12345;
        for (volatile int i = 0; i < (int)(random >> 16) % 20000; i++)
            ;
        site[1] = 0x0b;
        /* It stays so until the others get on. */
        for (long now = beats; now == beats && !over;)
            ;
    }
    return NULL;
}

/* The lowest code of the process is its own `syscall`, and there is no vdso. */
static void instruction(void)
{
    int file = memfd_create("site", 0);
    MUST(file >= 0 && ftruncate(file, 4096) == 0);
    site = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    MUST(site != MAP_FAILED);
    site[0] = 0x0f;
    site[1] = 0x05;
    site[2] = 0xc3;
    void *low = (void *)0x10000;
    MUST(mmap(low, 4096, PROT_READ | PROT_EXEC, MAP_SHARED | MAP_FIXED_NOREPLACE, file, 0) == low);
    uint64_t vdso = mapping_with("[vdso]");
    if (vdso != 0)
        munmap((void *)vdso, mapping_end("[vdso]") - vdso);
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, toggle, NULL) == 0);
    for (int i = 0; i < 1500; i++) {
        int maps = open("/proc/self/maps", O_RDONLY);
        char bytes[64];
        MUST(read(maps, bytes, sizeof bytes) > 0);
        close(maps);
        beats++;
        if (i % 500 == 0) {
            /* A call without the C library, which may use the vdso. */
            pid_t child = make_process(0);
            if (child == 0)
                syscall(SYS_exit_group, 7);
            CHECK_EQ(status_of(child), 0x700, "a child");
        }
    }
    over = 1;
    pthread_join(thread, NULL);
}

int main(void)
{
    CHECK_EQ(in_child(instruction), 0, "the instruction");
    if (geteuid() == 0)
        CHECK_EQ(in_child(sockets), 0, "sockets");
    return done();
}

/* Promise: B6, B11 */
