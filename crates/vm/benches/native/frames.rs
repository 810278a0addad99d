//! Measures allocations and frees, compared with allocators of other crates.

use std::{hint::black_box, time::Instant};

use addr::{PageSize, PhysAddr};
use bitmap_allocator::{BitAlloc, BitAlloc1M};
use buddy_system_allocator::FrameAllocator;
use physmem::{Allocator, Buddy, FrameId, Magazine, Physmem, Request, SizeLists, State};

const FRAMES: usize = 1 << 20;
const LARGE: u32 = 9;

/// An allocator of 2^20 frames.
trait Contender {
    fn name(&self) -> &'static str;
    fn allocate(&mut self, order: u32) -> u32;
    fn free(&mut self, first: u32, order: u32);
}

struct Ours<A>(&'static str, Physmem<A>);

impl<A: Allocator> Ours<A> {
    fn new(name: &'static str, allocator: impl FnOnce(std::ops::Range<u32>) -> A) -> Box<Ours<A>> {
        let (base, start) = (PageSize::SIZE_4K, PhysAddr::new(0));
        let bytes = base.bytes() * FRAMES as u64;
        let memory = Physmem::new(start, bytes, base, allocator);
        Box::new(Ours(name, memory.expect("the memory begins and ends on frames")))
    }
}

impl<A: Allocator> Contender for Ours<A> {
    fn name(&self) -> &'static str {
        self.0
    }

    fn allocate(&mut self, order: u32) -> u32 {
        let request = Request::new(order, State::Movable);
        self.1.allocate(&request).expect("half of memory is free").0
    }

    fn free(&mut self, first: u32, order: u32) {
        self.1.try_free(FrameId(first), order).expect("it was allocated");
    }
}

impl Contender for FrameAllocator<32> {
    fn name(&self) -> &'static str {
        "buddy_system_allocator"
    }

    fn allocate(&mut self, order: u32) -> u32 {
        self.alloc(1 << order).expect("half of memory is free") as u32
    }

    fn free(&mut self, first: u32, order: u32) {
        self.dealloc(first as usize, 1 << order);
    }
}

/// Adds to another allocator the data that our allocators keep for each frame: a descriptor of 32
/// bytes that records whether the frame is allocated, so that freeing a free frame is refused.
struct Described<A> {
    name: &'static str,
    inner: A,
    /// For a block, only the descriptor of its first frame is written.
    descriptors: Vec<Descriptor>,
}

#[derive(Clone, Copy, Default)]
#[repr(align(32))]
struct Descriptor {
    owner: u64,
    order: u8,
    is_out: bool,
}

impl<A: Contender> Contender for Described<A> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn allocate(&mut self, order: u32) -> u32 {
        let first = self.inner.allocate(order);
        let descriptor = Descriptor { owner: 0, order: order as u8, is_out: true };
        self.descriptors[first as usize] = descriptor;
        first
    }

    fn free(&mut self, first: u32, order: u32) {
        let descriptor = &mut self.descriptors[first as usize];
        assert!(
            descriptor.is_out && descriptor.owner == 0 && u32::from(descriptor.order) == order,
            "it was allocated"
        );
        *descriptor = Descriptor::default();
        self.inner.free(first, order);
    }
}

struct Bitmap(Box<BitAlloc1M>);

impl Contender for Bitmap {
    fn name(&self) -> &'static str {
        "bitmap-allocator"
    }

    fn allocate(&mut self, order: u32) -> u32 {
        let found = match order {
            0 => self.0.alloc(),
            _ => self.0.alloc_contiguous(None, 1 << order, order as usize),
        };
        found.expect("half of memory is free") as u32
    }

    fn free(&mut self, first: u32, order: u32) {
        match order {
            0 => self.0.dealloc(first as usize),
            _ => self.0.dealloc_contiguous(first as usize, 1 << order),
        };
    }
}

/// The number of intervals into which the steps of a round are divided: short enough that no other
/// process interrupts most of them.
const STRETCHES: usize = 64;

/// With half of memory in use, does `steps` frees and allocations of `2^order` frames. Returns the
/// nanoseconds of one free and one allocation together, in the fastest interval.
fn turn(contender: &mut dyn Contender, order: u32, steps: usize) -> f64 {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut below = |bound: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % bound as u64) as usize
    };
    let mut out: Vec<u32> = (0..FRAMES >> order).map(|_| contender.allocate(order)).collect();
    for last in (1..out.len()).rev() {
        out.swap(last, below(last + 1));
    }
    out.drain(..out.len() / 2).for_each(|first| contender.free(first, order));
    let steps = steps / STRETCHES;
    let mut least = f64::INFINITY;
    for _ in 0..STRETCHES {
        let began = Instant::now();
        for _ in 0..steps {
            let place = below(out.len());
            contender.free(black_box(out[place]), order);
            out[place] = contender.allocate(order);
        }
        least = least.min(began.elapsed().as_secs_f64() * 1e9 / steps as f64);
    }
    out.into_iter().for_each(|first| contender.free(first, order));
    least
}

pub(super) fn compare(steps: usize, rounds: usize) {
    let sizes = [PageSize::SIZE_4K, PageSize::SIZE_2M];
    let lists =
        |frames| SizeLists::new(frames, sizes[0], &sizes).expect("the sizes ascend from the base");
    let registry = || {
        let mut registry = FrameAllocator::<32>::new();
        registry.add_frame(0, FRAMES);
        registry
    };
    let described = Described {
        name: "and descriptors",
        inner: registry(),
        descriptors: vec![Descriptor::default(); FRAMES],
    };
    let mut bitmap = Box::new(BitAlloc1M::DEFAULT);
    bitmap.insert(0..FRAMES);
    let mut contenders: [Box<dyn Contender>; 6] = [
        Ours::new("physmem magazine, buddy", |frames| Magazine::new(Buddy::new(frames))),
        Ours::new("physmem buddy", Buddy::new),
        Ours::new("physmem size lists", lists),
        Box::new(registry()),
        Box::new(described),
        Box::new(Bitmap(bitmap)),
    ];
    let mut least = [[f64::INFINITY; 2]; 6];
    for _ in 0..rounds {
        for (contender, least) in contenders.iter_mut().zip(&mut least) {
            for (order, least) in [0, LARGE].into_iter().zip(least) {
                let steps = if order == 0 { steps } else { steps / 8 };
                *least = least.min(turn(contender.as_mut(), order, steps));
            }
        }
    }
    println!("{:<28} {:>12} {:>12}", "ns for a free and an", "1 frame", "512 frames");
    println!("allocation, half of 4 GiB in use");
    for (contender, [one, many]) in contenders.iter().zip(least) {
        println!("{:<28} {one:>12.1} {many:>12.1}", contender.name());
    }
}
