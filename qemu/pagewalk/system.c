/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Calls the listener of system.h. */
#include "qemu/osdep.h"
#include "cpu.h"
#include "pagewalk/hooks.h"
#include "pagewalk/machine.h"

const PagewalkListener *pagewalk_listener;

void pagewalk_listen(const PagewalkListener *listener)
{
    qatomic_store_release(&pagewalk_listener, listener);
}

static unsigned number_of(CPUX86State *env)
{
    return env_cpu(env)->cpu_index;
}

void pagewalk_report_fill(CPUX86State *env, const PagewalkFill *fill)
{
    const PagewalkListener *listener = qatomic_load_acquire(&pagewalk_listener);

    if (listener && listener->filled) {
        listener->filled(number_of(env), fill);
    }
}

void pagewalk_report_fault(CPUX86State *env, const PagewalkFault *fault)
{
    const PagewalkListener *listener = qatomic_load_acquire(&pagewalk_listener);

    if (listener && listener->faulted) {
        listener->faulted(number_of(env), fault);
    }
}

void pagewalk_report_interrupt(CPUX86State *env, int vector, int is_int, int error, int is_hw)
{
    const PagewalkListener *listener = qatomic_load_acquire(&pagewalk_listener);

    if (listener && listener->interrupted) {
        listener->interrupted(number_of(env), &(PagewalkInterrupt) {
            .pc = env->segs[R_CS].base + env->eip,
            .address = vector == EXCP0E_PAGE && !is_int && !is_hw ? env->cr[2] : 0,
            .error = error,
            .vector = vector,
            .origin = is_int ? PAGEWALK_INSTRUCTION : is_hw ? PAGEWALK_DEVICE : PAGEWALK_EXCEPTION,
            .is_user = (env->hflags & HF_CPL_MASK) == 3,
        });
    }
}

void pagewalk_report_control(CPUX86State *env, int number, uint64_t value)
{
    const PagewalkListener *listener = qatomic_load_acquire(&pagewalk_listener);

    if (listener && listener->controlled) {
        listener->controlled(number_of(env), &(PagewalkControl) {
            .old = env->cr[number],
            .value = value,
            .number = number,
        });
    }
}

void pagewalk_report_invalidation(CPUX86State *env, uint64_t address, bool is_all)
{
    const PagewalkListener *listener = qatomic_load_acquire(&pagewalk_listener);

    if (listener && listener->invalidated) {
        listener->invalidated(number_of(env), &(PagewalkInvalidation) {
            .address = address,
            .is_all = is_all,
        });
    }
}

void pagewalk_report_store(CPUState *cpu, uint64_t physical, unsigned bytes)
{
    const PagewalkListener *listener = qatomic_load_acquire(&pagewalk_listener);

    if (listener && listener->stored) {
        listener->stored(cpu->cpu_index, &(PagewalkStored) { .physical = physical, .bytes = bytes });
    }
}

void pagewalk_leaves(CPUState *cpu, unsigned done)
{
    const PagewalkListener *listener = qatomic_load_acquire(&pagewalk_listener);

    if (listener && listener->left) {
        listener->left(cpu->cpu_index, done);
    }
}

void pagewalk_pauses(CPUState *cpu)
{
    const PagewalkListener *listener = qatomic_load_acquire(&pagewalk_listener);

    if (listener && listener->paused) {
        listener->paused(cpu->cpu_index);
    }
}
