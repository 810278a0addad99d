//! The user program. Its first argument says what it does.
//!
//! | argument | what it does |
//! |---|---|
//! | 0 | tries everything that the kernel does, and says `ok NAME` for each; from the part on whose number the second argument is |
//! | 1 | counts instructions of messages and faults |
//! | 2 | ends at once |
//! | 3 | attacks the kernel at random; second argument: a seed, and from bit 32 on the number of rounds |
//! | 4 | a stream of operations on regions, for a simulated machine to repeat; the second argument as above |
//! | 5 | as 4, with a bit of a page table's entry that is changed on purpose |
#![no_std]
#![no_main]

#[path = "../src/abi.rs"]
#[allow(dead_code)]
mod abi;
#[path = "../../tests/boot/attack.rs"]
mod attack;
mod bench;
mod memory;
mod messages;
mod smp;
#[path = "../../tests/boot/stream.rs"]
mod stream;
mod system;
mod wrong;

use core::panic::PanicInfo;

use abi::Fact;

/// The first instruction, on a stack.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text._start")]
extern "C" fn _start(what: u64, from: u64) -> ! {
    match what {
        0 => everything(from),
        1 => bench::run(),
        2 => {}
        3 => attack::run(from as u32 as u64, from >> 32),
        4 | 5 => stream::run(from as u32 as u64, from >> 32, what == 5),
        _ => println!("the program knows no run {what}: choose 0 to 5"),
    }
    system::shutdown(u64::from(what > 5))
}

/// A group of tests, and its name.
type Part = (&'static str, fn());

const PARTS: [Part; 27] = [
    ("demand-paging", memory::demand_paging),
    ("rights", memory::rights),
    ("copy-on-write", memory::copy_on_write),
    ("fork-of-fork", memory::fork_of_fork),
    ("shared-memory", memory::shared_memory),
    ("file", memory::file),
    ("swap", memory::swap),
    ("ipc", messages::ipc),
    ("pager", messages::pager),
    ("pager-with-swap", messages::pager_with_swap),
    ("map-grant-flush", messages::map_grant_flush),
    ("flexpages-that-overlap", messages::overlap),
    ("no-pager", wrong::no_pager),
    ("pager-that-ends", wrong::pager_that_ends),
    ("kernel-addresses", wrong::kernel_addresses),
    ("instructions", wrong::instructions),
    ("calls", wrong::calls),
    ("kill", wrong::kill),
    ("memory-ends-in-each-operation", wrong::memory_ends),
    ("the-kernels-memory-ends-in-each-operation", wrong::heap_ends),
    ("regions-end", wrong::regions_end),
    ("memory-ends", wrong::all_memory),
    ("threads-end", wrong::threads),
    ("threads-of-one-space", smp::threads),
    ("shootdown", smp::shootdown),
    ("spaces-side-by-side", smp::spaces),
    ("processor-that-does-not-answer", smp::lost),
];

fn everything(from: u64) {
    let spaces = system::fact(Fact::Spaces);
    for (name, part) in PARTS.into_iter().skip(from as usize) {
        part();
        // Threads that were stopped on other processors end at their next trap.
        for _ in 0..100_000 {
            if system::fact(Fact::Spaces) == spaces {
                break;
            }
            system::must(abi::Number::Yield, &[]);
        }
        assert_eq!(system::fact(Fact::Spaces), spaces, "spaces after {name}");
        system::books(format_args!("after {name}"));
        println!("ok {name}");
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    println!("the program has found: {info}");
    system::shutdown(1)
}
