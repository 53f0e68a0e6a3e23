//@ cflags: -O1
/* Where processes have other mounts, another root directory or other numbers, the host's paths lead
 * to files of strangers, to FIFOs and to devices. Nothing of that is opened, mapped or written to. */
#include "boundaries.h"

enum { PAGES = 256 };
static char page[4096];
/* The number of what has started the program: the host's, on the virtual CPU. */
static pid_t host;
/* The directory that becomes the root of a jail. */
static char root[64];

/* Puts a file of its own at all free descriptors. */
static int fill_descriptors(void)
{
    char name[] = "/tmp/lwp-victim-XXXXXX";
    int file = mkstemp(name);
    MUST(file >= 0 && unlink(name) == 0);
    memset(page, 'V', sizeof page);
    for (int i = 0; i < PAGES; i++)
        MUST(write(file, page, sizeof page) == sizeof page);
    for (int fd = 3; fd < 80; fd++)
        if (fd != file)
            MUST(dup3(file, fd, O_CLOEXEC) == fd);
    return file;
}

static int changed_pages(int file)
{
    int changed = 0;
    for (int i = 0; i < PAGES; i++) {
        MUST(pread(file, page, sizeof page, i * 4096L) == sizeof page);
        for (size_t at = 0; at < sizeof page; at++)
            if (page[at] != 'V') {
                changed++;
                break;
            }
    }
    return changed;
}

/* Has the host's number where it lives: its descriptors are where the host's paths lead. */
static void become_number(pid_t number)
{
    for (;;) {
        pid_t pid = make_process(0);
        MUST(pid >= 0);
        if (pid == 0) {
            if (getpid() != number)
                _exit(0);
            fill_descriptors();
            for (;;)
                pause();
        }
        if (pid >= number)
            return;
        status_of(pid);
    }
}

static void in_namespace(void)
{
    MUST(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    MUST(mount("proc", "/proc", "proc", 0, NULL) == 0);
    /* Large numbers take too long. */
    if (host < 4000)
        become_number(host);
    int file = fill_descriptors();
    for (int i = 0; i < 3; i++) {
        pid_t child = make_process(0);
        if (child == 0)
            _exit(7);
        CHECK_EQ(status_of(child), 0x700, "a child");
        child = make_process(0);
        if (child == 0) {
            execl("/bin/true", "true", NULL);
            _exit(1);
        }
        CHECK_EQ(status_of(child), 0, "a program");
        pid_t twin = vfork();
        if (twin == 0)
            _exit(0);
        CHECK_EQ(status_of(twin), 0, "a child that shares memory");
    }
    CHECK_EQ(changed_pages(file), 0, "pages of a file that nobody has written to");
    kill(-1, SIGKILL);
    _exit(check_failures ? 97 : 0);
}

static void other_numbers(void)
{
    MUST(unshare(CLONE_NEWPID | CLONE_NEWNS) == 0);
    pid_t first = make_process(0);
    if (first == 0)
        in_namespace();
    CHECK_EQ(status_of(first), 0, "the first of the namespace");
}

/* A jail whose keeper has made what the host's path names. */
static void jail(const char *kind)
{
    char path[128];
    MUST(mount("none", root, "tmpfs", 0, NULL) == 0);
    snprintf(path, sizeof path, "%s/proc", root);
    MUST(mkdir(path, 0755) == 0);
    for (pid_t pid = host - 3; pid <= host + 3; pid++) {
        snprintf(path, sizeof path, "%s/proc/%d", root, pid);
        mkdir(path, 0755);
        strcat(path, "/fd");
        mkdir(path, 0755);
        for (int fd = 0; fd < 64; fd++) {
            char file[160];
            snprintf(file, sizeof file, "%s/%d", path, fd);
            if (!strcmp(kind, "fifo"))
                MUST(mkfifo(file, 0666) == 0);
            else if (!strcmp(kind, "zero"))
                MUST(mknod(file, S_IFCHR | 0666, 0x105) == 0);
            else
                MUST(truncate(file, 0) == 0 || close(creat(file, 0666)) == 0);
        }
    }
    MUST(chroot(root) == 0 && chdir("/") == 0);
    for (int i = 0; i < 3; i++) {
        pid_t child = make_process(0);
        if (child == 0)
            _exit(7);
        CHECK_EQ(status_of(child), 0x700, "a child in a jail with %s", kind);
    }
}

static void fifos(void) { jail("fifo"); }
static void devices(void) { jail("zero"); }
static void files(void) { jail("file"); }

int main(void)
{
    need_root();
    host = getppid();
    MUST(unshare(CLONE_NEWNS) == 0);
    MUST(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    CHECK_EQ(in_child(other_numbers), 0, "other numbers");
    snprintf(root, sizeof root, "/tmp/lwp-jail-%d", getpid());
    MUST(mkdir(root, 0755) == 0);
    void (*const jails[])(void) = {fifos, devices, files};
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(in_child(jails[i]), 0, "jail %d", i);
        MUST(umount2(root, MNT_DETACH) == 0);
    }
    rmdir(root);
    return done();
}

/* Promise: B6 */
