//! The count of pins of each frame ([`super::pin`]).

use alloc::collections::TryReserveError;

use physmem::FrameId;

use crate::sorted::SortedMap;

/// How many pins each frame has, by its number.
#[derive(Debug, Default)]
pub(crate) struct Pins(SortedMap<u32, u16>);

impl Pins {
    pub(crate) fn has(&self, frame: FrameId) -> bool {
        !self.0.is_empty() && self.0.get(&frame.0).is_some()
    }

    /// The number of pins of a frame.
    pub(crate) fn of(&self, frame: FrameId) -> u16 {
        self.0.get(&frame.0).copied().unwrap_or(0)
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = (FrameId, u16)> {
        self.0.iter().map(|(frame, pins)| (FrameId(frame), *pins))
    }

    /// Adds a pin. The frame must have fewer than 2^16 - 1 pins.
    pub(crate) fn add(&mut self, frame: FrameId) -> Result<(), TryReserveError> {
        match self.0.get_mut(&frame.0) {
            Some(pins) => *pins += 1,
            None => _ = self.0.insert(frame.0, 1)?,
        }
        Ok(())
    }

    /// Removes a pin. Returns whether it was the frame's last.
    pub(crate) fn remove(&mut self, frame: FrameId) -> bool {
        let Some(pins) = self.0.get_mut(&frame.0) else { return false };
        *pins -= 1;
        let is_last = *pins == 0;
        if is_last {
            self.0.remove(&frame.0);
        }
        is_last
    }
}
