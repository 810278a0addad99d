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
#else
static inline void pagewalk_leaves(CPUState *cpu, unsigned done)
{
}
#endif
#endif

#endif
