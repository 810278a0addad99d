//! A lock for each table of a page table: an operation locks the subtree that contains all entries
//! that it changes, and other operations run at the same time in the same space (Zheng et al.,
//! "CortenMM", SOSP 2025).
//!
//! ```text
//!   MMU descriptor     reader                   or writer: the whole table
//!     table, level 3   reader
//!       level 2        reader                   each taken while the one above is held
//!         level 1      writer: the operation
//! ```
//!
//! An operation first locks the lowest table that may be sufficient, and then asks the page table
//! whether this table is sufficient. If a table is missing, or would become empty, the entry that
//! leads to this table changes too, and the table above is locked instead. Therefore no operation
//! reads an entry of a table that another operation could free at the same time. A table's lock
//! belongs to the addresses that the table covers, and exists even before the table does.
//!
//! Each page frame has its own lock, as in [`Embedded`](super::Embedded). Page tables without
//! [subtrees](pagetable::Subtrees) are locked as a whole.

use alloc::boxed::Box;

use super::{
    Array, Arrays, Class, Embedded, EmbeddedArray, Locks, Once, Rw, Site,
    array::{Part, Shared, SubtreePlace, try_many},
};

/// The number of locks for the tables below a table: entries beyond this number share the locks.
const CHILDREN: usize = 512;

/// The scheme of covering locks.
#[derive(Clone, Copy, Debug)]
pub struct Covering;

impl<L: Locks> Arrays<L> for Covering {
    type Of<D: Default + Send> = EmbeddedArray<D, L>;
    type Mmus<D: Default + Send> = CoveringArray<D, L>;

    fn array<D: Default + Send>(&self, of: Class, flags: Class) -> EmbeddedArray<D, L> {
        Embedded.array(of, flags)
    }

    fn mmus<D: Default + Send>(&self) -> CoveringArray<D, L> {
        CoveringArray { all: Shared::new() }
    }
}

/// MMU descriptors with one lock per table.
pub struct CoveringArray<D, L: Locks> {
    all: Shared<Covered<D, L>, L>,
}

struct Covered<D, L: Locks> {
    mmu: L::Rw<D>,
    below: Below<L>,
}

/// The locks of the tables below a table, each created when it is first taken.
type Below<L> = <L as Locks>::Once<Box<[<L as Locks>::Once<Box<[Table<L>]>>]>>;

struct Table<L: Locks> {
    lock: L::Rw<()>,
    below: Below<L>,
}

/// The result of an attempt.
enum Tried<R> {
    Done(R),
    /// The operation must lock a table of this level.
    Higher(u8),
    /// No memory is left for the lock's data; the operation locks the whole table instead.
    NoMemory,
}

impl<D: Default + Send, L: Locks> CoveringArray<D, L> {
    fn get(&self, number: u64) -> Option<&Covered<D, L>> {
        self.all.get(number, || {
            let (mmu, below) = (L::Rw::new(Class::Mmu, D::default()), L::Once::new());
            Some(Covered { mmu, below })
        })
    }
}

/// Locks the tables on the path, starting with the one of `depth`, whose lock is in `below`, and
/// then runs `f`.
fn descend<L: Locks, R>(
    below: &Below<L>,
    (site, place, depth): (Site, &SubtreePlace, u8),
    f: &mut dyn FnMut() -> Tried<R>,
) -> Tried<R> {
    let Some(children) = below.try_get(|| try_many(CHILDREN, L::Once::new)) else {
        return Tried::NoMemory;
    };
    let table = children[place.index(depth) % CHILDREN].try_get(|| {
        try_many(1, || Table { lock: L::Rw::new(Class::Table(depth), ()), below: L::Once::new() })
    });
    let Some([table]) = table.map(|table| &table[..]) else { return Tried::NoMemory };
    if depth == place.depth() {
        return table.lock.write(site, |()| f());
    }
    table.lock.read(site, |()| descend::<L, R>(&table.below, (site, place, depth + 1), f))
}

impl<D: Default + Send, L: Locks> Array<D> for CoveringArray<D, L> {
    fn until<R>(
        &self,
        site: Site,
        number: u64,
        mut f: impl FnMut(&mut D) -> Option<R>,
    ) -> Option<R> {
        let mmu = &self.get(number)?.mmu;
        loop {
            // No wake-up is needed, because no thread sleeps until an MMU descriptor changes.
            if let Some(result) = mmu.write(site, &mut f) {
                return Some(result);
            }
        }
    }

    fn part<R>(
        &self,
        site: Site,
        number: u64,
        lowest: impl Fn(&D) -> Option<SubtreePlace>,
        covering: impl Fn(&D) -> u8,
        f: impl FnOnce(Part<'_, D>) -> R,
    ) -> Option<R> {
        let covered = self.get(number)?;
        let mut f = Some(f);
        let done = covered.mmu.read(site, |mmu| {
            let mut place = lowest(mmu)?;
            while place.depth() > 0 {
                let tried = descend::<L, R>(&covered.below, (site, &place, 1), &mut || {
                    let level = covering(mmu);
                    match f.take_if(|_| level <= place.level) {
                        Some(f) => Tried::Done(f(Part::Shared(mmu, place.level))),
                        None => Tried::Higher(level),
                    }
                });
                match tried {
                    Tried::Done(result) => return Some(result),
                    Tried::Higher(level) => place.level = level,
                    Tried::NoMemory => return None,
                }
            }
            None
        });
        match (done, f) {
            (Some(result), _) => Some(result),
            (None, Some(f)) => Some(covered.mmu.write(site, |mmu| f(Part::Whole(mmu)))),
            (None, None) => unreachable!("what was run has a result"),
        }
    }

    fn each(&self, f: &mut dyn FnMut(u64, &D)) {
        self.all.each(&mut |number, covered| covered.mmu.read(Site::Look, |mmu| f(number, mmu)));
    }
}
