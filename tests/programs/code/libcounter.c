/* Opened and closed at run time by load_unload. */
static int count;
static __thread int local = 40;
extern void note_from_library(int);
__attribute__((constructor)) static void opened(void) { note_from_library(1); }
__attribute__((destructor)) static void closed(void) { note_from_library(2); }
int next(void) { return ++count; }
int next_local(void) { return ++local; }
int apply(int (*function)(int), int x) { return function(x) + 1; }

/* Promise: F10 */
