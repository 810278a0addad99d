//! The host's side of the shared memory.
//!
//! ```text
//!   file   | ... | chunk 7 | chunk 8 | ...
//!                     |  \
//!   view           [ chunk 7 | chunk 7 again ]     a segment that wraps is still one slice
//! ```
//!
//! The file has no name: recorded programs open it through this process's descriptor, and it
//! is gone when the last of them has ended, however that happens.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;

use ring::{
    Block, CHUNK_BYTES, CHUNKS_MAX, ChunkState, MAGIC, Next, Process, RING_RECORDS, Ring,
    SESSION_BYTES, Session as Head, VCPUS_MAX, VERSION, chunk_offset, next_offset, process_offset,
    ring_offset,
};

use crate::Error;

/// The session, mapped.
#[derive(Debug)]
pub(crate) struct Session {
    file: File,
    base: NonNull<u8>,
    views: Vec<Option<NonNull<u64>>>,
    /// Whether QEMU's own accesses may follow a block's.
    pub(crate) strays: bool,
}

// SAFETY: the mappings are plain shared memory, reached through atomics or handed-over records.
unsafe impl Send for Session {}

/// What is told to the plugin at the start.
pub(crate) struct Settings<'a> {
    pub(crate) filter_page16: bool,
    /// Whether the plugin may write into QEMU's intermediate code.
    pub(crate) inline_code: bool,
    pub(crate) follow: bool,
    pub(crate) calls: bool,
    pub(crate) fetches: bool,
    pub(crate) skip_accesses: u64,
    /// Whether QEMU's own accesses may follow a block's; the plugin needs not know.
    pub(crate) strays: bool,
    /// QEMU's path without the processor's name.
    pub(crate) qemu_prefix: &'a [u8],
}

impl Session {
    /// Makes an empty session.
    pub(crate) fn new(settings: &Settings<'_>) -> Result<Session, Error> {
        let failed = |what: &str| Error::System {
            what: format!("cannot make the shared memory for recording ({what})"),
            error: io::Error::last_os_error(),
        };
        // SAFETY: plain system calls; results are checked.
        let (file, base) = unsafe {
            let fd = libc::memfd_create(c"pagewalk".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return Err(failed("memfd_create"));
            }
            let file = File::from_raw_fd(fd);
            if libc::ftruncate(fd, SESSION_BYTES as i64) != 0 {
                return Err(failed("ftruncate"));
            }
            let base = map(ptr::null_mut(), SESSION_BYTES, fd, 0).ok_or_else(|| failed("mmap"))?;
            (file, base)
        };
        let head = Head {
            magic: MAGIC,
            version: VERSION,
            host_pid: std::process::id(),
            filter_page16: settings.filter_page16.into(),
            inline_code: settings.inline_code.into(),
            follow: settings.follow.into(),
            calls: settings.calls.into(),
            fetches: settings.fetches.into(),
            pad: 0,
            skip_accesses: settings.skip_accesses,
            qemu: [0; ring::PATH_BYTES_MAX],
            plugin: [0; 2 * ring::PATH_BYTES_MAX],
            over: 0.into(),
            arrivals: 0.into(),
            host_sleeps: 0.into(),
            doorbell: 0.into(),
            chunks_high: 0.into(),
            processes_high: 0.into(),
            lost: 0.into(),
        };
        // SAFETY: the mapping is large and aligned enough, and nobody else has it yet.
        unsafe { base.cast::<Head>().write(head) };
        let views = vec![None; CHUNKS_MAX];
        let mut session = Session { file, base, views, strays: settings.strays };
        session.tell(settings.qemu_prefix, |head| &mut head.qemu)?;
        Ok(session)
    }

    /// Where a recorded program finds the session.
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
        // SAFETY: no program has been started that could look at it.
        let to = field(unsafe { self.base.cast::<Head>().as_mut() });
        to[..text.len()].copy_from_slice(text);
        Ok(())
    }

    /// What all processes share.
    pub(crate) fn head(&self) -> &Head {
        // SAFETY: `new` has written it; what programs change in it is atomic.
        unsafe { self.base.cast().as_ref() }
    }

    /// A process's slot.
    pub(crate) fn process(&self, slot: usize) -> &'static Process {
        // SAFETY: the mapping is never undone; all fields are atomic, and zero is valid.
        unsafe { self.base.add(process_offset(slot)).cast().as_ref() }
    }

    /// The header of a chunk.
    pub(crate) fn ring(&self, chunk: usize) -> &'static Ring {
        // SAFETY: as above.
        unsafe { self.base.add(ring_offset(chunk)).cast().as_ref() }
    }

    /// Where virtual CPU `vcpu` of the process in `slot` writes next.
    pub(crate) fn next(&self, slot: usize, vcpu: u32) -> &'static Next {
        let index = vcpu as usize % VCPUS_MAX;
        // SAFETY: as above.
        unsafe { self.base.add(next_offset(slot)).cast::<Next>().add(index).as_ref() }
    }

    /// Descriptor `index` of a chunk of a block log. It must have been published.
    pub(crate) fn block(&self, chunk: usize, index: usize) -> Block {
        assert!(index < ring::BLOCKS_PER_CHUNK);
        // SAFETY: inside the chunk, and written before it was published.
        unsafe { self.base.add(chunk_offset(chunk)).cast::<Block>().add(index).read() }
    }

    /// Tag `index` of a chunk of a log of tags. It must have been published.
    pub(crate) fn tag(&self, chunk: usize, index: usize) -> u16 {
        assert!(chunk < CHUNKS_MAX && index < ring::TAGS_PER_CHUNK);
        // SAFETY: as above.
        unsafe { self.base.add(chunk_offset(chunk)).cast::<u16>().add(index).read() }
    }

    /// The records of a chunk, twice in a row: `2 * RING_RECORDS` of them.
    pub(crate) fn view(&mut self, chunk: usize) -> Result<NonNull<u64>, Error> {
        if let Some(view) = self.views[chunk] {
            return Ok(view);
        }
        let failed = || Error::System {
            what: "cannot map a ring of the recording".to_owned(),
            error: io::Error::last_os_error(),
        };
        let fd = self.file.as_raw_fd();
        // SAFETY: the second and third mapping replace the first, which is this function's.
        let view = unsafe {
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
            for half in [both, both.byte_add(CHUNK_BYTES)] {
                map(half, CHUNK_BYTES, fd, chunk_offset(chunk)).ok_or_else(failed)?;
            }
            NonNull::new(both.cast()).ok_or_else(failed)?
        };
        self.views[chunk] = Some(view);
        Ok(view)
    }

    /// Gives a chunk back for others to take.
    pub(crate) fn free_chunk(&self, chunk: usize) {
        self.ring(chunk).state.store(ChunkState::Free as u32, Ordering::Release);
    }

    /// Sleeps until a recorded thread has something, `timeout_ms` at most; not at all if
    /// `arrivals` is out of date.
    pub(crate) fn sleep(&self, timeout_ms: i64, arrivals: u32) {
        let head = self.head();
        let bell = head.doorbell.load(Ordering::Acquire);
        head.host_sleeps.store(1, Ordering::SeqCst);
        if head.arrivals.load(Ordering::SeqCst) == arrivals {
            let timeout = libc::timespec {
                tv_sec: timeout_ms / 1000,
                tv_nsec: timeout_ms % 1000 * 1_000_000,
            };
            // SAFETY: the word is mapped.
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

/// Nanoseconds of the system's monotonic clock, which all processors share.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one `timespec`; the clock is there on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Wakes the thread that waits for space in `ring`, if one does.
pub(crate) fn wake_writer(ring: &Ring) {
    if ring.writer_sleeps.swap(0, Ordering::AcqRel) != 0 {
        ring.space.fetch_add(1, Ordering::Release);
        // SAFETY: the word is mapped.
        unsafe { libc::syscall(libc::SYS_futex, ring.space.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.head().over.store(1, Ordering::Release);
        // The views and the mapping itself stay until here only: nothing outlives the session
        // that still has references into it.
        // SAFETY: these mappings are this value's.
        unsafe {
            for view in self.views.iter().flatten() {
                libc::munmap(view.as_ptr().cast(), 2 * CHUNK_BYTES);
            }
            libc::munmap(self.base.as_ptr().cast(), SESSION_BYTES);
        }
    }
}

/// Maps part of the session's file, at `at` if that is not null.
unsafe fn map(at: *mut libc::c_void, bytes: usize, fd: i32, offset: usize) -> Option<NonNull<u8>> {
    let fixed = if at.is_null() { 0 } else { libc::MAP_FIXED };
    // SAFETY: the caller owns what is at `at`.
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
