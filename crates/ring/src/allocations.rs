//! Allocations and frees, as the library `preload/allocations.c` reports them.
//!
//! ```text
//!   frame  -> | caller's frame | return address |     the library's function
//!               |
//!               +-> | caller's frame | return address |     the program's, as long as it keeps
//!                     |                                     frame pointers
//! ```
//!
//! If a program for x86-64 allocates a large block, a part of its stack is recorded too. The host
//! finds the calls in it by the unwind tables of programs that have no frame pointers
//! (`symbols::Unwinder`).

use crate::record::{EventCode, Said};
use crate::within::{Numbers, Within, pointer_bytes, word};

/// The maximum number of return addresses that are recorded.
const CALLS_MAX: usize = 24;
/// The maximum size of a stack frame in bytes. A value that would make a frame larger is not taken
/// for a frame pointer.
const FRAME_BYTES_MAX: u64 = 1 << 20;
/// Blocks of at least this number of bytes are large. Each large block has pages of its own.
const LARGE_BYTES: u64 = 64 << 10;
/// The number of words of the stack that are recorded. Larger frames are rare.
const STACK_WORDS: usize = 384;
/// Memory is mapped in pages of at least this size. The stack is read page by page, as far as it is
/// mapped.
const PAGE_BYTES: u64 = 4096;

impl Said {
    /// Handles a message that the library sends by a system call with these `arguments`. `event` is
    /// called to write an event, with the event's code and the parts of its words.
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

/// Writes return addresses to `calls`: first that of the function whose frame pointer is `frame`,
/// then those of its callers. Returns the number of return addresses. The caller's frame pointer is
/// stored `offset` bytes below the address in the frame pointer.
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
        // Stacks grow down, so a caller's frame is at a higher address.
        let is_frame =
            next > frame && next - frame <= FRAME_BYTES_MAX && next.is_multiple_of(word_bytes);
        if !is_frame {
            return count + 1;
        }
        frame = next;
    }
    CALLS_MAX
}

/// Reads words from `address` on into `to`, until a word cannot be read or `to` is full. Returns
/// the number of words.
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
