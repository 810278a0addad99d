//! Writes page tables of small spaces, and a script of the operations that a processor performs on
//! them. `segments/run` executes the script on a processor that checks the limits of segments.
//!
//! ```text
//!   segments FOLDER SEED EVENTS REVOKE [OMIT]      random switches, accesses, promotions, revocations
//!   segments FOLDER ping-pong SWITCHES WHICH       two spaces in turn: both large, both small, or mixed
//!
//!   SmallSpaces --> Directories: lend, take_back --> Hat --> bytes of X86_32 --> FOLDER/script: WRITE
//!        |               |-- forget ------------------------------------------->              FORGET
//!        |               `-- load --------------------------------------------->              LOAD
//!        `-- base and limit --------------------------------------------------->              SEGMENTS
//!   model: the pages of each space ------------------------------------------->               ACCESS, and its outcome
//! ```
//!
//! The model has neither slots nor page tables. In it, each space has its pages at its own
//! addresses, and a small space has no pages beyond its limit.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::ExitCode,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use addr::{Frames, Memory, OutOfFrames, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{
    Hat, HatSpace,
    small::{Directories, Revoke, Schedule, SlotLayout, SmallFault, SmallSpaces},
};
use pagetable::{Flush, Lent, Mount, Mounted, Translation, X86_32};

const BASE: PageSize = PageSize::SIZE_4K;
const PAGE: u64 = BASE.bytes();
/// The bytes of physical memory, which hold page tables and the frames of pages.
const MEMORY: u64 = 8 << 20;
const MEMORY_BYTES: u64 = 8 << 20;
const AREA: u64 = 0x8000_0000;
const SLOT: u64 = 4 << 20;
const SLOTS: u64 = 16;
const SPACES: usize = 64;
const GROUPS: u16 = 3;
/// The addresses of each space's pages: the page of code, which all spaces share, pages of data,
/// and the last page of a slot.
const CODE: u64 = 0x1000;
const DATA: [u64; 2] = [0x2000, SLOT - PAGE];
/// The address in the page of code to which a jump leads.
const LANDING: u64 = CODE + 0x40;

/// The numbers of the script's commands.
mod word {
    pub(super) const END: u32 = 0;
    pub(super) const WRITE: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const LOAD: u32 = 3;
    pub(super) const SEGMENTS: u32 = 4;
    pub(super) const ACCESS: u32 = 5;
    pub(super) const ADOPT: u32 = 6;
}

/// Vectors of exceptions; `DONE` is the software interrupt that follows an access without a fault.
const DONE: u32 = 0x80;
const STACK_FAULT: u32 = 12;
const PROTECTION: u32 = 13;
const PAGE_FAULT: u32 = 14;

/// The numbers of the kinds of accesses in the script; 1 is a store.
const LOAD: u32 = 0;
const PUSH: u32 = 2;
const FETCH: u32 = 3;

struct State {
    words: Vec<u32>,
    script: Vec<u32>,
    is_logged: bool,
}

/// Physical memory with tables and pages. Each change of it is written to the script.
#[derive(Clone)]
struct Image(Arc<Mutex<State>>);

impl Image {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, words: &[u32]) {
        self.state().script.extend_from_slice(words);
    }
}

fn index(at: PhysAddr) -> usize {
    (at.get() - MEMORY) as usize / 4
}

impl Memory for Image {
    fn read_u32(&self, at: PhysAddr) -> u32 {
        self.state().words[index(at)]
    }
    fn write_u32(&mut self, at: PhysAddr, value: u32) {
        let mut state = self.state();
        state.words[index(at)] = value;
        if state.is_logged {
            state.script.extend_from_slice(&[word::WRITE, at.get() as u32, value]);
        }
    }
    fn read_u64(&self, at: PhysAddr) -> u64 {
        u64::from(self.read_u32(at)) | u64::from(self.read_u32(at.wrapping_add(4))) << 32
    }
    fn write_u64(&mut self, at: PhysAddr, value: u64) {
        self.write_u32(at, value as u32);
        self.write_u32(at.wrapping_add(4), (value >> 32) as u32);
    }
    fn read_u8(&self, at: PhysAddr) -> u8 {
        (self.read_u32(PhysAddr::new(at.get() & !3)) >> (at.get() % 4 * 8)) as u8
    }
    fn write_u8(&mut self, at: PhysAddr, value: u8) {
        let (word, shift) = (PhysAddr::new(at.get() & !3), at.get() % 4 * 8);
        let others = self.read_u32(word) & !(0xff << shift);
        self.write_u32(word, others | u32::from(value) << shift);
    }
    addr::exchanges_of_one_user!();
}

/// An allocator that hands out frames in order and never frees one.
struct InTurn(u64);

impl Frames for InTurn {
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        let start = self.0.next_multiple_of(size.bytes());
        let free_bytes = (MEMORY + MEMORY_BYTES).saturating_sub(start);
        if free_bytes < size.bytes() {
            return Err(OutOfFrames { size, free_bytes });
        }
        self.0 = start + size.bytes();
        Ok(PhysAddr::new(start))
    }
    fn free(&mut self, _: PhysAddr, _: PageSize) {}
}

impl hat::Platform for InTurn {
    // No flush is needed: pages are mapped before the processor runs and are never unmapped.
    fn shoot(&mut self, _: &[(HatSpace, Flush)]) {}
    fn frames(&mut self) -> &mut dyn Frames {
        self
    }
}

/// A step that is omitted on purpose, so that the check must fail.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Omit {
    Nothing,
    /// The flush of a slot that a space loses.
    Flush,
    /// The removal of copies when a space loses its slot: the copies stay in the roots.
    Purge,
}

/// The processor, represented by the script of its operations.
struct Processor<'a> {
    hat: &'a Hat,
    image: Image,
    omit: Omit,
}

impl Directories for Processor<'_> {
    fn lend(&mut self, from: HatSpace, addr: VirtAddr, to: HatSpace, at: VirtAddr) -> Lent {
        self.hat.lend(from, addr, to, at).expect("the area is the table's")
    }
    fn take_back(&mut self, of: HatSpace, range: VirtRange) -> u64 {
        self.image.state().is_logged = self.omit != Omit::Purge;
        let taken = self.hat.take_back(of, range);
        self.image.state().is_logged = true;
        taken
    }
    fn forget(&mut self, range: VirtRange) {
        if self.omit != Omit::Flush {
            let (start, pages) = (range.start().get() as u32, (range.bytes() / PAGE) as u32);
            self.image.say(&[word::FORGET, start, pages]);
        }
    }
    fn load(&mut self, _: usize, space: HatSpace) {
        self.image.say(&[word::LOAD, root(self.hat, space)]);
    }
}

fn root(hat: &Hat, space: HatSpace) -> u32 {
    hat.space(space).map_or(0, |space| space.root().get() as u32)
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

/// All spaces, the contents of their pages, and the processor.
struct World {
    hat: Hat,
    small: SmallSpaces,
    image: Image,
    omit: Omit,
    spaces: Vec<HatSpace>,
    /// The first and the last word of each page of data, by space and address.
    model: BTreeMap<(HatSpace, u64), u32>,
    segments: Option<(u64, u64)>,
    next: u32,
    /// Frames that are in use.
    frames: InTurn,
}

impl World {
    fn new(revoke: Revoke, omit: Omit, count: usize) -> Result<World, String> {
        let words = vec![0; (MEMORY_BYTES / 4) as usize];
        let image =
            Image(Arc::new(Mutex::new(State { words, script: Vec::new(), is_logged: false })));
        let area =
            VirtRange::new(VirtAddr::new(AREA), SLOT * SLOTS).map_err(|error| error.to_string())?;
        let table = X86_32::<false, true>::with_area(area).map_err(|error| error.to_string())?;
        let table: Box<dyn Mounted> = Box::new(Mount::tree(table, image.clone()));
        let hat = Hat::new(table);
        let layout = SlotLayout::new(area, SLOT, SLOT).map_err(|error| format!("{error:?}"))?;
        let small = SmallSpaces::new(layout, revoke, Schedule::Lru, 1);
        let (spaces, model) = (Vec::new(), BTreeMap::new());
        let mut world = World {
            hat,
            small,
            image,
            omit,
            spaces,
            model,
            segments: None,
            next: 1,
            frames: InTurn(MEMORY),
        };
        let mut frames = InTurn(MEMORY);
        let code = frames.allocate(BASE).map_err(|error| error.to_string())?;
        world.write_code(code);
        let groups = if revoke == Revoke::Groups { GROUPS } else { 0 };
        for _ in 0..groups {
            let space = world.space(&mut frames)?;
            world.small.add_group(space);
        }
        for number in 0..count {
            let space = world.space(&mut frames)?;
            world.fill(space, code, &mut frames)?;
            if groups > 0 {
                let group = number as u16 % (groups + 1);
                world.small.join(space, (group < groups).then_some(group));
            }
            world.spaces.push(space);
        }
        world.frames = frames;
        world.image.state().is_logged = true;
        Ok(world)
    }

    /// Writes the instructions that make accesses, at distances of 16 bytes: see `segments/boot.s`.
    fn write_code(&mut self, frame: PhysAddr) {
        let call = 0x80cd;
        // mov eax, [ebx]; mov [ebx], eax; push eax.
        let accesses = [0x038b | call << 16, 0x0389 | call << 16, 0x50 | call << 8];
        let landing = call;
        let places = [0, 0x10, 0x20, LANDING - CODE];
        for (at, code) in places.into_iter().zip(accesses.into_iter().chain([landing])) {
            self.image.write_u32(frame.wrapping_add(at), code);
        }
    }

    fn space(&mut self, frames: &mut InTurn) -> Result<HatSpace, String> {
        let space = self.hat.create(frames).map_err(|error| error.to_string())?;
        self.small.add(space);
        self.image.say(&[word::ADOPT, root(&self.hat, space)]);
        Ok(space)
    }

    /// Maps the pages of a space.
    fn fill(&mut self, space: HatSpace, code: PhysAddr, frames: &mut InTurn) -> Result<(), String> {
        let mut pages = vec![(CODE, code, Rights::READ | Rights::EXECUTE | Rights::USER)];
        for at in DATA {
            let frame = frames.allocate(BASE).map_err(|error| error.to_string())?;
            pages.push((at, frame, Rights::ALL));
            for offset in [0, PAGE - 4] {
                let value = self.next_word();
                self.image.write_u32(frame.wrapping_add(offset), value);
                self.model.insert((space, at + offset), value);
            }
        }
        for (at, frame, rights) in pages {
            let page = Translation::new(VirtAddr::new(at).page(BASE), frame, rights);
            self.hat.load(space, page, 1, frames).map_err(|error| format!("{at:#x}: {error}"))?;
        }
        Ok(())
    }

    fn next_word(&mut self) -> u32 {
        self.next += 1;
        0x5a00_0000 | self.next
    }

    /// Calls `f` with the small spaces and the processor.
    fn with<R>(&mut self, f: impl FnOnce(&mut SmallSpaces, &mut Processor<'_>) -> R) -> R {
        let World { hat, small, image, omit, .. } = self;
        f(small, &mut Processor { hat, image: image.clone(), omit: *omit })
    }

    fn make_small(&mut self, space: HatSpace) {
        // This may fail, because there may be no slot for the space.
        let _ = self.with(|small, processor| small.make_small(space, processor));
    }

    fn enter(&mut self, space: HatSpace) -> Result<(), String> {
        let entered = self.with(|small, processor| small.enter(0, space, processor));
        let entered = entered.ok_or("a space that was added is not known")?;
        // The addresses of a large space end where the area of the small spaces begins.
        self.load_segments(entered.base, entered.limit.unwrap_or(AREA));
        Ok(())
    }

    fn load_segments(&mut self, base: u64, bytes: u64) {
        if self.segments != Some((base, bytes)) {
            self.segments = Some((base, bytes));
            self.image.say(&[word::SEGMENTS, base as u32, (bytes / PAGE - 1) as u32]);
        }
    }

    /// Whether the loaded root has an entry for the linear address.
    fn is_in_root(&self, linear: u64) -> bool {
        let (loaded, _) = self.small.on(0);
        let directory = u64::from(loaded.map_or(0, |loaded| root(&self.hat, loaded)));
        self.image.read_u32(PhysAddr::new(directory + (linear >> 22) * 4)) & 1 != 0
    }

    /// The outcome of an access according to the model, if the space has all addresses below
    /// `limit`.
    fn outcome(
        &mut self,
        space: HatSpace,
        kind: u32,
        at: u64,
        limit: u64,
        value: u32,
    ) -> (u32, u32) {
        if at + if kind == FETCH { 0 } else { 3 } >= limit {
            return (if kind == PUSH { STACK_FAULT } else { PROTECTION }, 0);
        }
        if kind == FETCH {
            return (if at == LANDING { DONE } else { PAGE_FAULT }, 0);
        }
        let Some(word) = self.model.get_mut(&(space, at)) else { return (PAGE_FAULT, 0) };
        if kind != LOAD {
            *word = value;
        }
        (DONE, if kind == LOAD { *word } else { 0 })
    }

    /// Makes an access of the running space, and handles its faults as a kernel would.
    fn access(&mut self, space: HatSpace, kind: u32, at: u64) -> Result<(), String> {
        loop {
            let (base, limit) = self.segments.ok_or("a space runs")?;
            let is_small = base != 0;
            let value = self.next_word();
            // A jump accesses only the page of its target; every other access is made by an
            // instruction in the page of code.
            let first = if kind == FETCH { at } else { CODE };
            let places = [first, at];
            let missing = places.into_iter().find(|&place| {
                place < limit
                    && (place == CODE
                        || place == LANDING
                        || self.model.contains_key(&(space, place)))
                    && !self.is_in_root(base + place)
            });
            if let Some(place) = missing {
                if !is_small {
                    return Err(format!("the root of a large space lacks {place:#x}"));
                }
                self.image.say(&[word::ACCESS, kind, at as u32, value, PAGE_FAULT, 0]);
                let addr = VirtAddr::new(place);
                let found = self.with(|small, processor| small.fault(0, addr, processor));
                if found != SmallFault::Copied {
                    return Err(format!("{place:#x}: {found:?}, and the space has it"));
                }
                continue;
            }
            let (vector, word) = self.outcome(space, kind, at, limit, value);
            self.image.say(&[word::ACCESS, kind, at as u32, value, vector, word]);
            let is_beyond = matches!(vector, STACK_FAULT | PROTECTION);
            if !is_small || !is_beyond {
                return Ok(());
            }
            // The address is beyond the limit, so the space continues as a large space.
            self.with(|small, processor| small.promote(space, processor));
            self.load_segments(0, AREA);
        }
    }

    fn finish(&mut self, folder: &Path) -> Result<(), String> {
        self.image.say(&[word::END]);
        let counts = self.small.counts();
        println!(
            "loads {} switches {} copies {} revoked {} promoted {}",
            counts.root_loads, counts.switches, counts.copies, counts.revoked, counts.promoted
        );
        let state = self.image.state();
        write(folder, "script", &state.script)
    }
}

/// Returns the words of memory before the script runs; the script then changes them.
fn keep(world: &World, folder: &Path) -> Result<Vec<u32>, String> {
    let before = world.image.state().words[..index(PhysAddr::new(world.frames.0))].to_vec();
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    Ok(before)
}

fn random(folder: &Path, seed: u64, events: u64, revoke: Revoke, omit: Omit) -> Result<(), String> {
    let mut world = World::new(revoke, omit, SPACES)?;
    let before = keep(&world, folder)?;
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut last = 0;
    for _ in 0..events {
        // Mostly a few spaces are used, so that slots and roots are reused.
        let bound = if random.below(4) == 0 { SPACES } else { SPACES / 3 };
        let number = if random.below(4) == 0 { last } else { random.below(bound as u64) as usize };
        last = number;
        let space = world.spaces[number];
        if random.below(3) == 0 {
            world.make_small(space);
        }
        world.enter(space)?;
        for _ in 0..=random.below(3) {
            let page = DATA[random.below(2) as usize];
            let (kind, at) = match random.below(16) {
                0 => (FETCH, LANDING),
                1 => (random.below(3) as u32, 0x5000 + PAGE * random.below(20)),
                2 if random.below(3) == 0 => (random.below(3) as u32, SLOT - 3 + random.below(3)),
                3 if random.below(3) == 0 => (FETCH, SLOT + PAGE * random.below(8)),
                4 if random.below(3) == 0 => {
                    (random.below(3) as u32, AREA + PAGE * random.below(64))
                }
                _ => (random.below(3) as u32, page + (PAGE - 4) * random.below(2)),
            };
            world.access(space, kind, at)?;
        }
    }
    world.finish(folder)?;
    write(folder, "memory", &before)
}

fn ping_pong(folder: &Path, switches: u64, which: &str) -> Result<(), String> {
    let small: &[usize] = match which {
        "large" => &[],
        "small" => &[0, 1],
        "mixed" => &[1],
        other => return Err(format!("two spaces are not {other}: choose large, small or mixed")),
    };
    let mut world = World::new(Revoke::Purge, Omit::Nothing, 2)?;
    let before = keep(&world, folder)?;
    small.iter().for_each(|&number| {
        let space = world.spaces[number];
        world.make_small(space);
    });
    // The first space must run before the first switch, hence one more entry than switches.
    for number in 0..=switches {
        let space = world.spaces[number as usize % 2];
        world.enter(space)?;
        world.access(space, LOAD, DATA[0])?;
    }
    world.finish(folder)?;
    write(folder, "memory", &before)
}

fn write(folder: &Path, name: &str, words: &[u32]) -> Result<(), String> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let file = folder.join(name);
    fs::write(&file, bytes).map_err(|error| format!("{}: {error}", file.display()))
}

fn run(arguments: &[String]) -> Result<(), String> {
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [folder, "ping-pong", switches, which] => {
            ping_pong(Path::new(folder), number(switches)?, which)
        }
        [folder, seed, events, revoke, omit @ ..] => {
            let revoke = match *revoke {
                "purge" => Revoke::Purge,
                "versioned" => Revoke::Versioned,
                "groups" => Revoke::Groups,
                other => {
                    return Err(format!(
                        "slots are not revoked by {other}: choose purge, versioned or groups"
                    ));
                }
            };
            let omit = match omit {
                [] => Omit::Nothing,
                ["flush"] => Omit::Flush,
                ["purge"] => Omit::Purge,
                other => {
                    return Err(format!(
                        "nothing is called {}: leave out flush or purge",
                        other.join(" ")
                    ));
                }
            };
            random(Path::new(folder), number(seed)?, number(events)?, revoke, omit)
        }
        _ => Err("segments FOLDER SEED EVENTS REVOKE [OMIT], or FOLDER ping-pong SWITCHES WHICH"
            .to_owned()),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("error: {what}");
            ExitCode::FAILURE
        }
    }
}
