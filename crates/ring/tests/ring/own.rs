//! The address ranges of the engine's memory.

use ring::{OWN_RANGES_MAX, own_add, own_holds};

/// Beside a set of all numbers that are in some range.
#[test]
fn ranges_are_the_union_of_those_that_were_added() {
    let mut state = 59u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    for round in 0..500 {
        let mut ranges = [[0; 2]; OWN_RANGES_MAX];
        let mut model = [false; 256];
        for _ in 0..40 {
            let start = 1 + random(240);
            let end = start + 1 + random(12);
            if own_add(&mut ranges, [start, end]) {
                model[start as usize..end as usize].fill(true);
            } else {
                assert!(ranges.iter().all(|range| range[1] != 0), "round {round}");
            }
        }
        for (address, &is_in) in model.iter().enumerate() {
            assert_eq!(own_holds(&ranges, address as u64), is_in, "round {round}: {address}");
        }
    }
}
