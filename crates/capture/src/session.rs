//! The host's side of the shared memory.
//!
//! ```text
//!   file   | ... | chunk 7 | chunk 8 | ...
//!                     |  \
//!   view           [ chunk 7 | chunk 7 again ]     a segment that wraps is still one slice
//! ```
//!
//! A mapping stays until the last reference to it is dropped. The last user may be the session, or
//! a process that is still being closed.
//!
//! The file has no name. Recorded programs open it through this process's descriptor, and the
//! kernel removes it when the last user has ended, in whatever way.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ring::{
    Block, CHUNK_BYTES, CHUNKS_MAX, ChunkState, MAGIC, Next, Process, RING_RECORDS, Ring,
    SESSION_BYTES, Session as Head, VCPUS_MAX, VERSION, chunk_offset, next_offset, process_offset,
    ring_offset,
};

use trace::{Replaces, SurePages};

use crate::{Error, Sign};

/// The session, mapped.
#[derive(Debug)]
pub(crate) struct Session {
    file: File,
    mapping: Arc<Mapping>,
    views: Vec<Option<View>>,
    /// Whether accesses that QEMU itself makes may follow the accesses of a block.
    pub(crate) strays: bool,
}

/// A mapping of shared memory, which is unmapped when it is dropped.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is shared memory, which is accessed only through atomics or as published
// records.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and every value that points into it holds a
        // reference to this one.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// A structure in the session's memory, which stays mapped as long as this value exists.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    at: NonNull<T>,
    _mapping: Arc<Mapping>,
}

// SAFETY: the value gives out only shared references.
unsafe impl<T: Sync> Send for Shared<T> {}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `Session::shared` placed it inside the mapping, which is held; all fields that
        // programs change are atomic, and zero is valid.
        unsafe { self.at.as_ref() }
    }
}

/// The records of a chunk, mapped twice in a row as long as this value exists.
#[derive(Clone, Debug)]
pub(crate) struct View(Arc<Mapping>);

impl View {
    /// The first of `2 * RING_RECORDS` records.
    pub(crate) fn records(&self) -> *const u64 {
        self.0.base.cast().as_ptr()
    }
}

/// The settings that the plugin gets at the start.
pub(crate) struct Settings<'a> {
    pub(crate) filter_page16: bool,
    /// Whether the plugin may insert code into QEMU's translations.
    pub(crate) inline_code: bool,
    pub(crate) follow: bool,
    pub(crate) calls: bool,
    pub(crate) fetches: bool,
    /// Whether programs wait at their end for a last snapshot of their pages.
    pub(crate) pages: bool,
    pub(crate) skip_accesses: u64,
    /// The part that the engine leaves out of the recording; `None` if it records everything.
    pub(crate) left_out: Option<LeftOut>,
    pub(crate) sure: Option<SurePages>,
    /// The number of blocks that a process records before it asks for the contents of the TLBs, if they
    /// cannot be known otherwise.
    pub(crate) patience: u32,
    /// Whether accesses of QEMU itself may follow the accesses of a block; this field is not passed to the
    /// plugin.
    pub(crate) strays: bool,
    /// QEMU's path without the name of the architecture.
    pub(crate) qemu_prefix: &'a [u8],
    /// The path of the library that marks allocations, up to the name of the architecture; empty
    /// for none.
    pub(crate) allocations: &'a [u8],
}

/// What the engine leaves out of a recording.
#[derive(Clone, Default)]
pub(crate) struct LeftOut {
    /// The event with which the first window begins.
    pub(crate) from: Option<Sign>,
    /// The number of accesses between the event `from` and the first window.
    pub(crate) skip: u64,
    /// The lengths of windows and periods, or zeros.
    pub(crate) sample: [u64; 2],
}

impl LeftOut {
    /// The sign, and the number of its marker, as the session has them.
    fn sign(&self) -> (ring::BeginsWith, u64) {
        match self.from {
            None => (ring::BeginsWith::None, 0),
            Some(Sign::Symbol(_)) => (ring::BeginsWith::Symbol, 0),
            Some(Sign::Marker(None)) => (ring::BeginsWith::AnyMarker, 0),
            Some(Sign::Marker(Some(number))) => (ring::BeginsWith::Marker, number),
        }
    }
}

impl Session {
    /// Creates an empty session.
    pub(crate) fn new(settings: &Settings<'_>) -> Result<Session, Error> {
        let failed = |what: &str| Error::System {
            what: format!("cannot make the shared memory for recording ({what})"),
            error: io::Error::last_os_error(),
        };
        // SAFETY: the system calls get no pointers to memory of this process except names, and all
        // results are checked.
        let (file, base) = unsafe {
            let fd = libc::memfd_create(c"pagewalk".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return Err(failed("memfd_create (Linux 3.17 or later)"));
            }
            let file = File::from_raw_fd(fd);
            // Only this user may read the rings.
            if libc::fchmod(fd, 0o600) != 0 {
                return Err(failed("fchmod"));
            }
            if libc::ftruncate(fd, SESSION_BYTES as i64) != 0 {
                return Err(failed("ftruncate"));
            }
            let base = map(ptr::null_mut(), SESSION_BYTES, fd, 0).ok_or_else(|| failed("mmap"))?;
            (file, base)
        };
        let left_out = settings.left_out.clone().unwrap_or_default();
        let (sign, sign_number) = left_out.sign();
        let head = Head {
            magic: MAGIC,
            version: VERSION,
            host_pid: std::process::id(),
            filter_page16: settings.filter_page16.into(),
            inline_code: settings.inline_code.into(),
            follow: settings.follow.into(),
            calls: settings.calls.into(),
            fetches: settings.fetches.into(),
            pages: settings.pages.into(),
            sure_pages: settings.sure.map_or([0; 2], |sure| sure.pages),
            sure_sets: settings.sure.map_or([1; 2], |sure| sure.sets),
            sure_replaces: settings.sure.map_or([0; 2], |sure| sure.replaces.map(bits)),
            sure_patience: settings.patience,
            sure_together: settings.sure.is_some_and(|sure| sure.together).into(),
            skip_accesses: settings.skip_accesses,
            qemu: [0; ring::PATH_BYTES_MAX],
            plugin: [0; 2 * ring::PATH_BYTES_MAX],
            allocations: [0; ring::PATH_BYTES_MAX],
            over: 0.into(),
            arrivals: 0.into(),
            host_sleeps: 0.into(),
            doorbell: 0.into(),
            chunks_high: 0.into(),
            processes_high: 0.into(),
            running: 1.into(),
            asks: 0.into(),
            counts: 0.into(),
            is_refused: 0.into(),
            lost: 0.into(),
            refused_at: 0.into(),
            refused: [const { std::sync::atomic::AtomicU8::new(0) }; ring::REFUSED_BYTES_MAX],
            leaves_out: settings.left_out.is_some().into(),
            sign: sign as u32,
            sign_number,
            leave_out: left_out.skip,
            sample: left_out.sample,
            begun: 0.into(),
            leaves: 0.into(),
        };
        // SAFETY: the mapping is large enough and aligned, and no other code uses it yet.
        unsafe { base.cast::<Head>().write(head) };
        let mapping = Arc::new(Mapping { base, bytes: SESSION_BYTES });
        let views = vec![None; CHUNKS_MAX];
        let mut session = Session { file, mapping, views, strays: settings.strays };
        session.tell(settings.qemu_prefix, |head| &mut head.qemu)?;
        session.tell(settings.allocations, |head| &mut head.allocations)?;
        Ok(session)
    }

    /// The path by which a recorded program opens the session.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Sets the `-plugin` argument for programs that recorded ones execute.
    pub(crate) fn set_plugin(&mut self, argument: &[u8]) -> Result<(), Error> {
        self.tell(argument, |head| &mut head.plugin)
    }

    fn tell<const N: usize>(
        &mut self,
        text: &[u8],
        field: impl Fn(&mut Head) -> &mut [u8; N],
    ) -> Result<(), Error> {
        if text.len() >= N {
            return Err(Error::System {
                what: String::from_utf8_lossy(text).into_owned(),
                error: io::Error::from_raw_os_error(libc::ENAMETOOLONG),
            });
        }
        // SAFETY: no program that could read the head has been started yet.
        let to = field(unsafe { self.mapping.base.cast::<Head>().as_mut() });
        to[..text.len()].copy_from_slice(text);
        Ok(())
    }

    /// The data common to all processes.
    pub(crate) fn head(&self) -> &Head {
        // SAFETY: `new` has written the head, and all fields that programs change are atomic.
        unsafe { self.mapping.base.cast().as_ref() }
    }

    /// If the engine has ended a program: the address at which it stopped, and the reason.
    pub(crate) fn refused(&self) -> Option<(u64, String)> {
        let head = self.head();
        if head.is_refused.load(Ordering::Acquire) == 0 {
            return None;
        }
        let bytes = head.refused.iter().map(|byte| byte.load(Ordering::Relaxed));
        let bytes: Vec<u8> = bytes.take_while(|&byte| byte != 0).collect();
        let pc = head.refused_at.load(Ordering::Relaxed);
        Some((pc, String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// The slot of a process.
    pub(crate) fn process(&self, slot: usize) -> Shared<Process> {
        self.shared(process_offset(slot))
    }

    /// The header of a chunk.
    pub(crate) fn ring(&self, chunk: usize) -> Shared<Ring> {
        self.shared(ring_offset(chunk))
    }

    /// The cursor of virtual CPU `vcpu` of the process in `slot`.
    pub(crate) fn next(&self, slot: usize, vcpu: u32) -> Shared<Next> {
        let index = vcpu as usize % VCPUS_MAX;
        self.shared(next_offset(slot) + index * size_of::<Next>())
    }

    /// The part of the session for another thread of the host.
    pub(crate) fn heads(&self) -> Heads {
        Heads(Arc::clone(&self.mapping))
    }

    fn shared<T: Sync>(&self, offset: usize) -> Shared<T> {
        shared(&self.mapping, offset)
    }

    /// Descriptor `index` of a chunk of a block log. It must have been published.
    pub(crate) fn block(&self, chunk: usize, index: usize) -> Block {
        assert!(chunk < CHUNKS_MAX && index < ring::BLOCKS_PER_CHUNK);
        // SAFETY: the block lies inside the chunk and was written before it was published.
        unsafe { self.mapping.base.add(chunk_offset(chunk)).cast::<Block>().add(index).read() }
    }

    /// Tag `index` of a chunk of a log of tags. It must have been published.
    pub(crate) fn tag(&self, chunk: usize, index: usize) -> u16 {
        assert!(chunk < CHUNKS_MAX && index < ring::TAGS_PER_CHUNK);
        // SAFETY: as above.
        unsafe { self.mapping.base.add(chunk_offset(chunk)).cast::<u16>().add(index).read() }
    }

    /// The records of a chunk, twice in a row.
    pub(crate) fn view(&mut self, chunk: usize) -> Result<View, Error> {
        if let Some(view) = &self.views[chunk] {
            return Ok(view.clone());
        }
        let failed = || Error::System {
            what: "cannot map a ring of the recording".to_owned(),
            error: io::Error::last_os_error(),
        };
        let fd = self.file.as_raw_fd();
        // SAFETY: the second and third mappings replace parts of the first, which this function has
        // made. If one of them fails, dropping `mapping` unmaps all of it.
        let mapping = unsafe {
            let both = libc::mmap(
                ptr::null_mut(),
                2 * CHUNK_BYTES,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            );
            if both == libc::MAP_FAILED {
                return Err(failed());
            }
            let base = NonNull::new(both.cast()).ok_or_else(failed)?;
            let mapping = Mapping { base, bytes: 2 * CHUNK_BYTES };
            for half in [both, both.byte_add(CHUNK_BYTES)] {
                map(half, CHUNK_BYTES, fd, chunk_offset(chunk)).ok_or_else(failed)?;
            }
            mapping
        };
        let view = View(Arc::new(mapping));
        self.views[chunk] = Some(view.clone());
        Ok(view)
    }

    /// Frees a chunk.
    pub(crate) fn free_chunk(&self, chunk: usize) {
        self.ring(chunk).state.store(ChunkState::Free as u32, Ordering::Release);
    }

    /// Sleeps until a recorded thread has written records to read, for at most `timeout_ms`. Does
    /// not sleep if the count of arrivals differs from `arrivals`.
    pub(crate) fn sleep(&self, timeout_ms: i64, arrivals: u32) {
        let head = self.head();
        let bell = head.doorbell.load(Ordering::Acquire);
        head.host_sleeps.store(1, Ordering::SeqCst);
        if head.arrivals.load(Ordering::SeqCst) == arrivals {
            let timeout = libc::timespec {
                tv_sec: timeout_ms / 1000,
                tv_nsec: timeout_ms % 1000 * 1_000_000,
            };
            // SAFETY: the word lies in memory that is mapped.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    head.doorbell.as_ptr(),
                    libc::FUTEX_WAIT,
                    bell,
                    &timeout,
                )
            };
        }
        head.host_sleeps.store(0, Ordering::Release);
    }
}

/// The time of the system's monotonic clock, which all processors share, in nanoseconds.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one `timespec`. Every Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The number of a replacement policy in the session.
fn bits(replaces: Replaces) -> u32 {
    let replaces = match replaces {
        Replaces::Lru => ring::Replaces::Lru,
        Replaces::Fifo => ring::Replaces::Fifo,
        Replaces::Random => ring::Replaces::Random,
    };
    replaces as u32
}

/// If a thread waits for space in `ring`, or for an answer: wakes it.
pub(crate) fn wake_writer(ring: &Ring) {
    if ring.writer_sleeps.swap(0, Ordering::AcqRel) != 0 {
        ring.space.fetch_add(1, Ordering::Release);
        // SAFETY: the word lies in memory that is mapped.
        unsafe { libc::syscall(libc::SYS_futex, ring.space.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }
}

/// The structure at `offset`, which must consist of atomics and of numbers that do not change.
fn shared<T: Sync>(mapping: &Arc<Mapping>, offset: usize) -> Shared<T> {
    assert!(offset + size_of::<T>() <= mapping.bytes, "it lies outside the session");
    // SAFETY: the value lies inside the mapping, as the check above shows.
    let at = unsafe { mapping.base.add(offset).cast::<T>() };
    assert!(at.is_aligned(), "structures of the session are aligned");
    Shared { at, _mapping: Arc::clone(mapping) }
}

/// The session's data common to all processes, and its processes, for another thread of the host.
#[derive(Clone, Debug)]
pub(crate) struct Heads(Arc<Mapping>);

impl Heads {
    /// The data common to all processes.
    pub(crate) fn head(&self) -> &Head {
        // SAFETY: as for `Session::head`.
        unsafe { self.0.base.cast().as_ref() }
    }

    /// The slot of a process.
    pub(crate) fn process(&self, slot: usize) -> Shared<Process> {
        shared(&self.0, process_offset(slot))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.head().over.store(1, Ordering::Release);
    }
}

/// Maps a part of the session's file, at `at` if that is not null.
unsafe fn map(at: *mut libc::c_void, bytes: usize, fd: i32, offset: usize) -> Option<NonNull<u8>> {
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    // SAFETY: the caller owns the memory at `at`.
    let mapped = unsafe {
        libc::mmap(
            at,
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_NORESERVE | fixed,
            fd,
            offset as i64,
        )
    };
    if mapped == libc::MAP_FAILED { None } else { NonNull::new(mapped.cast()) }
}

const _: () = assert!(RING_RECORDS * 8 == CHUNK_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes are closed after the session if a recording ends early.
    #[test]
    fn what_was_handed_out_outlives_the_session() {
        let settings = Settings {
            filter_page16: false,
            inline_code: true,
            follow: true,
            fetches: true,
            pages: false,
            skip_accesses: 0,
            left_out: None,
            sure: None,
            patience: 0,
            strays: false,
            calls: false,
            qemu_prefix: b"/usr/bin/qemu-",
            allocations: b"",
        };
        let mut session = Session::new(&settings).unwrap();
        let (process, ring, next) = (session.process(3), session.ring(2), session.next(3, 1));
        let view = session.view(2).unwrap();
        drop(session);
        process.pid.store(17, Ordering::Relaxed);
        ring.thread.store(5, Ordering::Relaxed);
        assert_eq!(process.pid.load(Ordering::Relaxed), 17);
        assert_eq!(ring.thread.load(Ordering::Relaxed), 5);
        assert_eq!(next.position(0, 1), None);
        // SAFETY: no other code uses the chunk.
        unsafe {
            view.records().cast_mut().write(42);
            assert_eq!(view.records().add(RING_RECORDS).read(), 42);
        }
    }
}
