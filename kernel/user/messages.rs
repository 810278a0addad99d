//! Tests of messages, pagers in user mode, and pages that are mapped on.

use crate::{
    abi::{
        ANYBODY, EXECUTE, Fact, NO_THREAD, NOBODY, Number, OK, OVERLAP, READ, SOURCE_ZEROS, SPACE_EMPTY, SPACE_SAME,
        STOPPED, TAG_FAULT, TAG_GRANT, TAG_MAP, WRITE, flexpage,
    },
    memory::{AT, PAGE, map, unmap},
    println,
    system::{call, exit, fact, load, must, simple, store, thread},
};

/// The address of the stacks of threads, in every space.
pub const STACKS: u64 = 0x2000_0000;
/// The size of each stack in bytes.
pub const STACK: u64 = 4 * PAGE;
/// The address of the data of a thread in an empty space.
pub const DATA: u64 = 0x1800_0000;

/// Sends to `to`, then receives from `from`.
pub fn message(to: u64, from: u64, tag: u64, words: [u64; 3]) -> [u64; 6] {
    call(Number::Ipc, [to, from, tag, words[0], words[1], words[2]])
}

/// Answers each message with its words plus one, until a tag is 0.
pub extern "C" fn echo(_: u64, _: u64) -> ! {
    let mut got = message(NOBODY, ANYBODY, 0, [0; 3]);
    loop {
        let [status, sender, tag, one, two, three] = got;
        assert_eq!(status, OK);
        if tag == 0 {
            exit(77);
        }
        got = message(sender, ANYBODY, tag, [one + 1, two + 1, three + 1]);
    }
}

/// Maps stacks for `count` threads.
pub fn stacks(count: u64) {
    map(STACKS, count * STACK / PAGE, SOURCE_ZEROS);
}

pub fn no_stacks(count: u64) {
    unmap(STACKS, count * STACK / PAGE);
}

/// The end of the stack of a thread.
pub const fn stack_end(number: u64) -> u64 {
    STACKS + (number + 1) * STACK
}

pub fn ipc() {
    stacks(1);
    let echo = thread(echo, stack_end(0), [0; 2], SPACE_SAME);
    for round in 0..100 {
        let got = message(echo, echo, 0x1000, [round, 2 * round, 3 * round]);
        assert_eq!(got, [OK, echo, 0x1000, round + 1, 2 * round + 1, 3 * round + 1]);
    }
    message(echo, NOBODY, 0, [0; 3]);
    assert_eq!(must(Number::Wait, &[echo]), 77);
    assert_eq!(message(echo, echo, 1, [0; 3])[0], NO_THREAD);
    no_stacks(1);
}

/// A thread in an empty space: it stores to its pages, reports that, and waits for an answer.
extern "C" fn client(boss: u64, pages: u64) -> ! {
    for round in 0..2 {
        let sum: u64 = (0..pages).map(|page| load(DATA + page * PAGE)).sum();
        (0..pages).for_each(|page| store(DATA + page * PAGE + 8, sum + page + round));
        message(boss, boss, 0x2000, [sum, round, 0]);
    }
    // The pager stops it: to end by itself it would need a page more, perhaps.
    loop {
        message(boss, boss, 0x2000, [0; 3]);
    }
}

/// Kills a thread, and waits for its end.
pub fn end(thread: u64) {
    must(Number::Kill, &[thread]);
    assert_eq!(must(Number::Wait, &[thread]), STOPPED);
}

/// The page that a pager maps for a client's fault: program, stacks and data, at the same addresses as its own.
fn page_for(at: u64, data: u64) -> Option<u64> {
    let page = at & !(PAGE - 1);
    let (text, stacks) = (crate::abi::PROGRAM..crate::abi::PROGRAM + 0x10_0000, STACKS..STACKS + 16 * STACK);
    match at {
        _ if text.contains(&at) => Some(flexpage(page, 12, READ | EXECUTE)),
        _ if stacks.contains(&at) => Some(flexpage(page, 12, READ | WRITE)),
        _ if (DATA..DATA + 0x400_0000).contains(&at) => Some(flexpage(page - DATA + data, 12, READ | WRITE)),
        _ => None,
    }
}

/// Serves faults until a message of another kind comes. Returns the words of that message.
pub fn serve(data: u64, faults: &mut u64) -> [u64; 6] {
    let mut got = message(NOBODY, ANYBODY, 0, [0; 3]);
    loop {
        let [status, sender, tag, at, ..] = got;
        assert_eq!(status, OK);
        if tag != TAG_FAULT {
            return got;
        }
        *faults += 1;
        let Some(page) = page_for(at, data) else {
            println!("a pager stops thread {sender}, which has no page at {at:#x}");
            must(Number::Kill, &[sender]);
            got = message(NOBODY, ANYBODY, 0, [0; 3]);
            continue;
        };
        got = message(sender, ANYBODY, TAG_MAP, [0, page, at & !(PAGE - 1)]);
    }
}

pub fn pager() {
    const PAGES: u64 = 6;
    stacks(1);
    map(AT, PAGES, SOURCE_ZEROS);
    (0..PAGES).for_each(|page| store(AT + page * PAGE, 10 * page));
    let me = whoami();
    let client = thread(client, stack_end(0), [me, PAGES], SPACE_EMPTY);
    let mut faults = 0;
    let [_, sender, tag, sum, ..] = serve(AT, &mut faults);
    assert_eq!((sender, tag, sum), (client, 0x2000, 150));
    (0..PAGES).for_each(|page| assert_eq!(load(AT + page * PAGE + 8), 150 + page, "seen where it came from"));
    assert!(faults > PAGES, "{faults} faults: data, stack, program");
    // Mapped pages are taken back. Faults map them again, with their present contents.
    must(Number::Flush, &[flexpage(AT, 12, 0), 0]);
    must(Number::Flush, &[flexpage(AT + PAGE, 12, READ), 0]);
    store(AT, 1000);
    let before = faults;
    message(client, NOBODY, 0x1000, [0; 3]);
    let [_, _, _, sum, ..] = serve(AT, &mut faults);
    assert_eq!(sum, 1150);
    assert!((before + 2..before + 5).contains(&faults), "the page that went and the one that may be read: {faults}");
    end(client);
    unmap(AT, PAGES);
    no_stacks(1);
}

/// A thread in an empty space that has more pages than there are frames, and looks at them again.
extern "C" fn fills(boss: u64, pages: u64) -> ! {
    for round in 0..2 {
        for page in 0..pages {
            let at = DATA + page * PAGE + 16;
            assert_eq!(load(at), page * round, "page {page} of a client, round {round}");
            store(at, page * (round + 1));
        }
    }
    loop {
        message(boss, boss, 0x2000, [0; 3]);
    }
}

/// The pages that a pager maps are in swap at times, and the client has them by further faults.
pub fn pager_with_swap() {
    stacks(1);
    let pages = fact(Fact::FreeFrames) + 100;
    map(AT, pages, SOURCE_ZEROS);
    let me = whoami();
    let (before, mut faults) = (fact(Fact::SwapReads), 0);
    let client = thread(fills, stack_end(0), [me, pages], SPACE_EMPTY);
    assert_eq!(serve(AT, &mut faults)[1], client);
    assert!(fact(Fact::SwapReads) > before + pages / 2 && faults > 2 * pages - 200, "{faults} faults");
    end(client);
    (0..pages).for_each(|page| assert_eq!(load(AT + page * PAGE + 16), 2 * page, "page {page} of the pager"));
    unmap(AT, pages);
    no_stacks(1);
}

/// The number of this thread: a receiver is told the sender.
pub fn whoami() -> u64 {
    let echo = thread(echo_number, stack_end(0), [0; 2], SPACE_SAME);
    let [_, _, _, number, ..] = message(echo, echo, 0x1000, [0; 3]);
    assert_eq!(must(Number::Wait, &[echo]), 0);
    number
}

extern "C" fn echo_number(_: u64, _: u64) -> ! {
    let [_, sender, ..] = message(NOBODY, ANYBODY, 0, [0; 3]);
    message(sender, NOBODY, 0x1000, [sender, 0, 0]);
    exit(0)
}

/// A thread that receives pages into its window, reports their contents, and maps them on if told to whom.
extern "C" fn holder(boss: u64, _: u64) -> ! {
    must(Number::Accept, &[flexpage(DATA, 15, READ | WRITE)]);
    let mut got = message(boss, ANYBODY, 0x3000, [0; 3]);
    loop {
        // Another holder's page: the boss is told.
        while got[1] != boss {
            let status = got[0];
            got = message(boss, ANYBODY, 0x4000, [status, 0, 0]);
        }
        let [status, _, tag, what, at, to] = got;
        let answer = match tag & !3 {
            0x10 => [status, load(what), 0],
            0x20 => {
                store(what, at);
                [status, 0, 0]
            }
            0x30 => [message(to, NOBODY, 0x100_0000 | what, [0, at, DATA])[0], 0, 0],
            0x40 => [must(Number::Flush, &[at, 1]), 0, 0],
            // A page came.
            _ => [status, 0, 0],
        };
        got = message(boss, ANYBODY, 0x3000, answer);
    }
}

/// Makes two holders in empty spaces, with this thread as pager.
fn holders(me: u64) -> [u64; 2] {
    let mut faults = 0;
    [1, 2].map(|number| {
        let holder = thread(holder, stack_end(number), [me, 0], SPACE_EMPTY);
        let [_, sender, tag, ..] = serve(AT, &mut faults);
        assert_eq!((sender, tag), (holder, 0x3000));
        holder
    })
}

/// Sends a request to a holder, and serves its faults meanwhile.
fn ask(holder: u64, tag: u64, words: [u64; 3]) -> [u64; 6] {
    let [status, ..] = message(holder, NOBODY, tag, words);
    assert_eq!(status, OK);
    serve(AT, &mut 0)
}

pub fn map_grant_flush() {
    stacks(3);
    map(AT, 4, SOURCE_ZEROS);
    store(AT, 11);
    let me = whoami();
    let [first, second] = holders(me);
    // Mapped from here to the first, from there to the second: the third sees stores of each.
    let got = ask(first, TAG_MAP | 0x1000, [0, flexpage(AT, 12, READ | WRITE), DATA]);
    assert_eq!((got[1], got[3]), (first, OK));
    assert_eq!(ask(first, 0x10, [DATA, 0, 0])[4], 11);
    let got = ask(first, 0x30, [TAG_MAP, flexpage(DATA, 12, READ | WRITE), second]);
    assert_eq!(got[3], OK);
    if got[1] == first {
        assert_eq!(serve(AT, &mut 0)[..4], [OK, second, 0x4000, OK]);
    } else {
        assert_eq!(serve(AT, &mut 0)[..2], [OK, first]);
    }
    ask(second, 0x20, [DATA, 22, 0]);
    assert_eq!((load(AT), ask(first, 0x10, [DATA, 0, 0])[4]), (22, 22));
    // A page that the first thread flushes is no longer mapped in the second. The second's next load
    // faults and gets the pager's page.
    ask(first, 0x40, [0, flexpage(DATA, 12, 0), 0]);
    store(AT, 33);
    assert_eq!(ask(second, 0x10, [DATA, 0, 0])[4], 33);
    // A page that is granted is the taker's; its root here takes it back all the same.
    ask(first, 0x10, [DATA + PAGE, 0, 0]);
    must(Number::Flush, &[flexpage(AT, 12, 0), 0]);
    ask(first, TAG_MAP | 0x1000, [0, flexpage(AT + 2 * PAGE, 12, READ | WRITE), DATA]);
    let got = ask(first, 0x30, [TAG_GRANT, flexpage(DATA, 12, READ | WRITE), second]);
    assert_eq!(got[3], OK);
    serve(AT, &mut 0);
    store(AT + 2 * PAGE, 44);
    assert_eq!(ask(second, 0x10, [DATA, 0, 0])[4], 44, "the second has it");
    store(AT, 55);
    assert_eq!(ask(first, 0x10, [DATA, 0, 0])[4], 55, "and the first has it no more: a fault brings the pager's");
    must(Number::Flush, &[flexpage(AT + 2 * PAGE, 12, 0), 0]);
    assert_eq!(ask(second, 0x10, [DATA, 0, 0])[4], 55);
    end(first);
    end(second);
    unmap(AT, 4);
    no_stacks(3);
}

pub fn overlap() {
    stacks(3);
    map(AT, 16, SOURCE_ZEROS);
    let me = whoami();
    let [first, second] = holders(me);
    let rights = READ | WRITE;
    assert_eq!(ask(first, TAG_MAP | 0x1000, [0, flexpage(AT, 12, rights), DATA])[3], OK);
    // The same page again has its rights; another one there is refused, and so is a larger one over it.
    assert_eq!(ask(first, TAG_MAP | 0x1000, [0, flexpage(AT, 12, rights), DATA])[3], OK);
    assert_eq!(ask(first, TAG_MAP | 0x1000, [0, flexpage(AT + PAGE, 12, rights), DATA])[3], OVERLAP);
    assert_eq!(ask(first, TAG_MAP | 0x1000, [0, flexpage(AT + 4 * PAGE, 14, rights), DATA])[3], OVERLAP);
    // A page larger than the window: the hot spot says which part of it comes.
    store(AT + 9 * PAGE, 66);
    assert_eq!(ask(second, TAG_MAP | 0x1000, [0, flexpage(AT, 16, rights), 9 * PAGE])[3], OK);
    assert_eq!(ask(second, 0x10, [DATA + PAGE, 0, 0])[4], 66);
    // No flexpage: not aligned, too small, too many pages, the kernel's addresses.
    for wrong in
        [AT + PAGE | 13 << 4 | 3, AT | 3, AT | 11 << 4 | 3, 1 << 31 | 31 << 4 | 3, 0xffff_8000_0000_0000 | 12 << 4 | 3]
    {
        let got = ask(second, TAG_MAP | 0x1000, [0, wrong, DATA]);
        assert!(got[3] != OK, "{wrong:#x}");
        assert!(simple(Number::Accept, &[wrong]).0 != OK || wrong >> 4 & 0x3f >= 12);
    }
    end(first);
    end(second);
    assert!(message(me, NOBODY, 1, [0; 3])[0] != OK, "nobody sends to itself");
    unmap(AT, 16);
    no_stacks(3);
}
