//! Allocations that the library `preload/allocations.c` reports, and the library's own code, which
//! is not recorded.
//!
//! ```text
//!   frame  -> | caller's frame | return address |     the library's function
//!               |
//!               +-> | caller's frame | return address |     the program's, as long as it keeps
//!                     |                                     frame pointers
//! ```
//!
//! For a large block, words of the stack are reported too if the program is for AMD64: the host finds the
//! calls in them with the tables of programs without frame pointers (`symbols::Unwinder`).

use core::sync::atomic::{AtomicU64, Ordering};

use ring::{EventCode, Said};

use crate::isa::Guest;
use crate::{global, guest, span};

/// The most calls whose return addresses are reported.
const CALLS_MAX: usize = 24;
/// The most bytes of one frame; a value that would make a larger frame is not a frame pointer.
const FRAME_BYTES_MAX: u64 = 1 << 20;

/// Blocks of at least this many bytes are large: each has its own pages.
const LARGE_BYTES: u64 = 64 << 10;
/// The number of words of the stack that are reported: larger frames are rare.
const STACK_WORDS: usize = 384;

/// The address range of the library's code: the first address, and the end.
static LIBRARY: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Whether `pc` is in the library's code.
pub(crate) fn is_library(pc: u64) -> bool {
    let [start, end] = &LIBRARY;
    (start.load(Ordering::Relaxed)..end.load(Ordering::Relaxed)).contains(&pc)
}

/// Takes note of an executable mapping of `bytes` bytes from `start` of the file at `path`.
pub(crate) fn mapped(path: &[u8], start: u64, bytes: u64) {
    let stem = global::shared().session().allocations.split(|&byte| byte == 0).next();
    if stem.is_some_and(|stem| !stem.is_empty() && path.starts_with(stem)) {
        // The end first, so that at no time other code seems to be between them.
        LIBRARY[1].store(start.saturating_add(bytes), Ordering::Relaxed);
        LIBRARY[0].store(start, Ordering::Relaxed);
    }
}

/// Handles a message that the library sends by a system call with these arguments.
pub(crate) fn told(vcpu: u32, guest: Guest, said: Said, arguments: &[u64; 6]) {
    let [_, what, a, b, c, _] = *arguments;
    match said {
        Said::Freed => span::event(vcpu, EventCode::Free, &[&[a]]),
        Said::Allocated => {
            let mut calls = [0; CALLS_MAX];
            let count = follow(guest, c, what >> 8, &mut calls);
            if b >= LARGE_BYTES && matches!(guest, Guest::X86_64) {
                let mut stack = [0; STACK_WORDS];
                let bytes = guest::read_bytes(c, stack.as_mut_ptr().cast(), size_of_val(&stack));
                span::event(vcpu, EventCode::Stack, &[&[c], &stack[..bytes / size_of::<u64>()]]);
            }
            span::event(vcpu, EventCode::Allocate, &[&[a, b], &calls[..count]]);
        }
    }
}

/// Writes the return addresses to `calls`, from the function whose frame pointer is `frame`
/// outwards. Returns their number. Frames are `offset` bytes below the frame pointers.
fn follow(guest: Guest, mut frame: u64, offset: u64, calls: &mut [u64; CALLS_MAX]) -> usize {
    for (count, place) in calls.iter_mut().enumerate() {
        let at = frame.wrapping_sub(offset);
        let [next, call] = if guest.pointer_bytes() == 4 {
            let mut words = [0u32; 2];
            if !guest::read(at, &mut words) {
                return count;
            }
            words.map(u64::from)
        } else {
            let mut words = [0u64; 2];
            if !guest::read(at, &mut words) {
                return count;
            }
            words
        };
        if call == 0 {
            return count;
        }
        *place = call;
        // Stacks grow down: a caller's frame is above.
        let is_frame = next > frame
            && next - frame <= FRAME_BYTES_MAX
            && next.is_multiple_of(guest.pointer_bytes() as u64);
        if !is_frame {
            return count + 1;
        }
        frame = next;
    }
    CALLS_MAX
}
