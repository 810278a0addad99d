//! Synthetic traces: sources that generate their accesses from a seed, in constant memory.
//!
//! ```text
//!   "join,table=16G,accesses=50M,seed=1" --> Parameters --> Generator: Source
//!                                                              |
//!             uniform | zipf | strided | chase | join | pingpong | syscall | packet
//! ```
//!
//! Equal parameters give equal traces on every computer. Each generator reports the regions that it
//! uses by [`Event::Mapping`]s before the first access. Regions begin at multiples of 1 GiB, with
//! at least 1 GiB between them, so that any page size fits (16 MiB with 32-bit addresses, 1 MiB
//! with 25-bit addresses).

mod chase;
mod join;
mod permutation;
mod script;
mod spec;
mod strided;
mod uniform;
mod zipf;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};

use crate::kernel::path::Region;
use crate::{Arch, Batch, Error, Filter, Header, Meta, Segment, Source};

pub use spec::{Parameters, Pattern};

const BATCH_ACCESSES: u64 = 1 << 16;
/// The addresses in which regions may be placed.
#[derive(Clone, Copy)]
struct Room {
    bits: u32,
    /// The address of the first region.
    start: u64,
    /// Each region begins at a multiple of this number, and at least this number of bytes after the
    /// end of the region before.
    apart: u64,
}

impl Room {
    /// Addresses well above those that programs use, in the lower half of 48 bits.
    const WIDE: Room = Room { bits: 47, start: 0x1000_0000_0000, apart: 1 << 30 };
    /// The addresses of 32-bit programs.
    const NARROW: Room = Room { bits: 32, start: 1 << 28, apart: 1 << 24 };
    /// The addresses that a StrongARM's PID register relocates (U02 §6).
    const LOW: Room = Room { bits: 25, start: 1 << 24, apart: 1 << 20 };
    /// The addresses at which 32-bit programs are linked, which fit into a slot of 256 MiB (U02
    /// §3.1).
    const LINKED: Room = Room { bits: 32, start: 1 << 27, apart: 1 << 22 };

    /// The addresses for programs whose processes take turns. For 32-bit addresses, these are the
    /// addresses at which 32-bit programs are linked; otherwise they are the addresses for a single
    /// process.
    fn of_programs(self) -> Room {
        if self.bits == Room::LINKED.bits { Room::LINKED } else { self }
    }

    /// The addresses of `bits` bits; `None` if this number of bits is not supported.
    fn of(bits: u32) -> Option<Room> {
        [Room::WIDE, Room::NARROW, Room::LOW].into_iter().find(|room| room.bits == bits)
    }
}

/// The size of every access, in bytes.
const ACCESS_BYTES: u64 = 8;

/// A source for `spec`, in the syntax of [`Parameters`]: `join,table=16G,accesses=50M,seed=1`.
pub fn parse(spec: &str) -> Result<Box<dyn Source + Send>, Error> {
    Ok(Box::new(spec.parse::<Parameters>()?.generator()?))
}

/// A synthetic trace.
pub struct Generator {
    header: Header,
    regions: Vec<Region>,
    fill: Box<dyn Fill + Send>,
    accesses: u64,
    given: u64,
    begun: bool,
    digest: String,
}

/// Generates the accesses of a pattern.
trait Fill {
    /// Appends the next `count` accesses, and the events among them.
    fn fill(&mut self, count: usize, batch: &mut Batch);

    /// Whether the pattern has fetches.
    fn fetches(&self) -> bool {
        false
    }
}

/// Places regions with these names and sizes one after the other.
fn place<const N: usize>(
    room: Room,
    wanted: [(&'static str, u64); N],
) -> Result<[Region; N], Error> {
    let mut next = room.start;
    let mut regions = wanted.map(|(name, bytes)| Region { name, start: 0, bytes, rights: 3 });
    for region in &mut regions {
        region.start = next;
        next = next
            .checked_add(region.bytes)
            .and_then(|end| end.checked_next_multiple_of(room.apart)?.checked_add(room.apart))
            .filter(|&end| end <= 1 << room.bits)
            .ok_or_else(|| {
                let (name, bytes) = (region.name, region.bytes);
                Error::Parameters(format!(
                    "generate: {name} of {bytes} bytes does not fit into {} bits of address space",
                    room.bits
                ))
            })?;
    }
    Ok(regions)
}

/// The random number generator for a seed.
fn random(seed: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

/// A random number below `bound`, from the upper bits of 64 random bits.
#[inline]
fn below(bound: u64, bits: u64) -> u64 {
    ((u128::from(bits) * u128::from(bound)) >> 64) as u64
}

/// An event with a probability; the lowest 16 of some random bits decide whether it happens.
#[derive(Clone, Copy, Debug)]
struct Chance(u64);

impl Chance {
    /// The probability `share`, from 0 to 1, in steps of 2^-16.
    fn of(share: f64) -> Chance {
        Chance((share.clamp(0.0, 1.0) * 65536.0).round() as u64)
    }

    #[inline]
    fn falls(self, bits: u64) -> bool {
        bits & 0xffff < self.0
    }
}

/// The load and the store that every pattern uses.
#[derive(Clone, Copy, Debug)]
struct Metas {
    load: Meta,
    store: Meta,
}

impl Metas {
    fn new(instructions: u32) -> Metas {
        use addr::Kind::{Load, Store};
        let meta = |kind| Meta::new(kind, ACCESS_BYTES as u32, instructions);
        Metas { load: meta(Load), store: meta(Store) }
    }

    #[inline]
    fn of(self, store: bool) -> Meta {
        if store { self.store } else { self.load }
    }
}

impl Parameters {
    /// The source with these parameters.
    pub fn generator(&self) -> Result<Generator, Error> {
        let (regions, fill) = self.start()?;
        let spec = self.to_string();
        let header = Header {
            producer: concat!("pagewalk generate ", env!("CARGO_PKG_VERSION")).to_owned(),
            command: vec![format!("generate:{spec}")],
            arch: Arch::Unknown,
            fetches: fill.fetches(),
            filter: Filter::None,
            page_bytes: 4096,
            notes: vec!["synthetic: no program made these accesses".to_owned()],
            kernel_from: None,
        };
        let digest = Sha256::digest(format!("generate 1 {spec}").as_bytes());
        let digest = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let accesses = self.accesses;
        Ok(Generator { header, regions, fill, accesses, given: 0, begun: false, digest })
    }
}

impl Source for Generator {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        batch.first = self.given;
        if !std::mem::replace(&mut self.begun, true) {
            self.regions.iter().for_each(|region| batch.push_event(0, region.event()));
        }
        let count = BATCH_ACCESSES.min(self.accesses - self.given);
        if count == 0 {
            return Ok(false);
        }
        self.fill.fill(count as usize, batch);
        batch.segments.push(Segment { start: 0, thread: 0 });
        self.given += count;
        Ok(true)
    }

    fn total(&self) -> Option<u64> {
        Some(self.accesses)
    }

    fn digest(&self) -> Option<String> {
        Some(self.digest.clone())
    }
}

impl std::fmt::Debug for Generator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Generator({}, {} given)", self.header.command.join(" "), self.given)
    }
}
