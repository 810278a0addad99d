//! Measures memory management on this host, in nanoseconds.
//!
//! ```text
//!   cargo bench -p pagewalk-vm [-- --smoke]
//! ```
//!
//! There are two tables. *Frames* has the time of an allocation and a free, of base frames and of
//! blocks of 512, in a memory of 4 GiB of which a random half is in use. It compares this project's
//! allocators, with their page-frame descriptors, and two allocators of other crates, which keep no
//! descriptors. One of these two is also measured with a descriptor per frame, which its users
//! would need. All allocators get equal streams: each step frees the block at a random place and
//! allocates another one. *Faults* has times per page. They are the first touch of an anonymous
//! page through `vm`, `hat`, `physmem` and x86-64 page tables, without zeroing (the platform does
//! nothing); a fault on a page for which only the translation is missing; and unmapping.
//!
//! Allocators take turns in each round, and a round is divided into intervals. A line has the
//! shortest time of all intervals, because other load on the host only makes an interval longer.

mod faults;
mod frames;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test` runs this without `--bench`; then it is only a smoke test.
    let smoke = arguments.iter().any(|argument| argument == "--smoke")
        || !arguments.iter().any(|argument| argument == "--bench");
    let (steps, pages, rounds) = if smoke { (2_000, 1_000, 1) } else { (400_000, 40_000, 9) };
    frames::compare(steps, rounds);
    println!();
    faults::compare(pages, rounds);
}
