/* A process maps the start of its contexts a second time and leaves that to a child, which looks at it and writes to it
 * while others begin and end. Prints "unharmed" if none of them shows there or comes to harm, "nothing" if it finds no
 * contexts. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, SLEEP_WORD = 0xef8, OTHERS = 300 };

/* Where the contexts lie. Under another name the file is not recognised. */
static char *contexts(void)
{
    char line[512];
    unsigned long found = 0;
    unlink("true_maps");
    if (symlink("/proc/self/maps", "true_maps"))
        return 0;
    FILE *maps = fopen("true_maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "memfd:lwp-contexts"))
            sscanf(line, "%lx", &found);
    if (maps)
        fclose(maps);
    return (char *)found;
}

static int differs(const char *before, const char *now)
{
    /* In between is the word that says whether the host sleeps. */
    return memcmp(before, now, SLEEP_WORD) || memcmp(before + 0xf00, now + 0xf00, PAGE - 0xf00);
}

/* What becomes of the page: 's' if somebody else's state shows there, else 'u' when `stop` says that all are gone. */
static char watch(char *page, int stop)
{
    char before[PAGE], word;
    /* At a stop the host sees that this process has contexts of its own by now. */
    if (fork() == 0)
        _exit(0);
    wait(0);
    usleep(100000);
    memcpy(before, page, PAGE);
    for (int round = 0;; round++) {
        if (differs(before, page))
            return 's';
        if (read(stop, &word, 1) == 0)
            return 'u';
        if (round == 200) {
            /* A request of any kind, and an answer. */
            memset(page, 0x11, SLEEP_WORD);
            memcpy(before, page, PAGE);
        }
        usleep(500);
    }
}

int main(void)
{
    int told[2], stop[2];
    char word = 0;
    if (pipe(told) || pipe2(stop, 04000))
        return 3;
    pid_t first = fork();
    if (first == 0) {
        close(stop[1]);
        char *own = contexts(), *page = own ? mremap(own, 0, PAGE, MREMAP_MAYMOVE) : MAP_FAILED;
        if (page == MAP_FAILED)
            _exit(write(told[1], "n", 1) != 1);
        if (fork() == 0) {
            word = watch(page, stop[0]);
            _exit(write(told[1], &word, 1) != 1);
        }
        _exit(0);
    }
    waitpid(first, 0, 0);
    for (int i = 0; i < OTHERS; i++) {
        int status;
        pid_t other = fork();
        if (other == 0) {
            if (i % 2)
                execl("/bin/true", "true", (char *)0);
            _exit(0);
        }
        waitpid(other, &status, 0);
        if (status)
            return printf("process %d ended with %x\n", i, status);
    }
    close(stop[1]);
    if (read(told[0], &word, 1) != 1)
        return 4;
    puts(word == 'u' ? "unharmed" : word == 'n' ? "nothing" : "seen");
    return 0;
}
