//! Reading the guest's memory and the names of its files. The guest's pointers are checked.

use core::ffi::CStr;

use crate::qemu;

/// Fills `to` from the guest's memory at `address`; false if not all of it can be read.
pub(crate) fn read<T: Copy, const N: usize>(address: u64, to: &mut [T; N]) -> bool {
    read_bytes(address, to.as_mut_ptr().cast(), size_of::<[T; N]>()) == size_of::<[T; N]>()
}

/// Copies up to `length` bytes from the guest's `address`. Returns the number of bytes that could
/// be read.
pub(crate) fn read_bytes(address: u64, to: *mut u8, length: usize) -> usize {
    let from = (address as usize).wrapping_add(qemu::guest_base());
    let local = libc::iovec { iov_base: to.cast(), iov_len: length };
    let remote = libc::iovec { iov_base: from as *mut _, iov_len: length };
    // SAFETY: the kernel checks the remote side; `to` has room for `length` bytes.
    let copied = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    copied.max(0) as usize
}

/// Writes the path of the file that `fd` refers to into `path`. Returns its length; 0 if there is
/// none.
pub(crate) fn path_of(fd: u32, path: &mut [u8]) -> usize {
    let mut link = [0u8; 32];
    let Some(link) = proc_fd(fd, &mut link) else { return 0 };
    // SAFETY: the link is terminated, the buffer has the length that is given.
    let length = unsafe { libc::readlink(link.as_ptr(), path.as_mut_ptr().cast(), path.len()) };
    length.max(0) as usize
}

/// Device, inode and size in bytes of the file that `fd` refers to; zeros if `fd` is not open.
pub(crate) fn file_of(fd: i32) -> [u64; 3] {
    stat_of(fd).map_or([0; 3], |stat| [stat.st_dev, stat.st_ino, stat.st_size as u64])
}

/// The result of `fstat` for `fd`.
pub(crate) fn stat_of(fd: i32) -> Option<libc::stat> {
    // SAFETY: the system fills the structure, and all zeros are a valid value of it.
    unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        (libc::fstat(fd, &mut stat) == 0).then_some(stat)
    }
}

/// The System V shared memory segment `id`, described like a file: device 0, the segment's number
/// in place of an inode, and its size in bytes.
pub(crate) fn segment_of(id: i32) -> [u64; 3] {
    // SAFETY: as above.
    unsafe {
        let mut segment: libc::shmid_ds = core::mem::zeroed();
        match libc::shmctl(id, libc::IPC_STAT, &mut segment) {
            0 => [0, id as u64, segment.shm_segsz as u64],
            _ => [0; 3],
        }
    }
}

/// The path `/proc/self/fd/FD`.
pub(crate) fn proc_fd(fd: u32, link: &mut [u8; 32]) -> Option<&CStr> {
    let mut out = &mut link[..];
    std::io::Write::write_fmt(&mut out, format_args!("/proc/self/fd/{fd}\0")).ok()?;
    CStr::from_bytes_until_nul(link).ok()
}
