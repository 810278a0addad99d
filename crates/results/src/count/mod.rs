//! What a run counts while it goes on, and under which region it counts an address.

pub mod census;
pub mod history;
pub mod labels;
pub mod origins;
