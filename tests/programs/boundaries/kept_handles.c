//@ cflags: -O1
/* One user keeps handles of whatever its children had open or mapped for the virtual CPU, seals the
 * files and opens them again: processes that another user makes later have nothing of it. */
#include "boundaries.h"

enum { MOST = 48 };
struct shared {
    atomic_int over, handles, ready;
};
static struct shared *shared;

/* Looks through the table of descriptors, which it shares, for files of the virtual CPU's. */
static void collect(int handles[MOST])
{
    int known = 0;
    ino_t inodes[MOST];
    while (!shared->over) {
        for (int fd = 3; fd < 14 && known < MOST; fd++) {
            char path[64], target[200];
            snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
            ssize_t length = readlink(path, target, sizeof target - 1);
            if (length <= 0)
                continue;
            target[length] = 0;
            if (strstr(target, "memfd:lwp") == NULL)
                continue;
            int handle = open(path, O_PATH);
            if (handle < 0)
                continue;
            fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
            int kept = fcntl(handle, F_DUPFD, 100);
            close(handle);
            struct stat file;
            if (kept < 0 || fstat(kept, &file) != 0)
                continue;
            bool seen = false;
            for (int i = 0; i < known; i++)
                seen |= inodes[i] == file.st_ino;
            if (seen) {
                close(kept);
            } else {
                inodes[known] = file.st_ino;
                handles[known++] = kept;
            }
        }
    }
    shared->handles = known;
}

/* Opens a file anew once somebody else has it, and spoils what is in it. */
static bool use(int handle, blkcnt_t before)
{
    char path[64];
    struct stat file_now;
    if (fstat(handle, &file_now) != 0 || file_now.st_blocks <= 8 || file_now.st_blocks == before)
        return false;
    snprintf(path, sizeof path, "/proc/self/fd/%d", handle);
    int file = open(path, O_RDWR);
    if (file < 0)
        return true;
    volatile uint64_t *contexts = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (contexts != MAP_FAILED) {
        forge_answers(contexts, 0.03);
        munmap((void *)contexts, 8192);
    }
    return true;
}

static void attacker(void)
{
    become_nobody();
    pid_t helper = make_process(CLONE_FILES);
    if (helper == 0) {
        int handles[MOST];
        collect(handles);
        usleep(50000);
        blkcnt_t blocks[MOST];
        struct stat file;
        for (int i = 0; i < shared->handles; i++)
            blocks[i] = fstat(handles[i], &file) == 0 ? file.st_blocks : 0;
        shared->ready = 1;
        double end = now_seconds() + 2;
        while (now_seconds() < end)
            for (int i = 0; i < shared->handles; i++)
                if (blocks[i] >= 0 && use(handles[i], blocks[i]))
                    blocks[i] = -1;
        _exit(0);
    }
    for (int i = 0; i < 30; i++) {
        pid_t child = make_process(CLONE_FILES);
        if (child == 0) {
            for (volatile int j = 0; j < 1000; j++)
                ;
            _exit(0);
        }
        status_of(child);
    }
    shared->over = 1;
    status_of(helper);
}

int main(void)
{
    need_root();
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(shared != MAP_FAILED);
    pid_t other = make_process(0);
    if (other == 0) {
        attacker();
        _exit(0);
    }
    while (!shared->ready)
        usleep(1000);
    for (int i = 0; i < 40; i++) {
        pid_t child = make_process(0);
        if (child == 0) {
            double end = now_seconds() + 0.02;
            while (now_seconds() < end)
                make_code();
            if (i % 2)
                execl("/bin/true", "true", NULL);
            _exit(0);
        }
        CHECK_EQ(status_of(child), 0, "root's child %d", i);
    }
    kill(other, SIGKILL);
    status_of(other);
    return done();
}

/* Promise: B2 */
