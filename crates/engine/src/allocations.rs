//! Allocations that the library `preload/allocations.c` reports.
//!
//! ```text
//!   frame  -> | caller's frame | return address |     the library's function
//!               |
//!               +-> | caller's frame | return address |     the program's, as long as it keeps
//!                     |                                     frame pointers
//! ```
//!
//! For a large block, words of the stack are reported too: the host finds the calls in them with the tables of programs
//! without frame pointers (`symbols::Unwinder`). What is reported is what the recorder in QEMU reports
//! (`crates/recorder/src/allocations.rs`).

use ring::{EventCode, Said};

use crate::run::Engine;
use crate::ways;

/// The most calls whose return addresses are reported.
const CALLS_MAX: usize = 24;
/// The most bytes of one frame; a value that would make a larger frame is not a frame pointer.
const FRAME_BYTES_MAX: u64 = 1 << 20;
/// Blocks of at least this many bytes are large: each has its own pages.
const LARGE_BYTES: u64 = 64 << 10;
/// The number of words of the stack that are reported: larger frames are rare.
const STACK_WORDS: usize = 384;
const PAGE_BYTES: u64 = 4096;

impl Engine {
    /// Handles a message that the library sends by a system call with these arguments.
    pub(crate) fn told(&mut self, said: Said, arguments: [u64; 6]) {
        let [_, what, a, b, c, _] = arguments;
        match said {
            Said::Freed => self.recorder.event(EventCode::Free, &[&[a]]),
            Said::Allocated => {
                let mut calls = [0; CALLS_MAX];
                let count = follow(c, what >> 8, &mut calls);
                if b >= LARGE_BYTES {
                    let mut stack = [0; STACK_WORDS];
                    let words = read_words(c, &mut stack);
                    self.recorder.event(EventCode::Stack, &[&[c], &stack[..words]]);
                }
                self.recorder.event(EventCode::Allocate, &[&[a, b], &calls[..count]]);
            }
        }
    }
}

/// Writes the return addresses to `calls`, from the function whose frame pointer is `frame`
/// outwards. Returns their number. Frames are `offset` bytes below the frame pointers.
fn follow(mut frame: u64, offset: u64, calls: &mut [u64; CALLS_MAX]) -> usize {
    for (count, place) in calls.iter_mut().enumerate() {
        let mut words = [0u64; 2];
        if !ways::read(frame.wrapping_sub(offset), &mut words) {
            return count;
        }
        let [next, call] = words;
        if call == 0 {
            return count;
        }
        *place = call;
        // Stacks grow down: a caller's frame is above.
        let is_frame = next > frame && next - frame <= FRAME_BYTES_MAX && next.is_multiple_of(8);
        if !is_frame {
            return count + 1;
        }
        frame = next;
    }
    CALLS_MAX
}

/// Reads as many words from `address` on as can be read. Returns their number.
fn read_words(address: u64, to: &mut [u64; STACK_WORDS]) -> usize {
    let (all, mut done) = (size_of_val(to) as u64, 0);
    while done < all {
        let from = address.wrapping_add(done);
        let step = (PAGE_BYTES - from % PAGE_BYTES).min(all - done);
        let at = to.as_mut_ptr().cast::<u8>().wrapping_add(done as usize);
        if !ways::read_bytes(from, at, step) {
            break;
        }
        done += step;
    }
    (done / 8) as usize
}
