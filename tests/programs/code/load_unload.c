//@ cflags: -O1 -pthread -rdynamic
//@ libs: libcounter libother
/* dlopen and dlclose in loops: other code at the same addresses, constructors, thread-local storage,
 * lazy binding, symbols of the program used by the library. */
#include "check.h"
#include <dlfcn.h>
#include <libgen.h>

static volatile int notes;
void note_from_library(int what) { notes += what; }
static int triple(int x) { return x * 3; }
static char folder[PATH_MAX];

static void *open_library(const char *name, int flags)
{
    char path[PATH_MAX * 2];
    snprintf(path, sizeof path, "%s/%s.so", folder, name);
    void *library = dlopen(path, flags);
    if (!library)
        say("dlopen: %s", dlerror());
    MUST(library);
    return library;
}

#define GET(library, name) ((int (*)())dlsym(library, name))

static void loops(void)
{
    for (int i = 0; i < 150; i++) {
        bool other = i % 3 == 2;
        notes = 0;
        void *library = open_library(other ? "libother" : "libcounter", i & 1 ? RTLD_NOW : RTLD_LAZY);
        CHECK_EQ(notes, other ? 4 : 1, "constructor in round %d", i);
        for (int call = 1; call <= 3; call++)
            CHECK_EQ(GET(library, "next")(), other ? -1 : call, "round %d, call %d", i, call);
        CHECK_EQ(GET(library, "next_local")(), other ? -2 : 41, "thread-local storage in round %d", i);
        CHECK_EQ(GET(library, "apply")(triple, 5), other ? 14 : 16, "call back in round %d", i);
        CHECK_EQ(dlclose(library), 0, "dlclose");
        CHECK_EQ(notes, other ? 4 : 3, "destructor in round %d", i);
        if (check_failures)
            return;
    }
}

static void *worker(void *argument)
{
    for (int i = 0; i < 40; i++) {
        void *library = open_library("libcounter", RTLD_NOW);
        CHECK(GET(library, "next")() > 0, "a call in a thread");
        CHECK(GET(library, "next_local")() > 40, "thread-local storage in a thread");
        dlclose(library);
    }
    return argument;
}

static void in_threads(void)
{
    pthread_t ids[4];
    for (int i = 0; i < 4; i++)
        MUST(pthread_create(&ids[i], NULL, worker, NULL) == 0);
    for (int i = 0; i < 4; i++)
        pthread_join(ids[i], NULL);
}

static void system_libraries(void)
{
    for (int i = 0; i < 20; i++) {
        void *math = dlopen("libm.so.6", RTLD_LAZY | RTLD_LOCAL);
        MUST(math);
        double (*cosine)(double) = (double (*)(double))dlsym(math, "cos");
        CHECK(cosine(0) == 1.0, "cos");
        dlclose(math);
    }
}

int main(int argc, char **argv)
{
    (void)argc;
    snprintf(folder, sizeof folder, "%s", dirname(argv[0]));
    RUN(loops);
    RUN(in_threads);
    RUN(system_libraries);
    return done();
}

/* Promise: F10 */
