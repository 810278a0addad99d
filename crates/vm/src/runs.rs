//! The records of frames that were given to regions ([`super::given`]).

use alloc::{collections::TryReserveError, vec::Vec};
use core::ops::Range;

use addr::Attributes;

/// The frames that regions map because they were given to them, by ascending frame.
#[derive(Debug, Default)]
pub(crate) struct Given(Vec<Run>);

/// Adjacent frames that have equal attributes and are mapped by an equal number of regions.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) frames: Range<u64>,
    attributes: Attributes,
    /// The number of regions that map the frames; at least 1.
    pub(crate) users: u64,
}

impl Given {
    pub(crate) fn all(&self) -> &[Run] {
        &self.0
    }

    /// The index of the first run that ends after `frame`.
    fn from(&self, frame: u64) -> usize {
        self.0.partition_point(|run| run.frames.end <= frame)
    }

    /// The indices of the runs that overlap `frames`.
    fn within(&self, frames: &Range<u64>) -> Range<usize> {
        self.from(frames.start)..self.0.partition_point(|run| run.frames.start < frames.end)
    }

    /// The first of `frames` that has other attributes, with these attributes.
    pub(crate) fn clash(
        &self,
        frames: &Range<u64>,
        attributes: Attributes,
    ) -> Option<(u64, Attributes)> {
        let runs = &self.0[self.within(frames)];
        let other = runs.iter().find(|run| run.attributes != attributes)?;
        Some((other.frames.start.max(frames.start), other.attributes))
    }

    /// Cuts the run that contains `frame`, so that a run begins there.
    pub(crate) fn cut(&mut self, frame: u64) -> Result<(), TryReserveError> {
        let at = self.from(frame);
        let Some(run) = self.0.get(at).filter(|run| run.frames.start < frame) else {
            return Ok(());
        };
        let left = Run { frames: run.frames.start..frame, ..run.clone() };
        self.0.try_reserve(1)?;
        self.0[at].frames.start = frame;
        self.0.insert(at, left);
        Ok(())
    }

    /// Adds a region that maps `frames`, whose attributes are `attributes`. `new` is called with the
    /// frames that no region has mapped so far. After an error nothing has changed.
    pub(crate) fn add(
        &mut self,
        frames: &Range<u64>,
        attributes: Attributes,
        mut new: impl FnMut(Range<u64>),
    ) -> Result<(), TryReserveError> {
        // Room for two cuts, and for a run in each gap.
        self.0.try_reserve(self.within(frames).len() + 3)?;
        self.cut(frames.start)?;
        self.cut(frames.end)?;
        let (mut at, mut next) = (self.from(frames.start), frames.start);
        while next < frames.end {
            match self.0.get_mut(at) {
                Some(run) if run.frames.start == next => {
                    run.users += 1;
                    next = run.frames.end;
                }
                behind => {
                    let end = behind.map_or(frames.end, |run| run.frames.start.min(frames.end));
                    self.0.insert(at, Run { frames: next..end, attributes, users: 1 });
                    new(next..end);
                    next = end;
                }
            }
            at += 1;
        }
        Ok(())
    }

    /// Adds a region that maps frames which another region maps.
    pub(crate) fn share(&mut self, frames: &Range<u64>) {
        let runs = self.within(frames);
        self.0[runs].iter_mut().for_each(|run| run.users += 1);
    }

    /// Removes a region that maps `frames`. `gone` is called with the frames that no region maps any
    /// more.
    pub(crate) fn remove(&mut self, frames: &Range<u64>, mut gone: impl FnMut(Range<u64>)) {
        let runs = self.within(frames);
        for run in &mut self.0[runs] {
            run.users -= 1;
            if run.users == 0 {
                gone(run.frames.clone());
            }
        }
        self.0.retain(|run| run.users > 0);
    }
}

#[cfg(test)]
mod tests {
    use addr::MemoryType;

    use super::*;

    const FRAMES: u64 = 40;

    /// Adds, removes and cuts regions of random frames, and compares the runs with a count for each
    /// frame.
    #[test]
    fn runs_are_a_count_for_each_frame() {
        let mut below = crate::random::below();
        let types = [MemoryType::Device, MemoryType::WriteCombining].map(Attributes::of);
        let (mut given, mut regions) = (Given::default(), Vec::<(Range<u64>, Attributes)>::new());
        for _ in 0..4000 {
            let start = below(FRAMES);
            let frames = start..start + 1 + below(FRAMES - start);
            match below(3) {
                0 => {
                    let asked = types[below(2) as usize];
                    let clash = (frames.clone()).find_map(|frame| {
                        let there = regions.iter().find(|(of, _)| of.contains(&frame));
                        there.filter(|(_, known)| *known != asked).map(|(_, known)| (frame, *known))
                    });
                    assert_eq!(given.clash(&frames, asked), clash);
                    if clash.is_none() {
                        let mut new = Vec::new();
                        given.add(&frames, asked, |more| new.extend(more)).unwrap();
                        let is_new =
                            |frame: &u64| !regions.iter().any(|(of, _)| of.contains(frame));
                        assert!(new.into_iter().eq(frames.clone().filter(is_new)));
                        regions.push((frames, asked));
                    }
                }
                1 if !regions.is_empty() => {
                    let (frames, known) = regions.swap_remove(below(regions.len() as u64) as usize);
                    let cut = frames.start + below(frames.end - frames.start);
                    given.cut(cut).unwrap();
                    let mut gone = Vec::new();
                    given.remove(&(frames.start..cut), |frames| gone.extend(frames));
                    let is_gone = |frame: &u64| !regions.iter().any(|(of, _)| of.contains(frame));
                    assert!(gone.into_iter().eq((frames.start..cut).filter(is_gone)));
                    regions.push((cut..frames.end, known));
                }
                _ if !regions.is_empty() => {
                    let (frames, _) = regions.swap_remove(below(regions.len() as u64) as usize);
                    given.remove(&frames, |_| ());
                }
                _ => {}
            }
            for frame in 0..FRAMES {
                let count = regions.iter().filter(|(of, _)| of.contains(&frame)).count() as u64;
                let run = given.0.iter().find(|run| run.frames.contains(&frame));
                assert_eq!(run.map_or(0, |run| run.users), count, "frame {frame}");
            }
            assert!(given.0.is_sorted_by(|one, next| one.frames.end <= next.frames.start));
        }
    }
}
