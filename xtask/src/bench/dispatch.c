// What an indirect branch of translated code costs in two ways of finding its target: through the indirect
// table, as rule 9 does it, and with a cache of one target at the site before it. Prints nanoseconds a branch.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SLOTS (1 << 18)
#define BRANCHES (1 << 12)
#define ROUNDS 4000

uint64_t table[SLOTS] __attribute__((aligned(4096)));
uint64_t slots[2];
uint32_t mask = (SLOTS - 1) << 3;
uint64_t targets[BRANCHES];

// The application's pcs, far apart, as functions are.
#define PC(k) (0x555555550000 + (k) * 0x1a58)
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

// An entry: checks the pc in rcx, gives the borrowed registers back.
#define ENTRY(k)                                                                                          \
  "entry" #k ": movabs $-(0x555555550000 + " #k "*0x1a58), %%r11; lea (%%rcx,%%r11), %%rcx; jrcxz 1f\n"   \
  "  ud2\n"                                                                                               \
  "1: mov slots, %%rcx; mov slots+8, %%r11\n"                                                             \
  "body" #k ": add $" #k ", %%rax; jmp *%%rdi\n"

#define SPILL "mov %%rcx, slots; mov %%r11, slots+8; mov targets(,%%rdx,8), %%rcx\n"
#define LOOKUP "pext mask, %%ecx, %%r11d; jmp *table(,%%r11,8)\n"
#define CACHED                                                                                            \
  "movabs $-0x555555550000, %%r11; lea (%%rcx,%%r11), %%rcx; jrcxz 2f\n"                                  \
  "movabs $0x555555550000, %%r11; lea (%%rcx,%%r11), %%rcx\n"

#define EVERY "next%=: inc %%edx; and $4095, %%edx; dec %%rsi; jnz again%=\n"
#define REGISTERS : "+S"(left) : : "rax", "rcx", "rdx", "rdi", "r11", "memory", "cc"

static void by_table(uint64_t left) {
  __asm__ volatile("xor %%edx, %%edx; mov $next%=, %%edi\n again%=:" SPILL LOOKUP EVERY REGISTERS);
}

static void by_site(uint64_t left) {
  __asm__ volatile("xor %%edx, %%edx; mov $next%=, %%edi\n again%=:" SPILL CACHED LOOKUP
                   "2: mov slots, %%rcx; mov slots+8, %%r11; jmp body0\n" EVERY REGISTERS);
}

__attribute__((used, noinline)) static void entries(void) {
  __asm__ volatile(ENTRY(0) ENTRY(1) ENTRY(2) ENTRY(3) ENTRY(4) ENTRY(5) ENTRY(6) ENTRY(7)
                   : : : "rax", "rcx", "r11");
}

extern char entry0[], entry1[], entry2[], entry3[], entry4[], entry5[], entry6[], entry7[];

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + now.tv_nsec / 1e9;
}

static double measure(void (*way)(uint64_t)) {
  double least = 1e9;
  for (int round = 0; round < 5; round++) {
    double start = seconds();
    way((uint64_t)BRANCHES * ROUNDS);
    double took = seconds() - start;
    least = took < least ? took : least;
  }
  return least * 1e9 / BRANCHES / ROUNDS;
}

int main(void) {
  char *all[8] = {entry0, entry1, entry2, entry3, entry4, entry5, entry6, entry7};
  for (int k = 0; k < 8; k++) table[(PC(k) & mask) >> 3] = (uint64_t)all[k];
  static const struct { const char *name; int kinds, step; } cases[] = {
      {"always the same target", 1, 0}, {"two targets in turn", 2, 1}, {"two targets at random", 2, 0},
      {"eight targets in turn", 8, 1}, {"eight targets at random", 8, 0}};
  printf("| targets of a site | table | site's own, then table | ratio |\n| --- | ---: | ---: | ---: |\n");
  for (unsigned number = 0; number < sizeof cases / sizeof *cases; number++) {
    uint64_t draw = 2007;
    for (int at = 0; at < BRANCHES; at++) {
      draw = draw * 6364136223846793005 + 1442695040888963407;
      unsigned k = cases[number].step ? (unsigned)at : (unsigned)(draw >> 40);
      targets[at] = PC(k % cases[number].kinds);
    }
    double plain = measure(by_table), cached = measure(by_site);
    printf("| %s | %.2f ns | %.2f ns | %.2f |\n", cases[number].name, plain, cached, cached / plain);
  }
  return 0;
}
