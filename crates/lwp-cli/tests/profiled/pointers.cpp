// Indirect calls of many kinds, for comparison with callgrind: by pointer, virtual, from the C library, by a
// pointer that the dynamic linker found, in a signal handler, in threads.
#include <csignal>
#include <cstdlib>
#include <dlfcn.h>
#include <pthread.h>

#define FUNCTION extern "C" __attribute__((noinline, noclone))

static volatile long sink;

FUNCTION long increment(long n) { return n + 1; }
FUNCTION long twice(long n) { return n * 2; }
FUNCTION long square(long n) { return n * n; }

typedef long (*Function)(long);
static Function volatile functions[] = {increment, twice, square};

FUNCTION void by_turns(long rounds) {
    for (long n = 0; n < rounds; n++) sink = functions[n % 3](n);
}

FUNCTION void always_the_same(long rounds) {
    for (long n = 0; n < rounds; n++) sink = functions[1](n);
}

FUNCTION void from_two_places(long rounds) {
    for (long n = 0; n < rounds; n++) {
        sink = functions[n & 1](n);
        if (n % 5 == 0) sink = functions[2](n);
    }
}

struct Shape {
    virtual long area() const = 0;
    virtual ~Shape() {}
};
struct Box : Shape {
    long area() const override;
};
struct Disc : Shape {
    long area() const override;
};
__attribute__((noinline)) long Box::area() const { return 4; }
__attribute__((noinline)) long Disc::area() const { return 3; }

FUNCTION void areas(Shape *const *shapes, long count) {
    for (long n = 0; n < count; n++) sink = shapes[n]->area();
}

FUNCTION int compare(const void *a, const void *b) {
    long x = *(const long *)a, y = *(const long *)b;
    return (x > y) - (x < y);
}

FUNCTION void sort() {
    static long numbers[500];
    for (long n = 0; n < 500; n++) numbers[n] = n * 7919 % 500;
    qsort(numbers, 500, sizeof numbers[0], compare);
}

FUNCTION void by_name() {
    Function found = (Function)dlsym(RTLD_DEFAULT, "square");
    for (long n = 0; n < 40; n++) sink = found(n);
}

FUNCTION void handler(int) { sink = functions[2](sink); }

FUNCTION void signals() {
    signal(SIGUSR1, handler);
    for (long n = 0; n < 25; n++) raise(SIGUSR1);
}

FUNCTION void *work(void *rounds) {
    by_turns((long)rounds);
    return nullptr;
}

FUNCTION void threads() {
    pthread_t thread[3];
    for (long n = 0; n < 3; n++) pthread_create(&thread[n], nullptr, work, (void *)(100 * (n + 1)));
    for (pthread_t each : thread) pthread_join(each, nullptr);
}

int main() {
    by_turns(1000);
    always_the_same(77);
    from_two_places(300);
    Box box;
    Disc disc;
    Shape *shapes[] = {&box, &disc, &disc, &box, &disc};
    for (int round = 0; round < 20; round++) areas(shapes, 5);
    sort();
    by_name();
    signals();
    threads();
    return 0;
}
