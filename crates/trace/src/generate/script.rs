//! Processes, and the kernel between them, that take turns by a script which is repeated.
//!
//! ```text
//!   turn     space 0 | kernel | space 1 | kernel | space 0 ...      a Run event each
//!   a turn   pieces: accesses in equal steps     e.g. 30 jumps of 5 bytes, 4155 bytes apart
//! ```
//!
//! The scripts are those of U02: of two processes that send messages to and fro (section 4.1), of calls to
//! a Linux at user level or in the kernel (sections 3.2 and 4.2), and of a packet on its way through
//! a driver and a protocol stack (section 4.10). Where the paper gives no footprint, the parameter is an
//! assumption, and [`super::Pattern`] says so.

use addr::Kind;

use super::{Fill, Region};
use crate::{Batch, Event, KERNEL, Meta};

/// Bytes that a fetch brings at most.
const LINE: u64 = 64;
const PAGE: u64 = 4096;
/// From one jump to the next, and from one read: each is to a page of its own and, since that is no
/// multiple of a page, to another set of the caches.
pub(super) const JUMP_BYTES: u64 = 4155;
pub(super) const READ_BYTES: u64 = 4160;
/// Instructions around a call.
const CALL_INSTRUCTIONS: u32 = 20;
/// Bytes of an instruction, in code that is no row of nops.
const INSTRUCTION_BYTES: u64 = 4;
/// Pages of data that a path through the microkernel touches: its own, and the control blocks of both
/// threads (U02 section 3.2: a page each).
const CONTROL_PAGES: u64 = 3;

/// Accesses in equal steps.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u64,
    stride: u64,
    count: u64,
    meta: Meta,
}

/// What runs until somebody else does.
#[derive(Clone, Debug)]
struct Turn {
    space: u32,
    pieces: Vec<Piece>,
}

/// Turns without end.
pub(super) struct Script {
    turns: Vec<Turn>,
    /// By space, what it has mapped, told when it runs first. Those of space 0 are told before.
    regions: Vec<(u32, Vec<Region>)>,
    /// The turn, the piece, and the step that are next.
    at: (usize, usize, u64),
    /// Steps of what moves on with each round: by so many bytes, of so many rounds.
    drift: Drift,
    round: u64,
}

/// Pieces whose addresses are others each round: a ring of buffers.
#[derive(Clone, Copy, Debug, Default)]
struct Drift {
    /// Where the ring begins and how many bytes a round moves on in it.
    start: u64,
    step: u64,
    rounds: u64,
}

impl Script {
    fn new(turns: Vec<Turn>, regions: Vec<(u32, Vec<Region>)>, drift: Drift) -> Script {
        Script { turns, regions, at: (0, 0, 0), drift, round: 0 }
    }

    /// The access that is next; `None` where a turn ends.
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

/// A region where it is said to be, from the page below `start` to the end of the last page.
fn region(name: &'static str, start: u64, bytes: u64, rights: u8) -> Region {
    let first = start & !(PAGE - 1);
    Region { name, start: first, bytes: (start + bytes).next_multiple_of(PAGE) - first, rights }
}

/// Code in a row: so many instructions of so many bytes each.
fn code(start: u64, instructions: u64, bytes_each: u64) -> Vec<Piece> {
    let line = LINE / bytes_each;
    let fetch = |instructions: u64| {
        Meta::new(Kind::Fetch, (instructions * bytes_each) as u32, instructions as u32)
    };
    let (whole, rest) = (instructions / line, instructions % line);
    let mut pieces = vec![Piece { start, stride: LINE, count: whole, meta: fetch(line) }];
    if rest > 0 {
        let start = start + whole * LINE;
        pieces.push(Piece { start, stride: LINE, count: 1, meta: fetch(rest) });
    }
    pieces
}

/// Loads, one a page.
fn pages(start: u64, count: u64) -> Piece {
    Piece { start, stride: READ_BYTES, count, meta: Meta::new(Kind::Load, 4, 1) }
}

/// Code that touches so many pages, in each a piece of so many instructions.
fn code_pages(start: u64, count: u64, instructions: u64) -> Vec<Piece> {
    (0..count)
        .flat_map(|page| code(start + page * READ_BYTES, instructions, INSTRUCTION_BYTES))
        .collect()
}

/// Where the kernel's addresses begin.
const fn kernel_start(bits: u32) -> u64 {
    if bits == 32 { 0xe000_0000 } else { 0xffff_8800_0000_0000 }
}

/// Cycles in which no more is fetched, as instructions of loads at `at`: where a processor enters the
/// kernel, or waits for a device. As instructions of fetches a trace cache would have to hold them.
fn stall(at: u64, cycles: u64) -> Vec<Piece> {
    let most = u64::from(Meta::INSTRUCTIONS_MAX);
    let piece = |cycles: u64| {
        let meta = Meta::new(Kind::Load, 4, cycles as u32);
        Piece { start: at, stride: 0, count: 1, meta }
    };
    let mut pieces = vec![piece(most); (cycles / most) as usize];
    if !cycles.is_multiple_of(most) {
        pieces.push(piece(cycles % most));
    }
    pieces
}

/// A Linux that serves calls, and what a message costs where it runs at user level.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Linux {
    /// Whether it is a process behind a microkernel; otherwise it is the kernel.
    pub(super) is_server: bool,
    /// Cycles of entering and leaving the kernel by an interrupt, as programs call Linux.
    pub(super) trap: u64,
    /// Instructions of a call, and the pages of code and of data that it touches.
    pub(super) work: u64,
    pub(super) code: u64,
    pub(super) data: u64,
    /// Bytes that it copies for the caller.
    pub(super) copied: u64,
    /// Instructions of a message's way through the microkernel.
    pub(super) ipc: u64,
}

/// Where everything lies.
#[derive(Clone, Copy)]
pub(super) struct Place {
    kernel: u64,
    /// The emulation library and the page that it shares with Linux, in each program (section 3.3).
    emulation: u64,
    /// A program's buffer, and Linux at user level.
    buffer: u64,
    server: u64,
}

impl Place {
    /// In addresses of `bits` bits, with programs that begin at `start`.
    pub(super) fn new(bits: u32, start: u64) -> Place {
        let is_narrow = bits == 32;
        Place {
            kernel: kernel_start(bits),
            emulation: if is_narrow { 0x4000 } else { start - (1 << 30) },
            buffer: if is_narrow { 0x0f00_0000 } else { start - (1 << 29) },
            server: if is_narrow { 0x0010_0000 } else { start },
        }
    }

    fn shared_page(self) -> u64 {
        self.emulation + 2 * PAGE
    }

    fn server_data(self) -> u64 {
        self.server + (4 << 20)
    }

    fn kernel_data(self) -> u64 {
        self.kernel + (1 << 22)
    }
}

/// The path of a message through a microkernel, of so many instructions, which also stand for entering
/// and leaving it.
fn ipc(place: Place, instructions: u64) -> Turn {
    // Of the cycles of a call most are those of two instructions; the path has one in three.
    let path = instructions.div_ceil(3);
    let mut pieces = code(place.kernel, path, INSTRUCTION_BYTES);
    pieces.extend(stall(place.kernel_data(), instructions - path));
    pieces.push(pages(place.kernel_data(), CONTROL_PAGES));
    Turn { space: KERNEL, pieces }
}

/// What the kernel has mapped: its paths, and pages of data.
fn kernel_regions(place: Place, code_bytes: u64, data_pages: u64) -> (u32, Vec<Region>) {
    let regions = vec![
        region("code", place.kernel, code_bytes, 5),
        region("data", place.kernel_data(), data_pages * READ_BYTES + PAGE, 3),
    ];
    (KERNEL, regions)
}

/// A call of `from`, after which `to` runs, by the server `server` if Linux is one.
fn call(linux: Linux, place: Place, (from, to): (u32, u32), server: u32) -> Vec<Turn> {
    let Linux { is_server, trap, work, code: code_count, data, copied, ipc: instructions } = linux;
    let trap = |code_start: u64| {
        let mut pieces = stall(place.kernel_data(), trap);
        pieces.extend(code(code_start, 20, INSTRUCTION_BYTES));
        pieces
    };
    let does = |code_start: u64, data_start: u64| {
        let each = work.div_ceil(code_count.max(1));
        let mut pieces = code_pages(code_start, code_count, each);
        pieces.push(pages(data_start, data));
        let lines = copied / LINE;
        let line = |start: u64, kind| Piece {
            start,
            stride: LINE,
            count: lines,
            // A line is sixteen words, and as many turns of a loop.
            meta: Meta::new(kind, LINE as u32, 8),
        };
        pieces.push(line(data_start + data * READ_BYTES, Kind::Load));
        pieces.push(line(place.buffer, Kind::Store));
        pieces
    };
    if !is_server {
        let mut pieces = trap(place.kernel);
        pieces.extend(does(place.kernel + PAGE, place.kernel_data() + PAGE));
        return vec![Turn { space: KERNEL, pieces }];
    }
    let store =
        |start: u64| Piece { start, stride: 4, count: 8, meta: Meta::new(Kind::Store, 4, 1) };
    let library = |space: u32| {
        let mut pieces = code(place.emulation, 20, INSTRUCTION_BYTES);
        pieces.push(store(place.shared_page()));
        Turn { space, pieces }
    };
    let message = ipc(place, instructions);
    // The exception is mirrored to the library, which sends the call on and waits for the answer.
    let mirrored = Turn { space: KERNEL, pieces: trap(place.kernel + 2 * PAGE) };
    let mut serves = does(place.server, place.server_data() + PAGE);
    serves.insert(0, store(place.server_data()));
    let serves = Turn { space: server, pieces: serves };
    vec![mirrored, library(from), message.clone(), serves, message, library(to)]
}

/// Regions of a Linux at user level, and of a program's part in calling it.
fn server_regions(linux: Linux, place: Place) -> Vec<Region> {
    let Linux { work, code, data, copied, .. } = linux;
    let each = work * INSTRUCTION_BYTES;
    vec![
        region("Linux code", place.server, code * READ_BYTES + each, 5),
        region("Linux data", place.server_data(), (data + 1) * READ_BYTES + PAGE + copied, 3),
        region("buffer", place.buffer, copied.max(PAGE), 3),
    ]
}

fn library_regions(linux: Linux, place: Place) -> Vec<Region> {
    let mut regions = vec![region("buffer", place.buffer, linux.copied.max(PAGE), 3)];
    if linux.is_server {
        regions.push(region("emulation library", place.emulation, PAGE, 5));
        regions.push(region("shared page", place.shared_page(), PAGE, 3));
    }
    regions
}

/// Who sends the messages of a ping-pong.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Sends {
    /// Nothing but the two processes is there.
    Nobody,
    /// A microkernel, in so many instructions.
    Microkernel(u64),
    /// Pipes of a Linux: a call that writes, and one that waits.
    Pipes(Linux),
}

/// Two processes of the same program: the turn of each is a call, nops, jumps and reads, of the second
/// perhaps the call alone.
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

/// What the kernel and, if it is there, the server have mapped.
fn linux_regions(linux: Linux, place: Place, server: u32) -> Vec<(u32, Vec<Region>)> {
    let own = linux.code * READ_BYTES + (linux.work + linux.ipc) * INSTRUCTION_BYTES + 3 * PAGE;
    let (number, mut kernel) =
        kernel_regions(place, own, linux.data + CONTROL_PAGES + 1 + linux.copied / PAGE);
    kernel.push(region("buffer", place.buffer, linux.copied.max(PAGE), 3));
    let mut all = vec![(number, kernel)];
    if linux.is_server {
        all.push((server, server_regions(linux, place)));
    }
    all
}

/// A program that calls Linux, again and again.
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

/// A packet's way through a driver and a protocol stack, and who runs between packets.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Packet {
    /// Pages of code, and as many of data, of the driver, its bottom half and the stack.
    pub(super) driver: u64,
    pub(super) bottom: u64,
    pub(super) stack: u64,
    /// Pages of buffers that no packet before has used of late.
    pub(super) ring: u64,
    /// Instructions on a page of code.
    pub(super) each: u64,
    /// Cycles of a packet that are spent waiting for the device.
    pub(super) device: u64,
    /// Instructions of a message's way through the microkernel.
    pub(super) ipc: u64,
}

/// The rounds after which a ring of buffers begins anew.
const RING_ROUNDS: u64 = 64;

/// Spaces: 0 runs between packets, 1 is the driver, 2 the stack.
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
