/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Determines which addresses of a block can be computed from others.
 *
 *   the block               QEMU's list              value          where the address comes from
 *   mov rax, [rbp - 8]      A0 = rbp + -8            rbp - 8        it is recorded
 *   add rbp, 64             rbp = rbp + 64
 *   mov rcx, [rbp - 64]     A0 = rbp + -64           rbp + 0        8 behind the first
 *   mov rdx, [rip + 100]    A0 = 0x401064            0x401064       100 behind the block's start
 *
 * The list of a block is processed once. Each temporary has a value: a root, and the distance from this
 * root. Moves and additions of constants keep the root. A pure operation on equal values has the same
 * root each time. Any other operation that writes a temporary gives it a new root. So the distance
 * between two addresses with the same root is the same whenever the block runs.
 */
#include "qemu/osdep.h"
#include "tcg/tcg.h"
#include "tcg/tcg-internal.h"
#include "pagewalk/values.h"

typedef struct Value {
    /* 0: the value is unknown. */
    uint32_t root;
    uint64_t distance;
} Value;

/* The root of values that are known when the block is translated. */
#define CONSTANT 1
/* The number of pure operations that are kept for comparison: equal operations are seldom far apart. */
#define REMEMBERED 64
#define INPUTS 3
#define CONSTANTS 2

typedef struct Pure {
    TCGOpcode opcode;
    Value inputs[INPUTS];
    TCGArg constants[CONSTANTS];
    uint32_t root;
} Pure;

static __thread struct {
    Value temps[TCG_MAX_TEMPS];
    uint32_t roots;
    Pure pure[REMEMBERED];
    unsigned pure_count;
    /* The roots of the recorded addresses. */
    struct {
        uint16_t number;
        Value value;
    } recorded[PAGEWALK_ROOM];
    unsigned recorded_count;
} values;

static void forget_temps(void)
{
    memset(values.temps, 0, tcg_ctx->nb_temps * sizeof(Value));
}

void pagewalk_values_begin(void)
{
    forget_temps();
    memset(values.pure, 0, sizeof(values.pure));
    values.roots = CONSTANT;
    values.pure_count = 0;
    values.recorded_count = 0;
}

static Value new_value(void)
{
    return (Value) { .root = ++values.roots };
}

static Value value_of(const TCGTemp *temp)
{
    if (temp->kind == TEMP_CONST) {
        return (Value) { .root = CONSTANT, .distance = temp->val };
    }
    Value *value = &values.temps[temp_idx((TCGTemp *)temp)];
    if (value->root == 0) {
        *value = new_value();
    }
    return *value;
}

static void set_value(TCGArg temp, Value value)
{
    values.temps[temp_idx(arg_temp(temp))] = value;
}

/*
 * Whether an operation has equal results for equal arguments, among the operations from which addresses are
 * computed.
 */
static bool is_pure(TCGOpcode opcode)
{
    switch (opcode) {
    case INDEX_op_mov_i32: case INDEX_op_mov_i64:
    case INDEX_op_add_i32: case INDEX_op_add_i64:
    case INDEX_op_sub_i32: case INDEX_op_sub_i64:
    case INDEX_op_and_i32: case INDEX_op_and_i64:
    case INDEX_op_or_i32: case INDEX_op_or_i64:
    case INDEX_op_xor_i32: case INDEX_op_xor_i64:
    case INDEX_op_shl_i32: case INDEX_op_shl_i64:
    case INDEX_op_shr_i32: case INDEX_op_shr_i64:
    case INDEX_op_sar_i32: case INDEX_op_sar_i64:
    case INDEX_op_mul_i32: case INDEX_op_mul_i64:
    case INDEX_op_neg_i32: case INDEX_op_neg_i64:
    case INDEX_op_not_i32: case INDEX_op_not_i64:
    case INDEX_op_ext8s_i32: case INDEX_op_ext8s_i64:
    case INDEX_op_ext8u_i32: case INDEX_op_ext8u_i64:
    case INDEX_op_ext16s_i32: case INDEX_op_ext16s_i64:
    case INDEX_op_ext16u_i32: case INDEX_op_ext16u_i64:
    case INDEX_op_ext32s_i64: case INDEX_op_ext32u_i64:
    case INDEX_op_deposit_i32: case INDEX_op_deposit_i64:
    case INDEX_op_extract_i32: case INDEX_op_extract_i64:
    case INDEX_op_sextract_i32: case INDEX_op_sextract_i64:
    case INDEX_op_ext_i32_i64: case INDEX_op_extu_i32_i64:
    case INDEX_op_extrl_i64_i32: case INDEX_op_extrh_i64_i32:
        return true;
    default:
        return false;
    }
}

/* The value of a pure operation. */
static Value compute(const TCGOp *op, unsigned count, unsigned constants)
{
    Pure now = { .opcode = op->opc };
    for (unsigned i = 0; i < count; i++) {
        now.inputs[i] = value_of(arg_temp(op->args[1 + i]));
    }
    for (unsigned i = 0; i < constants; i++) {
        now.constants[i] = op->args[1 + count + i];
    }
    Value *first = &now.inputs[0], *second = &now.inputs[1];
    uint64_t distance = 0;
    switch (op->opc) {
    case INDEX_op_mov_i32:
    case INDEX_op_mov_i64:
        return *first;
    case INDEX_op_add_i64:
        if (first->root == CONSTANT || second->root == CONSTANT) {
            Value *from = second->root == CONSTANT ? first : second;
            return (Value) { .root = from->root, .distance = first->distance + second->distance };
        }
        /* The distance of a sum from the sum of the roots is the sum of both distances. */
        distance = first->distance + second->distance;
        first->distance = second->distance = 0;
        break;
    case INDEX_op_sub_i64:
        if (second->root == CONSTANT) {
            return (Value) { .root = first->root, .distance = first->distance - second->distance };
        }
        break;
    default:
        break;
    }
    for (unsigned i = 0; i < MIN(values.pure_count, REMEMBERED); i++) {
        const Pure *pure = &values.pure[i];
        bool is_same = pure->opcode == now.opcode;
        for (unsigned k = 0; k < INPUTS; k++) {
            is_same &= pure->inputs[k].root == now.inputs[k].root
                && pure->inputs[k].distance == now.inputs[k].distance;
        }
        for (unsigned k = 0; k < CONSTANTS; k++) {
            is_same &= pure->constants[k] == now.constants[k];
        }
        if (is_same) {
            return (Value) { .root = pure->root, .distance = distance };
        }
    }
    now.root = new_value().root;
    values.pure[values.pure_count++ % REMEMBERED] = now;
    return (Value) { .root = now.root, .distance = distance };
}

void pagewalk_values_pass(const TCGOp *op)
{
    const TCGOpDef *def = &tcg_op_defs[op->opc];
    if (op->opc == INDEX_op_call) {
        if (!(tcg_call_flags((TCGOp *)op) & (TCG_CALL_NO_READ_GLOBALS | TCG_CALL_NO_WRITE_GLOBALS))) {
            forget_temps();
        }
        for (unsigned i = 0; i < TCGOP_CALLO(op); i++) {
            set_value(op->args[i], (Value) { });
        }
        return;
    }
    if (def->flags & TCG_OPF_BB_END) {
        forget_temps();
        return;
    }
    Value value = { };
    if (is_pure(op->opc) && def->nb_oargs == 1 && def->nb_iargs <= INPUTS && def->nb_cargs <= CONSTANTS) {
        value = compute(op, def->nb_iargs, def->nb_cargs);
    }
    for (unsigned i = 0; i < def->nb_oargs; i++) {
        set_value(op->args[i], value);
    }
}

void pagewalk_values_derive(const TCGTemp *temp, uint16_t next, uint64_t pc, PagewalkAccess *access)
{
    Value value = value_of(temp);
    if (value.root == CONSTANT) {
        access->from = 0;
        access->distance = value.distance - pc;
        return;
    }
    for (unsigned i = 0; i < values.recorded_count; i++) {
        if (values.recorded[i].value.root == value.root) {
            access->from = 1 + values.recorded[i].number;
            access->distance = value.distance - values.recorded[i].value.distance;
            return;
        }
    }
    if (values.recorded_count < PAGEWALK_ROOM) {
        values.recorded[values.recorded_count].number = next;
        values.recorded[values.recorded_count++].value = value;
    }
}
