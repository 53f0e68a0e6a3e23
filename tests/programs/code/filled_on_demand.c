//@ cflags: -O1
/* Memory that the program fills itself, by a descriptor of userfaultfd(2): code and arguments that are not there yet
 * are there when they are asked for, and nothing is asked for that nobody needs. */
#include "check.h"
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/uio.h>

enum { PAGE = 4096, PAGES = 64 };

/* mov eax, VALUE; ret */
static void answer_with(unsigned char *at, int value)
{
    at[0] = 0xb8;
    memcpy(at + 1, &value, 4);
    at[5] = 0xc3;
}

static int descriptor = -1;
static unsigned char *area;
static unsigned char contents[PAGES][PAGE] __attribute__((aligned(4096)));
static volatile int asked[PAGES];
static volatile int strangers;

/* Puts pages in their places. Its own work takes a path that nobody has executed before, at each page. */
static void *fill(void *unused)
{
    (void)unused;
    for (;;) {
        struct uffd_msg message;
        struct pollfd wait = {descriptor, POLLIN, 0};
        if (poll(&wait, 1, -1) != 1 || read(descriptor, &message, sizeof message) != sizeof message)
            continue;
        unsigned char *at = (unsigned char *)(message.arg.pagefault.address & ~(PAGE - 1ull));
        if (message.event != UFFD_EVENT_PAGEFAULT || at < area || at >= area + PAGES * PAGE) {
            strangers = strangers + 1;
            continue;
        }
        long page = (at - area) / PAGE;
        asked[page] = asked[page] + 1;
        /* New code, which its translation is asked for while the page is waited for. */
        unsigned char *work = map_pages(PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
        answer_with(work, (int)page);
        CHECK_EQ(((int (*)(void))work)(), page, "work");
        munmap(work, PAGE);
        struct uffdio_copy copy = {(unsigned long)at, (unsigned long)contents[page], PAGE, 0, 0};
        if (ioctl(descriptor, UFFDIO_COPY, &copy) != 0 && errno != EEXIST)
            say("copy: %s", strerror(errno));
    }
    return NULL;
}

static int by_device(void)
{
    int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
    int made = device < 0 ? -1 : ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC);
    close(device);
    return made;
}

static bool begin(int made)
{
    struct uffdio_api api = {.api = UFFD_API};
    descriptor = made;
    if (descriptor < 0 || ioctl(descriptor, UFFDIO_API, &api) != 0) {
        say("# no userfaultfd here");
        return false;
    }
    area = map_pages(PAGES * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
    struct uffdio_register all = {.range = {(unsigned long)area, PAGES * PAGE},
                                  .mode = UFFDIO_REGISTER_MODE_MISSING};
    MUST(ioctl(descriptor, UFFDIO_REGISTER, &all) == 0);
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, fill, NULL) == 0);
    return true;
}

static int call(long offset) { return ((int (*)(void))(area + offset))(); }

static void code(void)
{
    for (int page = 0; page < 8; page++)
        answer_with(contents[page], page * 7);
    for (int page = 0; page < 8; page++)
        CHECK_EQ(call(page * PAGE), page * 7, "page %d", page);
    for (int page = 0; page < 8; page++)
        CHECK_EQ(asked[page], 1, "page %d", page);
    CHECK_EQ(asked[8], 0, "what lies behind");
}

/* An instruction that ends in the next page, and one that does not. */
static void across(void)
{
    unsigned char bytes[6];
    answer_with(bytes, 0x12345);
    memcpy(contents[8] + PAGE - 3, bytes, 3);
    memcpy(contents[9], bytes + 3, 3);
    CHECK_EQ(call(8 * PAGE + PAGE - 3), 0x12345, "across");
    CHECK_EQ(asked[8] * 16 + asked[9], 0x11, "both");
    answer_with(contents[10] + PAGE - 6, 77);
    CHECK_EQ(call(11 * PAGE - 6), 77, "at the end");
    CHECK_EQ(asked[10] * 16 + asked[11], 0x10, "the page, and not the next");
}

/* A branch to a page that is not there, which is not taken. */
static void untaken(void)
{
    static const unsigned char skips[] = {0x85, 0xff, 0x0f, 0x85, 0xf8, 0x0f, 0, 0, 0xb8, 5, 0, 0, 0, 0xc3};
    memcpy(contents[12], skips, sizeof skips);
    answer_with(contents[13], 6);
    int (*function)(int) = (int (*)(int))(area + 12 * PAGE);
    for (int i = 0; i < 1000; i++)
        CHECK_EQ(function(0), 5, "not taken");
    CHECK_EQ(asked[13], 0, "not taken");
    CHECK_EQ(function(1), 6, "taken");
    CHECK_EQ(asked[13], 1, "taken");
}

/* The page's content is thrown away, and is another one when it is asked for again. */
static void again(void)
{
    for (int i = 0; i < 20; i++) {
        answer_with(contents[14], i);
        CHECK_EQ(call(14 * PAGE), i, "round %d", i);
        CHECK_EQ(asked[14], i + 1, "round %d", i);
        MUST(madvise(area + 14 * PAGE, PAGE, MADV_DONTNEED) == 0);
    }
}

static volatile int alarms;
static void on_alarm(int number)
{
    (void)number;
    alarms = alarms + 1;
}

/* Arguments that are not there yet, of calls that the virtual CPU takes part in. */
static void arguments(void)
{
    unsigned char *at = area + 16 * PAGE;
    memcpy(contents[16], &(struct timespec){0, 1000000}, sizeof(struct timespec));
    CHECK_EQ(syscall(SYS_nanosleep, at, NULL), 0, "nanosleep");
    struct sigaction action = {.sa_handler = on_alarm};
    MUST(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK_EQ(syscall(SYS_rt_sigaction, SIGALRM, NULL, at + PAGE, 8), 0, "rt_sigaction");
    raise(SIGALRM);
    CHECK_EQ(alarms, 1, "the handler");
    strcpy((char *)contents[18], "/proc/self/maps");
    int maps = (int)syscall(SYS_openat, AT_FDCWD, at + 2 * PAGE, O_RDONLY);
    MUST(maps >= 0);
    CHECK_EQ(syscall(SYS_fstat, maps, at + 3 * PAGE), 0, "fstat");
    CHECK(syscall(SYS_pread64, maps, at + 4 * PAGE, 64, 0) == 64, "pread64");
    close(maps);
    struct rlimit limit;
    MUST(getrlimit(RLIMIT_DATA, &limit) == 0);
    memcpy(contents[21], &limit, sizeof limit);
    CHECK_EQ(syscall(SYS_prlimit64, 0, RLIMIT_DATA, at + 5 * PAGE, at + 6 * PAGE), 0, "prlimit64");
    CHECK_EQ(memcmp(at + 6 * PAGE, &limit, sizeof limit), 0, "the limit");
    struct iovec part = {at + 8 * PAGE, 4};
    memcpy(contents[23], &part, sizeof part);
    int ends[2];
    MUST(pipe(ends) == 0 && write(ends[1], "abcd", 4) == 4);
    CHECK_EQ(syscall(SYS_readv, ends[0], at + 7 * PAGE, 1), 4, "readv");
    CHECK_EQ(memcmp(at + 8 * PAGE, "abcd", 4), 0, "readv");
    for (int page = 16; page < 25; page++)
        CHECK_EQ(asked[page], 1, "page %d", page);
}

/* A signal's frame on a stack that is not there yet. */
static void frames(void)
{
    stack_t stack = {.ss_sp = area + 32 * PAGE, .ss_size = 16 * PAGE};
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_ONSTACK};
    MUST(sigaltstack(&stack, NULL) == 0 && sigaction(SIGALRM, &action, NULL) == 0);
    alarms = 0;
    raise(SIGALRM);
    CHECK_EQ(alarms, 1, "the handler");
    stack.ss_flags = SS_DISABLE;
    MUST(sigaltstack(&stack, NULL) == 0);
}

static void all(void)
{
    RUN(code);
    RUN(across);
    RUN(untaken);
    RUN(again);
    RUN(arguments);
    RUN(frames);
    CHECK_EQ(strangers, 0, "what nobody has registered");
}

static void by_call(void)
{
    if (begin((int)syscall(SYS_userfaultfd, O_CLOEXEC)))
        all();
}

static void by_open(void)
{
    if (begin(by_device()))
        all();
}

int main(void)
{
    alarm(120);
    CHECK_EQ(in_child(by_call), 0, "userfaultfd(2)");
    CHECK_EQ(in_child(by_open), 0, "/dev/userfaultfd");
    return done();
}

/* Promise: F10, F34 */
