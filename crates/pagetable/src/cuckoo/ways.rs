use addr::{Frames, Memory, OutOfFrames, PageSize, PhysAddr};

use super::{WAYS_MAX, line::LINE_BYTES};
use crate::Flush;

/// Arrays of one length, one per way.
#[derive(Debug)]
pub(super) struct Ways {
    bases: [PhysAddr; WAYS_MAX as usize],
    count: usize,
    pub(super) places: u64,
}

impl Ways {
    pub(super) fn new(
        ways: usize,
        places: u64,
        memory: &mut impl Memory,
        frames: &mut impl Frames,
    ) -> Result<Ways, OutOfFrames> {
        let size = frame_size(places);
        let mut bases = [PhysAddr::new(0); WAYS_MAX as usize];
        for way in 0..ways {
            match frames.allocate(size) {
                Ok(base) => bases[way] = base,
                Err(error) => {
                    bases[..way].iter().for_each(|&base| frames.free(base, size));
                    return Err(error);
                }
            }
        }
        for &base in &bases[..ways] {
            memory.zero(base, places * LINE_BYTES);
        }
        Ok(Ways { bases, count: ways, places })
    }

    /// The address of each way's frame.
    pub(super) fn bases(&self) -> &[PhysAddr] {
        &self.bases[..self.count]
    }

    pub(super) fn at(&self, way: usize, index: u64) -> PhysAddr {
        self.bases[way].wrapping_add(index * LINE_BYTES)
    }

    /// The number of places for lines in all ways together.
    pub(super) fn lines_max(&self) -> u64 {
        self.places * self.count as u64
    }

    /// Hands the frames over to `flush`, which frees them after the flush.
    pub(super) fn put_all(self, flush: &mut Flush) {
        for &base in self.bases() {
            flush.add_table(base, frame_size(self.places));
        }
    }

    /// Frees the frames of arrays that were never walked.
    pub(super) fn free(self, frames: &mut impl Frames) {
        for &base in self.bases() {
            frames.free(base, frame_size(self.places));
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.count as u64 * self.places * LINE_BYTES
    }

    /// The addresses of the places from number `first` on, in each way.
    pub(super) fn lines(&self, first: u64) -> impl Iterator<Item = PhysAddr> + '_ {
        let ways = 0..self.count;
        ways.flat_map(move |way| (first..self.places).map(move |index| self.at(way, index)))
    }
}

fn frame_size(places: u64) -> PageSize {
    PageSize::from_bytes(places * LINE_BYTES).unwrap_or(PageSize::SIZE_4K).max(PageSize::SIZE_4K)
}
