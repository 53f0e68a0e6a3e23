//@ variants: pie static
//@ cflags: -O1
/* Code in buffers that io_uring has been told of: the kernel keeps their pages and writes there without the program's page
 * tables, by a thread of its own too. Skipped natively and elsewhere alike where io_uring is refused. */
#include "check.h"
#include <linux/io_uring.h>
#include <sys/uio.h>

enum { ENTRIES = 8, ROUNDS = 60 };

struct ring {
    int fd;
    struct io_uring_params set;
    char *submitted, *completed;
    struct io_uring_sqe *entries;
};

static atomic_uint *word(char *base, unsigned offset) { return (atomic_uint *)(base + offset); }

static bool opened(struct ring *ring, unsigned flags)
{
    *ring = (struct ring){.set = {.flags = flags, .sq_thread_idle = 1000}};
    ring->fd = syscall(SYS_io_uring_setup, ENTRIES, &ring->set);
    if (ring->fd < 0)
        return false;
    enum { BYTES = 65536 };
    ring->submitted = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, IORING_OFF_SQ_RING);
    ring->completed = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, IORING_OFF_CQ_RING);
    ring->entries = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, IORING_OFF_SQES);
    MUST(ring->submitted != MAP_FAILED && ring->completed != MAP_FAILED && ring->entries != MAP_FAILED);
    return true;
}

/* Reads from a file into a buffer that has been registered; what the kernel says of it. */
static int read_fixed(struct ring *ring, int file, void *to, int bytes)
{
    struct io_sqring_offsets *sq = &ring->set.sq_off;
    struct io_cqring_offsets *cq = &ring->set.cq_off;
    unsigned tail = *word(ring->submitted, sq->tail), index = tail & (ENTRIES - 1);
    ring->entries[index] = (struct io_uring_sqe){.opcode = IORING_OP_READ_FIXED, .fd = file, .addr = (uintptr_t)to, .len = bytes};
    *word(ring->submitted, sq->array + 4 * index) = index;
    *word(ring->submitted, sq->tail) = tail + 1;
    if (!(ring->set.flags & IORING_SETUP_SQPOLL))
        syscall(SYS_io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0);
    unsigned head = *word(ring->completed, cq->head);
    double until = patience();
    while (*word(ring->completed, cq->tail) == head && now_seconds() < until) {
        if (*word(ring->submitted, sq->flags) & IORING_SQ_NEED_WAKEUP)
            syscall(SYS_io_uring_enter, ring->fd, 0, 0, IORING_ENTER_SQ_WAKEUP, NULL, 0);
        sched_yield();
    }
    struct io_uring_cqe *all = (void *)(ring->completed + cq->cqes);
    int result = all[head & *word(ring->completed, cq->ring_mask)].res;
    *word(ring->completed, cq->head) = head + 1;
    return result;
}

static int called(char *code) { return ((int (*)(void))code)(); }

static void rounds(unsigned flags, bool executed_before, bool second_form)
{
    struct ring ring;
    if (!opened(&ring, flags)) {
        say("refused: %s", strerror(errno));
        return;
    }
    char *code = map_pages(8192, PROT_READ | PROT_WRITE | PROT_EXEC);
    char bytes[6] = {(char)0xb8, 1, 0, 0, 0, (char)0xc3};
    memcpy(code + 64, bytes, sizeof bytes);
    for (int i = 0; executed_before && i < 100; i++)
        CHECK_EQ(called(code + 64), 1, "before");
    struct iovec buffer = {code, 8192};
    struct io_uring_rsrc_register more = {.nr = 1, .data = (uintptr_t)&buffer};
    long result = second_form ? syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS2, &more, sizeof more)
                              : syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, &buffer, 1);
    say("registered: %ld, error %d", result, result ? errno : 0);
    char name[] = "/tmp/registered.XXXXXX";
    int file = mkstemp(name);
    MUST(file >= 0 && unlink(name) == 0);
    for (int i = 1; result == 0 && i < ROUNDS; i++) {
        bytes[1] = i;
        MUST(pwrite(file, bytes, sizeof bytes, 0) == sizeof bytes);
        CHECK_EQ(read_fixed(&ring, file, code + 64, sizeof bytes), sizeof bytes, "bytes in round %d", i);
        for (int again = 0; again < 3; again++)
            CHECK_EQ(called(code + 64), i, "round %d", i);
    }
    close(file);
    close(ring.fd);
}

int main(void)
{
    for (int form = 0; form < 4; form++) {
        rounds(0, form & 1, form & 2);
        rounds(IORING_SETUP_SQPOLL, form & 1, form & 2);
    }
    return done();
}

/* Promise: F10 */
/* Promise: F10: by io_uring, in registered buffers */
