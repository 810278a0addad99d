/*
 * Sweeps over many regions in turn.
 *
 * Stands in for ASCI Sweep3d (B10 figure 4.12), which works on one of a set of memory regions,
 * moves to the next, and after the last one wraps around to the first. Here a turn is a page of
 * 512 cells, swept in as many directions as there are angles; the next turn is the same page of
 * the next region, and after the last region it is the next page of the first. Each region lies
 * in 2 MB of its own, so that turn after turn another entry of the page table's second-lowest
 * level is needed, and the same one again after a round.
 *
 * usage: regions [REGIONS [ROUNDS [ANGLES]]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { CELLS = 512, PAGES = 512 }; /* of eight bytes: a page; pages of a region */

static double sweep(double *cell, long angle, double flux) {
    long step = angle % 2 ? -1 : 1;
    for (long i = 0, at = step > 0 ? 0 : CELLS - 1; i < CELLS; i++, at += step) {
        flux = 0.5 * flux + cell[at];
        cell[at] = flux + 1;
    }
    return flux;
}

int main(int argc, char **argv) {
    long regions = argc > 1 ? atol(argv[1]) : 16;
    long rounds = argc > 2 ? atol(argv[2]) : 4;
    long angles = argc > 3 ? atol(argv[3]) : 3;
    size_t bytes = (size_t)regions * PAGES * CELLS * sizeof(double);
    double *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return 1;
    double flux = 0;
    for (long round = 0; round < rounds; round++)
        for (long page = 0; page < PAGES; page++)
            for (long region = 0; region < regions; region++)
                for (long angle = 0; angle < angles; angle++)
                    flux = sweep(base + (region * PAGES + page) * CELLS, angle, flux);
    printf("%g\n", flux);
    return 0;
}
