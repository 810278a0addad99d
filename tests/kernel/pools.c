/* Plays random calls on the kernel's pool of 2M pages and on a model of it, and compares the pool after each.
 *
 *   pools SEED CALLS                 root's; the pool's knobs are whatever they are afterwards
 *
 * The model is that of crates/vm/tests/vm/pools.rs, with which crate `vm` is compared. Memory is touched by a
 * read of the kernel into it, so that a page that the pool does not have is an error and no signal. A child of
 * a fork touches some blocks and ends.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define KNOB "/sys/kernel/mm/hugepages/hugepages-2048kB/"
enum { SLOTS = 4, BLOCKS = 3, LARGE = 2 << 20 };

static unsigned long long state;
static unsigned long long below(unsigned long long bound) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 16) % bound;
}

static long knob(const char *name, long set) {
    char path[256], text[32] = "";
    snprintf(path, sizeof path, KNOB "%s", name);
    FILE *file = fopen(path, set < 0 ? "r" : "w");
    if (!file) exit(2);
    if (set >= 0) fprintf(file, "%ld", set);
    else if (!fgets(text, sizeof text, file)) exit(2);
    fclose(file);
    return atol(text);
}

/* The model. A block: 0 nothing, 1 promised, 2 a page, 3 a page that a fork shares. */
static struct { long free, surplus, overcommit, total, promised; } pool;
static char *mapped[SLOTS];
static int block[SLOTS][BLOCKS];

static int takes(int promised) {
    if (promised) pool.promised--;
    if (promised || pool.free > pool.promised) return pool.free--, 1;
    if (pool.surplus < pool.overcommit) return pool.surplus++, pool.total++, 1;
    return 0;
}

static void gives(void) {
    if (pool.surplus > 0) pool.surplus--, pool.total--;
    else pool.free++;
}

static int touch(char *at, int store) {
    static int ends[2];
    if (!ends[1] && pipe(ends)) exit(2);
    if (!store) return write(ends[1], at, 1) == 1 ? (void)!read(ends[0], &(char){0}, 1), 0 : -errno;
    if (write(ends[1], "x", 1) != 1) exit(2);
    if (read(ends[0], at, 1) == 1) return 0;
    int why = errno;
    (void)!read(ends[0], &(char){0}, 1);
    return -why;
}

static void compare(const char *what, int got, int expected) {
    long is[] = {knob("nr_hugepages", -1), knob("free_hugepages", -1), knob("resv_hugepages", -1),
                 knob("surplus_hugepages", -1)};
    long was[] = {pool.total, pool.free, pool.promised, pool.surplus};
    if (got == expected && memcmp(is, was, sizeof is) == 0) return;
    printf("%s: %d, expected %d; nr, free, resv, surplus are %ld %ld %ld %ld, in the model %ld %ld %ld %ld\n", what, got,
           expected, is[0], is[1], is[2], is[3], was[0], was[1], was[2], was[3]);
    exit(1);
}

static void unmap(int slot) {
    long unpromised = 0;
    munmap(mapped[slot], BLOCKS * LARGE);
    mapped[slot] = NULL;
    for (int one = 0; one < BLOCKS; one++) {
        if (block[slot][one] >= 2) gives();
        unpromised += block[slot][one] == 1;
    }
    pool.promised -= unpromised;
    long leaving = unpromised < pool.surplus ? unpromised : pool.surplus;
    if (leaving > pool.free) leaving = pool.free;
    pool.surplus -= leaving, pool.total -= leaving, pool.free -= leaving;
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    state = strtoull(arguments[1], NULL, 10) * 2654435761u + 1;
    pool.total = pool.free = below(9);
    pool.overcommit = below(4);
    knob("nr_overcommit_hugepages", 0);
    knob("nr_hugepages", pool.total);
    knob("nr_overcommit_hugepages", pool.overcommit);
    compare("start", 0, 0);
    for (int call = atoi(arguments[2]); call > 0; call--) {
        int slot = below(SLOTS), one = below(BLOCKS), store = below(2), what = below(10);
        if (what < 3 && !mapped[slot]) {
            int promises = below(3) > 0;
            long missing = promises && BLOCKS > pool.free - pool.promised ? BLOCKS - (pool.free - pool.promised) : 0;
            int fits = pool.surplus + missing <= pool.overcommit;
            char *at = mmap(NULL, BLOCKS * LARGE, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (promises ? 0 : MAP_NORESERVE), -1, 0);
            int got = at == MAP_FAILED ? -errno : 0;
            if (fits) pool.surplus += missing, pool.total += missing, pool.free += missing;
            if (fits && promises) pool.promised += BLOCKS;
            for (int each = 0; each < BLOCKS; each++) block[slot][each] = promises;
            mapped[slot] = got ? NULL : at;
            compare("mmap", got, fits ? 0 : -ENOMEM);
        } else if (what < 7 && mapped[slot]) {
            int expected = 0;
            if (block[slot][one] < 2 && takes(block[slot][one])) block[slot][one] = 2;
            else if (block[slot][one] < 2) block[slot][one] = 0, expected = -EFAULT;
            compare("touch", touch(mapped[slot] + one * LARGE, store), expected);
        } else if (what == 7 && mapped[slot]) {
            unmap(slot);
            compare("munmap", 0, 0);
        } else if (what > 7) {
            /* The child copies the page of a block, or touches one that it has no promise for. */
            if (!mapped[slot]) continue;
            int is_page = block[slot][one] == 2, expected = 0, took = 0;
            if (store || !is_page) expected = (took = takes(0)) ? 0 : -EFAULT;
            int child = fork(), status = 0;
            if (child == 0) {
                compare("touch of a child", touch(mapped[slot] + one * LARGE, store), expected);
                _exit(0);
            }
            waitpid(child, &status, 0);
            if (status) return 1;
            if (took) gives();
            compare("end of a child", 0, 0);
        }
    }
    for (int slot = 0; slot < SLOTS; slot++)
        if (mapped[slot]) unmap(slot);
    compare("end", 0, 0);
    return 0;
}
