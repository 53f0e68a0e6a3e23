/* Generates two functions while it runs, tells of the one by a perf map and of the other by a jitdump file, and
 * calls them: 1 + 2 * 1000 + 1 and 1 + 2 * 3000 + 1 instructions. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static uint8_t *emit(uint8_t *at, uint32_t rounds)
{
    *at++ = 0xb9; /* mov ecx, rounds */
    memcpy(at, &rounds, 4);
    memcpy(at + 4, "\xff\xc9\x75\xfc\xc3", 5); /* dec ecx; jnz to it; ret */
    return at + 9;
}

struct dump {
    uint32_t magic, version, header_bytes, machine, pad, pid;
    uint64_t timestamp, flags;
    uint32_t kind, record_bytes;
    uint64_t when;
    uint32_t of_pid, of_tid;
    uint64_t vma, address, bytes, index;
    char name[16];
    uint8_t code[10];
} __attribute__((packed));

struct lines {
    uint32_t kind, record_bytes;
    uint64_t when, address, entries, first;
    uint32_t line, column;
    char file[16];
    uint64_t second;
    uint32_t second_line, second_column;
    char same[2];
} __attribute__((packed));

int main(void)
{
    uint8_t *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *second = page + 64;
    emit(page, 1000);
    emit(second, 3000);
    mprotect(page, 4096, PROT_READ | PROT_EXEC);
    char path[64];
    snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(path, "w");
    fprintf(map, "%lx %x first loop\n", (unsigned long)page, 10);
    fclose(map);
    struct dump dump = {
        0x4a695444, 1, 40, 62, 0, (uint32_t)getpid(), 0, 0,
        0, sizeof dump - 40, 0, (uint32_t)getpid(), (uint32_t)getpid(),
        (uint64_t)second, (uint64_t)second, 10, 1, "second loop    ", {0},
    };
    memcpy(dump.code, second, 10);
    snprintf(path, sizeof path, "jit-%d.dump", getpid());
    FILE *file = fopen(path, "w");
    struct lines lines = {
        2, sizeof lines, 0, (uint64_t)second, 2, (uint64_t)second, 41, 1, "/gone/loop.gen ", (uint64_t)second + 5, 42, 1,
        "\xff",
    };
    fwrite(&dump, 40, 1, file);
    fwrite(&lines, sizeof lines, 1, file);
    fwrite((char *)&dump + 40, sizeof dump - 40, 1, file);
    fclose(file);
    ((void (*)(void))page)();
    ((void (*)(void))second)();
    return 0;
}
