//@ cflags: -O1
/* Files of /proc tell of others' processes what they tell natively: nothing of who has been mounted
 * over another's directory, and nothing of a program with other rights than the one before it. */
#include "boundaries.h"

static const char *const names[] = {"maps", "smaps", "numa_maps", "smaps_rollup", "syscall", "auxv"};
enum { FILES = sizeof names / sizeof *names };

/* The process that only its user may look into. */
static pid_t root;

static bool contains(const char *path, const char *word)
{
    char line[1024];
    bool found = false;
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        found |= strstr(line, word) != NULL;
    if (file)
        fclose(file);
    return found;
}

/* Has its own directory where its maker's is said to be. */
static void mounted_over(void)
{
    char directory[128], path[256];
    snprintf(directory, sizeof directory, "/tmp/lwp-mount-%d", root);
    MUST(mkdir(directory, 0777) == 0);
    snprintf(path, sizeof path, "%s/%d", directory, root);
    MUST(mkdir(path, 0777) == 0);
    MUST(munmap((void *)mapping_with("memfd:only-in-maker"), 8192) == 0);
    become_nobody();
    MUST(prctl(PR_SET_DUMPABLE, 1) == 0);
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 &&
        mount("/proc/self", path, NULL, MS_BIND | MS_REC, NULL) == 0) {
        strcpy(directory, path);
        for (int i = 0; i < FILES; i++) {
            snprintf(path, sizeof path, "%s/%s", directory, names[i]);
            CHECK(!contains(path, "only-in-maker"), "%s shows another process", names[i]);
        }
        snprintf(path, sizeof path, "%s/status", directory);
        char own[64];
        snprintf(own, sizeof own, "Uid:\t%d", 0);
        CHECK(!contains(path, own), "status is another's");
    }
    _exit(check_failures ? 97 : 0);
}

/* Reads files again that it opened before its child became a set-user-ID program. */
static void read_again(const char *program)
{
    become_nobody();
    MUST(prctl(PR_SET_DUMPABLE, 1) == 0);
    int go[2];
    MUST(pipe(go) == 0);
    pid_t child = make_process(0);
    if (child == 0) {
        char byte;
        MUST(read(go[0], &byte, 1) == 1);
        execl(program, program, "sleep", NULL);
        _exit(1);
    }
    int files[FILES];
    char path[64], bytes[65536];
    for (int i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "/proc/%d/%s", child, names[i]);
        files[i] = open(path, O_RDONLY);
    }
    MUST(write(go[1], "x", 1) == 1);
    snprintf(path, sizeof path, "/proc/%d/maps", child);
    double end = patience();
    int now;
    /* Once it is the other program, it cannot be opened any more. */
    while ((now = open(path, O_RDONLY)) >= 0 && now_seconds() < end) {
        close(now);
        usleep(1000);
    }
    CHECK(now < 0, "maps of a set-user-ID program can be opened");
    for (int i = 0; i < FILES; i++) {
        if (files[i] < 0)
            continue;
        lseek(files[i], 0, SEEK_SET);
        ssize_t length = read(files[i], bytes, sizeof bytes - 1);
        bytes[length > 0 ? length : 0] = 0;
        CHECK(strstr(bytes, "lwp-suid") == NULL, "%s shows the set-user-ID program", names[i]);
    }
    kill(child, SIGKILL);
    _exit(check_failures ? 97 : 0);
}

static char suid[64];

static void second(void) { read_again(suid); }

static void copy_of_itself(void)
{
    snprintf(suid, sizeof suid, "/tmp/lwp-suid-%d", getpid());
    int from = open("/proc/self/exe", O_RDONLY), to = open(suid, O_WRONLY | O_CREAT | O_EXCL, 0755);
    MUST(from >= 0 && to >= 0);
    char bytes[65536];
    ssize_t length;
    while ((length = read(from, bytes, sizeof bytes)) > 0)
        MUST(write(to, bytes, length) == length);
    close(from);
    MUST(fchmod(to, 04755) == 0);
    close(to);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "sleep")) {
        if (setresuid(0, 0, 0) != 0)
            return 1;
        sleep(2);
        return 0;
    }
    need_root();
    int file = memfd_create("only-in-maker", 0);
    MUST(file >= 0 && ftruncate(file, 8192) == 0);
    MUST(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) != MAP_FAILED);
    close(file);
    root = getpid();
    CHECK_EQ(in_child(mounted_over), 0, "mounted over");
    char path[64];
    snprintf(path, sizeof path, "/tmp/lwp-mount-%d/%d", root, root);
    rmdir(path);
    *strrchr(path, '/') = 0;
    rmdir(path);
    copy_of_itself();
    CHECK_EQ(in_child(second), 0, "read again");
    unlink(suid);
    return done();
}

/* Promise: B9 */
