use alloc::{boxed::Box, vec::Vec};

const CHUNK_FRAMES: usize = 4096;

/// Which blocks are out, and how large each is: one byte for each base frame, in chunks that
/// exist only where a block was ever given out.
#[derive(Default)]
pub(crate) struct Ledger {
    /// Per base frame: 0, or 1 + the order of the block that starts there and is out.
    chunks: Vec<Option<Box<[u8; CHUNK_FRAMES]>>>,
}

impl Ledger {
    /// The order of the block that starts at base frame `index`, if it is out.
    pub(crate) fn get(&self, index: u64) -> Option<u32> {
        let chunk = self.chunks.get(index as usize / CHUNK_FRAMES)?.as_ref()?;
        u32::from(chunk[index as usize % CHUNK_FRAMES]).checked_sub(1)
    }

    /// Enters or strikes out the block that starts at base frame `index`.
    pub(crate) fn set(&mut self, index: u64, order: Option<u32>) {
        let number = index as usize / CHUNK_FRAMES;
        if number >= self.chunks.len() {
            self.chunks.resize_with(number + 1, || None);
        }
        let chunk = self.chunks[number].get_or_insert_with(|| Box::new([0; CHUNK_FRAMES]));
        chunk[index as usize % CHUNK_FRAMES] = order.map_or(0, |order| order as u8 + 1);
    }
}
