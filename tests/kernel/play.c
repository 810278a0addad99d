/* Plays a stream of memory calls and touches natively, on one processor, and prints what came of each.
 *
 *   play FILE < STREAM > RESULTS
 *
 * FILE is what file mappings map. A line of the stream is an operation, the process that does it (0 is there
 * from the beginning), and numbers; pages are base pages, counted from address 0:
 *   map P page pages prot kind first     kind: 0 private memory, 1 shared memory, 2 and 3 FILE, private and
 *                                        shared, from its page `first` on
 *   unmap P page pages
 *   protect P page pages prot
 *   move P page pages to pages flags     mremap; flags: 1 may move, 3 moves to `to`
 *   advise P page pages advice
 *   lock P page pages flags, unlock P page pages
 *   fork P child, exit P
 *   load P page, store P page value      the first 8 bytes of the page
 *   check
 * A line of results, in the same order:
 *   calls                  0, or minus the errno
 *   load                   the value, or none (no region), denied, or beyond (the end of the file)
 *   store                  0, or the same
 *   check                  for each process: its number; its mappings, and the runs of pages that hardware has, as
 *                          page+pages and a letter: v a mapping, p base pages, z pages of zeros, L pages of 2M,
 *                          Z a page of zeros of 2M
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PAGEMAP_SCAN
/* Headers of kernels before 6.7 do not have it. */
struct page_region { unsigned long long start, end, categories; };
struct pm_scan_arg {
    unsigned long long size, flags, start, end, walk_end, vec, vec_len, max_pages, category_inverted,
        category_mask, category_anyof_mask, return_mask;
};
#define PAGEMAP_SCAN _IOWR('f', 16, struct pm_scan_arg)
#define PAGE_IS_PRESENT (1 << 3)
#define PAGE_IS_PFNZERO (1 << 5)
#define PAGE_IS_HUGE (1 << 6)
#endif

/* What a test plays lies between these addresses; the player has nothing there. */
enum { PROCESSES_MAX = 16, SHIFT = 12 };
static const unsigned long long FIRST = 1ull << 44, LAST = 1ull << 45;

struct ask { char what[12]; unsigned long long of[6]; };
struct answer { int how; unsigned long long value; };
enum { DONE, NONE, DENIED, BEYOND };

static int file;
/* Both ends of the conversation with each process, made before the first one begins. */
static int talk[PROCESSES_MAX][2];

/* Its other end is the conductor's alone. */
static int lifeline[2];
static sigjmp_buf touched;

static void refused(int signal, siginfo_t *info, void *context) {
    (void)context;
    siglongjmp(touched, signal == SIGBUS ? BEYOND : info->si_code == SEGV_ACCERR ? DENIED : NONE);
}

static void *at(unsigned long long page) { return (void *)(page << SHIFT); }

static struct answer call(long result) {
    return (struct answer){ DONE, result == -1 ? -(unsigned long long)errno : 0 };
}

static void worker(int number);

static struct answer play(const struct ask *ask) {
    const unsigned long long *of = ask->of;
    size_t bytes = of[1] << SHIFT;
    if (!strcmp(ask->what, "map")) {
        int flags[] = { MAP_PRIVATE | MAP_ANONYMOUS, MAP_SHARED | MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED };
        int of_file = of[3] >= 2;
        void *found = mmap(at(of[0]), bytes, of[2], flags[of[3]] | MAP_FIXED | MAP_NORESERVE,
                           of_file ? file : -1, of_file ? of[4] << SHIFT : 0);
        return call(found == MAP_FAILED ? -1 : 0);
    }
    if (!strcmp(ask->what, "unmap")) return call(munmap(at(of[0]), bytes));
    if (!strcmp(ask->what, "protect")) return call(mprotect(at(of[0]), bytes, of[2]));
    if (!strcmp(ask->what, "move")) {
        void *found = mremap(at(of[0]), bytes, of[3] << SHIFT, of[4], at(of[2]));
        return call(found == MAP_FAILED ? -1 : 0);
    }
    if (!strcmp(ask->what, "advise")) return call(madvise(at(of[0]), bytes, of[2]));
    if (!strcmp(ask->what, "lock")) return call(mlock2(at(of[0]), bytes, of[2]));
    if (!strcmp(ask->what, "unlock")) return call(munlock(at(of[0]), bytes));
    if (!strcmp(ask->what, "fork")) {
        pid_t child = fork();
        if (child == 0) worker(of[0]);
        /* The conductor hears of the child from the child. */
        return (struct answer){ DONE, child < 0 ? -(unsigned long long)errno : (unsigned long long)child };
    }
    int how = sigsetjmp(touched, 1);
    if (how != 0) return (struct answer){ how, 0 };
    volatile unsigned long long *place = at(of[0]);
    if (!strcmp(ask->what, "load")) return (struct answer){ DONE, *place };
    *place = of[1];
    return (struct answer){ DONE, 0 };
}

static void worker(int number) {
    struct ask ask;
    struct pollfd of[] = { { .fd = talk[number][1], .events = POLLIN }, { .fd = lifeline[0] } };
    close(lifeline[1]);
    /* The lifeline hangs up when the conductor has ended, however. */
    while (poll(of, 2, -1) > 0 && !of[1].revents && read(of[0].fd, &ask, sizeof ask) == sizeof ask) {
        if (!strcmp(ask.what, "exit")) break;
        struct answer answer = play(&ask);
        if (write(talk[number][1], &answer, sizeof answer) != sizeof answer) break;
    }
    _exit(0);
}

static void fail(const char *what) {
    perror(what);
    exit(2);
}

static int pagemaps[PROCESSES_MAX], pids[PROCESSES_MAX], pidfds[PROCESSES_MAX];

/* Knows the process `number` from here on. */
static void enter(int number, int pid) {
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/pagemap", pid);
    pids[number] = pid;
    pagemaps[number] = open(name, O_RDONLY);
    pidfds[number] = syscall(SYS_pidfd_open, pid, 0);
    if (pagemaps[number] < 0 || pidfds[number] < 0) fail(name);
}

/* Waits until the process answers, or has ended; says whether it has. */
static int ended(int number, const char *line) {
    struct pollfd of[] = { { .fd = talk[number][0], .events = POLLIN }, { .fd = pidfds[number], .events = POLLIN } };
    if (poll(of, 2, 60000) <= 0) {
        fprintf(stderr, "no answer within a minute: %s", line);
        exit(2);
    }
    return !(of[0].revents & POLLIN);
}

static void check(int number, int pagemap) {
    static struct page_region found[8192];
    unsigned long long from = FIRST, start, end;
    char text[4096];
    printf(" %d", number);
    snprintf(text, sizeof text, "/proc/%d/maps", pids[number]);
    FILE *maps = fopen(text, "r");
    if (!maps) fail(text);
    while (fgets(text, sizeof text, maps)) {
        if (sscanf(text, "%llx-%llx", &start, &end) == 2 && start >= FIRST && end <= LAST) {
            printf(" %llu+%lluv", start >> SHIFT, (end - start) >> SHIFT);
        }
    }
    fclose(maps);
    while (from < LAST) {
        struct pm_scan_arg ask = {
            .size = sizeof ask, .start = from, .end = LAST, .vec = (unsigned long)found, .vec_len = 8192,
            .category_mask = PAGE_IS_PRESENT, .return_mask = PAGE_IS_PFNZERO | PAGE_IS_HUGE,
        };
        int count = ioctl(pagemap, PAGEMAP_SCAN, &ask);
        if (count < 0) fail("PAGEMAP_SCAN");
        for (int i = 0; i < count; i++) {
            int huge = (found[i].categories & PAGE_IS_HUGE) != 0, zero = (found[i].categories & PAGE_IS_PFNZERO) != 0;
            printf(" %llu+%llu%c", found[i].start >> SHIFT, (found[i].end - found[i].start) >> SHIFT,
                   "pzLZ"[huge << 1 | zero]);
        }
        if (ask.walk_end <= from) break;
        from = ask.walk_end;
    }
}

int main(int count, char **arguments) {
    if (count != 2) { fprintf(stderr, "play FILE < STREAM > RESULTS\n"); return 2; }
    file = open(arguments[1], O_RDWR);
    if (file < 0) fail(arguments[1]);
    cpu_set_t one;
    CPU_ZERO(&one);
    /* Pages wait in lists of each processor before all know them; with one processor the result is certain. */
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    struct sigaction action = { .sa_sigaction = refused, .sa_flags = SA_SIGINFO | SA_NODEFER };
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    for (int i = 0; i < PROCESSES_MAX; i++) {
        if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, talk[i]) != 0) fail("socketpair");
    }
    if (pipe(lifeline) != 0) fail("pipe");
    pid_t first = fork();
    if (first == 0) worker(0);
    enter(0, first);
    char line[256];
    while (fgets(line, sizeof line, stdin)) {
        struct ask ask = { 0 };
        unsigned long long number = 0, *of = ask.of;
        sscanf(line, "%11s %llu %llu %llu %llu %llu %llu %llu", ask.what, &number, of, of + 1, of + 2, of + 3,
               of + 4, of + 5);
        if (!strcmp(ask.what, "check")) {
            for (int i = 0; i < PROCESSES_MAX; i++) if (pids[i]) check(i, pagemaps[i]);
            printf("\n");
            continue;
        }
        if (number >= PROCESSES_MAX || !pids[number]) { fprintf(stderr, "no process: %s", line); return 2; }
        if (write(talk[number][0], &ask, sizeof ask) != sizeof ask) fail("write");
        if (!strcmp(ask.what, "exit")) {
            ended(number, line);
            close(pagemaps[number]);
            close(pidfds[number]);
            pids[number] = 0;
            printf("0\n");
            continue;
        }
        struct answer answer;
        if (ended(number, line) || read(talk[number][0], &answer, sizeof answer) != sizeof answer) {
            fprintf(stderr, "process %llu has ended: %s", number, line);
            return 2;
        }
        if (!strcmp(ask.what, "fork") && (long long)answer.value > 0) {
            enter(of[0], answer.value);
            answer.value = 0;
        }
        const char *hows[] = { "", "none", "denied", "beyond" };
        if (answer.how != DONE) printf("%s\n", hows[answer.how]);
        else printf("%lld\n", (long long)answer.value);
    }
    return 0;
}
