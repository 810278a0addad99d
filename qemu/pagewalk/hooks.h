/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The functions that QEMU calls at the places named in insertions.toml, for x86. Without a listener, a call costs a
 * load and a branch. An access that hits QEMU's TLB makes none of these calls.
 */
#ifndef PAGEWALK_HOOKS_H
#define PAGEWALK_HOOKS_H

#include "pagewalk/system.h"

#ifdef CONFIG_USER_ONLY

static inline void pagewalk_interrupts(CPUX86State *env, int vector, int is_int, int error, int is_hw)
{
}

static inline void pagewalk_controls(CPUX86State *env, int number, uint64_t value)
{
}

static inline void pagewalk_invalidates(CPUX86State *env, uint64_t address, bool is_all)
{
}

#else

extern const PagewalkListener *pagewalk_listener;

/* Called when a walk begins, or begins again because another CPU has changed an entry. */
static inline void pagewalk_walks(PagewalkWalk *walk)
{
    walk->count = 0;
}

/* Called when a walk reaches the entry at `address`. */
static inline void pagewalk_steps(PagewalkWalk *walk, uint64_t address)
{
    walk->entries[walk->count++] = (PagewalkEntry) { .address = address };
}

/* Called when the walk reads that entry, and again if another CPU has changed it. */
static inline uint64_t pagewalk_reads(PagewalkWalk *walk, uint64_t value)
{
    walk->entries[walk->count - 1].value = value;
    return value;
}

static inline bool pagewalk_is_reported(int mmu_idx)
{
    return qatomic_read(&pagewalk_listener) && mmu_idx != MMU_PHYS_IDX && mmu_idx != MMU_NESTED_IDX;
}

void pagewalk_report_fill(CPUX86State *env, const PagewalkFill *fill);
void pagewalk_report_fault(CPUX86State *env, const PagewalkFault *fault);
void pagewalk_report_interrupt(CPUX86State *env, int vector, int is_int, int error, int is_hw);
void pagewalk_report_control(CPUX86State *env, int number, uint64_t value);
void pagewalk_report_invalidation(CPUX86State *env, uint64_t address, bool is_all);

static inline void pagewalk_fills(
    CPUX86State *env, uint64_t address, int access, int mmu_idx, uint64_t physical, int rights,
    uint64_t bytes, const PagewalkWalk *walk)
{
    if (pagewalk_is_reported(mmu_idx)) {
        pagewalk_report_fill(env, &(PagewalkFill) {
            .address = address,
            .physical = physical,
            .bytes = bytes,
            .walk = walk,
            .access = access,
            .rights = rights,
            .tlb = mmu_idx,
            .is_user = is_mmu_index_user(mmu_idx),
            .is_nested = env->hflags2 & HF2_NPT_MASK,
        });
    }
}

static inline void pagewalk_faults(
    CPUX86State *env, uint64_t address, int access, int mmu_idx, int vector, int error,
    const PagewalkWalk *walk)
{
    if (pagewalk_is_reported(mmu_idx)) {
        pagewalk_report_fault(env, &(PagewalkFault) {
            .address = address,
            .walk = walk,
            .error = error,
            .vector = vector,
            .access = access,
            .is_user = is_mmu_index_user(mmu_idx),
            .is_nested = env->hflags2 & HF2_NPT_MASK,
        });
    }
}

static inline void pagewalk_interrupts(CPUX86State *env, int vector, int is_int, int error, int is_hw)
{
    if (qatomic_read(&pagewalk_listener)) {
        pagewalk_report_interrupt(env, vector, is_int, error, is_hw);
    }
}

static inline void pagewalk_controls(CPUX86State *env, int number, uint64_t value)
{
    if (qatomic_read(&pagewalk_listener)) {
        pagewalk_report_control(env, number, value);
    }
}

static inline void pagewalk_invalidates(CPUX86State *env, uint64_t address, bool is_all)
{
    if (qatomic_read(&pagewalk_listener)) {
        pagewalk_report_invalidation(env, address, is_all);
    }
}

#endif
#endif
