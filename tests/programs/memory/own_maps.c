//@ variants: pie static
/* What a program can read about itself: /proc/self/maps, status, auxv, stat; sizes and permissions of
 * its own segments as the linker made them. */
#include "check.h"
#include <elf.h>
#include <link.h>
#include <sys/auxv.h>

static int writable_data = 5;
static const char read_only[] = "constant";

struct region { uintptr_t start, end; char permissions[5]; char path[512]; };
static struct region regions[2000];
static int count;

static void read_maps(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    MUST(file);
    char line[1024];
    count = 0;
    uintptr_t last = 0;
    while (fgets(line, sizeof line, file)) {
        struct region *r = &regions[count];
        r->path[0] = 0;
        int fields = sscanf(line, "%lx-%lx %4s %*x %*x:%*x %*u %511s", &r->start, &r->end, r->permissions, r->path);
        CHECK(fields >= 3, "a line of maps: %s", line);
        CHECK(r->start >= last && r->end > r->start, "regions are in order: %s", line);
        last = r->end;
        count++;
    }
    fclose(file);
}

static const struct region *at(const void *pointer)
{
    for (int i = 0; i < count; i++)
        if ((uintptr_t)pointer >= regions[i].start && (uintptr_t)pointer < regions[i].end)
            return &regions[i];
    return NULL;
}

static void expect(const char *what, const void *pointer, const char *permissions, const char *path)
{
    const struct region *r = at(pointer);
    CHECK(r != NULL, "%s is in maps", what);
    if (!r)
        return;
    CHECK(memcmp(r->permissions, permissions, 3) == 0, "%s has permissions %s", what, r->permissions);
    if (path)
        CHECK(strstr(r->path, path) != NULL, "%s is in %s", what, r->path);
}

static void regions_of_program(char **argv)
{
    char local;
    read_maps();
    expect("data", &writable_data, "rw-", argv[0]);
    expect("constants", read_only, "r--", argv[0]);
    expect("the stack", &local, "rw-", "[stack]");
    const struct region *code = at((void *)regions_of_program);
    CHECK(code && strstr(code->path, argv[0]), "the code belongs to the program: %s", code ? code->path : "");
    CHECK(code && code->permissions[0] == 'r' && code->permissions[1] == '-', "the code is read-only: %s", code ? code->permissions : "");
    void *heap = malloc(100);
    expect("the heap", heap, "rw-", NULL);
    uintptr_t vdso = getauxval(AT_SYSINFO_EHDR);
    if (vdso)
        CHECK(memcmp((void *)vdso, ELFMAG, 4) == 0, "the vdso is readable");
}

static void code_is_readable(void)
{
    /* A checksum over the program's own text, read as data; the file holds the same bytes. */
    const unsigned char *text = (void *)code_is_readable;
    const struct region *r = at(text);
    MUST(r);
    int fd = open("/proc/self/exe", O_RDONLY);
    MUST(fd >= 0);
    Elf64_Ehdr header;
    MUST(pread(fd, &header, sizeof header, 0) == sizeof header);
    int compared = 0;
    for (int i = 0; i < header.e_phnum; i++) {
        Elf64_Phdr p;
        MUST(pread(fd, &p, sizeof p, header.e_phoff + i * sizeof p) == sizeof p);
        if (p.p_type != PT_LOAD || !(p.p_flags & PF_X))
            continue;
        unsigned char *bytes = malloc(p.p_filesz);
        MUST(pread(fd, bytes, p.p_filesz, p.p_offset) == (ssize_t)p.p_filesz);
        uintptr_t base = header.e_type == ET_DYN ? getauxval(AT_PHDR) - header.e_phoff : 0;
        CHECK(memcmp(bytes, (void *)(base + p.p_vaddr), p.p_filesz) == 0, "text in memory differs from the file");
        compared++;
        free(bytes);
    }
    close(fd);
    CHECK_EQ(compared, 1, "executable segments");
}

static void status(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    MUST(file);
    char line[1024];
    int seen = 0;
    while (fgets(line, sizeof line, file)) {
        int value;
        if (sscanf(line, "Threads: %d", &value) == 1) {
            CHECK_EQ(value, 1, "threads");
            seen++;
        }
        if (sscanf(line, "Pid: %d", &value) == 1) {
            CHECK_EQ(value, getpid(), "pid");
            seen++;
        }
        if (sscanf(line, "PPid: %d", &value) == 1) {
            CHECK_EQ(value, getppid(), "parent");
            seen++;
        }
        unsigned long mask;
        if (sscanf(line, "SigCgt: %lx", &mask) == 1) {
            CHECK_EQ(mask, 0, "caught signals");
            seen++;
        }
        if (sscanf(line, "SigBlk: %lx", &mask) == 1) {
            CHECK_EQ(mask, 0, "blocked signals");
            seen++;
        }
    }
    fclose(file);
    CHECK_EQ(seen, 5, "lines of status");
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD, "no child of our own");
}

static void no_end(void)
{
    /* Such files have no end to go to; they can be read from any place before it. */
    const char *names[] = {"/proc/self/maps", "/proc/self/status", "/proc/self/stat", "/proc/self/smaps"};
    for (int i = 0; i < 4; i++) {
        char first[20], again[20];
        int fd = open(names[i], O_RDONLY);
        MUST(fd >= 0 && read(fd, first, 10) == 10);
        errno = 0;
        CHECK_EQ(lseek(fd, 0, SEEK_END), -1, "%s", names[i]);
        CHECK_EQ(errno, EINVAL, "%s", names[i]);
        CHECK_EQ(lseek(fd, 0, SEEK_CUR), 10, "%s", names[i]);
        CHECK_EQ(lseek(fd, 0, 3), -1, "data in %s", names[i]);
        CHECK_EQ(lseek(fd, 5, SEEK_SET), 5, "%s", names[i]);
        CHECK_EQ(read(fd, again, 5), 5, "%s", names[i]);
        CHECK(memcmp(first + 5, again, 5) == 0, "%s", names[i]);
        close(fd);
    }
}

/* PROCMAP_QUERY of Linux 6.11: the next mapping from an address on. */
struct query { uint64_t size, flags, address, start, end, vma_flags, page, offset, inode; uint32_t minor, major, name, id; uint64_t name_at, id_at; };

static void asked_for_mappings(void)
{
    int fd = open("/proc/self/maps", O_RDONLY);
    MUST(fd >= 0);
    read_maps();
    for (uint64_t address = 0;;) {
        struct query query = {.size = sizeof query, .flags = 0x10, .address = address};
        if (syscall(SYS_ioctl, fd, 0xc0686611u, &query) != 0) {
            CHECK(errno == ENOTTY || errno == ENOENT, "an answer or none");
            break;
        }
        if (query.start > 0x7fffffffffff)
            break;
        CHECK(at((void *)(uintptr_t)query.start) != NULL, "%#lx is in maps", query.start);
        address = query.end;
    }
    close(fd);
}

int main(int argc, char **argv)
{
    (void)argc;
    regions_of_program(argv);
    RUN(code_is_readable);
    RUN(status);
    RUN(no_end);
    RUN(asked_for_mappings);
    return done();
}
