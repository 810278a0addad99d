//! Counts the instructions of messages and faults, with QEMU's `-icount shift=0`.

use crate::{
    abi::{
        EXECUTE, NOBODY, Number, OK, READ, SOURCE_FILE, SOURCE_ZEROS, SPACE_EMPTY, SPACE_SAME, TAG_FAULT, TAG_MAP,
        WRITE, flexpage,
    },
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
    tasks();
    protect();
}

fn call() {
    let begun = instructions();
    (0..ROUNDS).for_each(|_| _ = crate::system::simple(Number::Accept, &[0]));
    say("call", begun, ROUNDS);
}

fn ipc() {
    stacks(1);
    let echo = thread(echo, stack_end(0), [0; 2], SPACE_SAME);
    message(echo, echo, 0x1000, [0; 3]);
    let begun = instructions();
    (0..ROUNDS).for_each(|_| _ = message(echo, echo, 0x1000, [0; 3]));
    say("ipc-same-space", begun, ROUNDS);
    message(echo, NOBODY, 0, [0; 3]);
    must(Number::Wait, &[echo]);
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

// A thread that ends with its first instructions, and needs no stack.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!("ends: mov eax, {}", "xor edi, edi", "int 0x80", const Number::Exit as u64);
#[cfg(target_arch = "riscv64")]
core::arch::global_asm!("ends: li a7, {}", "li a0, 0", "ecall", const Number::Exit as u64);

unsafe extern "C" {
    static ends: u8;
}

/// E99's tasking benchmark (section 3.3): a task is created, gets a page by a message, touches it, and ends.
fn tasks() {
    let task = |_| {
        let task = must(Number::Spawn, &[&raw const ends as u64, stack_end(0), 0, 0, SPACE_EMPTY]);
        let [status, sender, tag, at, ..] = message(NOBODY, task, 0, [0; 3]);
        assert_eq!([status, sender, tag], [OK, task, TAG_FAULT]);
        let page = at & !(PAGE - 1);
        message(task, NOBODY, TAG_MAP, [0, flexpage(page, 12, READ | EXECUTE), page]);
        must(Number::Wait, &[task]);
    };
    task(0);
    let begun = instructions();
    (0..ROUNDS).for_each(task);
    say("task", begun, ROUNDS);
}

/// Sends the boss the status of each message that has come.
extern "C" fn reports(boss: u64, _: u64) -> ! {
    let mut status = OK;
    loop {
        [status, ..] = message(boss, boss, 0x1000, [status, 0, 0]);
    }
}

/// E99's mapping benchmarks: pages lose the right to write one by one or at once, and get it back by a message each.
fn protect() {
    const PAGES: u64 = 2 * ROUNDS;
    stacks(1);
    map(AT, PAGES, SOURCE_ZEROS);
    (0..PAGES).for_each(|page| store(AT + page * PAGE, 1));
    let client = thread(reports, stack_end(0), [whoami(), 0], SPACE_EMPTY);
    serve(AT, &mut 0);
    let give = |page| {
        let words = [0, flexpage(AT + page * PAGE, 12, READ | WRITE), DATA + page * PAGE];
        assert_eq!(message(client, client, TAG_MAP | 0x1000, words)[3], OK);
    };
    (0..PAGES).for_each(give);
    for (name, shift) in [("prot1", 12), ("protn", 12 + u64::from(PAGES.trailing_zeros()))] {
        let begun = instructions();
        for at in (AT..AT + PAGES * PAGE).step_by(1 << shift) {
            must(Number::Flush, &[flexpage(at, shift, READ), 0]);
        }
        (0..PAGES).for_each(give);
        say(name, begun, PAGES);
    }
    end(client);
    unmap(AT, PAGES);
    no_stacks(1);
}
