//! The types of a kernel's parts, under one name.
//!
//! ```text
//!   Kernel<'_, H>   H: Host   Table      what the HAT layer keeps translations in
//!                             Allocator  whose free frames physical memory hands out
//!                             Platform   what the processor and the disks do
//!                             Locks      what a lock is
//!                             Scheme     which locks the HAT layer takes
//! ```
//!
//! [`Kernel::new`](crate::Kernel::new) takes the parts and infers their types: no kernel has to
//! implement [`Host`]. A kernel that stores a [`Kernel`](crate::Kernel) writes its type as
//! `Kernel<'_, Parts<Table, Allocator, Platform>>`.

use core::marker::PhantomData;

use hat::locking::{Global, Locks, Scheme, Single};
use pagetable::Mounted;
use physmem::Allocator;

use crate::platform::Platform;

/// The types that a memory manager works with.
pub trait Host {
    /// The page table of the HAT layer.
    type Table: Mounted + ?Sized;
    /// The allocator of physical memory.
    type Allocator: Allocator + Send;
    /// A processor, behind the interface that the memory manager needs.
    type Platform: Platform;
    /// The platform of locks.
    type Locks: Locks;
    /// The HAT layer's scheme of locks.
    type Scheme: Scheme<Table = Self::Table>;
}

/// The host with these five types, in the order of [`Host`]. The type has no values.
pub struct Parts<T: ?Sized, A, P, L = Single, S = Global<T, Single>> {
    types: PhantomData<(A, P, L, S)>,
    table: PhantomData<fn(&T)>,
}

impl<T, A, P, L, S> Host for Parts<T, A, P, L, S>
where
    T: Mounted + ?Sized,
    A: Allocator + Send,
    P: Platform,
    L: Locks,
    S: Scheme<Table = T>,
{
    type Table = T;
    type Allocator = A;
    type Platform = P;
    type Locks = L;
    type Scheme = S;
}
