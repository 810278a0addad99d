//! File calls and blocking calls, for `--calls`. They show which thread waited for what, and which
//! memory the kernel accessed.
//!
//! ```text
//!   begin   offset, descriptors    the clock            before `close`, the descriptor is known
//!     ...   the kernel works, or waits for another thread
//!   end     new descriptors        the clock, result    after `open`, the descriptor is known
//! ```
//!
//! The plugin in QEMU and the engine both run in the recorded process. Each of them examines the
//! process's descriptors and memory in its own way ([`Caller`]).

use crate::within::{Numbers, Within, pointer_bytes, word};

/// The maximum number of parts of memory that are recorded for a call.
const BUFFERS_MAX: usize = 16;
/// The value for a call that has no file offset.
const NO_OFFSET: u64 = u64::MAX;
/// The maximum number of words that are recorded for a call: its arguments, times and offset, its
/// descriptors, and its memory.
const WORDS_MAX: usize = 12 + 2 * 5 + 1 + 2 * BUFFERS_MAX;
/// Linux: the bits of a file's mode that contain its type, and the type of regular files.
const S_IFMT: u64 = 0o170000;
const S_IFREG: u64 = 0o100000;
/// Linux: the commands of `fcntl` that copy a descriptor.
const F_DUPFD: u32 = 0;
const F_DUPFD_CLOEXEC: u32 = 1030;

/// The recorded data of a descriptor: its number, mode and flags, and its file's device, inode and
/// size in bytes.
pub type Told = [u64; 5];

/// The process that makes a call, as the code that records it sees the process.
pub trait Caller: Within {
    /// The recorded data of a descriptor; `None` if it is not open.
    fn tell(&self, fd: i32) -> Option<Told>;
    /// The current file offset of an open descriptor.
    fn offset(&self, fd: i32) -> u64;
    /// The time of the system's monotonic clock in nanoseconds.
    fn now(&self) -> u64;
}

/// Which arguments or results of a call are descriptors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Descriptors {
    None,
    /// The first argument.
    First,
    /// The first two arguments.
    Two,
    /// The result.
    Result,
    /// The first argument, and the result.
    FirstAndResult,
    /// `fcntl`: the first argument, and the result if it is a copy of that descriptor.
    Control,
    /// A pair of new descriptors at the address in the argument of this index.
    PairAt(usize),
}

/// The memory that a call reads or fills. Structures that only describe this memory are not
/// included, such as a vector of addresses and lengths.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    None,
    /// The second argument is the memory's address, and the third argument is its length.
    Plain,
    /// As [`Memory::Plain`]. Besides, the fifth argument points to a socket address, and the sixth
    /// argument is its length.
    Sent,
    /// As [`Memory::Plain`]. Besides, the fifth argument points to a socket address, and the sixth
    /// argument points to its length.
    Received,
    /// The second argument points to a socket address, and the third argument points to its length.
    Address,
    /// The second argument points to a vector of addresses and lengths, and the third argument is
    /// the number of its elements.
    Vector,
    /// The second argument points to a message header, which describes a socket address, a vector,
    /// and control data.
    Message,
    /// The second argument points to a vector of message headers. Each header is followed by the
    /// number of bytes of the message.
    Messages,
}

/// Where the file offset at which a call begins is found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    None,
    /// The call begins at the current offset of the descriptor.
    Current,
    /// The fourth argument of the call is the offset.
    Given,
}

/// A system call that is recorded: its name, and its numbers on x86-64, on i386, in Linux's generic
/// table, and on 32-bit Arm.
struct Known {
    name: &'static str,
    numbers: [i16; 4],
    descriptors: Descriptors,
    memory: Memory,
    place: Place,
}

const fn known(
    name: &'static str,
    numbers: [i16; 4],
    descriptors: Descriptors,
    memory: Memory,
    place: Place,
) -> Known {
    Known { name, numbers, descriptors, memory, place }
}

/// The system calls that are recorded. The number is -1 if the architecture does not have the call.
#[rustfmt::skip]
static KNOWN: [Known; 70] = {
    use Descriptors::{Control, First, FirstAndResult, None as NoFd, PairAt, Result, Two};
    use Memory::{Address, Message, Messages, None as NoMemory, Plain, Received, Sent, Vector};
    use Place::{Current, Given, None as NoPlace};
    [
        known("read", [0, 3, 63, 3], First, Plain, Current),
        known("write", [1, 4, 64, 4], First, Plain, Current),
        known("pread64", [17, 180, 67, 180], First, Plain, Given),
        known("pwrite64", [18, 181, 68, 181], First, Plain, Given),
        known("readv", [19, 145, 65, 145], First, Vector, Current),
        known("writev", [20, 146, 66, 146], First, Vector, Current),
        known("preadv", [295, 333, 69, 361], First, Vector, Given),
        known("pwritev", [296, 334, 70, 362], First, Vector, Given),
        known("open", [2, 5, -1, 5], Result, NoMemory, NoPlace),
        known("openat", [257, 295, 56, 322], Result, NoMemory, NoPlace),
        known("openat2", [437, 437, 437, 437], Result, NoMemory, NoPlace),
        known("creat", [85, 8, -1, 8], Result, NoMemory, NoPlace),
        known("close", [3, 6, 57, 6], First, NoMemory, NoPlace),
        known("dup", [32, 41, 23, 41], FirstAndResult, NoMemory, NoPlace),
        known("dup2", [33, 63, -1, 63], FirstAndResult, NoMemory, NoPlace),
        known("dup3", [292, 330, 24, 358], FirstAndResult, NoMemory, NoPlace),
        known("fcntl", [72, 221, 25, 221], Control, NoMemory, NoPlace),
        known("pipe", [22, 42, -1, 42], PairAt(0), NoMemory, NoPlace),
        known("pipe2", [293, 331, 59, 359], PairAt(0), NoMemory, NoPlace),
        known("socket", [41, 359, 198, 281], Result, NoMemory, NoPlace),
        known("socketpair", [53, 360, 199, 288], PairAt(3), NoMemory, NoPlace),
        known("bind", [49, 361, 200, 282], First, NoMemory, NoPlace),
        known("listen", [50, 363, 201, 284], First, NoMemory, NoPlace),
        known("accept", [43, -1, 202, 285], FirstAndResult, Address, NoPlace),
        known("accept4", [288, 364, 242, 366], FirstAndResult, Address, NoPlace),
        known("connect", [42, 362, 203, 283], First, NoMemory, NoPlace),
        known("shutdown", [48, 373, 210, 293], First, NoMemory, NoPlace),
        known("sendto", [44, 369, 206, 290], First, Sent, NoPlace),
        known("recvfrom", [45, 371, 207, 292], First, Received, NoPlace),
        known("sendmsg", [46, 370, 211, 296], First, Message, NoPlace),
        known("recvmsg", [47, 372, 212, 297], First, Message, NoPlace),
        known("sendmmsg", [307, 345, 269, 374], First, Messages, NoPlace),
        known("recvmmsg", [299, 337, 243, 365], First, Messages, NoPlace),
        known("recvmmsg_time64", [-1, 417, -1, 417], First, Messages, NoPlace),
        known("lseek", [8, 19, 62, 19], First, NoMemory, Current),
        known("ftruncate", [77, 93, 46, 93], First, NoMemory, NoPlace),
        known("fallocate", [285, 324, 47, 352], First, NoMemory, NoPlace),
        known("fsync", [74, 118, 82, 118], First, NoMemory, NoPlace),
        known("fdatasync", [75, 148, 83, 148], First, NoMemory, NoPlace),
        known("flock", [73, 143, 32, 143], First, NoMemory, NoPlace),
        known("sendfile", [40, 187, 71, 187], Two, NoMemory, NoPlace),
        known("splice", [275, 313, 76, 340], First, NoMemory, NoPlace),
        known("copy_file_range", [326, 377, 285, 391], First, NoMemory, NoPlace),
        known("shmget", [29, 395, 194, 307], NoFd, NoMemory, NoPlace),
        known("poll", [7, 168, -1, 168], NoFd, NoMemory, NoPlace),
        known("ppoll", [271, 309, 73, 336], NoFd, NoMemory, NoPlace),
        known("select", [23, 142, -1, 142], NoFd, NoMemory, NoPlace),
        known("pselect6", [270, 308, 72, 335], NoFd, NoMemory, NoPlace),
        known("ppoll_time64", [-1, 414, -1, 414], NoFd, NoMemory, NoPlace),
        known("pselect6_time64", [-1, 413, -1, 413], NoFd, NoMemory, NoPlace),
        known("epoll_wait", [232, 256, -1, 252], First, NoMemory, NoPlace),
        known("epoll_pwait", [281, 319, 22, 346], First, NoMemory, NoPlace),
        known("epoll_pwait2", [441, 441, 441, 441], First, NoMemory, NoPlace),
        known("eventfd2", [290, 328, 19, 356], Result, NoMemory, NoPlace),
        known("futex", [202, 240, 98, 240], NoFd, NoMemory, NoPlace),
        known("futex_time64", [-1, 422, -1, 422], NoFd, NoMemory, NoPlace),
        known("wait4", [61, 114, 260, 114], NoFd, NoMemory, NoPlace),
        known("waitid", [247, 284, 95, 280], NoFd, NoMemory, NoPlace),
        known("nanosleep", [35, 162, 101, 162], NoFd, NoMemory, NoPlace),
        known("clock_nanosleep", [230, 267, 115, 265], NoFd, NoMemory, NoPlace),
        known("clock_nanosleep_time64", [-1, 407, -1, 407], NoFd, NoMemory, NoPlace),
        known("pause", [34, 29, -1, 29], NoFd, NoMemory, NoPlace),
        known("rt_sigsuspend", [130, 179, 133, 179], NoFd, NoMemory, NoPlace),
        known("rt_sigtimedwait", [128, 177, 137, 177], NoFd, NoMemory, NoPlace),
        known("semop", [65, -1, 193, 298], NoFd, NoMemory, NoPlace),
        known("semtimedop", [220, -1, 192, 312], NoFd, NoMemory, NoPlace),
        known("semtimedop_time64", [-1, 420, -1, 420], NoFd, NoMemory, NoPlace),
        known("msgsnd", [69, 400, 189, 301], NoFd, NoMemory, NoPlace),
        known("msgrcv", [70, 401, 188, 302], NoFd, NoMemory, NoPlace),
        known("sched_yield", [24, 158, 124, 158], NoFd, NoMemory, NoPlace),
    ]
};

/// A call in progress.
#[derive(Clone, Copy, Debug)]
pub struct FileCall {
    number: i64,
    /// The index of the system call in [`KNOWN`].
    known: usize,
    arguments: [u64; 6],
    began_ns: u64,
    offset: u64,
    /// The state of the call's first descriptor before the call.
    first: Option<Told>,
}

impl FileCall {
    /// The system call `number`, which begins now with these `arguments`. For a 32-bit program, the
    /// upper halves of the arguments must be zero. `None` if this call is not recorded.
    pub fn begin(within: &impl Caller, number: i64, arguments: [u64; 6]) -> Option<FileCall> {
        let numbers = within.numbers();
        let known =
            KNOWN.iter().position(|known| i64::from(known.numbers[numbers as usize]) == number)?;
        let Known { descriptors, memory, place, .. } = &KNOWN[known];
        let first = match descriptors {
            Descriptors::First
            | Descriptors::Two
            | Descriptors::FirstAndResult
            | Descriptors::Control => within.tell(arguments[0] as i32),
            Descriptors::None | Descriptors::Result | Descriptors::PairAt(_) => None,
        };
        let is_regular = first.is_some_and(|first| first[1] >> 32 & S_IFMT == S_IFREG);
        let offset = match place {
            Place::Current if is_regular => within.offset(arguments[0] as i32),
            Place::Given if numbers == Numbers::I386 => arguments[3] | arguments[4] << 32,
            // A 64-bit offset is in a pair of registers. For calls without a vector, the pair must
            // begin with an even register.
            Place::Given if numbers == Numbers::Arm => {
                let at = if *memory == Memory::Plain { 4 } else { 3 };
                arguments[at] | arguments[at + 1] << 32
            }
            Place::Given => arguments[3],
            Place::None | Place::Current => NO_OFFSET,
        };
        let began_ns = within.now();
        Some(FileCall { number, known, arguments, began_ns, offset, first })
    }

    /// Called when the call has returned `result`. Returns what is recorded of it: the words of
    /// [`EventCode::FileCall`](crate::EventCode::FileCall), and the call's name.
    pub fn end(self, within: &impl Caller, result: i64) -> (FileWords, &'static str) {
        let ended_ns = within.now();
        let FileCall { number, known, arguments, began_ns, offset, first } = self;
        let Known { name, descriptors, memory, .. } = &KNOWN[known];
        let mut fds = [[0; 5]; 2];
        let mut count = 0;
        let mut add = |told: Option<Told>| {
            if let Some(told) = told {
                fds[count] = told;
                count += 1;
            }
        };
        add(first);
        let is_copy = |command: u64| matches!(command as u32, F_DUPFD | F_DUPFD_CLOEXEC);
        match *descriptors {
            _ if result < 0 => {}
            Descriptors::Result | Descriptors::FirstAndResult => add(within.tell(result as i32)),
            Descriptors::Control if is_copy(arguments[1]) => add(within.tell(result as i32)),
            Descriptors::Two => add(within.tell(arguments[1] as i32)),
            Descriptors::PairAt(index) => {
                let mut pair = [0; 8];
                if within.read(arguments[index], &mut pair) {
                    let (pair, _) = pair.as_chunks::<4>();
                    pair.iter().for_each(|&fd| add(within.tell(i32::from_le_bytes(fd))));
                }
            }
            Descriptors::None | Descriptors::First | Descriptors::Control => {}
        }
        let mut buffers = Buffers::default();
        if result >= 0 {
            buffers.fill(within, *memory, &arguments, result as u64);
        }
        let [a, b, c, d, e, f] = arguments;
        let (result, number) = (result as u64, number as u64);
        let head = [number, a, b, c, d, e, f, result, began_ns, ended_ns, offset, count as u64];
        let mut words = FileWords { all: [0; WORDS_MAX], count: 0 };
        let fds = fds[..count].iter().flatten();
        let (buffered, parts) =
            (buffers.count as u64, buffers.all[..buffers.count].iter().flatten());
        for &value in head.iter().chain(fds).chain([&buffered]).chain(parts) {
            words.all[words.count] = value;
            words.count += 1;
        }
        (words, name)
    }
}

/// The words that are recorded for a call.
#[derive(Clone, Copy, Debug)]
pub struct FileWords {
    all: [u64; WORDS_MAX],
    count: usize,
}

impl FileWords {
    /// The words as a slice.
    pub fn as_slice(&self) -> &[u64] {
        &self.all[..self.count]
    }
}

/// The parts of memory that the kernel has read or filled: addresses and sizes in bytes.
#[derive(Default)]
struct Buffers {
    all: [[u64; 2]; BUFFERS_MAX],
    count: usize,
}

impl Buffers {
    /// Finds the memory that a call has accessed. The call has transferred `moved` bytes or
    /// messages.
    fn fill(&mut self, within: &impl Within, memory: Memory, arguments: &[u64; 6], moved: u64) {
        let [_, first, second, _, fifth, sixth] = *arguments;
        match memory {
            Memory::None => {}
            Memory::Plain => self.add(first, second.min(moved)),
            Memory::Sent => {
                self.add(first, second.min(moved));
                self.add(fifth, sixth);
            }
            Memory::Received => {
                self.add(first, second.min(moved));
                self.add(fifth, length(within, sixth));
            }
            Memory::Address => self.add(first, length(within, second)),
            Memory::Vector => self.vector(within, first, second, moved),
            Memory::Message => self.message(within, first, moved),
            Memory::Messages => {
                // `struct mmsghdr` is a header of seven words, followed by the number of bytes of
                // the message.
                let header = 7 * pointer_bytes(within);
                let stride = header + pointer_bytes(within);
                for at in (0..moved.min(BUFFERS_MAX as u64)).map(|index| index * stride) {
                    let at = first.wrapping_add(at);
                    self.message(within, at, length(within, at.wrapping_add(header)));
                }
            }
        }
    }

    /// Adds the memory that a `struct msghdr` describes: it has the addresses and lengths of a name
    /// (a socket address), of a vector, and of control data.
    fn message(&mut self, within: &impl Within, at: u64, moved: u64) {
        let field = |index: u64| word(within, at.wrapping_add(index * pointer_bytes(within)));
        self.vector(within, field(2), field(3), moved);
        // The length of the name has only 32 bits.
        self.add(field(0), field(1) & u64::from(u32::MAX));
        self.add(field(4), field(5));
    }

    /// Adds the memory that a vector of addresses and lengths describes, up to `moved` bytes.
    fn vector(&mut self, within: &impl Within, at: u64, parts: u64, mut moved: u64) {
        let bytes = pointer_bytes(within);
        for index in 0..parts.min(BUFFERS_MAX as u64) {
            let at = at.wrapping_add(index * 2 * bytes);
            let length = word(within, at.wrapping_add(bytes)).min(moved);
            self.add(word(within, at), length);
            moved -= length;
        }
    }

    fn add(&mut self, address: u64, bytes: u64) {
        if address != 0 && bytes != 0 && self.count < BUFFERS_MAX {
            self.all[self.count] = [address, bytes];
            self.count += 1;
        }
    }
}

/// The 32-bit word at `address`; 0 if it cannot be read.
fn length(within: &impl Within, address: u64) -> u64 {
    let mut word = [0; 4];
    let is_read = within.read(address, &mut word);
    if is_read { u32::from_le_bytes(word).into() } else { 0 }
}
