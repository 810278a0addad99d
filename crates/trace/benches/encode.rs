//! Measures the encoding of a recording, without the program and its recorder.
//!
//!     cargo bench -p trace --bench encode -- TRACE.pwt ...
//!
//! For each trace, the words that its recorder wrote are reconstructed and passed to the writer in spans, as
//! from a ring. A line has the nanoseconds of user CPU time of the writer per access (the median of the
//! rounds, in which the traces take turns), the bytes written per access, and the nanoseconds of reading them
//! again. Only the accesses of the first process are encoded. `--rounds N` is 3 by default; `--level N` is
//! zstd's level, and `--chunk N` the number of accesses of a chunk.

use std::path::{Path, PathBuf};

use trace::{Batch, Options, Process, Reader, Recording, Replay, Sink, Source, Summary, Writer};

/// The number of words of a ring that are published together.
const SPAN: usize = 2048;

/// The nanoseconds of CPU time of this thread so far.
fn cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes one `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Passes `words` to `writer`.
fn give(writer: &mut Writer, words: &[u64]) -> Result<(), trace::Error> {
    let mut at = 0;
    while at < words.len() {
        let span = &words[at..words.len().min(at + SPAN)];
        at += match writer.execute_words(span)?.words {
            // A block that has too many accesses for its words.
            0 => 1 + (words[at] >> trace::WORD_COUNT_SHIFT) as usize,
            taken => taken,
        };
    }
    Ok(())
}

/// Encodes the first process of `path` into `out`. Returns the nanoseconds, and a summary of what
/// was written.
fn encode(path: &Path, out: &Path, options: &Options) -> Result<(u64, Summary), trace::Error> {
    let header = Reader::open(path)?.header().clone();
    let recording = Recording::create(out, &header, options.clone())?;
    let process = Process {
        number: 0,
        pid: 1,
        parent: None,
        parent_accesses: None,
        shares_space: false,
        began_ns: 0,
        programs: Vec::new(),
        accesses: 0,
        instructions: 0,
    };
    let mut writer = recording.process(&process)?;
    let mut replay = Replay::open(path, 0)?;
    let (mut words, mut known, mut ns) = (Vec::new(), 0, 0);
    while replay.next(&mut words)? {
        for (number, shape) in replay.shapes().iter().enumerate().skip(known) {
            let id = writer.shape(shape);
            let is_said = |op: &&trace::Op| op.address == trace::Address::Said;
            writer.usual(number, id, &vec![0; shape.ops.iter().filter(is_said).count()]);
        }
        known = replay.shapes().len();
        let before = cpu_ns();
        give(&mut writer, &words)?;
        ns += cpu_ns() - before;
    }
    let before = cpu_ns();
    writer.end()?;
    ns += cpu_ns() - before;
    drop(writer);
    Ok((ns, recording.finish()?))
}

/// The nanoseconds of reading the trace at `path`.
fn decode(path: &Path) -> Result<u64, trace::Error> {
    let (mut reader, mut batch) = (Reader::open(path)?.in_place(), Batch::default());
    let before = cpu_ns();
    while reader.next(&mut batch)? {}
    Ok(cpu_ns() - before)
}

fn main() -> Result<(), trace::Error> {
    let (mut traces, mut rounds) = (Vec::new(), 3);
    let mut options = Options { overwrite: true, ..Options::default() };
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    while let Some(argument) = arguments.next() {
        let mut number =
            || arguments.next().and_then(|text| text.parse::<i64>().ok()).expect("a number");
        match argument.as_str() {
            "--rounds" => rounds = number() as usize,
            "--level" => options.level = number() as i32,
            "--chunk" => options.chunk_accesses = number() as u32,
            _ => traces.push(PathBuf::from(argument)),
        }
    }
    let out = std::env::temp_dir().join(format!("encode-{}.pwt", std::process::id()));
    let mut lines: Vec<(Vec<f64>, Vec<f64>, f64)> = vec![Default::default(); traces.len()];
    for _ in 0..rounds {
        for (path, (encoding, decoding, bytes)) in traces.iter().zip(&mut lines) {
            let (ns, summary) = encode(path, &out, &options)?;
            let accesses = summary.accesses as f64;
            encoding.push(ns as f64 / accesses);
            decoding.push(decode(&out)? as f64 / accesses);
            *bytes = summary.bytes as f64 / accesses;
        }
    }
    let median = |took: &mut Vec<f64>| {
        took.sort_by(f64::total_cmp);
        took.get(took.len() / 2).copied().unwrap_or_default()
    };
    println!("encode ns  decode ns  bytes    per access of");
    for (path, (encoding, decoding, bytes)) in traces.iter().zip(&mut lines) {
        let (encode, decode) = (median(encoding), median(decoding));
        println!("{encode:9.2}  {decode:9.2}  {bytes:.4}   {}", path.display());
    }
    let _ = std::fs::remove_file(&out);
    Ok(())
}
