/* What a program can report to Pagewalk while it is recorded: markers, requests for page sizes, and
 * the blocks that its own allocator allocates.
 *
 *     #include "pagewalk.h"
 *
 *     pagewalk_marker(1);                              pagewalk record --from-marker 1 \
 *     work();                                              --to-marker 2 -- ./program
 *     pagewalk_marker(2);
 *
 * Each report is one system call that Linux does not know, so that Linux returns EINVAL. The call
 * has no effect if the program is not recorded, takes less than a microsecond, and may stay in the
 * program. It is the same on every processor. errno does not change.
 */
#ifndef PAGEWALK_H
#define PAGEWALK_H

#include <errno.h>
#include <stddef.h>
#include <sys/prctl.h>

/* "PWLK". Linux has no option of prctl(2) with this number. */
#define PAGEWALK_OPTION 0x50574c4b

static inline void pagewalk_say(unsigned long what, unsigned long a, unsigned long b,
                                unsigned long c)
{
    int before = errno;
    (void)prctl(PAGEWALK_OPTION, what, a, b, c);
    errno = before;
}

/* Reports that the program has reached the marker with this number. */
static inline void pagewalk_marker(unsigned long number)
{
    pagewalk_say(1, number, 0, 0);
}

/* Requests pages of `page_bytes` bytes (a power of two) for the `bytes` bytes from `start` on. Only
 * memory managers with policies for page sizes use the request. */
static inline void pagewalk_page_size(const void *start, size_t bytes, size_t page_bytes)
{
    pagewalk_say(2, (unsigned long)start, bytes, page_bytes);
}

/* How many bytes below the frame pointer the caller's frame pointer and the return address are. */
#if defined(__riscv)
#define PAGEWALK_FRAME_OFFSET (2 * sizeof(void *))
#else
#define PAGEWALK_FRAME_OFFSET 0
#endif

/* Called in a function that allocates, with the block that it is about to return. This is for a
 * program's own allocator, or one that is linked statically. Misses on the block are then reported
 * by the caller of the function. */
static inline __attribute__((always_inline)) void pagewalk_allocated(const void *block, size_t bytes)
{
    pagewalk_say(3 | PAGEWALK_FRAME_OFFSET << 8, (unsigned long)block, bytes,
                 (unsigned long)__builtin_frame_address(0));
}

/* Reports that the block is about to be freed. */
static inline void pagewalk_freed(const void *block)
{
    pagewalk_say(4, (unsigned long)block, 0, 0);
}

#endif
