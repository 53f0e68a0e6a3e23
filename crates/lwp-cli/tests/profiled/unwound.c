/* Generates functions while it runs that keep no frame pointer: rbp is a register like others to them. Tells their
 * frames by unwind tables in a jitdump file, which it writes while it runs: of one function, of the same after it has
 * moved, and of another that lies where the first one did. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ROUNDS = 20000, CODE_LOAD = 0, CODE_MOVE = 1, CODE_UNWINDING_INFO = 4 };
typedef void function(uint32_t rounds, void (*called)(void));

static volatile uint32_t sink;
static int dump;

__attribute__((noinline)) static void work(void)
{
    for (int i = 0; i < 20; i++)
        sink += i;
}

/* Three pushes, a frame, loops that call, and the way back. */
static uint32_t emit(uint8_t *at, uint32_t frame)
{
    static const uint8_t code[] = {
        0x53, 0x55, 0x41, 0x54,                   /* push rbx; push rbp; push r12 */
        0x48, 0x81, 0xec, 0, 0, 0, 0,             /* sub rsp, frame */
        0x89, 0xfb, 0x49, 0x89, 0xf4,             /* mov ebx, edi; mov r12, rsi */
        0xbd, 1, 0, 0, 0,                         /* mov ebp, 1 */
        0xb9, 30, 0, 0, 0,                        /* mov ecx, 30 */
        0xff, 0xc9, 0x75, 0xfc,                   /* dec ecx; jnz to it */
        0x41, 0xff, 0xd4,                         /* call r12 */
        0xff, 0xcb, 0x75, 0xf0,                   /* dec ebx; jnz to the second mov */
        0x48, 0x81, 0xc4, 0, 0, 0, 0,             /* add rsp, frame */
        0x41, 0x5c, 0x5d, 0x5b, 0xc3,             /* pop r12; pop rbp; pop rbx; ret */
    };
    memcpy(at, code, sizeof code);
    memcpy(at + 7, &frame, 4);
    memcpy(at + 40, &frame, 4);
    return sizeof code;
}

static void put(const void *bytes, size_t len)
{
    if (write(dump, bytes, len) != (ssize_t)len)
        _exit(3);
}

static void record(uint32_t id, const void *body, uint32_t len)
{
    uint32_t head[] = {id, 16 + len, 7, 0};
    put(head, sizeof head);
    put(body, len);
}

/* The frame's size at each instruction that changes it; the table lies as if on the 8 bytes behind the code. */
static void tell(uint32_t size, uint32_t frame)
{
    uint32_t cfa = frame + 32;
    int32_t to_code = -(int32_t)(((size + 7) & ~7u) + 32), to_cie = 28, cie = 20, fde = 52;
    uint8_t table[24 + 4 + 52 + 4 + 20] = {0}, *at = table;
    uint8_t first[] = {0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1};
    uint8_t rows[] = {
        0x41, 0x0e, 16, 0x83, 2, 0x41, 0x0e, 24, 0x86, 3, 0x42, 0x0e, 32, 0x8c, 4, /* the pushes */
        0x47, 0x0e, (cfa & 127) | 128, cfa >> 7,                                     /* sub */
        0x40 + 33, 0x0e, 32, 0x42, 0x0e, 24, 0x41, 0x0e, 16, 0x41, 0x0e, 8,        /* add, and the pops */
    };
    memcpy(at, &cie, 4);
    memcpy(at + 4, first, sizeof first);
    memcpy(at + 24, &fde, 4);
    memcpy(at + 28, &to_cie, 4);
    memcpy(at + 32, &to_code, 4);
    memcpy(at + 36, &size, 4);
    memcpy(at + 41, rows, sizeof rows);
    uint64_t fields[] = {sizeof table, 20, sizeof table};
    uint8_t body[sizeof fields + sizeof table];
    memcpy(body, fields, sizeof fields);
    memcpy(body + sizeof fields, table, sizeof table);
    record(CODE_UNWINDING_INFO, body, sizeof body);
}

static void load(uint8_t *code, uint32_t size, const char *name)
{
    struct {
        uint32_t pid, tid;
        uint64_t vma, address, bytes, index;
        char name[16];
        uint8_t code[64];
    } body = {getpid(), getpid(), (uint64_t)code, (uint64_t)code, size, 1, {0}, {0}};
    uint32_t len = sizeof body - sizeof body.name - sizeof body.code;
    uint8_t bytes[sizeof body];
    memcpy(bytes, &body, len);
    strcpy((char *)bytes + len, name);
    len += strlen(name) + 1;
    memcpy(bytes + len, code, size);
    record(CODE_LOAD, bytes, len + size);
}

__attribute__((noinline)) static void loaded(uint8_t *code)
{
    uint32_t size = emit(code, 0x80);
    tell(size, 0x80);
    load(code, size, "gen first");
    ((function *)code)(ROUNDS, work);
    sink++;
}

__attribute__((noinline)) static void moved(uint8_t *code, uint8_t *to)
{
    uint32_t size = emit(to, 0x80);
    memset(code, 0xcc, size);
    struct {
        uint32_t pid, tid;
        uint64_t vma, from, to, bytes, index;
    } body = {getpid(), getpid(), (uint64_t)to, (uint64_t)code, (uint64_t)to, size, 1};
    record(CODE_MOVE, &body, sizeof body);
    ((function *)to)(ROUNDS, work);
    sink++;
}

__attribute__((noinline)) static void written_anew(uint8_t *code)
{
    uint32_t size = emit(code, 0x150);
    tell(size, 0x150);
    load(code, size, "gen second");
    ((function *)code)(ROUNDS, work);
    sink++;
}

int main(void)
{
    char path[64];
    snprintf(path, sizeof path, "jit-%d.dump", getpid());
    dump = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    uint32_t header[] = {0x4a695444, 1, 40, 62, 0, (uint32_t)getpid(), 9, 9, 0, 0};
    put(header, sizeof header);
    if (mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, dump, 0) == MAP_FAILED)
        return 2;
    uint8_t *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    loaded(code);
    moved(code, code + 512);
    written_anew(code);
    printf("%u\n", sink);
    return 0;
}
