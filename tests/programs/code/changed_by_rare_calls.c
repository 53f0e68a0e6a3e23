//@ variants: pie static
//@ cflags: -O1
/* Code that changes or goes away by calls that seldom do that: brk, process_madvise, shmat, shmdt,
 * remap_file_pages, and those of 32-bit programs. Nothing old may run. */
#include "int80.h"
#include <sys/shm.h>
#include <sys/uio.h>

static void emit(unsigned char *at, int value)
{
    memcpy(at, "\x31\xc0\xb8\0\0\0\0\xc3", 8);
    memcpy(at + 3, &value, 4);
}

/* What a routine returns, or -1 if it cannot be executed. The zeros of fresh memory are additions to where
 * rax points to, which is nowhere. */
static int run(void *at)
{
    int value;
    if (sigsetjmp(attempt, 1))
        return -1;
    asm volatile("xor %%eax, %%eax; call *%1" : "=&a"(value) : "r"(at) : "rcx", "rdx", "memory", "cc");
    return value;
}

static void *code_pages(size_t bytes)
{
    unsigned char *at = map_pages(bytes, PROT_READ | PROT_WRITE);
    for (size_t page = 0; page < bytes; page += 4096)
        emit(at + page, 1 + page / 4096);
    MUST(mprotect(at, bytes, PROT_READ | PROT_EXEC) == 0);
    return at;
}

static void by_brk(void)
{
    char *end = (char *)(((uintptr_t)sbrk(0) + 4095) & -4096l);
    MUST(brk(end + 8192) == 0);
    emit((unsigned char *)end + 4096, 5);
    MUST(mprotect(end + 4096, 4096, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
    say("brk: %d", run(end + 4096));
    MUST(brk(end + 4096) == 0);
    say("below it: %d", run(end + 4096));
    MUST(brk(end + 8192) == 0);
    say("grown again: %d", run(end + 4096));
    emit((unsigned char *)end + 4096, 6);
    MUST(mprotect(end + 4096, 4096, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
    say("other code: %d", run(end + 4096));
    /* A part of a page stays. */
    MUST(brk(end + 4096 + 100) == 0);
    say("a part: %d", run(end + 4096));
    MUST(brk(end) == 0);
    say("gone: %d", run(end + 4096));
}

static void by_process_madvise(void)
{
    unsigned char *pages = code_pages(3 * 4096);
    say("process_madvise: %d %d", run(pages), run(pages + 8192));
    struct iovec parts[2] = {{pages + 8192, 4096}, {pages, 4096}};
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    /* Kernels allow this from 6.13 on. */
    long advised = syscall(SYS_process_madvise, self, parts, 2, MADV_DONTNEED, 0);
    say("%ld: %d %d %d", advised, run(pages), run(pages + 4096), run(pages + 8192));
    close(self);
}

static void by_shared_memory(void)
{
    int segment = shmget(IPC_PRIVATE, 3 * 4096, 0600 | IPC_CREAT);
    if (segment < 0)
        return;
    unsigned char *writable = shmat(segment, NULL, 0);
    MUST(writable != (void *)-1);
    for (int page = 0; page < 3; page++)
        emit(writable + page * 4096, 11 + page);
    unsigned char *pages = code_pages(3 * 4096);
    say("shmat: %d %d %d", run(pages), run(pages + 4096), run(pages + 8192));
    MUST(shmat(segment, pages, SHM_REMAP | SHM_EXEC) == pages);
    say("mapped over: %d %d %d", run(pages), run(pages + 4096), run(pages + 8192));
    MUST(shmdt(pages) == 0);
    say("shmdt: %d %d %d", run(pages), run(pages + 4096), run(pages + 8192));
    pages = code_pages(3 * 4096);
    say("again: %d %d", run(pages), run(pages + 8192));
    MUST(shmat(segment, pages, SHM_REMAP) == pages);
    say("not executable: %d %d", run(pages), run(pages + 8192));
    shmdt(pages);
    shmdt(writable);
    shmctl(segment, IPC_RMID, NULL);
}

static void by_other_pages_of_a_file(void)
{
    int fd = syscall(SYS_memfd_create, "code", 0);
    MUST(fd >= 0 && ftruncate(fd, 8192) == 0);
    unsigned char code[8];
    for (int page = 0; page < 2; page++) {
        emit(code, 21 + page);
        MUST(pwrite(fd, code, 8, page * 4096) == 8);
    }
    void *at = mmap(NULL, 8192, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
    MUST(at != MAP_FAILED);
    say("remap_file_pages: %d", run(at));
    long remapped = syscall(SYS_remap_file_pages, at, 4096, 0, 1, 0);
    say("%ld: %d", remapped, run(at));
    close(fd);
}

/* The parts have addresses and sizes of 32 bits. */
static void by_process_madvise_of_32_bits(unsigned char *at)
{
    enum { PROCESS_MADVISE = 440 };
    unsigned *parts = (unsigned *)(at + 4096);
    parts[0] = (uintptr_t)at, parts[1] = 4096;
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    long advised = call32(PROCESS_MADVISE, self, (uintptr_t)parts, 1, MADV_DONTNEED, 0);
    say("process_madvise %d: %d", (int)advised, run(at));
    close(self);
}

static void by_calls_of_32_bits(void)
{
    enum { MPROTECT = 125, MUNMAP = 91, MMAP2 = 192, MREMAP = 163, MADVISE = 219, OLD_MMAP = 90 };
    unsigned char *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    MUST(at != MAP_FAILED);
    uintptr_t place = (uintptr_t)at;
    emit(at, 31);
    long result;
    say("int 0x80: %d", run(at));
    result = call32(MPROTECT, place, 4096, PROT_READ, 0, 0);
    say("mprotect %ld: %d", result, run(at));
    result = call32(MPROTECT, place, 4096, 7, 0, 0);
    say("mprotect %ld: %d", result, run(at));
    result = call32(MADVISE, place, 4096, MADV_DONTNEED, 0, 0);
    say("madvise %ld: %d", result, run(at));
    emit(at, 30);
    say("written: %d", run(at));
    by_process_madvise_of_32_bits(at);
    emit(at, 32);
    say("written: %d", run(at));
    long mapped = call32(MMAP2, place, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1);
    say("mmap2 %d: %d", mapped == (long)place, run(at));
    MUST(mprotect(at, 4096, 7) == 0 || mapped == -38);
    emit(at, 33);
    say("written: %d", run(at));
    result = call32(MUNMAP, place, 4096, 0, 0, 0);
    say("munmap %ld: %d", result, run(at));
    unsigned *arguments = (unsigned *)(at + 4096);
    memcpy(arguments, (unsigned[]){place, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1u, 0}, 24);
    mapped = call32(OLD_MMAP, place + 4096, 0, 0, 0, 0);
    say("mmap %d", mapped == (long)place);
    if (mapped != (long)place)
        return;
    emit(at, 34);
    say("written: %d", run(at));
    mapped = call32(OLD_MMAP, place + 4096, 0, 0, 0, 0);
    say("mmap %d: %d", mapped == (long)place, run(at));
}

int main(void)
{
    on_signal(SIGSEGV, on_fault, 0);
    on_signal(SIGBUS, on_fault, 0);
    by_brk();
    by_process_madvise();
    by_shared_memory();
    by_other_pages_of_a_file();
    by_calls_of_32_bits();
    return check_failures != 0;
}

/* Promise: F10 */
/* Promise: F10: by brk, process_madvise, shmat, shmdt, remap_file_pages and INT 0x80 */
/* Promise: F31: of code that changes */
