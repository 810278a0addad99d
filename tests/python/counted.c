/* A program under a seed that makes accesses of many kinds, for two ways of a run to agree on:
 *   counted SEED PAGES    over so many pages, of which some are taken away and come back
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, CODE = 12 };
static uint64_t state;
static char *area;
static size_t bytes;

static uint64_t below(uint64_t bound) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % bound;
}

/* Somewhere with room for so many bytes, often across two pages. */
static char *place(size_t room) {
    size_t at = below(bytes - room);
    if (below(8) == 0 && room < PAGE)
        at = (1 + below(bytes / PAGE - 1)) * PAGE - below(room + 1);
    return area + (at + room > bytes ? bytes - room : at);
}

/* A page that was taken away comes back, and the access is made again. */
static void give_back(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    char *page = (char *)((uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1));
    if (page < area || page >= area + bytes || mprotect(page, PAGE, PROT_READ | PROT_WRITE))
        _exit(99);
}

/* A signal in between. */
static void use(int signal) {
    *place(1) = (char)signal;
}

/* Functions on pages of their own, so that code takes part. */
#define FUNCTION(n)                                                                                \
    __attribute__((noinline, aligned(PAGE))) static uint64_t function##n(uint64_t *at) {           \
        return at[0] += n, at[1] ^= at[2], at[n % 5] * 3;                                          \
    }
FUNCTION(0) FUNCTION(1) FUNCTION(2) FUNCTION(3) FUNCTION(4) FUNCTION(5)
FUNCTION(6) FUNCTION(7) FUNCTION(8) FUNCTION(9) FUNCTION(10) FUNCTION(11)
static uint64_t (*const functions[CODE])(uint64_t *) = {
    function0, function1, function2, function3, function4, function5,
    function6, function7, function8, function9, function10, function11,
};

static uint64_t deep(unsigned depth) {
    volatile char frame[700];
    memset((char *)frame, (int)depth, sizeof frame);
    return depth == 0 ? (uint64_t)frame[3] : deep(depth - 1) + (uint64_t)frame[99];
}

static uint64_t step(void) {
    uint64_t sum = 0, word;
    switch (below(18)) {
    case 0: case 1: case 2:
        for (unsigned i = 0; i < 20; i++) memcpy(&word, place(8), 8), sum += word;
        break;
    case 3: case 4:
        for (unsigned i = 0; i < 20; i++) memcpy(place(8), &i, 4);
        break;
    case 5: case 6: case 7:
        return functions[below(CODE)]((uint64_t *)place(64));
    case 8: {
        size_t count = below(3) ? below(64) : below(3 * PAGE);
        char *from = place(4 * PAGE), *to = place(4 * PAGE);
        __asm__ volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(count) : : "memory");
        break;
    }
    case 9: {
        size_t count = below(200);
        char *to = place(4 * PAGE);
        __asm__ volatile("rep stosq" : "+D"(to), "+c"(count) : "a"(sum) : "memory");
        break;
    }
    case 10:
        return deep(below(40));
    case 11: {
        char *at = (char *)((uintptr_t)place(16) & ~(uintptr_t)7);
        return atomic_fetch_add((_Atomic uint64_t *)at, 3);
    }
    case 12: {
        typedef long long Vector __attribute__((vector_size(32), aligned(1)));
        *(Vector *)place(32) += *(Vector *)place(32);
        break;
    }
    case 13:
        return 1000 / (1 + below(7)) + below(1 + below(99));
    case 14:
        return (uint64_t)getppid() * 0;
    case 15: {
        /* By helpers of QEMU: of 10 bytes, and of 512. */
        static char state[512] __attribute__((aligned(16)));
        long double *at = (long double *)place(16);
        __asm__ volatile("fldt %0; fstpt %0" : "+m"(*at));
        if (below(4) == 0) __asm__ volatile("fxsave %0; fxrstor %0" : "+m"(state));
        break;
    }
    case 16:
        return raise(SIGUSR1);
    default: {
        char *page = area + below(bytes / PAGE) * PAGE;
        switch (below(12)) {
        case 0: mprotect(page, PAGE, PROT_NONE); break;
        case 1: mprotect(page, PAGE, PROT_READ); break;
        case 2:
            mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        }
    }
    }
    return sum;
}

int main(int count, char **arguments) {
    uint64_t sum = 0;
    (void)count;
    state = strtoull(arguments[1], NULL, 10);
    bytes = strtoull(arguments[2], NULL, 10) * PAGE;
    area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sigaction action = {.sa_sigaction = give_back, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    signal(SIGUSR1, use);
    for (unsigned i = 0; i < 8000; i++) sum += step();
    printf("%llx\n", (unsigned long long)sum);
    return 0;
}
