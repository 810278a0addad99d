use addr::{Attributes, Kind, Page, PageSize, Rights, VirtAddr, VirtRange};
use pagetable::{
    Error, Fault, Flush, Footprint, Mapping, Reference, Space, Translation, Unfit, Usage,
};

use super::model::{Model, check_flush};
use super::physical::Physical;
use super::table::Table;

/// An operation on a page table; `space` is the index of an existing space, modulo their number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Create,
    Destroy {
        space: usize,
    },
    Map {
        space: usize,
        first: Translation,
        count: u64,
    },
    Unmap {
        space: usize,
        range: VirtRange,
    },
    Protect {
        space: usize,
        range: VirtRange,
        rights: Rights,
    },
    /// Withdraws these rights from the page, or grants them if `gives` is true, if the page is
    /// mapped with this size. A page that already has all granted rights is not changed.
    ProtectPage {
        space: usize,
        page: Page,
        rights: Rights,
        gives: bool,
    },
    /// All steps of a resize, if the world [resizes](World::resizes).
    Resize {
        space: usize,
        range: VirtRange,
        to: PageSize,
    },
    ClearUsage {
        space: usize,
        range: VirtRange,
        bits: Usage,
    },
    SetUsage {
        space: usize,
        addr: VirtAddr,
        bits: Usage,
    },
    /// Sets a note that no page has had before.
    SetNote {
        space: usize,
        addr: VirtAddr,
    },
    Walk {
        space: usize,
        addr: VirtAddr,
        kind: Kind,
    },
}

/// A page table together with its model.
#[derive(Clone)]
pub(crate) struct World<P: ?Sized> {
    pub(crate) physical: Physical,
    pub(crate) spaces: Vec<(Space, Model)>,
    /// Whether walks set the usage bits.
    pub(crate) walks_mark: bool,
    /// Whether some base pages have no room for a note.
    pub(crate) loses_notes: bool,
    /// Whether pages change their size while they are mapped.
    pub(crate) resizes: bool,
    /// The attributes with which pages are mapped, in turn.
    pub(crate) attributes: Vec<Attributes>,
    /// The last note that was used.
    note: u32,
    pub(crate) table: P,
}

impl<P: Table + 'static> World<P> {
    pub(crate) fn new(table: P) -> World<P> {
        let (physical, spaces) = (Physical::new(), Vec::new());
        World {
            physical,
            spaces,
            walks_mark: true,
            loses_notes: false,
            resizes: false,
            attributes: vec![Attributes::NORMAL],
            note: 0,
            table,
        }
    }

    /// This world, with operations that change the size of pages while they are mapped.
    pub(crate) fn resizing(self) -> World<P> {
        World { resizes: true, ..self }
    }

    /// Performs `op` on the table and on the model, and compares the results.
    pub(crate) fn apply(&mut self, op: Op) {
        let world: &mut World<dyn Table> = self;
        world.apply(op);
    }

    /// Checks that the table has exactly the pages of the model, and no frames for anything else.
    pub(crate) fn check(&self) {
        let world: &World<dyn Table> = self;
        world.check();
    }

    /// Ends all spaces. Every frame must have been freed afterwards.
    pub(crate) fn end(mut self) {
        let world: &mut World<dyn Table> = &mut self;
        world.end();
    }
}

impl World<dyn Table> {
    /// `count` notes that were never used before; empty if the table has no notes.
    fn notes(&mut self, count: u64) -> Vec<u32> {
        let first = self.note + 1;
        self.note += count as u32;
        if self.table.has_notes() { (first..=self.note).collect() } else { Vec::new() }
    }

    /// Checks that both lists have equal pages; pages without room for a note may have lost their
    /// note.
    fn check_same(&self, found: &[Mapping], expected: &[Mapping]) {
        let is_same = |(found, expected): (&Mapping, &Mapping)| {
            let unnoted = Mapping { note: 0, ..*expected };
            let is_base = expected.translation.page.size() == self.table.page_sizes()[0];
            found == expected || self.loses_notes && is_base && *found == unnoted
        };
        let all = found.len() == expected.len() && found.iter().zip(expected).all(is_same);
        assert!(all, "{found:#?}\n{expected:#?}");
    }

    /// Performs `op` on the table and on the model, and compares the results. If no frame is left,
    /// the table must refuse the operation, and the model is not changed.
    pub(crate) fn apply(&mut self, op: Op) {
        let before = self.taken();
        match op {
            Op::Create => {
                let (memory, frames) = (&mut self.physical.clone(), &mut self.physical.clone());
                match self.table.create(memory, frames) {
                    Ok(space) => {
                        let used = self.spaces.iter().any(|(other, _)| other.id() == space.id());
                        assert!(!used, "two spaces are numbered {}", space.id());
                        self.spaces.push((space, Model::default()));
                    }
                    Err(error) => self.check_refused(error, before),
                }
            }
            Op::Destroy { space } => {
                let Some(index) = self.index(space) else { return };
                let (space, _) = self.spaces.swap_remove(index);
                let flush = self.table.destroy(space, &mut self.physical).unwrap();
                self.done(flush);
                assert_eq!(
                    self.table.unmap(space, VirtRange::ALL, &mut self.physical, &mut |_| {}).err(),
                    Some(Error::NoSpace(space)),
                );
            }
            Op::Map { space, first, count } => {
                let Some(index) = self.index(space) else { return };
                let (memory, frames) = (&mut self.physical.clone(), &mut self.physical.clone());
                // Every second time, pages are mapped without notes, also where pages with notes
                // were before.
                let notes =
                    if self.note.is_multiple_of(2) { self.notes(count) } else { Vec::new() };
                self.note += 1;
                let attributes = self.attributes[self.note as usize % self.attributes.len()];
                let first = first.with(attributes);
                let (space, model) = &mut self.spaces[index];
                let mapped = if notes.is_empty() {
                    self.table.map(*space, first, count, memory, frames)
                } else {
                    self.table.map_noted(*space, (first, count), &notes, memory, frames)
                };
                match mapped {
                    Ok(flush) => {
                        assert_eq!(model.map(first, count, &notes), Ok(()));
                        check_flush(&flush, &[]);
                        self.done(flush);
                    }
                    Err(error @ Error::AlreadyMapped { .. }) => {
                        assert_eq!(model.map(first, count, &notes), Err(error));
                        assert_eq!(self.taken(), before);
                    }
                    Err(error) => self.check_refused(error, before),
                }
            }
            Op::Unmap { space, range } => self.change(
                space,
                |table, space, physical, gone| {
                    table.unmap(space, range, physical, &mut |mapping| gone.push(mapping))
                },
                |model| model.unmap(range),
                |_| true,
            ),
            Op::Protect { space, range, rights } => self.change(
                space,
                |table, space, physical, changed| {
                    let each = &mut |mapping| changed.push(mapping);
                    table.protect(space, range, rights, physical, each)
                },
                |model| model.protect(range, rights).map(unnoted),
                |before| !rights.contains(before),
            ),
            Op::ProtectPage { space, page, rights, gives } => {
                self.protect_page(space, page, rights, gives);
            }
            Op::Resize { space, range, to } => self.resize(space, range, to),
            Op::ClearUsage { space, range, bits } => self.change(
                space,
                |table, space, physical, changed| {
                    let each = &mut |mapping| changed.push(mapping);
                    table.clear_usage(space, range, bits, physical, each)
                },
                |model| model.clear_usage(range, bits).map(unnoted),
                |_| true,
            ),
            Op::SetUsage { space, addr, bits } => {
                let Some(index) = self.index(space) else { return };
                let (space, model) = &mut self.spaces[index];
                let result = self.table.set_usage(*space, addr, bits, &mut self.physical);
                assert_eq!(result, model.set_usage(addr, bits));
            }
            Op::SetNote { space, addr } => {
                let Some(index) = self.index(space) else { return };
                let Some(note) = self.notes(1).pop() else { return };
                let (space, model) = &mut self.spaces[index];
                let result = self.table.set_note(*space, addr, note, &mut self.physical);
                assert_eq!(result, model.set_note(addr, note));
            }
            Op::Walk { space, addr, kind } => {
                if let Some(index) = self.index(space) {
                    self.walk(index, addr, kind);
                }
            }
        }
    }

    fn resize(&mut self, space: usize, range: VirtRange, to: PageSize) {
        let Some(index) = self.index(space).filter(|_| self.resizes) else { return };
        let before = self.taken();
        let (memory, frames) = (&mut self.physical.clone(), &mut self.physical.clone());
        let (space, model) = &mut self.spaces[index];
        let mut after = model.clone();
        let changed = after.resize(range, to);
        let mut asked = 0;
        let forget = &mut |flush: &Flush| {
            asked += 1;
            check_flush(flush, changed.as_deref().expect("what cannot be resized is refused"));
        };
        match self.table.resize(*space, range, to, memory, frames, forget) {
            Ok(mapped) => {
                let changed = changed.expect("what cannot be resized is refused");
                assert_eq!(asked, u32::from(!changed.is_empty()));
                let expected: Vec<_> = after.overlapping(range);
                *model = after;
                self.check_same(&mapped, &expected);
            }
            Err(Error::OutOfFrames(_)) => assert_eq!(self.taken(), before),
            Err(_) => {
                assert_eq!(changed, None);
                assert_eq!(self.taken(), before);
            }
        }
    }

    fn protect_page(&mut self, space: usize, page: Page, rights: Rights, gives: bool) {
        let Some(index) = self.index(space) else { return };
        let (space, model) = &mut self.spaces[index];
        let there = model.at(page.start()).filter(|mapping| mapping.translation.page == page);
        let wanted = |has: Rights| match gives {
            true if has.contains(rights) => None,
            true => Some(Rights::from_bits(has.bits() | rights.bits())),
            false => Some(Rights::from_bits(has.bits() & !rights.bits())),
        };
        let mut seen = None;
        let each = &mut |mapping: &Mapping| {
            seen = Some(*mapping);
            wanted(mapping.translation.rights)
        };
        let memory = &mut self.physical;
        let result = self.table.protect_page(*space, page, each, memory);
        assert_eq!(seen, there.map(|mapping| Mapping { note: 0, ..mapping }));
        let wanted = there.and_then(|mapping| wanted(mapping.translation.rights));
        match (result, there.zip(wanted)) {
            (Ok(flush), Some((before, rights))) => {
                // Hardware may not distinguish all rights.
                let rights = self.table.granted(rights);
                model.protect(VirtRange::of_page(page), rights).unwrap();
                let lost = !rights.contains(before.translation.rights);
                check_flush(&flush, if lost { there.as_slice() } else { &[] });
                self.done(flush);
            }
            (Ok(flush), None) => check_flush(&flush, &[]),
            // The entries cannot express these rights.
            (Err(error), Some((_, rights))) => {
                let range = VirtRange::of_page(page);
                let refused = self.table.protect(*space, range, rights, memory, &mut |_| ());
                assert_eq!(refused.err(), Some(error));
            }
            (Err(error), None) => panic!("{error}"),
        }
    }

    /// Checks that the table has exactly the pages of the model, and no frames for anything else.
    pub(crate) fn check(&self) {
        for (space, model) in &self.spaces {
            let mut found = Vec::new();
            let each = &mut |mapping| found.push(mapping);
            self.table.visit(*space, VirtRange::ALL, &self.physical, each);
            self.check_same(&found, &model.mappings().collect::<Vec<_>>());
            for mapping in model.mappings() {
                let page = VirtRange::of_page(mapping.translation.page);
                for addr in [page.start(), page.last()] {
                    let found = self.table.query(*space, addr, &self.physical);
                    self.check_same(found.as_slice(), &[mapping]);
                }
                if let Some(addr) = page.last().checked_add(1) {
                    let found = self.table.query(*space, addr, &self.physical);
                    self.check_same(found.as_slice(), model.at(addr).as_slice());
                }
            }
        }
        let footprint = self.table.footprint();
        assert_eq!(footprint.frame_bytes, self.physical.bytes_out());
        assert!(footprint.table_bytes <= footprint.frame_bytes);
    }

    /// Ends all spaces. Every frame must have been freed afterwards.
    pub(crate) fn end(&mut self) {
        while !self.spaces.is_empty() {
            self.apply(Op::Destroy { space: 0 });
        }
        self.check();
        assert_eq!(self.physical.frames_out(), 0);
    }

    fn change(
        &mut self,
        space: usize,
        table: impl Fn(&mut dyn Table, Space, &mut Physical, &mut Vec<Mapping>) -> Result<Flush, Error>,
        model: impl Fn(&mut Model) -> Result<Vec<Mapping>, Error>,
        needs_flush: impl Fn(Rights) -> bool,
    ) {
        let Some(index) = self.index(space) else { return };
        let mut changed = Vec::new();
        let space = self.spaces[index].0;
        let result = table(&mut self.table, space, &mut self.physical, &mut changed);
        let expected = model(&mut self.spaces[index].1);
        match (result, expected) {
            (Ok(flush), Ok(mut expected)) => {
                self.check_same(&changed, &expected);
                expected.retain(|mapping| needs_flush(mapping.translation.rights));
                check_flush(&flush, &expected);
                self.done(flush);
            }
            (result, expected) => {
                assert_eq!(result.err(), expected.err());
                assert_eq!(changed, []);
            }
        }
    }

    fn walk(&mut self, index: usize, addr: VirtAddr, kind: Kind) {
        let (space, model) = &mut self.spaces[index];
        let last = self.table.last_entry(*space, addr, &self.physical);
        let mut references: Vec<Reference> = Vec::new();
        let each = &mut |reference| references.push(reference);
        let result = self.table.walk(*space, addr, kind, &mut self.physical, each);
        match (result, model.walk(addr, kind, self.walks_mark)) {
            (Ok(translation), Some((expected, true))) => assert_eq!(translation, expected),
            (Err(Fault::Denied { translation }), Some((expected, false))) => {
                assert_eq!(translation, expected);
            }
            // Hardware may not distinguish a page that allows no access from an unmapped page.
            (Err(Fault::NotMapped { .. }), Some((expected, false))) => {
                assert!(!expected.rights.contains(Rights::READ));
            }
            (Err(Fault::NotMapped { .. } | Fault::Unfit), None) => {}
            (result, expected) => panic!("{addr} {kind:?}: {result:?}, not {expected:?}"),
        }
        assert!(!references.is_empty() || result == Err(Fault::Unfit));
        if let Some(last) = last {
            let reads = |reference: &Reference| reference.level == 1 && reference.addr == last;
            assert!(references.iter().any(reads), "{addr}: no walk reads {last}");
        }
        for reference in references {
            self.physical.check(reference.addr, u64::from(reference.bytes));
        }
    }

    /// The memory in use: the bytes of allocated frames, and the table's own account of it.
    fn taken(&self) -> (u64, Footprint) {
        (self.physical.bytes_out(), self.table.footprint())
    }

    fn check_refused(&self, error: Error, before: (u64, Footprint)) {
        let is_due = matches!(error, Error::OutOfFrames(_) | Error::Unfit(Unfit::Global));
        assert!(is_due, "{error}");
        assert_eq!(self.taken(), before);
    }

    fn done(&mut self, flush: Flush) {
        flush.done(&mut self.physical);
    }

    fn index(&self, space: usize) -> Option<usize> {
        (!self.spaces.is_empty()).then(|| space % self.spaces.len())
    }
}

/// Removes the notes, because operations that leave a page mapped do not read its note.
fn unnoted(changed: Vec<Mapping>) -> Vec<Mapping> {
    changed.into_iter().map(|mapping| Mapping { note: 0, ..mapping }).collect()
}
