/*
 * Turbulence in a periodic cube by a pseudospectral method: Fourier transforms in three directions.
 *
 * Stands in for turb3d of SPEC95 (G98 figures 5 and 6): a cube of 64 points to a side, velocity and
 * vorticity and what is made of them in eleven arrays, each with two doubles more per row than points,
 * 23.8 MB together. A transform takes line after line into a small array and back: along x the numbers
 * of a line are adjacent, along y 528 bytes apart, along z 33,792. The physics is a product of velocity
 * and vorticity, without a viscous term.
 *
 * usage: turb3d [SIDE [STEPS]]     SIDE: a power of two
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ARRAYS = 11, VELOCITY = 0, VORTICITY = 3, PRODUCT = 6 };

struct number {
    double re, im;
};

static long side, row, plane;
static double *cosines, *sines;
static struct number *line;

/* Transforms the first `length` numbers of the small array, without putting them in order. */
static void transform(long length, int sign) {
    for (long half = 1; half < length; half *= 2)
        for (long start = 0; start < length; start += 2 * half)
            for (long k = 0; k < half; k++) {
                double c = cosines[k * (side / 2 / half)], s = sign * sines[k * (side / 2 / half)];
                struct number *one = line + start + k, *other = one + half;
                double re = c * other->re - s * other->im, im = c * other->im + s * other->re;
                other->re = one->re - re;
                other->im = one->im - im;
                one->re += re;
                one->im += im;
            }
}

/* A line of `length` numbers, `stride` of them from one to the next. */
static void transform_line(struct number *first, long length, long stride, int sign) {
    for (long k = 0; k < length; k++) line[k] = first[k * stride];
    transform(length, sign);
    double scale = sign < 0 ? 1 / (double)length : 1;
    for (long k = 0; k < length; k++)
        first[k * stride] = (struct number){scale * line[k].re, scale * line[k].im};
}

static void transform_cube(double *array, int sign) {
    struct number *numbers = (struct number *)array;
    long columns = row / 2, layer = plane / 2;
    for (long z = 0; z < side; z++) {
        for (long y = 0; y < side; y++)
            transform_line(numbers + z * layer + y * columns, side / 2, 1, sign);
        for (long x = 0; x < columns; x++)
            transform_line(numbers + z * layer + x, side, columns, sign);
    }
    for (long y = 0; y < side; y++)
        for (long x = 0; x < columns; x++)
            transform_line(numbers + y * columns + x, side, layer, sign);
}

int main(int argc, char **argv) {
    side = argc > 1 ? atol(argv[1]) : 64;
    long steps = argc > 2 ? atol(argv[2]) : 4;
    row = side + 2;
    plane = row * side;
    long points = plane * side;
    double *arrays = calloc(ARRAYS * (size_t)points, sizeof *arrays);
    cosines = calloc((size_t)side, sizeof *cosines);
    sines = calloc((size_t)side, sizeof *sines);
    line = calloc((size_t)side, sizeof *line);
    if (!arrays || !cosines || !sines || !line || side < 4 || side & (side - 1)) return 1;
    for (long k = 0; k < side; k++) {
        cosines[k] = cos(2 * M_PI * (double)k / (double)side);
        sines[k] = sin(2 * M_PI * (double)k / (double)side);
    }
    for (long i = 0; i < ARRAYS * points; i++) arrays[i] = 1e-3 * (double)(i % 13);
    double scale = 1 / (double)(side * side * side);
    for (long step = 0; step < steps; step++) {
        for (long a = VELOCITY; a < PRODUCT; a++) transform_cube(arrays + a * points, 1);
        for (long a = 0; a < 3; a++) {
            const double *u = arrays + (VELOCITY + (a + 1) % 3) * points;
            const double *v = arrays + (VELOCITY + (a + 2) % 3) * points;
            const double *p = arrays + (VORTICITY + (a + 1) % 3) * points;
            const double *q = arrays + (VORTICITY + (a + 2) % 3) * points;
            double *to = arrays + (PRODUCT + a) * points;
            for (long i = 0; i < points; i++) to[i] = u[i] * q[i] - v[i] * p[i];
        }
        for (long a = PRODUCT; a < PRODUCT + 3; a++) transform_cube(arrays + a * points, -1);
        for (long a = 0; a < 3; a++)
            for (long i = 0; i < points; i++) {
                double *u = arrays + (VELOCITY + a) * points;
                u[i] = scale * (u[i] + arrays[(PRODUCT + a) * points + i]);
                arrays[(9 + a % 2) * points + i] = u[i];
            }
    }
    printf("%g\n", arrays[points / 2]);
    free(line);
    free(sines);
    free(cosines);
    free(arrays);
    return 0;
}
