// Two compilation units whose functions are inlined into each other's callers.
#include <cstdint>
#include <cstdio>

std::uint32_t other(std::uint32_t x);

struct Mixer {
    std::uint32_t state;
    std::uint32_t step(std::uint32_t x)
    {
        state = state * 1103515245u + x;
        return state >> 16;
    }
};

static inline std::uint32_t twice(Mixer &mixer, std::uint32_t x)
{
    return mixer.step(x) + mixer.step(x + 1);
}

namespace deep {
__attribute__((noinline)) std::uint32_t run(std::uint32_t n)
{
    Mixer mixer{n};
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < n; i++)
        sum += twice(mixer, i) ^ other(i);
    return sum;
}
}

static __attribute__((noinline)) std::uint32_t hidden(std::uint32_t n)
{
    return deep::run(n) + 1;
}

int main()
{
    std::printf("%u\n", static_cast<unsigned>(hidden(1000)));
}
