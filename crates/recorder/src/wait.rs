//! Waking the host, and waiting for it.

use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

use ring::{Contents, RING_RECORDS, Ring, SPAN_RECORDS, Session};

/// The time in nanoseconds between two checks that the host is alive.
const PATIENCE_NS: i64 = 100_000_000;

fn futex(word: &AtomicU32, operation: i32, value: u32, timeout: *const libc::timespec) {
    // SAFETY: the word is mapped until the process ends.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, timeout) };
}

/// Wakes the host if the host sleeps.
pub(crate) fn ring_doorbell(session: &Session) {
    if session.host_sleeps.load(Ordering::Relaxed) != 0
        && session.host_sleeps.swap(0, Ordering::AcqRel) != 0
    {
        session.doorbell.fetch_add(1, Ordering::Release);
        futex(&session.doorbell, libc::FUTEX_WAKE, 1, ptr::null());
    }
}

/// Tells the host that a process or a thread has arrived.
pub(crate) fn announce(session: &Session) {
    session.arrivals.fetch_add(1, Ordering::AcqRel);
    ring_doorbell(session);
}

/// The maximum number of records of a ring that wait for the host. The other records of the ring
/// are those that the host has read last: their lines are still in the cache of the host's core,
/// and fetching them from there is slow.
const FULL_RECORDS: u64 = RING_RECORDS as u64 / 4 * 3;

/// Whether a span that begins at `position` can be written.
pub(crate) fn has_space(ring: &Ring, position: u64) -> bool {
    position + SPAN_RECORDS as u64 - ring.tail.load(Ordering::Acquire) <= FULL_RECORDS
}

/// Waits until the host has read enough records that a span at `position` can be written, but for a
/// limited time. Returns false if the host has ended.
pub(crate) fn wait_for_space(session: &Session, ring: &Ring, position: u64) -> bool {
    wait_until(session, ring, || has_space(ring, position))
}

/// Waits until there is room for a mark, but for a limited time. Returns false if the host has
/// ended.
pub(crate) fn wait_for_marks(session: &Session, ring: &Ring) -> bool {
    wait_until(session, ring, || ring.has_room_for_mark())
}

/// Waits until the host reports the contents of the first-level TLBs, but for a limited time.
/// Returns false if the host has ended.
pub(crate) fn wait_for_contents(session: &Session, ring: &Ring, contents: &Contents) -> bool {
    wait_until(session, ring, || contents.answered().is_some())
}

fn wait_until(session: &Session, ring: &Ring, is_done: impl Fn() -> bool) -> bool {
    let space = ring.space.load(Ordering::Acquire);
    ring.writer_sleeps.store(1, Ordering::SeqCst);
    ring_doorbell(session);
    if !is_done() {
        let timeout = libc::timespec { tv_sec: 0, tv_nsec: PATIENCE_NS };
        futex(&ring.space, libc::FUTEX_WAIT, space, &timeout);
    }
    ring.writer_sleeps.store(0, Ordering::Relaxed);
    is_done() || is_alive(session.host_pid)
}

/// The time of the system's monotonic clock, which all processors share, in nanoseconds.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one `timespec`. Every Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Whether the process exists and has not ended. A zombie counts as ended.
fn is_alive(pid: u32) -> bool {
    // SAFETY: signal 0 is not delivered; it only checks that the process exists.
    unsafe {
        if libc::kill(pid as i32, 0) != 0 && *libc::__errno_location() == libc::ESRCH {
            return false;
        }
    }
    let mut path = [0u8; 32];
    let mut stat = [0u8; 256];
    let text = format_into(&mut path, pid);
    // SAFETY: the path is terminated, and the buffer has the given length.
    let length = unsafe {
        let fd = libc::open(text, libc::O_RDONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return true;
        }
        let length = libc::read(fd, stat.as_mut_ptr().cast(), stat.len());
        libc::close(fd);
        length.max(0) as usize
    };
    // The format is "pid (name) state". The name may contain any characters, so search from the
    // end.
    let after = stat[..length].iter().rposition(|&byte| byte == b')');
    after.and_then(|at| stat.get(at + 2)).is_none_or(|&state| state != b'Z' && state != b'X')
}

/// Writes the path `/proc/PID/stat`, zero-terminated, without allocating.
fn format_into(path: &mut [u8; 32], pid: u32) -> *const libc::c_char {
    let mut digits = [0u8; 10];
    let mut count = 0;
    let mut rest = pid;
    loop {
        digits[count] = b'0' + (rest % 10) as u8;
        count += 1;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let pid = digits[..count].iter().rev().copied();
    for (to, from) in path.iter_mut().zip(b"/proc/".iter().copied().chain(pid).chain(*b"/stat\0")) {
        *to = from;
    }
    path.as_ptr().cast()
}
