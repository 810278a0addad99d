//! Reports to the host other than accesses: mappings, and system calls that change them.

use alloc::vec::Vec;

use ring::{Call, EventCode, PR_PAGEWALK};

use crate::run::Engine;
use crate::sys::{self, nr};
use crate::{library, own, translate};

/// Linux: the option of `prctl` that disables huge pages.
const PR_SET_THP_DISABLE: u64 = 41;
const AT_FDCWD: u64 = -100i64 as u64;
const O_CLOEXEC: u64 = 0o2000000;

/// A line of `/proc/self/maps`.
struct Line {
    start: u64,
    end: u64,
    rights: u64,
    is_shared: bool,
}

fn parse(line: &[u8]) -> Option<Line> {
    let mut fields = line.split(|&byte| byte == b' ');
    let range = core::str::from_utf8(fields.next()?).ok()?;
    let (start, end) = range.split_once('-')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let mut rights = 0;
    let letters = fields.next()?;
    for (&letter, bit) in letters.iter().zip([sys::PROT_READ, sys::PROT_WRITE, sys::PROT_EXEC]) {
        if letter != b'-' {
            rights |= bit;
        }
    }
    let is_shared = letters.get(3) == Some(&b's');
    Some(Line { start: hex(start)?, end: hex(end)?, rights, is_shared })
}

impl Engine {
    /// Reports all mappings. If the program `is_new`, also takes note which of them are executable.
    pub(crate) fn tell_mappings(&mut self, is_new: bool) {
        let text = maps();
        for line in text.split(|&byte| byte == b'\n').filter_map(parse) {
            if own::holds(line.start) || translate::holds(line.start) {
                continue;
            }
            self.recorder.event(EventCode::Region, &[&[line.start, line.end, line.rights]]);
            // Only code that can be read can be translated.
            if is_new && line.rights & sys::PROT_READ != 0 {
                let bytes = line.end - line.start;
                self.map_code(line.start, bytes, line.rights, line.is_shared);
            }
        }
        for piece in text.chunks(4096) {
            self.recorder.text(EventCode::MapsText, &[], piece);
        }
        self.recorder.event(EventCode::Layout, &[&[0]]);
        // SAFETY: `gettid` takes no arguments and cannot fail.
        let tid = unsafe { sys::call(nr::GETTID, [0; 6]) } as u64;
        self.recorder.event(EventCode::ThreadStart, &[&[tid]]);
        self.recorder.mark();
    }

    /// Records that the program has made a mapping with the rights `rights`.
    fn map_code(&mut self, start: u64, bytes: u64, rights: u64, is_shared: bool) {
        for code in self.shared.codes() {
            code.lock().mapped(start, bytes, rights, is_shared);
        }
    }

    /// Handles `mlockall`: locks the program's mappings one by one, as the kernel would load all of the session, too,
    /// whose memory is never used in full.
    pub(crate) fn lock_all(&mut self, arguments: [u64; 6]) -> i64 {
        const MCL_CURRENT: u64 = 1;
        const MCL_FUTURE: u64 = 2;
        const MCL_ONFAULT: u64 = 4;
        const MLOCK_ONFAULT: u64 = 1;
        let [flags, ..] = arguments;
        let is_valid = flags & !(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0;
        if !is_valid || flags & MCL_CURRENT == 0 {
            return self.call(nr::MLOCKALL, arguments);
        }
        if flags & MCL_FUTURE != 0 {
            let result = self.call(nr::MLOCKALL, [flags & !MCL_CURRENT, 0, 0, 0, 0, 0]);
            if result != 0 {
                return result;
            }
        }
        let how = if flags & MCL_ONFAULT != 0 { MLOCK_ONFAULT } else { 0 };
        for line in maps().split(|&byte| byte == b'\n').filter_map(parse) {
            if !own::holds(line.start) && !translate::holds(line.start) {
                // Mappings that cannot be loaded are skipped, as the kernel does. SAFETY: contents
                // and rights stay what they are.
                unsafe { sys::call(nr::MLOCK2, [line.start, line.end - line.start, how, 0, 0, 0]) };
            }
        }
        0
    }

    /// Looks for an executable mapping at `pc` that the engine does not know yet, and notes it. If two threads change one
    /// mapping, the second may report first. Returns whether there is such a mapping.
    pub(crate) fn learn(&mut self, pc: u64) -> bool {
        if self.code().is_known(pc) {
            return false;
        }
        let is_executable =
            |line: &Line| line.rights & sys::PROT_EXEC != 0 && (line.start..line.end).contains(&pc);
        let text = maps();
        let mut lines = text.split(|&byte| byte == b'\n').filter_map(parse);
        let found = lines.find(is_executable).filter(|line| !translate::holds(line.start));
        if let Some(line) = &found {
            let bytes = line.end - line.start;
            self.map_code(line.start, bytes, line.rights, line.is_shared);
        }
        found.is_some()
    }

    /// Reports a system call that has returned, or is about to end the process.
    pub(crate) fn tell(&mut self, call: Call, arguments: [u64; 6], result: i64) {
        let mut path = [0u8; 4096];
        let (mut length, mut file) = (0, [0; 3]);
        let mut arguments = arguments;
        if result >= 0 {
            match call {
                Call::Mmap if arguments[4] as i32 >= 0 => {
                    length = path_of(arguments[4], &mut path);
                    file = file_of(arguments[4]);
                    if arguments[2] & sys::PROT_EXEC != 0 {
                        let (stem, path) = (self.recorder.libraries(), &path[..length]);
                        library::mapped(stem, path, result as u64, arguments[1]);
                    }
                }
                Call::Shmat => file = segment_of(arguments[0]),
                _ => {}
            }
        }
        if call == Call::Mbind {
            let mut nodes = 0u64;
            crate::ways::read(arguments[3], &mut nodes);
            arguments[3] = nodes;
        }
        let [a, b, c, d, e, f] = arguments;
        let [device, inode, bytes] = file;
        let words = [call as u64, a, b, c, d, e, f, result as u64, device, inode, bytes];
        self.recorder.text(EventCode::Call, &words, &path[..length]);
    }
}

/// The text of `/proc/self/maps`.
fn maps() -> Vec<u8> {
    let mut text = Vec::new();
    // SAFETY: the name ends with a zero byte, and the buffer has the given length.
    unsafe {
        let path = c"/proc/self/maps".as_ptr() as u64;
        let fd = sys::call(nr::OPENAT, [AT_FDCWD, path, O_CLOEXEC, 0, 0, 0]);
        let mut piece = [0u8; 4096];
        loop {
            let to = piece.as_mut_ptr() as u64;
            let length = sys::call(nr::READ, [fd as u64, to, piece.len() as u64, 0, 0, 0]);
            if length <= 0 {
                break;
            }
            text.extend_from_slice(&piece[..length as usize]);
        }
        sys::call(nr::CLOSE, [fd as u64, 0, 0, 0, 0, 0]);
    }
    text
}

/// The kind of a system call, if it changes the address space or begins or ends processes.
pub(crate) fn call_of(number: u64, arguments: [u64; 6]) -> Option<Call> {
    Some(match number {
        nr::MMAP => Call::Mmap,
        nr::MPROTECT | nr::PKEY_MPROTECT => Call::Mprotect,
        nr::MUNMAP => Call::Munmap,
        nr::BRK => Call::Brk,
        nr::MREMAP => Call::Mremap,
        nr::MADVISE => Call::Madvise,
        nr::EXIT => Call::Exit,
        nr::MSYNC => Call::Msync,
        nr::SHMAT => Call::Shmat,
        nr::SHMDT => Call::Shmdt,
        nr::MLOCK => Call::Mlock,
        nr::MUNLOCK => Call::Munlock,
        nr::MLOCKALL => Call::Mlockall,
        nr::MUNLOCKALL => Call::Munlockall,
        nr::EXIT_GROUP => Call::ExitGroup,
        nr::MBIND => Call::Mbind,
        nr::MLOCK2 => Call::Mlock2,
        nr::PROCESS_MADVISE => Call::ProcessMadvise,
        nr::PRCTL if arguments[0] as u32 as u64 == PR_PAGEWALK => Call::Marker,
        nr::PRCTL if arguments[0] as u32 as u64 == PR_SET_THP_DISABLE => Call::HugePages,
        _ => return None,
    })
}

/// Writes the path of the file that `fd` refers to. Returns its length.
pub(crate) fn path_of(fd: u64, path: &mut [u8]) -> usize {
    let mut link = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0";
    let (mut rest, mut digits) = (fd & 0xffff_ffff, 1);
    while rest >= 10 {
        rest /= 10;
        digits += 1;
    }
    let mut rest = fd & 0xffff_ffff;
    for at in (14..14 + digits).rev() {
        link[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let (from, to) = (link.as_ptr() as u64, path.as_mut_ptr() as u64);
    // SAFETY: the path of the link ends with a zero byte, and the buffer has the given length.
    let length = unsafe { sys::call(nr::READLINK, [from, to, path.len() as u64, 0, 0, 0]) };
    length.max(0) as usize
}

/// Device, inode and size in bytes of the file that `fd` refers to; zeros if `fd` is not open.
fn file_of(fd: u64) -> [u64; 3] {
    let mut stat = [0u64; 18];
    // SAFETY: `struct stat` has 144 bytes.
    let result = unsafe { sys::call(nr::FSTAT, [fd, stat.as_mut_ptr() as u64, 0, 0, 0, 0]) };
    if result == 0 { [stat[0], stat[1], stat[6]] } else { [0; 3] }
}

/// The System V shared memory segment `id` in the form of a file: device 0, its number, and its
/// size in bytes.
fn segment_of(id: u64) -> [u64; 3] {
    const IPC_STAT: u64 = 2;
    let mut segment = [0u64; 16];
    // SAFETY: `struct shmid_ds` has 112 bytes.
    let result =
        unsafe { sys::call(nr::SHMCTL, [id, IPC_STAT, segment.as_mut_ptr() as u64, 0, 0, 0]) };
    if result == 0 { [0, id, segment[6]] } else { [0; 3] }
}
