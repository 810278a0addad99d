/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Jumps from block to block without a look-up.
 *
 *   the end of QEMU's list for a block      what is put there
 *   +-------------------------------+
 *   | pc = rax                      |
 *   |                               |       if [SLOT 0] = pc: goto_tb 0; exit_tb
 *   |                               |       if [SLOT 1] = pc: goto_tb 1; exit_tb
 *   |                               |       if [SLOT i] is free: [SLOT i] = pc; exit_tb
 *   | lookup_tb_ptr; goto_ptr       |
 *   +-------------------------------+
 *
 * QEMU lets a block jump directly to the next block (`goto_tb`) only if both are in the same page. Any
 * other jump, such as a call into another page or a return, calls a function that finds the block by
 * the program counter, the flags of the CPU, and a table. This call takes 8 ns, which is most of QEMU's
 * time for a program of many small functions. However, each block has two direct exits, and the unused
 * exits are used here. The first time, such an exit leads to QEMU's main loop, which finds the block and
 * links the two blocks. Whenever QEMU discards the second block, because its page was written or
 * unmapped, it removes the link. Both is possible because a program has a single address space: in a
 * whole machine, another page could be at the address of the second block the next time.
 *
 * QEMU itself makes direct jumps into other pages once pagewalk_links_pages is set
 * (translator_use_goto_tb).
 *
 * Each exit of an indirect jump belongs to one of the first two targets of the jump, whose address is
 * kept in a slot. Nearly nine of ten indirect jumps of sqlite3 go to the first two targets. Two threads
 * could fill a slot at the same time, so that the address of one thread is stored with the link of the
 * other. So only code for a process with one thread has slots.
 *
 * A link omits the comparison of flags. The flags at the beginning of a block follow from the flags of
 * the previous block, and from facts that are known when that block is translated, with three
 * exceptions. The first is a block that calls a function; it gets no link. The second is whether 32-bit
 * Arm code is Thumb code; this is part of a slot's address. The third are instructions that change the
 * flags, after which the next block is looked up; the program counter is a constant there, and they get
 * no link.
 */
#include "qemu/osdep.h"
#include "cpu.h"
#include "exec/translation-block.h"
#include "tcg/tcg.h"
#include "tcg/tcg-internal.h"
#include "pagewalk/emit.h"
#include "pagewalk/helpers.h"

/* The number of temporaries and constants that the exits of a block need. */
#define LINK_TEMPS 24
#define EXITS 2
#define SLOTS (1 << 20)
/* There is no instruction at this address, or at its lower 32 bits. */
#define FREE UINT64_MAX

bool pagewalk_links_pages;

/* Unused parts take no memory. Blocks are translated under QEMU's lock. */
static uint64_t slots[SLOTS];
static unsigned slots_used;

void pagewalk_forget_links(void)
{
    slots_used = 0;
}

static uint64_t *new_slot(void)
{
    if (slots_used == SLOTS) {
        return NULL;
    }
    slots[slots_used] = FREE;
    return &slots[slots_used++];
}

/*
 * The guest register that is the program counter. In 32-bit Arm it has the same name as in AArch64,
 * and is found before it.
 */
static TCGTemp *counter(void)
{
    static const char *const names[] = { "rip", "eip", "pc" };

    for (int i = 0; i < tcg_ctx->nb_globals; i++) {
        const char *name = tcg_ctx->temps[i].name;
        for (unsigned k = 0; name && k < ARRAY_SIZE(names); k++) {
            if (g_str_equal(name, names[k]) && tcg_ctx->temps[i].type == tcg_ctx->addr_type) {
                return &tcg_ctx->temps[i];
            }
        }
    }
    return NULL;
}

/* The target of the jump, as 64 bits. */
static TCGv_i64 gen_target(TCGTemp *counter)
{
    TCGv_i64 target = tcg_temp_ebb_new_i64();

    if (counter->type == TCG_TYPE_I64) {
        tcg_gen_mov_i64(target, temp_tcgv_i64(counter));
    } else {
        tcg_gen_extu_i32_i64(target, temp_tcgv_i32(counter));
    }
#if defined(TARGET_ARM) && !defined(TARGET_AARCH64)
    TCGv_i64 thumb = tcg_temp_ebb_new_i64();

    tcg_gen_ld8u_i64(thumb, tcg_env, offsetof(CPUARMState, thumb));
    tcg_gen_shli_i64(thumb, thumb, 32);
    tcg_gen_or_i64(target, target, thumb);
#endif
    return target;
}

/* Generates a direct exit from the block. */
static void gen_exit(unsigned exit)
{
    tcg_gen_goto_tb(exit);
    tcg_gen_exit_tb(tcg_ctx->gen_tb, exit);
}

/* Whether an operation other than a call writes a temporary, and whether the value is a constant. */
static bool writes(const TCGOp *op, const TCGTemp *temp, bool *is_constant)
{
    for (unsigned i = 0; i < tcg_op_defs[op->opc].nb_oargs; i++) {
        if (arg_temp(op->args[i]) == temp) {
            *is_constant = (op->opc == INDEX_op_mov_i32 || op->opc == INDEX_op_mov_i64)
                && arg_temp(op->args[1])->kind == TEMP_CONST;
            return true;
        }
    }
    return false;
}

void pagewalk_link(const PagewalkBlock *block)
{
    TCGTemp *pc = counter();
    bool is_used[EXITS] = { }, is_constant = false;
    TCGOp *op, *jump = NULL;
    int instruction = -1;
    struct { unsigned exit; TCGv_ptr slot; } known[EXITS];
    unsigned count = 0;

    if (!pc || tcg_ctx->gen_tb->cflags & (CF_NO_GOTO_TB | CF_NO_GOTO_PTR)
        || tcg_ctx->nb_temps + LINK_TEMPS >= TCG_MAX_TEMPS) {
        return;
    }
    QTAILQ_FOREACH(op, &tcg_ctx->ops, link) {
        switch (op->opc) {
        case INDEX_op_insn_start:
            instruction++;
            break;
        case INDEX_op_goto_tb:
            is_used[op->args[0]] = true;
            break;
        case INDEX_op_call:
            if (tcg_call_func(op) == HELPER(lookup_tb_ptr)) {
                if (!is_constant && !pagewalk_instruction_calls(block, instruction)) {
                    jump = op;
                }
            } else if (pagewalk_may_access(op)) {
                is_constant = false;
            }
            break;
        default:
            if (!writes(op, pc, &is_constant) && tcg_op_defs[op->opc].flags & TCG_OPF_BB_END) {
                is_constant = false;
            }
            break;
        }
    }
    if (!jump) {
        return;
    }
    tcg_ctx->plugin_insn = NULL;
    pagewalk_before(jump);
    for (unsigned exit = 0; exit < EXITS; exit++) {
        uint64_t *slot = is_used[exit] ? NULL : new_slot();
        if (slot) {
            known[count].exit = exit;
            known[count++].slot = tcg_constant_ptr(slot);
        }
    }
    for (unsigned i = 0; i < count; i++) {
        TCGLabel *other = gen_new_label();
        TCGv_i64 seen = tcg_temp_ebb_new_i64();
        tcg_gen_ld_i64(seen, known[i].slot, 0);
        tcg_gen_brcond_i64(TCG_COND_NE, seen, gen_target(pc), other);
        gen_exit(known[i].exit);
        gen_set_label(other);
    }
    for (unsigned i = 0; i < count; i++) {
        TCGLabel *taken = gen_new_label();
        TCGv_i64 seen = tcg_temp_ebb_new_i64();
        tcg_gen_ld_i64(seen, known[i].slot, 0);
        tcg_gen_brcond_i64(TCG_COND_NE, seen, tcg_constant_i64(FREE), taken);
        tcg_gen_st_i64(gen_target(pc), known[i].slot, 0);
        tcg_gen_exit_tb(tcg_ctx->gen_tb, known[i].exit);
        gen_set_label(taken);
    }
    pagewalk_before(NULL);
}
