/*
 * Matrix multiplication, the textbook's three loops.
 *
 * Stands in for mm of Aburto's collection with its "normal" algorithm (E99 table 1: 7.7 MB, three
 * matrices of about 566 x 566 doubles). The inner loop goes down a column of the second matrix,
 * so that a step is a row, and nearly every one another page.
 *
 * usage: mm [N [ROWS]]     ROWS: how many rows of the product are made
 */
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    long n = argc > 1 ? atol(argv[1]) : 566;
    long rows = argc > 2 ? atol(argv[2]) : n;
    double *a = malloc(3 * (size_t)(n * n) * sizeof *a);
    if (!a || rows > n) return 1;
    double *b = a + n * n, *c = b + n * n, trace = 0;
    for (long i = 0; i < n * n; i++) {
        a[i] = (double)(i % 7);
        b[i] = (double)(i % 11);
        c[i] = 0;
    }
    for (long i = 0; i < rows; i++) {
        for (long j = 0; j < n; j++) {
            double sum = 0;
            for (long k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
        trace += c[i * n + i];
    }
    printf("trace %.0f\n", trace);
    free(a);
    return 0;
}
