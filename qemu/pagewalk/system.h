/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The events of address translation that qemu-system-x86_64 reports.
 *
 *   an access misses QEMU's TLB
 *     |   QEMU walks the page table
 *     +---- translation ----------------> filled
 *     +---- none, or not permitted -----> faulted, then interrupted with the same vector
 *   exception, INT n, interrupt --------> interrupted
 *   write of CR0, CR3 or CR4 -----------> controlled
 *   INVLPG, or a write that flushes ----> invalidated
 *
 * A listener is a table of functions, one for each kind of event. QEMU calls them on the thread of the virtual
 * CPU that has the event, in the order of its events. With -accel tcg,thread=single one virtual CPU runs at a
 * time. With thread=multi the functions may be called for several virtual CPUs at the same time. What a pointer
 * points to is valid until the function returns.
 *
 * QEMU's TLB is not a processor's TLB. It has other sizes; an entry covers 4 KiB, in a large page too; and every
 * write of CR3 flushes it, global pages included. QEMU also drops entries without an event, and fills them again
 * before they are used. So there are more fills than a processor has misses, and their number depends on the
 * host. This rule holds: take the fills that were reported for a virtual CPU since its last invalidation, with a
 * certain `tlb` and certain 4 KiB. The last one of them that has the right to an access translates that access.
 * QEMU looks an instruction fetch up when it translates or finds a block of code, not each time the block runs.
 *
 * Not reported: QEMU's own reads of page tables by physical address; the second stage of nested paging (SVM),
 * with its faults; writes of EFER; and WRPKRU, which changes rights. QEMU flushes its TLB for WRPKRU, a processor
 * does not. INVPCID and PCID do not exist in QEMU 10.0's translation.
 */
#ifndef PAGEWALK_SYSTEM_H
#define PAGEWALK_SYSTEM_H

#include <stdbool.h>
#include <stdint.h>

/* The kind of an access. */
enum { PAGEWALK_LOAD, PAGEWALK_STORE, PAGEWALK_FETCH };
/* Rights. */
enum { PAGEWALK_READ = 1, PAGEWALK_WRITE = 2, PAGEWALK_EXECUTE = 4 };
/* What caused an interrupt. */
enum { PAGEWALK_EXCEPTION, PAGEWALK_INSTRUCTION, PAGEWALK_DEVICE };

/* A page-table entry that a walk read. */
typedef struct PagewalkEntry {
    /* Its physical address. In a machine with nested paging this is the guest's physical address. */
    uint64_t address;
    /* Its value before the walk set the accessed and the dirty bit. */
    uint64_t value;
} PagewalkEntry;

/* The entries that a walk read, from the root. None where paging is off. */
typedef struct PagewalkWalk {
    uint32_t count;
    PagewalkEntry entries[5];
} PagewalkWalk;

/* An address was translated, and QEMU's TLB has the translation now. */
typedef struct PagewalkFill {
    /* The virtual address of the access, and the physical address of the same byte. */
    uint64_t address;
    uint64_t physical;
    /* The size of the page in bytes: 4 KiB, 2 MiB, 4 MiB or 1 GiB. */
    uint64_t bytes;
    const PagewalkWalk *walk;
    uint8_t access;
    /*
     * What this entry of the TLB permits, as a sum of rights. The right to write is missing while the page is
     * not dirty: the first store fills again.
     */
    uint8_t rights;
    /* Which of the virtual CPU's TLBs was filled: QEMU has one each for user and kernel, with and without SMAP. */
    uint8_t tlb;
    bool is_user;
    bool is_nested;
} PagewalkFill;

/* An address was not translated, or the access was not permitted. */
typedef struct PagewalkFault {
    uint64_t address;
    /* The walk's last entry is the one that ended it, unless the rights of all together did. */
    const PagewalkWalk *walk;
    /* The error code of the exception. */
    uint32_t error;
    /* 14, or 13 for an address that is not canonical. */
    uint8_t vector;
    uint8_t access;
    bool is_user;
    bool is_nested;
} PagewalkFault;

/* An exception or an interrupt begins to be delivered. */
typedef struct PagewalkInterrupt {
    /* The linear address of the instruction that is interrupted or that caused the exception. */
    uint64_t pc;
    /* CR2 for a page fault, otherwise 0. */
    uint64_t address;
    /* The error code; 0 for a vector without one. */
    uint32_t error;
    uint8_t vector;
    /* PAGEWALK_EXCEPTION, PAGEWALK_INSTRUCTION (INT n) or PAGEWALK_DEVICE. */
    uint8_t origin;
    bool is_user;
} PagewalkInterrupt;

/* CR0, CR3 or CR4 is written: its number, old and new value. */
typedef struct PagewalkControl {
    uint64_t old;
    uint64_t value;
    uint8_t number;
} PagewalkControl;

/* Translations are flushed: that of the page of `address`, or all of them. */
typedef struct PagewalkInvalidation {
    uint64_t address;
    bool is_all;
} PagewalkInvalidation;

/*
 * A store to a page of memory that is watched (pagewalk_watch) was made: the physical address of its first byte, and its
 * bytes. Stores of instructions that QEMU executes by its own C code through a host address (FXSAVE, for example) are
 * not reported, nor are those of devices and of page walks.
 */
typedef struct PagewalkStored {
    uint64_t physical;
    uint32_t bytes;
} PagewalkStored;

/* A function that is NULL is not called. */
typedef struct PagewalkListener {
    void (*filled)(unsigned int vcpu, const PagewalkFill *fill);
    void (*faulted)(unsigned int vcpu, const PagewalkFault *fault);
    void (*interrupted)(unsigned int vcpu, const PagewalkInterrupt *interrupt);
    void (*controlled)(unsigned int vcpu, const PagewalkControl *control);
    void (*invalidated)(unsigned int vcpu, const PagewalkInvalidation *invalidation);
    /* The block that runs is left after `done` of its instructions; the next one will run again, or has failed. */
    void (*left)(unsigned int vcpu, unsigned int done);
    /* With thread=single: another virtual CPU may run next. */
    void (*paused)(unsigned int vcpu);
    void (*stored)(unsigned int vcpu, const PagewalkStored *stored);
} PagewalkListener;

/* Sets the listener, in place of the one before; NULL for none. The table must stay as it is. */
void pagewalk_listen(const PagewalkListener *listener);

/*
 * Begins or ends to watch a page of memory: whether stores to it are reported. `page` is its physical address. Only
 * memory below 64 GiB can be watched.
 */
void pagewalk_watch(uint64_t page, bool on);

/* The contents of a page of the machine's memory by its physical address; NULL if there is none. */
const uint64_t *pagewalk_memory(uint64_t page);

/*
 * The physical address of the root of the page table that a virtual CPU uses, and the number of levels, 4 or 5. False
 * if paging is off, or its entries have 4 bytes or three levels.
 */
bool pagewalk_root(unsigned int vcpu, uint64_t *root, uint8_t *levels);

/*
 * Whether a block of code is translated for each virtual address that it has. QEMU otherwise uses the translation of
 * a page of code for all virtual addresses of that page. Set before the virtual CPUs are created.
 */
extern bool pagewalk_keeps_addresses;

/*
 * Checks all events of up to `vcpus` virtual CPUs. When QEMU ends, the plugin `id` writes the counts to the file
 * `path`. False, with errno, if that file cannot be opened.
 */
bool pagewalk_check(uint64_t id, const char *path, int vcpus);

#endif
