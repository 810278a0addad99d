use trace::Event;
use trace::import::{Fetches, Format, Options};

use crate::support::*;

fn options(format: Format) -> Options {
    Options { format: Some(format), ..Options::default() }
}

/// A record of 64 bytes. The fields and their offsets: ip 0, is_branch 8, branch_taken 9, registers
/// 10 and 12, dest_mem 16, src_mem 32.
fn record(ip: u64, branch: u8, dest: [u64; 2], src: [u64; 4]) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..8].copy_from_slice(&ip.to_le_bytes());
    bytes[8] = branch;
    bytes[9] = branch;
    bytes[10..16].copy_from_slice(&[1, 2, 3, 4, 5, 6]);
    for (slot, addr) in dest.iter().enumerate() {
        bytes[16 + 8 * slot..][..8].copy_from_slice(&addr.to_le_bytes());
    }
    for (slot, addr) in src.iter().enumerate() {
        bytes[32 + 8 * slot..][..8].copy_from_slice(&addr.to_le_bytes());
    }
    bytes
}

/// A record of 96 bytes. The fields and their offsets: ip 0, is_branch 8, branch_taken 9, registers
/// 10 and 14, dest_mem 24, src_mem 56, asid 88.
fn cloudsuite(ip: u64, dest: [u64; 4], src: [u64; 4], asid: u16) -> [u8; 96] {
    let mut bytes = [0; 96];
    bytes[..8].copy_from_slice(&ip.to_le_bytes());
    for (slot, addr) in dest.iter().enumerate() {
        bytes[24 + 8 * slot..][..8].copy_from_slice(&addr.to_le_bytes());
    }
    for (slot, addr) in src.iter().enumerate() {
        bytes[56 + 8 * slot..][..8].copy_from_slice(&addr.to_le_bytes());
    }
    bytes[88..90].copy_from_slice(&asid.to_le_bytes());
    bytes
}

#[test]
fn loads_come_before_stores_and_branches_end_blocks() {
    let bytes = [
        record(0x40_1000, 0, [0x7f00_0000_0010, 0], [0x7f00_0000_0000, 0, 0, 0x7f00_0000_0008]),
        record(0x40_1004, 1, [0, 0], [0; 4]),
        record(0x40_1006, 0, [0, 0x7f00_0000_0020], [0; 4]),
        record(0x40_1016, 0, [0, 0], [0; 4]),
        record(0x40_1000, 0, [0, 0], [0; 4]),
    ]
    .concat();
    let given = import(&bytes, &options(Format::ChampSim)).unwrap();
    assert_eq!(
        given.rows,
        [
            (0, F, 0x40_1000, 5, 1),
            (0, L, 0x7f00_0000_0000, 1, 0),
            (0, L, 0x7f00_0000_0008, 1, 0),
            (0, S, 0x7f00_0000_0010, 1, 0),
            (0, F, 0x40_1006, 1, 2),
            (0, S, 0x7f00_0000_0020, 1, 0),
            (0, F, 0x40_1016, 1, 1),
            (0, F, 0x40_1000, 1, 1),
        ]
    );
    assert_eq!(import(&bytes, &Options::default()).unwrap(), given, "found out without a name");
}

#[test]
fn cloudsuite_records_have_spaces() {
    let bytes = [
        cloudsuite(0x1000, [0x10, 0, 0, 0x20], [0, 0x30, 0, 0], 0),
        cloudsuite(0x1004, [0; 4], [0x40, 0, 0, 0], 7),
    ]
    .concat();
    let given = import(&bytes, &options(Format::CloudSuite)).unwrap();
    assert_eq!(
        given.rows,
        [
            (0, F, 0x1000, 1, 1),
            (0, L, 0x30, 1, 0),
            (0, S, 0x10, 1, 0),
            (0, S, 0x20, 1, 0),
            (0, F, 0x1004, 1, 1),
            (0, L, 0x40, 1, 0),
        ]
    );
    assert_eq!(given.events, [(4, 0, Event::Run { cpu: None, space: 7 })]);
    refused(&bytes, &Options::default(), "CloudSuite");
}

#[test]
fn addresses_cut_to_32_bits_are_said_loudly() {
    let high = 0x7f12_3456_0000;
    let cut: Vec<u8> =
        (0..40).flat_map(|i| record(high + 4 * i, 0, [0, 0], [0x5000 + i, 0, 0, 0])).collect();
    let given = import(&cut, &options(Format::ChampSim)).unwrap();
    for text in [&given.notes[1], &given.warnings[0]] {
        assert!(text.contains("WRONG ADDRESSES") && text.contains("32 bits"), "{text}");
    }
    for bytes in [
        // A single address above 4 GiB proves that the other addresses are not truncated.
        [cut.clone(), record(high, 0, [0, 0], [1 << 32, 0, 0, 0]).to_vec()].concat(),
        // A program that is not position-independent has low instructions, too.
        (0..40).flat_map(|i| record(0x40_0000 + 4 * i, 0, [0, 0], [0x5000 + i, 0, 0, 0])).collect(),
        // There are too few accesses to decide.
        cut[..64 * 15].to_vec(),
    ] {
        let given = import(&bytes, &options(Format::ChampSim)).unwrap();
        assert!(given.warnings.is_empty(), "{:?}", given.warnings);
    }
}

#[test]
fn what_is_cut_or_no_record_is_refused() {
    let mut bytes =
        [record(0x1000, 0, [0, 0], [0x10, 0, 0, 0]), record(0x1004, 0, [0, 0], [0; 4])].concat();
    assert_eq!(
        refused(&bytes[..100], &options(Format::ChampSim), "within a record (36 bytes"),
        Some(64)
    );
    let kept = Options { keep_going: true, ..options(Format::ChampSim) };
    let given = import(&bytes[..100], &kept).unwrap();
    assert_eq!(given.rows, [(0, F, 0x1000, 1, 1), (0, L, 0x10, 1, 0)]);
    assert!(given.warnings[0].contains("the part before it is kept"), "{:?}", given.warnings);
    bytes[64 + 8] = 2;
    assert_eq!(refused(&bytes, &options(Format::ChampSim), "--cloudsuite"), Some(64));
}

#[test]
fn what_was_written_comes_out() {
    seeded(3, |random| {
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        let mut pc = 0x55_0000;
        for _ in 0..90_000 {
            let slot = |random: &mut Random| match random.below(3) {
                0 => 1 + random.below(1 << 47),
                _ => 0,
            };
            let dest = [slot(random), slot(random)];
            let src = [slot(random), slot(random), slot(random), slot(random)];
            let branch = random.below(6) == 0;
            bytes.extend(record(pc, u8::from(branch), dest, src));
            expected.push((0, F, pc, 1, 1));
            expected.extend(src.iter().filter(|&&addr| addr != 0).map(|&addr| (0, L, addr, 1, 0)));
            expected.extend(dest.iter().filter(|&&addr| addr != 0).map(|&addr| (0, S, addr, 1, 0)));
            pc = if branch { 0x55_0000 + random.below(1 << 20) } else { pc + 1 + random.below(15) };
        }
        let single = Options { fetches: Fetches::Instructions, ..options(Format::ChampSim) };
        let rows = import(&bytes, &single).unwrap();
        same(&rows.rows, &expected, "rows");
        let blocks = import(&bytes, &options(Format::ChampSim)).unwrap();
        same(&blocks.data(), &rows.data(), "accesses");
        assert_eq!(blocks.instructions(), 90_000);
        assert!(blocks.count(F) < 40_000, "{}", blocks.count(F));
    });
}
