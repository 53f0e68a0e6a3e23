//@ variants: pie no-pie static
//@ cflags: -O2
/* Library code, callbacks, formatted output. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

int main(void)
{
    static int data[600];
    uint32_t x = 12345;
    for (int i = 0; i < 600; i++)
        data[i] = (x = x * 1103515245 + 12345) >> 16;
    qsort(data, 600, sizeof *data, compare);
    char text[200] = "";
    for (int i = 0; i < 600; i += 100)
        snprintf(text + strlen(text), 50, "%d %.3f|", data[i], data[i] / 7.0);
    puts(text);
    char *copy = strdup(text);
    for (char *word = strtok(copy, "|"); word; word = strtok(NULL, "|"))
        puts(word);
    free(copy);
    return 0;
}
