//! Writes a page table and accesses for a MIPS refill handler, and prints the path and the
//! instructions that the simulator charges for each access.
//!
//! ```text
//!   refill FOLDER MACHINE [KEY=VALUE ...]
//!
//!   pages --> table, mounted in the bytes of an image --> FOLDER/tables      before the accesses
//!                 ^                                       FOLDER/lists       pages and accesses
//!                 `-- walk of each access: references --> stdout             path, instructions charged
//! ```
//!
//! `refill/run` has a processor make the accesses, with handlers that search the tables of the
//! image. A walk may change the table, as it moves an entry to the front of a chain or fills a
//! software TLB. The last line has a digest of the tables after all walks. If it equals the digest
//! that the processor computes, the handlers have left equal bytes in the tables.

use std::{
    fs,
    path::Path,
    process::ExitCode,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use addr::{Frames, Kind, Memory, OutOfFrames, PageSize, PhysAddr, Rights, VirtAddr};
use hardware::walker::Handler;
use hat::{Hat, HatSpace};
use machine::Machine;
use pagetable::{Flush, Reference, Translation};

/// The physical address of the tables, and their largest size in bytes.
const TABLES: u64 = 24 << 20;
const TABLES_BYTES: u64 = 16 << 20;
/// The physical address of the pages' frames.
const FRAMES: u64 = TABLES + TABLES_BYTES;
/// A processor sees its memory without translation at the addresses from here on (kseg0). A kernel's pointers in a
/// table are such addresses, so that the handler can use them as they are.
const SEEN: u64 = 0xffff_ffff_8000_0000;
const PAGE: u64 = PageSize::SIZE_4K.bytes();
const PAIR: u64 = 2 * PAGE;
/// The pages of a program: code, data, a stack; and pages far from each other.
const PROGRAM: [(u64, u64); 3] = [(0x40_0000, 40), (0x1000_0000, 60), (0x7fff_0000, 8)];
const APART: u64 = 200;
const APART_START: u64 = 1 << 31;
const APART_END: u64 = 1 << 39;
/// The number of accesses to each page, and the number of accesses to addresses without a page.
const ROUNDS: u64 = 2;
const LOST: u64 = 10;
/// The value that stands for the word read by an access that finds no page.
const NOTHING: u64 = u64::MAX;
/// The number of spaces created before the space that makes the accesses, so that the number of
/// this space in tags is not 0.
const SPACES_BEFORE: usize = 1;
/// The usage bits of a pair of entries.
const USAGE: u64 = 0x0000_00c0_0000_00c0;

/// The bytes of memory that hold the tables.
#[derive(Clone)]
struct Image(Arc<Mutex<Vec<u64>>>);

impl Image {
    fn words(&self) -> MutexGuard<'_, Vec<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The index of the word at an address of kseg0, with or without its upper half.
fn word(at: PhysAddr) -> usize {
    ((at.get() & 0x1fff_ffff) - TABLES) as usize / 8
}

impl Memory for Image {
    fn read_u64(&self, at: PhysAddr) -> u64 {
        self.words()[word(at)]
    }
    fn write_u64(&mut self, at: PhysAddr, value: u64) {
        self.words()[word(at)] = value;
    }
    fn read_u32(&self, at: PhysAddr) -> u32 {
        (self.read_u64(at) >> (at.get() % 8 * 8)) as u32
    }
    fn write_u32(&mut self, at: PhysAddr, value: u32) {
        let (shift, all) = (at.get() % 8 * 8, self.read_u64(at));
        self.write_u64(at, all & !(0xffff_ffff << shift) | u64::from(value) << shift);
    }
    fn read_u8(&self, at: PhysAddr) -> u8 {
        (self.read_u64(at) >> (at.get() % 8 * 8)) as u8
    }
    fn write_u8(&mut self, at: PhysAddr, value: u8) {
        let (shift, all) = (at.get() % 8 * 8, self.read_u64(at));
        self.write_u64(at, all & !(0xff << shift) | u64::from(value) << shift);
    }
    addr::exchanges_of_one_user!();
}

/// Allocates frames for tables in ascending order, and never frees any.
struct InTurn {
    next: u64,
    /// The upper 32 bits of the frames' addresses; 0 if the table's pointers have only 32 bits.
    upper: u64,
}

impl Frames for InTurn {
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        let start = self.next.next_multiple_of(size.bytes());
        let free_bytes = (TABLES + TABLES_BYTES).saturating_sub(start);
        if free_bytes < size.bytes() {
            return Err(OutOfFrames { size, free_bytes });
        }
        self.next = start + size.bytes();
        Ok(PhysAddr::new(self.upper | 0x8000_0000 | start))
    }

    fn free(&mut self, _: PhysAddr, _: PageSize) {}
}

impl hat::Platform for InTurn {
    // No processor runs.
    fn shoot(&mut self, _: &[(HatSpace, Flush)]) {}

    fn frames(&mut self) -> &mut dyn Frames {
        self
    }
}

/// A pseudo-random number generator (Marsaglia's xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// The path of a walk in words: its references in order; several equal references in succession are
/// written as one with their number.
fn path(references: &[Reference], is_found: bool) -> String {
    let kind = |reference: &Reference| match (reference.level, reference.write, reference.bytes) {
        (0, true, _) => "fill",
        (0, false, 8..) => "tag",
        (0, false, _) => "entry",
        (_, true, _) => "write",
        _ if reference.next().is_some() => "node",
        (_, false, 8..) => "word",
        (_, false, _) => "page",
    };
    let mut runs: Vec<(&str, u32)> = Vec::new();
    for kind in references.iter().map(kind) {
        match runs.last_mut() {
            Some((last, count)) if *last == kind => *count += 1,
            _ => runs.push((kind, 1)),
        }
    }
    let mut words: Vec<String> = runs
        .iter()
        .map(
            |(kind, count)| {
                if *count == 1 { (*kind).to_owned() } else { format!("{count} {kind}s") }
            },
        )
        .collect();
    if !is_found {
        words.push("no page".to_owned());
    }
    words.join(", ")
}

/// The digest that `refill/boot.s` computes. The tables begin with the array of the software TLB,
/// whose usage bits are left out.
fn digest(words: &[u64], array_bytes: u64) -> u64 {
    words.iter().zip(0u64..).fold(0, |digest, (&word, at)| {
        let is_of_array = at * 8 < array_bytes && at % 2 == 1;
        let word = if is_of_array { word & !USAGE } else { word };
        let mixed = (digest ^ word).wrapping_mul(0x100_0000_01b3);
        mixed ^ mixed >> 32
    })
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The pages, each with its frame, in random order.
fn pages(random: &mut Random) -> Vec<(u64, u64)> {
    let own =
        PROGRAM.iter().flat_map(|&(start, count)| (0..count).map(move |page| start + page * PAGE));
    let mut all: Vec<u64> = own.collect();
    // Pages far from each other: no two of them are in one pair, and none is near the program's
    // pages.
    all.extend((0..APART).map(|nth| {
        let slot = (APART_END - APART_START) / APART;
        ((nth * slot + APART_START + random.below(slot - PAIR)) & !(PAIR - 1))
            + random.below(2) * PAGE
    }));
    (0..all.len()).for_each(|at| all.swap(at, random.below(at as u64 + 1) as usize));
    all.into_iter().zip(0..).map(|(at, nth)| (at, FRAMES + nth * PAGE)).collect()
}

fn write(folder: &Path, name: &str, settings: &[String], seed: u64) -> Result<(), String> {
    let machine = Machine::load(name, settings).map_err(|error| error.to_string())?;
    let description = machine.description();
    let handler = Handler::new(description).ok_or_else(|| {
        format!("{name}: the machine has no software refill handler (walker.kind = \"software\")")
    })?;
    let table = description
        .page_table
        .as_ref()
        .ok_or_else(|| format!("{name}: the machine has no page table"))?;
    let array_bytes = table.software_tlb.map_or(0, |bytes| bytes.0);
    let image = Image(Arc::new(Mutex::new(vec![0; (TABLES_BYTES / 8) as usize])));
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let mut hat: Hat =
        ram::table::new(description, image.clone()).map_err(|refused| refused.what)?;
    // The pointers of an `mpt` have 32 bits, which the processor sign-extends.
    let upper = if table.format == "mpt" { 0 } else { SEEN & !0xffff_ffff };
    let mut frames = InTurn { next: TABLES, upper };
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..SPACES_BEFORE {
        hat.create(&mut frames).map_err(|error| text(&error))?;
    }
    let space = hat.create(&mut frames).map_err(|error| text(&error))?;
    let pages = pages(&mut random);
    for &(at, frame) in &pages {
        let page = Translation::new(
            VirtAddr::new(at).page(PageSize::SIZE_4K),
            PhysAddr::new(frame),
            Rights::ALL,
        );
        hat.load(space, page, 1, &mut frames).map_err(|error| format!("{at:#x}: {error}"))?;
    }
    let inner = hat.space(space).ok_or("the space is not there")?;
    let used = (frames.next - TABLES) as usize / 8;
    let before: Vec<u64> = image.words()[..used].to_vec();

    let mut accesses: Vec<(u64, u64)> = Vec::new();
    for _ in 0..ROUNDS {
        let mut round: Vec<(u64, u64)> =
            pages.iter().zip(1..).map(|(&(at, _), word)| (at, word)).collect();
        (0..round.len()).for_each(|at| round.swap(at, random.below(at as u64 + 1) as usize));
        accesses.extend(round);
    }
    // These addresses lie beyond all mapped pages.
    accesses
        .extend((0..LOST).map(|_| (APART_END + (random.below(APART_END) & !(PAGE - 1)), NOTHING)));
    let mut references = Vec::new();
    for &(at, expected) in &accesses {
        references.clear();
        let found = hat.table_mut().walk(inner, VirtAddr::new(at), Kind::Load, &mut references);
        let is_found = found.is_ok();
        if is_found != (expected != NOTHING) {
            return Err(format!(
                "{at:#x}: the walk and the list of mapped pages disagree about whether this \
                 address is mapped"
            ));
        }
        let charged = handler.always(false) + handler.instructions(&references);
        let charged = if is_found { charged.to_string() } else { "-".to_owned() };
        println!("access {at:x} {charged} {}", path(&references, is_found));
    }
    println!("digest {:016x}", digest(&image.words()[..used], array_bytes));

    let id = SPACES_BEFORE as u64;
    let code_bits = u64::from(u32::BITS - (hat.page_sizes().len() as u32 - 1).leading_zeros());
    let salt = (id.wrapping_mul(0x9e37_79b9) >> 12) << 4;
    let asid = id << (1 + code_bits) | 1;
    let root = inner.root().get() | SEEN;
    let mut lists = vec![
        root,
        salt & 0x7f_fff0,
        SEEN + TABLES,
        asid,
        pages.len() as u64,
        accesses.len() as u64,
        SEEN + TABLES,
        used as u64 * 8,
        array_bytes,
        0,
    ];
    lists.extend(pages.iter().zip(1..).flat_map(|(&(_, frame), word)| [SEEN + frame, word]));
    lists.extend(accesses.iter().flat_map(|&(at, expected)| [at, expected]));
    for (name, words) in [("tables", &before), ("lists", &lists)] {
        let file = folder.join(name);
        fs::write(&file, bytes(words)).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.as_slice() {
        [folder, seed, name, settings @ ..] => match seed.parse() {
            Ok(seed) => write(Path::new(folder), name, settings, seed),
            Err(error) => Err(format!("the seed {seed}: {error}")),
        },
        _ => Err("refill FOLDER SEED MACHINE [KEY=VALUE ...]".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("error: {what}");
            ExitCode::FAILURE
        }
    }
}
