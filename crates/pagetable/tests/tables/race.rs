//! Simulates the fastest possible walker: whenever the OS has read an entry, the walker sets the
//! accessed and the dirty bit there before the OS does anything else.

use std::cell::RefCell;

use addr::{Memory, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{ElasticCuckoo, Guarded, Hashed, HashedShape, Translation, Usage, X86_64};

use crate::common::Table;
use crate::common::physical::Physical;

const PRESENT: u64 = 1;
const MARKS: u64 = 0x60;
const MARKED: Usage = Usage { referenced: true, dirty: true, marked: false };

/// Memory with this walker. Exchanges are atomic. A plain store that overwrites bits which the
/// walker has set is recorded as a loss.
struct Raced {
    memory: RefCell<Physical>,
    lost: Vec<PhysAddr>,
}

impl Raced {
    fn race(&self, addr: PhysAddr) {
        let word = PhysAddr::new(addr.get() & !7);
        let mut memory = self.memory.borrow_mut();
        let entry = memory.read_u64(word);
        if entry & PRESENT != 0 {
            memory.write_u64(word, entry | MARKS);
        }
    }

    fn store(&mut self, addr: PhysAddr, store: impl Fn(&mut Physical)) {
        let word = PhysAddr::new(addr.get() & !7);
        let memory = self.memory.get_mut();
        let before = memory.read_u64(word);
        store(memory);
        if before & PRESENT != 0 && before & MARKS & !memory.read_u64(word) != 0 {
            self.lost.push(addr);
        }
    }
}

impl Memory for Raced {
    fn read_u64(&self, addr: PhysAddr) -> u64 {
        let value = self.memory.borrow().read_u64(addr);
        self.race(addr);
        value
    }

    fn read_u32(&self, addr: PhysAddr) -> u32 {
        let value = self.memory.borrow().read_u32(addr);
        self.race(addr);
        value
    }

    fn read_u8(&self, _addr: PhysAddr) -> u8 {
        unreachable!("x86-64 has no entries of a byte")
    }

    fn write_u64(&mut self, addr: PhysAddr, value: u64) {
        self.store(addr, |memory| memory.write_u64(addr, value));
    }

    fn write_u32(&mut self, addr: PhysAddr, value: u32) {
        self.store(addr, |memory| memory.write_u32(addr, value));
    }

    fn write_u8(&mut self, _addr: PhysAddr, _value: u8) {
        unreachable!("x86-64 has no entries of a byte")
    }

    fn swap_u64(&mut self, addr: PhysAddr, new: u64) -> u64 {
        self.memory.get_mut().swap_u64(addr, new)
    }

    fn invert_u64(&mut self, addr: PhysAddr, bits: u64) -> u64 {
        self.memory.get_mut().invert_u64(addr, bits)
    }

    fn compare_exchange_u64(&mut self, addr: PhysAddr, current: u64, new: u64) -> Result<(), u64> {
        self.memory.get_mut().compare_exchange_u64(addr, current, new)
    }

    fn swap_u32(&mut self, addr: PhysAddr, new: u32) -> u32 {
        self.memory.get_mut().swap_u32(addr, new)
    }

    fn invert_u32(&mut self, addr: PhysAddr, bits: u32) -> u32 {
        self.memory.get_mut().invert_u32(addr, bits)
    }

    fn compare_exchange_u32(&mut self, addr: PhysAddr, current: u32, new: u32) -> Result<(), u32> {
        self.memory.get_mut().compare_exchange_u32(addr, current, new)
    }

    fn zero(&mut self, start: PhysAddr, bytes: u64) {
        self.memory.get_mut().zero(start, bytes);
    }
}

fn range(start: u64, bytes: u64) -> VirtRange {
    VirtRange::new(VirtAddr::new(start), bytes).unwrap()
}

/// Uses single pages, ranges within one table and across two, and a superpage. Some tables stay and
/// some are removed.
#[test]
fn no_bit_of_a_walker_is_lost() {
    let mut frames = Physical::new();
    let mut memory = Raced { memory: RefCell::new(frames.clone()), lost: Vec::new() };
    let mut table = X86_64::<4>::new();
    let space = table.create(&mut memory, &mut frames).unwrap();
    let k4 = PageSize::SIZE_4K;
    let regions = [
        (0x20_0000, k4, 1),
        (0x20_1000, k4, 1),
        (0x20_2000, k4, 1),
        (0x3f_f000, k4, 2),
        (0x60_0000, PageSize::SIZE_2M, 1),
    ];
    let mut told = Vec::new();
    for _ in 0..2 {
        for (start, size, pages) in regions {
            let page = VirtAddr::new(start).page(size);
            let frame = PhysAddr::new(1 << 30);
            let first = Translation::new(page, frame, Rights::ALL);
            let flush = table.map(space, first, pages, &mut memory, &mut frames).unwrap();
            flush.done(&mut frames);
        }
        let ranges = regions.map(|(start, size, pages)| range(start, size.bytes() * pages));
        for range in ranges {
            let each = &mut |_| {};
            let flush = table.protect(space, range, Rights::READ, &mut memory, each).unwrap();
            flush.done(&mut frames);
            let found = table.query(space, range.start(), &memory).unwrap();
            assert_eq!(found.usage, MARKED, "after a protect of {range:?}");
            let referenced = Usage { referenced: true, ..Usage::default() };
            let flush = table.clear_usage(space, range, referenced, &mut memory, each).unwrap();
            flush.done(&mut frames);
            let found = table.query(space, range.start(), &memory).unwrap();
            let dirty = Usage { dirty: true, ..Usage::default() };
            assert_eq!(found.usage, dirty, "after the accessed bits of {range:?} were cleared");
        }
        // Splits a page of 2M and merges it again.
        let last = ranges[4];
        for (to, pages) in [(k4, 512), (PageSize::SIZE_2M, 1)] {
            let forget = &mut |_: &_| {};
            table.resize(space, last, to, &mut memory, &mut frames, forget).unwrap();
            let mut found = Vec::new();
            table.visit(space, last, &memory, &mut |mapping| found.push(mapping.usage));
            assert_eq!(found, vec![MARKED; pages], "pages of {to}");
        }
        for range in ranges {
            let each = &mut |mapping: pagetable::Mapping| told.push(mapping.usage);
            let flush = table.unmap(space, range, &mut memory, each).unwrap();
            flush.done(&mut frames);
        }
    }
    assert_eq!(told, [MARKED; 12], "what unmap says of each page");
    assert_eq!(memory.lost, [], "plain stores over bits of the walker");
    table.destroy(space, &mut memory).unwrap().done(&mut frames);
    assert_eq!(frames.frames_out(), 0);
}

/// Memory in which a walker sets bits in each entry immediately before the OS exchanges it.
struct Overtaken(Physical);

impl Overtaken {
    /// In a page's entry, P is bit 0, and A and D are the bits above G.
    const MARKS: u64 = 0xc0;
}

impl Memory for Overtaken {
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
        self.0.write_u64(addr, value);
    }
    fn write_u32(&mut self, addr: PhysAddr, value: u32) {
        self.0.write_u32(addr, value);
    }
    fn write_u8(&mut self, addr: PhysAddr, value: u8) {
        self.0.write_u8(addr, value);
    }
    fn swap_u64(&mut self, addr: PhysAddr, new: u64) -> u64 {
        self.0.swap_u64(addr, new)
    }
    fn swap_u32(&mut self, addr: PhysAddr, new: u32) -> u32 {
        self.0.swap_u32(addr, new)
    }
    fn invert_u64(&mut self, addr: PhysAddr, bits: u64) -> u64 {
        self.0.invert_u64(addr, bits)
    }
    fn invert_u32(&mut self, addr: PhysAddr, bits: u32) -> u32 {
        self.0.invert_u32(addr, bits)
    }
    fn compare_exchange_u64(&mut self, addr: PhysAddr, current: u64, new: u64) -> Result<(), u64> {
        let found = self.0.read_u64(addr);
        if found & PRESENT != 0 {
            self.0.write_u64(addr, found | Overtaken::MARKS);
        }
        self.0.compare_exchange_u64(addr, current, new)
    }
    fn compare_exchange_u32(&mut self, addr: PhysAddr, current: u32, new: u32) -> Result<(), u32> {
        let found = self.0.read_u32(addr);
        if u64::from(found) & PRESENT != 0 {
            self.0.write_u32(addr, found | Overtaken::MARKS as u32);
        }
        self.0.compare_exchange_u32(addr, current, new)
    }
}

/// Resizes pages in tables that are not radix trees: bits that a walker sets in the old entries at
/// the last moment must be in the new entries.
#[test]
fn no_bit_is_lost_when_other_tables_resize() {
    let hashed = |shape: HashedShape| Hashed::new(shape.with_large_pages()).unwrap();
    let inverted = HashedShape { walk_sets_usage: true, ..HashedShape::inverted(16 << 20, 16) };
    let tables: [Box<dyn Table>; 6] = [
        Box::new(Guarded::new(16).unwrap().with_usage()),
        Box::new(Guarded::adaptive().with_usage()),
        Box::new(hashed(HashedShape { walk_sets_usage: true, ..HashedShape::C128K })),
        Box::new(hashed(inverted)),
        Box::new(hashed(HashedShape { replicated: true, ..inverted })),
        Box::new(ElasticCuckoo::new(3, 4096).unwrap().with_usage()),
    ];
    for (number, mut table) in tables.into_iter().enumerate() {
        let mut frames = Physical::new();
        let mut memory = Overtaken(frames.clone());
        let space = table.create(&mut memory, &mut frames).unwrap();
        let page = VirtAddr::new(1 << 30).page(PageSize::SIZE_2M);
        let large = Translation::new(page, PhysAddr::new(1 << 31), Rights::ALL);
        let range = VirtRange::of_page(page);
        table.map(space, large, 1, &mut memory, &mut frames).unwrap().done(&mut frames);
        for (to, pages) in [(PageSize::SIZE_4K, 512), (PageSize::SIZE_2M, 1)] {
            let each = &mut |_| {};
            let flush = table.clear_usage(space, range, MARKED, &mut memory, each).unwrap();
            flush.done(&mut frames);
            let forget = &mut |_: &_| {};
            let mapped = table.resize(space, range, to, &mut memory, &mut frames, forget).unwrap();
            assert_eq!(mapped.len(), pages);
            let mut found = Vec::new();
            table.visit(space, range, &memory, &mut |mapping| found.push(mapping.usage));
            assert_eq!(found, vec![MARKED; pages], "table {number}, pages of {to}");
        }
        table.destroy(space, &mut memory).unwrap().done(&mut frames);
        assert_eq!(frames.frames_out(), 0);
    }
}
