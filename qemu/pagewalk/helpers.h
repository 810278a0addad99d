/* SPDX-License-Identifier: GPL-2.0-or-later */
#ifndef PAGEWALK_HELPERS_H
#define PAGEWALK_HELPERS_H

#include "tcg/tcg.h"

/* Whether an operation, a call, may access the guest's memory. */
bool pagewalk_may_access(TCGOp *op);
/* Whether the call may leave the block although it does not access memory, because it divides. */
bool pagewalk_divides(TCGOp *op);

#endif
