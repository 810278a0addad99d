/*
 * Heapsort of an array of long integers.
 *
 * Stands in for heapsort of Aburto's collection (E99 table 1: 4.0 MB): the same algorithm over
 * pseudo-random keys.
 *
 * usage: heapsort [BYTES [ROUNDS]]
 */
#include <stdio.h>
#include <stdlib.h>

static unsigned long next(unsigned long *state) {
    *state = *state * 6364136223846793005UL + 1442695040888963407UL;
    return *state >> 16;
}

static void sift(long *keys, long root, long count) {
    long key = keys[root];
    for (long child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && keys[child] < keys[child + 1]) child++;
        if (key >= keys[child]) break;
        keys[root] = keys[child];
    }
    keys[root] = key;
}

static void heapsort(long *keys, long count) {
    for (long root = count / 2; root-- > 0;) sift(keys, root, count);
    while (count-- > 1) {
        long largest = keys[0];
        keys[0] = keys[count];
        keys[count] = largest;
        sift(keys, 0, count);
    }
}

int main(int argc, char **argv) {
    long count = (argc > 1 ? atol(argv[1]) : 4000000) / (long)sizeof(long);
    long rounds = argc > 2 ? atol(argv[2]) : 3;
    long *keys = malloc((size_t)count * sizeof *keys);
    if (!keys) return 1;
    unsigned long state = 1;
    while (rounds-- > 0) {
        for (long i = 0; i < count; i++) keys[i] = (long)next(&state);
        heapsort(keys, count);
    }
    for (long i = 1; i < count; i++)
        if (keys[i - 1] > keys[i]) return 2;
    printf("%ld keys, the least %ld\n", count, keys[0]);
    free(keys);
    return 0;
}
