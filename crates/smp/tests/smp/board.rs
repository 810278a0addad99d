//! Tests of the frames that processors allocate.

use addr::{Frames as _, PageSize};
use smp::{Board, Cpu, Shootdowns};

#[test]
fn frames_of_all_sizes_lie_apart() {
    let board = Board::new(1, Shootdowns::Interrupts, 64);
    let mut cpu = Cpu::new(&board, 0);
    let mut end = 0;
    for shift in [12, 17, 12, 12, 14, 21, 12, 13, 17, 12] {
        let size = PageSize::from_shift(shift).expect("a page size");
        let frame = cpu.allocate(size).expect("frames are left");
        assert_eq!(frame.offset_in(size), 0, "{frame}, {size}");
        assert!(frame.get() >= end, "{frame} lies in a frame that ends at {end:#x}");
        end = frame.get() + size.bytes();
    }
}
