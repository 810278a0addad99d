//! Tests zip archives, which are written after APPNOTE.TXT, sections 4.3.7 to 4.3.16.

use std::io::Write;

use trace::import::Options;

use crate::support::*;

/// The place of a member's lengths in the archive.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Lengths {
    /// In the header of the member.
    Known,
    /// In a descriptor after the member, with or without a signature, with 32 or 64 bits.
    After { signature: bool, long: bool },
    /// In an extra field with 64 bits.
    Zip64,
    /// In the header of the member; the data are not compressed.
    Stored,
}

pub(crate) fn archive(members: &[&[u8]], lengths: Lengths) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, data) in members.iter().enumerate() {
        member(&mut bytes, &format!("chunk.{index:04}"), data, lengths);
    }
    // The directory has one entry and an end record. The importer reads only the headers of the
    // members.
    bytes.extend(b"PK\x01\x02");
    bytes.extend([0; 42]);
    bytes.extend(b"PK\x05\x06");
    bytes.extend([0; 18]);
    bytes
}

fn member(bytes: &mut Vec<u8>, name: &str, data: &[u8], lengths: Lengths) {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(data).unwrap();
    let packed = if lengths == Lengths::Stored { data.to_vec() } else { encoder.finish().unwrap() };
    let mut crc = flate2::Crc::new();
    crc.update(data);
    let crc = crc.sum();
    let (flags, method) = match lengths {
        Lengths::After { .. } => (8u16, 8u16),
        Lengths::Stored => (0, 0),
        _ => (0, 8),
    };
    let long = matches!(lengths, Lengths::Zip64 | Lengths::After { long: true, .. });
    let (short_packed, short_bytes) = match lengths {
        Lengths::After { .. } => (0, 0),
        Lengths::Zip64 => (u32::MAX, u32::MAX),
        _ => (packed.len() as u32, data.len() as u32),
    };
    bytes.extend(b"PK\x03\x04");
    for half in [45, flags, method, 0, 0] {
        bytes.extend(half.to_le_bytes());
    }
    bytes.extend(if flags == 0 { crc } else { 0 }.to_le_bytes());
    bytes.extend(short_packed.to_le_bytes());
    bytes.extend(short_bytes.to_le_bytes());
    bytes.extend((name.len() as u16).to_le_bytes());
    let extra: Vec<u8> = if long {
        let lengths = if flags == 0 { [data.len() as u64, packed.len() as u64] } else { [0, 0] };
        // An unknown extra field precedes the lengths.
        let mut extra = vec![0xfe, 0xca, 1, 0, 9, 1, 0, 16, 0];
        extra.extend(lengths[0].to_le_bytes());
        extra.extend(lengths[1].to_le_bytes());
        extra
    } else {
        Vec::new()
    };
    bytes.extend((extra.len() as u16).to_le_bytes());
    bytes.extend(name.as_bytes());
    bytes.extend(extra);
    bytes.extend(&packed);
    if let Lengths::After { signature, long } = lengths {
        if signature {
            bytes.extend(b"PK\x07\x08");
        }
        bytes.extend(crc.to_le_bytes());
        for length in [packed.len(), data.len()] {
            bytes.extend((length as u32).to_le_bytes());
            if long {
                bytes.extend(0u32.to_le_bytes());
            }
        }
    }
}

const ALL: [Lengths; 7] = [
    Lengths::Known,
    Lengths::Zip64,
    Lengths::Stored,
    Lengths::After { signature: true, long: false },
    Lengths::After { signature: false, long: false },
    Lengths::After { signature: true, long: true },
    Lengths::After { signature: false, long: true },
];

#[test]
fn members_of_every_kind_are_read_in_order() {
    let members: [&[u8]; 4] = [b"I  1000,4\n L 10", b"", b",8\nI  1004,4\n", b" S 18,4\n"];
    for lengths in ALL {
        let given = import(&archive(&members, lengths), &Options::default())
            .unwrap_or_else(|error| panic!("{lengths:?}: {error}"));
        assert_eq!(
            given.rows,
            [(0, F, 0x1000, 8, 1), (0, L, 0x10, 8, 0), (0, S, 0x18, 4, 1)],
            "{lengths:?}"
        );
    }
}

#[test]
fn a_member_that_is_not_what_it_says_is_refused() {
    let text = b"I  1000,4\n L 10,8\n".as_slice();
    let at = |bytes: &[u8], offset: usize, value: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes[offset..offset + value.len()].copy_from_slice(value);
        bytes
    };
    let no = Options::default();
    let good = archive(&[text], Lengths::Known);
    refused(
        &at(&good, 14, &[1, 2, 3, 4]),
        &no,
        "`chunk.0000` of the zip does not match its checksum",
    );
    refused(&at(&good, 22, &[3, 0, 0, 0]), &no, "expands to more than the 3 bytes of its header");
    refused(&at(&good, 22, &[99, 0, 0, 0]), &no, "has 18 bytes, but its header gives 99");
    refused(&at(&good, 6, &[1, 0]), &no, "is encrypted");
    refused(&at(&good, 8, &[12, 0]), &no, "uses compression 12");
    refused(&at(&good, 8, &[0, 0]), &no, "zip");
    let long = archive(&[text], Lengths::After { signature: true, long: true });
    refused(&at(&long, 8, &[0, 0]), &no, "is stored without its length");
    let end = good.len() - 46 - 22;
    refused(&good[..end], &no, "truncated");
    refused(&at(&good, end, b"what"), &no, "a member of the zip should begin here");
}

/// A member of a few kilobytes that expands to a hundred megabytes of zeros: memory is needed only
/// for the window.
#[test]
fn a_member_that_expands_without_end_stays_small() {
    let mut text = b"I  1000,4\n".to_vec();
    text.resize(100 << 20, 0);
    let bomb = archive(&[&text], Lengths::After { signature: true, long: false });
    assert!(bomb.len() < 1 << 20);
    drop(text);
    refused(&bomb, &Options::default(), "a record that is too long");
}
