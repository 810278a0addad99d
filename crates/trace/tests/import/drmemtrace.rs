use trace::import::{Fetches, Format, Interleave, Options, from_reader};
use trace::open;
use trace::{Arch, Event, Source};

use crate::sniffing::{Folder, store};
use crate::support::*;
use crate::zip;

/// A record: type (2 bytes), size (2), addr (8).
fn record(kind: u16, size: u16, addr: u64) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &size.to_le_bytes(), &addr.to_le_bytes()].concat()
}

fn marker(which: u16, value: u64) -> Vec<u8> {
    record(28, which, value)
}

fn instr(pc: u64, bytes: u16) -> Vec<u8> {
    record(10, bytes, pc)
}

fn load(addr: u64, bytes: u16) -> Vec<u8> {
    record(0, bytes, addr)
}

fn store_to(addr: u64, bytes: u16) -> Vec<u8> {
    record(1, bytes, addr)
}

/// The first records of a file of version 7, recorded from an x86-64 program.
fn header(tid: u64, pid: u64) -> Vec<u8> {
    [
        record(25, 0, 7),
        marker(12, 7),
        marker(9, 0x40 | 0x200 | 0x400),
        record(22, 4, tid),
        record(24, 4, pid),
        marker(10, 64),
        marker(20, 10_000_000),
        marker(18, 4096),
    ]
    .concat()
}

fn time(stamp: u64) -> Vec<u8> {
    [marker(2, stamp), marker(3, 0)].concat()
}

fn end(tid: u64) -> Vec<u8> {
    [record(23, 4, tid), record(26, 0, 0)].concat()
}

/// A file of one thread that contains `records`.
fn file(records: &[Vec<u8>]) -> Vec<u8> {
    [header(5, 5), time(100), records.concat(), end(5)].concat()
}

fn import_source(bytes: &[u8]) -> Box<dyn Source + Send> {
    from_reader("test", Box::new(std::io::Cursor::new(bytes.to_vec())), &Options::default())
        .unwrap()
}

fn read(bytes: &[u8]) -> Given {
    import(bytes, &Options::default()).unwrap()
}

const START: (u64, u32, Event) = (0, 0, Event::ThreadStart { tid: 5 });

#[test]
fn a_thread_is_read_from_its_header_to_its_end() {
    let bytes = file(&[
        record(47, 4, 0x1234),
        instr(0x1000, 4),
        load(0x7f00_0000_1000, 8),
        record(47, 3, 0x99),
        record(48, 3, 0x1004),
        store_to(0x7f00_0000_2000, 64),
        instr(0x1007, 2),
        record(29, 2, 0x1007),
        load(0x10, 0),
        record(14, 5, 0x1009),
        store_to(0x20, 8),
        instr(0x4000, 1),
    ]);
    let given = read(&bytes);
    assert_eq!(
        given.rows,
        [
            (0, F, 0x1000, 7, 1),
            (0, L, 0x7f00_0000_1000, 8, 0),
            (0, S, 0x7f00_0000_2000, 64, 1),
            (0, F, 0x1007, 7, 1),
            (0, L, 0x10, 1, 0),
            (0, S, 0x20, 8, 1),
            (0, F, 0x4000, 1, 1),
        ]
    );
    assert_eq!(given.events, [START, (7, 0, Event::ThreadEnd)]);
    assert!(given.warnings.is_empty() && given.paddr.is_empty());
}

/// A file of version 1 begins with the thread and the process, without markers of the version and
/// the file type.
#[test]
fn version_1_is_read_as_version_2_without_its_markers() {
    let records = [
        time(100),
        instr(0x1000, 4),
        load(0x7f00_0000_1000, 8),
        record(13, 2, 0x1004),
        time(200),
        store_to(0x20, 8),
    ]
    .concat();
    let thread = [record(22, 4, 5), record(24, 4, 5)].concat();
    let bytes = |version, markers: Vec<u8>| {
        [record(25, 0, version), markers, thread.clone(), records.clone(), end(5)].concat()
    };
    let first = bytes(1, Vec::new());
    let given = read(&first);
    let second = read(&bytes(2, [marker(12, 2), marker(9, 0x40), marker(10, 64)].concat()));
    assert_eq!(given.rows.len(), 3);
    assert_eq!((given.rows, given.events), (second.rows, second.events));
    assert_eq!(import_source(&first).header().arch, trace::Arch::Unknown);
}

#[test]
fn no_fetch_is_counted_that_did_not_happen() {
    let bytes = file(&[
        instr(0x1000, 2),
        // A repeated instruction is not fetched again.
        record(29, 2, 0x1000),
        record(30, 2, 0x1000),
        // The address differs, so this is another instruction.
        record(30, 2, 0x1002),
        // The fetch of this instruction was dropped by a filter.
        instr(0x1004, 0),
        load(0x10, 8),
        // Prefetches, flushes and other records that are not accesses.
        record(2, 1, 0x50),
        record(9, 1, 0x50),
        record(27, 1, 0x50),
        record(32, 1, 0x50),
        record(46, 1, 0x50),
        record(18, 1, 0x50),
        record(21, 1, 0x50),
        marker(29, 0x1000),
        marker(0, 1),
        marker(46, 0),
        marker(1000, 3),
    ]);
    let single = Options { fetches: Fetches::Instructions, ..Options::default() };
    let given = import(&bytes, &single).unwrap();
    assert_eq!(given.rows, [(0, F, 0x1000, 2, 1), (0, F, 0x1002, 2, 1), (0, L, 0x10, 8, 0)]);
    assert_eq!(given.warnings, ["5 prefetches are not accesses of the program: left out"]);
}

#[test]
fn a_bundle_is_several_instructions() {
    let bytes = file(&[instr(0x1000, 2), record(17, 3, 0x05_04_03), load(0x10, 8)]);
    let given = read(&bytes);
    assert_eq!(given.rows, [(0, F, 0x1000, 14, 1), (0, L, 0x10, 8, 3)]);
    let single = Options { fetches: Fetches::Instructions, ..Options::default() };
    let rows = import(&bytes, &single).unwrap().rows;
    assert_eq!(
        rows[..4].iter().map(|r| (r.2, r.3)).collect::<Vec<_>>(),
        [(0x1000, 2), (0x1002, 3), (0x1005, 4), (0x1009, 5)]
    );
    refused(&file(&[record(17, 9, 0)]), &Options::default(), "a bundle of 9");
}

#[test]
fn memory_calls_become_events() {
    const CALL: u64 = 1 << 32;
    let call = |number: u64, args: &[u64], result: u64| -> Vec<u8> {
        let mut bytes = [marker(25, number), marker(4, CALL + number)].concat();
        args.iter().for_each(|&arg| bytes.extend(marker(6, arg)));
        bytes.extend(
            [marker(2, 100), marker(3, 0), marker(4, CALL + number), marker(7, result)].concat(),
        );
        bytes
    };
    let bytes = file(&[
        instr(0x1000, 2),
        call(9, &[0, 0x2000, 3, 0x22, u64::MAX, 0], 0x7f00_0000_0000),
        call(10, &[0x7f00_0000_0000, 0x1000, 1], 0),
        call(11, &[0x7f00_0000_0000, 0x1000], 0),
        // The call failed: a record with the errno follows the result.
        call(11, &[1, 0x1000], 0),
        marker(30, 22),
        call(12, &[0], 0x55_0000),
        call(25, &[0x1000, 0x1000, 0x2000, 1, 0], 0x9000),
        call(28, &[0x1000, 0x1000, 14], 0),
        call(56, &[0x1_0000, 0x7000], 6),
        call(56, &[17, 0], 7),
        // Calls of another function, and calls with too few arguments.
        [marker(4, 9), marker(6, 1), marker(4, 9), marker(7, 1)].concat(),
        call(9, &[0], 0x1000),
        call(0, &[3, 0x1000, 10], 10),
        [marker(4, CALL + 231), marker(6, 3)].concat(),
    ]);
    let given = read(&bytes);
    let events: Vec<Event> = given.events.iter().map(|(_, _, event)| event.clone()).collect();
    let a = 0x7f00_0000_0000;
    assert_eq!(
        events,
        [
            Event::ThreadStart { tid: 5 },
            Event::Mmap {
                addr: 0,
                bytes: 0x2000,
                prot: 3,
                flags: 0x22,
                fd: -1,
                offset: 0,
                path: None,
                file: None,
                result: a as i64
            },
            Event::Mprotect { addr: a, bytes: 0x1000, prot: 1, result: 0 },
            Event::Munmap { addr: a, bytes: 0x1000, result: 0 },
            Event::Munmap { addr: 1, bytes: 0x1000, result: -22 },
            Event::Brk { addr: 0, result: 0x55_0000 },
            Event::Mremap {
                addr: 0x1000,
                old_bytes: 0x1000,
                new_bytes: 0x2000,
                flags: 1,
                new_addr: 0,
                result: 0x9000
            },
            Event::Madvise { addr: 0x1000, bytes: 0x1000, advice: 14, result: 0 },
            Event::Clone { flags: 0x1_0000, stack: 0x7000, result: 6 },
            Event::Fork { result: 7, flags: 17 },
            Event::Exit { status: 3, group: true },
            Event::ThreadEnd,
        ]
    );
    assert_eq!(given.warnings, ["1 call was recorded without all of its arguments: left out"]);
}

#[test]
fn old_tracers_told_only_success() {
    const CALL: u64 = 1 << 32;
    let call = |number: u64, args: &[u64], result: u64| -> Vec<u8> {
        let mut bytes = marker(4, CALL + number);
        args.iter().for_each(|&arg| bytes.extend(marker(6, arg)));
        bytes.extend([marker(4, CALL + number), marker(7, result)].concat());
        bytes
    };
    let given = read(&file(&[
        instr(0x1000, 2),
        call(9, &[0x5000, 0x2000, 3, 0x32, 0, 0], 1),
        call(11, &[0x5000, 0x1000], 1),
        call(11, &[0x5000, 0x1000], 0),
        call(9, &[0, 0x2000, 3, 0x22, 0, 0], 1),
    ]));
    let results: Vec<i64> = given
        .events
        .iter()
        .filter_map(|(_, _, event)| match event {
            Event::Mmap { result, .. } | Event::Munmap { result, .. } => Some(*result),
            _ => None,
        })
        .collect();
    assert_eq!(results, [0x5000, 0, -22]);
    assert_eq!(given.warnings.len(), 1);
}

#[test]
fn what_a_chunk_repeats_is_dropped() {
    let again =
        [marker(21, 0), marker(22, 3), marker(2, 100), marker(3, 0), record(47, 2, 1)].concat();
    let given = read(&file(&[instr(0x1000, 2), again, instr(0x1002, 2), load(0x10, 8)]));
    assert_eq!(given.rows, [(0, F, 0x1000, 4, 1), (0, L, 0x10, 8, 1)]);
}

#[test]
fn physical_addresses_are_kept_where_they_are_known() {
    let bytes = file(&[
        instr(0x1000, 4),
        load(0x7008, 8),
        [marker(15, 0x9_0000), marker(17, 0x7000)].concat(),
        load(0x7010, 8),
        load(0x8010, 8),
        [marker(15, 0xa_0123), marker(17, 0x7456)].concat(),
        store_to(0x7018, 8),
        marker(16, 0x7000),
        store_to(0x7020, 8),
    ]);
    let given = read(&bytes);
    assert_eq!(given.rows.len(), 6);
    assert_eq!(given.paddr, [0, 0, 0x9_0010, 0, 0xa_0018, 0]);
}

#[test]
fn pages_may_be_listed_beside_the_trace() {
    let folder = Folder::new("v2p");
    let trace = folder.write("x.trace", &file(&[instr(0x1000, 4), load(0x20_1234, 8)]));
    let text = "page_size: 0x1000\nbytes_mapped: 8192 page_count: 2\n\
        address_mapping { physical_address: 0x5000 } # the page at 0\n\
        address_mapping {\n  virtual_address: 0x201000\n  physical_address: 24576\n}\n";
    let v2p = folder.write("v2p.textproto", text.as_bytes());
    let given =
        |spec: &str, options: &Options| drain(open(spec, options).unwrap().as_mut()).unwrap();
    let named = Options { v2p: Some(v2p.clone().into()), ..Options::default() };
    assert_eq!(given(&trace, &named).paddr, [0, 0x6234]);
    assert_eq!(given(&folder.0.display().to_string(), &Options::default()).paddr, [0, 0x6234]);
    for (text, part) in [
        (
            "page_size: 4096\naddress_mapping {\n virtual_address: x\n",
            "`virtual_address` without a number",
        ),
        ("page_size: 3\n", "no power of two"),
        ("address_mapping { }\n", "no page_size"),
        ("page_size: 4096\naddress_mapping {\n", "is truncated"),
        ("size: 4096\n", "unknown key `size`"),
        ("address_mapping virtual_address\n", "without its brace"),
    ] {
        folder.write("v2p.textproto", text.as_bytes());
        let error = open(&trace, &named).err().unwrap().to_string();
        assert!(error.contains(part), "{error}");
    }
}

/// The page lists of public traces have groups, each with pages of one size. If an address lies in
/// a small page and in a large page, the small page counts, even after another part of the large
/// page was used.
#[test]
fn pages_may_be_listed_in_groups() {
    let folder = Folder::new("v2p-groups");
    let rows = [
        load(0x10_0000, 8),
        load(0x40_1234, 8),
        load(0x7f00_0000_2008, 8),
        load(0x7f00_0000_1008, 8),
        load(0x7f00_0000_2010, 8),
        load(0x5000_0000, 8),
    ];
    folder.write("trace/x.trace", &file(&rows));
    let text = "# VirtualToPhysical\naddress_mapping_group    {\n  page_size: 0x200000\n\
        address_mapping {\n physical_address: 0x40000000\n }\n\
        address_mapping {\n virtual_address: 0x400000\n physical_address: 0x80000000\n }\n\
        address_mapping {\n virtual_address: 0x7f0000000000\n physical_address: 0xc0000000\n }\n\
        information {\n page_count: 0x2\n bytes_mapped: 0x400000\n }\n}\n\
        address_mapping_group {\n page_size: 4096\n address_mapping { virtual_address: \
        139637976731648 physical_address: 0x9000 } }\n\
        information {\n page_count: 0x3\n bytes_mapped: 0x401000\n}\n";
    // The file may be in the folder, in `aux` or beside the trace, and the user may name the folder
    // `trace` itself.
    let whole = folder.0.display().to_string();
    for (name, spec) in [
        ("v2p.textproto", whole.clone()),
        ("aux/v2p.textproto", whole.clone()),
        ("trace/v2p.textproto", whole.clone()),
        ("aux/v2p.textproto", format!("{whole}/trace")),
        ("v2p.textproto", format!("{whole}/trace")),
        ("trace/v2p.textproto", format!("{whole}/trace")),
    ] {
        let list = folder.write(name, text.as_bytes());
        let given = drain(open(&spec, &Options::default()).unwrap().as_mut()).unwrap();
        let expected = [0x4010_0000, 0x8000_1234, 0xc000_2008, 0x9008, 0xc000_2010, 0];
        assert_eq!(given.paddr, expected, "{name}");
        assert!(given.warnings.is_empty(), "{:?}", given.warnings);
        std::fs::remove_file(list).unwrap();
    }
}

/// Each process has its own pages: those of the list in its folder or, if there is none, of the
/// list for all processes.
#[test]
fn each_process_of_a_folder_has_its_own_list_of_pages() {
    let folder = Folder::new("v2p-processes");
    let list = |frame: u64| {
        format!(
            "page_size: 4096\naddress_mapping {{ virtual_address: 0x7000 physical_address: \
             {frame} }}\n"
        )
    };
    for tid in [5, 6, 7] {
        let piece = [header(tid, tid), time(100 * tid), load(0x7008, 8), end(tid)].concat();
        folder.write(&format!("drmemtrace.a.{tid}.dir/trace/x.{tid}.trace"), &piece);
    }
    let spec = folder.0.display().to_string();
    let paddr = || {
        let given = drain(open(&spec, &Options::default()).unwrap().as_mut()).unwrap();
        assert_eq!(given.rows.len(), 3);
        (given.paddr, given.warnings)
    };
    assert!(paddr().0.is_empty());
    folder.write("drmemtrace.a.5.dir/aux/v2p.textproto", list(0x50000).as_bytes());
    assert_eq!(paddr().0, [0x5_0008, 0, 0]);
    folder.write("drmemtrace.a.7.dir/v2p.textproto", list(0x70000).as_bytes());
    assert_eq!(paddr().0, [0x5_0008, 0, 0x7_0008]);
    folder.write("aux/v2p.textproto", list(0x90000).as_bytes());
    assert_eq!(paddr().0, [0x5_0008, 0x9_0008, 0x7_0008]);
    folder.write("drmemtrace.a.5.dir/aux/v2p.textproto", b"page_size: 3\n");
    let (found, warnings) = paddr();
    assert_eq!((found, warnings.len()), (vec![0, 0x9_0008, 0x7_0008], 1));
}

/// A damaged page list is ignored if it was found automatically, and refused if an option names it.
#[test]
fn a_damaged_list_of_pages_does_not_close_the_trace() {
    let folder = Folder::new("v2p-damaged");
    folder.write("trace/x.trace", &file(&[load(0x10_0000, 8)]));
    let spec = folder.0.display().to_string();
    for (text, part) in [
        (&b"address_mapping_group {\n page_size: 3\n"[..], "no power of two"),
        (b"address_mapping_group {\n page_size: 4096\n", "is truncated"),
        (b"address_mapping_group {\n address_mapping { }\n }\n", "no page_size"),
        (b"address_mapping_group {\n address_mapping_group {\n", "within another block"),
        (b"}\n", "closes nothing"),
        (b"\xff\xff\n", "not text"),
        (b"\x1f\x8b\x08\0", "truncated"),
    ] {
        let list = folder.write("aux/v2p.textproto", text);
        let given = drain(open(&spec, &Options::default()).unwrap().as_mut()).unwrap();
        assert_eq!((given.rows.len(), given.paddr.len()), (1, 0));
        let [warning] = &given.warnings[..] else { panic!("{:?}", given.warnings) };
        assert!(warning.contains(part) && warning.contains("v2p.textproto"), "{warning}");
        let named = Options { v2p: Some(list.into()), ..Options::default() };
        let error = open(&spec, &named).err().unwrap().to_string();
        assert!(error.contains(part), "{error}");
    }
}

/// A file of an AArch64 program that contains `records`.
fn aarch64_file(records: &[Vec<u8>]) -> Vec<u8> {
    let header = [record(25, 0, 7), marker(12, 7), marker(9, 0x8), record(22, 4, 5)].concat();
    let header = [header, record(24, 4, 5), marker(18, 4096)].concat();
    [header, time(100), records.concat(), end(5)].concat()
}

/// Addresses with eight different tags are in one page, in accesses, markers, page lists and system
/// calls.
#[test]
fn tags_of_aarch64_are_no_part_of_an_address() {
    let tagged = |tag: u64| tag << 56 | 0x4000_1000;
    let mut records = vec![instr(0x1000, 4)];
    records.extend([marker(15, 0x9000), marker(17, tagged(7))]);
    records.extend((0..8).map(|tag| load(tagged(tag) + 8 * tag, 8)));
    records.push(store_to(0xf0ff_8000_0000_2000, 8));
    // The program calls `madvise` with a tagged address.
    let call = (1u64 << 32) + 233;
    records.extend([marker(4, call), marker(6, tagged(3)), marker(6, 4096), marker(6, 14)]);
    records.extend([marker(4, call), marker(7, 0)]);
    let given = read(&aarch64_file(&records));
    let mut expected = vec![(0, F, 0x1000, 4, 1)];
    expected.extend((0..8).map(|tag| (0, L, 0x4000_1000 + 8 * tag, 8, 0)));
    expected.push((0, S, 0xffff_8000_0000_2000, 8, 0));
    assert_eq!(given.rows, expected);
    let frames: Vec<u64> = (0..8).map(|tag| 0x9000 + 8 * tag).collect();
    assert_eq!(given.paddr, [&[0][..], &frames, &[0]].concat());
    let advised = Event::Madvise { addr: 0x4000_1000, bytes: 4096, advice: 14, result: 0 };
    assert!(given.events.contains(&(10, 0, advised)), "{:?}", given.events);
    // Other instruction sets have no tags.
    assert_eq!(read(&file(&[load(tagged(3), 8)])).rows, [(0, L, tagged(3), 8, 0)]);

    let folder = Folder::new("v2p-tags");
    folder.write("trace/x.trace", &aarch64_file(&[load(tagged(1), 8), load(tagged(2), 8)]));
    let text = format!(
        "address_mapping_group {{ page_size: 4096\n address_mapping {{ virtual_address: {}\n \
         physical_address: 0x5000 }} }}\n",
        0x4000_1000
    );
    folder.write("aux/v2p.textproto", text.as_bytes());
    let path = folder.0.display().to_string();
    let given = drain(open(&path, &Options::default()).unwrap().as_mut()).unwrap();
    assert_eq!(given.paddr, [0x5000, 0x5000]);
}

/// A file that contains `records`. `bits` gives its instruction set, if any.
fn file_of(bits: u64, records: &[Vec<u8>]) -> Vec<u8> {
    let header = [record(25, 0, 7), marker(12, 7), marker(9, bits), record(22, 4, 5)].concat();
    [header, record(24, 4, 5), time(100), records.concat(), end(5)].concat()
}

/// If a file does not name its instruction set, the option applies. The option must not contradict
/// the file.
#[test]
fn an_instruction_set_is_given_where_the_file_names_none() {
    let arch = |arch| Options { arch: Some(arch), ..Options::default() };
    let tagged = 3 << 56 | 0x4000_1000;
    // madvise, by its number on AArch64.
    let call = (1u64 << 32) + 233;
    let records = [
        [marker(15, 0x9000), marker(17, tagged)].concat(),
        load(tagged, 8),
        [marker(4, call), marker(6, tagged), marker(6, 4096), marker(6, 14)].concat(),
        [marker(4, call), marker(7, 0)].concat(),
    ];
    let bytes = file_of(0, &records);
    let advised = Event::Madvise { addr: 0x4000_1000, bytes: 4096, advice: 14, result: 0 };
    let given = import(&bytes, &arch(Arch::Aarch64)).unwrap();
    assert_eq!(
        (&given.rows[..], &given.paddr[..]),
        (&[(0, L, 0x4000_1000, 8, 0)][..], &[0x9000][..])
    );
    assert!(given.events.contains(&(1, 0, advised)), "{:?}", given.events);
    let given = import(&bytes, &Options::default()).unwrap();
    assert_eq!(given.rows, [(0, L, tagged, 8, 0)]);

    for (bits, name) in [(0x8, "aarch64"), (0x10, "arm"), (0x20, "i386"), (0x40, "x86-64")] {
        let bytes = file_of(bits, &records);
        let own: Arch = name.parse().unwrap();
        let source =
            || from_reader("test", Box::new(std::io::Cursor::new(bytes.clone())), &arch(own));
        assert_eq!(source().unwrap().header().arch, own);
        let error = import(&bytes, &arch(Arch::Riscv64)).err().unwrap().to_string();
        assert!(error.contains("--arch riscv64") && error.contains(name), "{error}");
    }
}

/// The numbers of system calls by instruction set, from Linux 6.1: `unistd_64.h` and `unistd_32.h`
/// of x86, `unistd-common.h` and `unistd-eabi.h` of Arm, and `asm-generic/unistd.h` for AArch64. 0:
/// the instruction set has no such call.
#[test]
fn calls_have_the_numbers_of_their_instruction_set() {
    let sets = [0x40, 0x8, 0x20, 0x10];
    let calls: &[(&str, [u64; 4])] = &[
        ("mmap", [9, 222, 192, 192]),
        ("mprotect", [10, 226, 125, 125]),
        ("munmap", [11, 215, 91, 91]),
        ("brk", [12, 214, 45, 45]),
        ("mremap", [25, 216, 163, 163]),
        ("madvise", [28, 233, 219, 220]),
        ("fork 0x7000", [56, 220, 120, 120]),
        ("fork 0x11", [57, 0, 2, 2]),
        ("fork 0x4111", [58, 0, 190, 190]),
        ("exit", [60, 93, 1, 1]),
        ("exit-group", [231, 94, 252, 248]),
        ("warning", [0, 0, 90, 90]),
        ("warning", [435, 435, 435, 435]),
    ];
    for (set, bits) in sets.into_iter().enumerate() {
        for number in 0..500 {
            let call = (1u64 << 32) + number;
            let args = [0x7000, 0x2000, 0x3000, 0x22, 5, 0].map(|arg| marker(6, arg)).concat();
            let call = [marker(4, call), args, marker(4, call), marker(7, 0)].concat();
            let given = read(&file_of(bits, &[load(0x10, 8), call]));
            let found = match &given.events[..] {
                [_, (_, _, Event::Fork { flags, .. }), _] => format!("fork {flags:#x}"),
                [_, (_, _, Event::Exit { group: true, .. }), _] => "exit-group".to_owned(),
                [_, (_, _, event), _] => event.name().to_owned(),
                _ if given.warnings.len() == 1 => "warning".to_owned(),
                others => {
                    assert_eq!(others.len(), 2, "{others:?}");
                    String::new()
                }
            };
            let own = calls.iter().find(|(_, numbers)| number > 0 && numbers[set] == number);
            assert_eq!(found, own.map_or("", |(name, _)| name), "{bits:#x} {number}");
        }
    }
    // mmap2 counts its offset in pages.
    let call = (1u64 << 32) + 192;
    let args = [0, 8192, 1, 2, 3, 5].map(|arg| marker(6, arg)).concat();
    let records =
        [load(0x10, 8), [marker(4, call), args, marker(4, call), marker(7, 0x7000)].concat()];
    let given = read(&file_of(0x20, &records));
    let offset = given.events.iter().find_map(|(_, _, event)| match event {
        Event::Mmap { offset, .. } => Some(*offset),
        _ => None,
    });
    assert_eq!(offset, Some(5 * 4096));
}

/// An access that is larger than a row can be becomes several rows, which together have all of its
/// bytes.
#[test]
fn accesses_of_any_size_touch_all_of_their_bytes() {
    for (addr, bytes) in [
        (0x7000_0000u64, 65535u16),
        (0x7000_0fff, 65535),
        (0x7000_1ff0, 16384),
        (0x7000_0001, 16383),
    ] {
        let given = read(&file(&[instr(0x1000, 4), store_to(addr, bytes), load(0x10, 8)]));
        let stores: Vec<_> = given.rows.iter().filter(|row| row.1 == S).collect();
        let lines = |row: &Row| (row.2 / 64)..=(row.2 + u64::from(row.3) - 1) / 64;
        let touched: Vec<u64> = stores.iter().flat_map(|row| lines(row)).collect();
        let expected: Vec<u64> = (addr / 64..=(addr + u64::from(bytes) - 1) / 64).collect();
        assert_eq!(touched, expected, "{addr:#x} {bytes}");
        assert_eq!(stores.iter().map(|row| row.3).sum::<u32>(), u32::from(bytes));
        let pages = |row: &Row| row.2 >> 12..=(row.2 + u64::from(row.3) - 1) >> 12;
        let touched: Vec<u64> = stores.iter().flat_map(|row| pages(row)).collect();
        assert!(touched.is_sorted_by(|a, b| a < b), "a page is looked up twice: {touched:x?}");
        assert_eq!(given.instructions(), 1);
        match bytes {
            16383 => assert!(given.warnings.is_empty()),
            _ => assert_eq!(
                given.warnings,
                [
                    "1 access is larger than 16383 bytes: counted as several, cut at multiples of 8 KiB"
                ]
            ),
        }
    }
}

/// Files of two threads of one process and of one thread of another process, with times.
fn three_threads(folder: &Folder, ties: bool) {
    let piece = |pc: u64| [instr(pc, 4), load(pc << 8, 8)].concat();
    let at = |time: u64| if ties { 100 } else { time };
    let one = [
        header(5, 5),
        time(100),
        piece(0x1000),
        time(at(130)),
        piece(0x1100),
        time(at(140)),
        piece(0x1200),
        end(5),
    ];
    let two = [header(6, 5), time(at(110)), piece(0x2000), time(at(160)), piece(0x2100), end(6)];
    let three = [header(9, 9), time(at(120)), piece(0x3000), time(at(135)), piece(0x3100), end(9)];
    folder.write("trace/a.5.trace.zip", &zip::archive(&[&one.concat()], zip::Lengths::Known));
    folder.write("trace/a.6.trace", &two.concat());
    folder.write("trace/b.9.trace", &three.concat());
    folder.write("trace/encodings.bin", b"other");
}

fn fetched(given: &Given) -> Vec<(u32, u64)> {
    given.rows.iter().filter(|row| row.1 == F).map(|row| (row.0, row.2)).collect()
}

#[test]
fn threads_are_interleaved_by_time() {
    let folder = Folder::new("interleaved");
    three_threads(&folder, false);
    let spec = folder.0.display().to_string();
    let given = drain(open(&spec, &Options::default()).unwrap().as_mut()).unwrap();
    assert_eq!(
        fetched(&given),
        [(0, 0x1000), (1, 0x2000), (2, 0x3000), (0, 0x1100), (2, 0x3100), (0, 0x1200), (1, 0x2100)]
    );
    let switches: Vec<(u64, u32)> = given
        .events
        .iter()
        .filter_map(|(at, _, event)| match event {
            Event::Run { space, .. } => Some((*at, *space)),
            _ => None,
        })
        .collect();
    assert_eq!(switches, [(4, 1), (6, 0), (8, 1), (10, 0)]);
    assert_eq!(given.instructions(), 7);
    // The folder `trace` inside the folder can be named too.
    let below = folder.0.join("trace").display().to_string();
    let again = drain(open(&below, &Options::default()).unwrap().as_mut()).unwrap();
    assert_eq!(again, given);
}

#[test]
fn processes_are_told_and_one_can_be_taken() {
    let folder = Folder::new("processes");
    three_threads(&folder, false);
    let spec = folder.0.display().to_string();
    // Each process has a folder of its own, as a program and its child write them.
    let several = Folder::new("outdir");
    for (from, to) in [
        ("a.5.trace.zip", "drmemtrace.sh.5.5.dir/trace/drmemtrace.sh.5.5.trace.zip"),
        ("a.6.trace", "drmemtrace.sh.5.5.dir/trace/drmemtrace.sh.5.6.trace"),
        ("b.9.trace", "drmemtrace.ls.9.9.dir/trace/drmemtrace.ls.9.9.trace"),
    ] {
        several.write(to, &std::fs::read(folder.0.join("trace").join(from)).unwrap());
    }
    let outdir = several.0.display().to_string();
    for (spec, names) in [(&spec, ["", ""]), (&outdir, ["sh", "ls"])] {
        let mut source = open(spec, &Options::default()).unwrap();
        let given = drain(source.as_mut()).unwrap();
        assert_eq!(given.rows.len(), 14);
        let told: Vec<(u32, u32, &str, u64)> = source
            .processes()
            .iter()
            .map(|process| (process.number, process.pid, process.name(), process.accesses))
            .collect();
        assert_eq!(told, [(0, 5, names[0], 10), (1, 9, names[1], 4)]);
        let note = &source.header().notes;
        assert!(note.iter().any(|note| note.contains("processes by their spaces: 0 ")), "{note:?}");
        let only =
            |wanted: &str| Options { process: Some(wanted.to_owned()), ..Options::default() };
        let mut source = open(spec, &only("9")).unwrap();
        let one = drain(source.as_mut()).unwrap();
        assert_eq!(fetched(&one), [(0, 0x3000), (0, 0x3100)]);
        assert_eq!(source.processes().len(), 1);
        let error = open(spec, &only("cc")).err().unwrap().to_string();
        assert!(error.contains("no process `cc`; its processes are 5 ("), "{error}");
    }
}

fn entry(tid: u64, time: u64, start: u64) -> Vec<u8> {
    [tid, time, 0, start].iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn a_schedule_decides_between_segments_of_one_time() {
    use std::io::Write;
    let folder = Folder::new("scheduled");
    three_threads(&folder, true);
    let options = Options { interleave: Interleave::Schedule, ..Options::default() };
    let spec = folder.0.display().to_string();
    let message = || open(&spec, &options).err().unwrap().to_string();
    assert!(message().contains("the folder has no schedule"), "{}", message());

    let schedule = [entry(9, 100, 0), entry(6, 100, 0), entry(5, 100, 0)].concat();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&schedule).unwrap();
    folder.write("trace/serial_schedule.bin.gz", &gzip.finish().unwrap());
    let given = drain(open(&spec, &options).unwrap().as_mut()).unwrap();
    let order: Vec<u64> = fetched(&given).iter().map(|(_, pc)| *pc).collect();
    assert_eq!(order, [0x3000, 0x3100, 0x2000, 0x2100, 0x1000, 0x1100, 0x1200]);
    assert!(given.warnings.is_empty());

    // Threads that the schedule does not mention come at the end, with a warning.
    folder.write("trace/serial_schedule.bin.gz", &entry(6, 100, 0));
    let given = drain(open(&spec, &options).unwrap().as_mut()).unwrap();
    let order: Vec<u64> = fetched(&given).iter().map(|(_, pc)| *pc).collect();
    assert_eq!(order, [0x2000, 0x2100, 0x1000, 0x1100, 0x1200, 0x3000, 0x3100]);
    assert!(given.warnings[0].contains("the schedule ends before"), "{:?}", given.warnings);

    for (bytes, part) in [
        (entry(77, 100, 0), "names thread 77"),
        (entry(6, 100, 0)[..31].to_vec(), "within an entry"),
    ] {
        folder.write("trace/serial_schedule.bin.gz", &bytes);
        let error =
            open(&spec, &options).and_then(|mut source| drain(source.as_mut())).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }

    // The processors' schedules, a member each, are put into one order.
    std::fs::remove_file(folder.0.join("trace/serial_schedule.bin.gz")).unwrap();
    let members = [&entry(6, 99, 0)[..], &[entry(5, 98, 0), entry(9, 100, 0)].concat()];
    folder.write("trace/cpu_schedule.bin.zip", &zip::archive(&members, zip::Lengths::Known));
    let given = drain(open(&spec, &options).unwrap().as_mut()).unwrap();
    assert_eq!(given.rows.len(), 14);
}

#[test]
fn a_processors_file_changes_threads_on_the_way() {
    let switch =
        |tid: u64, pid: u64| [record(25, 0, 7), record(22, 4, tid), record(24, 4, pid)].concat();
    let bytes = [
        header(5, 5),
        time(100),
        instr(0x1000, 4),
        switch(6, 5),
        time(110),
        instr(0x1004, 4),
        load(0x10, 8),
        record(26, 0, 0),
        switch(5, 5),
        time(120),
        load(0x20, 8),
        switch(9, 9),
        instr(0x1008, 4),
        record(26, 0, 0),
    ]
    .concat();
    let given = read(&bytes);
    assert_eq!(
        given.rows,
        [
            (0, F, 0x1000, 4, 1),
            (1, F, 0x1004, 4, 1),
            (1, L, 0x10, 8, 0),
            (0, L, 0x20, 8, 0),
            (2, F, 0x1008, 4, 1),
        ]
    );
    assert_eq!(
        given.events,
        [
            START,
            (1, 1, Event::ThreadStart { tid: 6 }),
            (4, 2, Event::Process { number: 1 }),
            (4, 2, Event::Run { cpu: None, space: 1 }),
            (4, 2, Event::ThreadStart { tid: 9 }),
        ]
    );
}

#[test]
fn windows_are_gaps() {
    let given = read(&file(&[
        marker(14, 0),
        instr(0x1000, 4),
        marker(14, 1),
        marker(14, 1),
        instr(0x1004, 4),
    ]));
    assert_eq!(given.events[1], (1, 0, Event::Gap { accesses: 0, instructions: 0 }));
    assert_eq!(given.events.len(), 3);
    assert_eq!(given.count(F), 2);
}

#[test]
fn switches_that_the_kernel_traced_are_events() {
    let given = read(&file(&[
        instr(0x1000, 4),
        marker(34, 1),
        instr(0x9000, 4),
        marker(35, 1),
        marker(34, 2),
        marker(35, 2),
        instr(0x1004, 4),
    ]));
    assert_eq!(given.events[1], (1, 0, Event::ContextSwitch { process: false }));
    assert_eq!(given.events[2], (2, 0, Event::ContextSwitch { process: true }));
    assert_eq!(given.count(F), 3);
}

#[test]
fn a_file_without_times_is_one_segment() {
    let given = read(&[header(5, 5), instr(0x1000, 4), record(49, 2, 0x1004), end(5)].concat());
    assert_eq!(given.rows, [(0, F, 0x1000, 6, 1)]);
    assert_eq!(given.instructions(), 2);
    assert_eq!(read(&[header(5, 5), record(48, 2, 0x1004), end(5)].concat()).rows.len(), 1);
}

#[test]
fn what_the_header_says_is_told() {
    let bits = |bits: u64| {
        let bytes = [
            record(25, 0, 7),
            marker(9, bits),
            marker(18, 65536),
            record(22, 4, 5),
            instr(0x1000, 4),
            end(5),
        ]
        .concat();
        let source = trace::import::from_reader(
            "t",
            Box::new(std::io::Cursor::new(bytes)),
            &Options::default(),
        )
        .unwrap();
        source.header().clone()
    };
    assert_eq!(bits(0x40).arch, trace::Arch::X86_64);
    assert_eq!(bits(0x8).arch, trace::Arch::Aarch64);
    assert_eq!((bits(0).page_bytes, bits(0).notes.len()), (65536, 0));
    assert!(bits(0x180).notes.iter().all(|note| note.contains("small cache")));
    assert_eq!(bits(0x180).notes.len(), 2);
}

#[test]
fn wrong_files_are_refused_with_their_place() {
    let no = Options::default();
    let good = file(&[instr(0x1000, 4), load(0x10, 8)]);
    let keep = Options { keep_going: true, ..Options::default() };
    for (bytes, part, at) in [
        ([record(25, 0, 0), marker(12, 0)].concat(), "version 0", 0),
        (
            [record(25, 0, 8), marker(12, 8)].concat(),
            "version 8 of DynamoRIO's format; versions 1 to 7",
            0,
        ),
        (good[..good.len() - 12].to_vec(), "no end: it is truncated", 156),
        (good[..good.len() - 5].to_vec(), "7 of 12 bytes", 156),
        (file(&[record(50, 0, 0)]), "a record of type 50", 120),
        (file(&[record(0, 0, 0)]), "a record of zeros", 120),
        (file(&[marker(18, 5000)]), "the page size is 5000 bytes", 120),
    ] {
        assert_eq!(refused(&bytes, &no, part), Some(at), "{part}");
        // The rows before the error are kept, if there are any.
        if at == 0 {
            refused(&bytes, &keep, part);
            continue;
        }
        let kept = import(&bytes, &keep).unwrap();
        assert_eq!(kept.warnings.len(), 1);
        assert!(
            kept.warnings[0].contains(part)
                && kept.warnings[0].ends_with("the part before it is kept")
        );
    }
    let kept = import(&good[..good.len() - 5], &keep).unwrap();
    assert_eq!(kept.rows, [(0, F, 0x1000, 4, 1), (0, L, 0x10, 8, 0)]);
    let named = Options { format: Some(Format::DrMemTrace), ..Options::default() };
    refused(&good[12..], &named, "no header of a DynamoRIO trace");
}

/// If one of several files is damaged, the others are still imported.
#[test]
fn the_whole_files_are_kept_beside_a_damaged_one() {
    let folder = Folder::new("damaged");
    three_threads(&folder, false);
    let path = folder.0.join("trace/a.6.trace");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 30]).unwrap();
    let spec = folder.0.display().to_string();
    let read =
        |options: &Options| open(&spec, options).and_then(|mut source| drain(source.as_mut()));
    let error = read(&Options::default()).unwrap_err().to_string();
    assert!(error.contains("a.6.trace"), "{error}");
    let keep = Options { keep_going: true, ..Options::default() };
    let kept = read(&keep).unwrap();
    assert_eq!(kept.count(F), 7);
    assert_eq!(kept.warnings.len(), 1);
    // A file that is of another kind from its first byte on is also refused.
    for (bytes, part) in [
        (&b""[..], "is empty"),
        (&[0, 25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7], "big-endian"),
        (&[0; 50], "no header"),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let error = read(&Options::default()).unwrap_err().to_string();
        assert!(error.contains("a.6.trace") && error.contains(part), "{error}");
        let kept = read(&keep).unwrap();
        assert_eq!((kept.count(F), kept.warnings.len()), (5, 1), "{:?}", kept.warnings);
    }
}

/// Writes random records of several threads, more than a batch holds, and compares the import with
/// a simple model.
#[test]
fn what_was_written_comes_out() {
    seeded(3, |random| {
        let folder = Folder::new("model");
        let threads = 1 + random.below(4);
        // Rows by time: (time, thread) gives the rows of one segment.
        let mut segments: Vec<(u64, u64, Vec<Row>)> = Vec::new();
        for thread in 0..threads {
            let mut bytes = header(100 + thread, 1);
            let (mut now, mut pc) = (1000 + thread, 0x40_0000);
            for _ in 0..40 {
                bytes.extend(time(now));
                let mut rows = Vec::new();
                for _ in 0..random.below(3000) {
                    let (addr, size) = (random.next() >> 17, 1 + random.below(64));
                    match random.below(3) {
                        0 => {
                            pc = if random.below(4) == 0 { addr } else { pc + 4 };
                            let kind = if random.below(6) == 0 { 48 } else { 10 };
                            bytes.extend(record(kind, 4, pc));
                            rows.push((thread as u32, F, pc, 4, 1));
                        }
                        1 => {
                            bytes.extend(load(addr, size as u16));
                            rows.push((thread as u32, L, addr, size as u32, 0));
                        }
                        _ => {
                            bytes.extend(store_to(addr, size as u16));
                            rows.push((thread as u32, S, addr, size as u32, 0));
                        }
                    }
                }
                segments.push((now, thread, rows));
                now += threads * (1 + random.below(50));
            }
            bytes.extend(end(100 + thread));
            folder.write(&format!("t{thread}.trace"), &bytes);
        }
        segments.sort_by_key(|&(time, thread, _)| (time, thread));
        let mut expected: Vec<Row> = segments.into_iter().flat_map(|(_, _, rows)| rows).collect();
        // Threads are numbered as their rows appear.
        let mut order: Vec<u32> = Vec::new();
        for row in &mut expected {
            let known = order.iter().position(|&thread| thread == row.0);
            row.0 = known.unwrap_or_else(|| {
                order.push(row.0);
                order.len() - 1
            }) as u32;
        }
        let single = Options { fetches: Fetches::Instructions, ..Options::default() };
        let spec = folder.0.display().to_string();
        let given = drain(open(&spec, &single).unwrap().as_mut()).unwrap();
        same(&given.rows, &expected, "rows");
        let blocks = drain(open(&spec, &Options::default()).unwrap().as_mut()).unwrap();
        same(&blocks.data(), &given.data(), "accesses");
        assert_eq!(blocks.instructions(), given.instructions());
        assert!(blocks.count(F) < given.count(F));
        // The stored trace has the rows that were imported.
        let path = store(&folder, open(&spec, &Options::default()).unwrap().as_mut());
        let stored = drain(open(&path, &Options::default()).unwrap().as_mut()).unwrap();
        same(&stored.rows, &blocks.rows, "stored rows");
        same(&stored.events, &blocks.events, "stored events");
    });
}

#[test]
fn events_and_physical_addresses_are_stored() {
    let call = [
        marker(4, (1 << 32) + 11),
        marker(6, 0x7000),
        marker(6, 4096),
        marker(4, (1 << 32) + 11),
        marker(7, 0),
    ];
    let bytes = file(&[
        [marker(15, 0x9_0000), marker(17, 0x7000)].concat(),
        instr(0x1000, 4),
        load(0x7010, 8),
        call.concat(),
        instr(0x1004, 4),
        store_to(0x7010, 8),
    ]);
    let folder = Folder::new("stored");
    let mut source = import_source(&bytes);
    let path = store(&folder, source.as_mut());
    let (given, stored) =
        (read(&bytes), drain(open(&path, &Options::default()).unwrap().as_mut()).unwrap());
    assert_eq!((given.rows, given.paddr, given.events), (stored.rows, stored.paddr, stored.events));
}
