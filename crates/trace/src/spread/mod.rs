//! Moves mappings apart, like an `mmap` that leaves each mapping enough room for reservations of
//! its own (B10 section 6.5.1).
//!
//! ```text
//!   recorded   | libc | libm |anon|a file|            one after the other, several to a block of 2M
//!   given      | libc ......| libm ......|anon .......|a file .....|
//!              ^ multiples of 2M; a file begins where its offset in the file says
//! ```
//!
//! Addresses are changed in events and in accesses. The trace then looks as if another kernel had
//! placed the program's mappings. Only mappings whose address the system chose are relocated: those
//! of `mmap` and `shmat`, unless the program requested an address and got it. Three kinds of
//! mappings stay: mappings that existed when the recording or a program began, the heap, and
//! mappings at addresses that the program chose. A mapping at a chosen address moves only if it
//! lies inside a relocated mapping: a loader maps the parts of a library into a mapping of the
//! whole library.
//!
//! Programs are not run again. A program that depends on its addresses (`malloc` aligns the arenas of
//! its threads) would have requested other mappings. Accesses to addresses that no event has mapped keep
//! their recorded address; a warning says how many of these addresses now belong to a relocated mapping.

mod apart;
mod beginning;
mod layout;
mod room;
mod top_down;

use std::ops::DerefMut;

use rustc_hash::FxHashMap;
use sha2::{Digest, Sha256};

use crate::switches::Switches;
use crate::{
    Arch, Batch, CLONE_VM, Contents, Error, Event, Filter, Header, KERNEL, Placed, Process, Source,
};
pub use top_down::{Aligned, KernelLayout};

use layout::{Full, Layout};

/// The smallest block, which must be more than a base page.
const BLOCK_MIN: u64 = 8 << 10;
const BLOCK_MAX: u64 = 1 << 30;

/// The number of cached ranges, each of which was relocated by one distance. The index is made of
/// the address bits from 21 on.
const RECENT: usize = 64;
const RECENT_SHIFT: u32 = 21;

/// The addresses from `first` up to `last` were all relocated by `by`.
#[derive(Clone, Copy)]
struct Recent {
    first: u64,
    last: u64,
    by: u64,
}

/// A range that contains no address.
const NOTHING: Recent = Recent { first: 1, last: 0, by: 0 };

/// One address space.
struct Space {
    layout: Layout,
    recent: [Recent; RECENT],
}

/// The places of mappings for which the system chose the address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Placement {
    /// Each mapping has blocks of this number of bytes for itself.
    Apart(u64),
    /// Mappings are where a kernel would place them.
    Kernel(KernelLayout),
}

/// A source with mappings at other addresses: spaced apart, or as a kernel would have placed them. `P` is a box of a source, or a reference to it.
pub struct Spread<P> {
    source: P,
    header: Header,
    placement: Placement,
    /// The end of an address space.
    top: u64,
    spaces: Vec<Space>,
    /// For the number of each space, its index in `spaces`.
    places: FxHashMap<u32, usize>,
    /// The current space; `None` for the kernel's own.
    here: Option<usize>,
    /// The layouts of forked children, by their process id, until their first event.
    forked: FxHashMap<i64, Layout>,
    /// The number of accesses to addresses that no event has mapped, and which a relocated mapping
    /// now has.
    astray: u64,
    warnings: Vec<String>,
}

impl<P: DerefMut<Target: Source>> Spread<P> {
    /// `source` with each mapping in blocks of `block` bytes that it has for itself. Returns an
    /// error if `block` is not a power of two from 8K to 1G, or if accesses were filtered from the
    /// trace by their old addresses.
    pub fn new(source: P, block: u64) -> Result<Spread<P>, Error> {
        if !block.is_power_of_two() || !(BLOCK_MIN..=BLOCK_MAX).contains(&block) {
            return Err(Error::Parameters(format!(
                "spread {block}: write a power of two from 8K to 1G, such as 2M"
            )));
        }
        let note =
            format!("its mappings were moved apart: each has blocks of {block} bytes for itself");
        Spread::with(source, Placement::Apart(block), note)
    }

    /// `source` with mappings at the addresses at which a kernel would have placed them. Returns an
    /// error if the program is not for x86-64, or if accesses were filtered from the trace by their
    /// old addresses.
    pub fn as_kernel(source: P, how: KernelLayout) -> Result<Spread<P>, Error> {
        let header = source.header();
        if !matches!(header.arch, Arch::X86_64 | Arch::Unknown) {
            return Err(Error::Parameters(
                "os.linux.layout=\"kernel\": only the layout of programs for x86-64 is modelled, and this program is for \
                 another processor; write \"recorded\""
                    .to_owned(),
            ));
        }
        let note = match how.seed {
            Some(seed) => {
                format!(
                    "its mappings were moved to addresses at which Linux would place them, with \
                     random addresses from the seed {seed}"
                )
            }
            None => {
                "its mappings were moved to addresses at which Linux would place them, without \
                 randomisation"
                    .to_owned()
            }
        };
        Spread::with(source, Placement::Kernel(how), note)
    }

    fn with(source: P, placement: Placement, note: String) -> Result<Spread<P>, Error> {
        let mut header = source.header().clone();
        let what = match placement {
            Placement::Apart(_) => "spread",
            Placement::Kernel(_) => "os.linux.layout=\"kernel\"",
        };
        if header.filter != Filter::None {
            return Err(Error::Parameters(format!(
                "{what}: the trace was recorded with a filter, which depends on the program's own \
                 addresses; record it without --user-filter"
            )));
        }
        header.notes.push(note);
        let top = match header.arch {
            Arch::I386 | Arch::Arm => 1 << 32,
            Arch::X86_64 | Arch::Aarch64 | Arch::Riscv64 | Arch::Unknown => 1 << 47,
        };
        let mut spread = Spread {
            source,
            header,
            placement,
            top,
            spaces: Vec::new(),
            places: FxHashMap::default(),
            here: None,
            forked: FxHashMap::default(),
            astray: 0,
            warnings: Vec::new(),
        };
        spread.enter(0);
        Ok(spread)
    }

    /// Makes `number` the space of the following rows and events.
    fn enter(&mut self, number: u32) {
        self.here = (number != KERNEL).then(|| match self.places.get(&number) {
            Some(&place) => place,
            None => {
                let processes = self.source.processes().iter();
                let child = processes.into_iter().find(|process| process.number == number);
                let inherited = child.and_then(|child| self.forked.remove(&child.pid.into()));
                let (how, top) = (self.placement, self.top);
                let layout = inherited.unwrap_or_else(|| Layout::new(how, top, number.into()));
                self.spaces.push(Space { layout, recent: [NOTHING; RECENT] });
                self.places.insert(number, self.spaces.len() - 1);
                self.spaces.len() - 1
            }
        });
    }

    /// Relocates accesses of the current space.
    fn rows(&mut self, addrs: &mut [u64]) {
        let Some(place) = self.here else { return };
        let Space { layout, recent } = &mut self.spaces[place];
        if layout.is_as_recorded() {
            return;
        }
        for addr in addrs {
            let known = &mut recent[(*addr >> RECENT_SHIFT) as usize % RECENT];
            if *addr < known.first || known.last < *addr {
                let Some((first, last, by)) = layout.around(*addr) else {
                    self.astray += 1;
                    continue;
                };
                *known = Recent { first, last, by };
            }
            *addr = addr.wrapping_add(known.by);
        }
    }

    /// Appends to `out` the events that replace `event`.
    fn event(&mut self, event: Event, out: &mut Vec<Event>) -> Result<(), Error> {
        if let Event::Run { space, .. } = event {
            self.enter(space);
        }
        let Some(place) = self.here else {
            out.push(event);
            return Ok(());
        };
        let Space { layout, recent } = &mut self.spaces[place];
        if event.changes_mappings() {
            *recent = [NOTHING; RECENT];
        }
        if let Event::Fork { result, flags } = event
            && result > 0
            && flags & CLONE_VM == 0
        {
            self.forked.insert(result, layout.clone());
        }
        layout.apply(event, out).map_err(|full| self.placement.full(full))
    }

    /// Processes `events`, which are all mappings that existed when the recording or a program
    /// began. Appends the relocated mappings to `out`.
    fn beginning(&mut self, events: Vec<Event>, out: &mut Vec<Event>) -> Result<(), Error> {
        let placement = self.placement;
        if let (Some(place), Placement::Kernel(_)) = (self.here, placement) {
            self.spaces[place].layout.begin(&events).map_err(|full| placement.full(full))?;
        }
        events.into_iter().try_for_each(|event| self.event(event, out))
    }

    /// Relocates all of `batch`.
    fn batch(&mut self, batch: &mut Batch) -> Result<(), Error> {
        let events = std::mem::take(&mut batch.events);
        let (mut from, mut out) = (0, Vec::new());
        let mut events = events.into_iter().peekable();
        while let Some(Placed { at, thread, event }) = events.next() {
            self.rows(&mut batch.addr[from..at as usize]);
            from = at as usize;
            if matches!(event, Event::Mapping { .. }) {
                let mut all = vec![event];
                let is_next =
                    |next: &Placed| next.at == at && matches!(next.event, Event::Mapping { .. });
                while let Some(next) = events.next_if(is_next) {
                    all.push(next.event);
                }
                self.beginning(all, &mut out)?;
            } else {
                self.event(event, &mut out)?;
            }
            batch.events.extend(out.drain(..).map(|event| Placed { at, thread, event }));
        }
        self.rows(&mut batch.addr[from..]);
        Ok(())
    }
}

impl Placement {
    /// The error that there is no room.
    fn full(self, Full { addr, bytes }: Full) -> Error {
        Error::Parameters(match self {
            Placement::Apart(block) => format!(
                "--spread: the address space has no room for the {bytes} bytes that were mapped at \
                 {addr:#x}: give --spread a size below {block} bytes"
            ),
            Placement::Kernel(_) => format!(
                "os.linux.layout=\"kernel\": no room for the {bytes} bytes that were mapped at {addr:#x}; \
                 write \"recorded\""
            ),
        })
    }
}

impl<P: DerefMut<Target: Source>> Source for Spread<P> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        let more = self.source.next(batch)?;
        self.batch(batch)?;
        self.warnings.clear();
        self.warnings.extend_from_slice(self.source.warnings());
        if self.astray > 0 {
            self.warnings.push(format!(
                "spread: {} accesses are to addresses outside all known mappings to which a \
                 mapping was moved, so they look like accesses to this mapping",
                self.astray
            ));
        }
        Ok(more)
    }

    /// The contents of the TLBs cannot be passed on, as they have the new addresses.
    fn answer(&mut self, _: Option<[Contents; 2]>) {
        self.source.answer(None);
    }

    fn while_waiting(&mut self, go_on: Box<dyn FnMut() -> bool + Send>) {
        self.source.while_waiting(go_on);
    }

    fn total(&self) -> Option<u64> {
        self.source.total()
    }

    fn processes(&self) -> &[Process] {
        self.source.processes()
    }

    /// The warnings of the trace so far, and the number of accesses whose address is ambiguous.
    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn switches(&self) -> Option<Switches> {
        self.source.switches()
    }

    /// The digest of the trace and of how its mappings are spaced.
    fn digest(&self) -> Option<String> {
        let whole = self.source.digest()?;
        let how = match self.placement {
            Placement::Apart(block) => format!("spread 1 {block} {whole}"),
            Placement::Kernel(how) => format!("kernel 1 {how:?} {whole}"),
        };
        let digest = Sha256::digest(how.as_bytes());
        Some(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}
