//@ variants: pie
//@ cflags: -O1 -pthread -D_GNU_SOURCE
/* Functions in pages that are writable and executable, called often and changed now and then, in every way there is to
 * write to them. Four threads do that beside each other: the pages are common to all, the functions are not. */
#include <pthread.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "check.h"

enum { THREADS = 4, SLOTS = 64, SLOT = 96, ROUNDS = 3000 };

static unsigned char *pages;

struct owner {
    int number;
    unsigned random;
    int values[SLOTS];
    int pipe[2];
    long sum;
};

/* Slots of one owner are apart: every page has some of each. */
static unsigned char *place(const struct owner *owner, int slot)
{
    return pages + (slot * THREADS + owner->number) * SLOT;
}

static unsigned draw(struct owner *owner)
{
    owner->random = owner->random * 1664525 + 1013904223;
    return owner->random >> 16;
}

/* A function that adds up 1 to `value & 15` and returns that beside `value`. */
static size_t function(unsigned char *code, int value)
{
    static const unsigned char template[] = {
        0x31, 0xc0,                   /* xor eax, eax */
        0xb9, 0, 0, 0, 0,             /* mov ecx, value & 15 */
        0x85, 0xc9,                   /* test ecx, ecx */
        0x74, 6,                      /* jz end */
        0x01, 0xc8,                   /* again: add eax, ecx */
        0xff, 0xc9,                   /* dec ecx */
        0x75, 0xfa,                   /* jnz again */
        0x05, 0, 0, 0, 0,             /* end: add eax, value << 8 */
        0xc3,
    };
    memcpy(code, template, sizeof template);
    int small = value & 15, large = value << 8;
    memcpy(code + 3, &small, 4);
    memcpy(code + 18, &large, 4);
    return sizeof template;
}

static int expected(int value)
{
    int small = value & 15;
    return small * (small + 1) / 2 + (value << 8);
}

static int call(const struct owner *owner, int slot)
{
    return ((int (*)(void))place(owner, slot))();
}

static void by_calls(struct owner *owner, unsigned char *to, const unsigned char *code, size_t len, int how)
{
    if (how == 0) {
        CHECK_EQ(write(owner->pipe[1], code, len), (long)len, "write");
        CHECK_EQ(read(owner->pipe[0], to, len), (long)len, "read into code");
        return;
    }
    struct iovec from = {(void *)code, len}, into = {to, len};
    long written = process_vm_writev(getpid(), &from, 1, &into, 1, 0);
    if (written != (long)len)
        memcpy(to, code, len);
}

static void change(struct owner *owner, int slot)
{
    unsigned char code[SLOT], *to = place(owner, slot);
    int value = draw(owner) & 0xffff;
    size_t len = function(code, value);
    switch (draw(owner) % 6) {
    case 0:
    case 1:
        by_calls(owner, to, code, len, draw(owner) & 1);
        break;
    case 2:
        /* Byte by byte, backwards, with a call of another function between. */
        for (size_t at = len; at-- > 0;)
            *(volatile unsigned char *)(to + at) = code[at];
        break;
    case 3:
        /* The constants alone. */
        *(volatile int *)(to + 3) = value & 15;
        *(volatile int *)(to + 18) = value << 8;
        break;
    case 4:
        /* A breakpoint for a moment, which nobody executes. */
        *(volatile unsigned char *)to = 0xcc;
        memcpy(to, code, len);
        break;
    default:
        memcpy(to, code, len);
    }
    owner->values[slot] = value;
}

static void in_a_child(struct owner *owner)
{
    pid_t child = fork();
    if (child == 0) {
        int failed = 0;
        for (int slot = 0; slot < SLOTS; slot++)
            failed |= call(owner, slot) != expected(owner->values[slot]);
        change(owner, 3);
        failed |= call(owner, 3) != expected(owner->values[3]);
        _exit(failed);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK_EQ(status, 0, "a child sees and changes its copy");
    CHECK_EQ(call(owner, 3), expected(owner->values[3]), "and the parent its own");
}

static void *work(void *argument)
{
    struct owner *owner = argument;
    for (int round = 0; round < ROUNDS && !check_failures; round++) {
        int slot = draw(owner) % SLOTS;
        /* Bursts of writes at first, then writes here and there. */
        if (draw(owner) % (round < ROUNDS / 2 ? 8 : 128) == 0)
            change(owner, slot);
        for (int times = draw(owner) % 20; times >= 0; times--) {
            int got = call(owner, slot);
            CHECK_EQ(got, expected(owner->values[slot]), "what was written last");
            owner->sum += got;
        }
    }
    return 0;
}

int main(void)
{
    size_t bytes = (THREADS * SLOTS * SLOT + 4095) & ~4095L;
    pages = map_pages(bytes, PROT_READ | PROT_WRITE | PROT_EXEC);
    static struct owner owners[THREADS];
    pthread_t threads[THREADS];
    for (int number = 0; number < THREADS; number++) {
        struct owner *owner = &owners[number];
        owner->number = number;
        owner->random = number + 1;
        CHECK_EQ(pipe(owner->pipe), 0, "pipe");
        for (int slot = 0; slot < SLOTS; slot++)
            function(place(owner, slot), owner->values[slot] = slot + number);
    }
    in_a_child(&owners[0]);
    for (int number = 0; number < THREADS; number++)
        pthread_create(&threads[number], 0, work, &owners[number]);
    long sum = 0;
    for (int number = 0; number < THREADS; number++) {
        pthread_join(threads[number], 0);
        sum += owners[number].sum;
    }
    in_a_child(&owners[1]);
    /* What is mapped anew is other code, whatever was guarded there. */
    mmap(pages, bytes, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    function(place(&owners[2], 5), 77);
    CHECK_EQ(call(&owners[2], 5), expected(77), "another mapping");
    CHECK_EQ(madvise(pages, bytes, MADV_DONTNEED), 0, "madvise");
    function(place(&owners[2], 5), 78);
    CHECK_EQ(call(&owners[2], 5), expected(78), "pages that were taken away");
    void *room = map_pages(bytes, PROT_NONE);
    unsigned char *moved = mremap(pages, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, room);
    CHECK(moved != MAP_FAILED, "mremap");
    pages = moved;
    CHECK_EQ(call(&owners[2], 5), expected(78), "code that has moved");
    function(place(&owners[2], 5), 79);
    CHECK_EQ(call(&owners[2], 5), expected(79), "and been changed");
    printf("%ld\n", sum);
    return done();
}

/* Promise: F10 */
/* Promise: F10: by stores, system calls and other threads */
