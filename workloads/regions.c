/*
 * Sweeps over many regions in turn.
 *
 * Stands in for ASCI Sweep3d (B10 figure 4.12): it works on one of a set of regions, moves to the
 * next, and after the last one wraps around to the first. Within a region it goes along pencils
 * through an array of three dimensions, each in the direction whose step is a plane, so that a
 * pencil touches many pages and the next pencil the same ones again. Each region lies in 2 MB of
 * its own, and so needs one entry of the third-lowest level of a page table and one of its own of
 * the level below.
 *
 * usage: regions [REGIONS [ROUNDS [SPACING_BYTES]]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { N = 64 }; /* an array of N x N x N doubles: 2 MB */

int main(int argc, char **argv) {
    long regions = argc > 1 ? atol(argv[1]) : 16;
    long rounds = argc > 2 ? atol(argv[2]) : 4;
    long spacing = argc > 3 ? atol(argv[3]) : 2L << 20;
    char *base = mmap(NULL, (size_t)(regions * spacing), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return 1;
    double flux = 0;
    for (long round = 0; round < rounds; round++)
        for (long region = 0; region < regions; region++) {
            double *cell = (double *)(base + region * spacing);
            for (long y = 0; y < N; y += 8)
                for (long x = 0; x < N; x += 8)
                    for (long z = 0; z < N; z++) {
                        double *at = &cell[(z * N + y) * N + x];
                        flux = 0.5 * flux + *at;
                        *at = flux + 1;
                    }
        }
    printf("%g\n", flux);
    return 0;
}
