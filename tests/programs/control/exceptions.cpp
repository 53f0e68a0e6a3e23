//@ variants: pie static
//@ cflags: -O1 -pthread
// Exceptions unwind through translated frames: the return addresses on the stack must be the
// program's own.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static int failures;
#define EXPECT(c) do { if (!(c)) { failures++; std::printf("FAIL line %d: %s\n", __LINE__, #c); } } while (0)

struct Counter {
    static int alive;
    Counter() { alive++; }
    ~Counter() { alive--; }
};
int Counter::alive = 0;

__attribute__((noinline)) static int descend(int depth)
{
    Counter counter;
    if (depth == 0)
        throw std::runtime_error("bottom");
    return descend(depth - 1) + 1;
}

__attribute__((noinline)) static void rethrow(int depth)
{
    try {
        descend(depth);
    } catch (const std::logic_error &) {
        EXPECT(!"wrong handler");
    } catch (...) {
        Counter counter;
        throw;
    }
}

struct Base { virtual ~Base() = default; virtual int call(int x) { return x + 1; } };
struct Derived : Base { int call(int x) override { if (x % 7 == 0) throw x; return x + 2; } };

static void many()
{
    long sum = 0;
    std::unique_ptr<Base> objects[2] = {std::make_unique<Base>(), std::make_unique<Derived>()};
    for (int i = 0; i < 2000; i++) {
        try {
            sum += objects[i & 1]->call(i);
        } catch (int x) {
            sum -= x;
        }
    }
    std::printf("sum %ld\n", sum);
}

static void unexpected() noexcept(false) { throw std::bad_alloc(); }

static void nested()
{
    try {
        try {
            throw std::runtime_error("inner");
        } catch (...) {
            std::throw_with_nested(std::logic_error("outer"));
        }
    } catch (const std::exception &e) {
        EXPECT(std::string(e.what()) == "outer");
        try {
            std::rethrow_if_nested(e);
            EXPECT(!"nested exception");
        } catch (const std::exception &inner) {
            EXPECT(std::string(inner.what()) == "inner");
        }
    }
}

static void in_threads()
{
    std::vector<std::thread> threads;
    int caught[4] = {};
    for (int t = 0; t < 4; t++)
        threads.emplace_back([t, &caught] {
            for (int i = 0; i < 200; i++)
                try {
                    descend(t + i % 5);
                } catch (const std::runtime_error &) {
                    caught[t]++;
                }
        });
    for (auto &thread : threads)
        thread.join();
    for (int c : caught)
        EXPECT(c == 200);
}

int main()
{
    for (int i = 0; i < 300; i++) {
        try {
            rethrow(i % 40);
            EXPECT(!"no exception");
        } catch (const std::runtime_error &e) {
            EXPECT(std::string(e.what()) == "bottom");
        }
        EXPECT(Counter::alive == 0);
    }
    many();
    nested();
    try { unexpected(); EXPECT(!"no exception"); } catch (const std::bad_alloc &) {}
    try { (void)std::vector<int>(3).at(5); EXPECT(!"no exception"); } catch (const std::out_of_range &) {}
    try { (void)dynamic_cast<Derived &>(*std::make_unique<Base>()); EXPECT(!"no exception"); } catch (const std::bad_cast &) {}
    Counter::alive = 0;
    in_threads();
    EXPECT(true);
    std::printf(failures ? "failed %d\n" : "ok\n", failures);
    return failures != 0;
}
