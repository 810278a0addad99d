/*
 * Small programs whose data lies in pages of 4K or of 2M: chase, random, strided, join.
 *
 * usage: micro time BYTES ROUNDS      all of them on both page sizes in turn: nanoseconds of a step
 *        micro run KIND BYTES         one of them, to be recorded
 *
 *   chase     a load whose address is taken from the load before it
 *   random    loads that do not wait for each other
 *   strided   a load from one page after the other, each at another line
 *   join      a table is looked up at random, with keys that are read in order
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { PAGE = 4096, LINE = 64 };
static const char *const KINDS[] = {"chase", "random", "strided", "join"};
static volatile uint64_t sink;

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1e9 + at.tv_nsec;
}

static char *memory(size_t bytes, int advice) {
    size_t huge = 2u << 20;
    char *all = mmap(0, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) exit(4);
    char *start = (char *)(((uintptr_t)all + huge - 1) & -(uintptr_t)huge);
    madvise(start, bytes, advice);
    for (size_t at = 0; at < bytes; at += PAGE) start[at] = 0;
    return start;
}

/* `steps` steps of a kind over `lines` lines, a power of two. All that is loaded is 0. */
static void walk(int kind, const char *base, uint64_t lines, long steps) {
    uint64_t at = 1, sum = 0, mask = lines - 1;
    if (kind == 0) {
        for (long i = 0; i < steps; i++) {
            at = at * 6364136223846793005u + 1442695040888963407u;
            at += *(const uint64_t *)(base + ((at >> 24) & mask) * LINE);
        }
        sum = at;
    } else if (kind == 1) {
        for (long i = 0; i < steps; i++) {
            at = at * 6364136223846793005u + 1442695040888963407u;
            sum += *(const uint64_t *)(base + ((at >> 24) & mask) * LINE);
        }
    } else if (kind == 2) {
        for (long i = 0; i < steps; i++) {
            at += PAGE / LINE + 1;
            sum += *(const uint64_t *)(base + (at & mask) * LINE);
        }
    } else {
        /* The first quarter holds the keys, the other three the table. */
        uint64_t keys = lines / 4 * (LINE / 8), next = 0;
        for (long i = 0; i < steps; i++) {
            at = ((const uint64_t *)base)[next] + i * 0x9e3779b97f4a7c15u;
            next = next + 1 == keys ? 0 : next + 1;
            sum += *(const uint64_t *)(base + (lines / 4 + (at >> 30) % (lines / 4 * 3)) * LINE);
        }
    }
    sink = sum;
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "run")) {
        size_t bytes = strtoull(argv[3], 0, 10);
        char *base = memory(bytes, MADV_NOHUGEPAGE);
        for (int kind = 0; kind < 4; kind++)
            if (!strcmp(argv[2], KINDS[kind])) walk(kind, base, bytes / LINE, 8000000);
        return 0;
    }
    if (argc != 4 || strcmp(argv[1], "time")) return 2;
    size_t bytes = strtoull(argv[2], 0, 10);
    int rounds = atoi(argv[3]);
    char *bases[] = {memory(bytes, MADV_NOHUGEPAGE), memory(bytes, MADV_HUGEPAGE)};
    for (int round = -1; round < rounds; round++)
        for (int kind = 0; kind < 4; kind++)
            for (int page = 0; page < 2; page++) {
                long steps = kind == 0 ? 200000 : 1000000;
                double start = now();
                walk(kind, bases[page], bytes / LINE, steps);
                double took = (now() - start) / steps;
                if (round >= 0) printf("%s %s %.4f\n", KINDS[kind], page ? "2M" : "4K", took);
            }
    return 0;
}
