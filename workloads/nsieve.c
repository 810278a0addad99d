/*
 * The sieve of Eratosthenes over one array of flags.
 *
 * Stands in for nsieve of Aburto's collection (E99 table 1: 4.9 MB): the same algorithm over one
 * byte a number. Aburto's program runs it at several sizes and prints rates; this one runs the
 * largest size again and again.
 *
 * usage: nsieve [BYTES [ROUNDS]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long sieve(unsigned char *composite, long size) {
    long primes = 0;
    memset(composite, 0, (size_t)size);
    for (long i = 2; i < size; i++) {
        if (composite[i]) continue;
        primes++;
        for (long k = 2 * i; k < size; k += i) composite[k] = 1;
    }
    return primes;
}

int main(int argc, char **argv) {
    long size = argc > 1 ? atol(argv[1]) : 4900000;
    long rounds = argc > 2 ? atol(argv[2]) : 4;
    unsigned char *composite = malloc((size_t)size);
    if (!composite) return 1;
    long primes = 0;
    while (rounds-- > 0) primes = sieve(composite, size);
    printf("%ld primes below %ld\n", primes, size);
    free(composite);
    return 0;
}
