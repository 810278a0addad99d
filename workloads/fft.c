/*
 * Fast Fourier transforms, radix 2 and in place, of complex numbers in two arrays.
 *
 * Stands in for tfftdp of Aburto's collection (E99 table 1: 4.0 MB; the table calls it tfldp),
 * which transforms arrays of double precision in place after Duhamel and Hollmann's split-radix
 * algorithm; the sizes, the bit reversal and the power-of-two strides are the same, the order of
 * the butterflies is not.
 *
 * usage: fft [POINTS [ROUNDS]]     POINTS: a power of two
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void swap(double *a, double *b) {
    double kept = *a;
    *a = *b;
    *b = kept;
}

static void reverse_bits(double *re, double *im, long points) {
    for (long i = 1, j = 0; i < points; i++) {
        long bit = points >> 1;
        for (; j & bit; bit >>= 1) j ^= bit;
        j ^= bit;
        if (i < j) {
            swap(&re[i], &re[j]);
            swap(&im[i], &im[j]);
        }
    }
}

static void transform(double *re, double *im, long points) {
    reverse_bits(re, im, points);
    for (long half = 1; half < points; half *= 2) {
        double step_re = cos(M_PI / (double)half), step_im = -sin(M_PI / (double)half);
        double w_re = 1, w_im = 0;
        for (long k = 0; k < half; k++) {
            for (long i = k; i < points; i += 2 * half) {
                long j = i + half;
                double t_re = w_re * re[j] - w_im * im[j], t_im = w_re * im[j] + w_im * re[j];
                re[j] = re[i] - t_re;
                im[j] = im[i] - t_im;
                re[i] += t_re;
                im[i] += t_im;
            }
            double next_re = w_re * step_re - w_im * step_im;
            w_im = w_re * step_im + w_im * step_re;
            w_re = next_re;
        }
    }
}

int main(int argc, char **argv) {
    long points = argc > 1 ? atol(argv[1]) : 1 << 18;
    long rounds = argc > 2 ? atol(argv[2]) : 4;
    double *re = malloc(2 * (size_t)points * sizeof *re), *im = re + points;
    if (!re || points & (points - 1)) return 1;
    for (long i = 0; i < points; i++) {
        re[i] = (double)(i % 13) - 6;
        im[i] = 0;
    }
    while (rounds-- > 0) {
        transform(re, im, points);
        for (long i = 0; i < points; i++) {
            re[i] /= (double)points;
            im[i] /= (double)points;
        }
    }
    printf("%g %g\n", re[1], im[1]);
    free(re);
    return 0;
}
