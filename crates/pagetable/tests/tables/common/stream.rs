use addr::{Attributes, Kind, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use pagetable::{Translation, Usage};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::table::Table;
use super::world::{Op, World};

/// Runs every sequence of `ops` in a world with one space. Each pair in `rooms` has the number of
/// available frames and the length of the sequences.
pub(crate) fn small_worlds<P: Table + 'static>(
    new: &dyn Fn() -> World<P>,
    ops: &[Op],
    rooms: &[(usize, u32)],
) {
    for &(frames_max, length) in rooms {
        for sequence in 0..ops.len().pow(length) {
            let mut world = new();
            world.physical.limit(frames_max);
            let place = |place| ops[sequence / ops.len().pow(place) % ops.len()];
            small_world(&mut world, &mut (0..length).map(place));
        }
    }
}

fn small_world(world: &mut World<dyn Table>, ops: &mut dyn Iterator<Item = Op>) {
    world.apply(Op::Create);
    ops.for_each(|op| world.apply(op));
    world.check();
    world.end();
}

/// The parameters of a random stream of operations.
pub(crate) struct Stream {
    /// The first addresses of the regions that the stream uses.
    pub(crate) regions: Vec<u64>,
    /// The bytes of each region: a power of two, to which the region is aligned.
    pub(crate) region_bytes: u64,
    /// The frames that are mapped have addresses of at most this number of bits.
    pub(crate) frame_bits: u32,
    /// The page sizes that are mapped.
    pub(crate) sizes: Vec<PageSize>,
    /// The rights that pages get.
    pub(crate) rights: Vec<Rights>,
    pub(crate) steps: usize,
    pub(crate) seed: u64,
}

impl Stream {
    /// Runs the stream and compares all state with the model every few steps. At the end, all
    /// spaces are ended.
    pub(crate) fn run(&self, mut world: World<impl Table + 'static>) {
        self.run_any(&mut world, &|_| {});
    }

    /// Runs the stream; `each` is called at each complete comparison, to compare more.
    pub(crate) fn run_with(
        &self,
        mut world: World<impl Table + 'static>,
        each: impl Fn(&World<dyn Table>),
    ) {
        self.run_any(&mut world, &each);
    }

    fn run_any(&self, world: &mut World<dyn Table>, each: &dyn Fn(&World<dyn Table>)) {
        println!("seed {:#x}", self.seed);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        // Comparisons would otherwise take most of the time of a long stream.
        let every = if self.steps > 100_000 { 1000 } else { 50 };
        world.apply(Op::Create);
        for step in 0..self.steps {
            if step % 500 == 0 {
                // Sometimes only a few more frames can be allocated.
                let room = rng.random_range(0..40);
                let limited = rng.random_bool(0.3);
                let frames_max = world.physical.frames_out() + room;
                world.physical.limit(if limited { frames_max } else { usize::MAX });
            }
            let op = match world.resizes && rng.random_bool(0.1) {
                true => self.resize(&mut rng, world.spaces.len()),
                false => self.op(&mut rng, world.spaces.len()),
            };
            world.apply(op);
            if step % every == 0 {
                world.check();
                each(world);
            }
        }
        world.check();
        world.end();
    }

    fn op(&self, rng: &mut Xoshiro256PlusPlus, spaces: usize) -> Op {
        let space = rng.random_range(0..spaces.max(1));
        let bits = Usage { referenced: rng.random(), dirty: rng.random(), marked: false };
        match rng.random_range(0..100) {
            0 if spaces < 4 => Op::Create,
            1 if spaces > 1 => Op::Destroy { space },
            0..30 => {
                let (first, count) = self.run_of_pages(rng);
                Op::Map { space, first, count }
            }
            30..50 => Op::Unmap { space, range: self.range(rng) },
            50..60 => Op::Protect {
                space,
                range: self.range(rng),
                rights: self.one_of(rng, &self.rights),
            },
            72..77 => Op::ProtectPage {
                space,
                page: self.addr(rng).page(self.one_of(rng, &self.sizes)),
                rights: self.one_of(rng, &self.rights),
                gives: rng.random(),
            },
            60..65 => Op::ClearUsage { space, range: self.range(rng), bits },
            65..68 => Op::SetUsage { space, addr: self.addr(rng), bits },
            68..72 => Op::SetNote { space, addr: self.addr(rng) },
            _ => Op::Walk { space, addr: self.addr(rng), kind: Kind::ALL[rng.random_range(0..3)] },
        }
    }

    /// Splits or merges the pages at the addresses of a page. The ratio of the sizes is limited, so
    /// that the model stays small.
    fn resize(&self, rng: &mut Xoshiro256PlusPlus, spaces: usize) -> Op {
        let space = rng.random_range(0..spaces.max(1));
        let to = self.one_of(rng, &self.sizes);
        let near = |size: &&PageSize| {
            size.bytes().max(to.bytes()) / size.bytes().min(to.bytes()) <= 1 << 13
        };
        let sizes: Vec<PageSize> = self.sizes.iter().filter(near).copied().collect();
        let page = self.addr(rng).page(self.one_of(rng, &sizes));
        Op::Resize { space, range: VirtRange::of_page(page), to }
    }

    fn run_of_pages(&self, rng: &mut Xoshiro256PlusPlus) -> (Translation, u64) {
        let size = self.one_of(rng, &self.sizes);
        let addr = self.addr(rng);
        // A run must stay inside its region, because there may be a hole of the format after it.
        let left =
            (self.region_bytes - (addr.get() & (self.region_bytes - 1))).div_ceil(size.bytes());
        let count = if rng.random_bool(0.7) { 1 } else { rng.random_range(1..=700) };
        let first = Translation {
            page: addr.page(size),
            frame: PhysAddr::new(rng.random_range(0..(1 << self.frame_bits) - self.region_bytes))
                .align_down(size),
            rights: self.one_of(rng, &self.rights),
            global: rng.random_bool(0.1),
            attributes: Attributes::NORMAL,
        };
        (first, count.min(left))
    }

    fn range(&self, rng: &mut Xoshiro256PlusPlus) -> VirtRange {
        let size = self.one_of(rng, &self.sizes);
        let start = self.addr(rng).align_down(size);
        let bytes = match rng.random_range(0..20) {
            0 => return VirtRange::ALL,
            1..12 => size.bytes(),
            12..18 => size.bytes() * rng.random_range(1..600),
            _ => self.region_bytes,
        };
        let room = start.get().wrapping_neg();
        let bytes = if room == 0 { bytes } else { bytes.min(room) };
        VirtRange::new(start, bytes).unwrap()
    }

    /// An address near the start, the middle or the end of a region, so that operations often
    /// concern the same pages.
    fn addr(&self, rng: &mut Xoshiro256PlusPlus) -> VirtAddr {
        let region = self.one_of(rng, &self.regions);
        let bytes = self.region_bytes;
        let near_bytes = if rng.random_bool(0.5) { 1 << 15 } else { 1u64 << 24 };
        let near = rng.random_range(0..near_bytes.min(bytes / 2));
        let offset = match rng.random_range(0..4) {
            0 => near,
            1 => bytes / 2 - near - 1,
            2 => bytes / 2 + near,
            _ => bytes - near - 1,
        };
        VirtAddr::new(region + offset)
    }

    fn one_of<T: Copy>(&self, rng: &mut Xoshiro256PlusPlus, from: &[T]) -> T {
        from[rng.random_range(0..from.len())]
    }
}
