//! Importers, against files that are written here byte by byte from the formats' layouts.

mod champsim;
mod compression;
mod csv;
mod document;
mod drmemtrace;
mod fuzz;
mod lackey;
mod sniffing;
mod support;
mod texts;
mod zip;
