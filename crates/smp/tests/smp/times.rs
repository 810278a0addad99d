//! Tests which rounds on a host are valid, and which of them is shown.

use smp::times::{Times, middle};

#[test]
fn a_round_in_which_one_of_two_times_was_held_up_does_not_count() {
    // One thread takes 100 ns per operation. Two threads take 105 ns if they share nothing, and 130
    // ns on one layer.
    let even = Times::new(2, [100.0, 105.0, 130.0], [102.0, 103.0, 128.0]);
    assert!(even.count());
    assert!((even.scaling() - 2.0 * 101.0 / 129.0).abs() < 1e-9);
    for held_up in 0..3 {
        let mut back = [102.0, 103.0, 128.0];
        back[held_up] *= 1.3;
        assert!(!Times::new(2, [100.0, 105.0, 130.0], back).count(), "{held_up}");
    }
}

#[test]
fn a_round_whose_control_does_not_scale_does_not_count() {
    for (control, counts) in [(118.0, false), (117.0, true), (91.0, true), (90.0, false)] {
        let times = [100.0, control, 130.0];
        assert_eq!(Times::new(2, times, times).count(), counts, "{control}");
    }
    let alone = [100.0, 100.0, 100.0];
    assert!(Times::new(1, alone, alone).count());
}

#[test]
fn what_is_shown_is_of_one_round() {
    let round = |shared| Times::new(2, [100.0, 105.0, shared], [100.0, 105.0, shared]);
    let shown = middle([120.0, 200.0, 150.0].map(round).into_iter(), Times::scaling);
    assert_eq!((shown.shared, shown.scaling()), (150.0, 200.0 / 150.0));
}
