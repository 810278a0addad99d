/*
 * A file that is used three times, as a program's text is by three runs of the program.
 *
 * For G98 section 6.8: the first use leaves the file's pages in memory in the order in which they were
 * touched, the second asks for large pages, the third has its pages upgraded. Each use maps the file at
 * another address, touches all of it four times at random, and unmaps it.
 *
 * usage: upgrade FILE
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { ADVICE_HUGEPAGE = 14, ADVICE_COLLAPSE = 25, PAGE = 4096, ROUNDS = 4 };

int main(int argc, char **argv) {
    struct stat about;
    int file = argc > 1 ? open(argv[1], O_RDONLY) : -1;
    if (file < 0 || fstat(file, &about)) return 1;
    unsigned long pages = (unsigned long)about.st_size / PAGE, sum = 0, next = 1;
    for (unsigned long use = 1; use <= 3; use++) {
        volatile const unsigned char *text =
            mmap((void *)(use << 28), pages * PAGE, PROT_READ,
                 MAP_PRIVATE | MAP_FIXED_NOREPLACE, file, 0);
        if (text == MAP_FAILED) return 1;
        if (use == 2) madvise((void *)text, pages * PAGE, ADVICE_HUGEPAGE);
        if (use == 3) madvise((void *)text, pages * PAGE, ADVICE_COLLAPSE);
        for (unsigned long touch = 0; touch < ROUNDS * pages; touch++) {
            next = next * 6364136223846793005 + 1442695040888963407;
            sum += text[(next >> 33) % pages * PAGE + 64 * (next % 64)];
        }
        munmap((void *)text, pages * PAGE);
    }
    printf("%lu\n", sum);
    return 0;
}
