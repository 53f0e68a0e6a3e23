/* Another library with the same names, to land on the same addresses. */
extern void note_from_library(int);
__attribute__((constructor)) static void opened(void) { note_from_library(4); }
int next(void) { return -1; }
int next_local(void) { return -2; }
int apply(int (*function)(int), int x) { return function(x) - 1; }

/* Promise: F10 */
