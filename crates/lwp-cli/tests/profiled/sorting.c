/* Sorts by a comparison that is called indirectly, and formats. */
#include <stdio.h>
#include <stdlib.h>

static unsigned next(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static int compare(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return x < y ? -1 : x > y;
}

__attribute__((noinline)) unsigned hash(const char *text, int length)
{
    unsigned sum = 5381;
    for (int i = 0; i < length; i++)
        sum = sum * 33 ^ (unsigned char)text[i];
    return sum;
}

int main(void)
{
    enum { N = 1500 };
    static int values[N];
    unsigned state = 1, sum = 0;
    for (int i = 0; i < N; i++)
        values[i] = (int)next(&state);
    qsort(values, N, sizeof values[0], compare);
    for (int i = 0; i < N; i++) {
        char line[64];
        sum += hash(line, snprintf(line, sizeof line, "%d:%d", values[i], i));
    }
    printf("%u\n", sum);
    return 0;
}
