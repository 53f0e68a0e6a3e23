/* Checks for C clients of the library: the first that fails ends the program with its place. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                                 \
    do {                                                                                                 \
        if (!(condition)) {                                                                              \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno);            \
            exit(1);                                                                                     \
        }                                                                                                \
    } while (0)

/* `call` fails with the number and a text. */
#define FAILS(call, number)                                                                              \
    do {                                                                                                 \
        errno = 0;                                                                                       \
        CHECK((call) == -1);                                                                             \
        CHECK(errno == (number));                                                                        \
        CHECK(lwp_last_error()[0] != '\0');                                                              \
    } while (0)

/* `call` succeeds and leaves errno alone. */
#define SUCCEEDS(call)                                                                                   \
    do {                                                                                                 \
        errno = 4711;                                                                                    \
        CHECK((call) == 0);                                                                              \
        CHECK(errno == 4711);                                                                            \
    } while (0)

#endif
