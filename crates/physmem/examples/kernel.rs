//! The code that a kernel must provide to use physical memory with size lists on two nodes, without
//! std.
//!
//! This is a library with its own panic handler. If anything below it linked std, there would be
//! two panic handlers, and it would not compile; every run of the tests builds it.
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

/// The memory of a machine with `bytes` bytes, all frames free.
pub fn begin(bytes: u64) -> Result<Memory, GeometryError> {
    let sizes = [PageSize::SIZE_4K, PageSize::SIZE_2M];
    Physmem::<SizeLists>::with_nodes(PhysAddr::new(0), bytes, sizes[0], 2, |frames| {
        SizeLists::new(frames, sizes[0], &sizes).expect("the sizes ascend from the base page")
    })
}

/// Allocates a wired page of 2 MiB, on the node next to a device, for a buffer that the device will
/// fill.
pub fn buffer(memory: &mut Memory, node: u8) -> Result<PhysAddr, OutOfFrames> {
    let node = Some(Home { node, strict: true });
    let order = memory.table().order(PageSize::SIZE_2M);
    let first = memory.allocate(&Request { node, ..Request::new(order, State::Kernel) })?;
    memory.wire(first);
    Ok(memory.table().address(first))
}
