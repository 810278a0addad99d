//! The mappings that exist when a process begins to record.
//!
//! QEMU knows the guest's regions and their rights; the kernel knows the files that they map. Both
//! are reported unchanged, and the host combines them.

use core::ffi::{c_int, c_void};

use ring::EventCode;

use crate::{events, global, qemu, span};

/// The number of bytes read from `/proc/self/maps` at a time.
const PIECE_BYTES: usize = 4096;

/// Reports all regions, then the text of `/proc/self/maps`, and then the guest's base.
pub(crate) fn tell(vcpu: u32) {
    let mut context = vcpu;
    qemu::walk_regions((&raw mut context).cast(), on_region);
    tell_maps(vcpu);
    span::event(vcpu, EventCode::Layout, &[&[qemu::guest_base() as u64]]);
}

/// Reports one region. Returns 0, so that QEMU continues with the next one.
unsafe extern "C" fn on_region(context: *mut c_void, start: u64, end: u64, flags: u64) -> c_int {
    // SAFETY: `context` is the address of a variable of `tell`, which waits for this call.
    let vcpu = unsafe { *context.cast::<u32>() };
    // For a 32-bit guest, only the lower 32 bits of these addresses are meaningful.
    let mask = global::guest().address_mask();
    span::event(vcpu, EventCode::Region, &[&[start & mask, end & mask, flags & 0xffff_ffff]]);
    0
}

fn tell_maps(vcpu: u32) {
    // SAFETY: system calls on a terminated path and a buffer of the given length.
    unsafe {
        let fd = libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return;
        }
        let mut piece = [0u8; PIECE_BYTES];
        loop {
            let length = libc::read(fd, piece.as_mut_ptr().cast(), PIECE_BYTES);
            if length <= 0 {
                break;
            }
            events::text(vcpu, EventCode::MapsText, &[], &piece[..length as usize]);
        }
        libc::close(fd);
    }
}
