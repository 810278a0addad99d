/*
 * Explicit steps of a partial differential equation on a grid, over many arrays at once.
 *
 * Stands in for swim and apsi of SPEC95 (E99 table 1: 14.2 MB and 2.2 MB), for wave5 (40.4 MB) as
 * far as its field solver goes, and for cactusADM of SPEC CPU2006 (B10 figure 4.13) as far as its
 * page accesses go: every point of the grid is made from neighbours in all arrays, so that as
 * many streams run through memory as there are arrays, times the rows or planes that a point
 * looks at. The physics is a plain relaxation.
 *
 * usage: stencil [ARRAYS [X [Y [Z [STEPS]]]]]     Z = 1: two dimensions
 */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    long size[5] = {14, 356, 356, 1, 3};
    for (int i = 0; i < 5 && i + 1 < argc; i++) size[i] = atol(argv[i + 1]);
    long arrays = size[0], nx = size[1], ny = size[2], nz = size[3], steps = size[4];
    double **field = malloc((size_t)arrays * sizeof *field);
    if (!field || arrays < 2) return 1;
    for (long a = 0; a < arrays; a++) {
        field[a] = malloc((size_t)(nx * ny * nz) * sizeof **field);
        if (!field[a]) return 1;
        for (long i = 0; i < nx * ny * nz; i++) field[a][i] = (double)((i + a) % 17);
    }
    long row = nx, plane = nx * ny, first_z = nz > 1, last_z = nz > 1 ? nz - 1 : 1;
    for (long step = 0; step < steps; step++)
        for (long z = first_z; z < last_z; z++)
            for (long y = 1; y < ny - 1; y++)
                for (long x = 1; x < nx - 1; x++) {
                    long at = z * plane + y * row + x, deep = nz > 1 ? plane : 0;
                    for (long a = 0; a + 1 < arrays; a += 2) {
                        const double *old = field[a];
                        double sum = old[at - 1] + old[at + 1] + old[at - row] + old[at + row];
                        if (deep) sum += old[at - deep] + old[at + deep];
                        field[a + 1][at] += 0.1 * (sum - 4 * old[at]);
                    }
                }
    printf("%g\n", field[1][(nz / 2) * plane + (ny / 2) * row + nx / 2]);
    return 0;
}
