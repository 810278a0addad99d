//! Compares the HAT layer, over page tables of several formats, with a map of pages and with a TLB
//! that drops an entry only when it is flushed.

extern crate alloc;

#[path = "../../../physmem/tests/support/boot.rs"]
mod boot;
#[path = "../../../physmem/tests/support/heap.rs"]
mod heap;
mod model;
mod no_memory;
mod small;
mod spin;
mod trees;

use std::sync::Mutex;

use addr::{Memory, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{Hat, LoadError};
use model::{Processor, World};
use pagetable::{
    Aarch64, Guarded, Hashed, HashedShape, Irix, Mount, Mpt, SparseMemory, Sv39, Translation,
    Usage, X86_64,
};

const K4: PageSize = PageSize::SIZE_4K;
const M2: PageSize = PageSize::SIZE_2M;
const MEMORY: u64 = 1 << 34;

fn x86_64() -> Hat {
    Hat::new(Box::new(Mount::tree(X86_64::<4>::new(), SparseMemory::new(MEMORY))))
}

fn guarded() -> Hat {
    Hat::new(Box::new(Mount::tree(Guarded::new(16).unwrap(), SparseMemory::new(MEMORY))))
}

fn adaptive() -> Hat {
    Hat::new(Box::new(Mount::tree(Guarded::adaptive(), SparseMemory::new(MEMORY))))
}

fn hashed() -> Hat {
    let table = Hashed::new(HashedShape { shared: true, ..HashedShape::H8K }).unwrap();
    Hat::new(Box::new(Mount::new(table, SparseMemory::new(MEMORY))))
}

fn irix() -> Hat {
    Hat::new(Box::new(Mount::tree(Irix::new(K4).unwrap(), SparseMemory::new(MEMORY))))
}

fn sv39() -> Hat {
    Hat::new(Box::new(Mount::tree(Sv39::<true>::new(), SparseMemory::new(MEMORY))))
}

fn aarch64() -> Hat {
    Hat::new(Box::new(Mount::tree(Aarch64::<12>::new(), SparseMemory::new(MEMORY))))
}

fn mpt() -> Hat {
    Hat::new(Box::new(Mount::tree(Mpt::new(), SparseMemory::new(MEMORY))))
}

type Make = fn() -> Hat;

const FORMATS: [(&str, Make); 8] = [
    ("x86-64", x86_64),
    ("guarded", guarded),
    ("guarded-adaptive", adaptive),
    ("hashed", hashed),
    ("mpt", mpt),
    ("irix", irix),
    ("sv39", sv39),
    ("aarch64", aarch64),
];

fn page(addr: u64, size: PageSize, frame: u64, rights: Rights) -> Translation {
    let page = VirtAddr::new(addr).page(size);
    Translation::new(page, PhysAddr::new(frame), rights)
}

#[test]
fn streams_of_operations_over_several_spaces() {
    for (name, make) in FORMATS {
        for seed in 0..3 {
            println!("{name}, seed {seed}");
            World::new(seed, make()).run(600);
        }
    }
}

#[test]
fn tables_that_cannot_be_had_lose_nothing() {
    for seed in 0..4 {
        println!("seed {seed}");
        let mut world = World::new(seed, x86_64());
        world.processor.allocations_left = Some(12);
        world.run(800);
    }
}

#[test]
fn two_spaces_map_the_same_frames_at_two_sizes() {
    let hat = x86_64();
    let mut processor = Processor::default();
    let [one, two] = [0; 2].map(|_| hat.create(&mut processor).unwrap());
    let frame = M2.bytes() * 8;
    hat.load(one, page(0x4000_0000, M2, frame, Rights::ALL), 1, &mut processor).unwrap();
    let small = page(0x1000, K4, frame + 0x5000, Rights::ALL);
    hat.load(two, small, 1, &mut processor).unwrap();

    let count = |hat: &Hat, frame: u64, size| {
        let mut count = 0;
        hat.each_mapping(PhysAddr::new(frame), size, &mut |_, _| count += 1);
        count
    };
    assert_eq!(count(&hat, frame + 0x5000, K4), 2, "the 2M page covers the frame too");
    assert_eq!(count(&hat, frame + 0x6000, K4), 1);
    assert_eq!(count(&hat, frame, M2), 2);

    let mut gone = Vec::new();
    let frames = [(PhysAddr::new(frame + 0x5000), K4)];
    let mut each =
        |space, mapping: pagetable::Mapping| gone.push((space, mapping.translation.page));
    hat.unload_frames(&frames, &mut each, &mut processor);
    gone.sort_unstable();
    assert_eq!(gone, [(one, VirtAddr::new(0x4000_0000).page(M2)), (two, small.page)]);
    assert_eq!(processor.shootdowns, 1, "one shootdown for both spaces");
    hat.check().unwrap();
}

#[test]
fn usage_is_gathered_over_all_mappings_of_a_frame() {
    let mut hat = x86_64();
    let mut processor = Processor::default();
    let [one, two] = [0; 2].map(|_| hat.create(&mut processor).unwrap());
    let frame = PhysAddr::new(0x8000);
    hat.load(one, page(0x1000, K4, 0x8000, Rights::ALL), 1, &mut processor).unwrap();
    hat.load(two, page(0x2000, K4, 0x8000, Rights::ALL), 1, &mut processor).unwrap();
    let none = Usage::default();
    assert_eq!(hat.usage(frame, K4, none, &mut processor), none);

    let space = hat.space(two).unwrap();
    let walked = hat.table_mut().walk(space, VirtAddr::new(0x2000), addr::Kind::Store, &mut vec![]);
    assert!(walked.is_ok());
    let both = Usage { referenced: true, dirty: true, ..none };
    let referenced = Usage { referenced: true, ..none };
    assert_eq!(hat.usage(frame, K4, referenced, &mut processor), both);
    assert_eq!(processor.shootdowns, 1, "a cleared bit must be seen to be set again");
    assert_eq!(hat.usage(frame, K4, none, &mut processor), Usage { dirty: true, ..none });
}

/// Memory in which a walker stores to the page in frame 0x8000 right after its accessed bit was read.
struct StoredTo(Mutex<SparseMemory>);

impl Memory for StoredTo {
    fn read_u64(&self, addr: PhysAddr) -> u64 {
        let mut memory = self.0.lock().unwrap();
        let entry = memory.read_u64(addr);
        if entry & 0xf_f021 == 0x8021 {
            memory.write_u64(addr, entry | 0x40);
        }
        entry
    }
    fn read_u32(&self, addr: PhysAddr) -> u32 {
        self.0.lock().unwrap().read_u32(addr)
    }
    fn read_u8(&self, addr: PhysAddr) -> u8 {
        self.0.lock().unwrap().read_u8(addr)
    }
    fn write_u64(&mut self, addr: PhysAddr, value: u64) {
        self.0.get_mut().unwrap().write_u64(addr, value);
    }
    fn write_u32(&mut self, addr: PhysAddr, value: u32) {
        self.0.get_mut().unwrap().write_u32(addr, value);
    }
    fn write_u8(&mut self, addr: PhysAddr, value: u8) {
        self.0.get_mut().unwrap().write_u8(addr, value);
    }
    addr::exchanges_of_one_user!();
}

/// A processor stores to a page after its usage bits were read and before they are cleared.
#[test]
fn no_store_is_lost_while_bits_are_cleared() {
    let memory = StoredTo(Mutex::new(SparseMemory::new(MEMORY)));
    let hat: Hat = Hat::new(Box::new(Mount::tree(X86_64::<4>::new(), memory)));
    let mut processor = Processor::default();
    let space = hat.create(&mut processor).unwrap();
    hat.load(space, page(0x1000, K4, 0x8000, Rights::ALL), 1, &mut processor).unwrap();
    let referenced = Usage { referenced: true, ..Usage::default() };
    let both = Usage { dirty: true, ..referenced };
    hat.set_usage(space, VirtAddr::new(0x1000), referenced).unwrap();
    assert_eq!(hat.usage(PhysAddr::new(0x8000), K4, both, &mut processor), both);
    let none = Usage::default();
    assert_eq!(hat.usage(PhysAddr::new(0x8000), K4, none, &mut processor), none);
}

#[test]
fn an_upgrade_needs_a_full_and_aligned_page_of_equal_rights() {
    let range = VirtRange::new(VirtAddr::new(0x4000_0000), M2.bytes()).unwrap();
    let first = page(0x4000_0000, K4, M2.bytes() * 3, Rights::ALL);
    type Change = fn(&mut Hat, hat::HatSpace, &mut Processor);
    let one_less: Change = |hat, space, processor| {
        let page = VirtRange::new(VirtAddr::new(0x4000_3000), 0x1000).unwrap();
        hat.unload(space, page, &mut |_| (), processor).unwrap();
    };
    let other_rights: Change = |hat, space, processor| {
        let page = VirtRange::new(VirtAddr::new(0x4000_3000), 0x1000).unwrap();
        hat.protect(space, page, Rights::READ | Rights::USER, processor).unwrap();
    };
    let other_frame: Change = |hat, space, processor| {
        let page_range = VirtRange::new(VirtAddr::new(0x4000_3000), 0x1000).unwrap();
        hat.unload(space, page_range, &mut |_| (), processor).unwrap();
        let elsewhere = page(0x4000_3000, K4, 0x1000, Rights::ALL);
        hat.load(space, elsewhere, 1, processor).unwrap();
    };
    let nothing: Change = |_, _, _| ();
    for (change, allowed) in
        [(nothing, true), (one_less, false), (other_rights, false), (other_frame, false)]
    {
        let mut hat = x86_64();
        let mut processor = Processor::default();
        let space = hat.create(&mut processor).unwrap();
        hat.load(space, first, 512, &mut processor).unwrap();
        change(&mut hat, space, &mut processor);
        let before = hat.mappings();
        let resized = hat.resize(space, range, M2, &mut processor);
        assert_eq!(resized.is_ok(), allowed, "{resized:?}");
        assert_eq!(hat.mappings(), if allowed { 1 } else { before });
        hat.check().unwrap();
        if allowed {
            hat.resize(space, range, K4, &mut processor).unwrap();
            assert_eq!(hat.mappings(), 512);
            hat.check().unwrap();
        }
    }
}

#[test]
fn spaces_that_ended_are_told() {
    let hat = x86_64();
    let mut processor = Processor::default();
    let space = hat.create(&mut processor).unwrap();
    hat.load(space, page(0x1000, K4, 0x8000, Rights::ALL), 1, &mut processor).unwrap();
    hat.destroy(space, &mut processor);
    hat.destroy(space, &mut processor);
    assert_eq!(hat.mappings(), 0);
    let again = hat.load(space, page(0x1000, K4, 0x8000, Rights::ALL), 1, &mut processor);
    assert_eq!(again, Err(LoadError::NoSpace(space)));
    assert_eq!(processor.frames_out(), 0, "all tables are free again");
}

/// A kernel without std runs a stream of the model test and gets the digest of the test.
#[test]
fn a_kernel_does_the_same() {
    assert_eq!(boot::digest("hat"), World::new(5, x86_64()).run(600));
}
