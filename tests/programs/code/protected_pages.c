//@ variants: pie
//@ cflags: -O1 -pthread -D_GNU_SOURCE
/* A program that writes to pages with code which has run, and looks for traces of anybody who would like to know: its
 * mappings, its signals and their actions, calls that change mappings, copies of it, and filters. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "check.h"

enum { PAGE = 4096, PAGES = 8, AREA = PAGES * PAGE };

static unsigned char *area;
static int values;

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

/* Writes a function to a page, calls it, and does both again: a page that has been written to and executed by turns. */
static void use(unsigned char *code)
{
    for (int times = 0; times < 3; times++) {
        function(code, ++values);
        CHECK_EQ(call(code), values, "code that was written");
        CHECK_EQ(call(code), values, "and again");
    }
}

/* Pages that have nothing beside them. */
static unsigned char *alone(void)
{
    unsigned char *room = map_pages(AREA + 2 * PAGE, PROT_NONE);
    MUST(mprotect(room + PAGE, AREA, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
    return room + PAGE;
}

/* The mapping that begins at `at`, as a file of /proc shows it. */
static int shown(const char *path, unsigned char *at, unsigned long *end, char *protection, int *kilobytes, char *flags)
{
    FILE *file = fopen(path, "r");
    MUST(file);
    char line[512];
    int found = 0;
    *kilobytes = 0, *flags = 0;
    while (fgets(line, sizeof line, file)) {
        unsigned long from, to;
        char how[8];
        if (sscanf(line, "%lx-%lx %7s", &from, &to, how) == 3) {
            if (found)
                break;
            if (from == (unsigned long)at)
                found = 1, *end = to, strcpy(protection, how);
        } else if (found) {
            sscanf(line, "Size: %d kB", kilobytes);
            if (!strncmp(line, "VmFlags:", 8))
                strncpy(flags, line + 9, 11), flags[11] = 0;
        }
    }
    fclose(file);
    return found;
}

static void mappings(void)
{
    use(area + PAGE);
    use(area + 3 * PAGE);
    use(area + 4 * PAGE + 100);
    use(area);
    unsigned long end = 0;
    char protection[8] = "", flags[16];
    int kilobytes;
    CHECK_EQ(shown("/proc/self/maps", area, &end, protection, &kilobytes, flags), 1, "maps");
    CHECK_EQ(end, (unsigned long)area + AREA, "its end");
    CHECK_EQ(strcmp(protection, "rwxp"), 0, "its protection");
    CHECK_EQ(shown("/proc/self/smaps", area, &end, protection, &kilobytes, flags), 1, "smaps");
    CHECK_EQ(end, (unsigned long)area + AREA, "its end");
    CHECK_EQ(kilobytes, AREA / 1024, "its size");
    CHECK_EQ(strcmp(flags, "rd wr ex mr"), 0, "its flags");
    CHECK_EQ(call(area + PAGE) > 0, 1, "code after that");
}

static volatile int faults;
static siginfo_t last;
static sigjmp_buf back;

static void faulted(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    faults = faults + 1;
    last = *info;
    siglongjmp(back, 1);
}

static void actions(void)
{
    struct sigaction action = {.sa_sigaction = faulted, .sa_flags = SA_SIGINFO}, now;
    sigset_t fault, mask;
    sigemptyset(&fault);
    sigaddset(&fault, SIGSEGV);
    MUST(sigaction(SIGSEGV, &action, 0) == 0);
    use(area + PAGE);
    CHECK_EQ(faults, 0, "a handler for faults");
    /* Blocked: a fault would end the program. */
    MUST(sigprocmask(SIG_BLOCK, &fault, 0) == 0);
    use(area + PAGE);
    MUST(sigprocmask(SIG_BLOCK, 0, &mask) == 0 && sigaction(SIGSEGV, 0, &now) == 0);
    CHECK_EQ(sigismember(&mask, SIGSEGV), 1, "still blocked");
    CHECK_EQ(now.sa_sigaction == faulted, 1, "still handled");
    CHECK_EQ(now.sa_flags & SA_SIGINFO, SA_SIGINFO, "in the same way");
    MUST(sigprocmask(SIG_UNBLOCK, &fault, 0) == 0);
    /* Ignored. */
    MUST(signal(SIGSEGV, SIG_IGN) != SIG_ERR);
    use(area + PAGE);
    MUST(sigaction(SIGSEGV, 0, &now) == 0);
    CHECK_EQ(now.sa_handler == SIG_IGN, 1, "still ignored");
    /* Faults of the program's own. */
    MUST(sigaction(SIGSEGV, &action, 0) == 0);
    use(area + 2 * PAGE);
    MUST(mprotect(area + 2 * PAGE, PAGE, PROT_READ | PROT_EXEC) == 0);
    if (!sigsetjmp(back, 1))
        area[2 * PAGE] = 0xc3;
    CHECK_EQ(faults, 1, "a write to what the program has protected");
    CHECK_EQ(last.si_code, SEGV_ACCERR, "its kind");
    CHECK_EQ(last.si_addr == area + 2 * PAGE, 1, "its address");
    CHECK_EQ(call(area + 2 * PAGE), values, "that code");
    MUST(mprotect(area + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
    use(area + 2 * PAGE);
    CHECK_EQ(faults, 1, "no more faults");
    MUST(signal(SIGSEGV, SIG_DFL) != SIG_ERR);
}

static void moves(void)
{
    unsigned char *from = alone(), *to = alone();
    for (int page = 0; page < PAGES; page += 3)
        use(from + page * PAGE);
    int value = call(from + 3 * PAGE);
    CHECK_EQ(mremap(from, AREA, AREA, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to, 1, "mremap");
    CHECK_EQ(call(to + 3 * PAGE), value, "code that was moved");
    use(to + 3 * PAGE);
    CHECK_EQ(madvise(to, AREA, MADV_DONTNEED), 0, "madvise");
    use(to + 3 * PAGE);
    CHECK_EQ(munmap(to, AREA), 0, "munmap");
}

static void copies(void)
{
    use(area + 5 * PAGE);
    int value = call(area + 5 * PAGE);
    for (int times = 0; times < 3; times++) {
        pid_t child = fork();
        MUST(child >= 0);
        if (!child) {
            int before = call(area + 5 * PAGE);
            use(area + 5 * PAGE);
            use(area + 6 * PAGE);
            _exit(before != value || check_failures);
        }
        int status;
        MUST(waitpid(child, &status, 0) == child);
        CHECK_EQ(status, 0, "a copy that writes code");
        CHECK_EQ(call(area + 5 * PAGE), value, "the original's code");
    }
    use(area + 5 * PAGE);
}

static void *writes(void *slot)
{
    for (int times = 0; times < 500; times++) {
        function(slot, times);
        CHECK_EQ(call(slot), times, "one of several threads");
    }
    return 0;
}

static void together(void)
{
    pthread_t threads[4];
    for (int each = 0; each < 4; each++)
        MUST(pthread_create(&threads[each], 0, writes, area + 7 * PAGE + each * 64) == 0);
    for (int each = 0; each < 4; each++)
        pthread_join(threads[each], 0);
}

/* No protection can be changed from here on: mprotect is refused, or ends the program. */
static void filtered(unsigned action)
{
    use(area + PAGE);
    fflush(stdout);
    pid_t child = fork();
    MUST(child >= 0);
    if (!child) {
        use(area + PAGE);
        struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, action),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
        MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
        use(area + PAGE);
        use(area + 6 * PAGE);
        _exit(check_failures != 0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0, "a filter that knows no mprotect");
}

int main(void)
{
    area = alone();
    mappings();
    actions();
    moves();
    copies();
    together();
    filtered(SECCOMP_RET_ERRNO | EPERM);
    filtered(SECCOMP_RET_KILL_PROCESS);
    return check_failures != 0;
}

/* Promise: F10 */
/* Promise: F10: the program can't see the protection of pages there */
