//@ variants: pie static
//@ cflags: -O1
/* Uprobes, as agents set them with eBPF: the kernel puts INT3 in the place of an instruction of every process, and
 * executes that instruction itself. Each probe is hit as often as its place is executed, and the program notices nothing.
 * Probes that this user may not set are left out. */
#include "check.h"
#include <linux/perf_event.h>

enum { TIMES = 100, FIRST = 40 };
static volatile long word = 5;

/* Each returns its argument and 1. The kernel emulates some of the first instructions, and executes others elsewhere. */
#define FUNCTIONS(X) X(push) X(nop) X(move) X(relative) X(jump) X(calls) X(ends) X(returns)
__asm__(".text\n"
        "f_push: pushq %rbp\n movq %rsp, %rbp\n leaq 1(%rdi), %rax\n popq %rbp\n ret\n"
        "f_nop: nop\n leaq 1(%rdi), %rax\n ret\n"
        "f_move: movq %rdi, %rax\n addq $1, %rax\n ret\n"
        "f_relative: movq word(%rip), %rax\n leaq -4(%rdi,%rax), %rax\n ret\n"
        "f_jump: jmp 1f\n ud2\n1: leaq 1(%rdi), %rax\n ret\n"
        "f_calls: call f_inner\n ret\nf_inner: leaq 1(%rdi), %rax\n ret\n"
        "f_ends: ret\n"
        "f_returns: leaq 1(%rdi), %rax\n ret\n"
        ".globl f_push, f_nop, f_move, f_relative, f_jump, f_calls, f_ends, f_returns\n");
#define DECLARE(name) long f_##name(long);
FUNCTIONS(DECLARE)
/* Its result stands there already. */
static long ends(long number)
{
    long result = number + 1;
    __asm__ volatile("call f_ends" : "+a"(result) : : "memory");
    return result;
}
#define f_ends ends
#define ENTRY(name) {#name, f_##name},
static const struct {
    const char *name;
    long (*call)(long);
} functions[] = {FUNCTIONS(ENTRY)};
#undef f_ends
#define PLACE(name) (uintptr_t)f_##name,
static const uintptr_t places[] = {FUNCTIONS(PLACE)};
enum { COUNT = sizeof places / sizeof *places };

/* The offset in this program's file of what is at an address. */
static unsigned long offset_of(uintptr_t address)
{
    unsigned long start, end, offset, found = 0;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %*s %lx", &start, &end, &offset) == 3 && address >= start && address < end)
            found = address - start + offset;
    fclose(maps);
    return found;
}

static int set(uintptr_t place, bool on_return)
{
    static char path[PATH_MAX];
    int type = 0;
    FILE *file = fopen("/sys/bus/event_source/devices/uprobe/type", "r");
    if (!file || fscanf(file, "%d", &type) != 1 || readlink("/proc/self/exe", path, sizeof path - 1) < 0)
        return -1;
    fclose(file);
    struct perf_event_attr attr = {.type = type, .size = sizeof attr, .config = on_return};
    attr.config1 = (uintptr_t)path;
    attr.config2 = offset_of(place);
    return syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
}

static void call_all(void)
{
    for (int i = 0; i < COUNT; i++)
        for (long k = 0; k < TIMES; k++)
            CHECK_EQ(functions[i].call(k), k + 1, "%s", functions[i].name);
}

int main(int count, char **arguments)
{
    if (count == 1) {
        char *again[] = {arguments[0], "again", NULL};
        for (int i = 0; i < COUNT; i++) {
            int fd = set(places[i], i == COUNT - 1);
            if (fd < 0)
                say("# no uprobes: %s", strerror(errno));
            MUST(dup2(fd < 0 ? open("/dev/null", O_RDONLY) : fd, FIRST + i) == FIRST + i);
        }
        execv("/proc/self/exe", again);
        _exit(97);
    }
    call_all();
    for (int i = 0; i < COUNT; i++) {
        uint64_t hits = TIMES;
        if (read(FIRST + i, &hits, sizeof hits) <= 0)
            say("# %s: not probed", functions[i].name);
        CHECK_EQ(hits, TIMES, "hits of %s", functions[i].name);
    }
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        call_all();
        _exit(check_failures ? 1 : 0);
    }
    int status = 0;
    MUST(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0, "a child calls them too");
    return done();
}

/* Promise: F37: if the user may set uprobes */
