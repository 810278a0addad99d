//! The code that a kernel must provide to use the HAT layer over x86-64 page tables, without std.
//!
//! This is a library with its own panic handler. If anything below it linked std, there would be
//! two panic handlers, and it would not compile; every run of the tests builds it.
#![no_std]

extern crate alloc;

use alloc::boxed::Box;
use core::panic::PanicInfo;

use addr::{Frames, Memory, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use hat::{Hat, HatSpace, LoadError, Platform};
use pagetable::{Flush, Mount, Translation, X86_64};

#[panic_handler]
fn halt(_: &PanicInfo<'_>) -> ! {
    loop {}
}

/// The processors of this kernel, and its allocator of frames.
pub struct Cpus<F> {
    frames: F,
    /// Executes INVLPG or reloads CR3 on every processor whose TLB may hold entries that the token
    /// names.
    invalidate: fn(HatSpace, &Flush),
}

impl<F: Frames> Platform for Cpus<F> {
    fn shoot(&mut self, flushes: &[(HatSpace, Flush)]) {
        for (space, flush) in flushes {
            (self.invalidate)(*space, flush);
        }
    }

    fn frames(&mut self) -> &mut dyn Frames {
        &mut self.frames
    }
}

/// Creates a space with one page of 2 MiB and unmaps the second half of this page.
pub fn half_a_page<M: Memory + Send + Sync, F: Frames>(
    memory: M,
    cpus: &mut Cpus<F>,
    frame: PhysAddr,
) -> Result<HatSpace, LoadError> {
    let hat = Hat::new(Box::new(Mount::tree(X86_64::<4>::new(), memory)));
    let space = hat.create(cpus)?;
    let page = VirtAddr::new(0x4000_0000).page(PageSize::SIZE_2M);
    let whole = Translation::new(page, frame, Rights::ALL);
    hat.load(space, whole, 1, cpus)?;
    hat.resize(space, VirtRange::of_page(page), PageSize::SIZE_4K, cpus)?;
    let half = VirtRange::new(page.start().wrapping_add(1 << 20), 1 << 20);
    let half = half.map_err(|error| LoadError::Table(error.into()))?;
    hat.unload(space, half, &mut |_| (), cpus)?;
    Ok(space)
}
