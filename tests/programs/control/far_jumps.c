//@ cflags: -O1
/* Far jumps to 32-bit code and back, as Wine makes them for 32-bit programs: the same bytes are other instructions
 * there. Signals that come meanwhile find the code segment in their frames; handlers return to 32-bit code. */
#include "check.h"

#define CODE 256
#define BACK 512
#define POINTER 1024
#define STACK 60000

static uint8_t *low;
static volatile int inside, outside;

struct far_pointer {
    uint32_t offset;
    uint16_t segment;
} __attribute__((packed));

static void on_alarm(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    const ucontext_t *interrupted = context;
    bool is_there = (interrupted->uc_mcontext.gregs[REG_CSGSFS] & 0xffff) == 0x23;
    unsigned long pc = interrupted->uc_mcontext.gregs[REG_RIP];
    if (is_there != (pc >= (uintptr_t)low + CODE && pc < (uintptr_t)low + BACK))
        check_failures = check_failures + 1;
    *(is_there ? &inside : &outside) += 1;
}

/* Puts 32-bit code in place; it ends with a far jump to `jmp *%rsi` behind it. */
static void put(const uint8_t *code, size_t bytes)
{
    uint32_t back = (uint32_t)(uintptr_t)low + BACK;
    memcpy(low + CODE, code, bytes);
    uint8_t *end = low + CODE + bytes;
    *end = 0xea;
    memcpy(end + 1, &back, 4);
    memcpy(end + 5, (uint16_t[]){0x33}, 2);
}

__attribute__((noinline)) static uint32_t leave(uint32_t eax, uint32_t *ecx, uint32_t *ebx)
{
    uint32_t c = *ecx, b = *ebx;
    uint64_t stack = (uintptr_t)low + STACK;
    asm volatile("mov %%rsp, %%r15\n\t"
                 "lea 1f(%%rip), %%rsi\n\t"
                 "mov %3, %%rsp\n\t"
                 "ljmp *(%4)\n"
                 "1:\tmov %%r15, %%rsp"
                 : "+a"(eax), "+c"(c), "+b"(b)
                 : "r"(stack), "r"(low + POINTER)
                 : "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "r15", "memory", "cc");
    *ecx = c;
    *ebx = b;
    return eax;
}

int main(void)
{
    low = mmap(NULL, 65536, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    MUST(low != MAP_FAILED);
    memcpy(low + BACK, (uint8_t[]){0xff, 0xe6}, 2);
    struct far_pointer there = {(uint32_t)(uintptr_t)low + CODE, 0x23};
    memcpy(low + POINTER, &there, sizeof there);

    /* inc ecx twice (a prefix of 64-bit code), add eax, eax, push eax, pop ebx, inc eax. */
    const uint8_t sums[] = {0x41, 0x41, 0x01, 0xc0, 0x50, 0x5b, 0x40};
    put(sums, sizeof sums);
    for (uint32_t i = 0; i < 300; i++) {
        uint32_t ecx = 5, ebx = 0, eax = leave(20 + i, &ecx, &ebx);
        CHECK(eax == 2 * (20 + i) + 1 && ecx == 7 && ebx == 2 * (20 + i), "%u: %u, %u, %u", i, eax, ecx, ebx);
    }

    /* A system call of the 32-bit table: getpid. */
    const uint8_t call[] = {0xb8, 20, 0, 0, 0, 0xcd, 0x80};
    put(call, sizeof call);
    uint32_t ecx = 0, ebx = 0;
    CHECK(leave(0, &ecx, &ebx) == (uint32_t)getpid(), "another process");

    /* dec ecx until it is 0, with signals meanwhile. */
    const uint8_t loop[] = {0x49, 0x75, 0xfd};
    put(loop, sizeof loop);
    struct sigaction action = {.sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO};
    MUST(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval often = {{0, 2000}, {0, 2000}}, off = {{0, 0}, {0, 0}};
    MUST(setitimer(ITIMER_REAL, &often, NULL) == 0);
    int rounds = 0;
    for (; inside < 3 && rounds < 10000; rounds++) {
        ecx = 3000;
        leave(0, &ecx, &ebx);
        CHECK(ecx == 0, "%u are left", ecx);
    }
    MUST(setitimer(ITIMER_REAL, &off, NULL) == 0);
    CHECK(inside >= 3, "no signal has come in %d rounds, %d outside", rounds, outside);
    return done();
}

/* Promise: F7, F39 */
