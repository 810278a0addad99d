/* What a program can say to Pagewalk while it is recorded: markers, page sizes it wants, and what its
 * own allocator gives to whom.
 *
 *     #include "pagewalk.h"
 *
 *     pagewalk_marker(1);                              pagewalk record --from-marker 1 \
 *     work();                                              --to-marker 2 -- ./program
 *     pagewalk_marker(2);
 *
 * Each is one system call that Linux does not know and answers with EINVAL: it changes nothing,
 * costs less than a microsecond, and may stay in the program. It is the same on every processor.
 * errno is left as it was.
 */
#ifndef PAGEWALK_H
#define PAGEWALK_H

#include <errno.h>
#include <stddef.h>
#include <sys/prctl.h>

/* "PWLK": no option of prctl(2). */
#define PAGEWALK_OPTION 0x50574c4b

static inline void pagewalk_say(unsigned long what, unsigned long a, unsigned long b,
                                unsigned long c)
{
    int before = errno;
    (void)prctl(PAGEWALK_OPTION, what, a, b, c);
    errno = before;
}

/* The program has come to the marker of that number. */
static inline void pagewalk_marker(unsigned long number)
{
    pagewalk_say(1, number, 0, 0);
}

/* Asks for pages of `page_bytes` (a power of two) for `bytes` from `start` on. A memory manager
 * that has policies for page sizes takes it up; others do not. */
static inline void pagewalk_page_size(const void *start, size_t bytes, size_t page_bytes)
{
    pagewalk_say(2, (unsigned long)start, bytes, page_bytes);
}

/* How far below the frame pointer a frame has the caller's and the return address. */
#if defined(__riscv)
#define PAGEWALK_FRAME_OFFSET (2 * sizeof(void *))
#else
#define PAGEWALK_FRAME_OFFSET 0
#endif

/* In a function that allocates, for a program's own allocator or one that is linked statically: the
 * block that it is about to give its caller. Misses on the block are then told apart by that caller. */
static inline __attribute__((always_inline)) void pagewalk_allocated(const void *block, size_t bytes)
{
    pagewalk_say(3 | PAGEWALK_FRAME_OFFSET << 8, (unsigned long)block, bytes,
                 (unsigned long)__builtin_frame_address(0));
}

/* The block is about to be given back. */
static inline void pagewalk_freed(const void *block)
{
    pagewalk_say(4, (unsigned long)block, 0, 0);
}

#endif
