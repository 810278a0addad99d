//! Compression of the streams by zstd, with settings that depend on how well a stream compresses.
//!
//! zstd spends its time on the repetitions that it finds, about 10 ns each. A stream with many short
//! repetitions therefore takes longest and shrinks least. At a negative level, which asks for speed, such a
//! stream gets other settings:
//!
//! ```text
//!   sequence                    repetitions of seven bytes and more
//!   codes     shrank well       the level
//!             shrank little     each byte a Huffman code, no repetitions      until one chunk in sixteen shrinks well
//!   residual  shrank well       the level
//!             shrank little     a faster level                                until a chunk shrinks well with that
//! ```
//!
//! "Shrank" refers to the stream in the previous chunk. So the settings depend only on earlier
//! accesses, and equal accesses are always stored equally. Any zstd decoder can read the streams
//! with all settings. The measurements behind the limits are in docs/method/encoding.md.
//!
//! Miri cannot run C. Under Miri, streams are therefore stored uncompressed, which the format allows, so that
//! it can check the code around them.

use std::io;

#[cfg(not(miri))]
use zstd::bulk::Compressor as Zstd;
#[cfg(not(miri))]
pub(crate) use zstd::bulk::Decompressor;
#[cfg(not(miri))]
use zstd::zstd_safe::{CParameter, ParamSwitch};

#[cfg(miri)]
pub(crate) use stored::Decompressor;
#[cfg(miri)]
use stored::Zstd;

/// The kinds of streams that are compressed with different settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Content {
    /// The local shape of each execution.
    Sequence,
    /// The code of each operation.
    Codes,
    /// The bytes of address distances that the predictor did not predict.
    Residual,
    /// Anything else.
    Other,
}

/// Settings of zstd.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Settings {
    level: i32,
    /// The length of the shortest repetition that is searched for; 0 for the level's default.
    match_min: u32,
    /// Whether bytes outside repetitions are Huffman coded. If not, zstd stores these bytes
    /// unchanged at negative levels.
    huffman: bool,
}

/// After this many chunks in which a stream was not searched for repetitions, its settings are chosen again.
const CHUNKS_UNSEARCHED: u32 = 15;
/// A level at which zstd finds almost no repetitions.
const LEVEL_UNSEARCHED: i32 = -131_072;
/// The number added to the level for a residual that shrinks little.
const LEVEL_FASTER: i32 = -13;
/// Codes have shrunk well if their stored size is at most this fraction of their size before
/// compression.
const CODES_WELL: f64 = 0.2;
/// A residual has shrunk well at the normal level if its stored size is at most this fraction.
const RESIDUAL_WELL: f64 = 0.4;
/// A residual has shrunk well at the faster level if its stored size is at most this fraction.
const RESIDUAL_WELL_FASTER: f64 = 0.45;

/// Compresses the streams of consecutive chunks.
pub(crate) struct Compressor {
    zstd: Zstd<'static>,
    level: i32,
    now: Settings,
    /// The output buffer, which is reused.
    scratch: Vec<u8>,
    /// The number of further chunks whose codes are not searched for repetitions.
    codes_unsearched: u32,
    /// Whether the residual is compressed at the faster level.
    residual_faster: bool,
}

impl Compressor {
    /// A compressor with zstd's `level`.
    pub(crate) fn new(level: i32) -> io::Result<Compressor> {
        let now = Settings { level, match_min: 0, huffman: false };
        let zstd = Zstd::new(level)?;
        let scratch = Vec::new();
        Ok(Compressor { zstd, level, now, scratch, codes_unsearched: 0, residual_faster: false })
    }

    /// The compressed bytes of `stream`, which is the next chunk's stream with contents of kind
    /// `content`; `None` if compression does not make it smaller.
    pub(super) fn compress(
        &mut self,
        content: Content,
        stream: &[u8],
    ) -> io::Result<Option<&[u8]>> {
        self.set(self.settings(content))?;
        // The buffer is large enough for every result, since zstd accepts no other settings after
        // it has failed for lack of room.
        let bound = bound(stream.len());
        if self.scratch.len() < bound {
            self.scratch.resize(bound, 0);
        }
        let stored = self.zstd.compress_to_buffer(stream, &mut self.scratch[..]).ok();
        let stored = stored.filter(|&bytes| bytes < stream.len());
        let part = stored.unwrap_or(stream.len()) as f64 / stream.len().max(1) as f64;
        match content {
            Content::Codes if self.codes_unsearched > 0 => self.codes_unsearched -= 1,
            Content::Codes if part > CODES_WELL => self.codes_unsearched = CHUNKS_UNSEARCHED,
            Content::Residual if self.residual_faster => {
                self.residual_faster = part > RESIDUAL_WELL_FASTER;
            }
            Content::Residual => self.residual_faster = part > RESIDUAL_WELL,
            Content::Sequence | Content::Codes | Content::Other => {}
        }
        Ok(stored.map(|bytes| &self.scratch[..bytes]))
    }

    fn settings(&self, content: Content) -> Settings {
        let usual = Settings { level: self.level, match_min: 0, huffman: false };
        if self.level >= 0 {
            return usual;
        }
        match content {
            Content::Sequence => Settings { match_min: 7, ..usual },
            Content::Codes if self.codes_unsearched > 0 => {
                Settings { level: LEVEL_UNSEARCHED, huffman: true, ..usual }
            }
            Content::Residual if self.residual_faster => {
                Settings { level: self.level + LEVEL_FASTER, ..usual }
            }
            Content::Codes | Content::Residual | Content::Other => usual,
        }
    }

    #[cfg(not(miri))]
    fn set(&mut self, settings: Settings) -> io::Result<()> {
        if settings.level != self.now.level {
            self.zstd.set_parameter(CParameter::CompressionLevel(settings.level))?;
        }
        if settings.match_min != self.now.match_min {
            self.zstd.set_parameter(CParameter::MinMatch(settings.match_min))?;
        }
        if settings.huffman != self.now.huffman {
            let switch = if settings.huffman { ParamSwitch::Enable } else { ParamSwitch::Auto };
            self.zstd.set_parameter(CParameter::LiteralCompressionMode(switch))?;
        }
        self.now = settings;
        Ok(())
    }

    #[cfg(miri)]
    fn set(&mut self, settings: Settings) -> io::Result<()> {
        self.now = settings;
        Ok(())
    }
}

/// The largest size of `bytes` bytes after compression by zstd.
#[cfg(not(miri))]
fn bound(bytes: usize) -> usize {
    zstd::zstd_safe::compress_bound(bytes)
}

#[cfg(miri)]
fn bound(bytes: usize) -> usize {
    bytes
}

#[cfg(miri)]
mod stored {
    use std::io;
    use std::marker::PhantomData;

    /// Replaces zstd's compressor under Miri; it does not compress.
    pub(crate) struct Zstd<'a>(PhantomData<&'a ()>);

    impl Zstd<'_> {
        pub(crate) fn new(_level: i32) -> io::Result<Self> {
            Ok(Zstd(PhantomData))
        }

        pub(crate) fn compress_to_buffer(&mut self, _: &[u8], _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    /// Replaces zstd's decompressor under Miri; it does not decompress.
    pub(crate) struct Decompressor<'a>(PhantomData<&'a ()>);

    impl Decompressor<'_> {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Decompressor(PhantomData))
        }

        pub(crate) fn decompress_to_buffer(
            &mut self,
            _: &[u8],
            _: &mut Vec<u8>,
        ) -> io::Result<usize> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    use super::*;

    /// Bytes that only Huffman coding makes shorter: half of them are 0, and no sequence is
    /// repeated.
    fn skewed(random: &mut Xoshiro256PlusPlus) -> Vec<u8> {
        (0..20_000).map(|_| (random.next_u64() % 32).saturating_sub(16) as u8).collect()
    }

    fn again(stored: &[u8], bytes: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes);
        Decompressor::new().unwrap().decompress_to_buffer(stored, &mut out).unwrap();
        out
    }

    /// A stream that shrinks little gets other settings, and the usual ones again when it shrinks well; it is
    /// decoded correctly with all settings.
    #[test]
    fn settings_follow_what_streams_gain() {
        println!("seed 5");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut compressor = Compressor::new(-7).unwrap();
        for content in [Content::Codes, Content::Residual] {
            let usual = compressor.settings(content);
            for chunk in 0..40 {
                let is_skewed = chunk < 20;
                let stream = if is_skewed { skewed(&mut random) } else { vec![chunk; 20_000] };
                let noise: Vec<u8> = (0..500).map(|_| random.next_u64() as u8).collect();
                assert!(compressor.compress(Content::Other, &noise).unwrap().is_none());
                let before = compressor.settings(content);
                let stored = compressor.compress(content, &stream).unwrap().map(<[u8]>::to_vec);
                let stored = stored.unwrap_or_else(|| stream.clone());
                if before != usual && is_skewed && content == Content::Codes {
                    assert!(stored.len() < stream.len() * 7 / 10, "{} bytes", stored.len());
                }
                if stored.len() < stream.len() {
                    assert_eq!(again(&stored, stream.len()), stream);
                }
                let is_usual = match content {
                    // The dictionary is searched in the first chunk, and again in the sixteenth
                    // chunk after each chunk that was compressed little.
                    Content::Codes => chunk % 16 == 0 || chunk > 32,
                    // The twenty-first is the first that shrinks well.
                    _ => chunk == 0 || chunk > 20,
                };
                assert_eq!(before == usual, is_usual, "chunk {chunk}, {content:?}");
            }
        }
    }

    /// The stored bytes of a stream depend only on the streams before it; at levels from 0 up they are those
    /// of the level.
    #[test]
    fn equal_streams_are_stored_equally() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(6);
        let streams: Vec<Vec<u8>> = (0..20).map(|_| skewed(&mut random)).collect();
        for level in [-7, 1] {
            let stored = || -> Vec<Option<Vec<u8>>> {
                let mut compressor = Compressor::new(level).unwrap();
                let contents =
                    [Content::Sequence, Content::Codes, Content::Residual, Content::Other];
                let all =
                    streams.iter().flat_map(|stream| contents.map(|content| (stream, content)));
                all.map(|(stream, content)| {
                    compressor.compress(content, stream).unwrap().map(<[u8]>::to_vec)
                })
                .collect()
            };
            let first = stored();
            assert!(first == stored());
            let is_one =
                first.chunks(4).all(|chunk| chunk.iter().all(|stored| *stored == chunk[0]));
            assert_eq!(is_one, level > 0);
        }
    }
}
