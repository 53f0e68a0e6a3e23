/* A small compiler: makes functions that count down, gives each a name by lwp_register_code(), and calls it:
 * on a thread and in a child too. Each executes 2 + 2 * rounds instructions. Prints the numbers of its processes. */
#ifndef _GNU_SOURCE /* C++ compilers define it. */
#define _GNU_SOURCE
#endif
#include <lwp.h>

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { PLACES = 8, CODE_BYTES = 10, PLACE_BYTES = 64 };

static unsigned char *memory;

/* Compiles and registers a function at a place, and calls it. */
static void compile_and_run(int place, uint32_t rounds, const char *name)
{
    unsigned char *code = memory + place * PLACE_BYTES;
    void (*function)(void);
    code[0] = 0xb9; /* mov ecx, rounds */
    memcpy(code + 1, &rounds, 4);
    memcpy(code + 5, "\xff\xc9\x75\xfc\xc3", 5); /* dec ecx; jnz to it; ret */
    if (lwp_register_code(code, CODE_BYTES, name) != 0) {
        fprintf(stderr, "%s: %s\n", name, lwp_last_error());
        exit(1);
    }
    memcpy(&function, &code, sizeof function); /* ISO C has no cast for it. */
    function();
}

static void *on_a_thread(void *unused)
{
    (void)unused;
    compile_and_run(1, 2000, "jit: on a thread [tier 2]");
    return NULL;
}

int main(void)
{
    pthread_t thread;
    int status;
    pid_t child;
    memory = (unsigned char *)mmap(NULL, PLACES * PLACE_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    compile_and_run(0, 1000, "jit: first");
    CHECK(pthread_create(&thread, NULL, on_a_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    child = fork();
    if (child == 0) {
        compile_and_run(2, 3000, "jit: in a child");
        _exit(0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    printf("%d\n%d\n", (int)getpid(), (int)child);
    return 0;
}
