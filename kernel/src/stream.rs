//! The model test of `vm`: a stream of events for the memory manager, compared with a map from (space, page)
//! to contents, under the kernel's own locks. Its digest is the same as on the host (`crates/vm/tests/vm`,
//! `a_kernel_does_the_same`).

use hat::{Pool, locking::Global};
use pagetable::Mounted;

use crate::{
    locks::Polled,
    tables::TABLES,
    world::{Large, World},
};

type Locked = World<Polled, Global<dyn Mounted, Polled>>;

/// The digest of this number of events.
pub fn digest(events: u32) -> u64 {
    let scheme = Global::new(Pool::unlimited());
    let mut world = Locked::under(scheme, &TABLES[0], "lru", (150, 5), Large::No);
    world.run(events);
    world.digest()
}
