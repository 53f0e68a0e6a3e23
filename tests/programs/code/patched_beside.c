//@ variants: pie static
//@ cflags: -O1
/* A page of the program's own text is changed while the rest of the text stays, and leads there by
 * calls, jumps and pointers: written by stores and by the kernel, mapped over, unmapped. Callers have
 * run before, and run again from the places where they were called before. */
#include "check.h"
#include <sys/uio.h>

/* A routine in a page of its own, and two ways from here to it. */
#define VICTIM(name)                                                                               \
    int name(void);                                                                                \
    int name##_jump(void);                                                                         \
    __asm__(".text\n.balign 4096\n" #name ": movl $5, %eax\n ret\n.balign 4096\n"                  \
            #name "_jump: jmp " #name "\n");                                                       \
    static __attribute__((noinline)) int name##_call(void)                                         \
    {                                                                                              \
        int got = name();                                                                          \
        __asm__ volatile("");                                                                      \
        return got;                                                                                \
    }

VICTIM(stored)
VICTIM(by_kernel)
VICTIM(by_child)
VICTIM(childs)
VICTIM(mapped)
VICTIM(unmapped)

enum { TIMES = 40 };

/* All ways lead to the routine as it is now. */
static void expect(int want, int (*call)(void), int (*jump)(void), int (*volatile routine)(void))
{
    for (int i = 0; i < TIMES; i++) {
        CHECK_EQ(call(), want, "by a call, time %d", i);
        CHECK_EQ(jump(), want, "by a jump, time %d", i);
        CHECK_EQ(routine(), want, "by a pointer, time %d", i);
    }
}
#define EXPECT(want, name) expect(want, name##_call, name##_jump, name)

/* mov eax, value; ret */
static void make(unsigned char code[6], int value)
{
    code[0] = 0xb8;
    memcpy(code + 1, &value, 4);
    code[5] = 0xc3;
}

static void unlock(int (*routine)(void))
{
    MUST(mprotect((void *)routine, 4096, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
}

static void lock(int (*routine)(void))
{
    MUST(mprotect((void *)routine, 4096, PROT_READ | PROT_EXEC) == 0);
}

static void put(int (*routine)(void), int value)
{
    unsigned char code[6];
    make(code, value);
    memcpy((void *)routine, code, sizeof code);
}

static void by_stores(void)
{
    EXPECT(5, stored);
    unlock(stored);
    EXPECT(5, stored);
    for (int i = 0; i < 30; i++) {
        put(stored, 100 + i);
        EXPECT(100 + i, stored);
    }
    lock(stored);
    EXPECT(129, stored);
    unlock(stored);
    put(stored, 7);
    lock(stored);
    EXPECT(7, stored);
}

static void by_calls(void)
{
    EXPECT(5, by_kernel);
    unlock(by_kernel);
    int ends[2];
    MUST(pipe(ends) == 0);
    for (int i = 0; i < 10; i++) {
        unsigned char code[6];
        make(code, 200 + i);
        struct iovec from = {code, sizeof code}, to = {(void *)by_kernel, sizeof code};
        if (i % 2) {
            MUST(process_vm_writev(getpid(), &from, 1, &to, 1, 0) == sizeof code);
        } else {
            MUST(write(ends[1], code, sizeof code) == sizeof code);
            MUST(read(ends[0], (void *)by_kernel, sizeof code) == sizeof code);
        }
        EXPECT(200 + i, by_kernel);
    }
}

/* A child changes its maker's code. */
static void from_a_child(void)
{
    EXPECT(5, by_child);
    unlock(by_child);
    pid_t maker = getpid(), pid = fork();
    if (pid == 0) {
        unsigned char code[6];
        make(code, 300);
        struct iovec from = {code, sizeof code}, to = {(void *)by_child, sizeof code};
        _exit(process_vm_writev(maker, &from, 1, &to, 1, 0) != sizeof code);
    }
    int status = -1;
    MUST(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0, "the child's end");
    EXPECT(300, by_child);
}

/* Changes its own code, which its maker does not see. */
static void changes_its_own(void)
{
    unlock(childs);
    put(childs, 400);
    EXPECT(400, childs);
}

static void of_a_child(void)
{
    EXPECT(5, childs);
    int status = in_child(changes_its_own);
    CHECK_EQ(status, 0, "the child's end");
    EXPECT(5, childs);
}

static void over(void)
{
    EXPECT(5, mapped);
    void *page = mmap((void *)mapped, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    MUST(page == (void *)mapped);
    put(mapped, 500);
    lock(mapped);
    EXPECT(500, mapped);
    page = mmap(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    MUST(page == (void *)mapped);
    put(mapped, 501);
    EXPECT(501, mapped);
}

static sigjmp_buf back;
static volatile uintptr_t fault_at;
static void handler(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    fault_at = regs_of(context)[REG_RIP];
    siglongjmp(back, 1);
}

static void expect_fault(int (*way)(void))
{
    fault_at = 0;
    if (sigsetjmp(back, 1) == 0) {
        int got = way();
        CHECK(0, "it returns %d", got);
    }
    CHECK_EQ(fault_at, (uintptr_t)unmapped, "the fault");
}

static void gone(void)
{
    EXPECT(5, unmapped);
    MUST(munmap((void *)unmapped, 4096) == 0);
    on_signal(SIGSEGV, handler, 0);
    for (int i = 0; i < 3; i++) {
        expect_fault(unmapped_call);
        expect_fault(unmapped_jump);
        expect_fault(unmapped);
    }
}

int main(void)
{
    RUN(by_stores);
    RUN(by_calls);
    RUN(from_a_child);
    RUN(of_a_child);
    RUN(over);
    RUN(gone);
    return done();
}

/* Promise: F10 */
/* Promise: F10: part of the program's own text */
