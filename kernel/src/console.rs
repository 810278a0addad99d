//! The serial line, written line by line.

use core::fmt::{self, Write};

use hat::locking::{Mutex, Site};

use crate::{arch, locks::PolledMutex};

/// The lock of the serial line.
static LINE: PolledMutex<()> = PolledMutex::free(());

struct Serial;

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(arch::put);
        Ok(())
    }
}

/// Writes a line.
pub fn line(text: fmt::Arguments<'_>) {
    LINE.with(Site::Look, |()| {
        // The serial line takes everything.
        let _ = writeln!(Serial, "{text}");
    });
}

/// Writes a line even if another processor has the lock: for the last message.
pub fn last_line(text: fmt::Arguments<'_>) {
    let _ = writeln!(Serial, "{text}");
}

/// Writes bytes as they are.
pub fn bytes(text: &[u8]) {
    LINE.with(Site::Look, |()| text.iter().copied().for_each(arch::put));
}

/// Writes a line to the serial line.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::console::line(format_args!($($text)*)) };
}
