//! Tests of the properties that only free lists per page size have (G98 sections 6.4.1 and 6.4.4).

use physmem::{Allocator, FrameId, Physmem, Request, SizeListError, SizeLists, State};

use crate::{K4, irix_sizes, memory, size};

fn lists(frames: u64) -> Physmem<SizeLists> {
    memory(0, frames, |frames| SizeLists::new(frames, K4, &irix_sizes()).unwrap())
}

fn free(memory: &Physmem<SizeLists>) -> [u64; 4] {
    [0, 2, 4, 6].map(|order| memory.allocator().free_blocks(order))
}

#[test]
fn a_page_of_the_next_higher_size_is_split() {
    let mut memory = lists(64);
    assert_eq!(free(&memory), [0, 0, 0, 1]);
    memory.allocate(&Request::new(0, State::Movable)).unwrap();
    assert_eq!(free(&memory), [3, 3, 3, 0], "256K into three of 64K, three of 16K, three of 4K");
    memory.allocate(&Request::new(2, State::Movable)).unwrap();
    assert_eq!(free(&memory), [3, 2, 3, 0], "the list of the size itself comes first");
}

#[test]
fn a_size_without_a_list_is_cut_from_the_next_that_has_one() {
    let mut memory = lists(64);
    let first = memory.allocate(&Request::new(3, State::Table)).unwrap();
    assert_eq!(free(&memory), [0, 2, 3, 0]);
    memory.try_free(first, 3).unwrap();
    assert_eq!(free(&memory), [0, 0, 0, 1]);
}

#[test]
fn joining_stops_at_the_high_watermark_and_goes_on_when_it_is_raised() {
    let mut memory = lists(64);
    let pages: Vec<FrameId> =
        (0..64).map(|_| memory.allocate(&Request::new(0, State::Movable)).unwrap()).collect();
    for (order, high) in [(2, 2), (4, 1), (6, 0)] {
        assert!(memory.allocator_mut().0.set_high_watermark(order, high));
    }
    assert!(!memory.allocator_mut().0.set_high_watermark(3, 1), "there is no list for 32K");
    for page in pages {
        memory.try_free(page, 0).unwrap();
    }
    let [base, k16, k64, k256] = free(&memory);
    assert_eq!((k16, k64, k256), (2, 1, 0));
    assert_eq!(base, 64 - 2 * 4 - 16);
    let (lists, table) = memory.allocator_mut();
    assert_eq!(lists.wanted(2), 0);
    lists.set_high_watermark(6, 1);
    assert_eq!(lists.wanted(6), 1);
    assert!(lists.join(table, FrameId(0), 6));
    assert_eq!(free(&memory), [0, 0, 0, 1]);
}

#[test]
fn watermarks_of_zero_leave_a_free_list_of_base_pages() {
    let mut memory = lists(64);
    let all = memory.allocate(&Request::new(6, State::Movable)).unwrap();
    for order in [2, 4, 6] {
        memory.allocator_mut().0.set_high_watermark(order, 0);
    }
    memory.try_free(all, 6).unwrap();
    assert_eq!(free(&memory), [64, 0, 0, 0]);
    assert!(memory.allocate(&Request::new(2, State::Movable)).is_err());
}

#[test]
fn the_bitmap_tells_how_many_migrations_a_page_costs() {
    let mut memory = lists(64);
    for frame in [0, 5, 6, 63] {
        assert!(memory.take(FrameId(frame), 0, State::Movable));
    }
    let lists = memory.allocator();
    assert_eq!(lists.frames_in_use(FrameId(0), 4, u64::MAX), 3);
    assert_eq!(lists.frames_in_use(FrameId(16), 4, u64::MAX), 0);
    assert_eq!(lists.frames_in_use(FrameId(0), 6, u64::MAX), 4);
}

#[test]
fn kernel_and_movable_pages_part_under_migratable_ordering() {
    // Memory has four chunks of 16M; a tenth of the pages belongs to the kernel.
    let chunk_frames = 4096;
    let chunks_with_kernel_pages = |ordered: bool| {
        let mut memory = memory(0, 4 * chunk_frames, |frames| {
            let lists = SizeLists::new(frames, K4, &irix_sizes()).unwrap();
            if ordered { lists.ordered() } else { lists }
        });
        let mut chunks = [0; 4];
        for page in 0..chunk_frames * 2 {
            let state = if page % 10 == 0 { State::Kernel } else { State::Movable };
            let frame = memory.allocate(&Request::new(0, state)).unwrap();
            if state == State::Kernel {
                chunks[frame.0 as usize / chunk_frames as usize] += 1;
            }
        }
        chunks.iter().filter(|&&pages| pages > 0).count()
    };
    assert_eq!(chunks_with_kernel_pages(true), 1);
    assert_eq!(chunks_with_kernel_pages(false), 2);
}

#[test]
fn impossible_sizes_are_refused() {
    for sizes in [vec![], vec![size(1)], vec![K4, size(4), size(2)], vec![K4, K4]] {
        assert_eq!(SizeLists::new(0..8, K4, &sizes).err(), Some(SizeListError::Sizes));
    }
}
