//@ cflags: -O1
/* Queued signals arrive all, in order, each with its value, while code appears in distant places. */
#include "check.h"

enum { PLACES = 40 };

static atomic_int sent, received;
static atomic_bool enough;
static void take(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    CHECK_EQ(info->si_code, SI_QUEUE, "si_code");
    CHECK_EQ(info->si_value.sival_int, atomic_load(&received), "in order");
    atomic_fetch_add(&received, 1);
}

static void *sender(void *to)
{
    while (!atomic_load(&enough)) {
        union sigval value = {.sival_int = atomic_load(&sent)};
        if (pthread_sigqueue(*(pthread_t *)to, SIGRTMIN, value) == 0)
            atomic_fetch_add(&sent, 1);
        /* One at a time, so that the other does anything else. */
        for (int i = 0; i < 1000 && atomic_load(&received) < atomic_load(&sent); i++)
            usleep(i);
        usleep(atomic_load(&sent) * 7 % 300);
    }
    return NULL;
}

static int call_at(uint64_t place, int value)
{
    static const uint8_t code[] = {0x8d, 0x47, 0x01, 0xc3}; /* lea 1(%rdi), %eax; ret */
    const int all = PROT_READ | PROT_WRITE | PROT_EXEC;
    void *page = mmap((void *)place, 4096, all, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    MUST(page == (void *)place);
    memcpy(page, code, sizeof code);
    return ((int (*)(int))page)(value);
}

int main(int argc, char **argv)
{
    pthread_t self = pthread_self(), thread;
    on_signal(SIGRTMIN, take, SA_RESTART);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    /* Only this thread takes them. */
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    MUST(pthread_create(&thread, NULL, sender, &self) == 0);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    for (int i = 0; i < PLACES; i++)
        CHECK_EQ(call_at(0x100000000000 + i * 0x1000000000, i), i + 1, "a distant call");
    atomic_store(&enough, true);
    pthread_join(thread, NULL);
    CHECK_EQ(atomic_load(&received), atomic_load(&sent), "every signal arrives");
    /* Every new image begins with no such place. */
    int rounds = argc > 1 ? atoi(argv[1]) : 4;
    if (rounds == 1 || check_failures)
        return done();
    char left[] = {(char)('0' + rounds - 1), 0};
    execl("/proc/self/exe", argv[0], left, NULL);
    MUST(!"exec");
}

/* Promise: F8 */
/* Promise: F8: none is lost while the virtual CPU works in the thread */
