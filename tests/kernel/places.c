/* Maps, unmaps and moves memory at random, without random addresses, and prints each call with its result.
 *
 *   places SEED CALLS FILE > CALLS
 *
 * FILE is mapped by some calls. Lines:
 *   V start bytes rights path       a mapping before the first call; path is - for none
 *   M bytes prot flags offset result, U addr bytes, R addr old_bytes new_bytes flags result, B result
 *   A start bytes                   a mapping of memory of its own at the end
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <unistd.h>

enum { MAPPED_MAX = 24, PAGE = 4096, LARGE = 2 << 20 };

static unsigned long long state;

static unsigned long long below(unsigned long long bound) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 16) % bound;
}

static char maps[1 << 16];

static void read_maps(void) {
    int fd = open("/proc/self/maps", O_RDONLY);
    long length = 0, got;
    while (fd >= 0 && (got = read(fd, maps + length, sizeof maps - 1 - length)) > 0) length += got;
    maps[length] = 0;
    close(fd);
}

static void show_maps(const char *only, unsigned long long from, unsigned long long until) {
    read_maps();
    for (char *line = strtok(maps, "\n"); line; line = strtok(NULL, "\n")) {
        unsigned long long start, end;
        char rights[8], path[512] = "-";
        sscanf(line, "%llx-%llx %7s %*s %*s %*s %511[^\n]", &start, &end, rights, path);
        int bits = (rights[0] == 'r') | (rights[1] == 'w') << 1 | (rights[2] == 'x') << 2;
        if (only && start >= from && end <= until && strcmp(path, "-") == 0)
            printf("A %llu %llu\n", start, end - start);
        if (!only && start < 1ull << 47) printf("V %llu %llu %d %s\n", start, end - start, bits, path);
    }
}

int main(int count, char **arguments) {
    static char buffer[1 << 16];
    if (count < 4) return 2;
    if (!(personality(0xffffffff) & ADDR_NO_RANDOMIZE)) {
        personality(ADDR_NO_RANDOMIZE);
        execv("/proc/self/exe", arguments);
        return 1;
    }
    /* What it prints takes no memory of the heap. */
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    state = strtoull(arguments[1], NULL, 10) * 2654435761u + 1;
    int calls = atoi(arguments[2]), file = open(arguments[3], O_RDONLY);
    char *mapped[MAPPED_MAX];
    size_t bytes[MAPPED_MAX];
    int number = 0;
    show_maps(NULL, 0, 0);
    printf("B %llu\n", (unsigned long long)sbrk(0));
    for (int call = 0; call < calls; call++) {
        unsigned long long what = below(20);
        size_t pages[] = {below(40) + 1, LARGE / PAGE * (below(4) + 1), LARGE / PAGE + below(900), below(3000) + 1};
        size_t length = pages[below(4)] * PAGE;
        if (what < 10 && number < MAPPED_MAX) {
            int flags = MAP_ANONYMOUS | (below(8) == 0 ? MAP_SHARED : MAP_PRIVATE), fd = -1;
            size_t offset = 0;
            if (below(5) == 0) flags = MAP_PRIVATE, fd = file, offset = below(1200) * PAGE;
            char *at = mmap(NULL, length, PROT_READ | PROT_WRITE, flags, fd, offset);
            if (at == MAP_FAILED) continue;
            printf("M %zu 3 %d %zu %llu\n", length, flags, offset, (unsigned long long)at);
            mapped[number] = at;
            bytes[number++] = length;
        } else if (what < 15 && number) {
            int one = below(number);
            size_t part = below(3) == 0 ? (below(bytes[one] / PAGE) + 1) * PAGE : bytes[one];
            munmap(mapped[one], part);
            printf("U %llu %zu\n", (unsigned long long)mapped[one], part);
            mapped[one] += part;
            bytes[one] -= part;
            if (bytes[one] == 0) mapped[one] = mapped[--number], bytes[one] = bytes[number];
        } else if (what < 18 && number) {
            int one = below(number);
            char *at = mremap(mapped[one], bytes[one], length, MREMAP_MAYMOVE);
            if (at == MAP_FAILED) continue;
            printf("R %llu %zu %zu 1 %llu\n", (unsigned long long)mapped[one], bytes[one], length,
                   (unsigned long long)at);
            mapped[one] = at;
            bytes[one] = length;
        } else if (what >= 18) {
            sbrk(below(300) * PAGE);
            printf("B %llu\n", (unsigned long long)sbrk(0));
        }
    }
    show_maps("memory", 0, 1ull << 47);
    return 0;
}
