/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Recording without callbacks: the records are written by the translated code itself.
 *
 *   QEMU's list for a block            what is put there, if the block is fixed
 *   +------------------------------+
 *   | mark of the block's start    |   again: cursor = [next]
 *   |                              |   if the span is nearly full: go to tight
 *   |                              |   [cursor] = block; [next] = cursor + 8 * (1 + addresses)
 *   | load                         |
 *   | mark of the access           |   [cursor + 8] = address
 *   | store                        |
 *   | mark of the access           |   [cursor + 16] = address
 *   | the end                      |   tight: room(); go to again
 *   +------------------------------+
 *
 * A callback takes some 3 ns, because QEMU has to save the guest's registers for it. The code that
 * replaces it here is one instruction of the host per access: only the addresses of a fixed block's
 * accesses are unknown when the block is translated. Everything else is in the block's descriptor. If
 * an access faults, the block is left, and the following records stay NONE, the initial value of all
 * records of a span.
 *
 * An instruction that QEMU executes by its own C code may access memory in that code, so it keeps its
 * callbacks. It is not known in advance which accesses a block with internal branches makes. Such
 * blocks are not fixed: each access has a record with its tag, and advances the cursor. So records of
 * both kinds are in the order in which the accesses were made.
 *
 * At the beginning of a block, and after each callback, at least PAGEWALK_ROOM records of the span are
 * free, so accesses need not check for space.
 */
#include "qemu/osdep.h"
#include "cpu.h"
#include "qemu/bitmap.h"
#include "exec/translation-block.h"
#include "exec/translator.h"
#include "tcg/tcg.h"
#include "tcg/tcg-internal.h"
#include "pagewalk/emit.h"
#include "pagewalk/helpers.h"
#include "pagewalk/values.h"

/* ring::Tag and ring::Record. */
#define TAG_SIZE_SHIFT 9
#define TAG_LOAD (1 << 13)
#define TAG_STORE (1 << 14)
#define RECORD_VALUE_SHIFT 16
#define RECORD_BYTES 8
/* The number of temporaries and constants that the code of a block needs, and the number that each access needs. */
#define BLOCK_TEMPS 48
#define ACCESS_TEMPS 4

TCGOp *pagewalk_start(void)
{
    TCGOp *op;

    QTAILQ_FOREACH(op, &tcg_ctx->ops, link) {
        if (op->opc == INDEX_op_plugin_cb) {
            return op;
        }
    }
    return NULL;
}

bool pagewalk_instruction_calls(const PagewalkBlock *block, int index)
{
    return index < 0 || block->calls[index / 64] >> index % 64 & 1;
}

void pagewalk_gen_call(PagewalkCallback *callback)
{
    static TCGHelperInfo info = {
        .flags = TCG_CALL_NO_RWG,
        .typemask = dh_typemask(void, 0) | dh_typemask(i32, 1) | dh_typemask(ptr, 2),
    };
    TCGv_i32 vcpu = tcg_temp_ebb_new_i32();

    tcg_gen_ld_i32(vcpu, tcg_env, offsetof(CPUState, cpu_index) - offsetof(ArchCPU, env));
    tcg_gen_call2(callback, &info, NULL, tcgv_i32_temp(vcpu), tcgv_ptr_temp(tcg_constant_ptr(NULL)));
}

/* Whether an operation stores a value that QEMU passes to plugins, or that only devices need. */
static bool is_needless(const TCGOp *op)
{
    intptr_t value = offsetof(CPUState, neg.plugin_mem_value_low) - sizeof(CPUState);
    intptr_t above = offsetof(CPUState, neg.plugin_mem_value_high) - sizeof(CPUState);

    switch (op->opc) {
    case INDEX_op_st_i32:
    case INDEX_op_st_i64:
        return arg_temp(op->args[1]) == tcgv_ptr_temp(tcg_env)
            && ((intptr_t)op->args[2] == value || (intptr_t)op->args[2] == above);
#ifdef CONFIG_USER_ONLY
    case INDEX_op_st8_i32:
        return arg_temp(op->args[1]) == tcgv_ptr_temp(tcg_env)
            && (intptr_t)op->args[2] == offsetof(CPUState, neg.can_do_io) - sizeof(CPUState);
#endif
    default:
        return false;
    }
}

static void drop_needless(void)
{
    TCGOp *op, *next;

    QTAILQ_FOREACH_SAFE(op, &tcg_ctx->ops, link, next) {
        if (is_needless(op)) {
            tcg_op_remove(tcg_ctx, op);
        }
    }
}

static uint16_t tag_of(qemu_plugin_meminfo_t info, int instruction)
{
    return instruction | (get_memop(info) & MO_SIZE) << TAG_SIZE_SHIFT
        | (qemu_plugin_mem_is_store(info) ? TAG_STORE : TAG_LOAD);
}

/* The label that an operation branches to. */
static const TCGLabel *target_of(const TCGOp *op)
{
    switch (op->opc) {
    case INDEX_op_br:
        return arg_label(op->args[0]);
    case INDEX_op_brcond_i32:
    case INDEX_op_brcond_i64:
        return arg_label(op->args[3]);
    default:
        return NULL;
    }
}

bool pagewalk_survey(PagewalkBlock *block)
{
    const DisasContextBase *db = tcg_ctx->plugin_db;
    g_autofree unsigned long *placed = bitmap_new(tcg_ctx->nb_labels + 1);
    /* All 32-bit addresses are recorded. */
    const bool is_narrow = tcg_ctx->addr_type == TCG_TYPE_I32;
    bool has_started = false, has_branched = false, divides = false, is_met = false;
    /* How often control flow has joined since the block began, and this number at the first access. */
    unsigned joined = 0, first = 0;
    uint16_t recorded = 0;
    int instruction = -1;
    TCGOp *op;

    drop_needless();
    *block = (PagewalkBlock) {
        .pc = db->pc_first,
        .bytes = db->pc_next - db->pc_first,
        .instructions = db->num_insns,
        .is_fixed = true,
        .is_straight = true,
    };
    QTAILQ_FOREACH(op, &tcg_ctx->ops, link) {
        const TCGOpDef *def = &tcg_op_defs[op->opc];
        const TCGLabel *target = target_of(op);
        PagewalkAccess *access;

        switch (op->opc) {
        case INDEX_op_insn_start:
            instruction++;
            continue;
        case INDEX_op_plugin_cb:
            if (!has_started) {
                has_started = true;
                pagewalk_values_begin();
            }
            continue;
        case INDEX_op_plugin_mem_cb:
            /* One record is for the block itself, and one for a callback. */
            if (block->accesses == PAGEWALK_ROOM - 2 || instruction < 0) {
                return false;
            }
            access = &block->access[block->accesses++];
            access->tag = tag_of(op->args[1], instruction);
            access->from = PAGEWALK_RECORDED;
            /* An access without its required alignment leaves the block in another way. */
            if (!is_narrow && !(get_memop(op->args[1]) & MO_AMASK)) {
                pagewalk_values_derive(arg_temp(op->args[0]), recorded, block->pc, access);
            }
            recorded += access->from == PAGEWALK_RECORDED;
            block->is_fixed &= !has_branched;
            if (!is_met) {
                is_met = true;
                first = joined;
            }
            block->is_straight &= joined == first;
            continue;
        case INDEX_op_set_label:
            set_bit(arg_label(op->args[0])->id, placed);
            break;
        case INDEX_op_call:
            divides |= pagewalk_divides(op);
            if (pagewalk_may_access(op)) {
                if (instruction < 0) {
                    return false;
                }
                block->calls[instruction / 64] |= 1ull << instruction % 64;
                block->is_fixed = block->is_straight = false;
            }
            break;
        default:
            break;
        }
        if (target && test_bit(target->id, placed)) {
            /* The block has a loop: an access in it may run more than once. */
            return false;
        }
        if (has_started) {
            pagewalk_values_pass(op);
            if (op->opc != INDEX_op_call && def->flags & TCG_OPF_BB_END) {
                has_branched = true;
                joined += !(def->flags & TCG_OPF_COND_BRANCH);
            }
        }
    }
    if (!block->is_fixed || divides) {
        /* It is not known how many accesses such a block makes. */
        for (unsigned i = 0; i < block->accesses; i++) {
            block->access[i].from = PAGEWALK_RECORDED;
        }
    }
    block->is_behind = !block->is_fixed && is_met && first > 0;
    return has_started && tcg_ctx->nb_temps + BLOCK_TEMPS + ACCESS_TEMPS * block->accesses < TCG_MAX_TEMPS;
}

/* The address of this virtual CPU's cursor. */
static TCGv_ptr gen_next(const PagewalkOrder *order)
{
    if (order->is_alone) {
        return tcg_constant_ptr(order->next);
    }
    TCGv_i32 vcpu = tcg_temp_ebb_new_i32();
    TCGv_ptr next = tcg_temp_ebb_new_ptr();

    tcg_gen_ld_i32(vcpu, tcg_env, offsetof(CPUState, cpu_index) - offsetof(ArchCPU, env));
    tcg_gen_shli_i32(vcpu, vcpu, order->next_shift);
    tcg_gen_ext_i32_ptr(next, vcpu);
    tcg_gen_addi_ptr(next, next, (intptr_t)order->next);
    return next;
}

/* Advances the cursor to this number of records after `cursor`. */
static void gen_advance(TCGv_ptr next, TCGv_ptr cursor, unsigned records)
{
    TCGv_ptr moved = tcg_temp_ebb_new_ptr();

    tcg_gen_addi_ptr(moved, cursor, records * RECORD_BYTES);
    tcg_gen_st_ptr(moved, next, 0);
}

void pagewalk_write(const PagewalkBlock *block, const PagewalkOrder *order)
{
    TCGOp *start = pagewalk_start(), *op;
    TCGLabel *again = gen_new_label(), *tight = gen_new_label();
    TCGv_ptr cursor, next;
    /* The number of records between `cursor` and the next record, and whether it is known. */
    unsigned records = 1, index = 0;
#ifdef CONFIG_USER_ONLY
    bool is_known = true;
#else
    /* An access may fill QEMU's TLB, and the fill is an event between the records. */
    bool is_known = false;
#endif
    int instruction = -1;

    tcg_ctx->plugin_insn = NULL;
    /* Temporaries that the block frees later are in use at the place where this code is inserted. */
    tcg_temp_ebb_reset_freed(tcg_ctx);
    cursor = tcg_temp_ebb_new_ptr();

    pagewalk_before(start);
    if (order->before) {
        pagewalk_gen_call(order->before);
    }
    if (order->is_fixed) {
        for (unsigned i = 0; i < block->accesses; i++) {
            records += block->access[i].from == PAGEWALK_RECORDED;
        }
    }
    /* TCG checks this before each label. */
    tcg_gen_discard_ptr(cursor);
    gen_set_label(again);
    next = gen_next(order);
    tcg_gen_ld_ptr(cursor, next, 0);
    TCGv_i64 place = tcg_temp_ebb_new_i64();
    tcg_gen_andi_i64(place, (TCGv_i64)cursor, order->span_mask);
    tcg_gen_brcondi_i64(TCG_COND_GTU, place, order->roomy, tight);
    tcg_gen_st_i64(tcg_constant_i64(order->record), cursor, 0);
    gen_advance(next, cursor, records);
    records = 1;

    for (op = QTAILQ_NEXT(start, link); op; op = QTAILQ_NEXT(op, link)) {
        if (op->opc == INDEX_op_insn_start) {
            if (instruction >= 0 && pagewalk_instruction_calls(block, instruction)) {
                is_known = false;
            }
            instruction++;
            continue;
        }
        if (op->opc != INDEX_op_plugin_mem_cb) {
            if (op->opc != INDEX_op_call && tcg_op_defs[op->opc].flags & TCG_OPF_BB_END) {
                is_known = false;
            }
            continue;
        }
        const PagewalkAccess *access = &block->access[index++];
        TCGv_i64 address = temp_tcgv_i64(arg_temp(op->args[0]));

        if (pagewalk_instruction_calls(block, instruction)
            || (order->is_fixed && access->from != PAGEWALK_RECORDED)) {
            continue;
        }
        pagewalk_before(op);
        if (!is_known && !order->is_fixed) {
            next = gen_next(order);
            cursor = tcg_temp_ebb_new_ptr();
            tcg_gen_ld_ptr(cursor, next, 0);
            records = 0;
            is_known = true;
        }
        if (order->is_fixed) {
            tcg_gen_st_i64(address, cursor, records * RECORD_BYTES);
        } else {
            /* The access did not fault, so its address has at most 48 bits, or is sign-extended from bit 47. */
            TCGv_i64 record = tcg_temp_ebb_new_i64();
            tcg_gen_shli_i64(record, address, RECORD_VALUE_SHIFT);
            tcg_gen_ori_i64(record, record, access->tag);
            tcg_gen_st_i64(record, cursor, records * RECORD_BYTES);
            gen_advance(next, cursor, records + 1);
#ifndef CONFIG_USER_ONLY
            is_known = false;
#endif
        }
        records++;
    }

    pagewalk_before(NULL);
    gen_set_label(tight);
    pagewalk_gen_call(order->room);
    tcg_gen_br(again);
}
