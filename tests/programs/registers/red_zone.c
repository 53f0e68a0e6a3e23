//@ variants: pie static
/* The 128 bytes below rsp belong to the program, whatever it executes. */
#include "check.h"

__asm__(
    ".text\n.globl zone_fill\n"
    ".macro FILL\n"
    " .set at, -128\n .rept 16\n movq $0x5a5a0000 + at, at(%rsp)\n .set at, at + 8\n .endr\n.endm\n"
    ".macro VERIFY\n"
    " xorl %eax, %eax\n .set at, -128\n .rept 16\n cmpq $0x5a5a0000 + at, at(%rsp)\n setne %dl\n orb %dl, %al\n"
    " .set at, at + 8\n .endr\n ret\n.endm\n"
    ".macro ZONE name\n.globl \\name\n\\name: FILL\n.endm\n"
    "ZONE z_jump\n jmp 1f\n ud2\n1: VERIFY\n"
    "ZONE z_indirect\n leaq 1f(%rip), %rcx\n jmp *%rcx\n ud2\n1: leaq 2f(%rip), %r11\n jmp *%r11\n ud2\n2: VERIFY\n"
    "ZONE z_jump_memory\n leaq 1f(%rip), %rcx\n movq %rcx, zone_target(%rip)\n jmp *zone_target(%rip)\n ud2\n"
    "1: VERIFY\n"
    "ZONE z_conditional\n movl $300, %ecx\n1: testb $3, %cl\n jz 2f\n nop\n2: decl %ecx\n jnz 1b\n VERIFY\n"
    "ZONE z_loop\n movl $300, %ecx\n1: loop 1b\n jrcxz 2f\n ud2\n2: VERIFY\n"
    "ZONE z_syscall\n movl $39, %eax\n syscall\n movl $186, %eax\n syscall\n VERIFY\n"
    "ZONE z_cpuid\n movq %rbx, %r8\n xorl %eax, %eax\n xorl %ecx, %ecx\n cpuid\n movq %r8, %rbx\n VERIFY\n"
    "ZONE z_rdtsc\n rdtsc\n VERIFY\n"
    "ZONE z_string\n leaq zone_buffer(%rip), %rdi\n movq %rdi, %rsi\n movl $64, %ecx\n rep movsb\n VERIFY\n"
    "ZONE z_rip\n incq zone_counter(%rip)\n cmpq $0, zone_counter(%rip)\n VERIFY\n"
    "ZONE z_cold\n jmp 1f\n.rept 64\n ud2\n.endr\n1: jmp 2f\n.rept 4096\n ud2\n.endr\n2: VERIFY\n"
    "ZONE z_fault\n movq zone_fault(%rip), %rcx\n movb $1, (%rcx)\n VERIFY\n"
    "ZONE z_spin\n movq $60000000, %rcx\n1: decq %rcx\n jz 2f\n cmpl $5, zone_alarms(%rip)\n jb 1b\n2: VERIFY\n"
    ".data\n.balign 8\n.globl zone_fault, zone_alarms\nzone_target: .quad 0\nzone_counter: .quad 0\n"
    "zone_fault: .quad 0\nzone_alarms: .long 0\nzone_buffer: .zero 64\n.text\n");

#define ZONES(X)                                                                                   \
    X(z_jump) X(z_indirect) X(z_jump_memory) X(z_conditional) X(z_loop) X(z_syscall) X(z_cpuid)    \
    X(z_rdtsc) X(z_string) X(z_rip) X(z_cold) X(z_fault) X(z_spin)
#define DECLARE(name) unsigned char name(void);
ZONES(DECLARE)
extern char *zone_fault;
extern volatile int zone_alarms;

static void on_fault(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    mprotect(zone_fault, 4096, PROT_READ | PROT_WRITE);
}

static void on_alarm(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info, (void)context;
    zone_alarms++;
}

int main(void)
{
    on_signal(SIGSEGV, on_fault, 0);
    on_signal(SIGALRM, on_alarm, 0);
    for (int round = 0; round < 3; round++) {
        zone_fault = map_pages(4096, PROT_READ);
        zone_alarms = 0;
        struct itimerval timer = {{0, 1000}, {0, 1000}}, off = {0};
        setitimer(ITIMER_REAL, &timer, NULL);
#define TRY(name) CHECK_EQ(name(), 0, #name " changed the red zone");
        ZONES(TRY)
        setitimer(ITIMER_REAL, &off, NULL);
        CHECK(zone_alarms >= 5, "only %d signals", zone_alarms);
    }
    return done();
}

/* Promise: F7 */
