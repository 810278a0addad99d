/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The code of a block whose accesses are counted if they are guaranteed to hit: see
 * crates/recorder/src/sure.rs.
 *
 *   again:  if not [state] < 0: to told             < 0 means: the highest bit is set
 *           [block] = its number; [state] = 0
 *   load    [addresses] = its address
 *           word = [its page's]; [old] = word; held &= word
 *           [its page's] = word's count + clock + accesses so far
 *   ...
 *   last    clock += accesses and instructions; [clock] = clock
 *           [state] = held & clock, without its highest bit if a page was crossed
 *
 *   told:   told(); go to again
 *
 * The names in brackets are fields of PagewalkTrail. Each value that a block loads here was stored by the
 * previous block, so these dependencies add up over blocks; the only one that remains is the clock.
 *
 * There is no label between the first access and the last: temporaries end there.
 */
#include "qemu/osdep.h"
#include "cpu.h"
#include "tcg/tcg.h"
#include "tcg/tcg-internal.h"
#include "pagewalk/emit.h"

/* crates/recorder/src/words.rs. */
#define PAGE_SHIFT 12
#define OFFSET_SHIFT 7
#define OFFSET_MASK (~0x1full)
#define COUNT ((1ull << 21) - 1)
#define STEP (1ull << 21)
#define INSTRUCTION (STEP << 22)
/* ring::Tag, ring::HitsOf, ring::Record. */
#define TAG_STORE (1 << 14)
#define TAG_SIZE(tag) (1ull << ((tag) >> 9 & 15))
enum { FETCH, LOAD, STORE };
#define NONE UINT64_MAX

#define WORD_AT(of) ((of) * 8)
#define TRAIL(field) offsetof(PagewalkTrail, field)

/* The code of a block, as far as it has been generated. */
typedef struct Code {
    const PagewalkBlock *block;
    const PagewalkCount *count;
    TCGv_ptr trail;
    TCGv_i64 clock;
    /* Its highest bit is set as long as all pages are held. */
    TCGv_i64 held;
    /* Has bits above those of a page offset once an access has crossed into another page; valid if may_cross. */
    TCGv_i64 crossed;
    bool may_cross;
    /* The temporaries of the access whose code is being generated. */
    TCGv_ptr place;
    TCGv_i64 word;
    /* The address and the number of bytes for which `place` was computed last. */
    bool has_found;
    PagewalkAccess found;
    unsigned recorded;
    unsigned kept;
} Code;

static uint64_t last_byte(const PagewalkBlock *block)
{
    return block->pc + block->bytes - 1;
}

static bool is_one_page(uint64_t first, uint64_t last)
{
    return first >> PAGE_SHIFT == last >> PAGE_SHIFT;
}

static TCGv_ptr words_of(const Code *code, uint64_t address)
{
    return tcg_constant_ptr(code->count->words + (address >> OFFSET_SHIFT & OFFSET_MASK));
}

static void gen_not_held(Code *code)
{
    tcg_gen_movi_i64(code->held, 0);
}

/* The block begins. */
static void gen_begin(Code *code, TCGLabel *again, TCGLabel *told)
{
    tcg_gen_discard_i64(code->word);
    gen_set_label(again);
    tcg_gen_ld_i64(code->word, code->trail, TRAIL(state));
    tcg_gen_brcondi_i64(TCG_COND_GE, code->word, 0, told);
    tcg_gen_st_i64(tcg_constant_i64(code->count->number), code->trail, TRAIL(block));
    tcg_gen_st_i64(tcg_constant_i64(0), code->trail, TRAIL(state));
    if (!code->count->is_counted) {
        /* The trail still has the addresses of previous blocks. */
        for (unsigned i = 0, at = 0; i < code->block->accesses; i++) {
            if (code->block->access[i].from == PAGEWALK_RECORDED) {
                tcg_gen_st_i64(tcg_constant_i64(NONE), code->trail, TRAIL(addresses) + at++ * 8);
            }
        }
    }
}

/* Counts an access in the word that was loaded from `place`. */
static void gen_count(Code *code, TCGv_ptr place, int of)
{
    tcg_gen_st_i64(code->word, code->trail, TRAIL(old) + code->kept * 8);
    tcg_gen_andi_i64(code->word, code->word, COUNT);
    tcg_gen_add_i64(code->word, code->word, code->clock);
    tcg_gen_addi_i64(code->word, code->word, code->kept * STEP);
    tcg_gen_st_i64(code->word, place, WORD_AT(of));
    code->kept++;
}

/* Whether the page of the fetch, whose word was loaded, is held; false if the fetch is from two pages. */
static void gen_fetch_held(Code *code)
{
    if (is_one_page(code->block->pc, last_byte(code->block))) {
        tcg_gen_mov_i64(code->held, code->word);
    } else {
        gen_not_held(code);
    }
}

static void gen_fetch(Code *code)
{
    TCGv_ptr place = words_of(code, code->block->pc);

    tcg_gen_ld_i64(code->clock, code->trail, TRAIL(clock));
    tcg_gen_ld_i64(code->word, place, WORD_AT(FETCH));
    if (code->block->is_behind) {
        tcg_gen_st_i64(code->word, code->trail, TRAIL(fetched));
    }
    gen_fetch_held(code);
    gen_count(code, place, FETCH);
}

/* Loads temporaries from the trail again, after control flow has joined. */
static void gen_resume(Code *code)
{
    tcg_gen_ld_i64(code->clock, code->trail, TRAIL(clock));
    tcg_gen_ld_i64(code->word, code->trail, TRAIL(fetched));
    gen_fetch_held(code);
}

/* Computes the address of the page's words, and whether the access crosses into another page. */
static void gen_find(Code *code, TCGv_i64 address, uint64_t bytes)
{
    TCGv_i64 place = (TCGv_i64)code->place;

    tcg_gen_shri_i64(place, address, OFFSET_SHIFT);
    tcg_gen_andi_i64(place, place, OFFSET_MASK);
    tcg_gen_add_i64(place, place, tcg_constant_i64(code->count->words));
    if (bytes == 1) {
        return;
    }
    tcg_gen_addi_i64(code->word, address, bytes - 1);
    if (code->may_cross) {
        tcg_gen_xor_i64(code->word, code->word, address);
        tcg_gen_or_i64(code->crossed, code->crossed, code->word);
    } else {
        tcg_gen_xor_i64(code->crossed, code->word, address);
        code->may_cross = true;
    }
}

static void gen_access(Code *code, TCGv_i64 address, PagewalkAccess access)
{
    uint64_t bytes = TAG_SIZE(access.tag);
    int of = access.tag & TAG_STORE ? STORE : LOAD;
    TCGv_ptr place = code->place;

    if (access.from == PAGEWALK_RECORDED) {
        tcg_gen_st_i64(address, code->trail, TRAIL(addresses) + code->recorded * 8);
        access.from = 1 + code->recorded++;
        access.distance = 0;
    }
    if (!code->count->is_counted) {
        return;
    }
    if (access.from == 0) {
        uint64_t first = code->block->pc + access.distance;
        if (!is_one_page(first, first + bytes - 1)) {
            gen_not_held(code);
        }
        place = words_of(code, first);
    } else {
        /* An addition to memory makes both of its accesses at the same address. */
        bool is_found = code->has_found && code->found.from == access.from
            && code->found.distance == access.distance && TAG_SIZE(code->found.tag) == bytes;
        if (!is_found) {
            gen_find(code, address, bytes);
        }
        code->has_found = true;
        code->found = access;
    }
    tcg_gen_ld_i64(code->word, place, WORD_AT(of));
    tcg_gen_and_i64(code->held, code->held, code->word);
    gen_count(code, place, of);
}

/* Generates the code after the block's last access. */
static void gen_end(Code *code)
{
    tcg_gen_addi_i64(code->clock, code->clock, code->kept * STEP + code->block->instructions * INSTRUCTION);
    tcg_gen_st_i64(code->clock, code->trail, TRAIL(clock));
    tcg_gen_and_i64(code->held, code->held, code->clock);
    if (code->may_cross) {
        /* Negative if the access lies within one page. */
        tcg_gen_addi_i64(code->word, code->crossed, -(1ll << PAGE_SHIFT));
        tcg_gen_and_i64(code->held, code->held, code->word);
    }
    tcg_gen_st_i64(code->held, code->trail, TRAIL(state));
}

void pagewalk_count(const PagewalkBlock *block, const PagewalkCount *count)
{
    TCGOp *start = pagewalk_start(), *op;
    TCGLabel *again = gen_new_label(), *told = gen_new_label();
    unsigned index = 0;

    tcg_ctx->plugin_insn = NULL;
    tcg_temp_ebb_reset_freed(tcg_ctx);
    pagewalk_before(start);

    Code code = {
        .block = block,
        .count = count,
        .trail = tcg_constant_ptr(count->trail),
        .clock = tcg_temp_ebb_new_i64(),
        .held = tcg_temp_ebb_new_i64(),
        .crossed = tcg_temp_ebb_new_i64(),
        .place = tcg_temp_ebb_new_ptr(),
        .word = tcg_temp_ebb_new_i64(),
    };
    gen_begin(&code, again, told);
    if (count->is_counted) {
        gen_fetch(&code);
    }
    if (count->is_counted && block->accesses == 0) {
        gen_end(&code);
    }
    for (op = QTAILQ_NEXT(start, link); op && index < block->accesses; op = QTAILQ_NEXT(op, link)) {
        if (op->opc != INDEX_op_plugin_mem_cb) {
            continue;
        }
        pagewalk_before(op);
        if (index == 0 && block->is_behind && count->is_counted) {
            gen_resume(&code);
        }
        gen_access(&code, temp_tcgv_i64(arg_temp(op->args[0])), block->access[index]);
        if (++index == block->accesses && count->is_counted) {
            gen_end(&code);
        }
    }

    pagewalk_before(NULL);
    gen_set_label(told);
    pagewalk_gen_call(count->told);
    tcg_gen_br(again);
}
