/*
 * A mesh around given boundaries, made smooth step by step.
 *
 * Stands in for tomcatv of SPEC95 (G98 figures 5 and 6): seven arrays of 513 x 513 doubles, 14.7 MB.
 * A step goes through them row by row four times: residuals out of the nine neighbours of a point, a
 * tridiagonal system per column, all columns of a row at once, forward and back, and the correction.
 *
 * usage: tomcatv [SIDE [STEPS]]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    long n = argc > 1 ? atol(argv[1]) : 513, steps = argc > 2 ? atol(argv[2]) : 10;
    double *all = malloc(7 * (size_t)(n * n) * sizeof *all);
    if (!all || n < 4) return 1;
    double *x = all, *y = x + n * n, *rx = y + n * n, *ry = rx + n * n;
    double *aa = ry + n * n, *dd = aa + n * n, *d = dd + n * n;
    for (long j = 0; j < n; j++)
        for (long i = 0; i < n; i++) {
            long at = j * n + i;
            x[at] = (double)i / (double)n + 0.1 * sin((double)(i * j % 31));
            y[at] = (double)j / (double)n + 0.1 * cos((double)(i * j % 29));
            rx[at] = ry[at] = aa[at] = dd[at] = d[at] = 0;
        }
    for (long step = 0; step < steps; step++) {
        for (long j = 1; j < n - 1; j++)
            for (long i = 1; i < n - 1; i++) {
                long at = j * n + i;
                double xx = x[at + 1] - x[at - 1], yx = y[at + 1] - y[at - 1];
                double xy = x[at + n] - x[at - n], yy = y[at + n] - y[at - n];
                double a = 0.25 * (xy * xy + yy * yy), b = 0.25 * (xx * xx + yx * yx);
                double c = 0.125 * (xx * xy + yx * yy);
                aa[at] = -b;
                dd[at] = b + b + a * 0.98;
                double pxx = x[at + 1] - 2 * x[at] + x[at - 1], qxx = y[at + 1] - 2 * y[at] + y[at - 1];
                double pyy = x[at + n] - 2 * x[at] + x[at - n], qyy = y[at + n] - 2 * y[at] + y[at - n];
                double pxy = x[at + n + 1] - x[at - n + 1] - x[at + n - 1] + x[at - n - 1];
                double qxy = y[at + n + 1] - y[at - n + 1] - y[at + n - 1] + y[at - n - 1];
                rx[at] = a * pxx + b * pyy - c * pxy;
                ry[at] = a * qxx + b * qyy - c * qxy;
            }
        for (long i = 1; i < n - 1; i++) d[n + i] = 1 / dd[n + i];
        for (long j = 2; j < n - 1; j++)
            for (long i = 1; i < n - 1; i++) {
                long at = j * n + i;
                double r = aa[at] * d[at - n];
                d[at] = 1 / (dd[at] - aa[at - n] * r);
                rx[at] -= rx[at - n] * r;
                ry[at] -= ry[at - n] * r;
            }
        for (long i = 1; i < n - 1; i++) {
            rx[(n - 2) * n + i] *= d[(n - 2) * n + i];
            ry[(n - 2) * n + i] *= d[(n - 2) * n + i];
        }
        for (long j = n - 3; j > 0; j--)
            for (long i = 1; i < n - 1; i++) {
                long at = j * n + i;
                rx[at] = (rx[at] - aa[at] * rx[at + n]) * d[at];
                ry[at] = (ry[at] - aa[at] * ry[at + n]) * d[at];
            }
        for (long j = 1; j < n - 1; j++)
            for (long i = 1; i < n - 1; i++) {
                long at = j * n + i;
                x[at] += rx[at];
                y[at] += ry[at];
            }
    }
    printf("%g %g\n", x[n * n / 2], y[n * n / 2]);
    free(all);
    return 0;
}
