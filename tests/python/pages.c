/* A program for a machine under test: it does to its memory what makes a kernel change page tables, checks what it
   reads, and makes the machine's TLB miss.

     pages ROUNDS SEED FILE   prints `pages: ok`, or what is wrong

   Two processes take turns; each turn is a write of CR3, after which all of the pages that a turn touches miss. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, REGIONS = 24, REGION_MAX = 1024, TURN = 3000 };

/* A mapping, and what its pages should hold: a page's first word is 0 until the page is written. */
struct region {
    char *start;
    size_t pages;
    int rights;
    uint64_t written[REGION_MAX];
};

static struct region regions[REGIONS];
static uint64_t state;
static int file;
static sigjmp_buf back;

static uint64_t chance(uint64_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
}

static void fail(const char *what)
{
    printf("pages: %s\n", what);
    fflush(stdout);
    _exit(1);
}

static void on_signal(int number)
{
    (void)number;
    siglongjmp(back, 1);
}

static void map(struct region *region)
{
    static const int sizes[] = { 1, 3, 16, 200, 512, REGION_MAX };
    int kind = chance(6);
    size_t bytes;

    memset(region, 0, sizeof *region);
    region->pages = sizes[chance(6)];
    region->rights = PROT_READ | PROT_WRITE;
    bytes = region->pages * PAGE;
    if (kind == 0) {
        region->start = mmap(0, bytes, region->rights, MAP_PRIVATE, file, 0);
    } else {
        int flags = MAP_ANONYMOUS | (kind == 1 ? MAP_SHARED : MAP_PRIVATE);
        region->start = mmap(0, bytes, region->rights, flags, -1, 0);
    }
    if (region->start == MAP_FAILED)
        fail("mmap failed");
    if (kind == 2)
        madvise(region->start, bytes, MADV_NOHUGEPAGE);
}

/* Whether the word of a page can be read or written. */
static int touches(volatile uint64_t *word, int is_write, uint64_t value)
{
    if (sigsetjmp(back, 1))
        return 0;
    if (is_write)
        *word = value;
    else if (*word != value)
        fail("a page does not hold what was written");
    return 1;
}

static void touch(struct region *region, size_t page)
{
    uint64_t *word = (uint64_t *)(region->start + page * PAGE);
    int is_write = chance(2);
    int needed = is_write ? PROT_WRITE : PROT_READ;
    uint64_t value = is_write ? chance(1 << 30) + 1 : region->written[page];

    if (touches(word, is_write, value) != ((region->rights & needed) != 0))
        fail("the rights of a page are not what was asked for");
    if (is_write && region->rights & PROT_WRITE)
        region->written[page] = value;
}

static void change(struct region *region)
{
    size_t bytes = region->pages * PAGE;
    static const int rights[] = { PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE };

    switch (chance(6)) {
    case 0:
        munmap(region->start, bytes);
        map(region);
        break;
    case 1:
        region->rights = rights[chance(3)];
        if (mprotect(region->start, bytes, region->rights))
            fail("mprotect failed");
        break;
    case 2: {
        char *to = mmap(0, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        region->start = mremap(region->start, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to);
        if (region->start == MAP_FAILED)
            fail("mremap failed");
        break;
    }
    case 3:
        madvise(region->start, bytes, MADV_HUGEPAGE);
        break;
    case 4: {
        /* A child with copies of all pages. */
        pid_t child = fork();
        if (child == 0) {
            for (size_t page = 0; page < region->pages; page++)
                touch(region, page);
            for (int i = 0; i < 200; i++)
                touch(region, chance(region->pages));
            _exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status)
            fail("a child failed");
        /* Of shared pages it is not known what the child has written. */
        munmap(region->start, bytes);
        map(region);
        break;
    }
    default: {
        /* mov eax, 7; ret */
        static const unsigned char code[] = { 0xb8, 7, 0, 0, 0, 0xc3 };
        char *place = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memcpy(place, code, sizeof code);
        if (mprotect(place, PAGE, PROT_READ | PROT_EXEC) || ((int (*)(void))place)() != 7)
            fail("code that was written does not run");
        munmap(place, PAGE);
    }
    }
}

static void take_turns(int in, int out, int rounds)
{
    char turn = 0;

    for (int i = 0; i < REGIONS; i++)
        map(&regions[i]);
    for (int round = 0; round < rounds; round++) {
        if (read(in, &turn, 1) != 1)
            fail("the other process is gone");
        if (round % 8 == 0)
            change(&regions[chance(REGIONS)]);
        for (int i = 0; i < TURN; i++) {
            struct region *region = &regions[chance(REGIONS)];
            touch(region, chance(region->pages));
        }
        if (write(out, &turn, 1) != 1)
            fail("the other process is gone");
    }
}

int main(int count, char **arguments)
{
    int rounds = count > 1 ? atoi(arguments[1]) : 100, there[2], back_here[2], status;
    struct sigaction action = { .sa_handler = on_signal };

    state = count > 2 ? strtoull(arguments[2], 0, 10) : 1;
    printf("pages: seed %llu\n", (unsigned long long)state);
    fflush(stdout);
    file = open(count > 3 ? arguments[3] : "/tmp/pages", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || ftruncate(file, (off_t)REGION_MAX * PAGE) || pipe(there) || pipe(back_here))
        fail("no file or pipe");
    sigaction(SIGSEGV, &action, 0);
    sigaction(SIGBUS, &action, 0);
    pid_t other = fork();
    if (other == 0) {
        state ^= 0x5bd1e995;
        take_turns(there[0], back_here[1], rounds);
        _exit(0);
    }
    if (write(back_here[1], "", 1) != 1)
        fail("no pipe");
    take_turns(back_here[0], there[1], rounds);
    if (waitpid(other, &status, 0) != other || status)
        fail("the other process failed");
    printf("pages: ok\n");
    return 0;
}
