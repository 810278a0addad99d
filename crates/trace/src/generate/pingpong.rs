//! Two processes that take turns, each with a working set of its own (U02 section 4.1).
//!
//! ```text
//!   space 0   call | nops | jumps to one page each | reads of one page each | Run: space 1
//!   space 1   call | nops | jumps                  | reads                  | Run: space 0 ...
//! ```
//!
//! Jumps are 4155 bytes apart and reads 4160: each is to a page of its own and, since that is not a
//! multiple of a page, to another set of the caches. Both processes are the same program at the same
//! addresses. What a kernel does at the call is not here.

use addr::Kind;

use super::{Fill, Region};
use crate::{Batch, Event, Meta};

/// From one jump to the next, and from one read.
pub(super) const JUMP_BYTES: u64 = 4155;
pub(super) const READ_BYTES: u64 = 4160;
/// Nops that one fetch brings: a line of them, of a byte each.
const LINE: u64 = 64;
/// Instructions around the call.
const CALL_INSTRUCTIONS: u32 = 20;

pub(super) struct Pingpong {
    /// The call and the nops; where is jumped to; what is read.
    pub(super) regions: [Region; 3],
    pub(super) nops: u64,
    pub(super) jumps: u64,
    pub(super) reads: u64,
    /// How far the turn has come, in accesses.
    pub(super) step: u64,
    pub(super) space: u32,
    /// Whether the second process has begun.
    pub(super) both: bool,
}

impl Pingpong {
    /// The access at `step` of a turn; `None` at its end.
    fn access(&self, step: u64) -> Option<(u64, Meta)> {
        let [code, jumps, data] = &self.regions;
        if step == 0 {
            return Some((code.start, Meta::new(Kind::Fetch, 64, CALL_INSTRUCTIONS)));
        }
        let (mut step, lines) = (step - 1, self.nops.div_ceil(LINE));
        if step < lines {
            let instructions = (self.nops - step * LINE).min(LINE) as u32;
            let meta = Meta::new(Kind::Fetch, instructions, instructions);
            return Some((code.start + (step + 1) * LINE, meta));
        }
        step -= lines;
        if step < self.jumps {
            return Some((jumps.start + step * JUMP_BYTES, Meta::new(Kind::Fetch, 5, 1)));
        }
        step -= self.jumps;
        let read = || (data.start + step * READ_BYTES, Meta::new(Kind::Load, 4, 1));
        (step < self.reads).then(read)
    }
}

impl Fill for Pingpong {
    fn fill(&mut self, count: usize, batch: &mut Batch) {
        let mut left = count;
        while left > 0 {
            if let Some((addr, meta)) = self.access(self.step) {
                batch.addr.push(addr);
                batch.meta.push(meta);
                self.step += 1;
                left -= 1;
                continue;
            }
            (self.step, self.space) = (0, 1 - self.space);
            batch.push_event(0, Event::Run { cpu: None, space: self.space });
            if !std::mem::replace(&mut self.both, true) {
                self.regions.iter().for_each(|region| batch.push_event(0, region.event()));
            }
        }
    }

    fn fetches(&self) -> bool {
        true
    }
}
