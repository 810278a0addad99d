//! Programs recorded under QEMU and natively, one file per thing that they do.
//!
//! One program, so that it is linked once and the plugin is built once.

mod alone;
mod calls;
mod changing;
mod common;
mod derived;
mod families;
mod inline;
mod layout;
mod native;
mod options;
mod processes;
mod random;
mod refusals;
mod sequences;
mod stepped;
mod threaded;
mod windows;
