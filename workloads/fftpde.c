/*
 * A partial differential equation solved by three-dimensional Fourier transforms.
 *
 * Stands in for fftpde of the NAS parallel benchmarks (G98 figures 5 to 7), whose sample size is 64 x 64
 * x 64 complex numbers (RNR-94-007): 4.3 MB per array, whose rows are one number longer, as later
 * versions of the benchmark have them so that lines do not share sets of the caches. There are the
 * spectrum, what has become of it at a time, and a table of exponents, 10.6 MB together in one block
 * like a Fortran program's COMMON. A transform takes line after line into a small array and back: along
 * x the numbers of a line are adjacent, along y 1 KB apart, along z 65 KB. G98 says neither size nor
 * layout.
 *
 * usage: fftpde [STEPS [ADDRESS]]     ADDRESS: where the block begins, in hexadecimal
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { SIDE = 64, ROW = SIDE + 1, POINTS = ROW * SIDE * SIDE };

struct number {
    double re, im;
};

struct common {
    struct number spectrum[POINTS];
    struct number field[POINTS];
    double exponents[POINTS];
};

static double cosines[SIDE], sines[SIDE];

static void transform(struct number *line) {
    for (int i = 1, j = 0; i < SIDE; i++) {
        int bit = SIDE >> 1;
        for (; j & bit; bit >>= 1) j ^= bit;
        j ^= bit;
        if (i < j) {
            struct number kept = line[i];
            line[i] = line[j];
            line[j] = kept;
        }
    }
    for (int half = 1; half < SIDE; half *= 2)
        for (int start = 0; start < SIDE; start += 2 * half)
            for (int k = 0; k < half; k++) {
                double c = cosines[k * (SIDE / 2 / half)], s = sines[k * (SIDE / 2 / half)];
                struct number *one = &line[start + k], *other = one + half;
                double re = c * other->re - s * other->im, im = c * other->im + s * other->re;
                other->re = one->re - re;
                other->im = one->im - im;
                one->re += re;
                one->im += im;
            }
}

/* Lines whose numbers are `stride` apart, and which begin `inner` and `outer` apart. */
static void transform_lines(struct number *array, int stride, int inner, int outer) {
    struct number line[SIDE];
    for (int o = 0; o < SIDE; o++)
        for (int i = 0; i < SIDE; i++) {
            struct number *first = array + o * outer + i * inner;
            for (int k = 0; k < SIDE; k++) line[k] = first[k * stride];
            transform(line);
            for (int k = 0; k < SIDE; k++) first[k * stride] = line[k];
        }
}

int main(int argc, char **argv) {
    int steps = argc > 1 ? atoi(argv[1]) : 6;
    void *place = (void *)strtoul(argc > 2 ? argv[2] : "10000000", NULL, 16);
    struct common *all = mmap(place, sizeof *all, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (all != place) return 1;
    for (int k = 0; k < SIDE; k++) {
        cosines[k] = cos(2 * M_PI * k / SIDE);
        sines[k] = sin(2 * M_PI * k / SIDE);
    }
    for (int i = 0; i < POINTS; i++) {
        all->spectrum[i] = (struct number){1e-3 * (i % 17), 1e-3 * (i % 19)};
        all->exponents[i] = 1 - 1e-6 * (i % 64 * (i % 64));
    }
    double sum = 0;
    for (int step = 0; step < steps; step++) {
        for (int i = 0; i < POINTS; i++) {
            all->spectrum[i].re *= all->exponents[i];
            all->spectrum[i].im *= all->exponents[i];
            all->field[i] = all->spectrum[i];
        }
        transform_lines(all->field, ROW * SIDE, 1, ROW);
        transform_lines(all->field, ROW, 1, ROW * SIDE);
        transform_lines(all->field, 1, ROW, ROW * SIDE);
        for (int i = 1; i <= 1024; i++) sum += all->field[i * 257 % POINTS].re / POINTS;
    }
    printf("%g\n", sum);
    return 0;
}
