//! What a run counts while it goes on, and under which region it counts an address.

pub(crate) mod census;
pub(crate) mod history;
pub(crate) mod labels;
pub(crate) mod origins;
