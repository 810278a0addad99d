//! A lane: one file of a trace, with its bytes and its decoder.

use super::super::input::Input;
use super::decode::{Decoder, Stop};
use super::record::RECORD_BYTES;
use super::shared::Shared;
use crate::{Batch, Error};

/// One file.
pub(crate) struct Lane {
    pub(crate) input: Input,
    pub(crate) decoder: Decoder,
}

/// How a lane's turn ended.
pub(crate) enum Turn {
    Full,
    Segment(u64),
    Ended,
}

impl Lane {
    /// The program, from the file's name: `drmemtrace.NAME.PID.TID.trace.zip`.
    pub(crate) fn program(&self) -> Option<String> {
        let name = self.input.path().file_name()?.to_str()?.strip_prefix("drmemtrace.")?;
        let end = name.find(&format!(".{}.", self.decoder.pid()))?;
        Some(name[..end].to_owned())
    }

    /// Decodes until a segment begins, the batch is full or the file ends.
    pub(crate) fn run(&mut self, shared: &mut Shared, batch: &mut Batch) -> Result<Turn, Error> {
        loop {
            let last = self.input.ended();
            let (used, stop) = self
                .decoder
                .decode(self.input.window(), last, shared, batch)
                .map_err(|fault| self.input.corrupt(fault.at, fault.what))?;
            self.input.consume(used);
            match stop {
                Stop::Batch => return Ok(Turn::Full),
                Stop::Segment(time) => return Ok(Turn::Segment(time)),
                Stop::Bytes => {}
            }
            if let Some(error) = self.input.failure() {
                return Err(error);
            }
            if last {
                let rest = self.input.window().len();
                if rest > 0 {
                    return Err(self.input.corrupt(
                        0,
                        format!(
                            "the file ends within a record ({rest} of {RECORD_BYTES} bytes): \
                                 it is truncated"
                        ),
                    ));
                }
                if !self.decoder.complete() {
                    return Err(self.input.corrupt(0, "the trace has no end: it is truncated"));
                }
                self.decoder.finish(batch);
                return Ok(Turn::Ended);
            }
            self.input.fill();
        }
    }
}
