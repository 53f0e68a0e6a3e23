//@ cflags: -O1
/* Code and data in files of a file system that a process of the program serves (FUSE), as an image that mounts itself
 * does: the server is asked for them while it executes what it has never executed before. */
#include "check.h"
#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>

enum { PAGE = 4096, ROOT = 1, FILE_NODE = 2, MOST = 1 << 20 };

static char *content;
static long content_bytes;
static int device;

static void attributes(struct fuse_attr *attr, uint64_t node)
{
    *attr = (struct fuse_attr){.ino = node, .nlink = 1, .blksize = PAGE};
    attr->mode = node == ROOT ? S_IFDIR | 0755 : S_IFREG | 0755;
    attr->size = node == ROOT ? 0 : content_bytes;
    attr->blocks = (attr->size + 511) / 512;
}

static void reply(uint64_t unique, int error, const void *body, size_t bytes)
{
    static char out[sizeof(struct fuse_out_header) + MOST];
    struct fuse_out_header header = {sizeof header + bytes, error, unique};
    memcpy(out, &header, sizeof header);
    if (bytes)
        memcpy(out + sizeof header, body, bytes);
    if (write(device, out, header.len) != (ssize_t)header.len && errno != ENOENT)
        _exit(5);
}

/* Executes a page of code that nobody has executed before. */
static void work(int number)
{
    unsigned char *at = map_pages(PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
    at[0] = 0xb8;
    memcpy(at + 1, &number, 4);
    at[5] = 0xc3;
    if (((int (*)(void))at)() != number)
        _exit(6);
    munmap(at, PAGE);
}

static void answer(struct fuse_in_header *in, const void *body)
{
    switch (in->opcode) {
    case FUSE_INIT: {
        const struct fuse_init_in *asked = body;
        struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION, .minor = 31,
                                     .max_readahead = asked->max_readahead, .max_write = PAGE * 32};
        return reply(in->unique, 0, &init, sizeof init);
    }
    case FUSE_LOOKUP: {
        /* Nothing is remembered by the kernel: it asks each time. */
        struct fuse_entry_out entry = {.nodeid = FILE_NODE, .generation = 1};
        attributes(&entry.attr, FILE_NODE);
        if (strcmp(body, "program") != 0)
            return reply(in->unique, -ENOENT, NULL, 0);
        return reply(in->unique, 0, &entry, sizeof entry);
    }
    case FUSE_GETATTR: {
        struct fuse_attr_out out = {.attr_valid = 0};
        attributes(&out.attr, in->nodeid);
        return reply(in->unique, 0, &out, sizeof out);
    }
    case FUSE_OPEN: {
        struct fuse_open_out out = {.fh = 1};
        return reply(in->unique, 0, &out, sizeof out);
    }
    case FUSE_READ: {
        const struct fuse_read_in *read = body;
        long left = content_bytes - (long)read->offset;
        long bytes = left < 0 ? 0 : left < read->size ? left : read->size;
        return reply(in->unique, 0, content + read->offset, bytes);
    }
    case FUSE_FLUSH:
    case FUSE_RELEASE:
        return reply(in->unique, 0, NULL, 0);
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        return;
    default:
        return reply(in->unique, -ENOSYS, NULL, 0);
    }
}

static void serve(void)
{
    static char request[MOST + PAGE];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int number = 0;; number++) {
        ssize_t got = read(device, request, sizeof request);
        if (got < 0 && errno == ENODEV)
            _exit(0);
        if (got < (ssize_t)sizeof(struct fuse_in_header))
            continue;
        work(number);
        answer((void *)request, request + sizeof(struct fuse_in_header));
    }
}

/* This program itself. */
static void read_content(void)
{
    int file = open("/proc/self/exe", O_RDONLY);
    struct stat about;
    MUST(file >= 0 && fstat(file, &about) == 0);
    content = malloc(about.st_size);
    content_bytes = about.st_size;
    MUST(read(file, content, content_bytes) == content_bytes);
    close(file);
}

static void executed(const char *path)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        execl(path, path, "inside", NULL);
        _exit(4);
    }
    MUST(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 7 << 8, "a program of the file system");
}

static void mapped(const char *path)
{
    int file = open(path, O_RDONLY);
    MUST(file >= 0);
    const char *at = mmap(NULL, content_bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
    MUST(at != MAP_FAILED);
    CHECK_EQ(memcmp(at, content, content_bytes), 0, "the content");
    munmap((void *)at, content_bytes);
    /* Opened to be written to, closed, and looked at. */
    int other = open(path, O_RDWR);
    CHECK(other >= 0, "open (%s)", strerror(errno));
    struct stat about;
    CHECK_EQ(fstat(other, &about), 0, "fstat");
    CHECK_EQ(about.st_size, content_bytes, "the size");
    close(other);
    close(file);
}

int main(int count, char **args)
{
    char place[] = "/tmp/served.XXXXXX", path[64], options[64];
    if (count > 1)
        return strcmp(args[1], "inside") == 0 ? 7 : 8;
    alarm(120);
    read_content();
    device = open("/dev/fuse", O_RDWR);
    if (device < 0 || unshare(CLONE_NEWNS) != 0) {
        say("# no file systems can be mounted here");
        return done();
    }
    MUST(mkdtemp(place) && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
    MUST(mount("served", place, "fuse", 0, options) == 0);
    snprintf(path, sizeof path, "%s/program", place);
    pid_t server = fork();
    if (server == 0)
        serve();
    close(device);
    for (int round = 0; round < 3; round++) {
        executed(path);
        mapped(path);
    }
    MUST(umount2(place, MNT_DETACH) == 0 && rmdir(place) == 0);
    int status = -1;
    MUST(waitpid(server, &status, 0) == server);
    CHECK_EQ(status, 0, "the server");
    return done();
}

/* Promise: F10, F34 */
