//! A snapshot of a process's pages.

use trace::{Event, KnownSizes, Translation, When};

/// A snapshot, until it is in the trace.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// The time when the snapshot was begun, in nanoseconds.
    pub(crate) ns: u64,
    pub(crate) when: When,
    pub(crate) sizes: KnownSizes,
    pub(crate) found: Vec<Translation>,
}

impl Snapshot {
    /// The events that store the snapshot in a trace.
    pub(crate) fn events(self) -> impl Iterator<Item = Event> {
        let Snapshot { when, sizes, found, .. } = self;
        let found = found.into_iter().map(|found| Event::Translation(Box::new(found)));
        std::iter::once(Event::Snapshot { when, sizes }).chain(found)
    }
}
