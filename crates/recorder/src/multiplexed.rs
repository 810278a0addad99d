//! i386's `socketcall` and `ipc`: each combines several system calls under one number. They are
//! unfolded into these system calls.
//!
//! ```text
//!   socketcall(12, args)                 args --> fd  buf  bytes  flags  addr  length
//!     is  recvfrom(fd, buf, bytes, ...)
//!   ipc(23, first, second, third, ptr, fifth)
//!     is  shmget(first, second, third)
//! ```
//!
//! The C library for i386 uses them for most of these calls: it must run on kernels in which the
//! calls had no numbers of their own (linux/net.h, ipc(2)).

use crate::guest;

const SOCKETCALL: i64 = 102;
const IPC: i64 = 117;

/// For each value of the first argument of `socketcall`: that value, i386's number of the system
/// call that it stands for, and how many arguments this system call has. Missing arguments are 0,
/// which makes `accept` an `accept4` and `send` a `sendto`.
const SOCKETCALLS: [(u64, i64, usize); 16] = [
    (1, 359, 3),  // socket
    (2, 361, 3),  // bind
    (3, 362, 3),  // connect
    (4, 363, 2),  // listen
    (5, 364, 3),  // accept
    (8, 360, 4),  // socketpair
    (9, 369, 4),  // send
    (10, 371, 4), // recv
    (11, 369, 6), // sendto
    (12, 371, 6), // recvfrom
    (13, 373, 2), // shutdown
    (16, 370, 3), // sendmsg
    (17, 372, 3), // recvmsg
    (18, 364, 4), // accept4
    (19, 337, 5), // recvmmsg
    (20, 345, 4), // sendmmsg
];

const SEMTIMEDOP: i64 = 420;
const SHMGET: i64 = 395;
/// i386's number of `shmat`. If it is called through `ipc`, the resulting address is written to
/// where the fourth argument points.
const SHMAT: i64 = 397;
const SHMDT: i64 = 398;
const MSGSND: i64 = 400;
const MSGRCV: i64 = 401;

/// For i386: the number and arguments of the system call that a call of `number` with the arguments
/// `raw` stands for. `None` if `number` is not one of these two calls.
pub(crate) fn unfold(number: i64, raw: [u64; 6]) -> Option<(i64, [u64; 6])> {
    let raw = raw.map(|argument| argument & u64::from(u32::MAX));
    match number {
        SOCKETCALL => {
            let &(_, number, count) = SOCKETCALLS.iter().find(|(call, ..)| *call == raw[0])?;
            let mut words = [0u32; 6];
            let bytes = count * size_of::<u32>();
            let is_read = guest::read_bytes(raw[1], words.as_mut_ptr().cast(), bytes) == bytes;
            is_read.then(|| (number, words.map(u64::from)))
        }
        IPC => {
            let [call, first, second, third, pointer, fifth] = raw;
            Some(match call & 0xffff {
                1 => (SEMTIMEDOP, [first, pointer, second, 0, 0, 0]),
                4 => (SEMTIMEDOP, [first, pointer, second, fifth, 0, 0]),
                11 => (MSGSND, [first, pointer, second, third, 0, 0]),
                12 if call >> 16 == 0 => {
                    // The pointer points to two words: the message's address and its type.
                    let mut parts = [0u32; 2];
                    guest::read(pointer, &mut parts);
                    let [message, kind] = parts.map(u64::from);
                    (MSGRCV, [first, message, second, kind, third, 0])
                }
                12 => (MSGRCV, [first, pointer, second, fifth, third, 0]),
                21 => (SHMAT, [first, pointer, second, third, 0, 0]),
                22 => (SHMDT, [pointer, 0, 0, 0, 0, 0]),
                23 => (SHMGET, [first, second, third, 0, 0, 0]),
                _ => return None,
            })
        }
        _ => None,
    }
}
