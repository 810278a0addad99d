//! What memory management takes on this host, in nanoseconds.
//!
//! ```text
//!   cargo bench -p pagewalk-vm [-- --smoke]
//! ```
//!
//! Two tables. *Frames*: an allocation and a free of base frames, and of blocks of 512, on a memory
//! of 4 GiB of which half is in use in no order; contenders are this project's allocators with
//! their page-frame descriptors, and two of the registry, which keep none; one of them also with a
//! descriptor per frame beside it, as whoever hosts it would keep. Every contender gets the same
//! stream: each step frees what was allocated at a place chosen at random and allocates anew.
//! *Faults*: the first touch of an anonymous page through `vm`, `hat`, `physmem` and x86-64 page
//! tables, without zeroing (the platform does nothing); a fault on a page whose translation alone is
//! missing; and unmapping, per page.
//!
//! Contenders take turns in each round, and a round is divided into stretches; a line has the least of
//! all stretches, as what else runs here only adds to it.

mod faults;
mod frames;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test` runs this without `--bench`, at a smoke size.
    let smoke = arguments.iter().any(|argument| argument == "--smoke")
        || !arguments.iter().any(|argument| argument == "--bench");
    let (steps, pages, rounds) = if smoke { (2_000, 1_000, 1) } else { (400_000, 40_000, 9) };
    frames::compare(steps, rounds);
    println!();
    faults::compare(pages, rounds);
}
