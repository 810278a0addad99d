//! Requests impossible operations of tables of every organisation and format. Each must return a
//! typed error and change nothing.

use addr::{Attributes, MemoryType, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{
    Aarch64, Arm, CacheShape, Cached, ElasticCuckoo, Error, Footprint, Guarded, Hashed,
    HashedShape, Irix, Mapping, Mpt, Space, SparcReference, Split, Sv39, Sv48, Sv57, Translation,
    Unfit, Usage, X86_32, X86_64,
};

use crate::common::physical::Physical;
use crate::common::{Table, page};

const K4: PageSize = PageSize::SIZE_4K;
const WRITE_BACK: &[MemoryType] = &[MemoryType::WriteBack];

/// A table and the limits of its entries.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) table: Box<dyn Table>,
    /// The number of bits of a frame's address.
    frame_bits: u32,
    /// The memory types that entries can express.
    types: &'static [MemoryType],
    /// The number of protection keys.
    keys: u8,
}

pub(crate) fn cases() -> Vec<Case> {
    use MemoryType::{Device, WriteBack, WriteCombining};
    const PBMT: &[MemoryType] = &[WriteBack, WriteCombining, Device];
    const ALL: &[MemoryType] = &MemoryType::ALL;
    fn case(
        name: &'static str,
        table: impl Table + 'static,
        (frame_bits, types, keys): (u32, &'static [MemoryType], u8),
    ) -> Case {
        Case { name, table: Box::new(table), frame_bits, types, keys }
    }
    let hashed = |shape: HashedShape| Hashed::new(shape.with_large_pages()).unwrap();
    let cached = Cached::new(CacheShape::S8K, Guarded::new(16).unwrap()).unwrap();
    // Narrow entries have frames of 36 bits; the entries of other software-defined tables have 52
    // bits, like x86-64.
    let (narrow, plain) = ((36, WRITE_BACK, 1), (52, WRITE_BACK, 1));
    vec![
        case("x86-64", X86_64::<4>::new(), (52, ALL, 16)),
        case("x86-64, 5 levels", X86_64::<5>::new(), (52, ALL, 16)),
        case("x86-32", X86_32::<false>::new(), (32, ALL, 1)),
        case("x86-pae", X86_32::<true>::new(), (52, ALL, 1)),
        case("sv39", Sv39::<true>::new(), (56, PBMT, 1)),
        case("sv39 without Svpbmt", Sv39::<true>::new().without_svpbmt(), (56, WRITE_BACK, 1)),
        case("sv48", Sv48::<true>::new(), (56, PBMT, 1)),
        case("sv57", Sv57::<true>::new(), (56, PBMT, 1)),
        case("aarch64", Aarch64::<12>::new(), (48, ALL, 1)),
        case("aarch64, bbm2", Aarch64::<12>::new().with_bbm2(), (48, ALL, 1)),
        case("aarch64, 16K", Aarch64::<14>::new(), (48, ALL, 1)),
        case("aarch64, 64K", Aarch64::<16>::new(), (48, ALL, 1)),
        case("aarch64, 52 bits", Aarch64::<12, 52>::new(), (52, ALL, 1)),
        case("aarch64, 16K, 52 bits", Aarch64::<14, 52>::new(), (52, ALL, 1)),
        case("aarch64, 64K, 52 bits", Aarch64::<16, 52>::new(), (52, ALL, 1)),
        case("arm", Arm::new(), (32, WRITE_BACK, 1)),
        case("sparc", SparcReference::<true>::new(), narrow),
        case("irix", Irix::new(K4).unwrap(), plain),
        case("mpt", Mpt::new(), narrow),
        case("flattened", Split::flattened().unwrap(), plain),
        case("guarded", Guarded::new(16).unwrap(), narrow),
        case("adaptive", Guarded::adaptive(), narrow),
        case("hashed", hashed(HashedShape::H8K), narrow),
        case("clustered", hashed(HashedShape::C128K), narrow),
        case("cuckoo", ElasticCuckoo::new(3, 4096).unwrap(), plain),
        case("cached", cached, narrow),
    ]
}

/// A case, its table's space, and the memory of both.
struct Scene {
    name: &'static str,
    table: Box<dyn Table>,
    space: Space,
    memory: Physical,
}

type Operation<'a> = &'a dyn Fn(&mut Scene) -> Result<(), Error>;

/// The state that a refused operation must not change.
type State = (u64, Footprint, Vec<Mapping>);

impl Scene {
    fn new(name: &'static str, mut table: Box<dyn Table>) -> Scene {
        let mut memory = Physical::new();
        let space = table.create(&mut memory.clone(), &mut memory).unwrap();
        Scene { name, table, space, memory }
    }

    fn state(&self) -> State {
        let mut pages = Vec::new();
        let each = &mut |mapping| pages.push(mapping);
        self.table.visit(self.space, VirtRange::ALL, &self.memory, each);
        (self.memory.bytes_out(), self.table.footprint(), pages)
    }

    fn map(&mut self, first: Translation, count: u64) -> Result<(), Error> {
        let (memory, frames) = (&mut self.memory.clone(), &mut self.memory.clone());
        self.table.map(self.space, first, count, memory, frames)?.done(frames);
        Ok(())
    }

    fn unmap(&mut self, range: VirtRange) -> Result<(), Error> {
        let memory = &mut self.memory;
        self.table.unmap(self.space, range, memory, &mut |_| {})?.done(memory);
        Ok(())
    }

    fn protect(&mut self, range: VirtRange, rights: Rights) -> Result<(), Error> {
        let memory = &mut self.memory;
        self.table.protect(self.space, range, rights, memory, &mut |_| {})?.done(memory);
        Ok(())
    }

    fn resize(&mut self, range: VirtRange, to: PageSize) -> Result<(), Error> {
        let (memory, frames) = (&mut self.memory.clone(), &mut self.memory.clone());
        let forget = &mut |_: &_| {};
        self.table.resize(self.space, range, to, memory, frames, forget).map(|_| ())
    }

    /// Checks that an operation is refused with this error and changes nothing.
    fn refuses(
        &mut self,
        expected: Error,
        operation: impl FnOnce(&mut Scene) -> Result<(), Error>,
    ) {
        let before = self.state();
        assert_eq!(operation(self), Err(expected), "{}", self.name);
        assert_eq!(self.state(), before, "{}: {expected}", self.name);
    }

    /// Tries an operation with no frame, with one frame, and so on, until there are enough. Returns
    /// the number of frames that it needs. A refused attempt must change nothing.
    fn frames_for(&mut self, operation: impl Fn(&mut Scene) -> Result<(), Error>) -> usize {
        let before = self.state();
        let mut room = 0;
        loop {
            self.memory.limit(self.memory.frames_out() + room);
            let Err(error) = operation(self) else { break };
            assert!(matches!(error, Error::OutOfFrames(_)), "{}: {error}", self.name);
            assert_eq!(self.state(), before, "{}, room for {room} frames", self.name);
            room += 1;
        }
        self.memory.limit(usize::MAX);
        room
    }
}

fn range(start: u64, bytes: u64) -> VirtRange {
    VirtRange::new(VirtAddr::new(start), bytes).unwrap()
}

#[test]
fn what_an_entry_cannot_say_is_refused_by_name() {
    for Case { name, table, frame_bits, types, keys } in cases() {
        let sizes = table.page_sizes().to_vec();
        let base = sizes[0];
        let mut scene = Scene::new(name, table);
        scene.map(page(0x10_0000, base, 0x20_0000, Rights::ALL), 1).unwrap();
        let at = |frame| page(0x40_0000, base, frame, Rights::ALL);
        let other = at(0x20_0000);
        let odd = (base.shift() as u8..48).filter_map(PageSize::from_shift);
        let odd = odd.filter(|size| !sizes.contains(size)).min().unwrap();
        let (end, last) = (1 << frame_bits, (1 << frame_bits) - base.bytes());
        let beyond = |frame| Error::Unfit(Unfit::Physical(PhysAddr::new(frame)));
        let mut refusals = vec![
            (page(0, odd, 0, Rights::ALL), 1, Error::Unfit(Unfit::PageSize(odd))),
            (at(end), 1, beyond(end)),
            (at(last), 2, beyond(last)),
            (
                other.with(Attributes { key: keys, ..Attributes::NORMAL }),
                1,
                Error::Unfit(Unfit::Key(keys)),
            ),
        ];
        for memory in MemoryType::ALL.into_iter().filter(|memory| !types.contains(memory)) {
            let first = other.with(Attributes::of(memory));
            refusals.push((first, 1, Error::Unfit(Unfit::Memory(memory))));
        }
        // These include pages with the contiguous bit and pages of Svnapot.
        for &larger in &sizes[1..] {
            for addr in [larger.bytes() / 2, larger.bytes() + base.bytes()] {
                let first = page(0, larger, addr, Rights::ALL);
                refusals.push((first, 1, Error::Misaligned { addr, size: larger }));
            }
        }
        for (first, count, expected) in refusals {
            scene.refuses(expected, |scene| scene.map(first, count));
        }
        let of_types = types.iter().map(|&kind| other.with(Attributes::of(kind)));
        for first in of_types.chain([at(last)]) {
            assert_eq!(scene.map(first, 1), Ok(()), "{name}: {first:?}");
            let found = scene.table.query(scene.space, first.page.start(), &scene.memory).unwrap();
            assert_eq!(found.translation, first, "{name}");
            scene.unmap(VirtRange::of_page(first.page)).unwrap();
        }
    }
}

/// Base pages that cannot be merged into a larger page, because frames are not aligned or not
/// adjacent, because there is a hole, or because rights differ.
#[test]
fn what_makes_no_larger_page_is_refused() {
    for Case { name, table, .. } in cases() {
        let base = table.page_sizes()[0];
        let Some(&larger) = table.page_sizes().get(1) else { continue };
        let (count, bytes) = (larger.count_of(base), larger.bytes());
        let whole = range(bytes, bytes);
        let at = |number, frame| page(bytes + number * base.bytes(), base, frame, Rights::ALL);
        let merge = |scene: &mut Scene| scene.resize(whole, larger);
        let mut scene = Scene::new(name, table);
        let addr = bytes + base.bytes();
        scene.map(at(0, addr), count).unwrap();
        scene.refuses(Error::Misaligned { addr, size: larger }, merge);
        scene.unmap(whole).unwrap();
        let part = |number| at(number, bytes + number * base.bytes());
        scene.map(part(0), count).unwrap();
        for number in [0, count / 2, count - 1] {
            let there = VirtRange::of_page(part(number).page);
            scene.unmap(there).unwrap();
            scene.refuses(Error::NotMapped { addr: there.start() }, merge);
            scene.map(part(number), 1).unwrap();
        }
        let last = part(count - 1).page;
        scene.unmap(VirtRange::of_page(last)).unwrap();
        scene.map(at(count - 1, 4 * bytes), 1).unwrap();
        scene.refuses(Error::AlreadyMapped { page: last }, merge);
        scene.unmap(VirtRange::of_page(last)).unwrap();
        scene.map(part(count - 1), 1).unwrap();
        let first = range(bytes, base.bytes());
        scene.refuses(Error::Misaligned { addr: bytes + base.bytes(), size: larger }, |scene| {
            scene.resize(first, larger)
        });
        scene.protect(first, Rights::READ).unwrap();
        scene.refuses(Error::AlreadyMapped { page: part(1).page }, merge);
        scene.protect(first, Rights::ALL).unwrap();
        merge(&mut scene).unwrap();
        // A part of a larger page cannot be split without the rest of the page.
        let page = VirtAddr::new(bytes).page(larger);
        scene.refuses(Error::Splits { page }, |scene| scene.resize(first, base));
    }
}

/// Tests each operation with memory running out at each frame that it requests.
#[test]
fn memory_that_ends_changes_nothing() {
    for Case { name, table, .. } in cases() {
        let base = table.page_sizes()[0];
        // The largest size whose parts can be compared in a short time.
        let small = |size: &&PageSize| size.count_of(base) <= 1 << 13;
        let size = *table.page_sizes().iter().rfind(small).unwrap();
        let mut scene = Scene::new(name, table);
        let large = page(2 * size.bytes(), size, 2 * size.bytes(), Rights::ALL);
        scene.frames_for(|scene| scene.map(large, 1));
        let create = |scene: &mut Scene| {
            let (memory, frames) = (&mut scene.memory.clone(), &mut scene.memory.clone());
            let space = scene.table.create(memory, frames)?;
            scene.table.destroy(space, memory)?.done(frames);
            Ok(())
        };
        let created = scene.frames_for(create);
        // There are so many pages that each organisation needs a frame for them.
        let many = page(0x8000_0000, base, 0, Rights::ALL);
        let mapped = scene.frames_for(|scene| scene.map(many, 1 << 13));
        assert!(mapped > 0, "{name}");
        let whole = VirtRange::of_page(large.page);
        let split = scene.frames_for(|scene| scene.resize(whole, base));
        let merged = scene.frames_for(|scene| scene.resize(whole, size));
        println!(
            "{name}: frames of a create {created}, map {mapped}, split {split}, merge {merged}"
        );
        // These operations need no frame.
        let used = Usage { referenced: true, dirty: true, marked: false };
        let needs_none: [Operation<'_>; 4] = [
            &|scene| scene.protect(whole, Rights::READ),
            &|scene| {
                let (space, addr) = (scene.space, large.page.start());
                scene.table.set_usage(space, addr, used, &mut scene.memory)
            },
            &|scene| {
                let (space, memory) = (scene.space, &mut scene.memory);
                scene.table.clear_usage(space, whole, used, memory, &mut |_| {})?.done(memory);
                Ok(())
            },
            &|scene| scene.unmap(VirtRange::ALL),
        ];
        for operation in needs_none {
            assert_eq!(scene.frames_for(operation), 0, "{name}");
        }
    }
}
