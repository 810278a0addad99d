/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The interface between Pagewalk's recorder (crates/recorder, in Rust) and our files in QEMU.
 *
 *   QEMU translates a block
 *     |  qemu_plugin_tb_trans_cb                      the recorder's callback, as any plugin's
 *     v
 *   recorder ---- pagewalk_survey ---> block.c        what does the block access, and how?
 *            <--- PagewalkBlock -----
 *     it assigns a number to the block, and stores the block's description
 *            ---- pagewalk_write ----> block.c        puts stores into the block's list of operations
 *              or pagewalk_count ----> counted.c
 *            ---- pagewalk_link -----> links.c        gives an indirect jump direct exits
 *
 * For everything else the recorder uses QEMU's plugin interface. Layouts and numbers are those of
 * crates/ring and crates/recorder/src/inside.rs, where they are checked.
 */
#ifndef PAGEWALK_RECORDER_H
#define PAGEWALK_RECORDER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The most accesses of a block: ring::SPAN_ROOM. */
#define PAGEWALK_ROOM 128
/* The most instructions of a block: TCG_MAX_INSNS. */
#define PAGEWALK_INSTRUCTIONS 512
/* In PagewalkAccess.from: the address cannot be computed from another one, and is recorded. */
#define PAGEWALK_RECORDED UINT16_MAX

typedef struct PagewalkAccess {
    /* The distance from `from`: 0 is the block's start, 1 + n the recorded address with index n. */
    uint64_t distance;
    /* A ring::Tag. */
    uint16_t tag;
    uint16_t from;
} PagewalkAccess;

/* A block that is being translated. */
typedef struct PagewalkBlock {
    uint64_t pc;
    uint32_t bytes;
    uint32_t instructions;
    uint32_t accesses;
    /* Whether the block always makes all of its accesses, in order, unless a fault ends it. */
    bool is_fixed;
    /* Whether the block makes its accesses in order, but may be left by a branch before it has made all. */
    bool is_straight;
    /* Whether control flow joins before its first access. */
    bool is_behind;
    /* A bit for each instruction that calls helper functions which may access memory. */
    uint64_t calls[PAGEWALK_INSTRUCTIONS / 64];
    PagewalkAccess access[PAGEWALK_ROOM];
} PagewalkBlock;

typedef void PagewalkCallback(unsigned int vcpu, void *argument);

/* How a block is to record itself. */
typedef struct PagewalkOrder {
    /* The first record of the block. */
    uint64_t record;
    /* The cursor of virtual CPU 0, and by how many bits a CPU's number is shifted to find the cursor of that CPU. */
    void *next;
    uint32_t next_shift;
    /* Whether virtual CPU 0 runs alone. */
    bool is_alone;
    /* Whether its record contains the number of addresses; otherwise each access has a record with its tag. */
    bool is_fixed;
    /* A position in a span (`next & span_mask`) above `roomy` needs `room` first. */
    uint64_t span_mask;
    uint64_t roomy;
    PagewalkCallback *room;
    /* Called before all else, if there is one. */
    PagewalkCallback *before;
} PagewalkOrder;

/* How a block counts its accesses, or otherwise leaves its addresses in the trail. */
typedef struct PagewalkCount {
    struct PagewalkTrail *trail;
    uint64_t number;
    /* Whether its accesses are counted, and where the words of the page at address 0 are. */
    bool is_counted;
    uint64_t words;
    /* Called if the previous block has left something to report. */
    PagewalkCallback *told;
} PagewalkCount;

/* crates/recorder/src/trail.rs. */
typedef struct PagewalkTrail {
    uint64_t state;
    uint64_t clock;
    uint64_t block;
    uint64_t fetched;
    uint64_t made;
    uint64_t old[PAGEWALK_ROOM];
    uint64_t addresses[PAGEWALK_ROOM];
} PagewalkTrail;

/* Examines the block that is being translated; false if it contains unknown operations, or is too large. */
bool pagewalk_survey(PagewalkBlock *block);
/* Inserts the recording code into the block that pagewalk_survey has examined. */
void pagewalk_write(const PagewalkBlock *block, const PagewalkOrder *order);
void pagewalk_count(const PagewalkBlock *block, const PagewalkCount *count);
/* Lets the block's indirect jump go directly to its first two targets. Only one virtual CPU may run. */
void pagewalk_link(const PagewalkBlock *block);
/* Makes QEMU discard all translated code. */
void pagewalk_forget_links(void);

/* Functions that the plugin interface does not have: see process.c. */
uintptr_t pagewalk_guest_base(void);
const char *pagewalk_program(void);
void pagewalk_regions(void *context, int each(void *, uint64_t start, uint64_t end, uint64_t flags));
void pagewalk_flush(unsigned int vcpu, bool now);

/* Defined by the recorder. Called when the program has accessed `address` and gets a signal for it. */
void pagewalk_faulted(unsigned int vcpu, uint64_t address, bool is_fetch, bool is_write);
/* Defined by the recorder. Called when QEMU is about to end itself by the signal that ends the program. */
void pagewalk_ends(void);
/* Whether a signal ends a program that has no handler for it: `signal` is the program's number of it. */
bool pagewalk_is_fatal(int signal);
/* Whether code may jump directly into other pages: set once the recorder is loaded. */
extern bool pagewalk_links_pages;

/* For whole machines: see machine.c. */
int pagewalk_install(uint64_t id, const void *about, int argc, char **argv);
bool pagewalk_read(unsigned int vcpu, uint64_t address, void *to, size_t bytes);
uint64_t pagewalk_physical(unsigned int vcpu, uint64_t address);
bool pagewalk_lookup(unsigned int vcpu, uint32_t about, uint64_t address, uint64_t *physical, uint8_t *size_log);
uint64_t pagewalk_register(unsigned int vcpu, int number);
uint64_t pagewalk_kernel_gs(unsigned int vcpu);
uint64_t pagewalk_control(unsigned int vcpu, int number);
void pagewalk_begin(unsigned int vcpu);
void pagewalk_pause(unsigned int vcpu);

/*
 * The address at which position-independent 64-bit programs are loaded, and the address at which their mappings begin.
 * The host's kernel puts neither QEMU's heap nor QEMU's mappings there, so addresses do not change from run to run.
 */
#define PAGEWALK_PROGRAM 0x400000000000ull
#define PAGEWALK_MAPPINGS 0x2aaaaaaab000ull

/*
 * Reserves the first `size` bytes, aligned to `align`, from `start` on that the program does not use, and returns their
 * address. 0 if there are none in the range for mappings, or if the program has 32 bits: QEMU itself looks for them in
 * this way then. For 64 bits QEMU 10 asks the host's kernel, which gives any address if `start` is not free.
 */
uint64_t pagewalk_reserve(uint64_t start, uint64_t size, uint64_t align);

/*
 * mmap for a program. If the program asks for no address, or for one that is not free, it gets the next free address
 * above its mappings. QEMU 10 leaves this choice to the host's kernel, which puts the program's mappings between QEMU's
 * own.
 */
void *pagewalk_mmap(void *place, size_t bytes, int rights, int flags, int file, off_t offset);

#endif
