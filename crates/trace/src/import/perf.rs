//! The text of `perf script`, for samples with data addresses.
//!
//! ```text
//!   prog  123 [001]   100.000123:   1 cpu/mem-loads,ldlat=30/P:   7f12a0079d40   68100142 |OP LOAD|LVL L1 hit|
//!   \__/ \_______/    \________/    \________________________/    \__________/   \___________________________/
//!   name  thread,       time        period, event                  address         data_src, and more fields
//!         processor
//! ```
//!
//! A sample has a time, and its address is the field after the event. `data_src` or, if that is
//! absent, the event's name says whether it is a load or a store; other samples count as loads. Lines
//! without a time are parts of call chains, or comments, and are ignored, as are samples with address
//! 0, for which the processor reported none. An access counts as one byte, since there is no size.
//!
//! Samples are a part of a program's accesses: they show which pages it uses, but not the order in
//! which it uses them.
//!
//! Source: Linux, `tools/perf/builtin-script.c`, `perf_sample__fprintf_start` and `process_event`,
//! and `tools/perf/util/mem-events.c`, `perf_mem__op_scnprintf`.

use addr::Kind;

use super::digits::{decimal, hexadecimal};
use super::lines::{LINE_BYTES_MAX, Line, Lines, all_are, fields, foreign};
use super::rows::Rows;
use super::stream::{Decode, Fault};
use super::threads::Threads;
use crate::Batch;
use crate::count::counted;

/// A note for readers of results.
pub(crate) const NOTE: &str = "SAMPLES of perf, which are a few of a program's accesses: counts of TLB misses say nothing \
     about the program itself, whose other accesses are not in the trace";

/// A sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sample {
    thread: u64,
    kind: Kind,
    addr: u64,
}

/// Decodes the lines.
#[derive(Debug, Default)]
pub(crate) struct PerfScript {
    lines: Lines,
    threads: Threads,
    absent: u64,
}

impl PerfScript {
    /// Whether `bytes` begin like the text of `perf script`.
    pub(crate) fn is(bytes: &[u8]) -> bool {
        all_are(bytes, |line| match sample(line) {
            Ok(Some(_)) => Line::Record,
            Ok(None) if is_beside(line) => Line::Empty,
            _ => Line::Foreign,
        })
    }

    /// Whether `bytes` are samples without any address.
    pub(crate) fn is_without_addresses(bytes: &[u8]) -> bool {
        all_are(bytes, |line| match sample(line) {
            Err(()) => Line::Record,
            Ok(None) if is_beside(line) => Line::Empty,
            _ => Line::Foreign,
        })
    }
}

impl Decode for PerfScript {
    fn decode(
        &mut self,
        bytes: &[u8],
        last: bool,
        rows: &mut Rows,
        batch: &mut Batch,
    ) -> Result<usize, Fault> {
        let PerfScript { lines, threads, absent } = self;
        lines.decode(bytes, last, batch, |line, batch| {
            match sample(line) {
                Ok(Some(Sample { addr: 0, .. })) => *absent += 1,
                Ok(Some(Sample { thread, kind, addr })) => {
                    let number =
                        threads.number(thread, batch).map_err(|what| Fault::new(0, what))?;
                    rows.thread(number);
                    rows.access(batch, kind, addr, 1);
                }
                Ok(None) if is_beside(line) => {}
                Ok(None) => return Err(foreign(line, "perf script's")),
                Err(()) => return Err(Fault::new(0, WITHOUT_ADDRESS)),
            }
            Ok(())
        })
    }

    fn record_bytes_max(&self) -> usize {
        LINE_BYTES_MAX
    }

    fn warnings(&self) -> Vec<String> {
        match self.absent {
            0 => Vec::new(),
            samples => vec![counted(samples, "sample has", "samples have", "no address: left out")],
        }
    }
}

/// Advice for samples without addresses.
pub(crate) const WITHOUT_ADDRESS: &str = "a sample of perf without the address of its data: record with `perf mem record` or `perf record \
     -d`, and write the text with `perf script -F comm,tid,time,event,addr,data_src`";

/// The sample in a line, if it is one; an error if it has no address.
fn sample(line: &[u8]) -> Result<Option<Sample>, ()> {
    // A program's name may contain blanks, so the fields before the time are read from right to
    // left.
    let mut before: [&[u8]; 2] = [b"", b""];
    let mut rest = fields(line);
    let time = rest.by_ref().find(|&field| {
        let is_it = is_time(field);
        if !is_it {
            before = [before[1], field];
        }
        is_it
    });
    if time.is_none() {
        return Ok(None);
    }
    let [second, first] = before;
    let thread = if first.starts_with(b"[") { second } else { first };
    let thread = thread.rsplit(|&byte| byte == b'/').next().and_then(decimal);
    let Some(thread) = thread else { return Ok(None) };
    // The period may be left out; the event ends with a colon.
    let Some(event) = rest.by_ref().take(2).find(|field| field.ends_with(b":")) else {
        return Ok(None);
    };
    let addr = rest.next().ok_or(())?;
    let addr = match hexadecimal(addr) {
        Some((addr, [])) => addr,
        _ => return Err(()),
    };
    // After an address comes `data_src`, a weight, or the instruction with its symbol.
    let data_src = rest.clone().find(|field| field.starts_with(b"|"));
    let data_src = data_src.map(|_| memchr::memmem::find(line, b"|OP STORE").is_some());
    if data_src.is_none() && addr_is_instruction(rest.next()) {
        return Err(());
    }
    let is_store = data_src.unwrap_or_else(|| memchr::memmem::find(event, b"store").is_some());
    let kind = if is_store { Kind::Store } else { Kind::Load };
    Ok(Some(Sample { thread, kind, addr }))
}

/// Whether a number is the address of an instruction and not of data: in that case the field after
/// it is a symbol, `main+0x10` or `[unknown]`.
fn addr_is_instruction(next: Option<&[u8]>) -> bool {
    next.is_some_and(|field| {
        !field[0].is_ascii_digit() && !matches!(hexadecimal(field), Some((_, [])))
    })
}

/// Whether the field is a time: seconds with a fraction, and a colon.
fn is_time(field: &[u8]) -> bool {
    let Some(time) = field.strip_suffix(b":") else { return false };
    let Some(point) = memchr::memchr(b'.', time) else { return false };
    let digits = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    digits(&time[..point]) && digits(&time[point + 1..])
}

/// Whether a line between samples is expected: empty, a comment, or an element of a call chain (an
/// address and a symbol).
fn is_beside(line: &[u8]) -> bool {
    let is_indented = line.first().is_some_and(u8::is_ascii_whitespace);
    fields(line).next().is_none_or(|first| {
        first.starts_with(b"#") || is_indented && matches!(hexadecimal(first), Some((_, [])))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_or_refused() {
        let of = |thread, kind, addr| Ok(Some(Sample { thread, kind, addr }));
        for (line, expected) in [
            (
                "            prog  123 [001]   100.000000:          1 cpu/mem-loads,ldlat=30/P:     \
                 7f12a0079d40       68100142 |OP LOAD|LVL L1 hit|  ",
                of(123, Kind::Load, 0x7f12_a007_9d40),
            ),
            (
                "prog 1/22 100.5: 1 cpu/mem-stores/P: 10 5080144 |OP STORE|LVL L1 hit| 9",
                of(22, Kind::Store, 0x10),
            ),
            (
                "Web Content 7 [000] 1.0: page-faults:u: 7f00 401000 f+0x1 (/bin/a)",
                of(7, Kind::Load, 0x7f00),
            ),
            (
                "a 7 1.0: cpu/mem-stores/P: ffff800000001000",
                of(7, Kind::Store, 0xffff_8000_0000_1000),
            ),
            ("a 7 1.0: 250000 cycles: 401000 main+0x10 (/bin/a)", Err(())),
            ("a 7 1.0: 250000 cycles:", Err(())),
            ("a 7 1.0: 250000 cycles: main", Err(())),
            ("        401000 main+0x10 (/bin/a)", Ok(None)),
            ("a b 1.0: cycles: 10", Ok(None)),
            ("", Ok(None)),
        ] {
            assert_eq!(sample(line.as_bytes()), expected, "{line:?}");
        }
    }
}
