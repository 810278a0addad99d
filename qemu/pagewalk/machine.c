/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Functions for the recorder (crates/recorder/src/machine.rs) of a whole machine, and the plugin `pagewalk` of
 * qemu-system. Functions that are only for programs do nothing here.
 */
#include "qemu/osdep.h"
#include "cpu.h"
#include "exec/exec-all.h"
#include "exec/address-spaces.h"
#include "exec/cputlb.h"
#include "exec/memopidx.h"
#include "exec/memory.h"
#include "exec/tb-flush.h"
#include "hw/core/cpu.h"
#include "qemu/error-report.h"
#include "qemu/qemu-plugin.h"
#include "system/runstate.h"
#include "pagewalk/hooks.h"
#include "pagewalk/machine.h"
#include "pagewalk/recorder.h"

bool pagewalk_links_pages;
bool pagewalk_keeps_addresses;
unsigned long *pagewalk_watched;

/* Reads guest memory by its virtual address, as a debugger does; false if not all of it is mapped. */
bool pagewalk_read(unsigned int vcpu, uint64_t address, void *to, size_t bytes)
{
    CPUState *cpu = qemu_get_cpu(vcpu);

    return cpu && cpu_memory_rw_debug(cpu, address, to, bytes, false) == 0;
}

/* The physical address of a virtual one; UINT64_MAX if it is not mapped. */
uint64_t pagewalk_physical(unsigned int vcpu, uint64_t address)
{
    CPUState *cpu = qemu_get_cpu(vcpu);
    hwaddr page = cpu ? cpu_get_phys_page_debug(cpu, address & TARGET_PAGE_MASK) : -1;

    return page == -1 ? UINT64_MAX : page | (address & ~TARGET_PAGE_MASK);
}

/*
 * The translation in QEMU's own TLB for an access that has just been made: the physical address of its first byte, and
 * the logarithm of the page's size. False if the TLB has no entry for it. `about` is QEMU's description of the access.
 */
bool pagewalk_lookup(unsigned int vcpu, uint32_t about, uint64_t address, uint64_t *physical, uint8_t *size_log)
{
    CPUTLB *all = &qemu_get_cpu(vcpu)->neg.tlb;
    unsigned int tlb = get_mmuidx(about);
    uint64_t page = address & TARGET_PAGE_MASK;
    uint64_t at = (page >> TARGET_PAGE_BITS) & (all->f[tlb].mask >> CPU_TLB_ENTRY_BITS);
    uint64_t tag = all->f[tlb].table[at].addr_idx[qemu_plugin_mem_is_store(about) ? MMU_DATA_STORE : MMU_DATA_LOAD];
    const CPUTLBEntryFull *full = &all->d[tlb].fulltlb[at];

    if ((tag & (TARGET_PAGE_MASK | TLB_INVALID_MASK)) != page) {
        return false;
    }
    *physical = full->phys_addr | (address & ~TARGET_PAGE_MASK);
    *size_log = full->lg_page_size;
    return true;
}

/* A general register (QEMU's number of it), and CR0 to CR4. */
uint64_t pagewalk_register(unsigned int vcpu, int number)
{
    CPUState *cpu = qemu_get_cpu(vcpu);

    return cpu ? cpu_env(cpu)->regs[number] : 0;
}

/* The address of the kernel's data for this processor: the base of GS while the kernel runs. */
uint64_t pagewalk_kernel_gs(unsigned int vcpu)
{
    CPUState *cpu = qemu_get_cpu(vcpu);
    CPUX86State *env = cpu ? cpu_env(cpu) : NULL;

    return !env ? 0 : (env->hflags & HF_CPL_MASK) == 3 ? env->kernelgsbase : env->segs[R_GS].base;
}

uint64_t pagewalk_control(unsigned int vcpu, int number)
{
    CPUState *cpu = qemu_get_cpu(vcpu);

    return cpu ? cpu_env(cpu)->cr[number] : 0;
}

/* The region of memory with this page, and the page's offset in it; NULL if it is not memory. */
static MemoryRegion *memory_of(uint64_t page, hwaddr *offset)
{
    hwaddr bytes = TARGET_PAGE_SIZE;
    MemoryRegion *region;

    region = address_space_translate(&address_space_memory, page, offset, &bytes, false, MEMTXATTRS_UNSPECIFIED);
    return memory_region_is_ram(region) && bytes == TARGET_PAGE_SIZE ? region : NULL;
}

const uint64_t *pagewalk_memory(uint64_t page)
{
    hwaddr offset;
    MemoryRegion *region;

    RCU_READ_LOCK_GUARD();
    region = memory_of(page, &offset);
    return region ? (void *)((char *)memory_region_get_ram_ptr(region) + offset) : NULL;
}

void pagewalk_watch(uint64_t page, bool on)
{
    uint64_t number = page >> TARGET_PAGE_BITS;
    hwaddr offset;
    MemoryRegion *region;

    if (number >= PAGEWALK_WATCHED_PAGES) {
        return;
    }
    if (!pagewalk_watched) {
        pagewalk_watched = g_new0(unsigned long, PAGEWALK_WATCHED_PAGES / BITS_PER_LONG);
    }
    if (!on) {
        clear_bit(number, pagewalk_watched);
        return;
    }
    set_bit(number, pagewalk_watched);
    RCU_READ_LOCK_GUARD();
    region = memory_of(page, &offset);
    if (region) {
        /* Entries of the TLBs with the right to store to it take the slow path from now on. */
        tlb_reset_dirty_range_all(memory_region_get_ram_addr(region) + offset, TARGET_PAGE_SIZE);
    }
}

bool pagewalk_root(unsigned int vcpu, uint64_t *root, uint8_t *levels)
{
    CPUState *cpu = qemu_get_cpu(vcpu);
    CPUX86State *env = cpu ? cpu_env(cpu) : NULL;

    if (!env || !(env->cr[0] & CR0_PG_MASK) || !(env->hflags & HF_LMA_MASK)) {
        return false;
    }
    *root = env->cr[3] & 0xffffffffff000ull;
    *levels = env->cr[4] & CR4_LA57_MASK ? 5 : 4;
    return true;
}

static void forget_all(CPUState *self, run_on_cpu_data data)
{
    CPUState *cpu;

    CPU_FOREACH(cpu) {
        tlb_flush(cpu);
    }
    tb_flush(self);
}

static void forget_code(CPUState *self, run_on_cpu_data data)
{
    tb_flush(self);
}

/*
 * Called before recording begins. Drops all translations that were not reported from the TLB of every virtual CPU, and
 * discards all translated code. Both happen after the current block.
 */
void pagewalk_begin(unsigned int vcpu)
{
    async_safe_run_on_cpu(qemu_get_cpu(vcpu), forget_all, RUN_ON_CPU_NULL);
}

/* Stops the machine after the current block, for a snapshot. */
void pagewalk_pause(unsigned int vcpu)
{
    vm_stop(RUN_STATE_PAUSED);
}

void pagewalk_flush(unsigned int vcpu, bool now)
{
    CPUState *cpu = qemu_get_cpu(vcpu);

    if (cpu) {
        async_safe_run_on_cpu(cpu, forget_code, RUN_ON_CPU_NULL);
    }
}

uintptr_t pagewalk_guest_base(void)
{
    return 0;
}

const char *pagewalk_program(void)
{
    return NULL;
}

void pagewalk_regions(void *context, int each(void *, uint64_t, uint64_t, uint64_t))
{
}

void pagewalk_count(const PagewalkBlock *block, const PagewalkCount *count)
{
    g_assert_not_reached();
}

void pagewalk_link(const PagewalkBlock *block)
{
}

void pagewalk_forget_links(void)
{
}

/* -plugin pagewalk,check=FILE. An error in its arguments ends QEMU with one line. */
int pagewalk_install(uint64_t id, const void *about, int argc, char **argv)
{
    const qemu_info_t *info = about;
    const char *path = NULL;

    for (int i = 0; i < argc; i++) {
        if (!g_str_has_prefix(argv[i], "check=")) {
            error_report("-plugin pagewalk does not know %s: it knows check=FILE and session=PATH", argv[i]);
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
