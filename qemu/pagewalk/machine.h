/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Functions that QEMU calls in whole machines of all instruction sets; only those for x86-64 have a listener. */
#ifndef PAGEWALK_MACHINE_H
#define PAGEWALK_MACHINE_H

/* Another virtual CPU may run next on this thread. */
void pagewalk_pauses(CPUState *cpu);

#ifdef COMPILING_PER_TARGET
#if !defined(CONFIG_USER_ONLY) && defined(TARGET_X86_64)
/* The current block is left after `done` of its instructions. */
void pagewalk_leaves(CPUState *cpu, unsigned done);

/* One bit for each watched page of memory; NULL while none has been watched. */
extern unsigned long *pagewalk_watched;
#define PAGEWALK_WATCHED_PAGES (1ul << 24)

/* Whether stores to the page with this physical address are watched, so that they take QEMU's slow path. */
static inline bool pagewalk_is_watched(uint64_t physical)
{
    uint64_t page = physical >> 12;

    return unlikely(pagewalk_watched) && page < PAGEWALK_WATCHED_PAGES
        && pagewalk_watched[page / BITS_PER_LONG] >> page % BITS_PER_LONG & 1;
}

void pagewalk_report_store(CPUState *cpu, uint64_t physical, unsigned bytes);

/* A store of `bytes` bytes at the virtual address `address` has been made, to a page of this physical address. */
static inline void pagewalk_stores(CPUState *cpu, uint64_t page, uint64_t address, unsigned bytes)
{
    if (unlikely(pagewalk_is_watched(page))) {
        pagewalk_report_store(cpu, (page & ~0xfffull) | (address & 0xfff), bytes);
    }
}
#else
static inline bool pagewalk_is_watched(uint64_t physical)
{
    return false;
}

static inline void pagewalk_stores(CPUState *cpu, uint64_t page, uint64_t address, unsigned bytes)
{
}

static inline void pagewalk_leaves(CPUState *cpu, unsigned done)
{
}
#endif
#endif

#endif
