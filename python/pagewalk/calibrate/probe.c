/*
 * What a machine's address translation, caches and kernel cost, by timing alone.
 *
 * usage: probe REPEATS [NODES_MAX]
 *
 * Each line of output is one measurement: its name, its parameter, and as many nanoseconds as it
 * was repeated.
 *
 *   page   n   ns...   a dependent load on n pages, one line of each, pages of 4K
 *   huge   n   ns...   the same on memory of 2M pages, where the system gives them
 *   line   n   ns...   the same on n adjacent lines: caches without translation
 *   far, far-huge      a dependent load on any line of n bytes, in pages of 4K and of 2M
 *   apart, apart-huge  the same loads, none of which waits for another
 *   program    n   ns...   a part of a program that uses caches and predicts branches, with one store to
 *                      a page: to one that is there (n = 0), or to one of n bytes that is not
 *
 * A load's address is what the load before it gave, so that nothing overlaps. Every repeat takes
 * all sizes in turn, so that a noisy moment spoils one repeat of each and not all of one.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { REPEATS_MAX = 31, POINTS_MAX = 512, PAGE = 4096, LINE = 64 };
/* Far memory: sizes from the least to the most, or to a sixteenth of the machine's. */
enum { FAR_LEAST = 32 << 20, FAR_MOST = 512 << 20, FAR_STEP = 4 };

typedef struct {
    const char *name;
    long parameter;
    double ns[REPEATS_MAX];
} Point;

static Point points[POINTS_MAX];
static int used, repeats, repeat;

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1e9 + at.tv_nsec;
}

static void note(const char *name, long parameter, double ns) {
    for (int i = 0; i < used; i++)
        if (!strcmp(points[i].name, name) && points[i].parameter == parameter) {
            points[i].ns[repeat] = ns;
            return;
        }
    if (used == POINTS_MAX) exit(3);
    points[used] = (Point){.name = name, .parameter = parameter};
    points[used++].ns[repeat] = ns;
}

static uint64_t state = 0x9e3779b97f4a7c15u;

static uint64_t next_random(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static char *memory(size_t bytes, int advice) {
    size_t room = bytes + (2u << 20);
    char *all = mmap(0, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) return 0;
    char *start = (char *)(((uintptr_t)all + (2u << 20) - 1) & -(uintptr_t)(2u << 20));
    madvise(start, bytes, advice);
    return start;
}

static volatile uintptr_t sink;

/* Nanoseconds of one step through `nodes` places in a random cycle, `stride` bytes apart. */
static double chase(char *base, long nodes, long stride) {
    long *order = malloc(nodes * sizeof *order);
    for (long i = 0; i < nodes; i++) order[i] = i;
    for (long i = nodes - 1; i > 0; i--) {
        long other = next_random() % (i + 1), held = order[i];
        order[i] = order[other], order[other] = held;
    }
    /* Another line of each page, or all of them would share a few sets of the caches. */
#define PLACE(i) (base + order[i] * stride + (stride >= PAGE ? order[i] * 7 % (PAGE / LINE) * LINE : 0))
    for (long i = 0; i < nodes; i++) *(void **)PLACE(i) = PLACE((i + 1) % nodes);
    void **at = (void **)PLACE(0);
    free(order);
    /* What no cache holds needs no warming. */
    long steps = nodes < 20000 ? 60000 : nodes < 70000 ? 3 * nodes : 200000;
    for (long i = 0; i < (nodes < 300000 ? nodes : 0) + 1000; i++) at = *at;
    double start = now();
    for (long i = 0; i < steps; i++) at = *at;
    double took = now() - start;
    sink = (uintptr_t)at;
    return took / steps;
}

/* Random loads from a power of two of lines: each waits for the one before it, or none does. */
static double loads(const char *base, size_t bytes, long count, int dependent) {
    uint64_t at = 1, sum = 0, mask = bytes / LINE - 1;
    double start = now();
    for (long i = 0; i < count; i++) {
        at = at * 6364136223846793005u + 1442695040888963407u;
        uint64_t value = *(const uint64_t *)(base + ((at >> 24) & mask) * LINE);
        sum += value;
        if (dependent) at += value;
    }
    double took = now() - start;
    sink = sum + at;
    return took / count;
}

static double dependent_adds(void) {
    uint64_t x = 1;
    long steps = 4000000;
    double start = now();
    for (long i = 0; i < steps; i++)
        __asm__ volatile("add %0, %0\n\tadd %0, %0\n\tadd %0, %0\n\tadd %0, %0" : "+r"(x));
    double took = now() - start;
    sink = x;
    return took / (4.0 * steps);
}

static double independent_adds(void) {
    uint64_t a = 1, b = 2, c = 3, d = 4, e = 5, f = 6;
    long steps = 2000000;
    double start = now();
    for (long i = 0; i < steps; i++)
        __asm__ volatile("add %0, %0\n\tadd %1, %1\n\tadd %2, %2\n\tadd %3, %3\n\tadd %4, %4\n\tadd %5, %5"
                         : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f));
    double took = now() - start;
    sink = a + b + c + d + e + f;
    return took / (6.0 * steps);
}

/* Stores to pages of shared memory that are there: only their translations were dropped. */
static void minor_faults(void) {
    long pages = 2048;
    char *shared = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return;
    for (long i = 0; i < pages; i++) shared[i * PAGE] = 1;
    madvise(shared, pages * PAGE, MADV_DONTNEED);
    double start = now();
    for (long i = 0; i < pages; i++) shared[i * PAGE] = 2;
    note("minor", PAGE, (now() - start) / pages);
    munmap(shared, pages * PAGE);
}

/* A page more of an mprotect: its entry read and written. */
static void entries(void) {
    long pages = 2048;
    double took[2];
    for (int many = 0; many < 2; many++) {
        /* A page between keeps the regions apart, so that none is cut or joined. */
        char *some = memory((pages + 2) * PAGE, MADV_NOHUGEPAGE);
        memset(some, 1, (pages + 2) * PAGE);
        munmap(some + (many ? pages : 1) * PAGE, PAGE);
        size_t bytes = (many ? pages : 1) * PAGE;
        double start = now();
        for (int i = 0; i < 64; i++) {
            mprotect(some, bytes, PROT_READ);
            mprotect(some, bytes, PROT_READ | PROT_WRITE);
        }
        took[many] = (now() - start) / 128;
        munmap(some, (pages + 2) * PAGE);
    }
    note("entry", 1, (took[1] - took[0]) / (pages - 1));
}

/* An msync that has nothing to do: a call, and a look for the region. A page more of a mincore where
   no translations are: a look for the page in its object. */
static void lookups(void) {
    long pages = 2048;
    unsigned char there[2048];
    char *shared = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return;
    for (long i = 0; i < pages; i++) shared[i * PAGE] = 1;
    madvise(shared, pages * PAGE, MADV_DONTNEED);
    double start = now();
    for (int i = 0; i < 20000; i++) msync(shared, PAGE, MS_ASYNC);
    note("region", 1, (now() - start) / 20000);
    double took[2];
    for (int many = 0; many < 2; many++) {
        size_t bytes = (many ? pages : 1) * PAGE;
        start = now();
        for (int i = 0; i < 64; i++) mincore(shared, bytes, there);
        took[many] = (now() - start) / 64;
    }
    note("object", 1, (took[1] - took[0]) / (pages - 1));
    munmap(shared, pages * PAGE);
}

/* A program whose time depends on what its processor knows of it: data in caches, and branches whose outcomes
   repeat. It interprets CODE bytes of code, each of which is one of sixteen operations. */
enum { CODE = 1 << 12, DATA = 1 << 15, STEPS = 500 };

static uint64_t interpreted(const uint8_t *code, const uint64_t *data, uint64_t value, long from) {
    for (long at = from; at < from + STEPS; at++)
        switch (code[at % CODE] % 16) {
#define OPERATION(n)                                                                              \
    case n:                                                                                       \
        value = value * 6364136223846793005u + 2 * n + 1;                                         \
        if (value >> (40 + n) & 1) value += data[value >> 20 & (DATA - 1)];                       \
        break
            OPERATION(0); OPERATION(1); OPERATION(2); OPERATION(3);
            OPERATION(4); OPERATION(5); OPERATION(6); OPERATION(7);
            OPERATION(8); OPERATION(9); OPERATION(10); OPERATION(11);
            OPERATION(12); OPERATION(13); OPERATION(14); OPERATION(15);
#undef OPERATION
        }
    return value;
}

/* Such a program stores to a page after each part: first to pages that it has never touched, which fault. */
static void faults_within(void) {
    static uint8_t code[CODE];
    static uint64_t data[DATA];
    uint64_t value = 1;
    for (long i = 0; i < CODE; i++) code[i] = (value = value * 6364136223846793005u + 1) >> 33;
    for (long i = 0; i < DATA; i++) data[i] = value = value * 6364136223846793005u + 1;
    long pages = 4096;
    char *small = memory(pages * PAGE, MADV_NOHUGEPAGE);
    for (int again = 0; again < 2; again++) {
        double start = now();
        for (long i = 0; i < pages; i++) {
            value = interpreted(code, data, 1, i * STEPS);
            small[i * PAGE + i * LINE % PAGE] = (char)value;
        }
        note("program", again ? 0 : PAGE, (now() - start) / pages);
    }
    sink = value;
    munmap(small, pages * PAGE);
}

static void kernel_costs(void) {
    long pages = 4096;
    char *small = memory(pages * PAGE, MADV_NOHUGEPAGE);
    double start = now();
    for (long i = 0; i < pages; i++) small[i * PAGE] = 1;
    note("fault", PAGE, (now() - start) / pages);
    start = now();
    for (long i = 0; i < pages; i++) memset(small + i * PAGE, 0, PAGE);
    note("zero", PAGE, (now() - start) / pages);
    start = now();
    for (long i = 0; i < pages / 2; i++)
        memcpy(small + i * PAGE, small + (pages / 2 + i) * PAGE, PAGE);
    note("copy", PAGE, (now() - start) / (pages / 2));
    start = now();
    for (int i = 0; i < 2000; i++) {
        mprotect(small, PAGE, PROT_READ);
        mprotect(small, PAGE, PROT_READ | PROT_WRITE);
        small[0] = (char)i;
    }
    note("mprotect", 1, (now() - start) / 4000);
    start = now();
    munmap(small, pages * PAGE);
    note("unmap", PAGE, (now() - start) / pages);
    start = now();
    for (int i = 0; i < 20000; i++) syscall(SYS_getppid);
    note("call", 1, (now() - start) / 20000);
    faults_within();
    minor_faults();
    entries();
    lookups();
    char *large = memory(16u << 20, MADV_HUGEPAGE);
    start = now();
    for (int i = 0; i < 8; i++) large[(long)i << 21] = 1;
    note("fault", 2 << 20, (now() - start) / 8);
    start = now();
    munmap(large, 16u << 20);
    note("unmap", 2 << 20, (now() - start) / 8);
}

static volatile int spinning;
static char *shared_page;

static void *spin(void *cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((long)cpu, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    spinning = 1;
    while (spinning) sink = shared_page[64];
    return 0;
}

static void mprotect_with_others(long other_cpu) {
    pthread_t thread;
    shared_page = memory(PAGE, MADV_NOHUGEPAGE);
    shared_page[0] = 1;
    spinning = 0;
    if (pthread_create(&thread, 0, spin, (void *)other_cpu)) return;
    while (!spinning) sched_yield();
    double start = now();
    for (int i = 0; i < 500; i++) {
        mprotect(shared_page, PAGE, PROT_READ);
        mprotect(shared_page, PAGE, PROT_READ | PROT_WRITE);
        shared_page[0] = (char)i;
    }
    note("mprotect", 2, (now() - start) / 1000);
    spinning = 0;
    pthread_join(thread, 0);
    munmap(shared_page, PAGE);
}

/* A byte back and forth between two processes on one processor: two switches and four calls. */
static void context_switch(void) {
    int there[2], back[2], rounds = 2000;
    char byte = 0;
    if (pipe(there) || pipe(back)) return;
    pid_t child = fork();
    if (child < 0) return;
    if (child == 0) {
        for (int i = 0; i < rounds; i++)
            if (read(there[0], &byte, 1) != 1 || write(back[1], &byte, 1) != 1) _exit(1);
        _exit(0);
    }
    double start = now();
    for (int i = 0; i < rounds; i++)
        if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1) break;
    note("switch", 1, (now() - start) / (2.0 * rounds));
    waitpid(child, 0, 0);
    for (int i = 0; i < 2; i++) close(there[i]), close(back[i]);
}

int main(int argc, char **argv) {
    repeats = argc > 1 ? atoi(argv[1]) : 7;
    long nodes_max = argc > 2 ? atol(argv[2]) : 24576;
    if (repeats < 1 || repeats > REPEATS_MAX || nodes_max < 64) return 2;
    cpu_set_t allowed, one;
    sched_getaffinity(0, sizeof allowed, &allowed);
    long cpu = sched_getcpu(), other = -1;
    for (long i = 0; i < CPU_SETSIZE; i++)
        if (i != cpu && CPU_ISSET(i, &allowed)) other = i;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
    size_t bytes = (size_t)nodes_max * PAGE, line_max = 256u << 20;
    size_t all = (size_t)sysconf(_SC_PHYS_PAGES) * PAGE, far = FAR_LEAST;
    while (far < FAR_MOST && far * FAR_STEP <= all / 16) far *= FAR_STEP;
    char *small = memory(bytes, MADV_NOHUGEPAGE), *huge = memory(bytes, MADV_HUGEPAGE);
    char *far_small = memory(far, MADV_NOHUGEPAGE);
    size_t large_bytes = far > line_max ? far : line_max;
    char *large = memory(large_bytes, MADV_HUGEPAGE);
    if (!small || !huge || !large || !far_small) return 4;
    memset(small, 1, bytes), memset(huge, 1, bytes), memset(large, 1, large_bytes);
    memset(far_small, 1, far);
    for (repeat = 0; repeat < repeats; repeat++) {
        for (double step = 16; step <= nodes_max; step *= step < 8192 ? 1.0905 : 1.4142) {
            long nodes = (long)(step / 4 + 0.5) * 4;
            note("page", nodes, chase(small, nodes, PAGE));
            note("huge", nodes, chase(huge, nodes, PAGE));
            note("line", nodes, chase(large, nodes, LINE));
        }
        for (long lines = nodes_max * 2; lines * LINE <= (long)line_max; lines *= 2)
            note("line", lines, chase(large, lines, LINE));
        note("independent", line_max, loads(large, line_max, 400000, 0));
        for (size_t size = FAR_LEAST; size <= far; size *= FAR_STEP) {
            note("far", size, loads(far_small, size, 200000, 1));
            note("far-huge", size, loads(large, size, 200000, 1));
            note("apart", size, loads(far_small, size, 400000, 0));
            note("apart-huge", size, loads(large, size, 400000, 0));
        }
        note("add", 1, dependent_adds());
        note("add", 6, independent_adds());
        kernel_costs();
        context_switch();
        if (other >= 0) mprotect_with_others(other);
    }
    for (int i = 0; i < used; i++) {
        printf("%s %ld", points[i].name, points[i].parameter);
        for (int j = 0; j < repeats; j++) printf(" %.3f", points[i].ns[j]);
        printf("\n");
    }
    return 0;
}
