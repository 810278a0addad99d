//! Counts the instructions of messages and faults, with QEMU's `-icount shift=0`.

use crate::{
    abi::{NOBODY, Number, SOURCE_FILE, SOURCE_ZEROS, SPACE_EMPTY, SPACE_SAME},
    memory::{AT, PAGE, map, unmap},
    messages::{DATA, echo, end, message, no_stacks, serve, stack_end, stacks, whoami},
    println,
    system::{in_a_child, instructions, load, must, store, thread},
};

const ROUNDS: u64 = 64;

/// Prints the mean number of instructions of one of `count` operations.
fn say(name: &str, begun: u64, count: u64) {
    println!("instructions {name} {}", (instructions() - begun) / count);
}

pub fn run() {
    call();
    ipc();
    faults();
    copies();
    pager();
    regions();
}

fn call() {
    let begun = instructions();
    (0..ROUNDS).for_each(|_| _ = crate::system::simple(Number::Accept, &[0]));
    say("call", begun, ROUNDS);
}

fn ipc() {
    stacks(1);
    for (name, space) in [("ipc-same-space", SPACE_SAME)] {
        let echo = thread(echo, stack_end(0), [0; 2], space);
        message(echo, echo, 0x1000, [0; 3]);
        let begun = instructions();
        (0..ROUNDS).for_each(|_| _ = message(echo, echo, 0x1000, [0; 3]));
        say(name, begun, ROUNDS);
        message(echo, NOBODY, 0, [0; 3]);
        must(Number::Wait, &[echo]);
    }
    let me = whoami();
    let far = thread(calls, stack_end(0), [me, 0], SPACE_EMPTY);
    // Its first messages bring its pages.
    serve(AT, &mut 0);
    message(far, far, 0x1000, [0; 3]);
    let begun = instructions();
    (0..ROUNDS).for_each(|_| _ = message(far, far, 0x1000, [0; 3]));
    say("ipc-other-space", begun, ROUNDS);
    end(far);
    no_stacks(1);
}

extern "C" fn calls(boss: u64, _: u64) -> ! {
    loop {
        message(boss, boss, 0x1000, [0; 3]);
    }
}

fn faults() {
    map(AT, ROUNDS, SOURCE_ZEROS);
    store(AT, 1);
    let begun = instructions();
    (1..ROUNDS).for_each(|page| store(AT + page * PAGE, 1));
    say("fault-zero", begun, ROUNDS - 1);
    unmap(AT, ROUNDS);
    map(AT, 32, SOURCE_FILE);
    (0..32).for_each(|page| _ = load(AT + page * PAGE));
    unmap(AT, 32);
    map(AT, 32, SOURCE_FILE);
    let begun = instructions();
    (0..32).for_each(|page| _ = load(AT + page * PAGE));
    say("fault-cache", begun, 32);
    unmap(AT, 32);
}

fn copies() {
    map(AT, ROUNDS, SOURCE_ZEROS);
    (0..ROUNDS).for_each(|page| store(AT + page * PAGE, 1));
    in_a_child(|| {
        let begun = instructions();
        (0..ROUNDS).for_each(|page| store(AT + page * PAGE, 2));
        say("fault-copy", begun, ROUNDS);
        0
    });
    let begun = instructions();
    (0..ROUNDS).for_each(|page| store(AT + page * PAGE, 3));
    say("fault-write", begun, ROUNDS);
    let begun = instructions();
    in_a_child(|| 0);
    say("fork-of-64-pages", begun, 1);
    unmap(AT, ROUNDS);
}

extern "C" fn touches(boss: u64, _: u64) -> ! {
    message(boss, boss, 0x1000, [0; 3]);
    (0..ROUNDS).for_each(|page| store(DATA + page * PAGE, 1));
    loop {
        message(boss, boss, 0x1000, [0; 3]);
    }
}

fn pager() {
    stacks(1);
    map(AT, ROUNDS, SOURCE_ZEROS);
    (0..ROUNDS).for_each(|page| store(AT + page * PAGE, 1));
    let me = whoami();
    let client = thread(touches, stack_end(0), [me, 0], SPACE_EMPTY);
    serve(AT, &mut 0);
    message(client, NOBODY, 0x1000, [0; 3]);
    let (begun, mut count) = (instructions(), 0);
    serve(AT, &mut count);
    say("fault-by-a-pager", begun, count);
    end(client);
    unmap(AT, ROUNDS);
    no_stacks(1);
}

fn regions() {
    let begun = instructions();
    for _ in 0..ROUNDS {
        map(AT, 1, SOURCE_ZEROS);
        store(AT, 1);
        unmap(AT, 1);
    }
    say("map-touch-unmap", begun, ROUNDS);
}
