/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef PAGEWALK_VALUES_H
#define PAGEWALK_VALUES_H

#include "tcg/tcg.h"
#include "pagewalk/recorder.h"

/* Begins with all values unknown. */
void pagewalk_values_begin(void);
/* Processes `op`, the next operation of the block. */
void pagewalk_values_pass(const TCGOp *op);
/*
 * How the address in `temp` is computed from a recorded address, or from the block's start. `next` is
 * the number of the next recorded address. If it cannot be computed, access->from says so.
 */
void pagewalk_values_derive(const TCGTemp *temp, uint16_t next, uint64_t pc, PagewalkAccess *access);

#endif
