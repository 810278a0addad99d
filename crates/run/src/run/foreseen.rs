//! Whether a trace says what is mapped, as far as that is known before its first access.
//!
//! ```text
//!   source      | batch | batch | batch with an mmap | batch | ...
//!               '-- read ahead: at most 2^20 --------'
//!                   accesses, then given in order
//! ```
//!
//! Which page sizes an address may have that no mapping explains depends on whether the trace has mappings at all:
//! [`Layout::is_told`](results::count::labels::Layout::is_told). A trace of another tool may tell the first of them after some
//! accesses. So that all such addresses are treated alike, the beginning of a trace is looked through first.

use std::collections::VecDeque;

use results::count::labels::Told;
use trace::{
    Batch, Contents, Error, Event, Header, KERNEL, Process, Source, Stored, mix::Switches,
};

/// Accesses and events that are looked through at most.
const HELD_MAX: usize = 1 << 20;

/// A source whose beginning has been looked through.
pub struct Foreseen<'a> {
    source: &'a mut dyn Source,
    /// What was read ahead: each batch, with what [`Source::next`] said of it.
    ahead: VecDeque<Result<(Batch, bool), Error>>,
    told: Told,
}

impl<'a> Foreseen<'a> {
    /// Reads ahead until events say what is mapped in each space that has come, or for [`HELD_MAX`] accesses
    /// and events.
    pub fn new(source: &'a mut dyn Source) -> Foreseen<'a> {
        let mut ahead = VecDeque::new();
        let (mut held, mut number) = (0, 0);
        let mut told = Told::default();
        told.come(number);
        let mut is_settled = false;
        while !is_settled {
            let mut batch = Batch::default();
            let next = source.next(&mut batch);
            // Where it ends does not depend on how the source makes batches.
            for (before, placed) in batch.events.iter().enumerate() {
                is_settled |= told.are_all();
                if is_settled || held + before + placed.at as usize >= HELD_MAX {
                    break;
                }
                match placed.event {
                    // Nothing is ever told of the kernel's space.
                    Event::Run { space: KERNEL, .. } => {}
                    Event::Run { space, .. } => {
                        number = space;
                        told.come(number);
                    }
                    ref event => {
                        if event.changes_mappings() {
                            told.tell(number);
                        }
                    }
                }
            }
            held += batch.len() + batch.events.len();
            is_settled |= told.are_all() || held >= HELD_MAX;
            // A recorder that asks waits for the answer.
            is_settled |= batch.asks || !matches!(next, Ok(true));
            ahead.push_back(next.map(|more| (batch, more)));
        }
        Foreseen { source, ahead, told }
    }

    /// Of which spaces events say what is mapped, as far as was looked.
    pub fn told(&self) -> &Told {
        &self.told
    }
}

impl Source for Foreseen<'_> {
    fn header(&self) -> &Header {
        self.source.header()
    }

    fn next(&mut self, batch: &mut Batch) -> Result<bool, Error> {
        match self.ahead.pop_front() {
            Some(next) => {
                let (next, more) = next?;
                *batch = next;
                Ok(more)
            }
            None => self.source.next(batch),
        }
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

    fn digest(&self) -> Option<String> {
        self.source.digest()
    }
}
