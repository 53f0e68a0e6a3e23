/* A profile of code that lies gigabytes apart, begun where most of the first 2 GiB is the program's own, as under Wine.
 * Prints how many records there were of each place. */
#define _GNU_SOURCE
#include <lwp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RECORDS = 10, PLACES = 5 };
#define GIB (1ul << 30)
#define MIB (1ul << 20)

/* mov eax, edi; lwpval eax, edi, 1; ret */
static const unsigned char code[] = {0x89, 0xf8, 0x8f, 0xea, 0x78, 0x12, 0xcf, 1, 0, 0, 0, 0xc3};
static const unsigned long places[PLACES] = {1989 * MIB, 5 * GIB, 6 * GIB - 256 * MIB, 8 * GIB + 640 * MIB, 90 * GIB};
static struct lwp_control_block block __attribute__((aligned(64)));
static struct lwp_record ring[128];

static int reserve(unsigned long from, unsigned long to)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    return mmap((void *)from, to - from, PROT_NONE, flags, -1, 0) == (void *)from;
}

int main(void)
{
    int file = memfd_create("code", 0), found[PLACES] = {0}, i, k;
    struct lwp_record *record;
    if (file < 0 || write(file, code, sizeof code) != sizeof code)
        return 1;
    for (i = 0; i < PLACES; i++) {
        int flags = MAP_PRIVATE | MAP_FIXED_NOREPLACE;
        if (mmap((void *)places[i], 4096, PROT_READ | PROT_EXEC, flags, file, 0) != (void *)places[i])
            return 2;
    }
    if (!reserve(MIB, 1664 * MIB) || !reserve(1824 * MIB, 1980 * MIB) || !reserve(2000 * MIB, 2048 * MIB))
        return 3;
    block.flags = 1 << LWP_EVENT_VALUE_SAMPLE;
    block.buffer_size_random = sizeof ring;
    block.buffer_base = (uint64_t)(uintptr_t)ring;
    block.threshold = 1 << 20;
    __llwpcb(&block);
    if (__slwpcb() != &block) {
        printf("LWP is off\n");
        return 4;
    }
    for (k = 0; k < RECORDS; k++)
        for (i = 0; i < PLACES; i++)
            ((void (*)(int))places[i])(i);
    __llwpcb(0);
    for (record = ring; record < ring + block.buffer_head_offset / sizeof *ring; record++)
        if (record->data1 < PLACES && record->instruction_address == places[record->data1] + 2)
            found[record->data1]++;
    for (i = 0; i < PLACES; i++)
        printf("%d ", found[i]);
    printf("of %u\n", (unsigned)(block.buffer_head_offset / sizeof *ring));
    return 0;
}
