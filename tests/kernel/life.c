/* Programs whose memory moves, is locked, or is shared by forks: what `compare.py` runs beside the real ones.
 *
 *   life vectors | locks | forks
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };
static const size_t MIB = 1 << 20;

static char *memory(size_t bytes) {
    char *found = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) exit(1);
    return found;
}

static void store(char *from, size_t bytes, size_t step) {
    for (size_t at = 0; at < bytes; at += step) ((volatile char *)from)[at] = 1;
}

/* Four vectors grow in turn, so that most of them have to move. */
static void vectors(void) {
    size_t bytes[4];
    char *vector[4];
    for (int which = 0; which < 4; which++) {
        bytes[which] = (which + 1) * 5 * 16 * PAGE;
        vector[which] = memory(bytes[which]);
    }
    for (int round = 0; round < 6; round++) {
        for (int which = 0; which < 4; which++) {
            store(vector[which], bytes[which], PAGE);
            size_t more = bytes[which] * 8 / 5 / PAGE * PAGE;
            vector[which] = mremap(vector[which], bytes[which], more, MREMAP_MAYMOVE);
            if (vector[which] == MAP_FAILED) exit(1);
            bytes[which] = more;
        }
    }
    for (int which = 0; which < 4; which++) store(vector[which], bytes[which], 3 * PAGE);
}

/* Parts of blocks are locked before they are touched, and after; some are unlocked, and some may not be stored to. */
static void locks(void) {
    char *all = memory(24 * MIB);
    store(all, 4 * MIB, 64 * PAGE);
    mlock(all + MIB, 2 * MIB);
    mlock(all + 8 * MIB, 4 * MIB + PAGE);
    munlock(all + 10 * MIB, MIB);
    store(all + 8 * MIB, 8 * MIB, 64 * PAGE);
    mprotect(all + 16 * MIB, 4 * MIB, PROT_READ);
    mlock(all + 16 * MIB, 2 * MIB);
    munlock(all, 24 * MIB);
    madvise(all, 3 * MIB, MADV_DONTNEED);
    store(all, 3 * MIB, 64 * PAGE);
}

/* A child and its parent store to what they share, one after the other; then the child ends, and another begins. */
static void forks(void) {
    char *all = memory(24 * MIB);
    store(all, 16 * MIB, PAGE);
    for (int round = 0; round < 2; round++) {
        int to[2], from[2];
        char word = 0;
        if (pipe(to) != 0 || pipe(from) != 0) exit(1);
        pid_t child = fork();
        if (child == 0) {
            store(all, 4 * MIB, 100 * PAGE);
            madvise(all + 20 * MIB, PAGE, MADV_NORMAL);
            if (write(from[1], &word, 1) != 1 || read(to[0], &word, 1) != 1) _exit(1);
            _exit(0);
        }
        if (read(from[0], &word, 1) != 1) exit(1);
        store(all + 2 * MIB, 4 * MIB, 100 * PAGE);
        madvise(all + 20 * MIB, PAGE, MADV_NORMAL);
        if (write(to[1], &word, 1) != 1) exit(1);
        waitpid(child, NULL, 0);
        store(all + 6 * MIB, 4 * MIB, 100 * PAGE);
        madvise(all + 8 * MIB, 3 * MIB, MADV_DONTNEED);
        store(all + 8 * MIB, 14 * MIB, 300 * PAGE);
    }
    /* Most is in memory at the end. */
    store(all + 16 * MIB, 8 * MIB, PAGE);
}

int main(int count, char **arguments) {
    const char *what = count == 2 ? arguments[1] : "";
    if (!strcmp(what, "vectors")) vectors();
    else if (!strcmp(what, "locks")) locks();
    else if (!strcmp(what, "forks")) forks();
    else { fprintf(stderr, "life vectors | locks | forks\n"); return 2; }
    return 0;
}
