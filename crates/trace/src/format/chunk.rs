//! The beginning of a chunk's body: its counts and the lengths of its streams.

use super::compression::{Compressor, Content, Decompressor};
use super::wire::Bytes;
use super::{
    BODY_BYTES_MAX, CHUNK_ACCESSES_MAX, Damage, EVENT_BYTES_FULL, EVENT_BYTES_MAX,
    LOCAL_SHAPES_MAX, STAMPS_MAX, translations,
};
use crate::Shape;

/// The number of streams of a chunk.
pub(super) const STREAMS: usize = 9;
/// The number of streams that every chunk has: all except the stamps and the translations.
pub(super) const STREAMS_ALONE: usize = 7;
/// The names of the streams, in order.
pub(super) const NAMES: [&str; STREAMS] = [
    "dictionary",
    "segments",
    "sequence",
    "codes",
    "residual",
    "events",
    "physical",
    "stamps",
    "translations",
];

/// The contents of the streams, in order.
const CONTENTS: [Content; STREAMS] = [
    Content::Other,
    Content::Other,
    Content::Sequence,
    Content::Codes,
    Content::Residual,
    Content::Other,
    Content::Other,
    Content::Other,
    Content::Other,
];

const FLAG_PHYSICAL: u32 = 1;
const FLAG_PROCESS: u32 = 2;
const FLAG_LINKED: u32 = 4;
const FLAG_TRANSLATIONS: u32 = 8;
const FLAG_TABLES: u32 = 16;
const FLAGS: u32 = FLAG_PHYSICAL | FLAG_PROCESS | FLAG_LINKED | FLAG_TRANSLATIONS | FLAG_TABLES;
const HEAD_BYTES: usize = 2 * 8 + 7 * 4;
/// The index of the event stream.
const EVENTS: usize = 5;
/// The index of the stamp stream.
pub(super) const STAMPS: usize = 7;
/// The index of the stream of translations.
pub(super) const TRANSLATIONS: usize = 8;

/// The counts of a chunk. Parsing checks that each count is possible by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Head {
    /// The index, in the trace, of the first access.
    pub(crate) first: u64,
    /// The number of instructions that its rows count.
    pub(crate) instructions: u64,
    /// The number of rows.
    pub(crate) accesses: u32,
    /// The number of executions of blocks.
    pub(crate) executions: u32,
    /// The number of loads and stores whose addresses are coded.
    pub(crate) ops: u32,
    /// The number of entries of the dictionary.
    pub(crate) shapes: u32,
    /// The number of segments.
    pub(crate) segments: u32,
    /// The number of events, without translations.
    pub(crate) events: u32,
    /// The number of translations.
    pub(crate) translations: u32,
    /// Whether pages of page tables and their entries are among the translations.
    pub(crate) tables: bool,
    /// Whether every row has a physical address.
    pub(crate) physical: bool,
    /// Whether addresses in shapes may be derived from others.
    pub(crate) linked: bool,
    /// In a recording of processes, the process to which the accesses belong.
    pub(crate) owner: Option<Owner>,
}

/// The process of a recording that a chunk belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Owner {
    /// The number of the process.
    pub(crate) process: u32,
    /// The number of stamps of the chunk.
    pub(crate) stamps: u32,
    /// The time of the last stamp before the chunk.
    pub(crate) began_ns: u64,
}

impl Head {
    /// The most bytes that the counts take.
    pub(crate) const BYTES_MAX: usize = HEAD_BYTES + 16 + 4;

    /// Reads the counts at the beginning of a chunk's body.
    pub(crate) fn parse(body: &[u8]) -> Result<Head, Damage> {
        Head::read(&mut Bytes(body))
    }

    fn read(bytes: &mut Bytes<'_>) -> Result<Head, Damage> {
        let (first, instructions) = (bytes.u64()?, bytes.u64()?);
        let mut count = |max: u32, name: &str| bounded(bytes, max, name);
        let rows_max = CHUNK_ACCESSES_MAX + Shape::OPS_MAX as u32;
        let accesses = count(rows_max, "accesses")?;
        let executions = count(CHUNK_ACCESSES_MAX, "executions")?;
        let ops = count(accesses, "operations")?;
        let shapes = count(executions.min(LOCAL_SHAPES_MAX as u32), "shapes")?;
        let segments = count(executions, "segments")?;
        let events = count((EVENT_BYTES_FULL + EVENT_BYTES_MAX) as u32, "events")?;
        let flags = count(FLAGS, "flags")?;
        let physical = flags & FLAG_PHYSICAL != 0;
        let linked = flags & FLAG_LINKED != 0;
        let owner = match flags & FLAG_PROCESS {
            0 => None,
            _ => {
                let process = count(u32::MAX, "processes")?;
                let stamps = count(STAMPS_MAX, "stamps")?;
                Some(Owner { process, stamps, began_ns: bytes.u64()? })
            }
        };
        let translations = match flags & FLAG_TRANSLATIONS {
            0 => 0,
            _ => {
                let max = translations::BYTES_MAX / translations::RECORD_BYTES_MIN;
                bounded(bytes, max as u32, "translations")?
            }
        };
        if first.checked_add(u64::from(accesses)).is_none() {
            return Err(Damage(format!("it claims to begin at access {first}")));
        }
        let head = Head {
            first,
            instructions,
            accesses,
            executions,
            ops,
            shapes,
            segments,
            events,
            translations,
            tables: flags & FLAG_TABLES != 0,
            physical,
            linked,
            owner,
        };
        Ok(head)
    }

    /// For each stream, the largest size in bytes that the counts allow.
    fn stream_bytes_max(&self) -> [usize; STREAMS] {
        let [accesses, executions, ops, shapes, segments] =
            [self.accesses, self.executions, self.ops, self.shapes, self.segments]
                .map(|count| count as usize);
        let dictionary = shapes * 16 + accesses * if self.linked { 18 } else { 6 };
        let sequence = executions * sequence_bytes(self.shapes);
        let events = if self.events == 0 { 2 } else { EVENT_BYTES_FULL + 2 * EVENT_BYTES_MAX };
        let physical = if self.physical { accesses * 9 + 10 } else { 0 };
        let stamps = self.owner.map_or(0, |owner| owner.stamps as usize * 20);
        let translations = if self.translations == 0 { 0 } else { translations::BYTES_MAX };
        let (segments, codes, residual) = (segments * 20, ops.div_ceil(2), ops * 8);
        [dictionary, segments, sequence, codes, residual, events, physical, stamps, translations]
    }

    /// The indices of the streams that the chunk has.
    pub(super) fn streams(&self) -> impl Iterator<Item = usize> + Clone + use<> {
        let stamps = self.owner.map(|_| STAMPS);
        let translations = (self.translations != 0).then_some(TRANSLATIONS);
        (0..STREAMS_ALONE).chain(stamps).chain(translations)
    }

    /// Appends to `out` a chunk's body with these counts and `streams`. Returns the CRC-32 of all
    /// stored streams except events, stamps and translations.
    pub(super) fn write(
        &self,
        streams: [&[u8]; STREAMS],
        compressor: &mut Compressor,
        out: &mut Vec<u8>,
    ) -> std::io::Result<u32> {
        out.clear();
        out.extend_from_slice(&self.first.to_le_bytes());
        out.extend_from_slice(&self.instructions.to_le_bytes());
        let flags = if self.physical { FLAG_PHYSICAL } else { 0 }
            | if self.owner.is_some() { FLAG_PROCESS } else { 0 }
            | if self.linked { FLAG_LINKED } else { 0 }
            | if self.translations != 0 { FLAG_TRANSLATIONS } else { 0 }
            | if self.tables { FLAG_TABLES } else { 0 };
        let counts = [self.accesses, self.executions, self.ops, self.shapes, self.segments];
        for count in counts.into_iter().chain([self.events, flags]) {
            out.extend_from_slice(&count.to_le_bytes());
        }
        if let Some(Owner { process, stamps, began_ns }) = self.owner {
            out.extend_from_slice(&process.to_le_bytes());
            out.extend_from_slice(&stamps.to_le_bytes());
            out.extend_from_slice(&began_ns.to_le_bytes());
        }
        if self.translations != 0 {
            out.extend_from_slice(&self.translations.to_le_bytes());
        }
        let table = out.len();
        out.resize(table + self.streams().count() * 8, 0);
        let mut accesses_crc = crc32fast::Hasher::new();
        for (place, index) in self.streams().enumerate() {
            let (start, stream) = (out.len(), streams[index]);
            out.extend_from_slice(compressor.compress(CONTENTS[index], stream)?.unwrap_or(stream));
            let stored = out.len() - start;
            if is_of_accesses(index) {
                accesses_crc.update(&out[start..]);
            }
            let entry = &mut out[table + place * 8..][..8];
            entry[..4].copy_from_slice(&(stream.len() as u32).to_le_bytes());
            entry[4..].copy_from_slice(&(stored as u32).to_le_bytes());
        }
        if out.len() > BODY_BYTES_MAX {
            return Err(std::io::Error::other(
                "a chunk became larger than the format allows, which is an error in Pagewalk",
            ));
        }
        Ok(accesses_crc.finalize())
    }

    /// The CRC-32 that [`Head::write`] returned when it made `body`.
    pub(crate) fn accesses_crc(body: &[u8]) -> Result<u32, Damage> {
        let mut bytes = Bytes(body);
        let streams = Head::read(&mut bytes)?.streams();
        let mut table = Bytes(bytes.take(streams.clone().count() * 8)?);
        let mut crc = crc32fast::Hasher::new();
        for index in streams {
            let (_, stored) = (table.u32()?, table.u32()?);
            let stream = bytes.take(stored as usize)?;
            if is_of_accesses(index) {
                crc.update(stream);
            }
        }
        Ok(crc.finalize())
    }

    /// Splits a chunk's body into its counts, which are returned, and its `streams`.
    ///
    /// No stream becomes longer than the counts allow.
    pub(super) fn open(
        body: &[u8],
        decompressor: &mut Decompressor<'_>,
        streams: &mut [Vec<u8>; STREAMS],
    ) -> Result<Head, Damage> {
        let mut bytes = Bytes(body);
        let head = Head::read(&mut bytes)?;
        let mut table = Bytes(bytes.take(head.streams().count() * 8)?);
        streams.iter_mut().for_each(Vec::clear);
        let maxima = head.stream_bytes_max();
        for index in head.streams() {
            let (name, max) = (NAMES[index], maxima[index]);
            let (raw, stored) = (table.u32()? as usize, table.u32()? as usize);
            if raw > max {
                return Err(Damage(format!(
                    "its {name} claims {raw} bytes, but at most {max} are possible"
                )));
            }
            let data = bytes.take(stored)?;
            let stream = &mut streams[index];
            if stored == raw {
                stream.extend_from_slice(data);
                continue;
            }
            stream.reserve_exact(raw);
            let size = decompressor.decompress_to_buffer(data, stream);
            if size.ok() != Some(raw) {
                return Err(Damage(format!("its {name} cannot be decompressed")));
            }
        }
        bytes.end("body")?;
        Ok(head)
    }
}

/// The next number, which is at most `max`.
fn bounded(bytes: &mut Bytes<'_>, max: u32, name: &str) -> Result<u32, Damage> {
    let count = bytes.u32()?;
    if count > max {
        return Err(Damage(format!("it claims {count} {name}, but at most {max} are possible")));
    }
    Ok(count)
}

/// Whether the stream with the index `index` describes accesses; the other streams describe events,
/// stamps and translations.
fn is_of_accesses(index: usize) -> bool {
    !matches!(index, EVENTS | STAMPS | TRANSLATIONS)
}

/// The bytes per execution in the sequence of a chunk with `shapes` local shapes.
pub(super) fn sequence_bytes(shapes: u32) -> usize {
    if shapes <= 256 { 1 } else { 2 }
}

const _: () = assert!(HEAD_BYTES == 44);
