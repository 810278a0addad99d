/*
 * Scalar pentadiagonal systems along the three directions of a grid.
 *
 * Stands in for appsp of the NAS parallel benchmarks (G98 figures 5 and 6), class A: a grid of 64 x 64 x
 * 64 points (RNR-94-007) with solution, right side and forcing of five components each, seven auxiliary
 * fields, and the five diagonals of three systems: 37 arrays of 2.2 MB, 80.0 MB. Rows and planes are
 * one point longer than the grid, as in later versions of the benchmark, so that arrays do not share sets
 * of the caches. A step makes the right side from a point's neighbours, then solves along x, y and z,
 * each line from end to end and back. The physics is a plain relaxation.
 *
 * usage: appsp [SIDE [STEPS]]
 */
#include <stdio.h>
#include <stdlib.h>

enum { COMPONENTS = 5, AUXILIARY = 7, DIAGONALS = 15 };
enum { ARRAYS = 3 * COMPONENTS + AUXILIARY + DIAGONALS };

static double *array[ARRAYS];
static long n, row, plane, points;

/* Eliminates along lines whose points are `stride` apart, and puts in what was found, backwards. */
static void solve(long stride, long inner, long outer, int system) {
    double **right = array + COMPONENTS, **left = array + ARRAYS - DIAGONALS + 5 * system;
    for (long o = 1; o < n - 1; o++)
        for (long i = 1; i < n - 1; i++) {
            long first = o * outer + i * inner;
            for (long k = 2; k < n; k++) {
                long at = first + k * stride, before = at - stride, far = before - stride;
                double one = left[1][at] / left[2][before], two = left[0][at] / left[2][far];
                left[2][at] -= one * left[3][before] + two * left[4][far];
                for (int m = 0; m < COMPONENTS; m++)
                    right[m][at] -= one * right[m][before] + two * right[m][far];
            }
            for (long k = n - 3; k >= 0; k--) {
                long at = first + k * stride, next = at + stride, far = next + stride;
                for (int m = 0; m < COMPONENTS; m++)
                    right[m][at] = (right[m][at] - left[3][at] * right[m][next] -
                                    left[4][at] * right[m][far]) / left[2][at];
            }
        }
}

static void make_systems(void) {
    double **u = array, **speed = array + 3 * COMPONENTS, **left = array + ARRAYS - DIAGONALS;
    for (long at = 0; at < points; at++) {
        for (int a = 0; a < AUXILIARY; a++) speed[a][at] = 0.1 * u[a % COMPONENTS][at];
        for (int d = 0; d < DIAGONALS; d++)
            left[d][at] = d % 5 == 2 ? 6 + speed[d % AUXILIARY][at] : 0.5;
    }
}

int main(int argc, char **argv) {
    n = argc > 1 ? atol(argv[1]) : 64;
    long steps = argc > 2 ? atol(argv[2]) : 3;
    row = n + 1;
    plane = row * row;
    points = plane * n;
    double *all = malloc(ARRAYS * (size_t)points * sizeof *all);
    if (!all || n < 5) return 1;
    for (int a = 0; a < ARRAYS; a++) {
        array[a] = all + a * points;
        for (long at = 0; at < points; at++) array[a][at] = 1e-2 * (double)((at + a) % 23);
    }
    double **u = array, **right = array + COMPONENTS, **forcing = array + 2 * COMPONENTS;
    for (long step = 0; step < steps; step++) {
        make_systems();
        for (long z = 1; z < n - 1; z++)
            for (long y = 1; y < n - 1; y++)
                for (long x = 1; x < n - 1; x++) {
                    long at = z * plane + y * row + x;
                    for (int m = 0; m < COMPONENTS; m++)
                        right[m][at] = forcing[m][at] - 6 * u[m][at] + u[m][at - 1] + u[m][at + 1] +
                                       u[m][at - row] + u[m][at + row] + u[m][at - plane] +
                                       u[m][at + plane];
                }
        solve(1, row, plane, 0);
        solve(row, 1, plane, 1);
        solve(plane, 1, row, 2);
        for (int m = 0; m < COMPONENTS; m++)
            for (long at = 0; at < points; at++) u[m][at] += 0.01 * right[m][at];
    }
    printf("%g\n", u[0][points / 2]);
    free(all);
    return 0;
}
