/* Counts what a program retires by single-stepping it: the ground truth for counts of the virtual CPU.
 *
 *     stepcount OUTPUT PROGRAM [ARGUMENT]...
 *
 * Runs PROGRAM with address-space randomization off and this process's environment, steps its first
 * thread to the end, and writes one JSON object a line to OUTPUT, with the keys of `perf stat -j`.
 * Exits as the program did (128 + signal if one killed it), or with 125 on a failure of its own.
 *
 * What counts:
 *  - an instruction counts when it retires. One that faults does not, until it is restarted and
 *    completes; the last system call (exit) does;
 *  - a REP string instruction counts once, however many steps its iterations take;
 *  - branches are jumps, calls and returns, near and far; not SYSCALL, INT or exceptions;
 *  - LOOPcc and JRCXZ are conditional branches.
 *
 * 32-bit programs are decoded as such.
 *
 * Not handled: threads and children (they would run unstepped and uncounted). */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum kind { OTHER, REP_STRING, CONDITIONAL, JUMP, INDIRECT_JUMP, CALL, INDIRECT_CALL, RETURN, FAR_BRANCH };

struct decoded {
    enum kind kind;
    unsigned length;   /* of conditional branches only */
    int64_t distance;  /* of conditional branches only */
    unsigned char condition; /* 0..15 of Jcc; 16 for LOOPcc and JRCXZ */
};

static struct {
    uint64_t instructions, branches, conditional, conditional_taken, calls, returns, indirect;
} counts;

static void fail(const char *what)
{
    fprintf(stderr, "stepcount: %s: %s\n", what, strerror(errno));
    exit(125);
}

/* Bytes at rip, as far as they are readable: an instruction may end at the end of a mapping. */
static size_t read_code(pid_t pid, uint64_t rip, unsigned char *code, size_t size)
{
    while (size > 0) {
        struct iovec here = {code, size}, there = {(void *)rip, size};
        ssize_t got = process_vm_readv(pid, &here, 1, &there, 1, 0);
        if (got > 0)
            return got;
        size--;
    }
    return 0;
}

static bool is_string_opcode(unsigned char opcode)
{
    return (opcode >= 0x6c && opcode <= 0x6f) || (opcode >= 0xa4 && opcode <= 0xa7) || (opcode >= 0xaa && opcode <= 0xaf);
}

static struct decoded decode(const unsigned char *code, size_t size, bool narrow)
{
    struct decoded d = {.kind = OTHER};
    size_t at = 0;
    bool rep = false;
    /* Legacy prefixes in any order, then at most one REX that counts. */
    for (; at < size; at++) {
        unsigned char b = code[at];
        if (b == 0xf2 || b == 0xf3)
            rep = true;
        else if (!(b == 0x66 || b == 0x67 || b == 0x2e || b == 0x36 || b == 0x3e || b == 0x26 || b == 0x64 || b == 0x65 || b == 0xf0))
            break;
    }
    /* 32-bit code has inc and dec in the place of REX. */
    while (at < size && !narrow && (code[at] & 0xf0) == 0x40)
        at++;
    if (at >= size)
        return d;
    unsigned char opcode = code[at];
    unsigned char next = at + 1 < size ? code[at + 1] : 0;
    if (rep && is_string_opcode(opcode)) {
        d.kind = REP_STRING;
    } else if ((opcode & 0xf0) == 0x70 || (opcode >= 0xe0 && opcode <= 0xe3)) {
        d.kind = CONDITIONAL;
        d.length = at + 2;
        d.distance = (signed char)next;
        d.condition = (opcode & 0xf0) == 0x70 ? opcode & 15 : 16;
    } else if (opcode == 0x0f && (next & 0xf0) == 0x80 && at + 6 <= size) {
        int32_t distance;
        memcpy(&distance, code + at + 2, 4);
        d.kind = CONDITIONAL;
        d.length = at + 6;
        d.distance = distance;
        d.condition = next & 15;
    } else if (opcode == 0xe8) {
        d.kind = CALL;
    } else if (opcode == 0xe9 || opcode == 0xeb) {
        d.kind = JUMP;
    } else if (opcode == 0xc2 || opcode == 0xc3) {
        d.kind = RETURN;
    } else if (opcode == 0xca || opcode == 0xcb || opcode == 0xcf || (narrow && (opcode == 0x9a || opcode == 0xea))) {
        d.kind = FAR_BRANCH;
    } else if (opcode == 0xff) {
        static const enum kind by_digit[8] = {OTHER, OTHER, INDIRECT_CALL, FAR_BRANCH, INDIRECT_JUMP, FAR_BRANCH, OTHER, OTHER};
        d.kind = by_digit[next >> 3 & 7];
    }
    return d;
}

static bool holds(unsigned condition, uint64_t flags)
{
    bool cf = flags & 1, pf = flags & 4, zf = flags & 0x40, sf = flags & 0x80, of = flags & 0x800;
    bool value[8] = {of, cf, zf, cf || zf, sf, pf, sf != of, zf || sf != of};
    return value[condition >> 1] != (condition & 1);
}

static void count(const struct decoded *d, const struct user_regs_struct *before, uint64_t after)
{
    counts.instructions++;
    if (d->kind == OTHER || d->kind == REP_STRING)
        return;
    counts.branches++;
    if (d->kind == CONDITIONAL) {
        counts.conditional++;
        bool taken = after != before->rip + d->length;
        if (d->distance == 0) {
            /* Both ways lead to the same place: only the condition tells them apart. */
            if (d->condition == 16) {
                fprintf(stderr, "stepcount: LOOPcc or JRCXZ to the next instruction\n");
                exit(125);
            }
            taken = holds(d->condition, before->eflags);
        }
        counts.conditional_taken += taken;
    }
    counts.calls += d->kind == CALL || d->kind == INDIRECT_CALL;
    counts.returns += d->kind == RETURN;
    counts.indirect += d->kind == INDIRECT_CALL || d->kind == INDIRECT_JUMP;
}

static bool is_caught(pid_t pid, int number)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    FILE *file = fopen(path, "r");
    unsigned long long mask = 0;
    if (!file)
        fail(path);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "SigCgt: %llx", &mask) == 1)
            break;
    fclose(file);
    return mask >> (number - 1) & 1;
}

static void report(const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file)
        fail(path);
    struct { const char *name; uint64_t value; } rows[] = {
        {"instructions", counts.instructions}, {"branches", counts.branches},
        {"branches-taken", counts.branches - counts.conditional + counts.conditional_taken},
        {"conditional-branches", counts.conditional}, {"conditional-taken", counts.conditional_taken},
        {"calls", counts.calls}, {"returns", counts.returns}, {"indirect-branches", counts.indirect}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        fprintf(file, "{\"counter-value\" : \"%llu.000000\", \"event\" : \"%s\"}\n", (unsigned long long)rows[i].value, rows[i].name);
    fclose(file);
}

/* Steps the program to its end and returns its wait status. */
static int step(pid_t pid)
{
    struct decoded d = {.kind = OTHER};
    struct user_regs_struct before, now;
    int status, forward = 0;
    bool entering_handler = false;
    if (ptrace(PTRACE_GETREGS, pid, NULL, &before) != 0)
        fail("PTRACE_GETREGS");
    for (;;) {
        unsigned char code[15];
        size_t size = read_code(pid, before.rip, code, sizeof code);
        d = decode(code, size, before.cs == 0x23);
        if (ptrace(PTRACE_SINGLESTEP, pid, NULL, (void *)(uintptr_t)forward) != 0)
            fail("PTRACE_SINGLESTEP");
        if (waitpid(pid, &status, 0) != pid)
            fail("waitpid");
        if (WIFEXITED(status)) {
            counts.instructions++; /* the system call that ended it */
            return status;
        }
        if (WIFSIGNALED(status))
            return status;
        if (ptrace(PTRACE_GETREGS, pid, NULL, &now) != 0)
            fail("PTRACE_GETREGS");
        siginfo_t info;
        memset(&info, 0, sizeof info);
        bool stepped = WSTOPSIG(status) == SIGTRAP && ptrace(PTRACE_GETSIGINFO, pid, NULL, &info) == 0 &&
                       (info.si_code == TRAP_TRACE || info.si_code == TRAP_BRKPT || info.si_code == SIGTRAP || info.si_code == SI_USER);
        if (!stepped) {
            /* A fault, or a signal on the way out of a system call. Only the latter has retired. */
            if (now.rip != before.rip)
                count(&d, &before, now.rip);
            forward = WSTOPSIG(status);
            entering_handler = is_caught(pid, forward);
            before = now;
            continue;
        }
        /* The step that delivers a signal ends at the handler's first instruction: nothing retired. */
        bool retired = !entering_handler && !(d.kind == REP_STRING && now.rip == before.rip);
        if (retired)
            count(&d, &before, now.rip);
        forward = 0;
        entering_handler = false;
        before = now;
    }
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: stepcount OUTPUT PROGRAM [ARGUMENT]...\n");
        return 125;
    }
    /* Both on one CPU: a step takes a fifth of the time, because nothing has to be woken elsewhere. */
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0)
        fail("sched_setaffinity");
    pid_t pid = fork();
    if (pid < 0)
        fail("fork");
    if (pid == 0) {
        if (personality(ADDR_NO_RANDOMIZE) == -1 || ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            fail("prepare");
        execv(argv[2], argv + 2);
        fail(argv[2]);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
        fail("the program did not start");
    if (ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(uintptr_t)PTRACE_O_EXITKILL) != 0)
        fail("PTRACE_SETOPTIONS");
    status = step(pid);
    report(argv[1]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
