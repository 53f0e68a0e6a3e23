#include <cstdint>

static inline std::uint32_t rotate(std::uint32_t x, int n)
{
    return x << n | x >> (32 - n);
}

// A label that is no function of C++, as assembly has them.
asm(".text\n.globl by_hand\nby_hand: mov $5, %eax\nret\n");
extern "C" std::uint32_t by_hand();

__attribute__((noinline)) std::uint32_t other(std::uint32_t x)
{
    for (int i = 1; i < 4; i++)
        x ^= rotate(x, i);
    return x + by_hand();
}
