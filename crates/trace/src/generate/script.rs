//! Processes, and the kernel between them, that take turns by a script that is repeated.
//!
//! ```text
//!   turn     space 0 | kernel | space 1 | kernel | space 0 ...      a Run event each
//!   a turn   pieces: accesses in equal steps     e.g. 30 jumps of 5 bytes, 4155 bytes apart
//! ```
//!
//! The scripts are those of U02: two processes that exchange messages (section 4.1), calls of a Linux at
//! user level or in the kernel (sections 3.2 and 4.2), and a packet's path through a driver and a protocol
//! stack (section 4.10). Where the paper gives no footprint, the parameter is an assumption, and
//! [`super::Pattern`] says so.

use addr::Kind;

use super::Fill;
use crate::kernel::path::{
    CONTROL_PAGES, INSTRUCTION_BYTES, LINE, Linux, PAGE, Piece, Place, READ_BYTES, Region, Turn,
    call, code, code_pages, ipc, kernel_regions, library_regions, linux_regions, pages, region,
    stall,
};
use crate::{Batch, Event, Meta};

/// The distance between two jumps, in bytes. Each jump is to a different page and, since the distance
/// is not a multiple of a page, to a different set of the caches.
pub(super) const JUMP_BYTES: u64 = 4155;
/// The number of instructions around a call.
const CALL_INSTRUCTIONS: u32 = 20;

/// Turns that are repeated without end.
pub(super) struct Script {
    turns: Vec<Turn>,
    /// For each space, its mapped regions. They are reported when the space first runs; the regions
    /// of space 0 are reported at the beginning.
    regions: Vec<(u32, Vec<Region>)>,
    /// The index of the next turn, the index of the piece in this turn, and the step in this piece.
    at: (usize, usize, u64),
    /// Pieces whose addresses move from round to round.
    drift: Drift,
    round: u64,
}

/// Pieces whose addresses change every round, for a ring of buffers.
#[derive(Clone, Copy, Debug, Default)]
struct Drift {
    /// The start of the ring; the next field has the number of bytes it moves per round.
    start: u64,
    step: u64,
    rounds: u64,
}

impl Script {
    fn new(turns: Vec<Turn>, regions: Vec<(u32, Vec<Region>)>, drift: Drift) -> Script {
        Script { turns, regions, at: (0, 0, 0), drift, round: 0 }
    }

    /// The next access; `None` at the end of a turn.
    fn access(&mut self) -> Option<(u64, Meta)> {
        let (turn, piece, step) = &mut self.at;
        loop {
            let Piece { start, stride, count, meta } = *self.turns[*turn].pieces.get(*piece)?;
            if *step < count {
                let mut addr = start + *step * stride;
                if start == self.drift.start && self.drift.rounds > 0 {
                    addr += self.round % self.drift.rounds * self.drift.step;
                }
                *step += 1;
                return Some((addr, meta));
            }
            (*piece, *step) = (*piece + 1, 0);
        }
    }
}

impl Fill for Script {
    fn fill(&mut self, count: usize, batch: &mut Batch) {
        let mut left = count;
        while left > 0 {
            if let Some((addr, meta)) = self.access() {
                batch.addr.push(addr);
                batch.meta.push(meta);
                left -= 1;
                continue;
            }
            let turn = (self.at.0 + 1) % self.turns.len();
            self.round += u64::from(turn == 0);
            let space = self.turns[turn].space;
            if self.turns[self.at.0].space != space {
                batch.push_event(0, Event::Run { cpu: None, space });
            }
            self.at = (turn, 0, 0);
            if let Some(known) = self.regions.iter().position(|(of, _)| *of == space) {
                let (_, regions) = self.regions.swap_remove(known);
                regions.iter().for_each(|region| batch.push_event(0, region.event()));
            }
        }
    }

    fn fetches(&self) -> bool {
        true
    }
}

/// How the messages of a ping-pong are sent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Sends {
    /// Directly: there are only the two processes.
    Nobody,
    /// By a microkernel, in this many instructions.
    Microkernel(u64),
    /// By pipes of a Linux: one system call writes, and another waits.
    Pipes(Linux),
}

/// Two processes of one program. The turn of a process consists of a call, nops, jumps and reads.
/// If `is_idle`, the turn of the second process consists only of the call.
pub(super) fn pingpong(
    [own_code, jumps, reads]: &[Region; 3],
    (nops, jump_count, read_count): (u64, u64, u64),
    is_idle: bool,
    sends: Sends,
    place: Place,
) -> Script {
    let turn = |space: u32, works: bool| {
        let call = Meta::new(Kind::Fetch, LINE as u32, CALL_INSTRUCTIONS);
        let mut pieces = vec![Piece { start: own_code.start, stride: 0, count: 1, meta: call }];
        if works {
            pieces.extend(code(own_code.start + LINE, nops, 1));
            let jump = Meta::new(Kind::Fetch, 5, 1);
            let (start, stride) = (jumps.start, JUMP_BYTES);
            pieces.push(Piece { start, stride, count: jump_count, meta: jump });
            pieces.push(pages(reads.start, read_count));
        }
        Turn { space, pieces }
    };
    let own = vec![own_code.clone(), jumps.clone(), reads.clone()];
    let (one, other) = (turn(0, true), turn(1, !is_idle));
    match sends {
        Sends::Nobody => Script::new(vec![one, other], vec![(1, own)], Drift::default()),
        Sends::Microkernel(instructions) => {
            let path = ipc(place, instructions);
            let turns = vec![one, path.clone(), other, path];
            let kernel = kernel_regions(place, instructions * INSTRUCTION_BYTES, CONTROL_PAGES);
            Script::new(turns, vec![(1, own), kernel], Drift::default())
        }
        Sends::Pipes(linux) => {
            let server = 2;
            let again = |space: u32| turn(space, false);
            let half = |turn: Turn, to: u32| {
                let from = turn.space;
                let mut turns = vec![turn];
                turns.extend(call(linux, place, (from, from), server));
                turns.push(again(from));
                turns.extend(call(linux, place, (from, to), server));
                turns
            };
            let mut turns = half(one, 1);
            turns.extend(half(other, 0));
            let mut regions = own;
            regions.extend(library_regions(linux, place));
            let mut known = vec![(0, library_regions(linux, place)), (1, regions)];
            known.extend(linux_regions(linux, place, server));
            Script::new(turns, known, Drift::default())
        }
    }
}

/// A program that calls Linux repeatedly.
pub(super) fn calls(own: &Region, linux: Linux, place: Place) -> Script {
    let server = 1;
    let call_line = Meta::new(Kind::Fetch, LINE as u32, CALL_INSTRUCTIONS);
    let pieces = vec![Piece { start: own.start, stride: 0, count: 1, meta: call_line }];
    let mut turns = vec![Turn { space: 0, pieces }];
    turns.extend(call(linux, place, (0, 0), server));
    let mut known = vec![(0, library_regions(linux, place))];
    known.extend(linux_regions(linux, place, server));
    Script::new(turns, known, Drift::default())
}

/// A packet's path through a driver and a protocol stack.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Packet {
    /// The number of pages of code, which is also the number of pages of data, of the driver. The
    /// next fields are these numbers for the driver's bottom half and for the protocol stack.
    pub(super) driver: u64,
    pub(super) bottom: u64,
    pub(super) stack: u64,
    /// The number of pages of buffers that no recent packet has used.
    pub(super) ring: u64,
    /// The number of instructions per page of code.
    pub(super) each: u64,
    /// The cycles per packet that are spent waiting for the device.
    pub(super) device: u64,
    /// The number of instructions of a message's path through the microkernel.
    pub(super) ipc: u64,
}

/// The number of rounds after which a ring of buffers repeats.
const RING_ROUNDS: u64 = 64;

/// The processing of packets. Space 0 runs between packets, 1 is the driver, 2 the protocol stack.
pub(super) fn packets(own: &Region, packet: Packet, place: Place) -> Script {
    let Packet { driver, bottom, stack, ring, each, device, ipc: instructions } = packet;
    let (code_start, data_start) = (place.server, place.server_data());
    let ring_start = place.buffer;
    let works = |space: u32, first: u64, count: u64| {
        let mut pieces = code_pages(code_start + first * READ_BYTES, count, each);
        pieces.push(pages(data_start + first * READ_BYTES, count));
        Turn { space, pieces }
    };
    let between = Meta::new(Kind::Fetch, LINE as u32, CALL_INSTRUCTIONS);
    let between = Piece { start: own.start, stride: 0, count: 1, meta: between };
    let message = ipc(place, instructions);
    let mut takes = works(1, 0, driver);
    takes.pieces.extend(stall(data_start, device));
    let mut handles = works(2, 0, stack);
    handles.pieces.push(pages(ring_start, ring));
    let turns = vec![
        Turn { space: 0, pieces: vec![between] },
        message.clone(),
        takes,
        message.clone(),
        works(1, driver, bottom),
        message.clone(),
        handles,
        message.clone(),
        works(1, 0, driver),
        message,
    ];
    let step = ring * READ_BYTES;
    let mapped = |count: u64| {
        vec![
            region("code", code_start, count * READ_BYTES + each * INSTRUCTION_BYTES, 5),
            region("data", data_start, count * READ_BYTES, 3),
            region("packets", ring_start, RING_ROUNDS * step.max(PAGE), 3),
        ]
    };
    let kernel = kernel_regions(place, instructions * INSTRUCTION_BYTES, CONTROL_PAGES);
    let known = vec![(1, mapped(driver + bottom)), (2, mapped(stack)), kernel];
    Script::new(turns, known, Drift { start: ring_start, step, rounds: RING_ROUNDS })
}
