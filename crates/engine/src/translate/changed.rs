//! Code that changes.
//!
//! ```text
//!   mapped, unmapped, rights changed     blocks there are retired: their first instruction becomes a jump out
//!   looked up again                      the same bytes as before: the old block is used again
//!   writable or shared memory            blocks compare their bytes before each execution
//!
//!   retired block   jmp out ----> Exit::Gone ----> the block that is there now     jmp to that from then on
//! ```
//!
//! A program that makes code at run time either changes the rights of its memory before and after
//! it writes, or keeps the memory writable, or writes through another mapping of the same pages. In
//! the first case the engine sees the system call. In the other cases it sees nothing. So a block
//! in writable or shared memory begins with a comparison of its code with the code that was
//! translated. The block ends after each instruction that stores, so that a program may change the
//! instruction that it executes next. The comparison changes no flags and no registers.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Exit, INSTRUCTIONS_MAX, Region, Translator, near};
use crate::emit::{Code, Place};
use crate::insn::BYTES_MAX;
use crate::state::{RCX, SCRATCH};
use crate::sys;

/// The most bytes of a block.
const BLOCK_BYTES_MAX: u64 = (INSTRUCTIONS_MAX * BYTES_MAX) as u64;
/// The bytes of a block's first instruction that a jump replaces; no first instruction is shorter.
const HEAD_BYTES: usize = 5;
/// The maximum number of retired blocks at one address that are kept so that they can be used
/// again.
const PAST_MAX: usize = 4;
/// The processor's number of rcx.
const RCX_NUMBER: u8 = 1;

/// The data by which retired blocks are found and used again.
#[derive(Default)]
pub(super) struct Changed {
    /// By the address of a block's code: the code that was there before the block was retired.
    retired: BTreeMap<u64, Retired>,
    /// By the block's address in the program: the code of blocks that have been retired.
    past: BTreeMap<u64, Vec<u64>>,
    /// The shared mappings.
    shared: Vec<(u64, u64)>,
    /// By the address of an instruction that was refused: the hash of its bytes.
    refused: BTreeMap<u64, u64>,
}

/// A block that has been retired, now or before.
#[derive(Clone, Copy)]
struct Retired {
    region: usize,
    head: [u8; HEAD_BYTES],
    /// The exit to which the block jumps.
    stub: u64,
}

impl Changed {
    /// Drops all data that refer to translated code.
    pub(super) fn forget(&mut self) {
        self.retired.clear();
        self.past.clear();
        self.refused.clear();
    }

    /// Remembers whether a mapping is shared.
    fn set_shared(&mut self, start: u64, end: u64, is_shared: bool) {
        let old = core::mem::take(&mut self.shared);
        for part in old {
            if part.1 <= start || end <= part.0 {
                self.shared.push(part);
                continue;
            }
            if part.0 < start {
                self.shared.push((part.0, start));
            }
            if end < part.1 {
                self.shared.push((end, part.1));
            }
        }
        if is_shared {
            self.shared.push((start, end));
        }
    }

    fn shares(&self, start: u64, end: u64) -> bool {
        self.shared.iter().any(|part| part.0 < end && start < part.1)
    }
}

/// Whether `mmap` with these flags makes a mapping that is shared.
pub(crate) fn is_shared(flags: u64) -> bool {
    const MAP_TYPE: u64 = 0xf;
    flags & MAP_TYPE != sys::MAP_PRIVATE
}

impl Translator {
    /// Called for a new mapping with these rights.
    pub(crate) fn mapped(&mut self, start: u64, bytes: u64, rights: u64, is_shared: bool) {
        let end = start.saturating_add(bytes).saturating_add(4095) & !4095;
        self.changed.set_shared(start, end, is_shared);
        self.set_rights(start, bytes, rights);
    }

    /// Called if a mapping of `old` bytes at `from` was moved to `to`, where it has `new` bytes.
    pub(crate) fn moved(&mut self, from: u64, old: u64, to: u64, new: u64, stays: bool) {
        let rights = self.executable.iter().find(|part| part.start <= from && from < part.end);
        let rights = rights.map_or(0, |part| {
            sys::PROT_READ | sys::PROT_EXEC | if part.is_writable { sys::PROT_WRITE } else { 0 }
        });
        let is_shared = self.changed.shares(from, from + 1);
        if !stays {
            self.mapped(from, old, 0, false);
        }
        self.mapped(to, new, rights, is_shared);
    }

    /// Whether the program can change its code between these addresses without a system call.
    pub(super) fn is_changing(&self, start: u64, end: u64) -> bool {
        let overlaps = |part: &&super::Executable| part.start < end && start < part.end;
        self.executable.iter().filter(overlaps).any(|part| part.is_writable)
            || self.changed.shares(start, end)
    }

    /// Retires all blocks with code between these addresses.
    pub(crate) fn retire(&mut self, start: u64, end: u64) {
        let from = start.saturating_sub(BLOCK_BYTES_MAX);
        let found: Vec<(u64, u64)> =
            self.map.range(from..end).map(|(&pc, &host)| (pc, host)).collect();
        if self.counting.is_some() && !found.is_empty() {
            // Counted blocks are also entered after their beginning, so a jump there is not
            // sufficient.
            return self.forget();
        }
        let forgotten = self.forgotten;
        for (pc, host) in found {
            if self.forgotten == forgotten {
                self.retire_block(pc, host);
            }
        }
    }

    /// Retires the block at `pc`, whose code has changed.
    pub(crate) fn retire_at(&mut self, pc: u64) {
        if let Some(&host) = self.map.get(&pc) {
            self.retire_block(pc, host);
        }
    }

    fn retire_block(&mut self, pc: u64, host: u64) {
        self.map.remove(&pc);
        let Some(region) = self.regions.iter().position(|region| region.holds(host)) else {
            return;
        };
        let stub = match self.changed.retired.get(&host) {
            Some(retired) => retired.stub,
            None => {
                if self.is_alone && !has_room(&self.regions[region].cold) {
                    // There is no room for the exit, so all translated code is dropped.
                    return self.forget();
                }
                // Other regions may also be near enough for jumps.
                let from = host + HEAD_BYTES as u64;
                let fits = |at: &usize| {
                    let cold = &self.regions[*at].cold;
                    has_room(cold) && near(from, cold.at)
                };
                let mut places = [region].into_iter().chain(0..self.regions.len());
                let Some(place) = places.find(fits) else {
                    crate::fail("translated code is full", line!());
                };
                let head = self.regions[region].hot.head(host);
                let stub = self.exit(place, Exit::Gone { pc, host, region });
                self.changed.retired.insert(host, Retired { region, head, stub });
                stub
            }
        };
        self.regions[region].hot.jump_at(host, stub);
        let past = self.changed.past.entry(pc).or_default();
        past.retain(|&other| other != host);
        past.push(host);
        if past.len() > PAST_MAX {
            past.remove(0);
        }
    }

    /// Makes the retired block at `host` jump to the block that has replaced it.
    pub(crate) fn replace(&mut self, host: u64, region: usize, by: u64) {
        let is_retired = self.changed.retired.contains_key(&host);
        if is_retired && host != by && near(host + HEAD_BYTES as u64, by) {
            self.regions[region].hot.jump_at(host, by);
        }
    }

    /// Finds a retired block at `pc` whose code is there again. The block is used from now on.
    pub(super) fn revive(&mut self, pc: u64) -> Option<u64> {
        let past = self.changed.past.get(&pc)?;
        let is_same = |host: &u64| {
            let retired = self.changed.retired.get(host)?;
            let region = &self.regions[retired.region];
            let after = region.blocks.partition_point(|block| block.host <= *host);
            let block = region.blocks.get(after.checked_sub(1)?)?;
            let end = pc + u64::from(block.bytes);
            let is_same = block.host == *host
                && block.bytes != 0
                && !self.places.iter().any(|place| (pc..end).contains(place))
                && block.is_checked == self.is_changing(pc, end)
                && self.is_executable(pc, end)
                && hash(pc, u64::from(block.bytes)) == block.hash;
            is_same.then_some(*retired)
        };
        let (host, retired) = past.iter().find_map(|host| Some((*host, is_same(host)?)))?;
        self.regions[retired.region].hot.put_head(host, &retired.head);
        self.map.insert(pc, host);
        Some(host)
    }

    fn is_executable(&self, start: u64, end: u64) -> bool {
        let holds = |at: u64| self.executable.iter().any(|part| part.start <= at && at < part.end);
        holds(start) && holds(end - 1)
    }

    /// Remembers that the instruction at `pc` was refused.
    pub(super) fn note_refused(&mut self, pc: u64) {
        if let Some(hash) = self.hash_here(pc) {
            self.changed.refused.insert(pc, hash);
        }
    }

    /// Whether the instruction at `pc`, which was refused, has changed since then.
    pub(crate) fn is_another(&self, pc: u64) -> bool {
        let before = self.changed.refused.get(&pc);
        before.is_some() && self.hash_here(pc) != before.copied()
    }

    fn hash_here(&self, pc: u64) -> Option<u64> {
        self.code_at(pc).map(|(code, _)| hash(pc, code.len() as u64))
    }

    /// Emits at the beginning of a block the comparison of its code, from `start` to `end`, with the present
    /// contents of memory. Returns false if the code is too far away.
    pub(super) fn compare(&mut self, region: usize, start: u64, end: u64) -> bool {
        let host = self.regions[region].hot.at;
        let stub = self.regions[region].cold.at;
        self.regions[region].cold.get_slot(RCX_NUMBER, RCX);
        self.exit(region, Exit::Changed { pc: start, host, region });
        let hot = &mut self.regions[region].hot;
        hot.put_slot(RCX_NUMBER, RCX);
        let (mut at, mut is_near) = (start, true);
        while at < end {
            // These loads are aligned, because the program may have set the flag that makes
            // unaligned loads fault.
            let aligned = 1u64 << at.trailing_zeros().min(3);
            let bytes = aligned.min(1 << (end - at).ilog2());
            let code = code(at, bytes);
            let expected = code.iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
            is_near &= hot.load_constant_place(RCX_NUMBER, at, bytes);
            hot.constant(SCRATCH, expected.wrapping_neg());
            hot.lea(RCX_NUMBER, Place { base: RCX_NUMBER, index: SCRATCH, scale: 1, disp: 0 });
            hot.bytes(&[0xe3, 5]); // jrcxz
            hot.jump(stub);
            at += bytes;
        }
        hot.get_slot(RCX_NUMBER, RCX);
        is_near
    }
}

/// The code of `bytes` bytes at `at`, which has been translated or is known to be executable.
fn code(at: u64, bytes: u64) -> &'static [u8] {
    // SAFETY: the memory is mapped as executable, so it can also be read.
    unsafe { core::slice::from_raw_parts(at as *const u8, bytes as usize) }
}

/// The FNV-1a hash of `bytes` bytes of code.
pub(super) fn hash(at: u64, bytes: u64) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    code(at, bytes).iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn has_room(code: &Code) -> bool {
    const STUB_BYTES: u64 = 64;
    code.end - code.at > STUB_BYTES
}

impl Region {
    fn holds(&self, host: u64) -> bool {
        host.wrapping_sub(self.start) < super::REGION_BYTES
    }
}

impl Code {
    /// The first bytes of the code at `at`.
    fn head(self, at: u64) -> [u8; HEAD_BYTES] {
        // SAFETY: `at` is the beginning of a block.
        unsafe { (at as *const [u8; HEAD_BYTES]).read_unaligned() }
    }

    /// Writes the first bytes of the code at `at` by one store.
    fn put_head(self, at: u64, head: &[u8; HEAD_BYTES]) {
        let word = at.wrapping_add(self.shift) as *mut u64;
        // SAFETY: `at` is the beginning of a block, and each block has at least this number of
        // bytes, in one cache line.
        unsafe {
            let mut bytes = word.read_unaligned().to_le_bytes();
            bytes[..HEAD_BYTES].copy_from_slice(head);
            word.write_unaligned(u64::from_le_bytes(bytes));
        }
    }

    /// Writes a jump to `to` over the code at `at`.
    fn jump_at(self, at: u64, to: u64) {
        let distance = to.wrapping_sub(at + HEAD_BYTES as u64) as i32;
        let [a, b, c, d] = distance.to_le_bytes();
        self.put_head(at, &[0xe9, a, b, c, d]);
    }

    /// `mov register, [at]` with `bytes` bytes, the others becoming zero. Returns false if `at` is too far away.
    fn load_constant_place(&mut self, register: u8, at: u64, bytes: u64) -> bool {
        match bytes {
            8 => self.bytes(&[0x48, 0x8b]),
            4 => self.bytes(&[0x8b]),
            2 => self.bytes(&[0x0f, 0xb7]),
            _ => self.bytes(&[0x0f, 0xb6]),
        }
        self.byte(0x05 | register << 3);
        let here = self.at + 4;
        self.dword(at.wrapping_sub(here) as i32);
        near(here, at)
    }
}
