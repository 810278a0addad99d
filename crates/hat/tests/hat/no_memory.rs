//! The heap becomes full during an operation of the layer. Each allocation of each operation that
//! adds something is refused once: the operation fails without changing anything, and succeeds when
//! memory is free again. Operations that only remove something run without any memory.

use std::collections::BTreeSet;

use addr::{Frames, Memory, OutOfFrames, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{
    Hat, HatSpace, LoadError, Platform,
    locking::{
        Covering, Early, Embedded, Fine, Global, Hashed, ListLocks, Monitor, Scheme, Single, Spin,
    },
};
use hat::{Pool, Tables};
use pagetable::{
    Aarch64, Error, Flush, Guarded, HashedShape, Irix, Mount, Mounted, SparseMemory, Sv39,
    Translation, Usage, X86_64,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::{K4, M2, MEMORY, heap};

/// Physical memory, which is separate from the heap.
struct Physical(SparseMemory);

impl Memory for Physical {
    fn read_u64(&self, addr: PhysAddr) -> u64 {
        self.0.read_u64(addr)
    }

    fn read_u32(&self, addr: PhysAddr) -> u32 {
        self.0.read_u32(addr)
    }

    fn read_u8(&self, addr: PhysAddr) -> u8 {
        self.0.read_u8(addr)
    }

    fn write_u64(&mut self, addr: PhysAddr, value: u64) {
        heap::unrefused(|| self.0.write_u64(addr, value));
    }

    fn write_u32(&mut self, addr: PhysAddr, value: u32) {
        heap::unrefused(|| self.0.write_u32(addr, value));
    }

    fn write_u8(&mut self, addr: PhysAddr, value: u8) {
        heap::unrefused(|| self.0.write_u8(addr, value));
    }

    fn zero(&mut self, start: PhysAddr, bytes: u64) {
        heap::unrefused(|| self.0.zero(start, bytes));
    }

    addr::exchanges_of_one_user!();
}

/// A processor without a TLB, which provides frames for tables.
#[derive(Default)]
struct Machine {
    out: BTreeSet<PhysAddr>,
    next: u64,
}

impl Frames for Machine {
    fn allocate(&mut self, size: PageSize) -> Result<PhysAddr, OutOfFrames> {
        self.next = (self.next + 2 * size.bytes()) & !size.mask();
        let frame = PhysAddr::new((1 << 28) + self.next);
        heap::unrefused(|| self.out.insert(frame));
        Ok(frame)
    }

    fn free(&mut self, frame: PhysAddr, _: PageSize) {
        assert!(heap::unrefused(|| self.out.remove(&frame)), "{frame} is not out");
    }
}

impl Platform for Machine {
    fn shoot(&mut self, _: &[(HatSpace, Flush)]) {}

    fn frames(&mut self) -> &mut dyn Frames {
        self
    }
}

const SPACES: usize = 3;
/// The pages lie in the first 8M of addresses, and their frames in the first 8M of memory.
const BYTES: u64 = 1 << 23;

struct World<S: Scheme<Table = dyn Mounted>> {
    hat: Hat<dyn Mounted, S>,
    machine: Machine,
    rng: Xoshiro256PlusPlus,
    spaces: Vec<HatSpace>,
    refused: u64,
}

type State = Vec<(HatSpace, Vec<(Translation, Usage)>)>;

impl<S: Scheme<Table = dyn Mounted>> World<S> {
    fn state(&self) -> State {
        let of = |&space: &HatSpace| {
            let mut pages = Vec::new();
            let each = &mut |mapping: pagetable::Mapping| {
                pages.push((mapping.translation, mapping.usage));
            };
            self.hat.visit(space, VirtRange::ALL, each);
            (space, pages)
        };
        self.spaces.iter().map(of).collect()
    }

    /// Runs an operation once for each of its allocations, which is refused in this run. If `whole`
    /// is true, a failed operation must have changed nothing.
    fn each_refused<R>(
        &mut self,
        whole: bool,
        f: impl Fn(&Hat<dyn Mounted, S>, &mut Machine) -> Result<R, LoadError>,
    ) -> Result<R, LoadError> {
        for number in 1.. {
            let before = self.state();
            let frames = self.machine.out.len();
            let (done, was_refused) = heap::refusing(number, || f(&self.hat, &mut self.machine));
            match done {
                Err(LoadError::NoMemory) => {
                    assert!(was_refused);
                    self.refused += 1;
                    assert_eq!(self.hat.check(), Ok(()));
                    if whole {
                        assert!(self.state() == before);
                        assert_eq!(self.machine.out.len(), frames);
                    }
                }
                // An operation may succeed although an allocation was refused, if it can do without
                // the allocation.
                done if done.is_err() || !was_refused || !whole => return done,
                done => return done,
            }
        }
        unreachable!()
    }

    fn space(&mut self) -> HatSpace {
        self.spaces[self.rng.random_range(0..self.spaces.len())]
    }

    fn size(&mut self) -> PageSize {
        let sizes = self.hat.page_sizes();
        let count = sizes.iter().filter(|size| **size <= M2).count();
        sizes[self.rng.random_range(0..count)]
    }

    fn range(&mut self) -> VirtRange {
        let start = self.rng.random_range(0..BYTES) & !M2.mask();
        let bytes = M2.bytes() << self.rng.random_range(0..2);
        VirtRange::new(VirtAddr::new(start), bytes).unwrap()
    }

    fn step(&mut self) {
        let (space, to, size, range) = (self.space(), self.space(), self.size(), self.range());
        match self.rng.random_range(0..100) {
            0..30 => {
                let count = self.rng.random_range(1..if size == K4 { 200 } else { 3 });
                let page = VirtAddr::new(self.rng.random_range(0..BYTES)).page(size);
                let frame = PhysAddr::new(self.rng.random_range(0..BYTES) & !size.mask());
                let aligned = page.start().align_down(M2) == page.start();
                let frame = if aligned { PhysAddr::new(frame.get() & !M2.mask()) } else { frame };
                let first = Translation::new(page, frame, Rights::ALL);
                let done =
                    self.each_refused(true, |hat, machine| hat.load(space, first, count, machine));
                match done {
                    Ok(()) | Err(LoadError::Table(Error::AlreadyMapped { .. })) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            30..40 => {
                let rights = [Rights::ALL, Rights::ALL.without_write()];
                let rights = rights[self.rng.random_range(0..2)];
                self.each_refused(true, |hat, machine| {
                    hat.protect(space, range, rights, machine).map_err(LoadError::from)
                })
                .unwrap();
            }
            40..50 => {
                let done =
                    self.each_refused(true, |hat, machine| hat.resize(space, range, size, machine));
                assert!(done.is_ok() || size > K4);
            }
            50..56 if to != space => {
                self.unload(to, range);
                self.each_refused(false, |hat, machine| {
                    hat.duplicate(space, to, range, machine).inspect_err(|_| {
                        heap::without(|| hat.unload(to, range, &mut |_| (), machine)).unwrap();
                    })
                })
                .unwrap();
            }
            56..62 if to != space => {
                self.unload(to, range);
                let (at, rights) = (range.start(), Rights::ALL);
                self.each_refused(false, |hat, machine| {
                    hat.map_from(space, range, to, at, rights, machine)
                })
                .unwrap();
            }
            62..66 if to != space => {
                self.unload(to, range);
                self.each_refused(true, |hat, machine| {
                    hat.grant(space, range, to, range.start(), machine)
                })
                .unwrap();
            }
            66..70 => {
                let rights = Rights::ALL.without_write();
                self.each_refused(true, |hat, machine| {
                    hat.restrict(space, range, rights, true, machine)
                })
                .unwrap();
            }
            70..80 => self.unload(space, range),
            80..86 => self.unload_frames(size),
            86..92 => self.revoke(space, range),
            92..95 => self.usage(size),
            95..97 => {
                self.spaces.retain(|of| *of != space);
                heap::without(|| self.hat.destroy(space, &mut self.machine));
                let made = self.each_refused(true, |hat, machine| hat.create(machine)).unwrap();
                self.spaces.push(made);
            }
            _ => {}
        }
    }

    fn unload(&mut self, space: HatSpace, range: VirtRange) {
        let mut expected = self.state();
        let (mut told, mut gone) = (0, 0);
        for (of, pages) in expected.iter_mut().filter(|(of, _)| *of == space) {
            assert_eq!(*of, space);
            let before = pages.len();
            pages.retain(|(page, _)| !range.covers(VirtRange::of_page(page.page)));
            gone += before - pages.len();
        }
        heap::without(|| self.hat.unload(space, range, &mut |_| told += 1, &mut self.machine))
            .unwrap();
        assert_eq!(told, gone);
        assert!(self.state() == expected);
    }

    fn unload_frames(&mut self, size: PageSize) {
        let mut frame = || (PhysAddr::new(self.rng.random_range(0..BYTES) & !size.mask()), size);
        let count = 1 + frame().0.get() as usize / 4096 % 7;
        let frames: Vec<_> = (0..count).map(|_| frame()).collect();
        let mut expected = self.state();
        let has = |page: &Translation| {
            let (start, end) = (page.frame.get(), page.frame.get() + page.page.size().bytes());
            frames
                .iter()
                .any(|(frame, size)| start < frame.get() + size.bytes() && frame.get() < end)
        };
        let (mut told, mut gone) = (0, 0);
        for (_, pages) in &mut expected {
            let before = pages.len();
            pages.retain(|(page, _)| !has(page));
            gone += before - pages.len();
        }
        heap::without(|| {
            self.hat.unload_frames(&frames, &mut |_, _| told += 1, &mut self.machine);
        });
        assert_eq!(told, gone);
        assert!(self.state() == expected);
    }

    /// Revokes, without memory, the mappings that were made from these pages. The result is the
    /// same as with memory.
    fn revoke(&mut self, space: HatSpace, range: VirtRange) {
        let with_own = self.rng.random_bool(0.5);
        heap::without(|| {
            self.hat.revoke(space, range, with_own, &mut |_, _| (), &mut self.machine)
        })
        .unwrap();
        let left = self.state();
        let mut more = 0;
        let each = &mut |_, _| more += 1;
        self.hat.revoke(space, range, with_own, each, &mut self.machine).unwrap();
        assert_eq!(more, 0);
        assert!(self.state() == left);
    }

    fn usage(&mut self, size: PageSize) {
        let frame = PhysAddr::new(self.rng.random_range(0..BYTES) & !size.mask());
        let (mut found, mut known) = (BTreeSet::new(), BTreeSet::new());
        self.hat.each_mapping(frame, size, &mut |space, mapping| {
            known.insert((space, mapping.translation.page));
        });
        let clear = Usage { referenced: true, dirty: true, ..Usage::default() };
        heap::without(|| {
            self.hat.usage(frame, size, clear, &mut self.machine);
            self.hat.each_mapping(frame, size, &mut |space, mapping| {
                let page = (space, mapping.translation.page);
                heap::unrefused(|| assert!(found.insert(page)));
            });
        });
        assert_eq!(found, known);
    }
}

fn check<S: Scheme<Table = dyn Mounted>>(
    name: &str,
    seed: u64,
    scheme: S,
    tables: Tables<dyn Mounted>,
) {
    let hat = Hat::with(scheme, tables);
    let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let machine = Machine::default();
    let mut world = World { hat, machine, rng, spaces: Vec::new(), refused: 0 };
    for _ in 0..SPACES {
        let made = world.each_refused(true, |hat, machine| hat.create(machine)).unwrap();
        world.spaces.push(made);
    }
    for step in 0..STEPS {
        world.step();
        assert_eq!(world.hat.check(), Ok(()), "{name}, step {step}");
    }
    for space in std::mem::take(&mut world.spaces) {
        heap::without(|| world.hat.destroy(space, &mut world.machine));
    }
    assert_eq!(world.hat.check(), Ok(()), "{name}");
    assert_eq!(world.hat.mappings(), 0, "{name}");
    println!("{name}: {} allocations were refused", world.refused);
    assert!(world.refused > 50, "{name}: {}", world.refused);
}

const STEPS: u64 = 150;

fn physical() -> Physical {
    Physical(SparseMemory::new(MEMORY))
}

#[test]
fn each_allocation_is_refused_once() {
    let x86 = || Tables::One(Box::new(Mount::tree(X86_64::<4>::new(), physical())) as _);
    let pool = Pool::unlimited;
    check("x86-64", 1, Global::<_, Single>::new(pool()), x86());
    let arm = Mount::tree(Aarch64::<12>::new(), physical());
    check("aarch64", 2, Global::<_, Single>::new(pool()), Tables::One(Box::new(arm)));
    let sv39 = Mount::tree(Sv39::<true>::new(), physical());
    check("sv39", 3, Global::<_, Single>::new(pool()), Tables::One(Box::new(sv39)));
    let guarded = Mount::tree(Guarded::new(16).unwrap(), physical());
    check("guarded", 4, Global::<_, Single>::new(pool()), Tables::One(Box::new(guarded)));
    let irix = Mount::tree(Irix::new(K4).unwrap(), physical());
    check("irix", 5, Global::<_, Single>::new(pool()), Tables::One(Box::new(irix)));
    let shape = HashedShape { shared: true, ..HashedShape::H8K };
    let hashed = Mount::new(pagetable::Hashed::new(shape).unwrap(), physical());
    check("hashed", 6, Global::<_, Single>::new(pool()), Tables::One(Box::new(hashed)));
}

#[test]
fn each_allocation_is_refused_once_under_each_scheme() {
    let x86 = || Tables::One(Box::new(Mount::tree(X86_64::<4>::new(), physical())) as _);
    let (pool, lists) = (Pool::unlimited, ListLocks::One);
    check("early", 7, Early::<_, Spin>::new(pool()), x86());
    check("monitor", 8, Fine::<_, Spin, _>::new(&Monitor, pool(), lists), x86());
    check(
        "hashed locks",
        9,
        Fine::<_, Spin, _>::new(&Hashed { mutexes: 16 }, pool(), lists),
        x86(),
    );
    check("embedded", 10, Fine::<_, Spin, _>::new(&Embedded, pool(), ListLocks::Each), x86());
    check("covering", 11, Fine::<_, Spin, _>::new(&Covering, pool(), lists), x86());
    let each = || {
        Tables::Each(Box::new(|| {
            heap::unrefused(|| {
                Box::new(Mount::tree(X86_64::<4>::new(), physical())) as Box<dyn Mounted>
            })
        }))
    };
    check("each, embedded", 12, Fine::<_, Spin, _>::new(&Embedded, pool(), lists), each());
}
