//! Compares recordings to which a kernel's accesses were added with the recordings themselves. The
//! programs' accesses are unchanged, and the added accesses are those that the calls and switches
//! of a list require.

use addr::Kind;
use trace::kernel::{Kernel, KernelPath, SERVER};
use trace::{
    Batch, Buffer, Call, Descriptor, Event, FileId, FileKind, KERNEL, Meta, Source, Spread,
};

use crate::common::{Rows, in_sevens};

/// An action of a program.
#[derive(Clone, Copy)]
enum Act {
    /// The program with this number makes this number of accesses.
    Run(u32, u64),
    /// The program has called `read` or `write` with a buffer at this address, of this number of
    /// bytes.
    Call(&'static str, u64, u64),
}

fn call(name: &str, addr: u64, bytes: u64) -> Event {
    let file = FileId { device: 1, inode: 7, bytes: 0 };
    let open = Descriptor { fd: 3, kind: FileKind::Pipe, file, nonblocking: false };
    Event::Call(Box::new(Call {
        name: name.to_owned(),
        result: bytes as i64,
        fd: Some(3),
        descriptors: vec![open],
        buffers: vec![Buffer { addr, bytes }],
        ..Call::default()
    }))
}

fn rows_of(acts: &[Act]) -> Rows {
    let (mut rows, mut space, mut addr) = (Rows::default(), 0, 0x0804_8000);
    for act in acts {
        let at = rows.rows.len() as u64;
        match *act {
            Act::Run(next, count) => {
                if next != space {
                    rows.events.push((at, next, Event::Run { cpu: Some(0), space: next }));
                    space = next;
                }
                for _ in 0..count {
                    rows.rows.push((space, addr, Meta::new(Kind::Fetch, 16, 4), None));
                    addr += 16;
                }
            }
            Act::Call(name, to, bytes) => rows.events.push((at, space, call(name, to, bytes))),
        }
    }
    rows
}

/// The accesses, each with its space by the events.
fn given(acts: &[Act], kernel: &str) -> Vec<(u32, u64, Meta)> {
    let source = in_sevens(&rows_of(acts));
    let mut source = KernelPath::new(source, kernel.parse().unwrap());
    let (mut batch, mut found, mut space) = (Batch::default(), Vec::new(), 0);
    loop {
        let more = source.next(&mut batch).unwrap();
        let mut events = batch.events.iter().peekable();
        for at in 0..batch.len() {
            while let Some(placed) = events.next_if(|placed| placed.at as usize <= at) {
                if let Event::Run { space: next, cpu } = placed.event {
                    assert_ne!((cpu, next), (None, space), "a run of what runs already");
                    space = next;
                }
            }
            found.push((space, batch.addr[at], batch.meta[at]));
        }
        if !more {
            return found;
        }
    }
}

const ACTS: [Act; 9] = [
    Act::Run(0, 9),
    // Two calls, in which the program does not wait.
    Act::Call("read", 0x0a00_0ff0, 64),
    Act::Run(0, 5),
    Act::Call("write", 0x0a00_0000, 100),
    Act::Run(0, 2),
    // The clock switches to another thread, and the first thread then returns from a call in which
    // it waited.
    Act::Run(1, 20),
    Act::Run(0, 0),
    Act::Call("read", 0x0a00_1000, 4096),
    Act::Run(0, 4),
];

/// Whether an access belongs to a program itself, judged by its address and size.
fn is_own(&(space, addr, meta): &(u32, u64, Meta)) -> bool {
    space < 2 && meta.kind() == Kind::Fetch && meta.size() == 16 && addr < 0x0a00_0000
}

#[test]
fn what_the_programs_do_stays() {
    let rows = rows_of(&ACTS);
    for kernel in ["monolithic", "microkernel"] {
        let given = given(&ACTS, kernel);
        let own: Vec<u64> = given.iter().filter(|row| is_own(row)).map(|row| row.1).collect();
        let before: Vec<u64> = rows.rows.iter().map(|row| row.1).collect();
        assert_eq!(own, before, "{kernel}");
    }
}

/// The spaces in the order in which they ran, each once per turn.
fn turns(given: &[(u32, u64, Meta)]) -> Vec<u32> {
    let mut turns: Vec<u32> = given.iter().map(|row| row.0).collect();
    turns.dedup();
    turns
}

#[test]
fn each_call_and_switch_goes_through_the_kernel_once() {
    let (k, s) = (KERNEL, SERVER);
    let monolithic = turns(&given(&ACTS, "monolithic"));
    // Two calls, the clock, and the return of a call that has waited.
    assert_eq!(monolithic, [0, k, 0, k, 0, k, 1, k, 0]);
    let microkernel = turns(&given(&ACTS, "microkernel"));
    let path = |from, to| [from, k, from, k, s, k, to];
    let mut expected: Vec<u32> = [path(0, 0), path(0, 0), path(0, 1), path(1, 0)].concat();
    expected.dedup();
    assert_eq!(microkernel, expected);
}

#[test]
fn buffers_are_copied_line_by_line() {
    let line = |(_, _, meta): &&(u32, u64, Meta)| meta.size() == 64 && meta.kind() != Kind::Fetch;
    let monolithic = given(&ACTS, "monolithic");
    let mut seen: Vec<(u64, Kind)> = monolithic
        .iter()
        .filter(|row| row.0 == 0)
        .filter(line)
        .map(|&(_, addr, meta)| (addr, meta.kind()))
        .collect();
    // 64 bytes that begin inside a line lie in two lines, here of two pages. 100 bytes lie in two
    // lines, and 4096 bytes in 64.
    let page = (0..64).map(|line| (0x0a00_1000 + line * 64, Kind::Store));
    let mut expected = vec![(0x0a00_0fc0, Kind::Store), (0x0a00_1000, Kind::Store)];
    expected.extend([(0x0a00_0000, Kind::Load), (0x0a00_0040, Kind::Load)]);
    expected.extend(page);
    seen.sort_unstable_by_key(|row| (row.0, row.1 as u8));
    expected.sort_unstable_by_key(|row| (row.0, row.1 as u8));
    assert_eq!(seen, expected);
    // With Linux as a server at user level, the server copies all bytes between its own memory and
    // the mapped memory of the program.
    let microkernel = given(&ACTS, "microkernel");
    let copied: Vec<u32> = microkernel.iter().filter(line).map(|row| row.0).collect();
    assert_eq!(copied, vec![SERVER; 2 * expected.len()]);
}

/// If a mapping is moved, its buffers move too: the kernel copies from their new addresses.
#[test]
fn buffers_move_with_their_mapping() {
    let (addr, bytes) = (0x4a00_3000, 0x2000);
    let mut rows = rows_of(&[Act::Run(0, 2)]);
    let mmap = Event::Mmap {
        addr: 0,
        bytes,
        prot: 3,
        flags: 0x22,
        fd: -1,
        offset: 0,
        result: addr as i64,
        path: None,
        file: None,
    };
    rows.events.push((1, 0, mmap));
    rows.events.push((1, 0, call("read", addr + 0x100, 128)));
    let spread = Spread::new(in_sevens(&rows), 2 << 20).unwrap();
    let kernel: Kernel = "monolithic".parse().unwrap();
    let mut source = KernelPath::new(Box::new(spread), kernel);
    let (mut batch, mut stores) = (Batch::default(), Vec::new());
    loop {
        let more = source.next(&mut batch).unwrap();
        let rows = batch.addr.iter().zip(&batch.meta);
        let stored = rows.filter(|(_, meta)| meta.kind() == Kind::Store && meta.size() == 64);
        stores.extend(stored.map(|(addr, _)| *addr));
        if !more {
            break;
        }
    }
    // The stores lie in a block of 2M of their own.
    let block = stores[0] & !((2 << 20) - 1);
    assert!(block != addr & !((2 << 20) - 1), "{stores:x?}");
    assert_eq!(stores, [block + 0x100, block + 0x140]);
}

#[test]
fn parameters_are_taken_and_told() {
    let kernel: Kernel = "microkernel,work=2k,ipc=300".parse().unwrap();
    assert_eq!((kernel.work, kernel.ipc), (2000, 300));
    assert_eq!(kernel.to_string().parse::<Kernel>().unwrap(), kernel);
    for (wrong, says) in [
        ("exokernel", "no kernel `exokernel`; choose one of monolithic, microkernel"),
        ("monolithic,ipc=3", "no parameter `ipc`; the parameters are trap, work, code, data"),
        ("microkernel,code=0", "code=0: write a number from 1 to 200"),
        ("microkernel,code", "`code` is not a setting"),
    ] {
        let said = wrong.parse::<Kernel>().unwrap_err().to_string();
        assert!(said.contains(says) && !said.contains('\n'), "{said}");
    }
}

#[test]
fn a_trace_with_a_kernel_is_refused() {
    let rows = Rows {
        events: vec![(0, 0, Event::Run { cpu: None, space: KERNEL })],
        rows: vec![(0, 4096, Meta::new(Kind::Load, 4, 1), None)],
    };
    let source = in_sevens(&rows);
    let mut source = KernelPath::new(source, "monolithic".parse().unwrap());
    let said = source.next(&mut Batch::default()).unwrap_err().to_string();
    assert!(said.contains("leave --kernel out"), "{said}");
}
