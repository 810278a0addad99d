//! The hardware-address-translation (HAT) layer: which frame is mapped where, in which space, and
//! what hardware must forget when that changes (K94).
//!
//! ```text
//!   memory manager     load  unload  unload_frames  protect  usage  resize  duplicate
//!        |                                  |
//!        v                                  v
//!   Hat    spaces -> page table (Mounted)   Mappings: frame -> every page that maps it
//!        |                  |
//!        |                  +-- Flush tokens, gathered --> Platform::shoot --> then frames free
//!        v
//!   Platform           TLBs and MMU caches of all processors, frames for tables, counted work
//! ```
//!
//! The truth about an address space is the memory manager's; this layer is a *cache* of it (K94
//! section 3.2). Any translation may be dropped at any time and comes back by a minor fault. That
//! is why [`Hat::load`] may fail for want of table memory and nothing is lost.
//!
//! A space may hand pages on to others: [`Hat::map_from`], [`Hat::grant`], [`Hat::revoke`] are L4's
//! map, grant and unmap over the same lists (E99 section 3.2).
//!
//! Many small spaces can be seen through the root of whichever space runs ([`small`]), so that a switch
//! between them flushes nothing: [`Hat::lend`] copies entries of roots, and every operation empties the
//! copies of what it changes.
//!
//! Every operation has the same three steps: change the page table and gather the [`Flush`]
//! tokens, have the processors forget, and only then free the table frames that ride in the
//! tokens. Operations take `&self`; which lock they hold in which step is the [scheme's](locking).
//! One call for many frames or a long range makes one shootdown (G98 section 6.4.2).
//!
//! [`Flush`]: pagetable::Flush
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod change;
mod contexts;
mod frame;
mod give;
mod hat;
mod lend;
mod load;
pub mod locking;
mod look;
mod mmus;
mod part;
mod platform;
mod pool;
pub mod small;
mod space;
mod sparse;
mod unload;

pub use crate::{
    contexts::{ContextCounts, ContextLimit, Contexts, Entered, NoContext},
    frame::{Frame, Mapped},
    hat::{Hat, HatSpace, LoadError, MakeTable, Tables},
    platform::{Platform, Step},
    pool::{Pool, PoolCounts},
    space::{AddressSpace, MMUS_MAX, Mmu, MmuPlace, Numbers},
};
