//! The physical stream: the physical address of every row, if the trace has physical addresses.
//!
//! ```text
//!   page of the row's address --> table of 1024 (page, frame), by the low page-number bits
//!                                    hit: predicted frame + offset
//! ```
//!
//! Rows whose physical address is predicted correctly are only counted: the stream alternates
//! between a varint number of such rows and the u64 physical address of the next row. The last
//! count ends at the last row. An address that was not predicted replaces its table entry, unless
//! it is 0, which stands for "not known". Pages have 4 KiB. A physical address cannot be predicted
//! if its offset in the page differs from that of the virtual address.

use super::Damage;
use super::wire::{Bytes, put_varint};

const TABLE: usize = 1024;
const OFFSET_BITS: u32 = 12;

/// For each entry of the table: the virtual and physical page number that it was last set to. No
/// address has the page number `u64::MAX`.
#[derive(Debug)]
struct LastFilled(Box<[(u64, u64); TABLE]>);

impl LastFilled {
    fn new() -> LastFilled {
        LastFilled(Box::new([(u64::MAX, 0); TABLE]))
    }

    fn predict(&self, addr: u64) -> Option<u64> {
        let page = addr >> OFFSET_BITS;
        let (held, frame) = self.0[page as usize % TABLE];
        (held == page).then_some(frame << OFFSET_BITS | addr & ((1 << OFFSET_BITS) - 1))
    }

    fn learn(&mut self, addr: u64, paddr: u64) {
        if paddr != 0 {
            let page = addr >> OFFSET_BITS;
            self.0[page as usize % TABLE] = (page, paddr >> OFFSET_BITS);
        }
    }
}

/// A physical stream that is being written.
#[derive(Debug)]
pub(super) struct PhysicalEncoder {
    table: LastFilled,
    predicted: u64,
    rows: usize,
    out: Vec<u8>,
}

impl PhysicalEncoder {
    /// A stream whose first `rows` rows have no known physical address.
    pub(super) fn starting_at(rows: usize) -> PhysicalEncoder {
        let mut encoder =
            PhysicalEncoder { table: LastFilled::new(), predicted: 0, rows: 0, out: Vec::new() };
        encoder.pad(rows);
        encoder
    }

    /// Appends a row at `addr` with the physical address `paddr`, or 0 if that is unknown.
    pub(super) fn push(&mut self, addr: u64, paddr: u64) {
        self.rows += 1;
        if self.table.predict(addr) == Some(paddr) {
            self.predicted += 1;
            return;
        }
        put_varint(&mut self.out, self.predicted);
        self.out.extend_from_slice(&paddr.to_le_bytes());
        self.table.learn(addr, paddr);
        self.predicted = 0;
    }

    /// Appends rows without a known physical address until there are `rows` rows.
    pub(super) fn pad(&mut self, rows: usize) {
        while self.rows < rows {
            put_varint(&mut self.out, std::mem::take(&mut self.predicted));
            self.out.extend_from_slice(&0u64.to_le_bytes());
            self.rows += 1;
        }
    }

    /// The bytes of the stream, after all rows have been appended.
    pub(super) fn finish(mut self) -> Vec<u8> {
        put_varint(&mut self.out, self.predicted);
        self.out
    }
}

/// A physical stream that is being read.
#[derive(Debug)]
pub(super) struct PhysicalDecoder {
    table: LastFilled,
    at: usize,
    predicted: u64,
}

impl PhysicalDecoder {
    /// The decoder at the beginning of `stream`.
    pub(super) fn start(stream: &[u8]) -> Result<PhysicalDecoder, Damage> {
        let mut bytes = Bytes(stream);
        let predicted = bytes.varint()?;
        let at = stream.len() - bytes.0.len();
        Ok(PhysicalDecoder { table: LastFilled::new(), at, predicted })
    }

    /// Appends the physical addresses of the next rows, whose virtual addresses are `addrs`.
    pub(super) fn extend(
        &mut self,
        stream: &[u8],
        addrs: &[u64],
        paddrs: &mut Vec<u64>,
    ) -> Result<(), Damage> {
        for &addr in addrs {
            if self.predicted > 0 {
                let Some(paddr) = self.table.predict(addr) else {
                    return Err(Damage::new(
                        "it predicts the frame of a page that it has not stored",
                    ));
                };
                self.predicted -= 1;
                paddrs.push(paddr);
                continue;
            }
            let mut bytes = Bytes(&stream[self.at..]);
            let paddr = bytes.u64()?;
            self.predicted = bytes.varint()?;
            self.at = stream.len() - bytes.0.len();
            self.table.learn(addr, paddr);
            paddrs.push(paddr);
        }
        Ok(())
    }
}
