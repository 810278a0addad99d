//! Programs recorded under QEMU, one file per thing that they do.
//!
//! One program, so that it is linked once and the plugin is built once.

mod calls;
mod common;
mod derived;
mod inline;
mod layout;
mod native;
mod options;
mod processes;
mod random;
mod refusals;
mod sequences;
mod windows;
