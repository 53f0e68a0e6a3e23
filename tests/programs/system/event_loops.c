//@ variants: pie static
//@ cflags: -O1 -pthread
/* epoll, eventfd, signalfd, timerfd, inotify, sockets, sendfile, splice and files in one program: many
 * different system calls with results that are checked. */
#include "check.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static void *echo_server(void *argument)
{
    int listener = *(int *)argument;
    for (int i = 0; i < 20; i++) {
        int peer = accept(listener, NULL, NULL);
        char buffer[256];
        ssize_t got;
        while ((got = recv(peer, buffer, sizeof buffer, 0)) > 0)
            send(peer, buffer, got, MSG_NOSIGNAL);
        close(peer);
    }
    return NULL;
}

static void sockets(void)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    if (bind(listener, (void *)&address, sizeof address) != 0) {
        say("# no loopback");
        return;
    }
    MUST(listen(listener, 8) == 0 && getsockname(listener, (void *)&address, &size) == 0);
    pthread_t id;
    MUST(pthread_create(&id, NULL, echo_server, &listener) == 0);
    for (int i = 0; i < 20; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        MUST(connect(fd, (void *)&address, sizeof address) == 0);
        for (int k = 0; k < 20; k++) {
            char out[64], in[64] = "";
            int length = snprintf(out, sizeof out, "message %d of %d", k, i);
            MUST(send(fd, out, length, 0) == length);
            MUST(recv(fd, in, length, MSG_WAITALL) == length);
            CHECK(strcmp(in, out) == 0, "echo %s", in);
        }
        close(fd);
    }
    pthread_join(id, NULL);
    close(listener);
}

static void *poster(void *argument)
{
    uint64_t one = 1;
    for (int i = 0; i < 500; i++)
        MUST(write(*(int *)argument, &one, 8) == 8);
    return NULL;
}

static void events(void)
{
    int epoll = epoll_create1(EPOLL_CLOEXEC), counter = eventfd(0, EFD_NONBLOCK), ends[2];
    MUST(epoll >= 0 && counter >= 0 && pipe(ends) == 0);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 1};
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, counter, &event) == 0);
    event.data.u64 = 2;
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event) == 0);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event) == -1 && errno == EEXIST, "added twice");
    pthread_t id;
    MUST(pthread_create(&id, NULL, poster, &counter) == 0);
    uint64_t total = 0, seen_pipe = 0;
    MUST(write(ends[1], "x", 1) == 1);
    while (total < 500 || !seen_pipe) {
        struct epoll_event ready[4];
        int count = epoll_wait(epoll, ready, 4, 5000);
        MUST(count > 0);
        for (int i = 0; i < count; i++) {
            uint64_t value;
            char byte;
            if (ready[i].data.u64 == 1 && read(counter, &value, 8) == 8)
                total += value;
            if (ready[i].data.u64 == 2 && read(ends[0], &byte, 1) == 1)
                seen_pipe++;
        }
    }
    pthread_join(id, NULL);
    CHECK_EQ(total, 500, "posted events");
}

static void files(void)
{
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0640);
    MUST(fd >= 0);
    for (int i = 0; i < 1000; i++)
        MUST(dprintf(fd, "line %d\n", i) > 0);
    struct stat status;
    MUST(fstat(fd, &status) == 0);
    CHECK_EQ(status.st_size, 8890, "size");
    CHECK_EQ(status.st_mode & 07777, 0640, "mode");
    int copy = open("copy", O_RDWR | O_CREAT | O_TRUNC, 0600);
    off_t offset = 0;
    CHECK_EQ(sendfile(copy, fd, &offset, 20000), 8890, "sendfile");
    CHECK_EQ(lseek(fd, 100, SEEK_SET), 100, "lseek");
    char text[20] = "";
    CHECK_EQ(pread(copy, text, 7, 0), 7, "pread");
    CHECK(strcmp(text, "line 0\n") == 0, "contents");
    CHECK_EQ(ftruncate(copy, 10), 0, "ftruncate");
    MUST(rename("copy", "renamed") == 0 && link("renamed", "second") == 0 && symlink("second", "link") == 0);
    char target[20] = "";
    CHECK_EQ(readlink("link", target, sizeof target), 6, "readlink");
    MUST(mkdir("folder", 0700) == 0);
    for (int i = 0; i < 50; i++) {
        char name[40];
        snprintf(name, sizeof name, "folder/%d", i);
        close(open(name, O_CREAT | O_WRONLY, 0600));
    }
    DIR *dir = opendir("folder");
    int entries = 0;
    while (readdir(dir))
        entries++;
    closedir(dir);
    CHECK_EQ(entries, 52, "entries");
    CHECK_EQ(flock(fd, LOCK_EX | LOCK_NB), 0, "flock");
    int watch = inotify_init1(IN_NONBLOCK);
    MUST(inotify_add_watch(watch, "folder", IN_CREATE | IN_DELETE) >= 0);
    unlink("folder/7");
    close(open("folder/new", O_CREAT | O_WRONLY, 0600));
    char events_seen[1024];
    ssize_t got = read(watch, events_seen, sizeof events_seen);
    CHECK_EQ(got, 2 * (sizeof(struct inotify_event) + 16), "inotify events");
    close(fd), close(copy), close(watch);
}

int main(void)
{
    RUN(sockets);
    RUN(events);
    RUN(files);
    return done();
}
