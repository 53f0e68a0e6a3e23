//@ variants: pie static
//@ cflags: -O1 -pthread
/* Trees and chains of forks; what parent and child share and do not; fork with threads and atfork
 * handlers; counts over the whole tree through shared memory. */
#include "check.h"

static atomic_int *shared;

static void tree(int depth)
{
    atomic_fetch_add(&shared[0], 1);
    if (depth == 0)
        return;
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        MUST(children[i] >= 0);
        if (children[i] == 0) {
            tree(depth - 1);
            _exit(depth);
        }
    }
    for (int i = 0; i < 2; i++) {
        int status;
        MUST(waitpid(children[i], &status, 0) == children[i]);
        CHECK_EQ(status, depth << 8, "status at depth %d", depth);
    }
}

static void whole_tree(void)
{
    shared[0] = 0;
    tree(5);
    CHECK_EQ(shared[0], 63, "processes of the tree");
}

static void chain(void)
{
    shared[0] = 0;
    pid_t first = fork();
    MUST(first >= 0);
    if (first == 0) {
        for (int i = 0; i < 30; i++) {
            atomic_fetch_add(&shared[0], 1);
            pid_t next = fork();
            if (next != 0) {
                int status;
                waitpid(next, &status, 0);
                _exit(WEXITSTATUS(status) + 1);
            }
        }
        _exit(0);
    }
    int status;
    MUST(waitpid(first, &status, 0) == first);
    CHECK_EQ(status, 30 << 8, "each link adds one");
    CHECK_EQ(shared[0], 30, "links");
}

static int global = 5;
static void separate(void)
{
    int local = 6;
    int *heap = malloc(sizeof *heap);
    *heap = 7;
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        global = local = *heap = 100;
        CHECK(getpid() != shared[5], "the child has its own pid");
        CHECK_EQ(getppid(), shared[5], "and its parent's as parent");
        _exit(check_failures ? 1 : 0);
    }
    int status;
    MUST(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0, "child");
    CHECK(global == 5 && local == 6 && *heap == 7, "%d %d %d", global, local, *heap);
    free(heap);
}

static char trace[64];
static void mark(const char *text) { strncat(trace, text, sizeof trace - strlen(trace) - 1); }
static void prepare(void) { mark("p"); }
static void parent(void) { mark("P"); }
static void child(void) { mark("C"); }

static atomic_int stop;
static void *busy(void *argument)
{
    while (!atomic_load(&stop)) {
        void *block = malloc(100);
        memset(block, 1, 100);
        free(block);
    }
    return argument;
}

static void with_threads(void)
{
    pthread_t ids[3];
    pthread_atfork(prepare, parent, child);
    for (int i = 0; i < 3; i++)
        MUST(pthread_create(&ids[i], NULL, busy, NULL) == 0);
    for (int i = 0; i < 40; i++) {
        trace[0] = 0;
        pid_t pid = fork();
        MUST(pid >= 0);
        if (pid == 0) {
            CHECK(strcmp(trace, "pC") == 0, "atfork in the child: %s", trace);
            void *block = malloc(1000);
            free(block);
            pthread_t id;
            stop = 1;
            MUST(pthread_create(&id, NULL, busy, NULL) == 0);
            pthread_join(id, NULL);
            _exit(check_failures ? 1 : 0);
        }
        CHECK(strcmp(trace, "pP") == 0, "atfork in the parent: %s", trace);
        int status;
        MUST(waitpid(pid, &status, 0) == pid);
        CHECK_EQ(status, 0, "child %d of a process with threads", i);
    }
    stop = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(ids[i], NULL);
}

/* Children execute code that no one has executed before them, then the parent does. */
__asm__(".text\n.balign 16\n.globl cold_fork\ncold_fork:\n.set n, 0\n.rept 1000\n.balign 16\n leaq n(%rdi), %rax\n ret\n.set n, n + 1\n.endr\n");
extern char cold_fork[];
static void cold_in_children(void)
{
    for (int i = 0; i < 50; i++) {
        pid_t pid = fork();
        MUST(pid >= 0);
        if (pid == 0) {
            for (int k = 0; k < 20; k++)
                CHECK_EQ(((uint64_t(*)(uint64_t))(cold_fork + 16 * (i * 20 + k)))(k), (uint64_t)(i * 20 + 2 * k), "cold code");
            _exit(check_failures ? 1 : 0);
        }
        int status;
        MUST(waitpid(pid, &status, 0) == pid);
        CHECK_EQ(status, 0, "child %d", i);
    }
    for (int i = 0; i < 1000; i++)
        CHECK_EQ(((uint64_t(*)(uint64_t))(cold_fork + 16 * i))(1), (uint64_t)i + 1, "in the parent");
}

int main(void)
{
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(shared != MAP_FAILED);
    shared[5] = getpid();
    RUN(whole_tree);
    RUN(chain);
    RUN(separate);
    RUN(with_threads);
    RUN(cold_in_children);
    return done();
}

/* Promise: F9 */
