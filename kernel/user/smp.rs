//! Tests with several processors: threads of one space, and shootdowns.

use crate::{
    abi::{ANYBODY, Fact, Failure, NOBODY, Number, OK, SOURCE_SHARED, SOURCE_ZEROS, SPACE_SAME, STOPPED},
    memory::{AT, PAGE, map, unmap},
    messages::{message, no_stacks, stack_end, stacks},
    system::{exit, fact, fail, load, must, simple, store, thread},
};

const ROUNDS: u64 = 100;
/// How many times a page gets another frame.
const LOOKS: u64 = 20;

/// The atomic word at an address.
pub fn word(at: u64) -> &'static core::sync::atomic::AtomicU64 {
    // SAFETY: the page is mapped while threads use it, and they use the word so alone.
    unsafe { core::sync::atomic::AtomicU64::from_ptr(at as *mut u64) }
}

use core::sync::atomic::Ordering::SeqCst;

extern "C" fn adds(processor: u64, rounds: u64) -> ! {
    must(Number::Processor, &[processor]);
    for round in 0..rounds {
        word(AT).fetch_add(1, SeqCst);
        // Pages of its own, which come and go.
        let own = AT + (1 + processor) * 0x10_0000;
        map(own, 3, SOURCE_ZEROS);
        store(own + (round % 3) * PAGE, round);
        assert_eq!(load(own + (round % 3) * PAGE), round);
        unmap(own, 3);
    }
    exit(fact(Fact::ThisProcessor))
}

pub fn threads() {
    let processors = fact(Fact::Processors);
    stacks(processors);
    map(AT, 1, SOURCE_ZEROS);
    let mut all = [0; 8];
    for processor in 0..processors {
        all[processor as usize] = thread(adds, stack_end(processor), [processor, ROUNDS], SPACE_SAME);
    }
    for processor in 0..processors {
        assert_eq!(must(Number::Wait, &[all[processor as usize]]), processor);
    }
    assert_eq!(load(AT), processors * ROUNDS);
    unmap(AT, 1);
    no_stacks(processors);
}

/// Loads repeatedly from a page that is unmapped and mapped with another number, until the number is 0.
extern "C" fn looks(processor: u64, at: u64) -> ! {
    must(Number::Processor, &[processor]);
    let mut looked = 0;
    word(AT).fetch_add(1, SeqCst);
    loop {
        // The loaded number is never older than the number that was announced before.
        let told = word(AT + 8).load(SeqCst);
        let found = load(at);
        assert!(found >= told, "{found} is older than {told}: a stale translation");
        looked += 1;
        if found == u64::MAX {
            exit(looked);
        }
    }
}

pub fn shootdown() {
    let processors = fact(Fact::Processors);
    if processors < 2 {
        return;
    }
    stacks(processors);
    map(AT, 1, SOURCE_ZEROS);
    let page = AT + 0x20_0000;
    map(page, 1, SOURCE_ZEROS);
    let before = fact(Fact::Shootdowns);
    let mut all = [0; 8];
    for processor in 1..processors {
        all[processor as usize] = thread(looks, stack_end(processor), [processor, page], SPACE_SAME);
    }
    while word(AT).load(SeqCst) < processors - 1 {
        must(Number::Yield, &[]);
    }
    for round in 1..=LOOKS {
        // The page gets another frame: a child that has the old one makes the store a copy.
        let (status, child) = simple(Number::Fork, &[]);
        if (status, child) == (OK, 0) {
            message(NOBODY, ANYBODY, 0, [0; 3]);
            exit(0);
        }
        store(page, if round == LOOKS { u64::MAX } else { round });
        must(Number::Kill, &[child]);
        if round < LOOKS {
            word(AT + 8).store(round, SeqCst);
        }
    }
    for processor in 1..processors {
        assert!(must(Number::Wait, &[all[processor as usize]]) > 0);
    }
    assert!(fact(Fact::Shootdowns) > before, "others were asked");
    unmap(page, 1);
    unmap(AT, 1);
    no_stacks(processors);
}

pub fn spaces() {
    let processors = fact(Fact::Processors);
    map(AT, 1, SOURCE_SHARED);
    for processor in 0..processors {
        if let (0, 0) = simple(Number::Fork, &[]) {
            must(Number::Processor, &[processor]);
            let own = AT + 0x20_0000;
            for round in 0..ROUNDS {
                map(own, 8, SOURCE_ZEROS);
                (0..8).for_each(|page| store(own + page * PAGE, processor * 1000 + round));
                (0..8).for_each(|page| assert_eq!(load(own + page * PAGE), processor * 1000 + round));
                unmap(own, 8);
            }
            word(AT).fetch_add(1, SeqCst);
            exit(0);
        }
    }
    while word(AT).load(SeqCst) < processors {
        must(Number::Yield, &[]);
    }
    while fact(Fact::Spaces) > 1 {
        must(Number::Yield, &[]);
    }
    unmap(AT, 1);
}

extern "C" fn hangs(processor: u64, _: u64) -> ! {
    must(Number::Processor, &[processor]);
    word(AT).store(1, SeqCst);
    fail(Failure::Processor, 0);
    exit(1)
}

pub fn lost() {
    let processors = fact(Fact::Processors);
    if processors < 2 {
        return;
    }
    stacks(1);
    map(AT, 2, SOURCE_ZEROS);
    store(AT + PAGE, 1);
    let hanging = thread(hangs, stack_end(0), [processors - 1, 0], SPACE_SAME);
    while word(AT).load(SeqCst) == 0 {
        must(Number::Yield, &[]);
    }
    (0..50).for_each(|_| _ = must(Number::Yield, &[]));
    // Its space loses a page: the processor is asked, and does not answer.
    unmap(AT + PAGE, 1);
    assert_eq!(must(Number::Wait, &[hanging]), STOPPED);
    assert_eq!(fact(Fact::Processors), processors - 1);
    unmap(AT, 1);
    no_stacks(1);
}
