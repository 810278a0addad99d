/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Calls the listener of system.h, and is the plugin `pagewalk` of qemu-system. */
#include "qemu/osdep.h"
#include "cpu.h"
#include "qemu/error-report.h"
#include "qemu/qemu-plugin.h"
#include "pagewalk/hooks.h"

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

/* -plugin pagewalk,check=FILE. An error in its arguments ends QEMU with one line. */
QEMU_PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
    const char *path = NULL;

    for (int i = 0; i < argc; i++) {
        if (!g_str_has_prefix(argv[i], "check=")) {
            error_report("-plugin pagewalk does not know %s: it knows check=FILE", argv[i]);
            exit(1);
        }
        path = argv[i] + strlen("check=");
    }
    if (!path) {
        error_report("-plugin pagewalk needs check=FILE, the file for the counts of what it checks");
        exit(1);
    }
    if (!pagewalk_check(id, path, info->system.max_vcpus)) {
        error_report("-plugin pagewalk cannot write %s: %s", path, strerror(errno));
        exit(1);
    }
    return 0;
}
