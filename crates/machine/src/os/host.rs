//! The host of a virtual machine: it backs guest-physical memory, page by page (B10 §4.7).
//!
//! ```text
//!                 guest's table, in guest-physical memory
//!   gVA --> gL4 --> gL3 --> gL2 --> gL1 --> gPA of the page
//!            |       |       |       |       |
//!           hL4     hL4     hL4     hL4     hL4      each guest-physical address is walked for
//!           ...     ...     ...     ...     ...      in the host's table: 4 x 5 + 4 = 24
//!           hL1     hL1     hL1     hL1     hL1      references, 35 with five levels
//!            |       |       |       |       |
//!           hPA     hPA     hPA     hPA     hPA
//! ```
//!
//! A page of the host is backed when it is first needed, and stays. A walk that found nothing
//! and had it backed counts once, as it is then repeated.

use addr::{Asid, Kind, PageSize, PhysAddr, VirtAddr, VirtRange};
use pagetable::{Fault, Flush, Node, Reference, Translation};

use super::{Answer, Ask, Platform, System, Who};
use crate::{
    count::labels::Layout,
    description::{self, Description},
    managers::first_touch::FirstTouch,
    ram::{
        Failure, Ram,
        walk::{HostTable, HostWalk, Walk, as_virtual},
    },
};

/// The host: memory of its own, and a system that decides on it.
pub(crate) struct Host {
    ram: Ram,
    system: FirstTouch,
    /// It knows nothing of what the guest has in its memory.
    layout: Layout,
    who: Who,
    root: Node,
    page_size: PageSize,
    keeps_room: bool,
    first_touches: u64,
    /// The walks for the way of the last guest walk, and their references.
    walks: Vec<HostWalk>,
    references: Vec<Reference>,
}

impl Host {
    /// A host that backs nothing yet; an error comes with the key that is wrong.
    pub(crate) fn new(
        description: &Description,
        nested: &description::Nested,
    ) -> Result<Host, (String, String)> {
        let key = |key: &str| format!("nested.{key}");
        let page_size = nested.page_size.0;
        // The host's own hardware walks its table.
        let mut below = Description {
            page_table: Some(nested.page_table()),
            nested: None,
            walker: description::Walker::default(),
            memory: description::Memory { size: nested.memory, ..description::Memory::default() },
            ..description.clone()
        };
        // To the host, the guest's memory is one region without an end.
        below.os = description::Os {
            page_size: nested.page_size,
            uniform: true,
            ..description::Os::default()
        };
        check(description, nested)?;
        let ram = Ram::of_host(&below, nested, description.memory.size.0);
        let mut ram = ram.map_err(|(wrong, what)| match wrong.as_str() {
            "memory.size" => (key("memory"), what),
            wrong if wrong.starts_with("nested.") => (wrong.to_owned(), what),
            wrong => (key(wrong.trim_start_matches("page_table.")), what),
        })?;
        let system = FirstTouch::new(&below.os, ram.page_sizes())
            .map_err(|what| (key("page_size"), what.replacen("the page", "the host's", 1)))?;
        let space = ram.first_space().map_err(|(_, what)| (key("memory"), what))?;
        let root = ram.root(space);
        Ok(Host {
            ram,
            system,
            layout: Layout::default(),
            who: Who { number: 0, space },
            root,
            page_size,
            keeps_room: nested.reservations.is_some(),
            first_touches: 0,
            walks: Vec::new(),
            references: Vec::new(),
        })
    }

    /// The page size of every mapping.
    pub(crate) fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// What its page table looks like.
    pub(crate) fn table(&self) -> HostTable {
        HostTable { tree: self.ram.tree_shape(), sizes: self.ram.page_sizes().to_vec() }
    }

    /// What has become of its reservations, by size, the largest first, and bytes that are reserved and not
    /// in use; `None` if it keeps no room.
    pub(crate) fn reservations(
        &self,
    ) -> Option<(Vec<(PageSize, physmem::ReservationCounts)>, u64)> {
        let counts = self.ram.reservations();
        (!counts.is_empty()).then(|| (counts, self.ram.reserved_bytes()))
    }

    /// Bytes of guests that came before.
    pub(crate) fn former_bytes(&self) -> u64 {
        self.ram.aged_bytes()
    }

    /// Frames for backing and for tables, in bytes.
    pub(crate) fn used_bytes(&self) -> (u64, u64) {
        (self.ram.frame_bytes().1, self.ram.footprint().frame_bytes)
    }

    /// Pages that it has backed.
    pub(crate) fn first_touches(&self) -> u64 {
        self.first_touches
    }

    /// Begins to count anew; what is backed stays.
    pub(crate) fn forget_counts(&mut self) {
        self.first_touches = 0;
    }

    /// The walks of the last way, and their references.
    pub(crate) fn way(&self) -> (&[HostWalk], &[Reference]) {
        (&self.walks, &self.references)
    }

    /// Finds the place of each of a guest's `references` and, where the guest has a page, of the
    /// `end`. Gives the host's page there.
    pub(crate) fn walk_way(
        &mut self,
        references: &[Reference],
        end: Option<(PhysAddr, Kind)>,
    ) -> Result<Option<Translation>, Failure> {
        self.walks.clear();
        self.references.clear();
        for (index, reference) in references.iter().enumerate() {
            let before = index.checked_sub(1).map(|before| references[before].addr);
            if before == Some(reference.addr) {
                let known = self.walks[index - 1];
                self.walks.push(HostWalk { references: 0, known: true, moved: None, ..known });
            } else {
                self.walk(reference.addr, Kind::Load)?;
            }
        }
        end.map(|(gpa, kind)| self.walk(gpa, kind)).transpose()
    }

    /// The page that backs `gpa`, read without a walk.
    pub(crate) fn query(&self, gpa: PhysAddr) -> Option<Translation> {
        self.ram.query(self.who.space, as_virtual(gpa))
    }

    fn walk(&mut self, gpa: PhysAddr, kind: Kind) -> Result<Translation, Failure> {
        let before = self.references.len();
        let va = as_virtual(gpa);
        let mut moved = None;
        let page = loop {
            self.references.truncate(before);
            match self.ram.walk(self.who.space, va, kind, &mut self.references) {
                Ok(page) => break page,
                Err(fault @ Fault::NotMapped { .. }) => moved = self.back(va, kind, fault)?,
                Err(fault) => {
                    let what = format!("the host cannot behind the guest-physical {gpa}: {fault}");
                    return Err(Failure::Table(what));
                }
            }
        };
        let walk = Walk {
            va,
            asid: Asid::HOST,
            root: self.root,
            found: true,
            size: page.page.size(),
            nested_misses: 0,
        };
        let references = (self.references.len() - before) as u16;
        let reserved = self.keeps_room && self.ram.is_reserved(page.apply(va));
        self.walks.push(HostWalk { walk, page, references, known: false, moved, reserved });
        Ok(page)
    }

    /// Has the page at `va` backed; gives where tables moved.
    fn back(
        &mut self,
        addr: VirtAddr,
        kind: Kind,
        fault: Fault,
    ) -> Result<Option<VirtRange>, Failure> {
        let Host { ram, system, layout, who, .. } = self;
        let mut below = Below { ram, layout, moved: None };
        let answer = system.fault(&Ask { who: *who, addr, kind, fault }, &mut below);
        let moved = below.moved;
        let answer = answer.map_err(|failure| match failure {
            Failure::OutOfFrames => Failure::OutOfHostFrames,
            Failure::OutOfHostFrames => failure,
            Failure::OutOfMemory(what) => Failure::OutOfMemory(format!("the host: {what}")),
            Failure::Table(what) => Failure::Table(format!("the host: {what}")),
        })?;
        self.first_touches += u64::from(answer == Answer::FirstTouch);
        Ok(moved)
    }
}

/// That holes and room for large pages go with the host's pages.
fn check(description: &Description, nested: &description::Nested) -> Result<(), (String, String)> {
    let size = nested.page_size.0;
    let fine = size == PageSize::SIZE_4K;
    if nested.reservations.is_some() && !fine {
        let what = format!(
            "room for large pages fills with pages of 4K, and the host has pages of {size}: write \
             nested.page_size=4K, or leave nested.reservations out"
        );
        return Err(("nested.reservations".to_owned(), what));
    }
    let end = description.memory.size.0;
    let cut = nested.holes.iter().find(|hole| {
        let cuts = |at: u64| at < end && !at.is_multiple_of(size.bytes());
        cuts(hole.first) || cuts(hole.end)
    });
    if let Some(hole) = cut.filter(|_| !fine) {
        let what = format!(
            "the hole {hole} is part of a page of {size} of the host, which can then not map the rest \
             of it either: write nested.page_size=4K, or leave the hole out"
        );
        return Err(("nested.holes".to_owned(), what));
    }
    Ok(())
}

/// What the host's system works on. It takes no page back, so that all there is to forget is where
/// tables moved: the walk that comes next carries it, and its frames may go at once.
struct Below<'a> {
    ram: &'a mut Ram,
    layout: &'a Layout,
    moved: Option<VirtRange>,
}

impl Platform for Below<'_> {
    fn processor(&self) -> usize {
        0
    }

    fn ram(&mut self) -> &mut Ram {
        self.ram
    }

    fn layout(&self) -> &Layout {
        self.layout
    }

    fn shoot(&mut self, flush: Flush) {
        self.moved = self.moved.into_iter().chain(flush.tables()).reduce(VirtRange::hull);
        self.ram.done(flush);
    }

    /// Nobody asks the host when something was.
    fn access(&self) -> u64 {
        0
    }
}
