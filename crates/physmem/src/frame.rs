use core::fmt;

/// The number of a base frame: its physical address divided by the base page size.
///
/// With 32 bits and frames of 4 KiB, all frames of 16 TiB except the last have a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FrameId(pub u32);

/// The use of a base frame, which determines whether its contents may be moved.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum State {
    /// Free: the frame belongs to the allocator.
    #[default]
    Free,
    /// Reserved for an object that is expected to use the frame (FreeBSD's reservations).
    Reserved,
    /// User or page-cache memory that is accessed only through mappings: it can be migrated.
    Movable,
    /// Used by the kernel, or locked for it: the kernel has pointers to the frame, so it cannot be
    /// moved.
    Kernel,
    /// Used for a page table, or for other memory of the HAT layer: the frame cannot be moved.
    Table,
    /// The target of a migration whose copy is not complete: a fault on the page waits.
    InTransit,
    /// Not available for use.
    Offline,
    /// Used by the kernel, and freed on request (caches of data that is on a disk). The frame
    /// cannot be moved while it is in use.
    Reclaimable,
}

impl State {
    /// All states, in the order of their numbers.
    pub const ALL: [State; 8] = [
        State::Free,
        State::Reserved,
        State::Movable,
        State::Kernel,
        State::Table,
        State::InTransit,
        State::Offline,
        State::Reclaimable,
    ];

    /// Whether a frame in this state can be freed by moving its contents to another frame, if it is
    /// not wired.
    pub const fn is_migratable(self) -> bool {
        matches!(self, State::Movable)
    }
}

/// The contents of a frame: the base page `index` of the memory object `object`.
///
/// The memory manager defines the numbers; this crate only stores them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Identity {
    /// The memory object, 0 for none.
    pub object: u32,
    /// The number of the base page in the object.
    pub index: u64,
}

/// A page-frame descriptor: the data that is recorded about one base frame.
///
/// ```text
///   bytes  0..8    links: the neighbours in the one list that the frame is in
///          8..20   identity: index and object
///         20..22   wired: how many reasons there are not to move or reclaim it
///         22       state    23 order (of a free block's first frame)    24 node    25 flags
/// ```
///
/// A descriptor has no page size (G98 section 6.1): a large page is represented by the adjacent
/// descriptors of its base frames. Only a *free* block has an order, which is in the descriptor of
/// its first frame, so that the free lists need no memory of their own.
///
/// The type is aligned so that the descriptors of two frames that are buddies share a 64-byte cache
/// line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(align(32))]
pub struct Pfdat {
    /// The previous and next frame in a list: the list of free blocks while the frame is free,
    /// otherwise a list of its owner.
    pub links: [u32; 2],
    /// The contents of the frame.
    pub identity: Identity,
    /// The number of reasons not to move or reclaim the frame.
    pub wired: u16,
    state: State,
    order: u8,
    node: u8,
    /// Bits for the owner of the frame.
    pub flags: u8,
}

/// The end of a list: no frame has this number.
pub const NO_FRAME: u32 = u32::MAX;

/// The order of a frame that is not the first of a free block.
const NO_ORDER: u8 = u8::MAX;

impl Pfdat {
    pub(crate) const fn free(node: u8) -> Pfdat {
        Pfdat {
            links: [NO_FRAME; 2],
            identity: Identity { object: 0, index: 0 },
            wired: 0,
            state: State::Free,
            order: NO_ORDER,
            node,
            flags: 0,
        }
    }

    /// The use of the frame.
    #[inline]
    pub const fn state(&self) -> State {
        self.state
    }

    /// The NUMA node of the frame.
    #[inline]
    pub const fn node(&self) -> u8 {
        self.node
    }

    /// Whether the frame's contents may be moved to another frame.
    #[inline]
    pub const fn is_migratable(&self) -> bool {
        self.state.is_migratable() && self.wired == 0
    }

    /// The order of the free block that begins with this frame, if there is one.
    #[inline]
    pub(crate) const fn free_order(&self) -> Option<u32> {
        if matches!(self.state, State::Free) && self.order != NO_ORDER {
            Some(self.order as u32)
        } else {
            None
        }
    }

    pub(crate) fn set_free_order(&mut self, order: Option<u32>) {
        self.order = order.map_or(NO_ORDER, |order| order as u8);
    }

    /// The descriptor of this frame for a new owner: in `state`, with no identity, no wired counts and no
    /// flags.
    pub(crate) const fn handed_over(self, state: State) -> Pfdat {
        Pfdat { state, ..Pfdat::free(self.node) }
    }

    pub(crate) fn set_state(&mut self, state: State) {
        self.state = state;
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Free => "free",
            State::Reserved => "reserved",
            State::Movable => "movable",
            State::Kernel => "kernel",
            State::Table => "table",
            State::InTransit => "in transit",
            State::Offline => "offline",
            State::Reclaimable => "reclaimable",
        })
    }
}

const _: () = assert!(size_of::<Pfdat>() <= 32, "a page-frame descriptor takes 32 bytes at most");
