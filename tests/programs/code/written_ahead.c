//@ variants: pie
//@ args: 15000000
// Code that writes to memory, and now and then to code that it calls next, as often as it takes to
// be laid out as a superblock meanwhile: the change must be seen at once. The code that is called
// lies in the same page, and in another one.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// rdi: times, rsi: a word that nobody reads, rdx: a word of the code called. Returns the number of
// the time at which the code called did not return what was written last, or 0.
__asm__(
    "        .macro  writer callee\n"
    "        xorl    %r10d, %r10d\n"
    "        xorl    %r8d, %r8d\n"
    "1:      incl    %r10d\n"
    "        movl    %r10d, %eax\n"
    "        movq    %rsi, %r9\n"
    "        testl   $0x7ffff, %r10d\n"
    "        cmovzq  %rdx, %r9\n"
    "        cmovzl  %eax, %r8d\n"
    "        movl    %eax, (%r9)\n"
    "        call    \\callee\n"
    "        cmpl    %r8d, %eax\n"
    "        jne     2f\n"
    "        decq    %rdi\n"
    "        jnz     1b\n"
    "        xorl    %r10d, %r10d\n"
    "2:      movl    %r10d, %eax\n"
    "        ret\n"
    "        .endm\n"
    "        .section .rodata\n"
    "        .balign 4096\n"
    "blob:   writer  near\n"
    "far_writer: writer far\n"
    "near:   movl    $0, %eax\n"
    "        ret\n"
    "        .balign 4096\n"
    "far:    movl    $0, %eax\n"
    "        ret\n"
    "blob_end:\n"
    "        .text\n");
extern const char blob[], far_writer[], near[], far[], blob_end[];

typedef int writer(long times, int *word, char *code);

int main(int argc, char **argv) {
    long times = argc > 1 ? atol(argv[1]) : 1;
    char *code = mmap(0, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED) return 1;
    memcpy(code, blob, blob_end - blob);
    int word = 0;
    for (int round = 0; round < 2; round++) {
        printf("near %d\n", ((writer *)code)(times, &word, code + (near - blob) + 1));
        // What was written last is not what the next round begins with.
        memset(code + (near - blob) + 1, 0, 4);
        printf("far %d\n", ((writer *)(code + (far_writer - blob)))(times, &word, code + (far - blob) + 1));
        memset(code + (far - blob) + 1, 0, 4);
    }
    printf("word %d\n", word);
    return 0;
}

/* Promise: F10, O11 */
