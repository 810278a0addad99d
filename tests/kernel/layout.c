/* What a program's memory is like on this kernel: its calls that change its address space, the pages that it
 * has touched between them, and the page sizes of its regions at its end.
 *
 *   layout trace OUTPUT COMMAND...
 *   layout CALL OUTPUT COMMAND...
 *
 * The first: a line per call of the program and of the processes that it forks, and per run of pages that were
 * touched since the last one.
 *   S process                              the lines from here on are of this process; before the first, of 0
 *   M start bytes prot flags fd offset     mmap, and mappings that were there when a program began
 *   U start bytes                          munmap
 *   P start bytes prot result              mprotect
 *   R start old_bytes new_bytes new_start flags   mremap
 *   B old new                              brk
 *   A start bytes advice result            madvise
 *   L start bytes flags result             mlock, mlock2
 *   K start bytes result                   munlock
 *   F child flags                          fork; flags: clone's
 *   E                                      execve: the mappings of the new program follow
 *   X                                      the process has ended
 *   T page count kind                      pages that came into memory, or were copied after a fork: 0 by a load of
 *                                          the page of zeros, 1 by anything else
 *   N call pages                           such a call of process 0 begins, by number, with so many pages in memory
 * A call that failed is there where the kernel may have done a part of it. The second: the lines of
 * /proc/PID/smaps of process 0 when that call begins, or at its exit_group if that comes first. The programs
 * run without randomised addresses, so that two runs have the same.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
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
static int traces;

/* The frame of each page that has been seen, in blocks of 2^15 pages by number, in a table with open addressing. */
enum { SLOTS = 1 << 12, BLOCK = 1 << 15, PROCESSES_MAX = 64, THREADS_MAX = 256 };
static const unsigned long ZERO = 1ul << 63, FRAME = (1ul << 55) - 1;
struct block { unsigned long number, *frames; };
struct call { unsigned long long number, of[6], before; };
static struct process {
    pid_t pid;
    int pagemap;
    long calls;
    unsigned long long last_break;
    /* Whether it runs in its parent's space, as the child of a vfork does until it executes a program. */
    int shares;
    struct block *seen;
} processes[PROCESSES_MAX];
static int processes_count, speaking;
/* In the place of a break: the thread waits until it is known who made it. */
static const unsigned long long STOPPED = ~0ull;
/* All threads, each with the call that it is in; those without a process have stopped before their fork is known. */
static struct { pid_t thread; struct process *process; struct call call; } threads[THREADS_MAX];

static unsigned long *frame_of(struct process *process, unsigned long page) {
    unsigned long number = page / BLOCK + 1;
    unsigned slot = number * 2654435761u % SLOTS;
    struct block *seen = process->seen;
    while (seen[slot].number != 0 && seen[slot].number != number) slot = (slot + 1) % SLOTS;
    if (seen[slot].number == 0) {
        seen[slot].number = number;
        seen[slot].frames = calloc(BLOCK, sizeof *seen[slot].frames);
    }
    return seen[slot].frames + page % BLOCK;
}

static void forget_all(struct process *process) {
    for (int slot = 0; slot < SLOTS; slot++) {
        free(process->seen[slot].frames);
        process->seen[slot] = (struct block){ 0, NULL };
    }
}

/* The lines that follow are of this process. */
static void speak(struct process *process) {
    int number = process - processes;
    if (number == speaking) return;
    speaking = number;
    fprintf(out, "S %d\n", number);
}

static void touches(struct process *process, const struct process *caller) {
    static struct page_region found[4096];
    static unsigned long entries[1 << 12];
    unsigned long present = 0, from = 0, end = (1ul << 47) - 4096;
    speak(process);
    while (from < end) {
        struct pm_scan_arg ask = {
            .size = sizeof ask, .start = from, .end = end, .vec = (unsigned long)found, .vec_len = 4096,
            .category_mask = PAGE_IS_PRESENT, .return_mask = PAGE_IS_PFNZERO,
        };
        int count = ioctl(process->pagemap, PAGEMAP_SCAN, &ask);
        if (count < 0) { perror("PAGEMAP_SCAN"); exit(2); }
        for (int i = 0; i < count; i++) {
            int is_zero = (found[i].categories & PAGE_IS_PFNZERO) != 0;
            unsigned long first = 0, run = 0, page = found[i].start >> 12, last = found[i].end >> 12;
            present += last - page;
            for (unsigned long into = 0; page < last; page++, into++) {
                if (into % 4096 == 0) {
                    unsigned long left = last - page < 4096 ? last - page : 4096;
                    if (pread(process->pagemap, entries, left * 8, page * 8) != (long)(left * 8)) exit(2);
                }
                unsigned long *seen = frame_of(process, page), now = is_zero ? ZERO : entries[into % 4096] & FRAME;
                int is_known = *seen == now;
                *seen = now;
                if (is_known) continue;
                if (run > 0 && first + run == page) { run++; continue; }
                if (run > 0) fprintf(out, "T %lu %lu %d\n", first, run, !is_zero);
                first = page; run = 1;
            }
            if (run > 0) fprintf(out, "T %lu %lu %d\n", first, run, !is_zero);
        }
        if (ask.walk_end <= from || count == 0) break;
        from = ask.walk_end;
    }
    if (process == processes && process == caller) fprintf(out, "N %ld %lu\n", process->calls, present);
}

/* What all processes have touched until `caller` calls: so that touches and calls of several stay in their order. */
static void all_touches(struct process *caller) {
    for (int number = processes_count - 1; number >= 0; number--) {
        if (processes[number].pid && !processes[number].shares) touches(processes + number, caller);
    }
    speak(caller);
}

static void forget(struct process *process, unsigned long start, unsigned long bytes) {
    for (unsigned long page = start >> 12; page < (start + bytes + 4095) >> 12; page++) *frame_of(process, page) = 0;
}

/* Pages that move are not touched anew. */
static void moved(struct process *process, const unsigned long long *a, unsigned long to) {
    unsigned long count = a[1] >> 12, *frames = calloc(count + 1, sizeof *frames);
    for (unsigned long into = 0; into < count; into++) {
        unsigned long *frame = frame_of(process, (a[0] >> 12) + into);
        frames[into] = *frame;
        *frame = 0;
    }
    forget(process, to, a[2]);
    for (unsigned long into = 0; into < count && into < a[2] >> 12; into++) {
        *frame_of(process, (to >> 12) + into) = frames[into];
    }
    free(frames);
}

static void end(void) {
    char name[64], line[4096];
    snprintf(name, sizeof name, "/proc/%d/smaps", processes[0].pid);
    FILE *smaps = fopen(name, "r");
    while (smaps && fgets(line, sizeof line, smaps)) fputs(line, out);
    if (smaps) fclose(smaps);
}

static void mappings(struct process *process) {
    char name[64], line[4096];
    snprintf(name, sizeof name, "/proc/%d/maps", process->pid);
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

static struct process *enter(pid_t pid) {
    if (processes_count == PROCESSES_MAX) { fprintf(stderr, "more than %d processes\n", PROCESSES_MAX); exit(2); }
    struct process *process = processes + processes_count++;
    process->pid = pid;
    process->seen = calloc(SLOTS, sizeof *process->seen);
    return process;
}

static void open_pagemap(struct process *process) {
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/pagemap", process->pid);
    if (process->pagemap > 0) close(process->pagemap);
    process->pagemap = open(name, O_RDONLY);
    if (process->pagemap < 0) { perror(name); exit(2); }
}

/* A program begins: what its process had before is gone; of the first one it is not told at all. */
static void begin(struct process *process) {
    open_pagemap(process);
    forget_all(process);
    process->shares = 0;
    if (process == processes) {
        fflush(out);
        if (ftruncate(fileno(out), 0) != 0) exit(2);
        rewind(out);
        process->calls = 0;
        speaking = 0;
    } else if (traces) {
        speak(process);
        fprintf(out, "E\n");
    }
    if (traces) { mappings(process); touches(process, process); }
}

static void fork_of(struct process *parent, pid_t pid, unsigned long long flags) {
    struct process *child = enter(pid);
    open_pagemap(child);
    child->last_break = parent->last_break;
    child->shares = (flags & CLONE_VM) != 0;
    for (int slot = 0; slot < SLOTS; slot++) {
        if (parent->seen[slot].number == 0) continue;
        child->seen[slot].number = parent->seen[slot].number;
        child->seen[slot].frames = malloc(BLOCK * sizeof(unsigned long));
        memcpy(child->seen[slot].frames, parent->seen[slot].frames, BLOCK * sizeof(unsigned long));
    }
    if (!traces) return;
    speak(parent);
    fprintf(out, "F %ld %llu\n", (long)(child - processes), flags);
}

static void done(struct process *process, const struct call *c, long result) {
    const unsigned long long *a = c->of;
    int has_failed = result < 0 && result > -4096;
    speak(process);
    switch (c->number) {
    case SYS_mprotect: fprintf(out, "P %llu %llu %llu %ld\n", a[0], a[1], a[2], result); return;
    case SYS_madvise:
        if (a[2] == MADV_DONTNEED) forget(process, a[0], a[1]);
        fprintf(out, "A %llu %llu %llu %ld\n", a[0], a[1], a[2], result);
        return;
    case SYS_mlock: fprintf(out, "L %llu %llu 0 %ld\n", a[0], a[1], result); return;
    case SYS_mlock2: fprintf(out, "L %llu %llu %llu %ld\n", a[0], a[1], a[2], result); return;
    case SYS_munlock: fprintf(out, "K %llu %llu %ld\n", a[0], a[1], result); return;
    }
    if (has_failed) return;
    switch (c->number) {
    case SYS_mmap:
        forget(process, result, a[1]);
        fprintf(out, "M %ld %llu %llu %llu %d %llu\n", result, a[1], a[2], a[3], (int)a[4], a[5]);
        break;
    case SYS_munmap: forget(process, a[0], a[1]); fprintf(out, "U %llu %llu\n", a[0], a[1]); break;
    case SYS_mremap:
        if ((unsigned long long)result != a[0]) moved(process, a, result);
        else if (a[2] < a[1]) forget(process, a[0] + a[2], a[1] - a[2]);
        fprintf(out, "R %llu %llu %llu %ld %llu\n", a[0], a[1], a[2], result, a[3]);
        break;
    case SYS_brk:
        if (c->before && (unsigned long)result < c->before) forget(process, result, c->before - result);
        fprintf(out, "B %llu %ld\n", c->before, result);
        break;
    }
}

/* The slot of a thread; a new one where it is not known. */
static int slot_of(pid_t thread) {
    int slot = 0, unused = -1;
    while (slot < THREADS_MAX && threads[slot].thread != thread) {
        if (unused < 0 && threads[slot].thread == 0) unused = slot;
        slot++;
    }
    if (slot < THREADS_MAX) return slot;
    if (unused < 0) { fprintf(stderr, "more than %d threads\n", THREADS_MAX); exit(2); }
    memset(threads + unused, 0, sizeof threads[unused]);
    threads[unused].thread = thread;
    return unused;
}

/* A thread has made another, or a process: it may have stopped before this was told. */
static void made(int maker, int event) {
    unsigned long long thread = 0;
    ptrace(PTRACE_GETEVENTMSG, threads[maker].thread, 0, &thread);
    int slot = slot_of(thread);
    if (event == PTRACE_EVENT_CLONE) {
        threads[slot].process = threads[maker].process;
    } else {
        fork_of(threads[maker].process, thread, event == PTRACE_EVENT_VFORK ? CLONE_VM | CLONE_VFORK : 0);
        threads[slot].process = processes + processes_count - 1;
    }
    int status;
    /* Those that have stopped already wait for this. */
    if (threads[slot].call.before != STOPPED) waitpid(thread, &status, __WALL);
    threads[slot].call.before = 0;
    ptrace(PTRACE_SYSCALL, thread, 0, 0);
}

static void entered(int slot, struct ptrace_syscall_info *info, long *stop) {
    struct process *process = threads[slot].process;
    struct call *call = &threads[slot].call;
    call->number = info->entry.nr;
    memcpy(call->of, info->entry.args, sizeof call->of);
    call->before = process->last_break;
    switch (call->number) {
    case SYS_mmap: case SYS_munmap: case SYS_mprotect: case SYS_mremap: case SYS_brk: case SYS_madvise:
    case SYS_mlock: case SYS_mlock2: case SYS_munlock: case SYS_fork: case SYS_vfork: case SYS_clone: case SYS_clone3:
    case SYS_exit_group:
        process->calls++;
        if (traces) {
            all_touches(process);
            if (call->number == SYS_exit_group && process != processes) {
                if (!process->shares) fprintf(out, "X\n");
                process->pid = 0;
            }
        } else if (process == processes && *stop >= 0
                   && (process->calls == *stop || call->number == SYS_exit_group)) {
            end();
            *stop = -1;
        }
        break;
    }
}

int main(int count, char **arguments) {
    if (count < 4) { fprintf(stderr, "layout trace|CALL OUTPUT COMMAND...\n"); return 2; }
    traces = strcmp(arguments[1], "trace") == 0;
    long stop = traces ? -1 : atol(arguments[1]);
    out = fopen(arguments[2], "w");
    if (!out) { perror(arguments[2]); return 2; }
    pid_t program = fork();
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
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC
                   | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK;
    ptrace(PTRACE_SETOPTIONS, program, 0, options);
    threads[slot_of(program)].process = enter(program);
    begin(processes);
    int exit_status = 0;
    ptrace(PTRACE_SYSCALL, program, 0, 0);
    for (;;) {
        pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0) break;
        int slot = slot_of(thread);
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            threads[slot].thread = 0;
            if (thread != program) continue;
            exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
            break;
        }
        if (!threads[slot].process) { threads[slot].call.before = STOPPED; continue; }
        int signal = WSTOPSIG(status), event = status >> 16;
        if (signal == (SIGTRAP | 0x80)) {
            struct ptrace_syscall_info info;
            ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info);
            if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
                entered(slot, &info, &stop);
            } else if (info.op == PTRACE_SYSCALL_INFO_EXIT) {
                struct call *call = &threads[slot].call;
                struct process *process = threads[slot].process;
                if (traces) done(process, call, info.exit.rval);
                if (call->number == SYS_brk) process->last_break = info.exit.rval;
            }
            signal = 0;
        } else if (signal == SIGTRAP && event != 0) {
            if (event == PTRACE_EVENT_EXEC) begin(threads[slot].process);
            else made(slot, event);
            signal = 0;
        } else if (signal == SIGTRAP || signal == SIGSTOP) {
            signal = 0;
        }
        ptrace(PTRACE_SYSCALL, thread, 0, signal);
    }
    fclose(out);
    return exit_status;
}
