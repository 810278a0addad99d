//! Divides the accesses of a whole machine into those of programs and those of the kernel, by the
//! half of the address space. The kernel's half is equal in all spaces.
//!
//! ```text
//!   stored   Run: space 3    | 0x7f.. | 0xff.. | 0xff.. | 0x7f.. |
//!   given    Run: space 3    | 0x7f.. | Run: KERNEL  0xff..  0xff.. | Run: space 3  0x7f.. |
//! ```
//!
//! A recorder of a whole machine stores which space runs whenever that changes. Entries into the kernel are not
//! stored, because the addresses show them ([`Header::kernel_from`]).

use std::ops::DerefMut;

use crate::switches::Switches;
use crate::{Batch, Contents, Error, Event, Header, KERNEL, Placed, Process, Source, Stored};

/// A source that adds an event wherever the accesses of another source change from one half of the
/// addresses to the other. `P` is a box of the other source, or a reference to it.
pub(crate) struct Halves<P> {
    source: P,
    header: Header,
    kernel_from: u64,
    /// The processor and the space in the last event of the source.
    cpu: Option<u32>,
    space: u32,
    /// Whether the last access was in the kernel's half.
    in_kernel: bool,
}

impl<P: DerefMut<Target: Source>> Halves<P> {
    /// Adds such events to `source`, which must be a trace of a whole machine. The kernel's half
    /// begins at `kernel_from`.
    pub(crate) fn new(source: P, kernel_from: u64) -> Halves<P> {
        let header = Header { kernel_from: None, ..source.header().clone() };
        Halves { source, header, kernel_from, cpu: None, space: 0, in_kernel: false }
    }

    /// Adds an event before the access `at` if its address `addr` is in the other half than the
    /// access before.
    fn enter(&mut self, at: u32, thread: u32, addr: u64, events: &mut Vec<Placed>) {
        let is_kernel = addr >= self.kernel_from;
        if is_kernel != self.in_kernel {
            self.in_kernel = is_kernel;
            let (cpu, space) = (self.cpu, if is_kernel { KERNEL } else { self.space });
            events.push(Placed { at, thread, event: Event::Run { cpu, space } });
        }
    }

    /// Processes an event of the source.
    fn take(&mut self, placed: Placed, events: &mut Vec<Placed>) {
        match &placed.event {
            Event::Run { cpu, space } => {
                (self.cpu, self.space) = (*cpu, *space);
                self.in_kernel = *space == KERNEL;
            }
            Event::Translation(translation) => {
                self.enter(placed.at, placed.thread, translation.addr, events);
            }
            Event::Flush { addr } => self.enter(placed.at, placed.thread, *addr, events),
            Event::Snapshot { .. }
            | Event::Interrupt { .. }
            | Event::Task { .. }
            | Event::Table { .. }
            | Event::Entry { .. }
            | Event::Control { .. }
            | Event::Process { .. }
            | Event::ContextSwitch { .. }
            | Event::WarmupEnd
            | Event::Gap { .. }
            | Event::Call(_)
            | crate::events!(memory)
            | crate::events!(program)
            | crate::events!(lives) => {}
        }
        events.push(placed);
    }

    fn split(&mut self, batch: &mut Batch) {
        let before = std::mem::take(&mut batch.events);
        let mut events = Vec::with_capacity(before.len());
        let mut before = before.into_iter().peekable();
        let (mut row, mut segment) = (0, 0);
        let rows = batch.addr.len();
        loop {
            while let Some(placed) = before.next_if(|placed| placed.at as usize <= row) {
                self.take(placed, &mut events);
            }
            if row == rows {
                break;
            }
            let end = before.peek().map_or(rows, |placed| rows.min(placed.at as usize));
            let (from, is_kernel) = (self.kernel_from, self.in_kernel);
            let same = |&&addr: &&u64| (addr >= from) == is_kernel;
            row += batch.addr[row..end].iter().take_while(same).count();
            if row == end {
                continue;
            }
            let is_before = |next: &crate::Segment| next.start as usize <= row;
            while batch.segments.get(segment + 1).is_some_and(is_before) {
                segment += 1;
            }
            let thread = batch.segments.get(segment).map_or(0, |segment| segment.thread);
            self.enter(row as u32, thread, batch.addr[row], &mut events);
        }
        batch.events = events;
        batch.events.extend(before);
    }
}

impl<P: DerefMut<Target: Source>> Source for Halves<P> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        let more = self.source.next(batch)?;
        self.split(batch);
        Ok(more)
    }

    fn answer(&mut self, contents: Option<[Contents; 2]>) {
        self.source.answer(contents);
    }

    fn while_waiting(&mut self, go_on: Box<dyn FnMut() -> bool + Send>) {
        self.source.while_waiting(go_on);
    }

    fn total(&self) -> Option<u64> {
        self.source.total()
    }

    fn stored(&self) -> Option<Stored> {
        self.source.stored()
    }

    fn processes(&self) -> &[Process] {
        self.source.processes()
    }

    fn warnings(&self) -> &[String] {
        self.source.warnings()
    }

    fn switches(&self) -> Option<Switches> {
        self.source.switches()
    }

    fn is_system(&self) -> bool {
        true
    }

    fn digest(&self) -> Option<String> {
        self.source.digest()
    }
}

#[cfg(test)]
mod tests {
    use addr::Kind;

    use super::*;
    use crate::{Arch, Filter, Meta};

    const FROM: u64 = 1 << 63;
    const CODE: u64 = u64::MAX - 0xfff;

    /// Batches of addresses and events, one after the other.
    struct Given(Header, Vec<Batch>);

    impl Source for Given {
        fn header(&self) -> &Header {
            &self.0
        }

        fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
            match self.1.pop() {
                Some(next) => *batch = next,
                None => batch.clear(),
            }
            Ok(!batch.is_empty())
        }
    }

    /// Accesses and events are in the space to which their half of the addresses belongs, however
    /// the batches are cut.
    #[test]
    fn accesses_and_events_are_in_the_space_of_their_half() {
        let mut random = crate::random::numbers(66);
        for round in 0..200 {
            let mut expected = Vec::new();
            let (mut batches, mut space) = (Vec::new(), 0);
            for _ in 0..1 + random(4) {
                let mut batch = Batch::default();
                for _ in 0..random(30) {
                    let addr = if random(3) == 0 { CODE } else { 0x1000 };
                    let of = if addr == CODE { KERNEL } else { space };
                    match random(8) {
                        0 => {
                            space = random(3) as u32;
                            batch.push_event(0, Event::Run { cpu: Some(0), space });
                        }
                        1 => {
                            batch.push_event(0, Event::Flush { addr });
                            expected.push((of, addr));
                        }
                        _ => {
                            batch.push(0, addr, Meta::new(Kind::Load, 8, 1));
                            expected.push((of, addr));
                        }
                    }
                }
                batches.insert(0, batch);
            }
            let header = Header {
                producer: String::new(),
                command: Vec::new(),
                arch: Arch::X86_64,
                fetches: true,
                filter: Filter::None,
                page_bytes: 4096,
                notes: Vec::new(),
                kernel_from: Some(FROM),
            };
            let count = batches.len();
            let mut halves = Halves::new(Box::new(Given(header, batches)), FROM);
            assert_eq!(halves.header().kernel_from, None);
            let (mut found, mut here, mut batch) = (Vec::new(), 0, Batch::default());
            for _ in 0..count {
                halves.next(&mut batch).unwrap();
                let mut events = batch.events.iter().peekable();
                for row in 0..=batch.len() {
                    while let Some(placed) = events.next_if(|placed| placed.at as usize == row) {
                        match placed.event {
                            Event::Run { space, .. } => here = space,
                            Event::Flush { addr } => found.push((here, addr)),
                            _ => {}
                        }
                    }
                    found.extend(batch.addr.get(row).map(|&addr| (here, addr)));
                }
            }
            assert_eq!(found, expected, "round {round}");
        }
    }
}
