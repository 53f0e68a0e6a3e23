//@ variants: pie static
//@ cflags: -O1
/* REP instructions that fault in the middle: registers say how far it came, and after the handler's
 * repair the instruction goes on from there. */
#include "check.h"

__asm__(".text\n.globl rep_run, rep_at_movsb, rep_at_movsq, rep_at_stosb, rep_at_scasb, rep_at_cmpsb\n"
        "rep_run: movl %r8d, %eax\n pushq %r9\n popfq\n"
        " movq rep_target(%rip), %r11\n jmp *%r11\n"
        "rep_at_movsb: rep movsb\n jmp 9f\n"
        "rep_at_movsq: rep movsq\n jmp 9f\n"
        "rep_at_stosb: rep stosb\n jmp 9f\n"
        "rep_at_scasb: repne scasb\n jmp 9f\n"
        "rep_at_cmpsb: repe cmpsb\n jmp 9f\n"
        "9: cld\n movq %rcx, %rax\n movq %rdi, rep_rdi(%rip)\n movq %rsi, rep_rsi(%rip)\n ret\n"
        ".data\n.balign 8\n.globl rep_target, rep_rdi, rep_rsi\nrep_target: .quad 0\nrep_rdi: .quad 0\nrep_rsi: .quad 0\n.text\n");
uint64_t rep_run(void *rdi, const void *rsi, uint64_t unused, uint64_t rcx, int rax, uint64_t flags);
extern char rep_at_movsb[], rep_at_movsq[], rep_at_stosb[], rep_at_scasb[], rep_at_cmpsb[];
extern void *rep_target;
extern uint64_t rep_rdi, rep_rsi;

static unsigned char *source, *sink;
enum { PAGES = 6, BYTES = PAGES * 4096 };
static int faults;
static uint64_t start_rcx, start_rsi, start_rdi, trail;
static int width, step;

static void handler(int number, siginfo_t *info, void *context)
{
    greg_t *regs = regs_of(context);
    (void)number;
    faults++;
    CHECK_EQ(regs[REG_RIP], (uintptr_t)rep_target, "rip is the REP instruction");
    uint64_t moved = start_rcx - regs[REG_RCX];
    CHECK_EQ(regs[REG_RDI], start_rdi + moved * width * step, "rdi after %lu of %lu", moved, start_rcx);
    if (rep_target != rep_at_stosb && rep_target != rep_at_scasb)
        CHECK_EQ(regs[REG_RSI], start_rsi + moved * width * step, "rsi after %lu", moved);
    trail = trail * 31 + moved;
    uintptr_t page = (uintptr_t)info->si_addr & ~4095ul;
    MUST(mprotect((void *)page, 4096, PROT_READ | PROT_WRITE) == 0);
    if (faults > 20)
        _exit(1);
}

static void try(const char *name, char *at, int element, int backwards)
{
    width = element;
    step = backwards ? -1 : 1;
    for (int i = 0; i < BYTES; i++)
        source[i] = i * 13 >> 2 | 1, sink[i] = 0;
    if (at == rep_at_cmpsb)
        memcpy(sink, source, BYTES);
    if (at == rep_at_scasb)
        memset(sink, 1, BYTES);
    /* Every second page of each is closed. */
    for (int page = 0; page < PAGES; page++)
        MUST(mprotect((page & 1 ? source : sink) + page * 4096, 4096, PROT_NONE) == 0);
    faults = 0;
    trail = 0;
    rep_target = at;
    uint64_t count = (BYTES - 200) / element;
    start_rcx = count;
    unsigned char *from = source + 96, *to = sink + 96;
    if (backwards) {
        from += (count - 1) * element;
        to += (count - 1) * element;
    }
    start_rsi = (uintptr_t)from, start_rdi = (uintptr_t)to;
    uint64_t left = rep_run(to, from, 0, count, 0x77, backwards ? 0x602 : 0x202);
    CHECK_EQ(left, 0, "%s: rcx", name);
    CHECK_EQ(rep_rdi, start_rdi + count * element * step, "%s: rdi", name);
    for (int page = 0; page < PAGES; page++) {
        mprotect(source + page * 4096, 4096, PROT_READ | PROT_WRITE);
        mprotect(sink + page * 4096, 4096, PROT_READ | PROT_WRITE);
    }
    if (at == rep_at_movsb || at == rep_at_movsq)
        CHECK(memcmp(source + 96, sink + 96, count * element) == 0, "%s: contents", name);
    if (at == rep_at_stosb)
        CHECK(sink[96] == 0x77 && sink[96 + count - 1] == 0x77 && sink[96 + count] == 0, "%s: contents", name);
    CHECK(faults >= 3, "%s: only %d faults", name, faults);
    say("%s%s: %d faults, trail %016lx", name, backwards ? " backwards" : "", faults, trail);
}

int main(void)
{
    source = map_pages(BYTES, PROT_READ | PROT_WRITE);
    sink = map_pages(BYTES, PROT_READ | PROT_WRITE);
    on_signal(SIGSEGV, handler, 0);
    for (int round = 0; round < 5; round++)
        for (int backwards = 0; backwards < 2; backwards++) {
            try("movsb", rep_at_movsb, 1, backwards);
            try("movsq", rep_at_movsq, 8, backwards);
            try("stosb", rep_at_stosb, 1, backwards);
            try("scasb", rep_at_scasb, 1, backwards);
            try("cmpsb", rep_at_cmpsb, 1, backwards);
        }
    return done();
}
