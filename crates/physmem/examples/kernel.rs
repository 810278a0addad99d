//! A kernel's half: physical memory under size lists on two nodes, without std.
//!
//! This is a library with a panic handler of its own. Should anything below it pull std in,
//! there would be two, and it would not compile; every run of the tests builds it.
#![no_std]

use core::panic::PanicInfo;

use addr::{OutOfFrames, PageSize, PhysAddr};
use physmem::{GeometryError, Home, Nodes, Physmem, Request, SizeLists, State};

#[panic_handler]
fn halt(_: &PanicInfo<'_>) -> ! {
    loop {}
}

/// The memory of a machine of two nodes.
pub type Memory = Physmem<Nodes<SizeLists>>;

/// Finds all frames of a machine free.
pub fn begin(bytes: u64) -> Result<Memory, GeometryError> {
    let sizes = [PageSize::SIZE_4K, PageSize::SIZE_2M];
    Physmem::<SizeLists>::with_nodes(PhysAddr::new(0), bytes, sizes[0], 2, |frames| {
        SizeLists::new(frames, sizes[0], &sizes).expect("the sizes ascend from the base page")
    })
}

/// A page of 2 MiB for a buffer that a device will fill: on the node next to it, wired.
pub fn buffer(memory: &mut Memory, node: u8) -> Result<PhysAddr, OutOfFrames> {
    let node = Some(Home { node, strict: true });
    let order = memory.table().order(PageSize::SIZE_2M);
    let first = memory.allocate(&Request { node, ..Request::new(order, State::Kernel) })?;
    memory.wire(first);
    Ok(memory.table().address(first))
}
