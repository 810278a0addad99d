//! The turns of accesses that a kernel makes for a call or a switch: for a Linux in the kernel, and for
//! one at user level behind a microkernel (U02 sections 3.2, 4.2 and 4.3).
//!
//! ```text
//!   in the kernel   program | kernel: trap, code, data | program
//!   at user level   program | kernel: trap | library | kernel: message | Linux | kernel: message | library
//! ```

use addr::Kind;

use crate::{Event, KERNEL, Meta, Origin};

/// The largest number of bytes of one fetch.
pub(crate) const LINE: u64 = 64;
pub(crate) const PAGE: u64 = 4096;
/// The distance between reads of different pages, in bytes. It is not a multiple of the page size,
/// so that successive reads use different sets of the caches.
pub(crate) const READ_BYTES: u64 = 4160;
/// The bytes of an instruction, in code other than a row of nops.
pub(crate) const INSTRUCTION_BYTES: u64 = 4;
/// The number of data pages that the path of a message touches: a page of the microkernel, and a
/// page with the control block of each of the two threads (U02 section 3.2).
pub(crate) const CONTROL_PAGES: u64 = 3;

/// Accesses at equal distances.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) start: u64,
    pub(crate) stride: u64,
    pub(crate) count: u64,
    pub(crate) meta: Meta,
}

/// The accesses of one space until another one runs.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) space: u32,
    pub(crate) pieces: Vec<Piece>,
}

/// A part of the address space that a pattern or a kernel uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Region {
    pub(crate) name: &'static str,
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    /// The rights, as in [`Event::Mapping`].
    pub(crate) rights: u8,
}

impl Region {
    pub(crate) fn event(&self) -> Event {
        let origin = Origin::Other(self.name.to_owned());
        let Region { start, bytes, rights, .. } = *self;
        Event::Mapping { start, bytes, rights, origin, offset: None, file: None }
    }
}

/// A region for an [`Event::Mapping`]: from the page boundary below `start` to the end of the last
/// page.
pub(crate) fn region(name: &'static str, start: u64, bytes: u64, rights: u8) -> Region {
    let first = start & !(PAGE - 1);
    Region { name, start: first, bytes: (start + bytes).next_multiple_of(PAGE) - first, rights }
}

/// Straight code: `instructions` instructions of `bytes_each` bytes.
pub(crate) fn code(start: u64, instructions: u64, bytes_each: u64) -> Vec<Piece> {
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

/// Loads, one per page.
pub(crate) fn pages(start: u64, count: u64) -> Piece {
    Piece { start, stride: READ_BYTES, count, meta: Meta::new(Kind::Load, 4, 1) }
}

/// Code in `count` pages, with `instructions` instructions in each.
pub(crate) fn code_pages(start: u64, count: u64, instructions: u64) -> Vec<Piece> {
    (0..count)
        .flat_map(|page| code(start + page * READ_BYTES, instructions, INSTRUCTION_BYTES))
        .collect()
}

/// The first address of the kernel.
const fn kernel_start(bits: u32) -> u64 {
    if bits <= 32 { 0xe000_0000 } else { 0xffff_8800_0000_0000 }
}

/// Cycles without further fetches: a processor enters the kernel, or waits for a device. They are
/// represented by instructions that loads at `at` count. If fetches counted these instructions, a
/// trace cache would have to hold them.
pub(crate) fn stall(at: u64, cycles: u64) -> Vec<Piece> {
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

/// A Linux that serves calls, and the cost of a message if it runs at user level.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Linux {
    /// Whether Linux is a process behind a microkernel; otherwise Linux is the kernel.
    pub(crate) is_server: bool,
    /// The cycles of entering and leaving the kernel by an interrupt, which is how programs call
    /// Linux.
    pub(crate) trap: u64,
    /// The instructions of a call; the next fields have the pages of code and of data that it
    /// touches.
    pub(crate) work: u64,
    pub(crate) code: u64,
    pub(crate) data: u64,
    /// The bytes that a call copies for the caller.
    pub(crate) copied: u64,
    /// The instructions that the microkernel executes for a message.
    pub(crate) ipc: u64,
}

/// The addresses of the programs, the kernel, and the server.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) kernel: u64,
    /// The emulation library, and the page that it shares with Linux, in each program (section
    /// 3.3).
    emulation: u64,
    /// A program's buffer; the next fields are for Linux at user level.
    pub(crate) buffer: u64,
    pub(crate) server: u64,
}

impl Place {
    /// The addresses with `bits` bits, for programs that begin at `start`.
    pub(crate) fn new(bits: u32, start: u64) -> Place {
        let is_narrow = bits <= 32;
        Place {
            kernel: kernel_start(bits),
            emulation: if is_narrow { 0x4000 } else { start - (1 << 30) },
            buffer: match bits {
                25 => 0x0180_0000,
                32 => 0x0f00_0000,
                _ => start - (1 << 29),
            },
            server: if is_narrow { 0x0010_0000 } else { start },
        }
    }

    pub(crate) fn shared_page(self) -> u64 {
        self.emulation + 2 * PAGE
    }

    pub(crate) fn server_data(self) -> u64 {
        self.server + (4 << 20)
    }

    pub(crate) fn kernel_data(self) -> u64 {
        self.kernel + (1 << 22)
    }
}

/// The accesses of a microkernel for a message, with `instructions` instructions, including those
/// for entering and leaving the kernel.
pub(crate) fn ipc(place: Place, instructions: u64) -> Turn {
    // Two instructions (entering and leaving) take most of the cycles of a call; the path itself
    // has one third of the instructions.
    let path = instructions.div_ceil(3);
    let mut pieces = code(place.kernel, path, INSTRUCTION_BYTES);
    pieces.extend(stall(place.kernel_data(), instructions - path));
    pieces.push(pages(place.kernel_data(), CONTROL_PAGES));
    Turn { space: KERNEL, pieces }
}

/// The regions of the kernel: its code paths, and pages of data.
pub(crate) fn kernel_regions(place: Place, code_bytes: u64, data_pages: u64) -> (u32, Vec<Region>) {
    let regions = vec![
        region("code", place.kernel, code_bytes, 5),
        region("data", place.kernel_data(), data_pages * READ_BYTES + PAGE, 3),
    ];
    (KERNEL, regions)
}

/// A call by `from`, after which `to` runs. If Linux is a server, it runs in the space `server`.
pub(crate) fn call(linux: Linux, place: Place, (from, to): (u32, u32), server: u32) -> Vec<Turn> {
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
            // A line is copied by a loop of sixteen rounds, one per word.
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
    // The kernel passes the exception to the library, which sends a message to Linux and waits for
    // the answer.
    let mirrored = Turn { space: KERNEL, pieces: trap(place.kernel + 2 * PAGE) };
    let mut serves = does(place.server, place.server_data() + PAGE);
    serves.insert(0, store(place.server_data()));
    let serves = Turn { space: server, pieces: serves };
    vec![mirrored, library(from), message.clone(), serves, message, library(to)]
}

/// The regions of a Linux at user level, and the regions that a program needs to call it.
pub(crate) fn server_regions(linux: Linux, place: Place) -> Vec<Region> {
    let Linux { work, code, data, copied, .. } = linux;
    let each = work * INSTRUCTION_BYTES;
    vec![
        region("Linux code", place.server, code * READ_BYTES + each, 5),
        region("Linux data", place.server_data(), (data + 1) * READ_BYTES + PAGE + copied, 3),
        region("buffer", place.buffer, copied.max(PAGE), 3),
    ]
}

pub(crate) fn library_regions(linux: Linux, place: Place) -> Vec<Region> {
    let mut regions = vec![region("buffer", place.buffer, linux.copied.max(PAGE), 3)];
    if linux.is_server {
        regions.push(region("emulation library", place.emulation, PAGE, 5));
        regions.push(region("shared page", place.shared_page(), PAGE, 3));
    }
    regions
}

/// The regions of the kernel and, if there is one, of the server.
pub(crate) fn linux_regions(linux: Linux, place: Place, server: u32) -> Vec<(u32, Vec<Region>)> {
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
