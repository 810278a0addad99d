/* Memory of every kind that large pages are refused to, one kind by each word of the command line.
 *
 *   mapped WORD...    maps, touches, prints the address of each, and waits for the end of its input
 *
 * Each word is `kind` or `kind:MIB`.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ul << 20)
#define BLOCK (2 * MIB)
#define RW (PROT_READ | PROT_WRITE)
#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)

static char bss[8 * MIB];

static void fail(const char *what) {
    perror(what);
    exit(99);
}

/* `bytes` that begin `beyond` bytes after a multiple of a block. */
static char *at(size_t bytes, size_t beyond, int flags, int file) {
    char *room = mmap(0, bytes + 2 * BLOCK, PROT_NONE, ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) fail("mmap");
    char *first = (char *)(((uintptr_t)room + BLOCK - 1) / BLOCK * BLOCK) + beyond;
    munmap(room, bytes + 2 * BLOCK);
    char *found = mmap(first, bytes, RW, flags | MAP_FIXED_NOREPLACE, file, 0);
    if (found == MAP_FAILED) fail("mmap at an address");
    return found;
}

static void touch(char *from, size_t bytes, size_t step) {
    for (size_t byte = 0; byte < bytes; byte += step) ((volatile char *)from)[byte] = 1;
}

static void advise(char *from, size_t bytes, int advice) {
    if (madvise(from, bytes, advice) != 0) fail("madvise");
}

static int file(size_t bytes) {
    char name[] = "mapped-XXXXXX";
    int file = mkstemp(name);
    if (file < 0 || ftruncate(file, (off_t)bytes) != 0) fail("a file");
    unlink(name);
    return file;
}

static pthread_barrier_t deep;

static void *thread(void *bytes) {
    char below[(size_t)bytes];
    touch(below, (size_t)bytes, 4096);
    printf("thread %p\n", (void *)below);
    fflush(stdout);
    pthread_barrier_wait(&deep);
    pause();
    return 0;
}

/* How much of its memory is in large pages. */
static size_t large_bytes(void) {
    char text[4096];
    int file = open("/proc/self/smaps_rollup", O_RDONLY);
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    close(file);
    if (length < 0) return 0;
    text[length] = 0;
    const char *found = strstr(text, "AnonHugePages:");
    return found ? strtoul(found + strlen("AnonHugePages:"), 0, 10) << 10 : 0;
}

static void one(const char *kind, size_t bytes) {
    char *found = 0;
    if (!strcmp(kind, "advised") || !strcmp(kind, "every")) {
        found = at(bytes, 0, ANONYMOUS, -1);
        advise(found, bytes, MADV_HUGEPAGE);
        touch(found, bytes, kind[0] == 'a' ? 4096 : BLOCK);
    } else if (!strcmp(kind, "plain")) {
        found = at(bytes, 0, ANONYMOUS, -1);
        touch(found, bytes, 4096);
    } else if (!strcmp(kind, "unaligned")) {
        found = at(bytes, MIB, ANONYMOUS, -1);
        advise(found, bytes, MADV_HUGEPAGE);
        touch(found, bytes, 4096);
    } else if (!strcmp(kind, "late")) {
        found = at(bytes, 0, ANONYMOUS, -1);
        touch(found, bytes, 8192);
        advise(found, bytes, MADV_HUGEPAGE);
    } else if (!strcmp(kind, "sparse")) {
        found = at(bytes, 0, ANONYMOUS, -1);
        advise(found, bytes, MADV_NOHUGEPAGE);
        touch(found, bytes, 8192);
    } else if (!strcmp(kind, "against")) {
        found = at(bytes, 0, ANONYMOUS, -1);
        advise(found, bytes, MADV_NOHUGEPAGE);
        touch(found, bytes, 4096);
    } else if (!strcmp(kind, "far")) {
        found = at(bytes, 0, ANONYMOUS | MAP_NORESERVE, -1);
        touch(found, bytes, 64 * MIB);
    } else if (!strcmp(kind, "between")) {
        /* Where a recorder may have memory of its own, and leaves free what the program asks for. */
        found = mmap((void *)0x102ee1e00000, bytes, PROT_READ | PROT_WRITE, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (found == MAP_FAILED) fail("mmap");
        advise(found, bytes, MADV_HUGEPAGE);
        touch(found, bytes, 4096);
    } else if (!strcmp(kind, "shared")) {
        found = at(bytes, 0, MAP_SHARED | MAP_ANONYMOUS, -1);
        advise(found, bytes, MADV_HUGEPAGE);
        touch(found, bytes, 4096);
    } else if (!strcmp(kind, "file")) {
        found = at(bytes, 0, MAP_PRIVATE, file(bytes));
        advise(found, bytes, MADV_HUGEPAGE);
        touch(found, bytes, 4096);
    } else if (!strcmp(kind, "read")) {
        found = mmap(0, bytes, PROT_READ, MAP_PRIVATE, file(bytes), 0);
        if (found == MAP_FAILED) fail("mmap");
        madvise(found, bytes, MADV_HUGEPAGE);
        for (size_t byte = 0; byte < bytes; byte += 4096) (void)((volatile char *)found)[byte];
    } else if (!strcmp(kind, "bss")) {
        found = bss;
        touch(bss, sizeof bss, 4096);
    } else if (!strcmp(kind, "brk")) {
        found = sbrk(0);
        for (size_t grown = 0; grown < bytes; grown += 132 << 10) {
            char *more = sbrk(132 << 10);
            if (more == (void *)-1) fail("sbrk");
            for (int byte = 0; byte < 132 << 10; byte += 4096)
                if (more[byte] != 0) fail("a new break has something in it");
            touch(more, 132 << 10, 4096);
            if (sbrk(0) != more + (132 << 10)) fail("the break is elsewhere");
        }
    } else if (!strcmp(kind, "shrink")) {
        char *start = sbrk(5 * MIB);
        touch(start, 5 * MIB, 4096);
        if (brk(start + MIB) != 0 || sbrk(0) != start + MIB) fail("the break did not go back");
        char *more = sbrk(4 * MIB);
        if (more != start + MIB) fail("the break is elsewhere");
        /* Given back within its block and asked for again, in steps that end in the midst of pages. */
        touch(more, 4 * MIB, 1);
        if (brk(more + 100) != 0 || brk(more + MIB + 4000) != 0 || brk(more + 4 * MIB) != 0)
            fail("brk");
        /* The kernel keeps what is left of a page, and clears all pages behind it. */
        size_t kept = 4096 - (uintptr_t)(more + 100) % 4096 + 100;
        for (size_t byte = 0; byte < kept; byte++)
            if (more[byte] != 1) fail("what was kept is gone");
        memset(more, 0, kept);
        for (size_t byte = 0; byte < 4 * MIB; byte++)
            if (more[byte] != 0) fail("what was given back is still there");
        found = start;
    } else if (!strcmp(kind, "moved")) {
        found = mmap(0, bytes / 2, RW, ANONYMOUS, -1, 0);
        touch(found, bytes / 2, 4096);
        /* Something right behind it, so that it must move. */
        mmap(found + bytes / 2, 4096, PROT_NONE, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        found = mremap(found, bytes / 2, bytes, MREMAP_MAYMOVE);
        if (found == MAP_FAILED) fail("mremap");
        touch(found, bytes, 4096);
    } else if (!strcmp(kind, "arena")) {
        found = at(64 * MIB, 0, ANONYMOUS | MAP_NORESERVE, -1);
        mprotect(found, 64 * MIB, PROT_NONE);
        for (size_t grown = 0; grown < bytes; grown += 128 << 10) {
            if (mprotect(found + grown, 128 << 10, RW) != 0) fail("mprotect");
            touch(found + grown, 128 << 10, 4096);
        }
    } else if (!strcmp(kind, "stack")) {
        char *below = alloca(bytes);
        touch(below, bytes, 4096);
        found = below;
        printf("%s %p\n", kind, (void *)found);
        fflush(stdout);
        while (getchar() != EOF) {}
        return;
    } else if (!strcmp(kind, "thread")) {
        pthread_t id;
        pthread_barrier_init(&deep, 0, 2);
        if (pthread_create(&id, 0, thread, (void *)bytes) != 0) fail("pthread_create");
        pthread_barrier_wait(&deep);
        return;
    } else if (!strcmp(kind, "pool")) {
        found = mmap(0, bytes, RW, ANONYMOUS | MAP_HUGETLB, -1, 0);
        if (found == MAP_FAILED) {
            printf("pool %s\n", strerror(errno));
            return;
        }
        touch(found, bytes, 4096);
    } else if (!strcmp(kind, "disable")) {
        if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0) fail("prctl");
    } else if (!strcmp(kind, "except")) {
        if (prctl(PR_SET_THP_DISABLE, 1, 2, 0, 0) != 0) fail("prctl");
    } else if (!strcmp(kind, "many")) {
        /* Ten thousand mappings, `bytes` KiB each. */
        for (int turn = 0; turn < 10000; turn++) {
            char *part = mmap(0, bytes / 1024, RW, ANONYMOUS, -1, 0);
            if (part == MAP_FAILED) fail("mmap");
            touch(part, bytes / 1024, 4096);
            munmap(part, bytes / 1024);
        }
    } else if (!strcmp(kind, "small")) {
        /* Mappings of 256 KiB each, which the kernel joins, and time to compute until they are large. */
        for (size_t mapped = 0; mapped < bytes; mapped += 256 << 10) {
            found = mmap(0, 256 << 10, RW, ANONYMOUS, -1, 0);
            if (found == MAP_FAILED) fail("mmap");
            touch(found, 256 << 10, 4096);
        }
        for (int round = 0; round < 300 && large_bytes() < bytes / 8 * 7; round++)
            for (volatile long turn = 0; turn < 20000000; turn++) {}
    } else if (!strcmp(kind, "fork")) {
        pid_t child = fork();
        if (child == 0) {
            one("plain", bytes);
            exit(7);
        }
        int status;
        if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 7) fail("a child");
        return;
    } else if (!strcmp(kind, "exit")) {
        exit((int)(bytes / MIB));
    } else if (!strcmp(kind, "abort")) {
        abort();
    } else {
        fprintf(stderr, "there is no kind `%s`\n", kind);
        exit(98);
    }
    printf("%s %p\n", kind, (void *)found);
    fflush(stdout);
}

int main(int count, char **words) {
    for (int word = 1; word < count; word++) {
        char *number = strchr(words[word], ':');
        if (number) *number++ = 0;
        one(words[word], (number ? strtoul(number, 0, 10) : 8) * MIB);
    }
    fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}
