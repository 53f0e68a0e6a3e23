/* Nested loops over floating-point numbers, with inlined functions. */
#include <stdio.h>

enum { N = 24 };

static inline double cell(int i, int j)
{
    return (i * 7 + j * 3) % 11 - 5.0;
}

static inline double dot(const double *row, const double (*columns)[N], int j)
{
    double sum = 0;
    for (int k = 0; k < N; k++)
        sum += row[k] * columns[k][j];
    return sum;
}

__attribute__((noinline)) void multiply(double (*out)[N], const double (*a)[N],
                                        const double (*b)[N])
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            out[i][j] = dot(a[i], b, j);
}

int main(void)
{
    static double a[N][N], b[N][N], c[N][N];
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            a[i][j] = cell(i, j);
            b[i][j] = cell(j, i);
        }
    multiply(c, a, b);
    double trace = 0;
    for (int i = 0; i < N; i++)
        trace += c[i][i];
    printf("%g\n", trace);
    return 0;
}
