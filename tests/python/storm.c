/* A program for a recorded system: it makes the kernel change page tables that are in use, in every way that Linux has
   a rule for when to flush, and checks what it reads.

     storm ROUNDS THREADS        fork, exec, mmap, munmap, mprotect, mremap, madvise, beside threads that use the memory
     storm swap MEGABYTES ROUNDS  more memory than the machine has, used again and again */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 64 };

static volatile char *shared;
static volatile int ends;
static _Thread_local sigjmp_buf back;
static _Thread_local uint64_t state;

static uint64_t chance(uint64_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
}

static void on_signal(int number)
{
    (void)number;
    siglongjmp(back, 1);
}

/* Loads and stores in memory whose rights and contents others change. */
static void *use(void *number)
{
    state = (uintptr_t)number;
    while (!ends) {
        if (sigsetjmp(back, 1)) {
            continue;
        }
        volatile char *at = shared + chance(PAGES) * PAGE;
        if (chance(2)) {
            at[chance(PAGE)] = 1;
        } else {
            (void)at[chance(PAGE)];
        }
    }
    return NULL;
}

static void fail(const char *what)
{
    printf("storm: %s\n", what);
    fflush(stdout);
    _exit(1);
}

static char *map(size_t pages)
{
    char *start = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (start == MAP_FAILED) {
        fail("mmap");
    }
    return start;
}

static void swaps(size_t megabytes, int rounds)
{
    size_t pages = megabytes * 256;
    char *start = map(pages);

    for (int round = 0; round < rounds; round++) {
        for (size_t page = 0; page < pages; page++) {
            uint64_t *at = (uint64_t *)(start + page * PAGE);

            if (round > 0 && *at != page * 7 + round - 1) {
                fail("a page has come back from swap with other contents");
            }
            *at = page * 7 + round;
        }
    }
}

static void forks(char *own, char *name)
{
    pid_t child = fork();

    if (child == 0) {
        for (int page = 0; page < PAGES; page += 2) {
            own[page * PAGE] = 2;
        }
        if (chance(2)) {
            execl(name, name, "nothing", (char *)NULL);
        }
        _exit(0);
    }
    for (int page = 0; page < PAGES; page += 3) {
        own[page * PAGE] = 3;
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        fail("fork");
    }
}

int main(int argc, char **argv)
{
    pthread_t threads[8];
    struct sigaction action = { .sa_handler = on_signal };

    if (argc == 4 && strcmp(argv[1], "swap") == 0) {
        swaps(atoi(argv[2]), atoi(argv[3]));
        puts("storm: ok");
        return 0;
    }
    if (argc != 3) {
        return 0;
    }
    int rounds = atoi(argv[1]), count = atoi(argv[2]);
    state = 68;
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    shared = map(PAGES);
    for (intptr_t thread = 0; thread < count && thread < 8; thread++) {
        pthread_create(&threads[thread], NULL, use, (void *)(thread + 1));
    }
    for (int round = 0; round < rounds; round++) {
        char *at = (char *)shared + chance(PAGES / 2) * PAGE;
        size_t bytes = (1 + chance(PAGES / 2)) * PAGE;
        char *own = map(PAGES);

        memset(own, 1, PAGES * PAGE);
        switch (chance(7)) {
        case 0:
            mprotect(at, bytes, PROT_READ);
            break;
        case 1:
            mprotect(at, bytes, PROT_NONE);
            break;
        case 2:
            mprotect(at, bytes, PROT_READ | PROT_WRITE);
            break;
        case 3:
            madvise(at, bytes, MADV_DONTNEED);
            break;
        case 4:
            /* Other pages at the same addresses. */
            mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
            break;
        case 5:
            forks(own, argv[0]);
            break;
        default: {
            char *other = mremap(own, PAGES * PAGE, 2 * PAGES * PAGE, MREMAP_MAYMOVE);

            if (other == MAP_FAILED || other[PAGE] != 1) {
                fail("mremap");
            }
            munmap(other + PAGES * PAGE, PAGES * PAGE);
            own = other;
        }
        }
        munmap(own, PAGES * PAGE);
    }
    ends = 1;
    for (int thread = 0; thread < count && thread < 8; thread++) {
        pthread_join(threads[thread], NULL);
    }
    puts("storm: ok");
    return 0;
}
