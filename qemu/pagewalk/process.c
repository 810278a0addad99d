/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Functions for the recorder of a process that runs a program, where the plugin interface has none. */
#include "qemu/osdep.h"
#include "cpu.h"
#include "qemu.h"
#include "exec/exec-all.h"
#include "exec/tb-flush.h"
#include "user-internals.h"
#include "user/page-protection.h"
#include "user-mmap.h"
#include "pagewalk/recorder.h"
#include "pagewalk/system.h"

/* The number that QEMU adds to a guest address to get the host address. */
uintptr_t pagewalk_guest_base(void)
{
    return guest_base;
}

/* The path of the program, for execve of /proc/self/exe. */
const char *pagewalk_program(void)
{
    return exec_path;
}

struct Regions {
    void *context;
    int (*each)(void *, uint64_t start, uint64_t end, uint64_t flags);
};

static int on_region(void *context, target_ulong start, target_ulong end, unsigned long flags)
{
    struct Regions *regions = context;

    return regions->each(regions->context, start, end, flags);
}

/* Calls `each` for every mapping of the guest, as long as it returns 0. */
void pagewalk_regions(void *context, int each(void *, uint64_t, uint64_t, uint64_t))
{
    struct Regions regions = { .context = context, .each = each };

    walk_memory_regions(&regions, on_region);
}

/*
 * Discards all translated code, so that blocks are translated and recorded again. In a callback of a
 * system call this may happen `now`, before the function returns: a thread in such a callback runs no
 * translated code.
 */
void pagewalk_flush(unsigned int vcpu, bool now)
{
    CPUState *cpu = qemu_get_cpu(vcpu);

    if (!cpu) {
        return;
    }
    if (now) {
        start_exclusive();
    }
    tb_flush(cpu);
    if (now) {
        end_exclusive();
    }
}

bool pagewalk_is_fatal(int signal)
{
    switch (signal) {
    case TARGET_SIGHUP:
    case TARGET_SIGINT:
    case TARGET_SIGQUIT:
    case TARGET_SIGILL:
    case TARGET_SIGTRAP:
    case TARGET_SIGABRT:
    case TARGET_SIGBUS:
    case TARGET_SIGFPE:
    case TARGET_SIGUSR1:
    case TARGET_SIGSEGV:
    case TARGET_SIGUSR2:
    case TARGET_SIGPIPE:
    case TARGET_SIGALRM:
    case TARGET_SIGTERM:
    case TARGET_SIGSTKFLT:
    case TARGET_SIGXCPU:
    case TARGET_SIGXFSZ:
    case TARGET_SIGVTALRM:
    case TARGET_SIGPROF:
    case TARGET_SIGIO:
    case TARGET_SIGPWR:
    case TARGET_SIGSYS:
        return true;
    default:
        return false;
    }
}

uint64_t pagewalk_reserve(uint64_t start, uint64_t size, uint64_t align)
{
    const int flags = MAP_ANONYMOUS | MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    const uint64_t end = PAGEWALK_PROGRAM - 1;
    target_ulong found;
    void *place;

    if (TARGET_ABI_BITS != 64 || start < PAGEWALK_MAPPINGS || start > end) {
        return 0;
    }
    found = page_find_range_empty(start, end, size, align);
    if (found == (target_ulong)-1) {
        found = page_find_range_empty(PAGEWALK_MAPPINGS, end, size, align);
    }
    if (found == (target_ulong)-1) {
        return 0;
    }
    place = g2h_untagged(found);
    if (mmap(place, size, PROT_NONE, flags, -1, 0) != place) {
        return 0;
    }
    if (start == mmap_next_start) {
        mmap_next_start = found + size;
    }
    return found;
}

void *pagewalk_mmap(void *place, size_t bytes, int rights, int flags, int file, off_t offset)
{
    abi_ulong start;
    void *mapped;
    int why;

    if (place || flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) {
        mapped = mmap(place, bytes, rights, flags, file, offset);
        if (mapped == place || mapped == MAP_FAILED || flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) {
            return mapped;
        }
        munmap(mapped, bytes);
    }
    start = mmap_find_vma(0, bytes, TARGET_PAGE_SIZE);
    if (start == (abi_ulong)-1) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    /* The memory is reserved at that address, and freed if it cannot be used. */
    place = g2h_untagged(start);
    mapped = mmap(place, bytes, rights, flags | MAP_FIXED, file, offset);
    if (mapped == MAP_FAILED) {
        why = errno;
        munmap(place, bytes);
        errno = why;
    }
    return mapped;
}

/* The remaining functions are for whole machines, which this QEMU does not run. */

int pagewalk_install(uint64_t id, const void *about, int argc, char **argv)
{
    return 1;
}

bool pagewalk_read(unsigned int vcpu, uint64_t address, void *to, size_t bytes)
{
    return false;
}

uint64_t pagewalk_physical(unsigned int vcpu, uint64_t address)
{
    return UINT64_MAX;
}

bool pagewalk_lookup(unsigned int vcpu, uint32_t about, uint64_t address, uint64_t *physical, uint8_t *size_log)
{
    return false;
}

const uint64_t *pagewalk_memory(uint64_t page)
{
    return NULL;
}

void pagewalk_watch(uint64_t page, bool on)
{
}

bool pagewalk_root(unsigned int vcpu, uint64_t *root, uint8_t *levels)
{
    return false;
}

uint64_t pagewalk_register(unsigned int vcpu, int number)
{
    return 0;
}

uint64_t pagewalk_kernel_gs(unsigned int vcpu)
{
    return 0;
}

uint64_t pagewalk_control(unsigned int vcpu, int number)
{
    return 0;
}

void pagewalk_begin(unsigned int vcpu)
{
}

void pagewalk_pause(unsigned int vcpu)
{
}

bool pagewalk_keeps_addresses;

void pagewalk_listen(const PagewalkListener *listener)
{
}
