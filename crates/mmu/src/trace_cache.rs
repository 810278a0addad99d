//! A trace cache: decoded instructions, tagged by virtual address (U02 section 2.1).
//!
//! ```text
//!   fetch --> trace cache -- all lines there --> micro-ops: neither TLB nor caches are asked
//!                | some are not
//!                v
//!             TLB --> second-level cache --> decode: the lines are built
//! ```
//!
//! Because a trace cache is tagged with virtual addresses, it must be emptied when these addresses
//! get another meaning. A line holds some micro-ops of straight-line code. Lines of real trace
//! caches continue across branches, which is not modelled.

use addr::{Asid, VirtAddr};

use crate::GeometryError;

/// The parameters of a trace cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceCacheParams {
    /// The number of micro-ops that it can hold.
    pub uops: u32,
    /// The number of micro-ops per line.
    pub line_uops: u32,
    /// The number of lines per set.
    pub ways: u32,
}

/// Counts of a trace cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TraceCacheCounts {
    /// Fetches.
    pub fetches: u64,
    /// Fetches that found all of their lines.
    pub served: u64,
    /// Lines that fetches found.
    pub lines_delivered: u64,
    /// Lines that were built after a miss.
    pub lines_built: u64,
    /// The number of times that the trace cache was emptied.
    pub emptied: u64,
    /// Lines removed by emptying.
    pub lines_emptied: u64,
}

/// The trace cache of a processor.
#[derive(Clone, Debug)]
pub struct TraceCache {
    params: TraceCacheParams,
    sets: u64,
    /// The lines of each set, the most recently used first: address and context of their first
    /// instruction.
    lines: Vec<Option<(u64, Asid)>>,
    counts: TraceCacheCounts,
}

impl TraceCache {
    /// An empty trace cache.
    pub fn new(params: TraceCacheParams) -> Result<TraceCache, GeometryError> {
        let TraceCacheParams { uops, line_uops, ways } = params;
        let lines = uops.checked_div(line_uops).unwrap_or(0);
        if lines == 0 {
            return Err(GeometryError::Empty);
        }
        if ways == 0 || !lines.is_multiple_of(ways) {
            return Err(GeometryError::Ways { entries: lines.into(), ways });
        }
        let sets = u64::from(lines / ways);
        let lines = vec![None; lines as usize];
        Ok(TraceCache { params, sets, lines, counts: TraceCacheCounts::default() })
    }

    /// The parameters.
    pub fn params(&self) -> TraceCacheParams {
        self.params
    }

    /// The counts so far.
    pub fn counts(&self) -> TraceCacheCounts {
        self.counts
    }

    /// Resets the counts to zero; the lines stay.
    pub fn forget_counts(&mut self) {
        let TraceCache { params: _, sets: _, lines: _, counts } = self;
        *counts = TraceCacheCounts::default();
    }

    /// Fetches `bytes` bytes of code at `addr`, which decode to `uops` micro-ops. Returns whether
    /// all of this code was present. Code that was missing is inserted.
    pub fn fetch(&mut self, addr: VirtAddr, bytes: u32, uops: u32, asid: Asid) -> bool {
        let lines = u64::from(uops.div_ceil(self.params.line_uops).max(1));
        let mut built = 0;
        for line in 0..lines {
            let start = addr.get().wrapping_add(u64::from(bytes) * line / lines);
            built += u64::from(!self.touch(start, asid));
        }
        self.counts.fetches += 1;
        self.counts.served += u64::from(built == 0);
        self.counts.lines_delivered += lines - built;
        self.counts.lines_built += built;
        built == 0
    }

    /// Removes all lines.
    pub fn clear(&mut self) {
        self.counts.emptied += 1;
        self.counts.lines_emptied += self.lines.iter().flatten().count() as u64;
        self.lines.fill(None);
    }

    /// Moves the line that begins at `start` to the front of its set. Returns whether the line was
    /// present.
    fn touch(&mut self, start: u64, asid: Asid) -> bool {
        // Much code is aligned to 64 bytes, so the bits above the offset in 64 bytes are included
        // to spread lines over the sets.
        let set = (start >> 2 ^ start >> 6) % self.sets;
        let ways = self.params.ways as usize;
        let lines = &mut self.lines[set as usize * ways..][..ways];
        let wanted = Some((start, asid));
        let found = lines.iter().position(|line| *line == wanted);
        lines[..=found.unwrap_or(ways - 1)].rotate_right(1);
        lines[0] = wanted;
        found.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const SMALL: TraceCacheParams = TraceCacheParams { uops: 96, line_uops: 6, ways: 4 };

    /// Compares random fetches with a model that lists the lines of each set, the most recent
    /// first.
    #[test]
    fn lines_go_when_their_set_is_full() {
        let mut cache = TraceCache::new(SMALL).unwrap();
        let mut sets = vec![VecDeque::new(); 4];
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let (mut built, mut served) = (0, 0);
        for step in 0..20_000_u64 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let addr = (state >> 8) % 160;
            let (bytes, uops, asid) =
                ((state >> 20) % 40, (state >> 30) as u32 % 15, step / 5000 % 2);
            if state.is_multiple_of(997) {
                cache.clear();
                sets.iter_mut().for_each(VecDeque::clear);
            }
            let lines = u64::from(uops.div_ceil(6).max(1));
            let before = built;
            for line in 0..lines {
                let start = (addr + bytes * line / lines, asid);
                let set = &mut sets[(((start.0 / 4) ^ (start.0 / 64)) % 4) as usize];
                match set.iter().position(|held| *held == start) {
                    Some(at) => drop(set.remove(at)),
                    None => built += 1,
                }
                set.push_front(start);
                set.truncate(4);
            }
            let all = cache.fetch(VirtAddr::new(addr), bytes as u32, uops, Asid(asid as u16));
            assert_eq!(all, built == before, "step {step}");
            served += u64::from(all);
        }
        let counts = cache.counts();
        assert_eq!((counts.lines_built, counts.served, counts.fetches), (built, served, 20_000));
        assert!(counts.emptied > 5 && served > 1000, "{counts:?}");
    }

    #[test]
    fn a_shape_that_cannot_be_is_refused() {
        let wrong = |uops, line_uops, ways| {
            TraceCache::new(TraceCacheParams { uops, line_uops, ways }).unwrap_err().to_string()
        };
        assert!(!wrong(96, 0, 4).is_empty() && !wrong(96, 6, 0).is_empty());
        assert!(!wrong(96, 6, 5).is_empty());
    }
}
