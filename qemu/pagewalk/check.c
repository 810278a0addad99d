/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Checks the events of system.h: against QEMU, against the machine's memory, and against each other.
 *
 *   a fill       its entries: a walk by the rules of Intel's manual (volume 3, "Paging"), from CR3, gives
 *                these addresses of entries, this physical address, page size and rights
 *                memory: holds the entries' values, with the accessed and dirty bits set
 *                QEMU's walk for debuggers: gives this physical address
 *                QEMU's TLB: holds this physical address, page size and rights
 *                CR0, CR3 and CR4: have the values that were reported last
 *                earlier fills: a page that has another frame now was invalidated in between
 *   a fault      its entries as above, up to the one that ends the walk; its error code follows from them
 *                next comes an interrupt with its vector, error code and address
 *   a page fault that is delivered was reported as a fault
 *
 * If several virtual CPUs run at the same time, another one may change an entry after the walk. The
 * present contents of memory then prove nothing, so memory and QEMU's walk for debuggers are not checked.
 */
#include "qemu/osdep.h"
#include "cpu.h"
#include "hw/core/cpu.h"
#include "qemu/qemu-plugin.h"
#include "pagewalk/hooks.h"

/* Bits of page-table entries and of error codes, by the manual. */
#define PRESENT (1ull << 0)
#define WRITABLE (1ull << 1)
#define USER (1ull << 2)
#define ACCESSED (1ull << 5)
#define DIRTY (1ull << 6)
#define LARGE (1ull << 7)
#define NO_EXECUTE (1ull << 63)
#define FRAME 0x000ffffffffff000ull
#define KEY_SHIFT 59
#define ERROR_PRESENT 1
#define ERROR_WRITE 2
#define ERROR_USER 4
#define ERROR_RESERVED 8
#define ERROR_FETCH 16
#define ERROR_KEY 32
#define PAGE_FAULT 14
#define DOUBLE_FAULT 8

/* The page sizes, by their logarithms. */
static const unsigned shifts[] = { 12, 21, 22, 30 };
/* The number of translations that are kept for each virtual CPU: a power of two. */
#define REMEMBERED (1 << 15)
/* The most differences that are printed. */
#define PRINTED 20

/* A translation that was reported and has not been invalidated since. */
typedef struct Remembered {
    uint64_t page;
    uint64_t frame;
    uint32_t shift;
    uint32_t generation;
} Remembered;

typedef struct Vcpu {
    bool is_faulting;
    PagewalkFault fault;
    /* The values of CR0, CR3 and CR4 that were reported last. */
    bool is_control_known[5];
    uint64_t control[5];
    uint32_t generation;
    Remembered remembered[REMEMBERED];
    /* Numbers of events. */
    uint64_t fills[ARRAY_SIZE(shifts)];
    uint64_t accesses[3];
    uint64_t by_user;
    uint64_t unpaged;
    uint64_t not_walked;
    uint64_t entries;
    uint64_t faults;
    uint64_t interrupts[3];
    uint64_t controls[5];
    uint64_t pages_invalidated;
    uint64_t flushes;
    /* Numbers of comparisons. */
    uint64_t in_memory;
    uint64_t in_walk;
    uint64_t in_tlb;
    uint64_t differences;
} Vcpu;

static struct {
    FILE *file;
    Vcpu *vcpus;
    int count;
    unsigned printed;
} check;

static G_GNUC_PRINTF(4, 5) void differ(
    Vcpu *own, const char *what, uint64_t address, const char *format, ...)
{
    g_autofree char *text = NULL;
    va_list arguments;

    own->differences++;
    if (qatomic_read(&check.printed) >= PRINTED || qatomic_fetch_inc(&check.printed) >= PRINTED) {
        return;
    }
    va_start(arguments, format);
    text = g_strdup_vprintf(format, arguments);
    va_end(arguments);
    fprintf(stderr, "pagewalk: processor %td, %s at 0x%" PRIx64 ": %s\n", own - check.vcpus, what, address, text);
}

/* One virtual CPU runs at a time: no other one changes an entry after a walk. */
static bool is_alone(void)
{
    return check.count == 1 || !qemu_tcg_mttcg_enabled();
}

/* --- the walk ------------------------------------------------------------------------------------ */

/* The result of an access according to the manual, for the entries that were read. */
typedef struct Answer {
    uint64_t physical;
    unsigned shift;
    unsigned rights;
    /* Whether the walk ends early because there is no translation. */
    bool is_absent;
    bool is_key;
    /* What is wrong with the entries, as text. */
    const char *wrong;
} Answer;

static bool denies_user_pages(CPUX86State *env)
{
    bool is_kernel = (env->hflags & HF_CPL_MASK) < 3;

    return env->cr[4] & CR4_SMAP_MASK && !(is_kernel && env->eflags & AC_MASK);
}

static unsigned rights_of(
    CPUX86State *env, bool is_user, bool of_user, bool writable, bool executable, uint64_t leaf, bool *is_key)
{
    unsigned rights = 0, key = leaf >> KEY_SHIFT & 15;
    bool has_keys = env->cr[4] & (of_user ? CR4_PKE_MASK : CR4_PKS_MASK);
    uint32_t keys = !has_keys ? 0 : of_user ? env->pkru : env->pkrs;
    bool write_protects = is_user || env->cr[0] & CR0_WP_MASK;
    unsigned permitted = PAGEWALK_READ | PAGEWALK_WRITE | PAGEWALK_EXECUTE;

    if (is_user && !of_user) {
        return 0;
    }
    if (is_user || !of_user || !denies_user_pages(env)) {
        rights |= PAGEWALK_READ | (writable || !write_protects ? PAGEWALK_WRITE : 0);
    }
    if (executable && (is_user || !of_user || !(env->cr[4] & CR4_SMEP_MASK))) {
        rights |= PAGEWALK_EXECUTE;
    }
    if (keys >> key * 2 & 1) {
        permitted = PAGEWALK_EXECUTE;
    } else if (keys >> key * 2 & 2 && write_protects) {
        permitted &= ~PAGEWALK_WRITE;
    }
    *is_key = (rights & ~permitted) != 0;
    return rights & permitted;
}

/* The walk in 4-level and 5-level paging according to the manual. */
static Answer walk(CPUX86State *env, const PagewalkWalk *given, uint64_t address, bool is_user)
{
    Answer answer = { };
    unsigned level = env->cr[4] & CR4_LA57_MASK ? 5 : 4;
    uint64_t table = env->cr[3] & FRAME, value = 0;
    bool of_user = true, writable = true, executable = true;

    for (unsigned i = 0;; i++, level--) {
        unsigned shift = 3 + 9 * level;
        if (i == given->count) {
            answer.wrong = "an entry is missing";
            return answer;
        }
        if (given->entries[i].address != table + (address >> shift & 511) * 8) {
            answer.wrong = "an entry is elsewhere";
            return answer;
        }
        value = given->entries[i].value;
        answer.shift = shift;
        if (!(value & PRESENT)) {
            answer.is_absent = true;
            answer.wrong = i + 1 == given->count ? NULL : "there is an entry too many";
            return answer;
        }
        of_user &= (value & USER) != 0;
        writable &= (value & WRITABLE) != 0;
        executable &= !(value & NO_EXECUTE);
        if (level == 1 || (level <= 3 && value & LARGE)) {
            answer.wrong = i + 1 == given->count ? NULL : "there is an entry too many";
            break;
        }
        table = value & FRAME;
    }
    uint64_t below = (1ull << answer.shift) - 1;
    answer.physical = (value & FRAME & ~below) | (address & below);
    answer.rights = rights_of(env, is_user, of_user, writable, executable, value, &answer.is_key);
    return answer;
}

static bool is_long(CPUX86State *env)
{
    return env->cr[0] & CR0_PG_MASK && env->hflags & HF_LMA_MASK;
}

/* --- fills --------------------------------------------------------------------------------------- */

static void check_entries(Vcpu *own, CPUX86State *env, const PagewalkFill *fill)
{
    Answer answer = walk(env, fill->walk, fill->address, fill->is_user);
    bool is_store = fill->access == PAGEWALK_STORE;
    uint64_t leaf;

    if (answer.wrong || answer.is_absent) {
        differ(own, "fill", fill->address, "%s", answer.wrong ?: "the page is not present");
        return;
    }
    if (fill->physical != answer.physical) {
        differ(own, "fill", fill->address, "physical address 0x%" PRIx64 ", by its entries 0x%" PRIx64,
               fill->physical, answer.physical);
    }
    if (fill->bytes != 1ull << answer.shift) {
        differ(own, "fill", fill->address, "a page of %" PRIu64 " bytes, by its entries %llu",
               fill->bytes, 1ull << answer.shift);
    }
    leaf = fill->walk->entries[fill->walk->count - 1].value;
    if (!is_store && !(leaf & DIRTY)) {
        answer.rights &= ~PAGEWALK_WRITE;
    }
    if (fill->rights != answer.rights) {
        differ(own, "fill", fill->address, "rights %d, by its entries %d", fill->rights, answer.rights);
    }
}

static void check_memory(Vcpu *own, CPUX86State *env, const PagewalkFill *fill)
{
    for (unsigned i = 0; i < fill->walk->count; i++) {
        const PagewalkEntry *entry = &fill->walk->entries[i];
        bool is_written = fill->access == PAGEWALK_STORE && i + 1 == fill->walk->count;
        uint64_t value = entry->value | ACCESSED | (is_written ? DIRTY : 0);
        uint64_t found = x86_ldq_phys(env_cpu(env), entry->address);

        own->in_memory++;
        if (found != value) {
            differ(own, "fill", fill->address, "the entry at 0x%" PRIx64 " should be 0x%" PRIx64 ", and is 0x%" PRIx64,
                   entry->address, value, found);
        }
    }
}

static void check_walk(Vcpu *own, CPUX86State *env, const PagewalkFill *fill)
{
    MemTxAttrs attributes;
    vaddr page = fill->address & TARGET_PAGE_MASK;
    hwaddr found = cpu_get_phys_page_attrs_debug(env_cpu(env), page, &attributes);

    own->in_walk++;
    if (found != (fill->physical & TARGET_PAGE_MASK)) {
        differ(own, "fill", fill->address, "physical address 0x%" PRIx64 ", by QEMU's walk for debuggers 0x%" PRIx64,
               fill->physical, (uint64_t)found);
    }
}

/* Reads QEMU's TLB directly: a probe for a store would mark the page as written. */
static void check_tlb(Vcpu *own, CPUX86State *env, const PagewalkFill *fill)
{
    CPUTLB *tlb = &env_cpu(env)->neg.tlb;
    uint64_t page = fill->address & TARGET_PAGE_MASK;
    uint64_t at = (page >> TARGET_PAGE_BITS) & (tlb->f[fill->tlb].mask >> CPU_TLB_ENTRY_BITS);
    uint64_t tag = tlb->f[fill->tlb].table[at].addr_idx[fill->access];
    const CPUTLBEntryFull *full = &tlb->d[fill->tlb].fulltlb[at];

    own->in_tlb++;
    if ((tag & (TARGET_PAGE_MASK | TLB_INVALID_MASK)) != page) {
        differ(own, "fill", fill->address, "QEMU's TLB does not have it");
        return;
    }
    if (full->phys_addr != (fill->physical & TARGET_PAGE_MASK) || 1ull << full->lg_page_size != fill->bytes
        || full->prot != fill->rights) {
        differ(own, "fill", fill->address,
               "0x%" PRIx64 ", %" PRIu64 " bytes, rights %d; in QEMU's TLB 0x%" PRIx64 ", %llu, %d",
               fill->physical, fill->bytes, fill->rights, (uint64_t)full->phys_addr, 1ull << full->lg_page_size,
               full->prot);
    }
}

static void check_controls(Vcpu *own, CPUX86State *env, const PagewalkFill *fill)
{
    static const int numbers[] = { 0, 3, 4 };

    for (unsigned i = 0; i < ARRAY_SIZE(numbers); i++) {
        int number = numbers[i];
        /* A reset sets CR3 without a write; CR3 has no meaning before paging is on. */
        if (number == 3 && !(env->cr[0] & CR0_PG_MASK)) {
            continue;
        }
        if (!own->is_control_known[number] || own->control[number] != env->cr[number]) {
            differ(own, "fill", fill->address, "CR%d is 0x%" PRIx64 ", and was reported as 0x%" PRIx64, number,
                   (uint64_t)env->cr[number], own->control[number]);
        }
    }
}

/* The slot of a translation among those that are kept. */
static Remembered *place_of(Vcpu *own, uint64_t page, unsigned shift)
{
    uint64_t hash = ((page >> shift) * 0x9e3779b97f4a7c15ull + shift) * 0xd6e8feb86659fd93ull;

    return &own->remembered[hash >> 32 & (REMEMBERED - 1)];
}

static Remembered *remembered(Vcpu *own, uint64_t address, unsigned shift)
{
    uint64_t page = address >> shift << shift;
    Remembered *place = place_of(own, page, shift);
    bool is_it = place->generation == own->generation && place->page == page && place->shift == shift;

    return is_it ? place : NULL;
}

static void check_before(Vcpu *own, const PagewalkFill *fill)
{
    unsigned shift = ctz64(fill->bytes);
    uint64_t page = fill->address >> shift << shift;

    for (unsigned i = 0; i < ARRAY_SIZE(shifts); i++) {
        Remembered *before = remembered(own, fill->address, shifts[i]);
        uint64_t below = (1ull << shifts[i]) - 1;
        if (before && before->frame + (fill->address & below) != fill->physical) {
            differ(own, "fill", fill->address, "physical address 0x%" PRIx64 ", before 0x%" PRIx64
                   ", and no invalidation was reported", fill->physical, before->frame + (fill->address & below));
        }
    }
    *place_of(own, page, shift) = (Remembered) {
        .page = page,
        .frame = fill->physical >> shift << shift,
        .shift = shift,
        .generation = own->generation,
    };
}

static void on_fill(unsigned vcpu, const PagewalkFill *fill)
{
    Vcpu *own = &check.vcpus[vcpu];
    CPUX86State *env = cpu_env(current_cpu);

    for (unsigned i = 0; i < ARRAY_SIZE(shifts); i++) {
        own->fills[i] += fill->bytes == 1ull << shifts[i];
    }
    own->accesses[fill->access]++;
    own->by_user += fill->is_user;
    own->entries += fill->walk->count;
    if (own->is_faulting) {
        differ(own, "fill", fill->address, "the fault at 0x%" PRIx64 " was not followed by an interrupt",
               own->fault.address);
        own->is_faulting = false;
    }
    check_controls(own, env, fill);
    check_before(own, fill);
    check_tlb(own, env, fill);
    if (is_alone()) {
        check_walk(own, env, fill);
    }
    if (!(env->cr[0] & CR0_PG_MASK)) {
        own->unpaged++;
        if (fill->walk->count || fill->physical != (fill->address & x86_get_a20_mask(env))) {
            differ(own, "fill", fill->address, "physical address 0x%" PRIx64 " though paging is off", fill->physical);
        }
    } else if (is_long(env) && !fill->is_nested) {
        check_entries(own, env, fill);
        if (is_alone()) {
            check_memory(own, env, fill);
        }
    } else {
        own->not_walked++;
    }
}

/* --- faults and the rest ------------------------------------------------------------------------- */

static void check_fault(Vcpu *own, CPUX86State *env, const PagewalkFault *fault)
{
    static const unsigned needed[] = { PAGEWALK_READ, PAGEWALK_WRITE, PAGEWALK_EXECUTE };
    Answer answer;
    uint32_t error = fault->is_user ? ERROR_USER : 0;

    if (fault->vector != PAGE_FAULT) {
        int unused = env->cr[4] & CR4_LA57_MASK ? 7 : 16;
        if ((int64_t)(fault->address << unused) >> unused == fault->address) {
            differ(own, "fault", fault->address, "vector %d for a canonical address", fault->vector);
        }
        return;
    }
    if (fault->error & ERROR_RESERVED) {
        return;
    }
    answer = walk(env, fault->walk, fault->address, fault->is_user);
    if (answer.wrong) {
        differ(own, "fault", fault->address, "%s", answer.wrong);
        return;
    }
    if (fault->access == PAGEWALK_STORE) {
        error |= ERROR_WRITE;
    } else if (fault->access == PAGEWALK_FETCH && (env->efer & MSR_EFER_NXE || env->cr[4] & CR4_SMEP_MASK)) {
        error |= ERROR_FETCH;
    }
    if (!answer.is_absent) {
        error |= ERROR_PRESENT;
        if (answer.rights & needed[fault->access]) {
            differ(own, "fault", fault->address, "its entries permit it: rights %d", answer.rights);
            return;
        }
        error |= fault->error & ERROR_KEY && answer.is_key ? ERROR_KEY : 0;
    }
    if (fault->error != error) {
        differ(own, "fault", fault->address, "error code 0x%x, by its entries 0x%x", fault->error, error);
    }
}

static void on_fault(unsigned vcpu, const PagewalkFault *fault)
{
    Vcpu *own = &check.vcpus[vcpu];
    CPUX86State *env = cpu_env(current_cpu);

    own->faults++;
    if (is_long(env) && !fault->is_nested) {
        check_fault(own, env, fault);
    }
    own->fault = *fault;
    own->fault.walk = NULL;
    own->is_faulting = !fault->is_nested;
}

static void on_interrupt(unsigned vcpu, const PagewalkInterrupt *interrupt)
{
    Vcpu *own = &check.vcpus[vcpu];
    bool is_exception = interrupt->origin == PAGEWALK_EXCEPTION;
    bool is_nested = cpu_env(current_cpu)->hflags & HF_GUEST_MASK;

    own->interrupts[interrupt->origin]++;
    if (!own->is_faulting) {
        if (is_exception && interrupt->vector == PAGE_FAULT && !is_nested) {
            differ(own, "page fault", interrupt->address, "it was not reported as a fault");
        }
        return;
    }
    own->is_faulting = false;
    if (is_exception && interrupt->vector == DOUBLE_FAULT) {
        return;
    }
    if (!is_exception || interrupt->vector != own->fault.vector || interrupt->error != own->fault.error
        || (interrupt->vector == PAGE_FAULT && interrupt->address != own->fault.address)) {
        differ(own, "fault", own->fault.address, "vector %d, error code 0x%x; interrupt %d with 0x%x at 0x%" PRIx64,
               own->fault.vector, own->fault.error, interrupt->vector, interrupt->error, interrupt->address);
    }
}

static void on_control(unsigned vcpu, const PagewalkControl *control)
{
    Vcpu *own = &check.vcpus[vcpu];

    own->controls[control->number]++;
    own->is_control_known[control->number] = true;
    own->control[control->number] = control->value;
}

static void on_invalidation(unsigned vcpu, const PagewalkInvalidation *invalidation)
{
    Vcpu *own = &check.vcpus[vcpu];

    if (invalidation->is_all) {
        own->flushes++;
        own->generation++;
        return;
    }
    own->pages_invalidated++;
    for (unsigned i = 0; i < ARRAY_SIZE(shifts); i++) {
        Remembered *place = remembered(own, invalidation->address, shifts[i]);
        if (place) {
            place->generation = 0;
        }
    }
}

/* --- the result ---------------------------------------------------------------------------------- */

static void write_counts(qemu_plugin_id_t id, void *unused)
{
    static const struct {
        const char *name;
        size_t offset;
    } counts[] = {
#define COUNT(name, field) { name, offsetof(Vcpu, field) }
        COUNT("pages of 4K", fills[0]), COUNT("pages of 2M", fills[1]), COUNT("pages of 4M", fills[2]),
        COUNT("pages of 1G", fills[3]), COUNT("loads", accesses[PAGEWALK_LOAD]),
        COUNT("stores", accesses[PAGEWALK_STORE]), COUNT("fetches", accesses[PAGEWALK_FETCH]),
        COUNT("by user", by_user), COUNT("without paging", unpaged), COUNT("in other modes", not_walked),
        COUNT("entries", entries), COUNT("faults", faults), COUNT("exceptions", interrupts[PAGEWALK_EXCEPTION]),
        COUNT("software interrupts", interrupts[PAGEWALK_INSTRUCTION]),
        COUNT("interrupts", interrupts[PAGEWALK_DEVICE]), COUNT("writes of CR0", controls[0]),
        COUNT("writes of CR3", controls[3]), COUNT("writes of CR4", controls[4]),
        COUNT("pages invalidated", pages_invalidated), COUNT("flushes", flushes),
        COUNT("entries compared with memory", in_memory), COUNT("compared with QEMU's walk", in_walk),
        COUNT("compared with QEMU's TLB", in_tlb), COUNT("differences", differences),
#undef COUNT
    };
    uint64_t fills = 0;

    for (int vcpu = 0; vcpu < check.count; vcpu++) {
        for (unsigned i = 0; i < ARRAY_SIZE(check.vcpus->accesses); i++) {
            fills += check.vcpus[vcpu].accesses[i];
        }
    }
    fprintf(check.file, "{\n  \"fills\": %" PRIu64, fills);
    for (unsigned i = 0; i < ARRAY_SIZE(counts); i++) {
        uint64_t sum = 0;
        for (int vcpu = 0; vcpu < check.count; vcpu++) {
            sum += *(uint64_t *)((char *)&check.vcpus[vcpu] + counts[i].offset);
        }
        fprintf(check.file, ",\n  \"%s\": %" PRIu64, counts[i].name, sum);
    }
    fprintf(check.file, "\n}\n");
    fclose(check.file);
}

bool pagewalk_check(uint64_t id, const char *path, int vcpus)
{
    static const PagewalkListener listener = {
        .filled = on_fill,
        .faulted = on_fault,
        .interrupted = on_interrupt,
        .controlled = on_control,
        .invalidated = on_invalidation,
    };

    check.file = fopen(path, "w");
    if (!check.file) {
        return false;
    }
    check.count = vcpus;
    check.vcpus = g_new0(Vcpu, vcpus);
    for (int vcpu = 0; vcpu < vcpus; vcpu++) {
        check.vcpus[vcpu].generation = 1;
    }
    qemu_plugin_register_atexit_cb(id, write_counts, NULL);
    pagewalk_listen(&listener);
    return true;
}
