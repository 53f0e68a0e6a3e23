//@ cflags: -static-libgcc -static-libstdc++
// Code before and after main, exceptions, and destructors at exit. Without libgcc_s, which asks for every feature of
// the processor when it is loaded: some are not shown, and then it executes less.
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

struct Noisy {
    const char *name;
    explicit Noisy(const char *n) : name(n) { std::printf("+%s\n", name); }
    ~Noisy() { std::printf("-%s\n", name); std::fflush(stdout); }
};

static Noisy global("global");
static thread_local Noisy local("thread_local");

__attribute__((constructor)) static void early() { std::printf("constructor\n"); }
__attribute__((destructor)) static void late() { std::printf("destructor\n"); std::fflush(stdout); }
static void at_exit() { std::printf("atexit\n"); }

static int ifunc_target(int x) { return x * 3; }
extern "C" int (*resolve())(int) { return ifunc_target; }
extern "C" int chosen(int) __attribute__((ifunc("resolve")));

int main()
{
    std::atexit(at_exit);
    std::printf("%s\n", local.name);
    std::printf("ifunc %d\n", chosen(14));
    return 0;
}
