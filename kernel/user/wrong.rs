//! Tests of faulty programs, missing pagers, and lack of memory, which the kernel must survive.

use crate::{
    abi::{
        ANYBODY, BAD, EXECUTE, Fact, Failure, MEMORY, NO_THREAD, NOBODY, Number, OK, READ, SOURCE_FILE, SOURCE_SHARED,
        SOURCE_ZEROS, SPACE_EMPTY, SPACE_PAGED, SPACE_SAME, SPACE_WITHOUT_PAGER, STOPPED, WRITE,
    },
    memory::{AT, PAGE, map, unmap},
    messages::{echo, end, message, no_stacks, serve, stack_end, stacks, whoami},
    println,
    system::{any_call, books, exit, fact, fail, in_a_child, is_stopped, jump, load, must, simple, store, thread},
};

extern "C" fn nothing(_: u64, _: u64) -> ! {
    exit(1)
}

pub fn no_pager() {
    let lonely = thread(nothing, stack_end(0), [0; 2], SPACE_WITHOUT_PAGER);
    assert_eq!(must(Number::Wait, &[lonely]), STOPPED);
}

pub fn pager_that_ends() {
    // The child is the pager of a thread that faults; it ends without an answer.
    let code = in_a_child(|| thread(nothing, stack_end(0), [0; 2], SPACE_EMPTY));
    let orphan = code.expect("there is memory");
    assert_eq!(must(Number::Wait, &[orphan]), STOPPED);
}

#[cfg(target_arch = "x86_64")]
const KERNEL: [u64; 5] =
    [0xffff_8000_0000_0000, 0xffff_8000_0010_0000, 0xffff_ffff_8010_0000, 0x8000_0000_0000, u64::MAX - 7];
#[cfg(target_arch = "riscv64")]
const KERNEL: [u64; 5] =
    [0xffff_ffc0_0000_0000, 0xffff_ffc0_8000_0000, 0xffff_ffff_8020_0000, 0x40_0000_0000, u64::MAX - 7];

pub fn kernel_addresses() {
    for at in KERNEL {
        is_stopped("a load of the kernel's", || _ = load(at));
        is_stopped("a store to the kernel's", || store(at, 0));
        is_stopped("a jump to the kernel's", || jump(at));
    }
}

#[cfg(target_arch = "x86_64")]
pub fn instructions() {
    // SAFETY: each of these is one that user mode may not run.
    unsafe {
        is_stopped("hlt", || core::arch::asm!("hlt"));
        is_stopped("cli", || core::arch::asm!("cli"));
        is_stopped("a load of cr3", || core::arch::asm!("mov {}, cr3", out(reg) _));
        is_stopped("out", || core::arch::asm!("out 0xf4, al"));
        is_stopped("ud2", || core::arch::asm!("ud2"));
        is_stopped(
            "a division by zero",
            || core::arch::asm!("xor ecx, ecx; div ecx", out("eax") _, out("ecx") _, out("edx") _),
        );
        is_stopped("an interrupt of the kernel's", || core::arch::asm!("int 33"));
        is_stopped("a stack that is none", || core::arch::asm!("xor esp, esp; push rax"));
        is_stopped("syscall", || core::arch::asm!("syscall"));
        is_stopped("sysenter", || core::arch::asm!("sysenter"));
        is_stopped("a step", || core::arch::asm!("pushf; or dword ptr [rsp], 256; popf; nop; nop"));
        is_stopped("floating point", || core::arch::asm!("fninit"));
        is_stopped("an SSE register", || core::arch::asm!(".byte 0x0f, 0x57, 0xc0"));
        is_stopped("a write of an MSR", || core::arch::asm!("wrmsr"));
        is_stopped("a new GDT", || core::arch::asm!("lgdt [rsp]"));
        is_stopped("the kernel's code segment", || core::arch::asm!("push 8; push 0; retfq"));
    }
    last_address(0x7fff_ffff_f000, &[0xcd, 0x80]);
    last_address(0x7fff_ffff_f000, &[0x90, 0x90]);
}

/// The last bytes of user addresses are these instructions: behind them is no user address.
fn last_address(page: u64, code: &[u8]) {
    let is_over = in_a_child(|| {
        must(Number::Map, &[page, PAGE, READ | WRITE | EXECUTE, SOURCE_ZEROS]);
        let at = page + PAGE - code.len() as u64;
        // SAFETY: the page is this test's.
        unsafe { core::slice::from_raw_parts_mut(at as *mut u8, code.len()) }.copy_from_slice(code);
        let runs = thread_at(at);
        (0..200).for_each(|_| _ = must(Number::Yield, &[]));
        simple(Number::Kill, &[runs]);
        must(Number::Wait, &[runs])
    });
    assert_eq!(is_over, Some(STOPPED));
}

fn thread_at(pc: u64) -> u64 {
    must(Number::Spawn, &[pc, crate::abi::STACK_END - 0x8000, 0, 0, SPACE_SAME])
}
#[cfg(target_arch = "riscv64")]
pub fn instructions() {
    // SAFETY: each of these is one that user mode may not run.
    unsafe {
        is_stopped("sret", || core::arch::asm!("sret"));
        is_stopped("a load of satp", || core::arch::asm!("csrr {}, satp", out(reg) _));
        is_stopped("sfence", || core::arch::asm!("sfence.vma"));
        is_stopped("no instruction", || core::arch::asm!(".word 0"));
        is_stopped("ebreak", || core::arch::asm!("ebreak"));
        is_stopped("mret", || core::arch::asm!("mret"));
        is_stopped("floating point", || core::arch::asm!(".word 0xf2000053"));
        is_stopped("a write of sstatus", || core::arch::asm!("csrw sstatus, zero"));
        is_stopped("machine mode's register", || core::arch::asm!("csrr {}, mstatus", out(reg) _));
        is_stopped("a stack that is none", || core::arch::asm!("li sp, 0; sd a0, -8(sp)"));
    }
    last_address(0x3f_ffff_f000, &[0x73, 0, 0, 0]);
    last_address(0x3f_ffff_f000, &[1, 0, 1, 0]);
}

pub fn calls() {
    for number in (Number::ALL.len() as u64..Number::ALL.len() as u64 + 9).chain([u64::MAX, 1 << 40]) {
        assert_eq!(any_call(number, [0; 6])[0], BAD, "call {number}");
    }
    crate::attack::rounds(1, 3);
}

pub fn regions_end() {
    // Each hole splits a region in two: the kernel's own memory must not end by that.
    map(AT, 4096, SOURCE_ZEROS);
    let holes = (0..512).filter(|hole| simple(Number::Unmap, &[AT + (2 * hole + 1) * PAGE, PAGE]).0 == OK).count();
    let protected = (0..512).filter(|page| simple(Number::Protect, &[AT + 2 * page * PAGE, PAGE, 1]).0 == OK).count();
    assert!(holes < 200 && protected == 0, "{holes} holes, {protected} pages");
    unmap(AT, 4096);
}

extern "C" fn for_ever(_: u64, _: u64) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

extern "C" fn says(boss: u64, tag: u64) -> ! {
    message(boss, NOBODY, tag, [0; 3]);
    exit(0)
}

pub fn kill() {
    stacks(2);
    // One that waits to send its message: it is not received any more.
    let me = whoami();
    let silenced = thread(says, stack_end(0), [me, 0x5000], SPACE_SAME);
    (0..20).for_each(|_| _ = must(Number::Yield, &[]));
    end(silenced);
    let heard = thread(says, stack_end(0), [me, 0x6000], SPACE_SAME);
    assert_eq!(message(NOBODY, ANYBODY, 0, [0; 3])[..3], [OK, heard, 0x6000]);
    assert_eq!(must(Number::Wait, &[heard]), 0);
    // One that never calls, and one that waits for a message.
    let running = thread(for_ever, stack_end(0), [0; 2], SPACE_SAME);
    let waiting = thread(echo, stack_end(1), [0; 2], SPACE_SAME);
    (0..20).for_each(|_| _ = must(Number::Yield, &[]));
    for thread in [running, waiting] {
        must(Number::Kill, &[thread]);
        assert_eq!(must(Number::Wait, &[thread]), STOPPED);
    }
    assert_eq!(simple(Number::Kill, &[running]).0, NO_THREAD);
    no_stacks(2);
}

/// Repeats an operation, each time with another of its allocations of frames made to fail, until it has run with
/// none failing.
fn each_allocation(what: &str, mut operation: impl FnMut() -> bool) {
    for number in 1..40 {
        fail(Failure::Frame, number);
        operation();
        fail(Failure::Frame, 1 << 60);
        books(format_args!("as allocation {number} of {what} failed"));
    }
    assert!(operation(), "{what}, with memory");
}

pub fn memory_ends() {
    stacks(1);
    let free = fact(Fact::FreeFrames);
    each_allocation("a region and its pages", || {
        map(AT, 4, SOURCE_ZEROS);
        (0..4).for_each(|page| store(AT + page * PAGE, page));
        unmap(AT, 4);
        true
    });
    each_allocation("rights and contents that change", || {
        map(AT, 4, SOURCE_ZEROS);
        (0..4).for_each(|page| store(AT + page * PAGE, page));
        let done =
            [(Number::Protect, AT), (Number::Discard, AT + PAGE)].map(|(call, at)| simple(call, &[at, PAGE, READ]).0);
        assert!(done.iter().all(|status| matches!(*status, OK | MEMORY)) && load(AT) == 0);
        unmap(AT, 4);
        done == [OK; 2]
    });
    each_allocation("a fork and its copies", || {
        map(AT, 2, SOURCE_ZEROS);
        store(AT, 1);
        let code = in_a_child(|| {
            store(AT, 2);
            store(AT + PAGE, 2);
            load(AT) + load(AT + PAGE)
        });
        let is_there = load(AT) == 1;
        unmap(AT, 2);
        assert!(is_there && (code == Some(4) || code.is_none()), "{code:?}");
        code.is_some()
    });
    for (what, space) in [("a thread in an empty space", SPACE_WITHOUT_PAGER), ("the program again", SPACE_PAGED)] {
        each_allocation(what, || {
            match simple(Number::Spawn, &[nothing as *const () as u64, stack_end(0), 0, 0, space]) {
                (OK, other) => (must(Number::Wait, &[other]) == STOPPED) == (space == SPACE_WITHOUT_PAGER),
                (status, _) => {
                    assert_eq!(status, MEMORY);
                    false
                }
            }
        });
    }
    each_allocation("pages of a file", || {
        map(AT, 3, SOURCE_FILE);
        (0..3).for_each(|page| store(AT + page * PAGE, load(AT + page * PAGE)));
        unmap(AT, 3);
        true
    });
    let me = whoami();
    each_allocation("a page that is mapped on", || {
        let (status, client) = simple(Number::Spawn, &[telling as *const () as u64, stack_end(0), me, 0, SPACE_EMPTY]);
        if status != OK {
            assert_eq!(status, MEMORY);
            return false;
        }
        let got = serve(AT, &mut 0);
        assert_eq!(got[1], client);
        end(client);
        true
    });
    let now = fact(Fact::FreeFrames);
    assert!(now + 4 >= free, "{now} frames of {free} are free again");
    no_stacks(1);
}

extern "C" fn telling(boss: u64, _: u64) -> ! {
    loop {
        message(boss, boss, 0x2000, [0; 3]);
    }
}

/// The kernel's own memory ends in each operation: a refused call, or a stopped thread.
pub fn heap_ends() {
    stacks(1);
    let far = nothing as *const () as u64;
    for number in 1..16 {
        let code = in_a_child(|| {
            fail(Failure::Heap, number);
            let (mapped, _) = simple(Number::Map, &[AT, 2 * PAGE, READ | WRITE, SOURCE_ZEROS]);
            if mapped == OK {
                store(AT, 1);
            }
            let (protected, _) = simple(Number::Protect, &[AT, PAGE, READ]);
            let (forked, child) = simple(Number::Fork, &[]);
            if (forked, child) == (OK, 0) {
                exit(0);
            }
            let (spawned, _) = simple(Number::Spawn, &[far, stack_end(0), 0, 0, SPACE_WITHOUT_PAGER]);
            let [sent, ..] = message(1 << 50, 1 << 50, 1, [0; 3]);
            // The parent needs what is left.
            fail(Failure::Heap, 0);
            [mapped, protected, forked, spawned, sent].iter().filter(|status| **status == MEMORY).count() as u64
        });
        fail(Failure::Heap, 0);
        assert!(matches!(code, Some(0 | 1 | STOPPED)), "question {number}: {code:x?}");
        books(format_args!("as question {number} for the kernel's own memory failed"));
    }
    no_stacks(1);
}

pub fn all_memory() {
    // More than memory and swap have: the child is stopped, and all is free again.
    let code = in_a_child(|| {
        let pages = fact(Fact::FreeFrames) + 4000;
        map(AT, pages, SOURCE_ZEROS);
        (0..pages).for_each(|page| store(AT + page * PAGE, page));
        1
    });
    assert_eq!(code, Some(STOPPED));
    assert_eq!(fact(Fact::Swapped), 0);
    println!("memory and swap ended, and are free again");
}

pub fn threads() {
    // Threads end before memory does, and then spaces.
    stacks(1);
    let mut last = 0;
    let mut count = 0;
    while let (OK, waiting) = simple(Number::Spawn, &[echo as *const () as u64, stack_end(0), 0, 0, SPACE_SAME]) {
        must(Number::Kill, &[waiting]);
        last = waiting;
        count += 1;
        if count == 300 {
            break;
        }
    }
    assert_eq!(count, 300, "those that have ended make room");
    assert_eq!(must(Number::Wait, &[last]), STOPPED);
    // Spaces end before memory does. The child tells by a page that both have.
    map(AT, 1, SOURCE_SHARED);
    let code = in_a_child(|| {
        let mut count = 0;
        // They wait for messages.
        let far = echo as *const () as u64;
        while let (OK, thread) = simple(Number::Spawn, &[far, stack_end(0), 0, 0, SPACE_PAGED]) {
            store(AT + count * 8, thread);
            count += 1;
        }
        count
    });
    let count = code.expect("there is memory for a child");
    assert!(count > 4, "{count} spaces");
    for number in 0..count {
        must(Number::Kill, &[load(AT + number * 8)]);
    }
    unmap(AT, 1);
    no_stacks(1);
}
