//@ variants: pie
//@ cflags: -O1 -pthread -D_GNU_SOURCE
/* System calls, signals and ends of threads that write to pages which hold code, and to code itself: the kernel does
 * that in the program's place, and no page with code is to be in its way. */
#include <asm/prctl.h>
#include <dirent.h>
#include <linux/futex.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include "check.h"

enum { PAGE = 4096, AREA = 4 * PAGE };

/* Returns a number. */
static void function(unsigned char *code, int value)
{
    code[0] = 0xb8; /* mov eax, value; ret */
    memcpy(code + 1, &value, 4);
    code[5] = 0xc3;
}

static int call(void *code)
{
    return ((int (*)(void))code)();
}

static int values;

/* Four pages with a function at the beginning of the second, which has been called. */
static unsigned char *fresh(void)
{
    unsigned char *area = map_pages(AREA, PROT_READ | PROT_WRITE | PROT_EXEC);
    int value = ++values;
    function(area + PAGE, value);
    for (int times = 0; times < 3; times++)
        CHECK_EQ(call(area + PAGE), value, "before");
    return area;
}

/* Room beside the function in the same page. */
static void *room(void)
{
    unsigned char *area = fresh();
    memset(area + PAGE + 1024, 0x55, 1024);
    *(int *)(area + PAGE + 3000) = values;
    /* That has been a write: the page is to be guarded again. */
    for (int times = 0; times < 3; times++)
        CHECK_EQ(call(area + PAGE), values, "beside room");
    return area + PAGE + 1024;
}

static void again(void *room, const char *what)
{
    unsigned char *code = (unsigned char *)room - 1024;
    CHECK_EQ(call(code), *(int *)(code + 3000), "%s", what);
    function(code, 77);
    CHECK_EQ(call(code), 77, "%s", what);
}

static void reads(void)
{
    int pipes[2];
    CHECK_EQ(pipe(pipes), 0, "pipe");
    char *at = room();
    CHECK_EQ(write(pipes[1], "abcdefgh", 8), 8, "write");
    CHECK_EQ(read(pipes[0], at, 8), 8, "read");
    CHECK_EQ(memcmp(at, "abcdefgh", 8), 0, "what was read");
    again(at, "after read");
    struct iovec two[2] = {{room(), 3}, {room(), 5}};
    CHECK_EQ(write(pipes[1], "abcdefgh", 8), 8, "write");
    CHECK_EQ(readv(pipes[0], two, 2), 8, "readv");
    CHECK_EQ(memcmp(two[1].iov_base, "defgh", 5), 0, "what was read by readv");
    again(two[1].iov_base, "after readv");
    /* Over a function, and through all of a buffer that begins pages before it. */
    unsigned char *area = fresh(), code[AREA];
    memset(code, 0x90, sizeof code);
    function(code + PAGE, 99);
    CHECK_EQ(write(pipes[1], code, AREA), AREA, "write all");
    CHECK_EQ(read(pipes[0], area, AREA), AREA, "read all");
    CHECK_EQ(call(area + PAGE), 99, "code that was read");
    FILE *file = tmpfile();
    CHECK_EQ(fwrite(code, 1, AREA, file) == AREA && fflush(file) == 0, 1, "file");
    area = fresh();
    CHECK_EQ(pread(fileno(file), area, AREA, 0), AREA, "pread");
    CHECK_EQ(call(area + PAGE), 99, "code from a file");
    area = fresh();
    struct iovec whole = {area, AREA};
    CHECK_EQ(preadv(fileno(file), &whole, 1, 0), AREA, "preadv");
    CHECK_EQ(call(area + PAGE), 99, "code from a file by preadv");
    area = fresh();
    struct iovec from = {code, AREA};
    whole.iov_base = area;
    CHECK_EQ(process_vm_readv(getpid(), &whole, 1, &from, 1, 0), AREA, "process_vm_readv");
    CHECK_EQ(call(area + PAGE), 99, "code by process_vm_readv");
    CHECK_EQ(getrandom(fresh(), AREA, 0), AREA, "getrandom");
    fclose(file);
    close(pipes[0]);
    close(pipes[1]);
}

/* What is taken from the kernel once is not there a second time. */
static void once(void)
{
    int pair[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair), 0, "socketpair");
    char *at = room();
    CHECK_EQ(send(pair[0], "one", 3, 0), 3, "send");
    CHECK_EQ(recv(pair[1], at, 100, 0), 3, "recv");
    CHECK_EQ(memcmp(at, "one", 3), 0, "what was received");
    again(at, "after recv");
    struct iovec part = {room(), 100};
    struct msghdr *message = room();
    memset(message, 0, sizeof *message);
    message->msg_iov = &part;
    message->msg_iovlen = 1;
    CHECK_EQ(send(pair[0], "two2", 4, 0), 4, "send");
    CHECK_EQ(recvmsg(pair[1], message, 0), 4, "recvmsg");
    CHECK_EQ(memcmp(part.iov_base, "two2", 4), 0, "what was received by recvmsg");
    again(message, "after recvmsg");
    struct mmsghdr *many = room();
    memset(many, 0, sizeof *many);
    part.iov_base = room();
    many->msg_hdr.msg_iov = &part;
    many->msg_hdr.msg_iovlen = 1;
    CHECK_EQ(send(pair[0], "three", 5, 0), 5, "send");
    CHECK_EQ(recvmmsg(pair[1], many, 1, 0, 0), 1, "recvmmsg");
    CHECK_EQ(many->msg_len, 5, "its length");
    long *count = room();
    int event = eventfd(41, EFD_NONBLOCK);
    CHECK_EQ(read(event, count, 8), 8, "read an eventfd");
    CHECK_EQ(*count, 41, "its count");
    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec soon = {{0, 0}, {0, 1000000}};
    timerfd_settime(timer, 0, &soon, 0);
    CHECK_EQ(read(timer, room(), 8), 8, "read a timerfd");
    sigset_t set, *old = room();
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK_EQ(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set, old, 8), 0, "rt_sigprocmask");
    CHECK_EQ(*(long *)old, 0, "nothing was blocked");
    int signals = signalfd(-1, &set, SFD_NONBLOCK);
    raise(SIGUSR1);
    struct signalfd_siginfo *info = room();
    CHECK_EQ(read(signals, info, sizeof *info), (long)sizeof *info, "read a signalfd");
    CHECK_EQ(info->ssi_signo, SIGUSR1, "the signal");
    raise(SIGUSR1);
    siginfo_t *waited = room();
    CHECK_EQ(sigwaitinfo(&set, waited), SIGUSR1, "sigwaitinfo");
    CHECK_EQ(waited->si_signo, SIGUSR1, "the signal waited for");
    struct sigaction *action = room(), ignore = {.sa_handler = SIG_IGN};
    CHECK_EQ(syscall(SYS_rt_sigaction, SIGUSR2, &ignore, action, 8), 0, "rt_sigaction");
    CHECK_EQ((long)action->sa_handler, (long)SIG_DFL, "the old action");
    pid_t child = fork();
    if (child == 0)
        _exit(17);
    int *status = room();
    CHECK_EQ(wait4(child, status, 0, room()), child, "wait4");
    CHECK_EQ(WEXITSTATUS(*status), 17, "how the child ended");
    again(status, "after wait4");
    close(event), close(timer), close(signals), close(pair[0]), close(pair[1]);
}

static void facts(void)
{
    struct timespec *time = room();
    CHECK_EQ(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, time), 0, "clock_gettime");
    CHECK_EQ(time->tv_nsec < 1000000000, 1, "a time");
    time = room();
    CHECK_EQ(clock_gettime(CLOCK_MONOTONIC, time), 0, "clock_gettime of the vdso");
    CHECK_EQ(time->tv_nsec < 1000000000, 1, "a time of the vdso");
    struct utsname *name = room();
    CHECK_EQ(uname(name), 0, "uname");
    CHECK_EQ(strcmp(name->sysname, "Linux"), 0, "its name");
    struct stat *status = room();
    CHECK_EQ(stat("/", status), 0, "stat");
    CHECK_EQ(S_ISDIR(status->st_mode), 1, "a directory");
    CHECK_EQ(sysinfo(room()), 0, "sysinfo");
    CHECK_EQ(times(room()) != -1, 1, "times");
    CHECK_EQ(getcwd(room(), 1000) != 0, 1, "getcwd");
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, room()), 0, "getrlimit");
    CHECK_EQ(getrlimit(RLIMIT_AS, room()), 0, "getrlimit of address space");
    CHECK_EQ(syscall(SYS_arch_prctl, ARCH_GET_FS, room()), 0, "arch_prctl");
    CHECK_EQ(syscall(SYS_arch_prctl, ARCH_GET_GS, room()), 0, "arch_prctl of gs");
    int *pipes = room();
    CHECK_EQ(pipe(pipes), 0, "pipe");
    struct pollfd *polled = room();
    *polled = (struct pollfd){pipes[1], POLLOUT, 0};
    CHECK_EQ(call((char *)polled - 1024), values, "guarded again");
    CHECK_EQ(poll(polled, 1, 0), 1, "poll");
    CHECK_EQ(polled->revents, POLLOUT, "what poll found");
    fd_set *writable = room();
    FD_ZERO(writable);
    FD_SET(pipes[1], writable);
    CHECK_EQ(call((char *)writable - 1024), values, "guarded again");
    CHECK_EQ(select(pipes[1] + 1, 0, writable, 0, 0), 1, "select");
    int waiting = epoll_create1(0);
    struct epoll_event want = {.events = EPOLLOUT, .data.u64 = 5}, *events = room();
    CHECK_EQ(epoll_ctl(waiting, EPOLL_CTL_ADD, pipes[1], &want), 0, "epoll_ctl");
    CHECK_EQ(epoll_wait(waiting, events, 4, 0), 1, "epoll_wait");
    CHECK_EQ(events->data.u64, 5, "the event");
    int *ready = room();
    CHECK_EQ(write(pipes[1], "xyz", 3), 3, "write");
    CHECK_EQ(ioctl(pipes[0], FIONREAD, ready), 0, "ioctl");
    CHECK_EQ(*ready, 3, "what is ready");
    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    struct ifconf names = {.ifc_len = 1000, .ifc_buf = room()};
    if (udp >= 0)
        CHECK_EQ(ioctl(udp, SIOCGIFCONF, &names), 0, "ioctl that leads on");
    int here = open("/", O_RDONLY | O_DIRECTORY);
    CHECK_EQ(syscall(SYS_getdents64, here, room(), 1000) > 0, 1, "getdents64");
    socklen_t *length = room();
    *length = sizeof(int);
    CHECK_EQ(call((char *)length - 1024), values, "guarded again");
    int *type = room();
    if (udp >= 0) {
        CHECK_EQ(getsockopt(udp, SOL_SOCKET, SO_TYPE, type, length), 0, "getsockopt");
        CHECK_EQ(*type, SOCK_DGRAM, "the type");
    }
    close(here), close(udp), close(waiting), close(pipes[0]), close(pipes[1]);
    int *word = room(), other = 0;
    *word = 4;
    CHECK_EQ(call((char *)word - 1024), values, "guarded again");
    int add = FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 0);
    CHECK_EQ(syscall(SYS_futex, &other, FUTEX_WAKE_OP, 1, 1, word, add), 0, "futex");
    CHECK_EQ(*word, 7, "what a futex added");
    again(word, "after futex");
}

static int hits;
static unsigned char *at_signal;

static void handler(int signal)
{
    hits += signal == SIGUSR2;
    if (at_signal)
        CHECK_EQ(call(at_signal), values, "on the signal's stack");
}

static void stacks(void)
{
    size_t bytes = 1 << 17;
    unsigned char *area = map_pages(bytes, PROT_READ | PROT_WRITE | PROT_EXEC);
    stack_t stack = {.ss_sp = area, .ss_size = bytes}, none = {.ss_flags = SS_DISABLE};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    CHECK_EQ(sigaltstack(&stack, 0), 0, "sigaltstack");
    CHECK_EQ(sigaction(SIGUSR2, &action, 0), 0, "sigaction");
    /* Code all over it. */
    ++values;
    for (int round = 0; round < 20; round++) {
        for (unsigned char *code = area; code < area + bytes; code += PAGE) {
            function(code, values);
            CHECK_EQ(call(code), values, "on a signal's stack");
        }
        raise(SIGUSR2);
    }
    CHECK_EQ(hits, 20, "handlers on a stack with code");
    CHECK_EQ(sigaltstack(&none, 0), 0, "no sigaltstack");
    /* The same where the stack is that of the thread. */
    ucontext_t here, there;
    getcontext(&there);
    area = map_pages(bytes, PROT_READ | PROT_WRITE | PROT_EXEC);
    for (unsigned char *code = area; code < area + bytes; code += PAGE) {
        function(code, values);
        CHECK_EQ(call(code), values, "on a stack");
    }
    at_signal = area;
    there.uc_stack.ss_sp = area;
    there.uc_stack.ss_size = bytes;
    there.uc_link = &here;
    makecontext(&there, (void (*)(void))raise, 1, SIGUSR2);
    swapcontext(&here, &there);
    CHECK_EQ(hits, 21, "a handler on a stack with code");
    at_signal = 0;
}

static int nothing(void *argument)
{
    call(argument);
    return 0;
}

static void wait_for_zero(int *word)
{
    for (int value; (value = __atomic_load_n(word, __ATOMIC_SEQ_CST)) != 0;)
        syscall(SYS_futex, word, FUTEX_WAIT, value, 0, 0, 0);
}

static void *leaves_locked(void *mutex)
{
    CHECK_EQ(pthread_mutex_lock(mutex), 0, "lock");
    CHECK_EQ(call((char *)mutex - 1024), values, "code beside a lock");
    return 0;
}

static void threads(void)
{
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_PARENT_SETTID
                | CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID;
    char *stack = map_pages(1 << 16, PROT_READ | PROT_WRITE);
    int *own = room(), *parents = room();
    *own = -1;
    CHECK_EQ(call((char *)own - 1024), values - 1, "guarded again");
    long made = clone(nothing, stack + (1 << 16), flags, (char *)parents - 1024, parents, 0, own);
    CHECK_EQ(made > 0, 1, "clone");
    CHECK_EQ(*parents == made, 1, "the number of a thread for its maker");
    wait_for_zero(own);
    again(parents, "after a thread");
    pthread_mutexattr_t robust;
    pthread_mutexattr_init(&robust);
    pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_t *mutex = room();
    pthread_mutex_init(mutex, &robust);
    pthread_t thread;
    pthread_create(&thread, 0, leaves_locked, mutex);
    pthread_join(thread, 0);
    CHECK_EQ(pthread_mutex_lock(mutex), EOWNERDEAD, "the lock of a thread that is gone");
    again(mutex, "after a robust lock");
}

static int tube[2];

static void *waits(void *at)
{
    return (void *)read(tube[0], at, 8);
}

/* A call that has begun when the page was one like others. */
static void meanwhile(void)
{
    CHECK_EQ(pipe(tube), 0, "pipe");
    for (int round = 0; round < 20; round++) {
        unsigned char *area = map_pages(AREA, PROT_READ | PROT_WRITE | PROT_EXEC);
        pthread_t thread;
        pthread_create(&thread, 0, waits, area + 1024);
        usleep(round * 500);
        function(area, 5);
        for (int times = 0; times < 5; times++)
            CHECK_EQ(call(area), 5, "code beside a buffer");
        CHECK_EQ(write(tube[1], "12345678", 8), 8, "write");
        void *result = 0;
        pthread_join(thread, &result);
        CHECK_EQ((long)result, 8, "a read that had begun");
        CHECK_EQ(memcmp(area + 1024, "12345678", 8), 0, "what was read");
        munmap(area, AREA);
    }
    close(tube[0]), close(tube[1]);
}

int main(void)
{
    reads();
    once();
    facts();
    stacks();
    threads();
    meanwhile();
    return check_failures != 0;
}

/* Promise: F10 */
/* Promise: F10: bytes that system calls, signals and ending threads write next to code arrive */
