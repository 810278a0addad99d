/* What a program's memory is like on this kernel: its calls that change its address space, the pages that it
 * has touched between them, and the page sizes of its regions at its end.
 *
 *   layout trace OUTPUT COMMAND...
 *   layout CALL OUTPUT COMMAND...
 *
 * The first: a line per call and per run of pages that came into memory since the last one.
 *   M start bytes prot flags fd offset     mmap, and mappings that were there when the program began
 *   U start bytes                          munmap
 *   P start bytes prot                     mprotect
 *   R start old_bytes new_bytes new_start  mremap
 *   B old new                              brk
 *   A start bytes advice                   madvise
 *   T page count kind                      first touches: 0 a load of the page of zeros, 1 anything else
 *   N call pages                           such a call begins, by number, with so many pages in memory
 * The second: the lines of /proc/PID/smaps when that call begins, or at the program's exit_group if that comes
 * first. The program runs without randomised addresses, so that two runs have the same.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ptrace.h>
#include <linux/ptrace.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
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
#endif

static FILE *out;
static pid_t program;
static int pagemap;
static long calls;

/* Pages that have been seen, a bit each: blocks of 2^15 pages by number, in a table with open addressing. */
enum { SLOTS = 1 << 16, BLOCK = 1 << 15 };
static struct { unsigned long number; unsigned char *bits; } seen[SLOTS];

static unsigned char *block_of(unsigned long page) {
    unsigned long number = page / BLOCK + 1;
    unsigned slot = number * 2654435761u % SLOTS;
    while (seen[slot].number != 0 && seen[slot].number != number) slot = (slot + 1) % SLOTS;
    if (seen[slot].number == 0) {
        seen[slot].number = number;
        seen[slot].bits = calloc(BLOCK / 8, 1);
    }
    return seen[slot].bits;
}

/* Forgets or marks a page; says whether it was known so. */
static int mark(unsigned long page, int is_there) {
    unsigned char *bits = block_of(page) + page % BLOCK / 8, bit = 1 << page % 8;
    int was = (*bits & bit) != 0;
    if (is_there) *bits |= bit; else *bits &= ~bit;
    return was;
}


static void touches(void) {
    unsigned long present = 0;
    static struct page_region found[4096];
    unsigned long from = 0, end = (1ul << 47) - 4096;
    while (from < end) {
        struct pm_scan_arg ask = {
            .size = sizeof ask, .start = from, .end = end, .vec = (unsigned long)found, .vec_len = 4096,
            .category_mask = PAGE_IS_PRESENT, .return_mask = PAGE_IS_PFNZERO,
        };
        int count = ioctl(pagemap, PAGEMAP_SCAN, &ask);
        if (count < 0) { perror("PAGEMAP_SCAN"); exit(2); }
        for (int i = 0; i < count; i++) {
            int is_zero = (found[i].categories & PAGE_IS_PFNZERO) != 0;
            unsigned long first = 0, run = 0;
            present += (found[i].end - found[i].start) >> 12;
            for (unsigned long page = found[i].start >> 12; page < found[i].end >> 12; page++) {
                /* A page of zeros is known under a number of its own, above all addresses. */
                unsigned long key = is_zero ? page + (1ul << 36) : page;
                if (mark(key, 1)) continue;
                if (run > 0 && first + run == page) { run++; continue; }
                if (run > 0) fprintf(out, "T %lu %lu %d\n", first, run, !is_zero);
                first = page; run = 1;
            }
            if (run > 0) fprintf(out, "T %lu %lu %d\n", first, run, !is_zero);
        }
        if (ask.walk_end <= from || count == 0) break;
        from = ask.walk_end;
    }
    fprintf(out, "N %ld %lu\n", calls, present);
}

static void forget(unsigned long start, unsigned long bytes) {
    for (unsigned long page = start >> 12; page < (start + bytes + 4095) >> 12; page++) {
        mark(page, 0);
        mark(page + (1ul << 36), 0);
    }
}

static void end(void) {
    char name[64], line[4096];
    snprintf(name, sizeof name, "/proc/%d/smaps", program);
    FILE *smaps = fopen(name, "r");
    while (smaps && fgets(line, sizeof line, smaps)) fputs(line, out);
    if (smaps) fclose(smaps);
}

static void mappings(void) {
    char name[64], line[4096];
    snprintf(name, sizeof name, "/proc/%d/maps", program);
    FILE *maps = fopen(name, "r");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, stop, offset, inode;
        char rights[8];
        if (sscanf(line, "%lx-%lx %4s %lx %*s %lu", &start, &stop, rights, &offset, &inode) != 5) continue;
        int prot = (rights[0] == 'r') | (rights[1] == 'w') << 1 | (rights[2] == 'x') << 2;
        if (start >= 1ul << 47) continue;
        fprintf(out, "M %lu %lu %d %d %d %lu\n", start, stop - start, prot,
                inode ? MAP_PRIVATE : MAP_PRIVATE | MAP_ANONYMOUS, inode ? 3 : -1, offset);
    }
    if (maps) fclose(maps);
}

/* A program begins: what was before it is gone. */
static void begin(int traces) {
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/pagemap", program);
    if (pagemap > 0) close(pagemap);
    pagemap = open(name, O_RDONLY);
    if (pagemap < 0) { perror(name); exit(2); }
    for (int slot = 0; slot < SLOTS; slot++) {
        free(seen[slot].bits);
        seen[slot].bits = NULL;
        seen[slot].number = 0;
    }
    fflush(out);
    if (ftruncate(fileno(out), 0) != 0) exit(2);
    rewind(out);
    calls = 0;
    if (traces) { mappings(); touches(); }
}

struct call { unsigned long long number, of[6], before; };

static void done(const struct call *c, long result) {
    const unsigned long long *a = c->of;
    if (result < 0 && result > -4096) return;
    switch (c->number) {
    case SYS_mmap:
        forget(result, a[1]);
        fprintf(out, "M %ld %llu %llu %llu %d %llu\n", result, a[1], a[2], a[3], (int)a[4], a[5]);
        break;
    case SYS_munmap: forget(a[0], a[1]); fprintf(out, "U %llu %llu\n", a[0], a[1]); break;
    case SYS_mprotect: fprintf(out, "P %llu %llu %llu\n", a[0], a[1], a[2]); break;
    case SYS_mremap:
        /* The pages have moved with it: they are not touched anew. */
        for (unsigned long into = 0; into < a[1] >> 12 && (unsigned long)result != a[0]; into++) {
            int was = mark((a[0] >> 12) + into, 0);
            if (into < a[2] >> 12) mark((result >> 12) + into, was);
            was = mark((a[0] >> 12) + into + (1ul << 36), 0);
            if (into < a[2] >> 12) mark((result >> 12) + into + (1ul << 36), was);
        }
        if (a[2] < a[1]) forget(result + a[2], a[1] - a[2]);
        fprintf(out, "R %llu %llu %llu %ld\n", a[0], a[1], a[2], result);
        break;
    case SYS_brk:
        if (c->before && (unsigned long)result < c->before) forget(result, c->before - result);
        fprintf(out, "B %llu %ld\n", c->before, result);
        break;
    case SYS_madvise:
        if (a[2] == MADV_DONTNEED) forget(a[0], a[1]);
        fprintf(out, "A %llu %llu %llu\n", a[0], a[1], a[2]);
        break;
    }
}

int main(int count, char **arguments) {
    if (count < 4) { fprintf(stderr, "layout trace|CALL OUTPUT COMMAND...\n"); return 2; }
    int traces = strcmp(arguments[1], "trace") == 0;
    long stop = traces ? -1 : atol(arguments[1]);
    out = fopen(arguments[2], "w");
    if (!out) { perror(arguments[2]); return 2; }
    program = fork();
    if (program == 0) {
        personality(ADDR_NO_RANDOMIZE);
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        execvp(arguments[3], arguments + 3);
        perror(arguments[3]);
        _exit(127);
    }
    int status;
    waitpid(program, &status, 0);
    if (WIFEXITED(status)) return 2;
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC;
    ptrace(PTRACE_SETOPTIONS, program, 0, options);
    begin(traces);
    /* Calls under way, by thread. */
    static struct { pid_t thread; struct call call; } under_way[256];
    unsigned long long last_break = 0;
    int exit_status = 0, alive = 1;
    ptrace(PTRACE_SYSCALL, program, 0, 0);
    while (alive) {
        pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0) break;
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (thread == program) { exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128; alive = 0; }
            continue;
        }
        int signal = WSTOPSIG(status);
        if (signal == (SIGTRAP | 0x80)) {
            struct ptrace_syscall_info info;
            ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info);
            int slot = 0;
            while (slot < 255 && under_way[slot].thread && under_way[slot].thread != thread) slot++;
            under_way[slot].thread = thread;
            struct call *call = &under_way[slot].call;
            if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
                call->number = info.entry.nr;
                memcpy(call->of, info.entry.args, sizeof call->of);
                call->before = last_break;
                switch (call->number) {
                case SYS_mmap: case SYS_munmap: case SYS_mprotect: case SYS_mremap: case SYS_brk:
                case SYS_madvise: case SYS_exit_group:
                    calls++;
                    if (traces) {
                        touches();
                    } else if (stop >= 0 && (calls == stop || call->number == SYS_exit_group)) {
                        end();
                        stop = -1;
                    }
                    break;
                }
            } else if (info.op == PTRACE_SYSCALL_INFO_EXIT) {
                if (traces) done(call, info.exit.rval);
                if (call->number == SYS_brk) last_break = info.exit.rval;
            }
            signal = 0;
        } else if (signal == SIGTRAP || signal == SIGSTOP) {
            if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXEC << 8)) begin(traces);
            signal = 0;
        }
        ptrace(PTRACE_SYSCALL, thread, 0, signal);
    }
    fclose(out);
    return exit_status;
}
