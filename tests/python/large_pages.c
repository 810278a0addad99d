/* Which memory gets pages of 2 MiB by which request: a line per case, with how many MiB of 16 have them. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static const size_t LARGE = 2ul << 20, BYTES = 16ul << 20, ROOM = 20ul << 20;

static char *aligned(void *p)
{
    return (char *)(((unsigned long)p + LARGE - 1) & -LARGE);
}

static void touch(volatile char *p)
{
    for (size_t at = 0; at < BYTES; at += 4096) p[at] = 1;
}

/* KiB of large pages in the mappings that have bytes of those from `p` on. */
static long large(const char *p)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    unsigned long start, end;
    long sum = 0, kib;
    int is_in = 0;
    char line[4096];
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2) {
            is_in = start < (unsigned long)p + BYTES && (unsigned long)p < end;
        } else if (is_in && (sscanf(line, "AnonHugePages: %ld", &kib) == 1 ||
                             sscanf(line, "ShmemPmdMapped: %ld", &kib) == 1 ||
                             sscanf(line, "FilePmdMapped: %ld", &kib) == 1)) {
            sum += kib;
        }
    }
    if (file) fclose(file);
    return sum;
}

static void tell(const char *name, const char *request, const char *p)
{
    printf("%s %s %ld\n", name, request, large(p) >> 10);
}

/* Advice before the first touch. */
static void before(const char *name, void *mapped)
{
    char *p = aligned(mapped);
    madvise(p, BYTES, MADV_HUGEPAGE);
    touch(p);
    tell(name, "hugepage", p);
}

/* Memory is filled, then collapsed. */
static void after(const char *name, void *mapped)
{
    char *p = aligned(mapped);
    touch(p);
    madvise(p, BYTES, MADV_COLLAPSE);
    touch(p);
    tell(name, "collapse", p);
}

static void *map(int flags, int file)
{
    return mmap(NULL, ROOM, PROT_READ | PROT_WRITE, flags, file, 0);
}

static void *thread(void *request)
{
    pthread_attr_t attributes;
    void *lowest;
    size_t bytes;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &lowest, &bytes);
    if (request) {
        before("thread-stack", lowest);
    } else {
        after("thread-stack", lowest);
    }
    return NULL;
}

static void on_thread(void *request)
{
    pthread_attr_t attributes;
    pthread_t other;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, ROOM + (1 << 20));
    pthread_create(&other, &attributes, thread, request);
    pthread_join(other, NULL);
}

/* The main thread's stack, once it has its size. */
static void stack(void)
{
    char here;
    char *lowest = (char *)((unsigned long)(&here - (7ul << 20)) & -4096ul);
    size_t bytes = 6ul << 20;
    *(volatile char *)lowest = 1;
    madvise(lowest, bytes, MADV_HUGEPAGE);
    for (char *p = lowest + bytes - 4096; p > lowest; p -= 4096) *(volatile char *)p = 1;
    tell("stack", "hugepage", lowest);
}

static char bss[20 << 20];

int main(int count, char **arguments)
{
    int private = MAP_PRIVATE | MAP_ANONYMOUS, shared = MAP_SHARED | MAP_ANONYMOUS;
    before("anonymous", map(private, -1));
    before("bss", bss);
    before("shared-memory", map(shared, -1));
    after("shared-memory", map(shared, -1));
    int segment = shmget(IPC_PRIVATE, ROOM, 0600 | IPC_CREAT);
    after("segment", shmat(segment, NULL, 0));
    shmctl(segment, IPC_RMID, NULL);
    int memory = memfd_create("large", 0);
    if (ftruncate(memory, ROOM)) return 1;
    after("memfd", map(MAP_SHARED, memory));
    after("private-of-shared", map(MAP_PRIVATE, memory));
    before("populated", map(private | MAP_POPULATE, -1));
    after("populated", map(private | MAP_POPULATE, -1));
    char *p = aligned(map(private, -1));
    madvise(p, BYTES, MADV_HUGEPAGE);
    mlock(p, BYTES);
    tell("locked-later", "hugepage", p);
    on_thread(NULL);
    on_thread("advise");
    stack();
    /* A file on a disk. */
    FILE *file = count > 1 ? fopen(arguments[1], "w+") : tmpfile();
    if (!file || ftruncate(fileno(file), ROOM)) return 1;
    after("shared-file", map(MAP_SHARED, fileno(file)));
    after("private-file", map(MAP_PRIVATE, fileno(file)));
    return 0;
}
