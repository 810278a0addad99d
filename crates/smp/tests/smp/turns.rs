//! Tests of threads that take turns, with which the prices of cache lines are measured.

use smp::{Costs, LockKind, Order, Plan, SCHEMES, Shootdowns, run_in};

#[test]
fn who_takes_turns_waits_for_nobody_and_finds_each_lock_elsewhere() {
    for scheme in SCHEMES {
        let plan = Plan {
            cpus: 2,
            scheme: scheme.to_owned(),
            load: "fault".to_owned(),
            skeleton: None,
            table: "x86-64".to_owned(),
            hat_only: true,
            pool_bytes: None,
            lock_per_list: false,
            shootdowns: Shootdowns::Broadcast,
            contexts: None,
            virtual_caches: false,
            kind: LockKind::Barging,
            costs: Costs::FREE,
            seed: 1,
        };
        let of = run_in(Order::Turns, None, &plan).unwrap().0;
        assert!(of.locks.values().all(|share| share.counts.contended == 0), "{scheme}");
        if scheme == "global" {
            // The first lock of each operation is transferred, except in the very first operation.
            assert_eq!(of.locks["hat"].counts.transfers, of.operations - 1);
        }
    }
}
