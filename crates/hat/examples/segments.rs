//! Writes page tables of small spaces, and a script of the operations that a processor performs on
//! them. `segments/run` executes the script on a processor that checks the limits of segments.
//!
//! ```text
//!   segments FOLDER SEED EVENTS REVOKE [WORD=VALUE ...]      random switches, accesses, promotions,
//!                                                            revocations, changes of pages
//!   segments FOLDER ping-pong SWITCHES WHICH                 two spaces in turn: large, small, mixed
//!
//!   omit=flush, purge, page, copies    a step that is left out on purpose: see `Omit`
//!   schedule=lru, frequent, first-come      which space has a slot
//!   slot=8                                  MiB of a slot
//!
//!   pages: load, unload, protect --+
//!   SmallSpaces --> Directories: lend, take_back --> Hat --> bytes of X86_32 --> FOLDER/script: WRITE
//!        |               |-- forget, shoot ------------------------------------>              FORGET
//!        |               `-- load --------------------------------------------->              LOAD
//!        `-- base and limit --------------------------------------------------->              SEGMENTS
//!   model: the pages of each space ------------------------------------------->               ACCESS, and its outcome
//! ```
//!
//! The model has neither slots nor page tables. In it, each space has its pages at its own
//! addresses, with their rights, and a small space has no pages beyond its limit.

use std::{
    collections::{BTreeMap, BTreeSet},
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
use pagetable::{Flush, Lent, Mount, Mounted, Scope, Translation, X86_32};

const BASE: PageSize = PageSize::SIZE_4K;
const PAGE: u64 = BASE.bytes();
const LARGE: PageSize = PageSize::from_shift(22).unwrap();
/// The bytes of physical memory, which hold page tables and the frames of pages.
const MEMORY: u64 = 8 << 20;
const MEMORY_BYTES: u64 = 8 << 20;
/// The frames of large pages, behind the script: see `segments/link.ld`.
const LARGE_FRAMES: u64 = 32 << 20;
const AREA: u64 = 0x8000_0000;
/// The kernel's addresses, at which the area of the slots ends at the latest.
const KERNEL: u64 = 0xe000_0000;
const SLOT_MIB: u64 = 8;
const SLOTS: u64 = 16;
const SPACES: usize = 64;
const GROUPS: u16 = 3;
/// Every space whose number is a multiple of this one has a page of 4 MiB, if its slot is larger. The
/// entry of this page is in the root.
const LARGE_EACH: usize = 8;
/// The addresses of each space's pages: the page of code, which all spaces share, and a page of
/// data. Another page of data ends where the slot ends.
const CODE: u64 = 0x1000;
const DATA: u64 = 0x2000;
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
/// The bits of an access's kind from this one on are a second vector: the access may end with it too.
const OTHER_SHIFT: u32 = 8;

/// The distance of an access's last byte from its first one. A jump needs one byte.
const fn last_byte(kind: u32) -> u64 {
    if kind == FETCH { 0 } else { 3 }
}

struct State {
    words: Vec<u32>,
    script: Vec<u32>,
    is_logged: bool,
    /// The roots whose entries for the slots are not written by the script.
    hidden: BTreeSet<u64>,
}

impl State {
    fn is_hidden(&self, at: u64) -> bool {
        at % PAGE / 4 >= AREA >> 22 && self.hidden.contains(&(at - at % PAGE))
    }
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
        if state.is_logged && !state.is_hidden(at.get()) {
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

/// An allocator that hands out freed frames first, and otherwise frames in order.
#[derive(Default)]
struct Pool {
    next: u64,
    free: Vec<PhysAddr>,
}

impl Frames for Pool {
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        let free_bytes = (MEMORY + MEMORY_BYTES).saturating_sub(self.next);
        if size != BASE || free_bytes < PAGE {
            return Err(OutOfFrames { size, free_bytes });
        }
        Ok(self.free.pop().unwrap_or_else(|| {
            self.next += PAGE;
            PhysAddr::new(self.next - PAGE)
        }))
    }
    fn free(&mut self, frame: PhysAddr, _: PageSize) {
        self.free.push(frame);
    }
}

/// The platform of an operation on one space.
struct Kernel<'a> {
    frames: &'a mut Pool,
    image: Image,
    /// What is added to the space's own addresses wherever the processor may have translations: in
    /// its slot, and at its own addresses if its root is loaded.
    bases: Vec<u64>,
    slot_bytes: u64,
}

impl hat::Platform for Kernel<'_> {
    fn shoot(&mut self, flushes: &[(HatSpace, Flush)]) {
        for (_, flush) in flushes {
            let (start, bytes) = match flush.scope() {
                Scope::Nothing => continue,
                Scope::Pages { range, .. } => (range.start().get(), range.bytes()),
                Scope::Space => (0, self.slot_bytes),
            };
            for base in &self.bases {
                self.image.say(&[word::FORGET, (base + start) as u32, (bytes / PAGE) as u32]);
            }
        }
    }
    fn frames(&mut self) -> &mut dyn Frames {
        self.frames
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
    /// The flush of a page that is unmapped or gets fewer rights.
    Page,
    /// The removal of copies when a page of a small space changes, as in Hazelnut: its kernel changed
    /// the entry of a large page in the space's own root, and not the copies.
    Copies,
}

/// A space's page, as the model has it.
#[derive(Clone, Copy)]
struct Page {
    size: PageSize,
    frame: PhysAddr,
    /// `None` if the page is not mapped.
    rights: Option<Rights>,
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
    /// The pages of each space, by space and address.
    pages: BTreeMap<(HatSpace, u64), Page>,
    /// The first and the last word of each page of data, by space and address.
    model: BTreeMap<(HatSpace, u64), u32>,
    /// The spaces of which the layer may have emptied copies since a root was loaded: it empties
    /// those of large pages before any change, and all when a table goes. Of pages that did not
    /// change, the processor may still have translations.
    settled: BTreeSet<HatSpace>,
    segments: Option<(u64, u64)>,
    next: u32,
    frames: Pool,
    slot_bytes: u64,
}

/// What a world consists of.
#[derive(Clone, Copy)]
struct Plan {
    revoke: Revoke,
    schedule: Schedule,
    omit: Omit,
    spaces: usize,
    slot_mib: u64,
}

impl World {
    fn new(plan: Plan) -> Result<World, String> {
        let Plan { revoke, schedule, omit, spaces: count, slot_mib } = plan;
        let slot_bytes = slot_mib << 20;
        let words = vec![0; (MEMORY_BYTES / 4) as usize];
        let (script, is_logged, hidden) = (Vec::new(), false, BTreeSet::new());
        let image = Image(Arc::new(Mutex::new(State { words, script, is_logged, hidden })));
        if slot_bytes * SLOTS > KERNEL - AREA {
            return Err(format!(
                "{SLOTS} slots of {slot_mib} MiB do not end below the kernel's addresses: take at most 64 MiB"
            ));
        }
        if !slot_bytes.is_power_of_two() || slot_bytes < LARGE.bytes() {
            return Err(format!(
                "a slot cannot have {slot_mib} MiB: take a power of two from 4, the MiB of an entry of the root"
            ));
        }
        let area = VirtRange::new(VirtAddr::new(AREA), slot_bytes * SLOTS)
            .map_err(|error| error.to_string())?;
        let table = X86_32::<false, true>::with_area(area).map_err(|error| error.to_string())?;
        let table: Box<dyn Mounted> = Box::new(Mount::tree(table, image.clone()));
        let layout = SlotLayout::new(area, slot_bytes, LARGE.bytes());
        let layout = layout.map_err(|error| format!("{error:?}"))?;
        let mut world = World {
            hat: Hat::new(table),
            small: SmallSpaces::new(layout, revoke, schedule, 1),
            image,
            omit,
            spaces: Vec::new(),
            pages: BTreeMap::new(),
            model: BTreeMap::new(),
            settled: BTreeSet::new(),
            segments: None,
            next: 1,
            frames: Pool { next: MEMORY, free: Vec::new() },
            slot_bytes,
        };
        let code = world.frames.allocate(BASE).map_err(|error| error.to_string())?;
        world.write_code(code);
        let groups = if revoke == Revoke::Groups { GROUPS } else { 0 };
        for _ in 0..groups {
            let space = world.space()?;
            world.small.add_group(space);
        }
        for number in 0..count {
            let space = world.space()?;
            world.fill(space, number, code)?;
            if groups > 0 {
                let group = number as u16 % (groups + 1);
                world.small.join(space, (group < groups).then_some(group));
            }
            world.spaces.push(space);
        }
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

    /// Calls `f` with the page tables and the platform of an operation on `space`.
    fn on<R>(&mut self, space: HatSpace, f: impl FnOnce(&Hat, &mut Kernel<'_>) -> R) -> R {
        let slot = self.small.slot_of(space).map(|slot| AREA + u64::from(slot) * self.slot_bytes);
        let own = (self.small.on(0).0 == Some(space)).then_some(0);
        let bases = if self.omit == Omit::Page {
            Vec::new()
        } else {
            slot.into_iter().chain(own).collect()
        };
        let World { hat, frames, image, slot_bytes, .. } = self;
        f(hat, &mut Kernel { frames, image: image.clone(), bases, slot_bytes: *slot_bytes })
    }

    fn space(&mut self) -> Result<HatSpace, String> {
        let World { hat, frames, image, slot_bytes, .. } = self;
        let mut kernel =
            Kernel { frames, image: image.clone(), bases: Vec::new(), slot_bytes: *slot_bytes };
        let space = hat.create(&mut kernel).map_err(|error| error.to_string())?;
        self.small.add(space);
        self.image.say(&[word::ADOPT, root(&self.hat, space)]);
        Ok(space)
    }

    /// Maps the pages of the space with this number.
    fn fill(&mut self, space: HatSpace, number: usize, code: PhysAddr) -> Result<(), String> {
        let rights = Rights::READ | Rights::EXECUTE | Rights::USER;
        self.pages.insert((space, CODE), Page { size: BASE, frame: code, rights: Some(rights) });
        let is_large = number.is_multiple_of(LARGE_EACH) && self.slot_bytes > LARGE.bytes();
        for (at, size) in [(DATA, BASE), (0, if is_large { LARGE } else { BASE })] {
            let at = if at == DATA { at } else { self.slot_bytes - size.bytes() };
            let frame = match size {
                LARGE => {
                    Ok(PhysAddr::new(LARGE_FRAMES + (number / LARGE_EACH) as u64 * LARGE.bytes()))
                }
                _ => self.frames.allocate(BASE).map_err(|error| error.to_string()),
            }?;
            self.pages.insert((space, at), Page { size, frame, rights: Some(Rights::ALL) });
            for offset in [0, size.bytes() - 4] {
                let (value, place) = (self.next_word(), frame.wrapping_add(offset));
                match size {
                    // The image has no frames of large pages.
                    LARGE => self.image.say(&[word::WRITE, place.get() as u32, value]),
                    _ => self.image.write_u32(place, value),
                }
                self.model.insert((space, at + offset), value);
            }
        }
        let all: Vec<u64> = self.pages_of(space).collect();
        all.into_iter().try_for_each(|at| self.map(space, at))
    }

    fn pages_of(&self, space: HatSpace) -> impl Iterator<Item = u64> {
        self.pages.range((space, 0)..=(space, u64::MAX)).map(|(&(_, at), _)| at)
    }

    /// Maps a page with the rights that the model has.
    fn map(&mut self, space: HatSpace, at: u64) -> Result<(), String> {
        let Page { size, frame, rights } = self.pages[&(space, at)];
        let rights = rights.ok_or("the page is not mapped")?;
        let page = Translation::new(VirtAddr::new(at).page(size), frame, rights);
        let loaded = self.on(space, |hat, kernel| hat.load(space, page, 1, kernel).map(|_| ()));
        loaded.map_err(|error| format!("{at:#x}: {error}"))
    }

    /// Unmaps a page of data, maps it again, or changes its rights.
    fn change(&mut self, space: HatSpace, random: &mut Random) -> Result<(), String> {
        let all: Vec<u64> = self.pages_of(space).filter(|&at| at != CODE).collect();
        let at = all[random.below(all.len() as u64) as usize];
        let page = self.pages[&(space, at)];
        let range = VirtRange::of_page(VirtAddr::new(at).page(page.size));
        let read = Rights::READ | Rights::USER;
        let rights = match (page.rights, random.below(3)) {
            (None, _) => Some(Rights::ALL),
            (Some(_), 0) => None,
            (Some(rights), _) => Some(if rights == read { Rights::ALL } else { read }),
        };
        self.pages.insert((space, at), Page { rights, ..page });
        if self.omit == Omit::Copies {
            let hidden = self.spaces.iter().map(|&space| u64::from(root(&self.hat, space)));
            self.image.state().hidden = hidden.collect();
        }
        let changed = match (page.rights, rights) {
            (None, _) => self.map(space, at),
            (Some(_), None) => self.on(space, |hat, kernel| {
                hat.unload(space, range, &mut |_| {}, kernel).map_err(|error| error.to_string())
            }),
            (Some(_), Some(rights)) => self.on(space, |hat, kernel| {
                hat.protect(space, range, rights, kernel).map_err(|error| error.to_string())
            }),
        };
        self.image.state().hidden.clear();
        self.settled.insert(space);
        changed
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

    /// Makes a space small if there is a slot for it.
    fn make_small(&mut self, space: HatSpace) -> Result<(), String> {
        let slots = |world: &World| -> Vec<_> {
            world.spaces.iter().map(|&space| world.small.slot_of(space)).collect()
        };
        let before = slots(self);
        let made = self.with(|small, processor| small.make_small(space, processor));
        // In Hazelnut, a space that got no slot took the slot of another one with it.
        if made.is_err() && slots(self) != before {
            return Err("a space that got no slot has changed the slots of others".to_owned());
        }
        Ok(())
    }

    fn enter(&mut self, space: HatSpace) -> Result<(), String> {
        let entered = self.with(|small, processor| small.enter(0, space, processor));
        let entered = entered.ok_or("a space that was added is not known")?;
        if entered.loads_root {
            self.settled.clear();
        }
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

    /// The page of the model in which an address is.
    fn page_at(&self, space: HatSpace, at: u64) -> Option<Page> {
        let (&(_, start), &page) = self.pages.range((space, 0)..=(space, at)).next_back()?;
        (at - start < page.size.bytes()).then_some(page)
    }

    /// The rights of the page at an address, if it is mapped.
    fn rights_at(&self, space: HatSpace, at: u64) -> Option<Rights> {
        self.page_at(space, at)?.rights
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
        if at + last_byte(kind) >= limit {
            return (if kind == PUSH { STACK_FAULT } else { PROTECTION }, 0);
        }
        if kind == FETCH {
            return (if at == LANDING { DONE } else { PAGE_FAULT }, 0);
        }
        let needed = if kind == LOAD { Rights::READ } else { Rights::WRITE };
        let is_allowed = self.rights_at(space, at).is_some_and(|rights| rights.contains(needed));
        let word = self.model.get_mut(&(space, at)).filter(|_| is_allowed);
        let Some(word) = word else { return (PAGE_FAULT, 0) };
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
            let is_beyond = at + last_byte(kind) >= limit;
            let missing =
                places.into_iter().filter(|&place| place == CODE || !is_beyond).find(|&place| {
                    self.rights_at(space, place).is_some() && !self.is_in_root(base + place)
                });
            if let Some(place) = missing {
                if !is_small {
                    return Err(format!("the root of a large space lacks {place:#x}"));
                }
                let (other, word) = if self.settled.contains(&space) {
                    self.outcome(space, kind, at, limit, value)
                } else {
                    (PAGE_FAULT, 0)
                };
                let kinds = kind | other << OTHER_SHIFT;
                self.image.say(&[word::ACCESS, kinds, at as u32, value, PAGE_FAULT, word]);
                let addr = VirtAddr::new(place);
                let found = self.with(|small, processor| small.fault(0, addr, processor));
                if found != SmallFault::Copied {
                    return Err(format!("{place:#x}: {found:?}, and the space has it"));
                }
                continue;
            }
            let (vector, word) = self.outcome(space, kind, at, limit, value);
            let kinds = kind | vector << OTHER_SHIFT;
            self.image.say(&[word::ACCESS, kinds, at as u32, value, vector, word]);
            let is_beyond = matches!(vector, STACK_FAULT | PROTECTION);
            if !is_small || !is_beyond {
                return Ok(());
            }
            // The address is beyond the limit, so the space continues as a large space.
            self.with(|small, processor| small.promote(space, processor));
            self.load_segments(0, AREA);
        }
    }

    /// The addresses of the words in a space's pages of data.
    fn words_of(&self, space: HatSpace) -> impl Iterator<Item = u64> {
        self.model.range((space, 0)..=(space, u64::MAX)).map(|(&(_, at), _)| at)
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
    let before = world.image.state().words[..index(PhysAddr::new(world.frames.next))].to_vec();
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    Ok(before)
}

fn random(folder: &Path, seed: u64, events: u64, plan: Plan) -> Result<(), String> {
    let mut world = World::new(plan)?;
    let before = keep(&world, folder)?;
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (slot, mut last) = (world.slot_bytes, 0);
    for _ in 0..events {
        // Mostly a few spaces are used, so that slots and roots are reused.
        let bound = if random.below(4) == 0 { SPACES } else { SPACES / 3 };
        let number = if random.below(4) == 0 { last } else { random.below(bound as u64) as usize };
        last = number;
        let space = world.spaces[number];
        if random.below(3) == 0 {
            world.make_small(space)?;
        }
        world.enter(space)?;
        for _ in 0..=random.below(3) {
            if random.below(4) == 0 {
                // A page of the space that runs, or of another one.
                let other = random.below(bound as u64) as usize;
                let changed = if random.below(2) == 0 { number } else { other };
                world.change(world.spaces[changed], &mut random)?;
            }
            let words: Vec<u64> = world.words_of(space).collect();
            let (kind, at) = match random.below(16) {
                0 => (FETCH, LANDING),
                1 => (random.below(3) as u32, 0x5000 + PAGE * random.below(20)),
                2 if random.below(3) == 0 => (random.below(3) as u32, slot - 3 + random.below(3)),
                3 if random.below(3) == 0 => (FETCH, slot + PAGE * random.below(8)),
                4 if random.below(3) == 0 => {
                    (random.below(3) as u32, AREA + PAGE * random.below(64))
                }
                _ => (random.below(3) as u32, words[random.below(words.len() as u64) as usize]),
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
    let mut world = World::new(Plan { spaces: 2, ..PLAN })?;
    let before = keep(&world, folder)?;
    for &number in small {
        world.make_small(world.spaces[number])?;
    }
    // The first space must run before the first switch, hence one more entry than switches.
    for number in 0..=switches {
        let space = world.spaces[number as usize % 2];
        world.enter(space)?;
        world.access(space, LOAD, DATA)?;
    }
    world.finish(folder)?;
    write(folder, "memory", &before)
}

fn write(folder: &Path, name: &str, words: &[u32]) -> Result<(), String> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let file = folder.join(name);
    fs::write(&file, bytes).map_err(|error| format!("{}: {error}", file.display()))
}

/// The plan where nothing else is asked for.
const PLAN: Plan = Plan {
    revoke: Revoke::Purge,
    schedule: Schedule::Lru,
    omit: Omit::Nothing,
    spaces: SPACES,
    slot_mib: SLOT_MIB,
};

/// The names that can be chosen for something.
type Choices<T> = [(&'static str, T)];

const REVOKES: &Choices<Revoke> =
    &[("purge", Revoke::Purge), ("versioned", Revoke::Versioned), ("groups", Revoke::Groups)];
const SCHEDULES: &Choices<Schedule> = &[
    ("lru", Schedule::Lru),
    ("frequent", Schedule::Frequent),
    ("first-come", Schedule::FirstCome),
];
const OMITS: &Choices<Omit> = &[
    ("flush", Omit::Flush),
    ("purge", Omit::Purge),
    ("page", Omit::Page),
    ("copies", Omit::Copies),
];

fn chosen<T: Copy>(what: &str, name: &str, choices: &Choices<T>) -> Result<T, String> {
    let found = choices.iter().find(|(choice, _)| *choice == name);
    found.map(|&(_, value)| value).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|&(name, _)| name).collect();
        format!("{what} is not {name}: choose {}", names.join(", "))
    })
}

fn run(arguments: &[String]) -> Result<(), String> {
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text}: {error}"));
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [folder, "ping-pong", switches, which] => {
            ping_pong(Path::new(folder), number(switches)?, which)
        }
        [folder, seed, events, revoke, more @ ..] => {
            let mut plan = Plan { revoke: chosen("the policy", revoke, REVOKES)?, ..PLAN };
            for word in more {
                match word.split_once('=').unwrap_or((word, "")) {
                    ("omit", name) => plan.omit = chosen("the step to leave out", name, OMITS)?,
                    ("schedule", name) => {
                        plan.schedule = chosen("the schedule", name, SCHEDULES)?;
                    }
                    ("slot", mib) => plan.slot_mib = number(mib)?,
                    (other, _) => {
                        return Err(format!("there is no {other}: choose omit, schedule or slot"));
                    }
                }
            }
            random(Path::new(folder), number(seed)?, number(events)?, plan)
        }
        _ => Err("segments FOLDER SEED EVENTS REVOKE [WORD=VALUE ...], or FOLDER ping-pong SWITCHES WHICH"
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
