//! Reads a trace that an older version wrote.

use addr::Kind;
use trace::{Batch, Error, Reader, Source};

/// A recording of version 3, as 013fcbe5 wrote it, with one zstd level for all streams. Two
/// threads, and later a third, run one block 120 times. The addresses of two of its four operations
/// are stored in full.
const VERSION_3: &str = "\
    895057540d0a1a0a030000004845414483000000aaa0575f7b2270726f6475636572223a227061676577616c6b207265\
    636f726420302e312e30222c22636f6d6d616e64223a5b22677a6970225d2c2261726368223a227838365f3634222c22\
    66657463686573223a747275652c2266696c746572223a226e6f6e65222c22706167655f6279746573223a343039362c\
    226e6f746573223a5b5d7d50524f434d00000072fa2b797b226e756d626572223a302c22706964223a312c2262656761\
    6e5f6e73223a352c2270726f6772616d73223a5b5d2c226163636573736573223a302c22696e737472756374696f6e73\
    223a307d43484e4b840200000456db68000000000000000068010000000000005802000078000000f000000003000000\
    030000000300000006000000000000000300000005000000000000003c0000003c000000090000000900000078000000\
    2800000078000000780000009100000091000000e50000008600000000000000000000000c0000000c00000080c08004\
    130124012101220021002100000230000110001301240121012200210021000002300001100013012401210122002100\
    210000023000011000320001320002140028b52ffd2078fd0000b0000000000000000001010101010101020202020202\
    0203100087c134212e772200000000030200000020200402000000000005022020000000060200000000202702000000\
    000002020020200000030277220000002422000000000005020000202000060200000000000722200000000003020000\
    0020200402000000000005022088220000050200000000202602000000000007022000000000fe1fe0fffffffd201000\
    03209f100040032000008002209f10000000b001209f0000000010011020a4209f10006020d48883b211ffc38883b211\
    ff20100000379f20100000001f209f10000000401120000000008009209f103005209f1000d0022000008401209fb463\
    4113a30801a3634113a308012010000000d0209f000000006f102000000000003b2028b52ffd20e5ed0300e4065b7b22\
    6174223a3630302c22746872656164223a302c226576656e74223a7b22676170222c226163636573736573223a302c22\
    696e737472756374696f6e73223a317d7d2c7b226174223a3630302c22746872656164223a312c226576656e74223a7b\
    226576322c226576656e5d040042647ec281030833899207c8018103c8019003c8019003494e4458600000002e6781c3\
    5900000072fa2b7900000000000000000000000000000000010000000000000000000000000000000500000000000000\
    900200000456db685802000003000000680100000000000000000000000000000a739634c034be640500000000000000\
    5441494c0800000081a89eab8403000000000000";

fn bytes() -> Vec<u8> {
    let digits: Vec<u8> =
        VERSION_3.bytes().map(|digit| (digit as char).to_digit(16).unwrap() as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// The recorded rows: address, kind, bytes and instructions.
fn recorded() -> Vec<(u64, Kind, u32, u32)> {
    let (mut rows, mut addr) = (Vec::new(), 0x7f00_0000_0000u64);
    for execution in 0..120u64 {
        addr =
            addr.wrapping_add(if execution % 7 == 6 { execution << (execution % 40) } else { 16 });
        // The third instruction of an execution is counted by the thread's next execution.
        let left = u32::from(execution % 50 != 0);
        rows.extend([
            (0x40_1000, Kind::Fetch, 9, 1 + left),
            (addr, Kind::Load, 8, 1),
            (addr.wrapping_add(24), Kind::Store, 8, 0),
            (0x1000 + 8 * (execution % 11), Kind::Load, 8, 0),
            (0x40_1008, Kind::Load, 8, 0),
        ]);
    }
    rows
}

fn read(name: &str, bytes: &[u8]) -> Result<Vec<(u64, Kind, u32, u32)>, Error> {
    let path = std::env::temp_dir().join(format!("pagewalk-{}-{name}.pwt", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let (mut rows, mut batch) = (Vec::new(), Batch::default());
    let read = Reader::open(&path).and_then(|mut reader| {
        while reader.next(&mut batch)? {
            let metas =
                batch.meta.iter().map(|meta| (meta.kind(), meta.size(), meta.instructions()));
            let all = batch.addr.iter().zip(metas);
            rows.extend(all.map(|(&addr, (kind, size, count))| (addr, kind, size, count)));
        }
        Ok(())
    });
    std::fs::remove_file(&path).unwrap();
    read.map(|()| rows)
}

#[test]
fn a_recording_of_version_3_is_read() {
    assert_eq!(read("older", &bytes()).unwrap(), recorded());
}

/// A change of any byte is refused, or does not change the accesses that are read.
#[test]
fn a_damaged_recording_of_version_3_is_refused() {
    let whole = bytes();
    let mut refused = 0;
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        match read("older-damaged", &damaged) {
            Ok(rows) => assert_eq!(rows, recorded(), "byte {at}"),
            Err(_) => refused += 1,
        }
    }
    assert!(refused > whole.len() * 3 / 4, "{refused} of {}", whole.len());
}
