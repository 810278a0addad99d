/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What Pagewalk's recorder (crates/recorder, in Rust) and our files in QEMU say to each other.
 *
 *   QEMU translates a block
 *     |  qemu_plugin_tb_trans_cb                      the recorder's callback, as any plugin's
 *     v
 *   recorder ---- pagewalk_survey ---> block.c        what does the block access, and how?
 *            <--- PagewalkBlock -----
 *     it gives the block a number, and writes down what was found
 *            ---- pagewalk_write ----> block.c        puts stores into the block's list of operations
 *              or pagewalk_count ----> counted.c
 *            ---- pagewalk_link -----> links.c        gives an indirect jump direct exits
 *
 * Everything else of the recorder goes by QEMU's plugin interface. Shapes and numbers are those of
 * crates/ring and crates/recorder/src/inside.rs, where they are checked.
 */
#ifndef PAGEWALK_RECORDER_H
#define PAGEWALK_RECORDER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Accesses that a block has room for: ring::SPAN_ROOM. */
#define PAGEWALK_ROOM 128
/* The most instructions of a block: TCG_MAX_INSNS. */
#define PAGEWALK_INSTRUCTIONS 512
/* In PagewalkAccess.from: the address follows from no other, and is recorded. */
#define PAGEWALK_RECORDED UINT16_MAX

typedef struct PagewalkAccess {
    /* The distance from what `from` says: 0 the block's start, 1 + n the address n of those that are recorded. */
    uint64_t distance;
    /* As ring::Tag has it. */
    uint16_t tag;
    uint16_t from;
} PagewalkAccess;

/* A block that is being translated. */
typedef struct PagewalkBlock {
    uint64_t pc;
    uint32_t bytes;
    uint32_t instructions;
    uint32_t accesses;
    /* Whether it makes all of its accesses, in their order, unless a fault ends it. */
    bool is_fixed;
    /* Whether it makes those in their order that it makes, and may be left by a branch. */
    bool is_straight;
    /* Whether ways meet before its first access. */
    bool is_behind;
    /* A bit for each instruction that calls functions which may access memory. */
    uint64_t calls[PAGEWALK_INSTRUCTIONS / 64];
    PagewalkAccess access[PAGEWALK_ROOM];
} PagewalkBlock;

typedef void PagewalkCallback(unsigned int vcpu, void *argument);

/* How a block is to record itself. */
typedef struct PagewalkOrder {
    /* Its first record. */
    uint64_t record;
    /* The cursor of virtual CPU 0, and how many bits its number is shifted to find that of another. */
    void *next;
    uint32_t next_shift;
    /* Whether virtual CPU 0 runs alone. */
    bool is_alone;
    /* Whether its record tells how many addresses follow; otherwise each access has a record with its tag. */
    bool is_fixed;
    /* A position in a span (`next & span_mask`) above `roomy` needs `room` first. */
    uint64_t span_mask;
    uint64_t roomy;
    PagewalkCallback *room;
    /* Called before all else, if there is one. */
    PagewalkCallback *before;
} PagewalkOrder;

/* How a block whose accesses are counted is to do that, or else leave its addresses in the trail. */
typedef struct PagewalkCount {
    struct PagewalkTrail *trail;
    uint64_t number;
    /* Whether its accesses are counted, and where the words of the page at address 0 are. */
    bool is_counted;
    uint64_t words;
    /* Called where the block before has left something to tell. */
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

/* Looks at the block that is being translated; false if it has something unknown, or is too large. */
bool pagewalk_survey(PagewalkBlock *block);
/* Puts code into the same block, as it was found. */
void pagewalk_write(const PagewalkBlock *block, const PagewalkOrder *order);
void pagewalk_count(const PagewalkBlock *block, const PagewalkCount *count);
/* Lets its indirect jump go straight to the first two targets that it meets. One virtual CPU runs alone. */
void pagewalk_link(const PagewalkBlock *block);
/* QEMU throws its translations away. */
void pagewalk_forget_links(void);

/* What the plugin interface does not tell: see process.c. */
uintptr_t pagewalk_guest_base(void);
const char *pagewalk_program(void);
void pagewalk_regions(void *context, int each(void *, uint64_t start, uint64_t end, uint64_t flags));
void pagewalk_flush(unsigned int vcpu, bool now);

/* The recorder's: the program has accessed `address` and gets a signal for it. */
void pagewalk_faulted(unsigned int vcpu, uint64_t address, bool is_fetch, bool is_write);
/* The recorder's: QEMU is about to end itself by the signal that ends the program. */
void pagewalk_ends(void);
/* Whether a signal ends a program that has no handler for it: `signal` is the program's number of it. */
bool pagewalk_is_fatal(int signal);
/* Whether code may jump straight into other pages: set once the recorder is there. */
extern bool pagewalk_links_pages;

/* Of a whole machine: see machine.c. */
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
 * Where programs of 64 bits are loaded that need not be at a certain address, and where their mappings begin. A host's
 * kernel puts neither QEMU's heap nor QEMU's mappings there, so that addresses do not change from run to run.
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
