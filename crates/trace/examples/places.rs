//! Compares the addresses at which the modelled kernel places mappings with the addresses at which
//! a real kernel placed them. Run it as `places < CALLS`; the calls are the output of
//! `tests/kernel/places.c`.
//!
//! ```text
//!   calls of a program, as the kernel placed them --> at other addresses, as if another system had
//!        |                                                           |  Spread::as_kernel
//!        +------------------ equal? <--------------------------------+
//! ```

use std::{io::Read, process::ExitCode};

use trace::{
    Aligned, Arch, Batch, Error, Event, Filter, Header, KernelLayout, Origin, Source, Spread,
};

/// By how many bytes addresses would differ in the recording of another system. The first constant
/// is for mappings, the second for the program with its heap.
const MAPPINGS: u64 = 0x1234_5000;
const PROGRAM: u64 = 0x7000;

/// A source that returns all events in its first batch.
struct Once(Header, Vec<Event>);

impl Source for Once {
    fn header(&self) -> &Header {
        &self.0
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        batch.clear();
        self.1.drain(..).for_each(|event| batch.push_event(0, event));
        Ok(false)
    }
}

/// An address that the kernel chose, converted to the address that another system would have
/// chosen.
fn elsewhere(addr: u64) -> u64 {
    if addr > 0x7ff0_0000_0000 { addr - MAPPINGS } else { addr + PROGRAM }
}

/// The events of the lines, with the addresses that `place` gives.
fn events(text: &str, place: fn(u64) -> u64) -> Vec<Event> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let what = words.next().unwrap_or_default();
        let words: Vec<&str> = words.collect();
        let of = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        let (path, file) = (None, None);
        found.push(match what {
            "V" => {
                let origin = match words.get(3..).map(|rest| rest.join(" ")).as_deref() {
                    Some("[stack]") => Origin::Stack,
                    Some("[heap]") => Origin::Heap,
                    Some("-") => Origin::Other("memory".to_owned()),
                    Some(name) if name.starts_with('/') => Origin::File(name.to_owned()),
                    name => Origin::Other(name.unwrap_or_default().to_owned()),
                };
                let (start, bytes, rights) = (place(of(0)), of(1), of(2) as u8);
                Event::Mapping { start, bytes, rights, origin, offset: None, file }
            }
            "M" => {
                let (bytes, prot, flags, offset) = (of(0), of(1) as u32, of(2) as u32, of(3));
                let fd = if flags & 0x20 == 0 { 3 } else { -1 };
                let (addr, result) = (0, place(of(4)) as i64);
                Event::Mmap { addr, bytes, prot, flags, fd, offset, path, file, result }
            }
            "U" => Event::Munmap { addr: place(of(0)), bytes: of(1), result: 0 },
            "R" => {
                let (addr, old_bytes, new_bytes, flags) =
                    (place(of(0)), of(1), of(2), of(3) as u32);
                let (new_addr, result) = (0, place(of(4)) as i64);
                Event::Mremap { addr, old_bytes, new_bytes, flags, new_addr, result }
            }
            "B" => {
                let now = place(of(0));
                Event::Brk { addr: now, result: now as i64 }
            }
            _ => continue,
        });
    }
    found
}

/// One line for each call, with the address that the call returned.
fn answers(events: &[Event]) -> Vec<String> {
    let mut lines = Vec::new();
    for event in events {
        if let Event::Mapping { start, bytes, .. } = event {
            lines.push(format!("{start:x} from the beginning, {bytes:x}"));
        } else if let Event::Mmap { result, bytes, flags, .. } = event {
            lines.push(format!("mmap {result:x}, {bytes:x} {flags:x}"));
        } else if let Event::Mremap { addr, result, new_bytes, .. } = event {
            lines.push(format!("mremap {addr:x} to {result:x}, {new_bytes:x}"));
        } else if let Event::Munmap { addr, bytes, .. } = event {
            lines.push(format!("munmap {addr:x}, {bytes:x}"));
        } else if let Event::Brk { result, .. } = event {
            lines.push(format!("brk {result:x}"));
        }
    }
    lines
}

fn main() -> ExitCode {
    let mut text = String::new();
    if let Err(error) = std::io::stdin().read_to_string(&mut text) {
        eprintln!("places: {error}");
        return ExitCode::FAILURE;
    }
    let expected = answers(&events(&text, |addr| addr));
    let header = Header {
        kernel_from: None,
        producer: "places".to_owned(),
        command: Vec::new(),
        arch: Arch::X86_64,
        fetches: false,
        filter: Filter::None,
        page_bytes: 4096,
        notes: Vec::new(),
    };
    let source: Box<dyn Source> = Box::new(Once(header, events(&text, elsewhere)));
    let how = KernelLayout { seed: None, aligned: Aligned::Multiples };
    let mut batch = Batch::default();
    let placed = Spread::as_kernel(source, how).and_then(|mut placed| placed.next(&mut batch));
    if let Err(error) = placed {
        eprintln!("places: {error}");
        return ExitCode::FAILURE;
    }
    let given: Vec<Event> = batch.events.into_iter().map(|placed| placed.event).collect();
    let found = answers(&given);
    for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
        if found != expected {
            println!("call {number}: {found} here, {expected} in the kernel");
            return ExitCode::FAILURE;
        }
    }
    println!("{} calls", found.len());
    if found.len() == expected.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
