/*
 * Asks for pages of 2M by madvise where a program should have them: preloaded, it does natively what
 * a place file says.
 *
 *   PAGEWALK_PLACE=heap=64M,mmap=1 LD_PRELOAD=place.so program
 *
 * heap=BYTES: the heap of malloc has BYTES at once, holds all that malloc gives, and is advised. mmap=1: what the program itself maps without a file, of 2M and more, is aligned and advised.
 * plain=1: all is laid out in the same way, and nothing is advised. touched=1: the heap's pages are there
 * before the program begins, so that its page faults are no part of what is compared. told=FD: at its end
 * the program writes to this file how much processor time it took since then, in nanoseconds: the clock
 * of the process is exact, where a division of it into user and system time may be one by ticks.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { LARGE = 2 << 20, POPULATE = 23 };

static int maps, plain, told;
static long began;

static long processor_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

static void advise(uintptr_t start, uintptr_t end) {
    if (!plain && start < end) madvise((void *)start, end - start, MADV_HUGEPAGE);
}

static long asked(const char *text, const char *key) {
    const char *at = text ? strstr(text, key) : NULL;
    if (!at) return 0;
    char *end;
    long number = strtol(at + strlen(key), &end, 10);
    return *end == 'M' ? number << 20 : number;
}

__attribute__((constructor)) static void place(void) {
    const char *text = getenv("PAGEWALK_PLACE");
    long heap = asked(text, "heap=");
    maps = (int)asked(text, "mmap=");
    plain = (int)asked(text, "plain=");
    told = (int)asked(text, "told=");
    if (!heap) return;
    /* Whatever its size, nothing that malloc gives lies anywhere else. */
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, (int)heap);
    /* The heap's end is where a large page begins, so that it has no small ones but at the end. */
    uintptr_t now = (uintptr_t)sbrk(0);
    sbrk((intptr_t)(-now & (LARGE - 1)));
    void *volatile first = malloc(128 << 10);
    free(first);
    uintptr_t start = (now + LARGE - 1) & -(uintptr_t)LARGE, end = (uintptr_t)sbrk(0);
    advise(start, end);
    if (asked(text, "touched=")) madvise((void *)start, end - start, POPULATE);
    began = processor_ns();
}

__attribute__((destructor)) static void tell(void) {
    if (told) dprintf(told, "%ld\n", processor_ns() - began);
}

void *mmap(void *addr, size_t bytes, int rights, int flags, int file, off_t offset) {
    static void *(*next)(void *, size_t, int, int, int, off_t);
    if (!next) next = (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
    if (!maps || addr || file >= 0 || bytes < LARGE || !(flags & MAP_ANONYMOUS))
        return next(addr, bytes, rights, flags, file, offset);
    char *wide = next(NULL, bytes + LARGE, rights, flags, file, offset);
    if (wide == MAP_FAILED) return wide;
    char *start = (char *)(((uintptr_t)wide + LARGE - 1) & -(uintptr_t)LARGE);
    if (start > wide) munmap(wide, (size_t)(start - wide));
    munmap(start + bytes, (size_t)(wide + LARGE - start));
    advise((uintptr_t)start, (uintptr_t)start + bytes);
    return start;
}

void *mmap64(void *addr, size_t bytes, int rights, int flags, int file, off_t offset) {
    return mmap(addr, bytes, rights, flags, file, offset);
}
