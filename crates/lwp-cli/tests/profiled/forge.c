/* Processes that write anything to their own contexts and ring, to attack the host of the virtual CPU that they run on.
 * Arguments: how many, and a seed. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <pthread.h>

static uint64_t state;
static uint64_t next(void)
{
    state += 0x9e3779b97f4a7c15ull;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static volatile uint64_t *contexts;

static uint64_t value(void)
{
    switch (next() % 8) {
    case 0: return next();
    case 1: return next() % 32;
    case 2: return (uint64_t)contexts + next() % 0x120000;
    case 3: return (uint64_t)&puts + next() % 64;
    case 4: return -(next() % 4096);
    case 5: return next() % 0x1000000;
    case 6: return 0x70000000 + next() % 0x1220000;
    default: return (uint64_t)&value + next() % 256;
    }
}

static void *work(void *argument)
{
    for (;;) {
        void *page = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED)
            continue;
        memcpy(page, "\xb8\x2a\x00\x00\x00\xc3", 6);
        ((int (*)(void))page)();
        munmap(page, 4096);
    }
    return argument;
}

static void attack(unsigned milliseconds)
{
    pthread_t id;
    if (next() % 2)
        pthread_create(&id, NULL, work, NULL);
    struct timespec now, end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += milliseconds * 1000000l;
    unsigned kinds = next() % 4 ? 22 : 64;
    do {
        for (int i = 0; i < 200; i++) {
            unsigned words = 1 + next() % 6;
            uint64_t slot = next() % 3 ? 0 : (24ull << 20) / 8 * (next() % 2);
            for (unsigned w = 0; w < words; w++) {
                uint64_t at = next() % 4 ? next() % (0xf00 / 8) : next() % (0x120000 / 8);
                contexts[slot + at] = value();
            }
            contexts[slot + 0x50 / 8] = next() % 2 ? (uint64_t)&puts + next() % 256 : value();
            contexts[slot + 0x58 / 8] = next() % kinds;
            ((volatile uint8_t *)contexts)[0xf00 + next() % 256 * (next() % 2)] = 1;
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
    _exit(0);
}

/* The mappings as they are: under another name the file is not recognised. */
static FILE *true_maps(void)
{
    unlink("true_maps");
    if (symlink("/proc/self/maps", "true_maps"))
        return NULL;
    FILE *maps = fopen("true_maps", "r");
    unlink("true_maps");
    return maps;
}

int main(int count, char **arguments)
{
    unsigned rounds = count > 1 ? atoi(arguments[1]) : 20;
    uint64_t seed = count > 2 ? strtoull(arguments[2], 0, 10) : (uint64_t)time(0);
    FILE *maps = true_maps();
    char line[512];
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "memfd:lwp-contexts"))
            contexts = (uint64_t *)strtoull(line, 0, 16);
    if (!contexts) {
        puts("no contexts found");
        return 1;
    }
    for (unsigned i = 0; i < rounds; i++) {
        pid_t child = fork();
        if (child == 0) {
            state = seed * 1000003 + i;
            attack(50);
        }
        for (int wait = 0; wait < 500 && waitpid(child, NULL, WNOHANG) == 0; wait++)
            usleep(10000);
        kill(child, 9);
        waitpid(child, NULL, 0);
    }
    puts("survived");
    return 0;
}
