/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Calls from QEMU's code for whole machines of all instruction sets; they are heard in those for x86-64. */
#ifndef PAGEWALK_MACHINE_H
#define PAGEWALK_MACHINE_H

/* Another virtual CPU may run next on this thread. */
void pagewalk_pauses(CPUState *cpu);

#ifdef COMPILING_PER_TARGET
#if !defined(CONFIG_USER_ONLY) && defined(TARGET_X86_64)
/* The block that runs is left after `done` of its instructions. */
void pagewalk_leaves(CPUState *cpu, unsigned done);
#else
static inline void pagewalk_leaves(CPUState *cpu, unsigned done)
{
}
#endif
#endif

#endif
