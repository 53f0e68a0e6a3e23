/* A client as the manual pages describe one. Its first argument chooses what it does. */
#include <libpctx.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int arg_value = 42;
static pctx_t *current;
static int told;

static void errfn(const char *fn, const char *fmt, va_list ap)
{
    printf("error in %s: ", fn);
    vprintf(fmt, ap);
    told++;
}

static void check(void *arg)
{
    if (arg != &arg_value) {
        printf("wrong argument\n");
        exit(99);
    }
    sigset_t now;
    sigprocmask(SIG_SETMASK, 0, &now);
    if (!sigismember(&now, SIGTERM) || !sigismember(&now, SIGINT)) {
        printf("signals are not held back\n");
        exit(98);
    }
}

#define LWP_HANDLER(name)                                                                         \
    static int name(pctx_t *p, pid_t pid, id_t lwp, void *arg)                                    \
    {                                                                                             \
        check(arg);                                                                               \
        printf(#name " %d\n", (int)lwp);                                                          \
        return p == current ? 0 : -1;                                                             \
    }
LWP_HANDLER(init_lwp)
LWP_HANDLER(fini_lwp)
LWP_HANDLER(lwp_create)
LWP_HANDLER(lwp_exit)

static int ticks;
static int tick(pctx_t *p, pid_t pid, id_t lwp, void *arg)
{
    ticks++;
    return 0;
}

static int stop_tick(pctx_t *p, pid_t pid, id_t lwp, void *arg)
{
    return 1;
}

static int terminate_tick(pctx_t *p, pid_t pid, id_t lwp, void *arg)
{
    pctx_terminate(p);
    return 0;
}

static int exec_fn(pctx_t *p, pid_t pid, id_t lwp, char *command, void *arg)
{
    check(arg);
    printf("exec %d %s\n", (int)lwp, command);
    return 0;
}

static void exit_fn(pctx_t *p, pid_t pid, id_t lwp, int status, void *arg)
{
    check(arg);
    printf("exit %d %#x\n", (int)lwp, status);
}

static void fork_fn(pctx_t *p, pid_t parent, pid_t child, id_t lwp, void *arg)
{
    printf("fork %d\n", (int)lwp);
    if (parent == child || p == current)
        exit(97);
    current = p;
    if (pctx_set_events(p, PCTX_SYSC_EXIT_EVENT, exit_fn, PCTX_NULL_EVENT) != 0)
        exit(96);
    printf("child %d\n", pctx_run(p, 0, 0, NULL));
}

/* A context stays with the thread that made it. */
static void *stranger(void *object)
{
    errno = 0;
    int result = pctx_run(object, 10, 1, tick);
    printf("stranger %d %d\n", result, errno == EINVAL);
    pctx_release(object);
    return 0;
}

/* What a handler must not do with the context that is being run. */
static int again_tick(pctx_t *p, pid_t pid, id_t lwp, void *arg)
{
    errno = 0;
    int result = pctx_run(p, 0, 0, NULL);
    printf("again %d %d\n", result, errno == EINVAL);
    pctx_release(p); /* ends the run */
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argv[1];
    char **command = argv + 2;
    if (strcmp(what, "refused") == 0) {
        if (pctx_create("no-such-program", command, 0, 0, errfn) != 0 || errno != ENOENT)
            return 1;
        if (pctx_capture(getpid(), 0, 0, errfn) != 0 || errno != EINVAL)
            return 2;
        if (pctx_run(NULL, 0, 0, 0) != -1 || errno != EINVAL)
            return 3;
        pctx_release(NULL);
        pctx_terminate(NULL);
        pctx_create("no-such-program", command, 0, 0, NULL);
        return told == 2 ? 0 : 4;
    }
    pctx_t *p = pctx_create(command[0], command, &arg_value, 1, errfn);
    if (p == 0)
        return 1;
    current = p;
    int all = strcmp(what, "all") == 0 || strcmp(what, "fork") == 0;
    if (all && pctx_set_events(p, PCTX_SYSC_EXEC_EVENT, exec_fn, PCTX_SYSC_EXIT_EVENT, exit_fn,
                               PCTX_SYSC_LWP_CREATE_EVENT, lwp_create, PCTX_INIT_LWP_EVENT,
                               init_lwp, PCTX_FINI_LWP_EVENT, fini_lwp,
                               PCTX_SYSC_LWP_EXIT_EVENT, lwp_exit, PCTX_NULL_EVENT) != 0)
        return 2;
    if (strcmp(what, "fork") == 0
        && pctx_set_events(p, PCTX_SYSC_FORK_EVENT, fork_fn, PCTX_NULL_EVENT) != 0)
        return 3;
    if (pctx_set_events(p, 77, exit_fn, PCTX_NULL_EVENT) != -1 || told != 1)
        return 4;
    if (pctx_set_events(p, PCTX_NULL_EVENT) != 0)
        return 5;
    int result;
    if (strcmp(what, "ticks") == 0) {
        result = pctx_run(p, 10, 3, tick);
        printf("ticks %d\n", ticks);
    } else if (strcmp(what, "stranger") == 0) {
        pthread_t thread;
        if (pthread_create(&thread, 0, stranger, p) != 0 || pthread_join(thread, 0) != 0)
            return 6;
        result = pctx_run(p, 0, 0, NULL); /* unharmed */
    } else if (strcmp(what, "again") == 0) {
        result = pctx_run(p, 10, 0, again_tick);
    } else if (strcmp(what, "stop") == 0) {
        result = pctx_run(p, 10, 0, stop_tick);
    } else if (strcmp(what, "terminate") == 0) {
        result = pctx_run(p, 10, 0, terminate_tick);
    } else {
        result = pctx_run(p, 0, 0, NULL);
    }
    printf("run %d\n", result);
    fflush(stdout);
    pctx_release(p);
    pctx_release(p);
    pctx_terminate(p);
    return 0;
}
