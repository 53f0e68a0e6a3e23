//@ cflags: -O1
/* A process changes its own copy of a library by a way that nobody sees. Another one, which has the
 * same library, must execute what the file says. */
#include "boundaries.h"
#include <dlfcn.h>
#include <linux/io_uring.h>

/* Opens a file without making the call for it. */
static int open_by_ring(const char *path, int flags)
{
    struct io_uring_params params = {0};
    int ring = syscall(SYS_io_uring_setup, 4, &params);
    if (ring < 0)
        return -1;
    size_t bytes = params.sq_off.array + params.sq_entries * 4;
    size_t completions = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    if (completions > bytes)
        bytes = completions;
    char *queue = mmap(NULL, bytes, 3, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entry =
        mmap(NULL, params.sq_entries * sizeof *entry, 3, MAP_SHARED, ring, IORING_OFF_SQES);
    MUST(queue != MAP_FAILED && entry != MAP_FAILED);
    memset(entry, 0, sizeof *entry);
    entry->opcode = IORING_OP_OPENAT;
    entry->fd = AT_FDCWD;
    entry->addr = (uint64_t)path;
    entry->open_flags = flags;
    ((unsigned *)(queue + params.sq_off.array))[0] = 0;
    atomic_store((atomic_uint *)(queue + params.sq_off.tail), 1);
    MUST(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) >= 0);
    struct io_uring_cqe *done = (void *)(queue + params.cq_off.cqes);
    int result = done->res;
    close(ring);
    return result;
}

/* Functions that nobody has called before. */
static const char *const names[] = {
    "a64l",      "ntohs",   "ffsll",     "memfrob", "argz_count", "wcwidth", "swab",
    "getpt",     "rpmatch", "strverscmp", "strfry",  "mblen",      "drand48", "ether_aton",
    "sigisemptyset",
};
enum { FUNCTIONS = sizeof names / sizeof *names, MARK = 0x666 };
static long (*functions[FUNCTIONS])(const char *, long, long);

static int marked(void)
{
    int count = 0;
    for (int i = 0; i < FUNCTIONS; i++) {
        if (functions[i] == NULL)
            continue;
        pid_t child = make_process(0);
        if (child == 0) {
            signal(SIGSEGV, SIG_DFL);
            _exit(functions[i]("zz", 0, 0) == MARK);
        }
        int status = status_of(child);
        count += WIFEXITED(status) && WEXITSTATUS(status) == 1;
    }
    return count;
}

int main(void)
{
    for (int i = 0; i < FUNCTIONS; i++)
        functions[i] = dlsym(RTLD_DEFAULT, names[i]);
    int go[2];
    MUST(pipe(go) == 0);
    pid_t other = make_process(0);
    if (other == 0) {
        char byte;
        MUST(read(go[0], &byte, 1) == 1);
        CHECK_EQ(marked(), 0, "functions of another process");
        _exit(check_failures != 0);
    }
    pid_t patcher = make_process(0);
    if (patcher == 0) {
        /* mov eax, MARK; ret */
        static const unsigned char code[] = {0xb8, 0x66, 0x06, 0, 0, 0xc3};
        int memory = open_by_ring("/proc/self/mem", O_RDWR);
        for (int i = 0; memory >= 0 && i < FUNCTIONS; i++)
            if (functions[i] != NULL)
                MUST(pwrite(memory, code, sizeof code, (off_t)functions[i]) == sizeof code);
        marked();
        _exit(0);
    }
    CHECK_EQ(status_of(patcher), 0, "the process that has patched itself");
    MUST(write(go[1], "x", 1) == 1);
    CHECK_EQ(status_of(other), 0, "the other process");
    return done();
}

/* Promise: B7 */
