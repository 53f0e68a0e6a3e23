//@ cflags: -O1
/* Signals that are ignored cut no call short that takes a vector of buffers, a message or several, that copies a file
 * to a socket, that reads a device which never runs dry, or that waits for what it has submitted. */
#include "check.h"
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { BYTES = 1 << 20, PIECE = 1 << 15, PARTS = 1024, MESSAGES = 60, SIZE = 5000 };
static char bytes[BYTES], got[BYTES];

static void every(long microseconds)
{
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};
    MUST(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

static char byte_at(long place)
{
    return (char)(place * 31 >> 4);
}

/* Takes all bytes slowly, each of which is the one that belongs there. With them come as many descriptors. */
static void take(int from, int descriptors)
{
    static char piece[PIECE];
    int taken = 0;
    for (long place = 0; place < BYTES;) {
        char room[256];
        struct iovec part = {piece, sizeof piece};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
        usleep(3000);
        ssize_t count = descriptors < 0 ? read(from, piece, sizeof piece) : recvmsg(from, &message, 0);
        if (count <= 0)
            _exit(1);
        for (ssize_t i = 0; i < count; i++)
            if (piece[i] != byte_at(place + i))
                _exit(2);
        if (descriptors >= 0)
            for (struct cmsghdr *it = CMSG_FIRSTHDR(&message); it; it = CMSG_NXTHDR(&message, it))
                taken += it->cmsg_type == SCM_RIGHTS;
        place += count;
    }
    _exit(descriptors >= 0 && taken != descriptors ? 3 : 0);
}

static void take_bytes(int from)
{
    take(from, -1);
}

static void take_one_descriptor(int from)
{
    take(from, 1);
}

static void give(int to)
{
    for (long sent = 0; sent < BYTES;) {
        usleep(3000);
        ssize_t count = write(to, bytes + sent, PIECE);
        if (count <= 0)
            _exit(1);
        sent += count;
    }
    _exit(0);
}

static void ends_well(pid_t pid, const char *what)
{
    int status = -1;
    MUST(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0, "%s", what);
}

/* One end takes or gives slowly, the other moves everything by one call. */
static void move(int pair[2], const char *what, ssize_t (*call)(int), void (*slowly)(int), ssize_t want)
{
    pid_t pid = fork();
    if (pid == 0) {
        close(pair[1]);
        slowly(pair[0]);
    }
    close(pair[0]);
    every(7000);
    CHECK_EQ(call(pair[1]), want, "%s", what);
    every(0);
    close(pair[1]);
    ends_well(pid, what);
}

/* Parts of all sizes, none among them. */
static int split(struct iovec parts[PARTS], char *from)
{
    long place = 0;
    for (int i = 0; i < PARTS; i++) {
        long size = i % 7 == 3 ? 0 : i * 5 % 2011;
        if (i == PARTS - 1 || size > BYTES - place)
            size = BYTES - place;
        parts[i].iov_base = from + place;
        parts[i].iov_len = size;
        place += size;
    }
    return PARTS;
}

static ssize_t by_writev(int to)
{
    struct iovec parts[PARTS];
    return writev(to, parts, split(parts, bytes));
}

static ssize_t by_two_parts(int to)
{
    struct iovec parts[2] = {{bytes, 5}, {bytes + 5, BYTES - 5}};
    return writev(to, parts, 2);
}

static ssize_t by_pwritev2(int to)
{
    struct iovec parts[PARTS];
    return pwritev2(to, parts, split(parts, bytes), -1, 0);
}

static ssize_t by_sendmsg(int to)
{
    struct iovec parts[PARTS];
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = split(parts, bytes)};
    ssize_t count = sendmsg(to, &message, MSG_NOSIGNAL);
    CHECK_EQ(message.msg_iovlen, PARTS, "the message is as it was");
    return count;
}

static ssize_t with_descriptor(int to)
{
    char room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec parts[PARTS];
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = split(parts, bytes), .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *ancillary = CMSG_FIRSTHDR(&message);
    ancillary->cmsg_level = SOL_SOCKET;
    ancillary->cmsg_type = SCM_RIGHTS;
    ancillary->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(ancillary), &to, sizeof to);
    return sendmsg(to, &message, MSG_NOSIGNAL);
}

static ssize_t by_recvmsg(int from)
{
    struct iovec parts[PARTS];
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = split(parts, got), .msg_flags = -1};
    memset(got, 0, BYTES);
    ssize_t count = recvmsg(from, &message, MSG_WAITALL);
    CHECK_EQ(message.msg_flags, 0, "flags of the message");
    CHECK_EQ((uintptr_t)message.msg_iov, (uintptr_t)parts, "its parts");
    return memcmp(got, bytes, BYTES) == 0 ? count : -2;
}

static ssize_t by_sendfile(int to)
{
    int file = memfd_create("bytes", 0);
    off_t place = 100;
    MUST(pwrite(file, bytes, BYTES, 100) == BYTES);
    ssize_t count = sendfile(to, file, &place, BYTES + 500);
    CHECK_EQ(place, 100 + count, "the place in the file");
    close(file);
    return count;
}

static void connection(int pair[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    MUST(bind(listener, (void *)&address, length) == 0 && listen(listener, 1) == 0);
    MUST(getsockname(listener, (void *)&address, &length) == 0);
    pair[0] = socket(AF_INET, SOCK_STREAM, 0);
    MUST(connect(pair[0], (void *)&address, length) == 0);
    pair[1] = accept(listener, NULL, NULL);
    MUST(pair[1] >= 0);
    close(listener);
}

static void a_pipe(int pair[2])
{
    int ends[2];
    MUST(pipe(ends) == 0);
    pair[0] = ends[0], pair[1] = ends[1];
}

static void local(int pair[2])
{
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
}

static void vectors(void)
{
    int pair[2];
    a_pipe(pair);
    move(pair, "writev to a pipe", by_writev, take_bytes, BYTES);
    a_pipe(pair);
    move(pair, "writev of two parts to a pipe", by_two_parts, take_bytes, BYTES);
    a_pipe(pair);
    move(pair, "pwritev2 to a pipe", by_pwritev2, take_bytes, BYTES);
    connection(pair);
    move(pair, "writev to a connection", by_writev, take_bytes, BYTES);
}

static void messages(void)
{
    int pair[2];
    local(pair);
    move(pair, "sendmsg", by_sendmsg, take_bytes, BYTES);
    local(pair);
    move(pair, "sendmsg with a descriptor", with_descriptor, take_one_descriptor, BYTES);
    connection(pair);
    move(pair, "sendmsg to a connection", by_sendmsg, take_bytes, BYTES);
    local(pair);
    move(pair, "recvmsg", by_recvmsg, give, BYTES);
    connection(pair);
    move(pair, "recvmsg from a connection", by_recvmsg, give, BYTES);
}

static void files(void)
{
    int pair[2];
    local(pair);
    move(pair, "sendfile", by_sendfile, take_bytes, BYTES);
    connection(pair);
    move(pair, "sendfile to a connection", by_sendfile, take_bytes, BYTES);
}

/* Several messages by one call. */
static char text[MESSAGES][SIZE];
static struct iovec texts[MESSAGES];
static struct mmsghdr several[MESSAGES];

static void prepare(int from)
{
    for (int i = 0; i < MESSAGES; i++) {
        texts[i] = (struct iovec){text[i], SIZE};
        several[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &texts[i], .msg_iovlen = 1}};
        memset(text[i], from + i, SIZE);
    }
}

static void take_texts(int from)
{
    char piece[SIZE + 1];
    for (int i = 0; i < MESSAGES; i++) {
        usleep(3000);
        if (recv(from, piece, sizeof piece, 0) != SIZE || piece[0] != i || piece[SIZE - 1] != i)
            _exit(1);
    }
    _exit(0);
}

static void give_texts(int to)
{
    prepare(0);
    for (int i = 0; i < MESSAGES; i++) {
        usleep(3000);
        if (send(to, text[i], SIZE - i, 0) != SIZE - i)
            _exit(1);
    }
    _exit(0);
}

static void sizes(int less)
{
    for (int i = 0; i < MESSAGES; i++)
        CHECK_EQ(several[i].msg_len, SIZE - less * i, "message %d", i);
}

static ssize_t by_sendmmsg(int to)
{
    prepare(0);
    int count = sendmmsg(to, several, MESSAGES, 0);
    sizes(0);
    return count;
}

static ssize_t by_recvmmsg(int from)
{
    prepare(100);
    int count = recvmmsg(from, several, MESSAGES, 0, NULL);
    sizes(1);
    for (int i = 0; i < MESSAGES; i++)
        CHECK(text[i][0] == i && text[i][SIZE - i - 1] == i, "text %d", i);
    return count;
}

static void several_messages(void)
{
    int pair[2];
    MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    move(pair, "sendmmsg", by_sendmmsg, take_texts, MESSAGES);
    MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    move(pair, "recvmmsg", by_recvmmsg, give_texts, MESSAGES);
}

static void devices(void)
{
    enum { MUCH = 24 << 20 };
    char *much = map_pages(MUCH, PROT_READ | PROT_WRITE);
    struct iovec parts[2] = {{much, 100}, {much + 100, MUCH - 100}};
    int random = open("/dev/urandom", O_RDONLY), zero = open("/dev/zero", O_RDONLY);
    MUST(random >= 0 && zero >= 0);
    every(1000);
    CHECK_EQ(read(random, much, MUCH), MUCH, "read from /dev/urandom");
    CHECK_EQ(readv(random, parts, 2), MUCH, "readv from /dev/urandom");
    CHECK_EQ(readv(zero, parts, 2), MUCH, "readv from /dev/zero");
    every(0);
    long other = 0;
    for (long i = 0; i < MUCH; i++)
        other += much[i] != 0;
    CHECK_EQ(other, 0, "bytes of /dev/zero");
    munmap(much, MUCH);
    close(random), close(zero);
}

/* A call that submits a wait and waits for its end. */
static void submitted(void)
{
    struct io_uring_params about = {0};
    int ring = syscall(SYS_io_uring_setup, 2, &about);
    if (ring < 0) {
        say("# no io_uring: %s", strerror(errno));
        return;
    }
    size_t size = about.sq_off.array + about.sq_entries * sizeof(unsigned);
    char *sq = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    char *cq = mmap(NULL, about.cq_off.cqes + about.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_CQ_RING);
    struct io_uring_sqe *entry = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    MUST(sq != MAP_FAILED && cq != MAP_FAILED && entry != MAP_FAILED);
    struct __kernel_timespec time = {0, 50000000};
    *entry = (struct io_uring_sqe){.opcode = IORING_OP_TIMEOUT, .fd = -1, .addr = (uintptr_t)&time, .len = 1};
    *(unsigned *)(sq + about.sq_off.array) = 0;
    __atomic_store_n((unsigned *)(sq + about.sq_off.tail), 1, __ATOMIC_RELEASE);
    every(7000);
    long result = syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0);
    unsigned ended = __atomic_load_n((unsigned *)(cq + about.cq_off.tail), __ATOMIC_ACQUIRE);
    every(0);
    CHECK_EQ(result, 1, "io_uring_enter");
    CHECK_EQ(ended, 1, "operations that have ended");
    close(ring);
}

int main(void)
{
    for (long i = 0; i < BYTES; i++)
        bytes[i] = byte_at(i);
    signal(SIGALRM, SIG_IGN);
    RUN(vectors);
    RUN(messages);
    RUN(files);
    RUN(several_messages);
    RUN(devices);
    RUN(submitted);
    return done();
}

/* Promise: F8, F17 */
