/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Functions that insert operations into the list of a translated block. */
#ifndef PAGEWALK_EMIT_H
#define PAGEWALK_EMIT_H

#include "tcg/tcg.h"
#include "tcg/tcg-op-common.h"
#include "tcg/tcg-temp-internal.h"
#include "pagewalk/recorder.h"

/* The first operation that belongs to the program's own code: QEMU marks it for plugins. */
TCGOp *pagewalk_start(void);
/* Whether instruction `index` calls functions that may access memory. */
bool pagewalk_instruction_calls(const PagewalkBlock *block, int index);
/* Calls `callback` with this virtual CPU's number. */
void pagewalk_gen_call(PagewalkCallback *callback);

/* Operations that are generated from here on are inserted before `op`, or at the end of the block if it is NULL. */
static inline void pagewalk_before(TCGOp *op)
{
    tcg_ctx->emit_before_op = op;
}

#endif
