/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Determines which of the C functions that translated code calls may access the guest's memory.
 *
 * A function that accesses memory may fault, and then the guest's registers must be stored. So QEMU
 * declares that such a function reads the registers. A function that does not read them, or that has
 * no effect except its result, only computes. Some further functions are known by their names.
 */
#include "qemu/osdep.h"
#include "cpu.h"
#include "tcg/tcg.h"
#include "tcg/tcg-internal.h"
#include "pagewalk/helpers.h"

static const char *name_of(TCGOp *op)
{
    return tcg_call_info(op)->name ?: "";
}

#ifdef TARGET_I386
static bool is_division(const char *name)
{
    static const char *const ends[] = { "b_AL", "w_AX", "l_EAX", "q_EAX" };

    if (!g_str_has_prefix(name, "div") && !g_str_has_prefix(name, "idiv")) {
        return false;
    }
    for (unsigned i = 0; i < ARRAY_SIZE(ends); i++) {
        if (g_str_has_suffix(name, ends[i])) {
            return true;
        }
    }
    return false;
}

/* Operations on vectors, except gather and scatter, and on single numbers in vector registers. */
static bool computes(const char *name)
{
    static const char *const scalars[] = {
        "addss", "addsd", "subss", "subsd", "mulss", "mulsd", "divss", "divsd", "minss", "minsd",
        "maxss", "maxsd", "sqrtss", "sqrtsd", "comiss", "comisd", "ucomiss", "ucomisd",
    };
    bool is_of_vectors = g_str_has_suffix(name, "_mmx") || g_str_has_suffix(name, "_xmm")
        || g_str_has_suffix(name, "_ymm");

    if (is_of_vectors && !strstr(name, "maskmov") && !strstr(name, "gather")) {
        return true;
    }
    for (unsigned i = 0; i < ARRAY_SIZE(scalars); i++) {
        if (g_str_equal(name, scalars[i])) {
            return true;
        }
    }
    return g_str_has_prefix(name, "cvt") || is_division(name);
}
#else
static bool is_division(const char *name)
{
    return false;
}

static bool computes(const char *name)
{
    return false;
}
#endif

bool pagewalk_may_access(TCGOp *op)
{
    unsigned flags = tcg_call_flags(op);

    return !(flags & (TCG_CALL_NO_READ_GLOBALS | TCG_CALL_NO_SIDE_EFFECTS)) && !computes(name_of(op));
}

bool pagewalk_divides(TCGOp *op)
{
    return is_division(name_of(op));
}
