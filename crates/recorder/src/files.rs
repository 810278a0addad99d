//! File and blocking calls, for `--calls`: the threads that waited, with the causes, and the memory
//! that the kernel accessed.
//!
//! ```text
//!   begin   offset, descriptors     the clock            what is closed is known before
//!     ...   the kernel works, or waits for another
//!   end     new descriptors         the clock, result    what is opened is known after
//! ```
//!
//! Descriptors are examined in the recorded process itself, with the host's own system calls: in
//! QEMU, a guest's descriptors have the same numbers as the host's.

use ring::EventCode;

use crate::begun::{Begun, Told};
use crate::isa::Guest;
use crate::{events, global, guest, wait};

/// The most parts of memory that are reported of a call.
const BUFFERS_MAX: usize = 16;
/// There is no offset.
const NO_OFFSET: u64 = u64::MAX;

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

/// The memory that a call reads or fills, without structures that only describe this memory, such
/// as a vector of parts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    None,
    /// An address in the second argument, and a length in the third.
    Plain,
    /// An address in the second argument, and a length in the third; and a socket address in the fifth
    /// argument, with its length in the sixth.
    Sent,
    /// An address in the second argument, and a length in the third; and a socket address at the fifth
    /// argument, with a pointer to its length in the sixth.
    Received,
    /// A socket address at the second argument, with a pointer to its length in the third.
    Address,
    /// A vector of addresses and lengths at the second argument, with their number in the third.
    Vector,
    /// A message header at the second argument: a socket address, a vector, and control data.
    Message,
    /// A vector of message headers at the second argument, each followed by its number of bytes.
    Messages,
}

/// The file offset at which a call begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    None,
    /// The current offset of the descriptor.
    Current,
    /// The fourth argument.
    Given,
}

/// A call: its name, and its numbers on x86-64, on i386, in Linux's generic table, and on 32-bit Arm.
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

/// The calls that are recorded. -1: the architecture has no such call.
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

/// Called when a call begins. `None` if it is not to be recorded.
pub(crate) fn begin(guest: Guest, number: i64, raw: [u64; 6]) -> Option<Begun> {
    if global::shared().session().calls == 0 {
        return None;
    }
    let column = match guest {
        Guest::X86_64 => 0,
        Guest::I386 => 1,
        Guest::Generic64 => 2,
        Guest::Arm => 3,
    };
    let known = KNOWN.iter().position(|known| i64::from(known.numbers[column]) == number)?;
    let arguments = raw.map(|argument| argument & guest.address_mask());
    let Known { descriptors, memory, place, .. } = &KNOWN[known];
    let first = match descriptors {
        Descriptors::First
        | Descriptors::Two
        | Descriptors::FirstAndResult
        | Descriptors::Control => tell(arguments[0] as i32),
        Descriptors::None | Descriptors::Result | Descriptors::PairAt(_) => None,
    };
    let is_regular =
        first.is_some_and(|first| (first[1] >> 32) as u32 & libc::S_IFMT == libc::S_IFREG);
    let offset = match place {
        // SAFETY: asks where it is.
        Place::Current if is_regular => unsafe {
            libc::lseek(arguments[0] as i32, 0, libc::SEEK_CUR) as u64
        },
        Place::Given if guest == Guest::I386 => arguments[3] | arguments[4] << 32,
        // A pair of registers begins with an even one, but not that of a vector's call.
        Place::Given if guest == Guest::Arm => {
            let at = if *memory == Memory::Plain { 4 } else { 3 };
            arguments[at] | arguments[at + 1] << 32
        }
        Place::Given => arguments[3],
        Place::None | Place::Current => NO_OFFSET,
    };
    Some(Begun { number, known, arguments, began_ns: wait::now(), offset, first })
}

/// Called when the call has returned; records it.
pub(crate) fn end(vcpu: u32, guest: Guest, begun: Begun, result: i64) {
    let ended_ns = wait::now();
    let Begun { number, known, arguments, began_ns, offset, first } = begun;
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
    let is_copy = |command: u64| matches!(command as i32, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC);
    match *descriptors {
        _ if result < 0 => {}
        Descriptors::Result | Descriptors::FirstAndResult => add(tell(result as i32)),
        Descriptors::Control if is_copy(arguments[1]) => add(tell(result as i32)),
        Descriptors::Two => add(tell(arguments[1] as i32)),
        Descriptors::PairAt(index) => {
            let mut pair = [0i32; 2];
            if guest::read(arguments[index], &mut pair) {
                pair.into_iter().for_each(|fd| add(tell(fd)));
            }
        }
        Descriptors::None | Descriptors::First | Descriptors::Control => {}
    }
    let mut buffers = Buffers::default();
    if result >= 0 {
        buffers.fill(guest, *memory, &arguments, result as u64);
    }
    let [a, b, c, d, e, f] = arguments;
    let (result, number) = (result as u64, number as u64);
    let head = [number, a, b, c, d, e, f, result, began_ns, ended_ns, offset, count as u64];
    let mut words = [0; 12 + 2 * 5 + 1 + 2 * BUFFERS_MAX];
    let mut length = 0;
    let fds = fds[..count].iter().flatten();
    let (buffered, parts) = (buffers.count as u64, buffers.all[..buffers.count].iter().flatten());
    for &value in head.iter().chain(fds).chain([&buffered]).chain(parts) {
        words[length] = value;
        length += 1;
    }
    events::text(vcpu, EventCode::FileCall, &words[..length], name.as_bytes());
}

/// The recorded data of a descriptor; `None` if it is not open.
fn tell(fd: i32) -> Option<Told> {
    let stat = guest::stat_of(fd)?;
    // SAFETY: asks for the flags of an open descriptor.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) } as u32;
    let mode = u64::from(stat.st_mode) << 32 | u64::from(flags);
    Some([fd as u64, mode, stat.st_dev, stat.st_ino, stat.st_size as u64])
}

/// The parts of memory that the kernel has read or filled: addresses and sizes in bytes.
#[derive(Default)]
struct Buffers {
    all: [[u64; 2]; BUFFERS_MAX],
    count: usize,
}

impl Buffers {
    /// Finds the memory that a call has accessed that transferred `moved` bytes or messages.
    fn fill(&mut self, guest: Guest, memory: Memory, arguments: &[u64; 6], moved: u64) {
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
                self.add(fifth, length(sixth));
            }
            Memory::Address => self.add(first, length(second)),
            Memory::Vector => self.vector(guest, first, second, moved),
            Memory::Message => self.message(guest, first, moved),
            Memory::Messages => {
                // `struct mmsghdr`: a header of seven words, then the bytes of the message.
                let header = 7 * guest.pointer_bytes() as u64;
                let stride = header + guest.pointer_bytes() as u64;
                for at in (0..moved.min(BUFFERS_MAX as u64)).map(|index| index * stride) {
                    let at = first.wrapping_add(at);
                    self.message(guest, at, length(at.wrapping_add(header)));
                }
            }
        }
    }

    /// Adds a `struct msghdr`: address and length of a name, of a vector and of control data.
    fn message(&mut self, guest: Guest, at: u64, moved: u64) {
        let field = |index: u64| word(guest, at.wrapping_add(index * guest.pointer_bytes() as u64));
        self.vector(guest, field(2), field(3), moved);
        // The name's length is a word of 32 bits.
        self.add(field(0), field(1) & u64::from(u32::MAX));
        self.add(field(4), field(5));
    }

    /// Adds a vector of addresses and lengths, up to `moved` bytes.
    fn vector(&mut self, guest: Guest, at: u64, parts: u64, mut moved: u64) {
        let bytes = guest.pointer_bytes() as u64;
        for index in 0..parts.min(BUFFERS_MAX as u64) {
            let at = at.wrapping_add(index * 2 * bytes);
            let length = word(guest, at.wrapping_add(bytes)).min(moved);
            self.add(word(guest, at), length);
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
fn length(address: u64) -> u64 {
    let mut word = [0u32];
    guest::read(address, &mut word);
    word[0].into()
}

/// The guest's word at `address`; 0 if it cannot be read.
fn word(guest: Guest, address: u64) -> u64 {
    let mut bytes = [0u8; 8];
    guest::read_bytes(address, bytes.as_mut_ptr(), guest.pointer_bytes());
    u64::from_le_bytes(bytes)
}
