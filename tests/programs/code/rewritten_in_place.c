//@ variants: pie static
//@ cflags: -O1
/* A page that is writable and executable and rewritten all the time: by stores of every width, by
 * string instructions and vectors, in other bytes of the same page, by the page's own code. */
#include "check.h"

static unsigned char *page;
static int (*run)(void);

static void put(int value)
{
    static const unsigned char template[] = {0xb8, 0, 0, 0, 0, 0xc3};
    memcpy(page, template, 6);
    memcpy(page + 1, &value, 4);
}

static void immediates(void)
{
    put(0);
    for (int i = 0; i < 3000; i++) {
        *(volatile int *)(page + 1) = i;
        CHECK_EQ(run(), i, "the new immediate");
        if (check_failures)
            return;
    }
    for (int i = 0; i < 256; i++) {
        *(volatile unsigned char *)(page + 2) = i;
        CHECK_EQ(run() >> 8 & 0xff, i, "one byte of the immediate");
    }
}

static void store_kinds(void)
{
    put(1);
    CHECK_EQ(run(), 1, "start");
    unsigned char code[16] = {0xb8, 2, 0, 0, 0, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90};
    __asm__ volatile("movdqu %0, %%xmm0\n movdqu %%xmm0, (%1)" ::"m"(code), "r"(page) : "xmm0", "memory");
    CHECK_EQ(run(), 2, "a vector store");
    code[1] = 3;
    void *to = page;
    const void *from = code;
    size_t count = 6;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count)::"memory");
    CHECK_EQ(run(), 3, "rep movsb");
    __asm__ volatile("lock incb 1(%0)" ::"r"(page) : "memory");
    CHECK_EQ(run(), 4, "a locked increment");
    uint32_t old = 4;
    __asm__ volatile("lock cmpxchgl %2, 1(%1)" : "+a"(old) : "r"(page), "r"(5) : "memory");
    CHECK_EQ(run(), 5, "cmpxchg");
    __asm__ volatile("xchgl %0, 1(%1)" : "+r"(old) : "r"(page) : "memory");
    CHECK_EQ(run(), 4, "xchg");
    __asm__ volatile("movnti %0, 1(%1)\n sfence" ::"r"(77), "r"(page) : "memory");
    CHECK_EQ(run(), 77, "a non-temporal store");
    /* b8 06 00 00 00 c3 90 90, pushed as one word with the stack pointer at page + 8. */
    __asm__ volatile("movq %%rsp, %%rcx\n movq %0, %%rsp\n pushq %1\n movq %%rcx, %%rsp"
                     ::"r"(page + 8), "r"(0x9090c300000006b8) : "rcx", "memory");
    CHECK_EQ(run(), 6, "a push");
}

static void growing(void)
{
    /* The routine gets longer: add eax, 1 repeated. */
    unsigned char *p = page + 64;
    int (*grow)(void) = (int (*)(void))p;
    memcpy(p, "\x31\xc0\xc3", 3);
    for (int i = 0; i < 300; i++) {
        CHECK_EQ(grow(), i, "length %d", i);
        memcpy(p + 2 + i * 3, "\x83\xc0\x01\xc3", 4);
    }
}

static void neighbours(void)
{
    /* Data beside code: stores that do not change code, but hit its page. */
    put(9);
    volatile int *data = (int *)(page + 2048);
    int sum = 0;
    for (int i = 0; i < 5000; i++) {
        *data = i;
        sum += run() + *data;
    }
    CHECK_EQ(sum, 5000 * 9 + 5000 * 4999 / 2, "code with data beside it");
}

/* inc dword [rip+target]; the code counts in its own page. */
static void self_counting(void)
{
    unsigned char *p = page + 512;
    memcpy(p, "\xff\x05\x0a\x00\x00\x00\x8b\x05\x04\x00\x00\x00\xc3", 13); /* inc [p+16]; mov eax,[p+16]; ret */
    memset(p + 16, 0, 4);
    int (*count)(void) = (int (*)(void))p;
    for (int i = 1; i <= 3000; i++)
        CHECK_EQ(count(), i, "a counter beside its code");
}

static void many_routines(void)
{
    /* Slots that are rewritten in a pseudo-random order, each with another shape. */
    unsigned char *area = map_pages(16 * 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    int want[1024];
    uint64_t x = 3;
    for (int i = 0; i < 1024; i++) {
        want[i] = -1;
        area[i * 64] = 0xc3;
    }
    for (int round = 0; round < 20000; round++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        int slot = x >> 54;
        unsigned char *p = area + slot * 64;
        if (x >> 20 & 1 || want[slot] < 0) {
            int value = x >> 24 & 0xffffff;
            int shape = x >> 50 & 3;
            want[slot] = value;
            if (shape == 0) {
                memcpy(p, "\xb8\0\0\0\0\xc3", 6);
                memcpy(p + 1, &value, 4);
            } else if (shape == 1) {
                memcpy(p, "\xeb\x06\xcc\xcc\xcc\xcc\xcc\xcc\xb8\0\0\0\0\xc3", 14);
                memcpy(p + 9, &value, 4);
            } else if (shape == 2) {
                memcpy(p, "\x31\xc0\x74\x02\x0f\x0b\x05\0\0\0\0\xc3", 12);
                memcpy(p + 7, &value, 4);
            } else {
                memcpy(p, "\x68\0\0\0\0\x58\xc3", 7);
                memcpy(p + 1, &value, 4);
            }
        }
        CHECK_EQ(((int (*)(void))p)(), want[slot], "slot %d in round %d", slot, round);
        if (check_failures)
            return;
    }
}

int main(void)
{
    page = map_pages(4096, PROT_READ | PROT_WRITE | PROT_EXEC);
    run = (int (*)(void))page;
    RUN(immediates);
    RUN(store_kinds);
    RUN(growing);
    RUN(neighbours);
    RUN(self_counting);
    RUN(many_routines);
    return done();
}

/* Promise: F10 */
