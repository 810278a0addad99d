//! Measures memory management on this host, in nanoseconds.
//!
//! ```text
//!   cargo bench -p pagewalk-vm [-- --smoke]
//! ```
//!
//! There are two tables. *Frames*: an allocation and a free of base frames, and of blocks of 512, on
//! a memory of 4 GiB of which a random half is in use. The contenders are this project's allocators with their
//! page-frame descriptors, and two allocators of other crates, which keep no descriptors; one of these two is also
//! measured with a descriptor per frame beside it, as its users would need. Every contender gets the same stream:
//! each step frees the block at a random place and allocates another one. *Faults*, per page: the
//! first touch of an anonymous page through `vm`, `hat`, `physmem` and x86-64 page tables, without
//! zeroing (the platform does nothing); a fault on a page whose translation alone is missing; and
//! unmapping.
//!
//! Contenders take turns in each round, and a round is divided into intervals; a line has the least
//! time of all intervals, as other load on the host only adds to it.

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
