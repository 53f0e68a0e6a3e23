/* A program that looks like Perl 5.36 to those who read Perl's stack: its symbols are there, and its
 * structures lead anywhere. The signals of faults are left to themselves, blocked or ignored. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void *PL_curinterp;
int PL_thr_key;
char PL_version = 36;

static char interpreter[256], stack[64], contexts[16 * 104], statement[64], code[16], body[128];

static void set(char *at, long value) { memcpy(at, &value, sizeof value); }

/* As Perl would have it: a subroutine, called by the file's statements. */
static void put_right(void) {
    PL_curinterp = interpreter;
    set(interpreter + 208, (long)statement);
    set(interpreter + 224, (long)stack);
    set(stack + 8, (long)contexts);
    set(stack + 16, 0);
    set(stack + 32, 3);
    memset(contexts, 0, sizeof contexts);
    for (int index = 0; index < 16; index++) {
        contexts[index * 104] = index == 2 ? 9 : 1;
        set(contexts + index * 104 + 16, (long)statement);
        set(contexts + index * 104 + 72, (long)code);
    }
    set(statement + 32, 7L << 32);
    set(statement + 48, (long)"file.pl");
    set(code, (long)body);
    set(code + 8, 13L << 32);
}

/* Each way to be wrong. */
static void put_wrong(int way, char *alone) {
    switch (way) {
    case 0: PL_curinterp = (void *)8; break;
    case 1: set(stack + 16, (long)stack); break;
    case 2: set(stack + 8, 16); break;
    case 3: set(stack + 32, 0x7fffffff); break;
    case 4: set(statement + 48, (long)alone); break;
    case 5: set(statement + 48, (long)alone + 4095); break;
    case 6: set(contexts + 3 * 104 + 16, -1L); contexts[3 * 104] = 9; break;
    case 7: set(code, 0x7fffffffffffL); break;
    case 8: set(interpreter + 224, (long)0x8000000000000000L); break;
    case 9: PL_curinterp = interpreter + 1; break;
    case 10: set(contexts + 2 * 104 + 72, (long)alone + 4088); break;
    }
}

__attribute__((noinline)) void Perl_runops_standard(char *alone) {
    unsigned sum = 0;
    for (int round = 0; round < 400; round++) {
        put_right();
        for (int index = 0; index < 3000; index++) sum = sum * 31 + index;
        put_wrong(round % 12, alone);
        for (int index = 0; index < 3000; index++) sum = sum * 31 + index;
    }
    printf("%u\n", sum);
}

static void handle(int signal) { _exit(signal); }

static void say_signals(void) {
    struct sigaction action;
    sigset_t blocked;
    sigaction(SIGSEGV, NULL, &action);
    sigprocmask(SIG_BLOCK, NULL, &blocked);
    const char *is = action.sa_handler == handle ? "own" : action.sa_handler == SIG_IGN ? "ignored" : "default";
    printf("action %s, blocked %d\n", is, sigismember(&blocked, SIGSEGV));
}

int main(int count, char **arguments) {
    const char *way = count > 1 ? arguments[1] : "";
    struct sigaction action = {.sa_handler = strcmp(way, "ignored") ? handle : SIG_IGN};
    sigset_t all;
    sigfillset(&all);
    if (*way)
        sigaction(SIGSEGV, &action, NULL);
    if (!strcmp(way, "blocked"))
        sigprocmask(SIG_BLOCK, &all, NULL);
    /* A page without a zero, and nothing behind it. */
    char *alone = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(alone, 'x', 4096);
    munmap(alone + 4096, 4096);
    Perl_runops_standard(alone);
    say_signals();
}
