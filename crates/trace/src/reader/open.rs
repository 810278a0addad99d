//! Opens a trace: by its index or, if the file is truncated, from its chunks.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::chunks::Chunks;
use super::merge::Merge;
use super::{ChunkInfo, Decoding, Feed, OpenFile, Reader};
use crate::format::{
    Damage, FRAME_BYTES, FrameHead, FrameKind, Head, IndexEntry, MAGIC, PREAMBLE_BYTES, Recorded,
    VERSION, VERSIONS_RECORDING, digest, index_entries,
};
use crate::{Error, Header, Process};

/// Opens the trace at `path`.
pub(super) fn open(path: &Path) -> Result<Reader, Error> {
    let io = |error: io::Error| Error::Io { path: path.to_owned(), error };
    if path.is_dir() {
        return Err(io(io::Error::new(
            io::ErrorKind::IsADirectory,
            "it is a directory, not a trace",
        )));
    }
    let mut file = File::open(path).map_err(io)?;
    let bytes = file.metadata().map_err(io)?.len();
    let mut input = Input { path, file: &mut file, bytes, recorded: false };

    let before = input.before_chunks()?;
    let json = &before[PREAMBLE_BYTES + FRAME_BYTES..];
    let mut header: Header = serde_json::from_slice(json).map_err(|error| {
        input.corrupt(PREAMBLE_BYTES as u64, &format!("its header is not valid: {error}"))
    })?;

    let start = before.len() as u64;
    let (entries, cut_at) = match input.tail() {
        Some(index) => (input.index(start, index)?, None),
        None => {
            let (entries, end) = input.scan(start)?;
            header.notes.push(format!(
                "the file is truncated, because the recorder was killed or a copy is incomplete: \
                 its {} complete chunks are used, and its last {} bytes are left out",
                entries.len(),
                bytes - end
            ));
            (entries, Some(end))
        }
    };
    let chunks = locate(&entries, start).ok_or_else(|| {
        input.corrupt(
            start,
            "its index counts more accesses than a trace can \
                                             have: the file is damaged",
        )
    })?;
    let mut processes = input.processes(&entries, start)?;
    if let Some(chunk) = chunks
        .iter()
        .find(|chunk| input.recorded && processes.get(chunk.process as usize).is_none())
    {
        let what =
            format!("a chunk belongs to process {}, which the file does not list", chunk.process);
        return Err(input.corrupt(chunk.offset, &what));
    }
    // In a trace of a whole machine, all chunks belong to its first process; the counts of each
    // process come from the recorder.
    let is_machine = header.kernel_from.is_some();
    let counted = processes.iter_mut().filter(|_| !is_machine);
    counted.for_each(|process| (process.accesses, process.instructions) = (0, 0));
    for chunk in chunks.iter().filter(|_| !is_machine) {
        if let Some(process) = processes.get_mut(chunk.process as usize) {
            process.accesses += u64::from(chunk.accesses);
            process.instructions += chunk.instructions;
        }
    }
    let accesses = chunks.iter().map(|chunk| u64::from(chunk.accesses)).sum();
    let file = OpenFile { path: path.to_owned(), file: Arc::new(file) };
    let feed = if processes.len() > 1 && !is_machine {
        Feed::Merge(Merge::new(&file, &processes, &chunks)?)
    } else {
        Feed::Chunks(Box::new(Chunks::new(&file, &chunks)?))
    };
    Ok(Reader {
        header,
        file,
        digest: digest(&before, &entries),
        bytes,
        cut_at,
        range: 0..accesses,
        decoding: Decoding::Waiting(Box::new(feed)),
        chunks,
        processes,
    })
}

/// The position of each chunk in the file and in the trace of its process.
fn locate(entries: &[IndexEntry], start: u64) -> Option<Vec<ChunkInfo>> {
    let (mut offset, mut total) = (start, 0u64);
    let mut firsts: FxHashMap<u32, u64> = FxHashMap::default();
    let mut chunks = Vec::with_capacity(entries.len());
    for entry in entries {
        let IndexEntry { bytes, crc, accesses, events, instructions, recorded } = *entry;
        let Recorded { is_process, process, began_ns, .. } = recorded.unwrap_or_default();
        if !is_process {
            let first = firsts.entry(process).or_default();
            chunks.push(ChunkInfo {
                offset,
                bytes,
                first: *first,
                accesses,
                instructions,
                events,
                crc,
                process,
                began_ns,
            });
            *first += u64::from(accesses);
            total = total.checked_add(u64::from(accesses))?;
        }
        offset = offset.checked_add(u64::from(bytes))?;
    }
    Some(chunks)
}

struct Input<'a> {
    path: &'a Path,
    file: &'a mut File,
    bytes: u64,
    /// Whether the file is a recording of processes.
    recorded: bool,
}

impl Input<'_> {
    fn corrupt(&self, offset: u64, what: &str) -> Error {
        Error::Corrupt { path: self.path.to_owned(), offset, within: "", what: what.to_owned() }
    }

    /// Reads `count` bytes at `offset`. The file must be long enough.
    fn read(&mut self, offset: u64, count: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; count];
        self.file
            .seek(SeekFrom::Start(offset))
            .and_then(|_| self.file.read_exact(&mut bytes))
            .map_err(|error| Error::Io { path: self.path.to_owned(), error })?;
        Ok(bytes)
    }

    /// The frame at `offset`, head and body, if it is complete and ends at or before `end`.
    fn frame(
        &mut self,
        offset: u64,
        end: u64,
    ) -> Result<Result<(FrameHead, Vec<u8>), Damage>, Error> {
        let room = end.saturating_sub(offset);
        if room < FRAME_BYTES as u64 {
            return Ok(Err(Damage::new("the file ends too early")));
        }
        let head = self.read(offset, FRAME_BYTES)?;
        let parsed = head.first_chunk().ok_or(Damage::new("the file ends too early"));
        let head = match parsed.and_then(FrameHead::parse) {
            Ok(head) => head,
            Err(damage) => return Ok(Err(damage)),
        };
        if room - (FRAME_BYTES as u64) < head.body_bytes as u64 {
            return Ok(Err(Damage::new("the file ends too early")));
        }
        let body = self.read(offset + FRAME_BYTES as u64, head.body_bytes)?;
        Ok(head.verify(&body).map(|()| (head, body)))
    }

    /// Magic, version and HEAD frame, as they are in the file.
    fn before_chunks(&mut self) -> Result<Vec<u8>, Error> {
        if self.bytes == 0 {
            return Err(
                self.corrupt(0, "the file is empty; a trace was not written to it, or was lost")
            );
        }
        let preamble = self.read(0, self.bytes.min(PREAMBLE_BYTES as u64) as usize)?;
        if !preamble.starts_with(&MAGIC[..preamble.len().min(MAGIC.len())]) {
            return Err(
                self.corrupt(0, "not a Pagewalk trace; `pagewalk import` reads other formats")
            );
        }
        let Some(version) = preamble.get(MAGIC.len()..).and_then(|rest| rest.first_chunk()) else {
            return Err(self.corrupt(
                self.bytes,
                "the trace is truncated within its header; record it \
                                          again",
            ));
        };
        let version = u32::from_le_bytes(*version);
        self.recorded = VERSIONS_RECORDING.contains(&version);
        if version != VERSION && !self.recorded {
            let what = format!(
                "the trace has version {version}, but this Pagewalk reads versions {VERSION} to \
                 {}; install a newer \
                 Pagewalk, or record it again with this one",
                VERSIONS_RECORDING.end()
            );
            return Err(self.corrupt(MAGIC.len() as u64, &what));
        }
        let at = PREAMBLE_BYTES as u64;
        let (head, body) = match self.frame(at, self.bytes)? {
            Ok((head, body)) if head.kind == FrameKind::Head => (head, body),
            Ok(_) => {
                return Err(
                    self.corrupt(at, "its header is missing; record or copy the file again")
                );
            }
            Err(Damage(what)) => {
                let what =
                    format!("its header cannot be read: {what}; record or copy the file again");
                return Err(self.corrupt(at, &what));
            }
        };
        let mut before = preamble;
        before.extend_from_slice(&crate::format::frame(head.kind, &body));
        before.extend_from_slice(&body);
        Ok(before)
    }

    /// The offset of the index, if the file ends with a complete TAIL.
    fn tail(&mut self) -> Option<u64> {
        let at = self.bytes.checked_sub((FRAME_BYTES + 8) as u64)?;
        match self.frame(at, self.bytes) {
            Ok(Ok((head, body))) if head.kind == FrameKind::Tail => {
                body.first_chunk().map(|offset| u64::from_le_bytes(*offset))
            }
            _ => None,
        }
    }

    /// The entries of the index at `offset`; the chunks begin at `start`.
    fn index(&mut self, start: u64, offset: u64) -> Result<Vec<IndexEntry>, Error> {
        let damage = match self.frame(offset, self.bytes)? {
            Ok((head, body)) if head.kind == FrameKind::Index => {
                match index_entries(&body, self.recorded) {
                    Ok(entries) => {
                        let chunks: u64 = entries.iter().map(|entry| u64::from(entry.bytes)).sum();
                        if start.checked_add(chunks) == Some(offset) {
                            return Ok(entries);
                        }
                        "the chunks that it lists do not fill the file between the header and the \
                         index"
                            .to_owned()
                    }
                    Err(damage) => damage.0,
                }
            }
            Ok(_) => "the part of the trace at its position is not an index".to_owned(),
            Err(damage) => damage.0,
        };
        let what = format!("its index cannot be read: {damage}; record or copy the file again");
        Err(self.corrupt(offset, &what))
    }

    /// Rebuilds the index of a truncated file from its complete chunks, which begin at `start`.
    /// Returns the index and the end of these chunks.
    fn scan(&mut self, start: u64) -> Result<(Vec<IndexEntry>, u64), Error> {
        let (mut entries, mut offset) = (Vec::new(), start);
        let mut firsts: FxHashMap<u32, u64> = FxHashMap::default();
        while let Ok((frame, body)) = self.frame(offset, self.bytes)? {
            let bytes = FRAME_BYTES + body.len();
            let entry = IndexEntry { bytes: bytes as u32, crc: frame.crc, ..IndexEntry::default() };
            let entry = match frame.kind {
                FrameKind::Process if self.recorded => {
                    let Ok(process) = serde_json::from_slice::<Process>(&body) else { break };
                    let (process, began_ns) = (process.number, process.began_ns);
                    let more =
                        Recorded { is_process: true, process, began_ns, ..Recorded::default() };
                    IndexEntry { recorded: Some(more), ..entry }
                }
                FrameKind::Chunk => {
                    let Ok(head) = Head::parse(&body) else { break };
                    let Ok(accesses_crc) = Head::accesses_crc(&body) else { break };
                    let process = head.owner.map_or(0, |owner| owner.process);
                    let first = firsts.entry(process).or_default();
                    if head.first != *first || head.owner.is_some() != self.recorded {
                        break;
                    }
                    *first += u64::from(head.accesses);
                    let recorded = head.owner.map(|owner| Recorded {
                        is_process: false,
                        process,
                        began_ns: owner.began_ns,
                        accesses_crc,
                        events_crc: 0,
                    });
                    let Head { accesses, events, instructions, .. } = head;
                    IndexEntry { accesses, events, instructions, recorded, ..entry }
                }
                FrameKind::Process | FrameKind::Head | FrameKind::Index | FrameKind::Tail => break,
            };
            entries.push(entry);
            offset += bytes as u64;
        }
        Ok((entries, offset))
    }

    /// The processes that the PROC frames among `entries` describe. The first frame is at `offset`.
    /// The processes must have the numbers 0, 1, 2 and so on.
    fn processes(
        &mut self,
        entries: &[IndexEntry],
        mut offset: u64,
    ) -> Result<Vec<Process>, Error> {
        let mut processes: Vec<Process> = Vec::new();
        for entry in entries {
            let at = offset;
            offset += u64::from(entry.bytes);
            if !entry.recorded.is_some_and(|recorded| recorded.is_process) {
                continue;
            }
            let process = match self.frame(at, offset)? {
                Ok((head, body)) if head.kind == FrameKind::Process && head.crc == entry.crc => {
                    serde_json::from_slice::<Process>(&body).map_err(|error| error.to_string())
                }
                Ok(_) => Err("the file has another part here than its index lists".to_owned()),
                Err(damage) => Err(damage.0),
            };
            let told = process.and_then(|process| {
                let number = process.number;
                if process.parent.is_some_and(|parent| parent >= number) {
                    return Err(format!("process {number} has a parent that comes after it"));
                }
                if number as usize == processes.len() {
                    processes.push(process);
                } else if let Some(known) = processes.get_mut(number as usize) {
                    *known = process;
                } else {
                    return Err(format!("process {number} comes before one with a lower number"));
                }
                Ok(())
            });
            if let Err(damage) = told {
                let what =
                    format!("a process cannot be read: {damage}; record or copy the file again");
                return Err(self.corrupt(at, &what));
            }
        }
        Ok(processes)
    }
}
