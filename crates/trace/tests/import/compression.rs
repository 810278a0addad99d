//! Imports one text in every compression, complete and damaged.

use std::io::Write;

use trace::import::Options;

use crate::support::*;
use crate::zip;

fn text() -> Vec<u8> {
    let mut random = Random(1);
    let mut text = String::new();
    for i in 0..20_000 {
        text += &format!("I  {:08x},4\n L {:08x},8\n", 0x40_0000 + 4 * i, random.below(1 << 40));
    }
    text.into_bytes()
}

/// `text` compressed by every codec; if the codec allows it, also as two compressed parts in
/// succession.
pub(crate) fn packed(text: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let mut all = Vec::new();
    // The text is divided in the middle of a line.
    let halves = text.split_at(1001.min(text.len() / 2));
    for parts in [vec![text], vec![halves.0, halves.1]] {
        let join =
            |pack: &dyn Fn(&[u8]) -> Vec<u8>| parts.iter().flat_map(|part| pack(part)).collect();
        let gzip = |part: &[u8]| {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(part).unwrap();
            encoder.finish().unwrap()
        };
        let xz = |part: &[u8]| {
            let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
            encoder.write_all(part).unwrap();
            encoder.finish().unwrap()
        };
        let bzip2 = |part: &[u8]| {
            let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
            encoder.write_all(part).unwrap();
            encoder.finish().unwrap()
        };
        let zstd = |part: &[u8]| {
            let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
            encoder.include_checksum(true).unwrap();
            encoder.write_all(part).unwrap();
            encoder.finish().unwrap()
        };
        let lz4 = |part: &[u8]| {
            let info = lz4_flex::frame::FrameInfo::new()
                .block_size(lz4_flex::frame::BlockSize::Max64KB)
                .content_checksum(true)
                .block_checksums(true);
            let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(part).unwrap();
            encoder.finish().unwrap()
        };
        let snappy = |part: &[u8]| {
            let mut encoder = snap::write::FrameEncoder::new(Vec::new());
            encoder.write_all(part).unwrap();
            encoder.into_inner().unwrap()
        };
        all.extend([
            ("gzip", join(&gzip)),
            ("xz", join(&xz)),
            ("bzip2", join(&bzip2)),
            ("zstd", join(&zstd)),
            ("lz4", join(&lz4)),
            ("snappy", join(&snappy)),
            ("zip", zip::archive(&parts, zip::Lengths::Known)),
        ]);
    }
    all
}

#[test]
fn every_compression_gives_the_same_rows() {
    let text = text();
    let plain = import(&text, &Options::default()).unwrap();
    assert_eq!(plain.rows.len(), 20_000 + 40);
    for (name, bytes) in packed(&text) {
        let given = import(&bytes, &Options::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        same(&given.rows, &plain.rows, name);
        assert_ne!(given.digest, plain.digest, "{name}: the digest is of the file as it is");
        assert_eq!(given.digest.unwrap().len(), 64);
    }
}

/// Bytes after the last compressed stream are accepted if the codec's own tool accepts them.
#[test]
fn what_stands_behind_the_data_is_taken_as_the_tools_take_it() {
    let text = text();
    let text = text.split_inclusive(|&byte| byte == b'\n').take(2000).collect::<Vec<_>>().concat();
    let plain = import(&text, &Options::default()).unwrap();
    for (name, bytes) in packed(&text) {
        // Some tails are longer than a buffer, and some end with parts of a magic number.
        for (tail, accepted, warned) in [
            (vec![0; 4], &["gzip", "xz", "bzip2", "zip"][..], &["bzip2"][..]),
            (vec![0; 100_000], &["gzip", "xz", "bzip2", "zip"], &["bzip2"]),
            (vec![0; 3], &["gzip", "bzip2", "zip"], &["bzip2"]),
            (b"\0\0garbage".to_vec(), &["gzip", "bzip2", "zip"], &["gzip", "bzip2"]),
            (vec![b'x'; 100_000], &["gzip", "bzip2", "zip"], &["gzip", "bzip2"]),
            // The tail is a magic number or a part of one: the beginning of another stream that is
            // truncated.
            (b"\x1f".to_vec(), &["bzip2", "zip"], &["bzip2"]),
            (b"\x1f\x8b".to_vec(), &["bzip2", "zip"], &["bzip2"]),
            (b"BZ".to_vec(), &["gzip", "zip"], &["gzip"]),
            (b"\x04\x22\x4d\x18\x64".to_vec(), &["gzip", "bzip2", "zip"], &["gzip", "bzip2"]),
        ] {
            let padded = [&bytes[..], &tail].concat();
            let what = format!("{name} and {:?}", &tail[..tail.len().min(9)]);
            match import(&padded, &Options::default()) {
                Err(error) => assert!(!accepted.contains(&name), "{what}: {error}"),
                Ok(given) => {
                    assert!(accepted.contains(&name), "{what} was accepted");
                    same(&given.rows, &plain.rows, &what);
                    assert_eq!(given.warnings.len(), usize::from(warned.contains(&name)), "{what}");
                    let whole =
                        import(&padded, &Options { keep_going: true, ..Options::default() });
                    assert_eq!(whole.unwrap().digest, given.digest);
                    assert_eq!(given.digest.unwrap(), sha256(&padded), "{what}");
                }
            }
        }
    }
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A truncated file is never accepted as complete. With `keep_going`, the part before the
/// truncation is kept.
#[test]
fn cut_files_are_refused_or_kept_as_far_as_they_go() {
    let text = text();
    let plain = import(&text, &Options::default()).unwrap();
    for (name, bytes) in packed(&text) {
        // A zip file without its directory has all of its data; only its end is missing.
        let tail = if name == "zip" { 3 + 46 + 22 } else { 3 };
        for length in [bytes.len() / 2, bytes.len() - tail] {
            let cut = &bytes[..length];
            let error = match import(cut, &Options::default()) {
                Ok(_) => panic!("{name} cut to {length} of {} was accepted", bytes.len()),
                Err(error) => error.to_string(),
            };
            assert!(error.contains("truncated") || error.contains("damaged"), "{name}: {error}");
            let keep = Options { keep_going: true, ..Options::default() };
            let Ok(kept) = import(cut, &keep) else {
                // All of this text is in one block of bzip2, so half of the file contains no
                // complete block.
                assert!(name == "bzip2" && length == bytes.len() / 2, "{name}: nothing was kept");
                continue;
            };
            assert!(!kept.warnings.is_empty(), "{name}");
            let data = kept.data();
            same(&data, &plain.data()[..data.len()], name);
        }
    }
}

/// After a flipped bit, the import ends with an error or returns the contents of the file, even for
/// a decoder without a checksum.
#[test]
fn flipped_bits_never_panic() {
    let text = &text()[..4000];
    for (name, bytes) in packed(text) {
        let mut silent = 0;
        let positions = (0..bytes.len()).step_by(1 + bytes.len() / 300);
        let count = positions.clone().count();
        for position in positions {
            let mut bytes = bytes.clone();
            bytes[position] ^= 1 << (position % 8);
            silent += usize::from(import(&bytes, &Options::default()).is_ok());
        }
        assert!(silent * 8 < count, "{name}: {silent} of {count} went unnoticed");
    }
}
