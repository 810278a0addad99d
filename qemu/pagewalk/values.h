/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef PAGEWALK_VALUES_H
#define PAGEWALK_VALUES_H

#include "tcg/tcg.h"
#include "pagewalk/recorder.h"

/* Nothing is known yet. */
void pagewalk_values_begin(void);
/* Goes on behind `op`, the next of the block. */
void pagewalk_values_pass(const TCGOp *op);
/*
 * How the address in `temp` follows from those that are recorded, of which the next would be number
 * `next`, or from the block's start; access->from says so if it does not.
 */
void pagewalk_values_derive(const TCGTemp *temp, uint16_t next, uint64_t pc, PagewalkAccess *access);

#endif
