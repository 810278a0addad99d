//! Random system calls and accesses of several threads in several spaces. Some of the threads end by that, and the
//! kernel must not: after each round all is free again, and its books are right.
//!
//! ```text
//!   supervisor   forks attackers, waits, kills whoever is left, looks at the kernel's books
//!   attackers    call and access at random, and start others by Fork and Spawn
//! ```

use core::sync::atomic::Ordering::SeqCst;

use crate::{
    abi::{
        ANYBODY, EXECUTE, Fact, Failure, NOBODY, Number, OK, PROGRAM, READ, SOURCE_SHARED, SPACE_OF, WRITE, flexpage,
    },
    memory::{AT, PAGE},
    messages::{STACKS, whoami},
    println,
    smp::word,
    system::{any_call, books, exit, fact, fail, jump, load, must, simple, store},
};

/// The page that all attackers share: the largest number of a thread, then numbers of threads.
const SHARED: u64 = 0x1f00_0000;
const KNOWN: u64 = 64;
/// How many calls and accesses a thread makes.
const STEPS: u64 = 60;

/// A pseudo-random number generator (Marsaglia's xorshift).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    fn one_of(&mut self, of: &[u64]) -> u64 {
        of[self.below(of.len() as u64) as usize]
    }

    /// A thread that was started at some time.
    fn thread(&mut self) -> u64 {
        load(SHARED + 8 * (1 + self.below(KNOWN)))
    }

    fn address(&mut self) -> u64 {
        let starts = [AT, AT, AT, 0, STACKS, PROGRAM, SHARED, 0x7fff_ffff_f000, 0x3f_ffff_f000];
        self.one_of(&starts) + self.below(24) * PAGE
    }

    fn argument(&mut self) -> u64 {
        match self.below(9) {
            0 => self.below(20),
            1 | 2 => self.address(),
            3 => self.below(40) * PAGE,
            4 => self.thread(),
            5 => {
                let shift = 12 + self.below(5);
                flexpage((self.address() >> shift) << shift, shift, self.below(8))
            }
            6 => self.one_of(&[1, 2, 3, READ | WRITE, READ | EXECUTE, 0x100, SPACE_OF + 65]),
            7 => self.one_of(&[
                ANYBODY,
                NOBODY,
                u64::MAX - 2,
                1 << 47,
                1 << 38,
                1 << 63,
                0xffff_8000_0010_0000,
                0x8000_0000_0000,
            ]),
            _ => SPACE_OF + self.thread(),
        }
    }
}

extern "C" fn attacker(seed: u64, boss: u64) -> ! {
    let mut random = Random::new(seed);
    simple(Number::Map, &[AT, 24 * PAGE, READ | WRITE]);
    for _ in 0..STEPS {
        // Most are where pages are, so that it goes on.
        let at = if random.below(30) == 0 { random.address() } else { AT + random.below(24) * PAGE };
        match random.below(12) {
            0..=2 => _ = load(at),
            3 | 4 => store(at, at),
            5 if random.below(20) == 0 => jump(at),
            5 if random.below(4) == 0 => fail(Failure::Frame, random.below(30)),
            _ => call(&mut random, boss),
        }
    }
    exit(5)
}

fn call(random: &mut Random, boss: u64) {
    let number = Number::ALL[random.below(Number::ALL.len() as u64) as usize];
    let mut arguments = [0; 6].map(|_: u64| random.argument());
    match number {
        Number::Shutdown | Number::Fail | Number::Print => return,
        // Most of them do not end the attacker.
        Number::Exit | Number::Unmap | Number::Protect | Number::Discard if random.below(3) > 0 => arguments[0] = AT,
        Number::Map if random.below(3) > 0 => {
            arguments = [
                AT + random.below(24) * PAGE,
                (1 + random.below(8)) * PAGE,
                random.below(8),
                random.below(4),
                2,
                random.below(70),
            ];
        }
        Number::Spawn if random.below(3) > 0 => {
            let stack = STACKS + PAGE * random.below(9);
            arguments = [attacker as *const () as u64, stack, random.below(1 << 40), boss, random.below(4), 0];
        }
        Number::Kill | Number::Wait if arguments[0] == boss => return,
        _ => {}
    }
    if number == Number::Exit {
        return;
    }
    let [status, value, ..] = any_call(number as u64, arguments);
    if matches!(number, Number::Spawn | Number::Fork) && status == OK && value != 0 {
        word(SHARED).fetch_max(value, SeqCst);
        store(SHARED + 8 * (1 + value % KNOWN), value);
    }
}

/// Attacks in some rounds.
pub fn rounds(seed: u64, rounds: u64) {
    let mut random = Random::new(seed);
    must(Number::Map, &[STACKS, 12 * PAGE, READ | WRITE, 0]);
    let boss = whoami();
    must(Number::Map, &[SHARED, PAGE, READ | WRITE, SOURCE_SHARED]);
    let (spaces, free) = (fact(Fact::Spaces), fact(Fact::FreeFrames));
    for round in 0..rounds {
        for _ in 0..3 {
            let seed = random.below(1 << 40);
            match simple(Number::Fork, &[]) {
                (OK, 0) => attacker(seed, boss),
                (OK, child) => _ = word(SHARED).fetch_max(child, SeqCst),
                _ => {}
            }
        }
        (0..200).for_each(|_| _ = simple(Number::Yield, &[]));
        // Whoever is left is killed, and whom it has started meanwhile.
        for _ in 0..1000 {
            let last = load(SHARED) + 256;
            (last.saturating_sub(4096)..last).filter(|thread| *thread != boss).for_each(|thread| {
                simple(Number::Kill, &[thread]);
            });
            if fact(Fact::Spaces) == spaces {
                break;
            }
            simple(Number::Yield, &[]);
        }
        fail(Failure::Frame, 1 << 60);
        assert_eq!(fact(Fact::Spaces), spaces, "spaces after round {round} of seed {seed}");
        books(format_args!("after round {round} of seed {seed}"));
        let now = fact(Fact::FreeFrames);
        assert!(now + 80 >= free, "{now} frames of {free} are free after round {round} of seed {seed}");
        // Pages of the supervisor's own may be in swap still.
        assert!(fact(Fact::Swapped) < 40, "pages in swap after round {round} of seed {seed}");
    }
    must(Number::Unmap, &[SHARED, PAGE]);
    must(Number::Unmap, &[STACKS, 12 * PAGE]);
}

pub fn run(seed: u64, count: u64) {
    rounds(seed, count);
    println!("attacked: {count} rounds of seed {seed}");
}
