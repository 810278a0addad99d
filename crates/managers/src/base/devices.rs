//! Frames that the kernel lends to devices, for example for network packets.
//!
//! ```text
//!   every so many faults:   lend --> | newest | ... | oldest | --> back to free memory
//!                                     at most `pages`
//!   apart                   lend <--- own blocks of 2M: no page of a program is in them
//! ```
//!
//! A read of a device's frame can have side effects, so it must not be speculative (B10 section
//! 6.2.3). A frame that was reserved for a page of a program becomes free when the reservation is
//! broken, and may then be lent to a device. SpecTLB entries that were derived from the reservation
//! may still lead to this frame (section 6.5.3).

use std::collections::VecDeque;

use addr::Frames;
use description::{self, Description, MarksOfBroken, Refusal};
use os::Platform;
use physmem::{FrameId, Request, State};
use ram::FrameStore;
use results::DeviceCounts;

use super::{Base, HUGE, reservations::clear_marks};

/// The frames lent to devices.
pub(super) struct Devices {
    asked: description::Devices,
    /// The number of faults since the last frame was lent.
    faults: u32,
    /// The lent frames, in the order in which they were lent.
    lent: VecDeque<FrameId>,
    /// Free frames in the blocks that are reserved for devices.
    own: Vec<FrameId>,
    /// The number of all frames that belong to devices.
    frames: u64,
    counts: DeviceCounts,
}

impl Devices {
    /// Devices without frames. The error has the key that is wrong.
    pub(super) fn new(description: &Description) -> Result<Option<Devices>, Refusal> {
        let Some(asked) = description.os.devices.clone() else { return Ok(None) };
        let refuse = |key: &str, what: String| Err(Refusal::new(format!("os.devices.{key}"), what));
        let most = (description.memory.size.0 >> description.os.frame().shift()) / 4;
        if asked.pages == 0 || u64::from(asked.pages) > most {
            let what = format!("write 1 to {most} pages, at most a quarter of memory.size");
            return refuse("pages", what);
        }
        if asked.faults == 0 {
            let what = "write the number of faults between two lent frames: 1 or more";
            return refuse("faults", what.to_owned());
        }
        Ok(Some(Devices {
            asked,
            faults: 0,
            lent: VecDeque::new(),
            own: Vec::new(),
            frames: 0,
            counts: DeviceCounts::default(),
        }))
    }

    pub(super) fn counts(&self) -> DeviceCounts {
        DeviceCounts { pages: self.lent.len() as u64, ..self.counts }
    }

    pub(super) fn forget_counts(&mut self) {
        let Devices { asked: _, faults: _, lent: _, own: _, frames: _, counts } = self;
        *counts = DeviceCounts::default();
    }

    /// Counts a fault. Returns whether a frame must be lent now.
    fn are_due(&mut self) -> bool {
        self.faults += 1;
        let due = self.faults >= self.asked.faults;
        if due {
            self.faults = 0;
        }
        due
    }

    /// If more frames are lent than allowed, takes back the frame that was lent first, which is
    /// never the frame that was just lent.
    fn give_back(&mut self, memory: &mut FrameStore) -> Option<FrameId> {
        if self.lent.len() <= self.asked.pages as usize {
            return None;
        }
        let frame = self.lent.pop_front()?;
        self.counts.returned += 1;
        if self.asked.apart {
            self.own.push(frame);
        } else {
            memory.free(memory.table().address(frame), memory.base());
            self.frames -= 1;
        }
        Some(frame)
    }

    /// Lends a frame, if one is available.
    fn lend(&mut self, memory: &mut FrameStore) -> Option<FrameId> {
        let order = block_order(memory);
        let frame = if self.asked.apart {
            if self.own.is_empty()
                && let Ok(block) = memory.allocate(&Request::new(order, State::Kernel))
            {
                self.frames += 1 << order;
                self.counts.blocks += 1;
                self.own.extend((block.0..block.0 + (1 << order)).rev().map(FrameId));
            }
            self.own.pop()
        } else {
            memory.allocate(&Request::new(0, State::Kernel)).ok().inspect(|_| self.frames += 1)
        };
        match frame {
            Some(frame) => {
                self.counts.lent += 1;
                self.lent.push_back(frame);
            }
            None => self.counts.refused += 1,
        }
        frame
    }
}

/// log2 of the number of frames in a block; a block has either frames of programs or frames of
/// devices, and never both.
fn block_order(memory: &FrameStore) -> u32 {
    memory.table().order(HUGE.max(memory.base()))
}

impl Base {
    /// Called after a fault was handled: lends a frame to devices if one is due.
    pub(super) fn serve_devices(&mut self, platform: &mut dyn Platform) {
        let Some(devices) = &mut self.devices else { return };
        if !devices.are_due() {
            return;
        }
        let ram = platform.ram();
        let (hat, memory) = ram.parts_mut();
        let lent = devices.lend(memory);
        let returned = devices.give_back(memory);
        if let (Some(frame), Some(MarksOfBroken::ClearDevices)) = (lent, self.marks) {
            let order = block_order(memory);
            let block = FrameId(frame.0 >> order << order);
            devices.counts.marks_cleared += clear_marks(hat, memory, block, order);
        }
        let changed = [(returned, false), (lent, true)]
            .map(|(frame, is_lent)| (frame.map(|frame| memory.table().address(frame)), is_lent));
        ram.set_device_frames(devices.frames);
        for (frame, is_lent) in changed {
            if let Some(frame) = frame {
                platform.device(frame, is_lent);
            }
        }
        self.breaks(platform.ram());
    }
}
