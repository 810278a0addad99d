//! The spaces of a processor, and the memory manager to which they belong.

use hat::{HatSpace, MmuPlace, locking::Locks};
use physmem::Buddy;
use vm::{Physical, Vm};

use crate::load::SIZES;

/// The space that all processors share, and its I/O MMU.
pub(crate) type Shared = (HatSpace, Option<MmuPlace>);

/// The memory manager with its memory.
pub(crate) struct Above<L: Locks> {
    pub(crate) vm: Vm<L>,
    pub(crate) memory: Physical<Buddy, L>,
}

/// The spaces of a processor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spaces {
    /// The space of the processor's process.
    pub(crate) own: HatSpace,
    /// The space of the kernel, or the space of all threads.
    pub(crate) shared: HatSpace,
    /// The kernel's I/O MMU, if the load uses one.
    pub(crate) device: Option<MmuPlace>,
    /// The processes that fork, by their size.
    pub(crate) parents: [HatSpace; SIZES.len()],
}
