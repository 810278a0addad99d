//! The local APIC: interrupts between processors, a timer, and the start of processors (SDM volume 3A, chapter 11).

use core::sync::atomic::{AtomicU32, Ordering};

use super::{DIRECT, VECTOR_POKE, VECTOR_TIMER};
use crate::PROCESSORS_MAX;

/// The physical address of its registers.
pub(super) const REGISTERS: u64 = 0xfee0_0000;

const ID: u64 = 0x20;
const END: u64 = 0xb0;
const SPURIOUS: u64 = 0xf0;
const COMMAND: u64 = 0x300;
const COMMAND_TO: u64 = 0x310;
const TIMER: u64 = 0x320;
const TIMER_START: u64 = 0x380;
const TIMER_DIVIDE: u64 = 0x3e0;

const PERIODIC: u32 = 1 << 17;
/// The length of a thread's turn in timer ticks: QEMU's timer has 1 GHz, divided by 16.
const TURN: u32 = 1 << 18;
/// The page number of the code that a started processor executes first.
const START_PAGE: u64 = 8;
const DELIVER_NMI: u32 = 4 << 8;
const DELIVER_INIT: u32 = 5 << 8;
const DELIVER_START: u32 = 6 << 8;
const ASSERT: u32 = 1 << 14;
const ALL_OTHERS: u32 = 3 << 18;

unsafe extern "C" {
    static ap_start: u8;
    static ap_end: u8;
}

fn read(register: u64) -> u32 {
    // SAFETY: a register of this processor's APIC, which the kernel's half maps as a device.
    unsafe { ((DIRECT + REGISTERS + register) as *const u32).read_volatile() }
}

fn write(register: u64, value: u32) {
    // SAFETY: the same; what is written changes no memory.
    unsafe { ((DIRECT + REGISTERS + register) as *mut u32).write_volatile(value) };
}

/// The kernel's number of each processor, by the number of its APIC.
static NUMBERS: [AtomicU32; 256] = [const { AtomicU32::new(0) }; 256];
/// A bit for each processor that has stopped.
static PARKED: AtomicU32 = AtomicU32::new(0);
static IDS: [AtomicU32; PROCESSORS_MAX] = [const { AtomicU32::new(0) }; PROCESSORS_MAX];

pub(super) fn this() -> usize {
    NUMBERS[(read(ID) >> 24) as usize].load(Ordering::Relaxed) as usize
}

/// Makes this processor `number` from here on.
pub fn name(number: usize) {
    let id = read(ID) >> 24;
    NUMBERS[id as usize].store(number as u32, Ordering::Relaxed);
    IDS[number].store(id, Ordering::Relaxed);
}

/// Enables the APIC, and makes the timer interrupt user mode after each turn.
pub(super) fn begin() {
    write(SPURIOUS, 0x1ff);
    write(TIMER_DIVIDE, 3);
    write(TIMER, PERIODIC | VECTOR_TIMER as u32);
    write(TIMER_START, TURN);
}

/// Acknowledges an interrupt.
pub(super) fn end() {
    write(END, 0);
}

fn command(to: usize, what: u32) {
    write(COMMAND_TO, IDS[to].load(Ordering::Relaxed) << 24);
    write(COMMAND, what | ASSERT);
}

/// Interrupts another processor.
pub fn interrupt(to: usize) {
    command(to, VECTOR_POKE as u32);
}

/// Stops another processor for good, whatever it does: it handles this interrupt even with
/// interrupts disabled. Returns when it has stopped, or after a second.
pub fn stop(to: usize) {
    command(to, DELIVER_NMI);
    let begun = super::ticks();
    while PARKED.load(Ordering::Acquire) >> to & 1 == 0 && super::ticks() - begun < super::ticks_per_second() {
        core::hint::spin_loop();
    }
}

/// Says that this processor has stopped.
pub(super) fn parked() {
    PARKED.fetch_or(1 << this(), Ordering::AcqRel);
}

/// Starts the other processors, which enter `crate::begin_other` one by one.
pub fn start_others(_count: usize) {
    let (from, end) = (&raw const ap_start, &raw const ap_end);
    let bytes = end as usize - from as usize;
    // SAFETY: the code of boot.s, at its physical address, goes to a page of low memory that nobody uses.
    unsafe {
        let from = (from as u64 + DIRECT) as *const u8;
        core::ptr::copy_nonoverlapping(from, (DIRECT + START_PAGE * 4096) as *mut u8, bytes);
    }
    write(COMMAND, ALL_OTHERS | ASSERT | DELIVER_INIT);
    (0..100_000).for_each(|_| core::hint::spin_loop());
    for _ in 0..2 {
        write(COMMAND, ALL_OTHERS | ASSERT | DELIVER_START | START_PAGE as u32);
        (0..100_000).for_each(|_| core::hint::spin_loop());
    }
}
