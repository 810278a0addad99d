//! Allocations that the library `preload/allocations.c` reports.
//!
//! ```text
//!   frame  -> | caller's frame | return address |     the library's function
//!               |
//!               +-> | caller's frame | return address |     the program's, as long as it keeps
//!                     |                                     frame pointers
//! ```
//!
//! For a large block of a program for x86-64, words of the stack are reported too: the host finds the calls in them
//! with the tables of programs without frame pointers (`symbols::Unwinder`).

use crate::record::{EventCode, Said};
use crate::within::{Numbers, Within, pointer_bytes, word};

/// The most calls whose return addresses are reported.
const CALLS_MAX: usize = 24;
/// The most bytes of one frame; a value that would make a larger frame is not a frame pointer.
const FRAME_BYTES_MAX: u64 = 1 << 20;
/// Blocks of at least this many bytes are large: each has its own pages.
const LARGE_BYTES: u64 = 64 << 10;
/// The number of words of the stack that are reported: larger frames are rare.
const STACK_WORDS: usize = 384;
/// Memory is mapped by pages of at least this size: a part of the stack is read as far as it is mapped.
const PAGE_BYTES: u64 = 4096;

impl Said {
    /// Handles a message that the library sends by a system call with these arguments: `event` writes an
    /// event, of its code and the parts of its words.
    pub fn report(
        self,
        within: &impl Within,
        arguments: [u64; 6],
        mut event: impl FnMut(EventCode, &[&[u64]]),
    ) {
        let [_, what, block, bytes, frame, _] = arguments;
        match self {
            Said::Freed => event(EventCode::Free, &[&[block]]),
            Said::Allocated => {
                let mut calls = [0; CALLS_MAX];
                let count = follow(within, frame, what >> 8, &mut calls);
                if bytes >= LARGE_BYTES && within.numbers() == Numbers::X86_64 {
                    let mut stack = [0; STACK_WORDS];
                    let words = read_words(within, frame, &mut stack);
                    event(EventCode::Stack, &[&[frame], &stack[..words]]);
                }
                event(EventCode::Allocate, &[&[block, bytes], &calls[..count]]);
            }
        }
    }
}

/// Writes the return addresses to `calls`, from the function whose frame pointer is `frame`
/// outwards. Returns their number. Frames are `offset` bytes below the frame pointers.
fn follow(
    within: &impl Within,
    mut frame: u64,
    offset: u64,
    calls: &mut [u64; CALLS_MAX],
) -> usize {
    let word_bytes = pointer_bytes(within);
    for (count, place) in calls.iter_mut().enumerate() {
        let at = frame.wrapping_sub(offset);
        let call = word(within, at.wrapping_add(word_bytes));
        if call == 0 {
            return count;
        }
        *place = call;
        let next = word(within, at);
        // Stacks grow down: a caller's frame is above.
        let is_frame =
            next > frame && next - frame <= FRAME_BYTES_MAX && next.is_multiple_of(word_bytes);
        if !is_frame {
            return count + 1;
        }
        frame = next;
    }
    CALLS_MAX
}

/// Reads as many words from `address` on as can be read. Returns their number.
fn read_words(within: &impl Within, address: u64, to: &mut [u64; STACK_WORDS]) -> usize {
    let mut bytes = [0; 8 * STACK_WORDS];
    let mut done = 0;
    while done < bytes.len() {
        let from = address.wrapping_add(done as u64);
        let end = bytes.len().min(done + (PAGE_BYTES - from % PAGE_BYTES) as usize);
        if !within.read(from, &mut bytes[done..end]) {
            break;
        }
        done = end;
    }
    for (word, bytes) in to.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    }
    done / 8
}
