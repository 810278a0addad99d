//! Tests the importers with files that the tests write byte by byte, after the descriptions of the
//! formats.

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
