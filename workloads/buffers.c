/*
 * Buffers that are mapped one by one and read at random: many regions that are alike.
 *
 * How long `pagewalk advise` takes must not depend on their number (tests/kernel/twelve.py).
 *
 * usage: buffers [BUFFERS [MEGABYTES [READS]]]
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(int count, char **arguments) {
    uint64_t buffers = count > 1 ? strtoull(arguments[1], NULL, 10) : 128;
    uint64_t bytes = (count > 2 ? strtoull(arguments[2], NULL, 10) : 2) << 20;
    uint64_t reads = count > 3 ? strtoull(arguments[3], NULL, 10) : 1000000;
    unsigned char **buffer = malloc(buffers * sizeof *buffer);
    if (buffer == NULL) return 1;
    for (uint64_t i = 0; i < buffers; i++) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS;
        buffer[i] = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (buffer[i] == MAP_FAILED) return 1;
        for (uint64_t at = 0; at < bytes; at += 4096) buffer[i][at] = 1;
    }
    uint64_t random = 1, sum = 0;
    for (uint64_t i = 0; i < reads; i++) {
        random = random * 6364136223846793005 + 1442695040888963407;
        sum += buffer[(random >> 33) % buffers][(random >> 20) % bytes];
    }
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
