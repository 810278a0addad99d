use addr::{Kind, Rights, VirtAddr, VirtRange};
use pagetable::{Error, Fault, Flush, PageTable, Reference, Space, Translation, Unfit, Usage};

use super::model::{Model, check_flush};
use super::physical::Physical;

/// Something that is done to a page table; `space` counts the living spaces, modulo their
/// number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Create,
    Destroy { space: usize },
    Map { space: usize, first: Translation, count: u64 },
    Unmap { space: usize, range: VirtRange },
    Protect { space: usize, range: VirtRange, rights: Rights },
    ClearUsage { space: usize, range: VirtRange, bits: Usage },
    SetUsage { space: usize, addr: VirtAddr, bits: Usage },
    Walk { space: usize, addr: VirtAddr, kind: Kind },
}

/// A page table and, beside it, the obvious one.
#[derive(Clone)]
pub(crate) struct World<P> {
    pub(crate) table: P,
    pub(crate) physical: Physical,
    pub(crate) spaces: Vec<(Space, Model)>,
    /// Whether walks set the usage bits.
    pub(crate) walks_mark: bool,
}

impl<P: PageTable> World<P> {
    pub(crate) fn new(table: P) -> World<P> {
        World { table, physical: Physical::new(), spaces: Vec::new(), walks_mark: true }
    }

    /// Does `op` to both and compares what they say. When frames run out, the table must refuse
    /// and the model is left alone.
    pub(crate) fn apply(&mut self, op: Op) {
        let before = self.physical.bytes_out();
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
                let (space, model) = &mut self.spaces[index];
                match self.table.map(*space, first, count, memory, frames) {
                    Ok(flush) => {
                        assert_eq!(model.map(first, count), Ok(()));
                        check_flush(&flush, &[]);
                        self.done(flush);
                    }
                    Err(error @ Error::AlreadyMapped { .. }) => {
                        assert_eq!(model.map(first, count), Err(error));
                        assert_eq!(self.physical.bytes_out(), before);
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
                |model| model.protect(range, rights),
                |before| !rights.contains(before),
            ),
            Op::ClearUsage { space, range, bits } => self.change(
                space,
                |table, space, physical, changed| {
                    let each = &mut |mapping| changed.push(mapping);
                    table.clear_usage(space, range, bits, physical, each)
                },
                |model| model.clear_usage(range, bits),
                |_| true,
            ),
            Op::SetUsage { space, addr, bits } => {
                let Some(index) = self.index(space) else { return };
                let (space, model) = &mut self.spaces[index];
                let result = self.table.set_usage(*space, addr, bits, &mut self.physical);
                assert_eq!(result, model.set_usage(addr, bits));
            }
            Op::Walk { space, addr, kind } => {
                if let Some(index) = self.index(space) {
                    self.walk(index, addr, kind);
                }
            }
        }
    }

    /// That the table holds exactly the model's pages, and frames for nothing else.
    pub(crate) fn check(&self) {
        for (space, model) in &self.spaces {
            let mut found = Vec::new();
            let each = &mut |mapping| found.push(mapping);
            self.table.visit(*space, VirtRange::ALL, &self.physical, each);
            assert!(found.iter().copied().eq(model.mappings()), "{found:#?}\n{model:#?}");
            for mapping in model.mappings() {
                let page = VirtRange::of_page(mapping.translation.page);
                for addr in [page.start(), page.last()] {
                    let found = self.table.query(*space, addr, &self.physical);
                    assert_eq!(found, Some(mapping));
                }
                if let Some(addr) = page.last().checked_add(1) {
                    assert_eq!(self.table.query(*space, addr, &self.physical), model.at(addr));
                }
            }
        }
        let footprint = self.table.footprint();
        assert_eq!(footprint.frame_bytes, self.physical.bytes_out());
        assert!(footprint.table_bytes <= footprint.frame_bytes);
    }

    /// Ends all spaces: every frame must come back.
    pub(crate) fn end(mut self) {
        while !self.spaces.is_empty() {
            self.apply(Op::Destroy { space: 0 });
        }
        self.check();
        assert_eq!(self.physical.frames_out(), 0);
    }

    fn change(
        &mut self,
        space: usize,
        table: impl Fn(
            &mut P,
            Space,
            &mut Physical,
            &mut Vec<pagetable::Mapping>,
        ) -> Result<Flush, Error>,
        model: impl Fn(&mut Model) -> Result<Vec<pagetable::Mapping>, Error>,
        needs_flush: impl Fn(Rights) -> bool,
    ) {
        let Some(index) = self.index(space) else { return };
        let mut changed = Vec::new();
        let space = self.spaces[index].0;
        let result = table(&mut self.table, space, &mut self.physical, &mut changed);
        let expected = model(&mut self.spaces[index].1);
        match (result, expected) {
            (Ok(flush), Ok(mut expected)) => {
                assert_eq!(changed, expected);
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
            // Hardware need not tell a page that allows nothing from none.
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

    fn check_refused(&self, error: Error, bytes_out_before: u64) {
        let is_due = matches!(error, Error::OutOfFrames(_) | Error::Unfit(Unfit::Global));
        assert!(is_due, "{error}");
        assert_eq!(self.physical.bytes_out(), bytes_out_before);
    }

    fn done(&mut self, flush: Flush) {
        flush.done(&mut self.physical);
    }

    fn index(&self, space: usize) -> Option<usize> {
        (!self.spaces.is_empty()).then(|| space % self.spaces.len())
    }
}
