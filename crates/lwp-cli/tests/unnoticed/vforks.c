/* Makes children by vfork that end without another program, until standard input ends. */
#include <poll.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    struct pollfd input = {0, POLLIN, 0};
    puts("ready");
    fflush(stdout);
    while (poll(&input, 1, 1) == 0) {
        pid_t child = vfork();
        if (child == 0)
            _exit(7);
        int status;
        if (waitpid(child, &status, 0) != child || status != 7 << 8) {
            puts("a child was lost");
            return 0;
        }
    }
    puts("all ended");
    return 0;
}
