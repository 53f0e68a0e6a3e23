/* Threads that begin to profile themselves while others are made, or map and unmap memory all the time: every
 * profile has all of its records, or LWP is off and the thread can tell. Prints how many had, and how many could. */
#define _GNU_SOURCE
#include <lwp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { THREADS = 8, MAPPERS = 2, RECORDS = 10 };

static volatile int stop;

static void *map_and_unmap(void *arg)
{
    while (!stop) {
        void *place = mmap(NULL, 1 << 26, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (place != MAP_FAILED)
            munmap(place, 1 << 26);
    }
    return arg;
}

/* 1: all records; 2: LWP was left off; 0: neither. */
static void *profile(void *unused)
{
    static __thread struct lwp_control_block block __attribute__((aligned(64)));
    static __thread unsigned char ring[64 * 32] __attribute__((aligned(64)));
    int i;
    (void)unused;
    memset(&block, 0, sizeof block);
    block.flags = 1 << 1;
    block.buffer_size_random = sizeof ring;
    block.buffer_base = (uint64_t)(uintptr_t)ring;
    block.threshold = 1 << 20;
    __llwpcb(&block);
    if (__slwpcb() != &block)
        return (void *)2;
    for (i = 0; i < RECORDS; i++)
        __lwpval32(i, i, 1);
    __llwpcb(0);
    return (void *)(long)(block.buffer_head_offset == 32 * RECORDS);
}

int main(int count, char **words)
{
    pthread_t mapper[MAPPERS], thread[THREADS];
    int mappers = count > 1 ? MAPPERS : 0, i, results[3] = {0, 0, 0};
    (void)words;
    for (i = 0; i < mappers; i++)
        pthread_create(&mapper[i], NULL, map_and_unmap, NULL);
    for (i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, profile, NULL);
    for (i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(thread[i], &result);
        results[(long)result]++;
    }
    stop = 1;
    for (i = 0; i < mappers; i++)
        pthread_join(mapper[i], NULL);
    printf("%d complete, %d off, %d wrong\n", results[1], results[2], results[0]);
    return 0;
}
