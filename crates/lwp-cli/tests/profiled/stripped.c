/* Functions of different sizes in one page, to be stripped of their names. With OTHER, another
   build: a function in front moves the others, and `second` does more. */
#define NAMED __attribute__((noinline, noclone))

volatile long sink;

#ifdef OTHER
NAMED static long front(long n) { for (long i = 0; i < n; i++) sink += i * 3 ^ n; return sink; }
#endif
NAMED static long first(long n) { for (long i = 0; i < n; i++) sink += i; return sink; }
NAMED static long second(long n) {
#ifdef OTHER
    n *= 2;
#endif
    for (long i = 0; i < n; i++) sink ^= i * n + (i >> 3);
    return sink;
}
NAMED static long third(long n) { for (long i = n; i > 0; i--) sink -= i | 5; return sink; }
NAMED static long around(long n) {
    long sum = 0;
    for (int i = 0; i < 3; i++) sum += first(n) + second(n);
    return sum + third(n);
}

int main(void) {
#ifdef OTHER
    front(5);
#endif
    around(1000);
    return 0;
}
