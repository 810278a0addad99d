//! Clients that call a server from small spaces, with large programs between their calls.
//!
//! There are more clients than slots, so that slots change hands; and several roots, so that a root which is not
//! loaded keeps copies of a space that has lost its slot. The groups are found from who is switched to after whom.

use smp::{ClientsPlan, ClientsPrices};

use super::Line;

/// All lines of small spaces: each way to revoke copies, under each schedule where slots change hands. A group has
/// no more members than there are slots.
pub(super) fn lines() -> Vec<Line> {
    let mut all = Vec::new();
    for (revoke, schedules) in [
        ("purge", &["first-come", "lru", "frequent"][..]),
        ("versioned", &["first-come", "lru", "frequent"]),
        ("groups", &["lru"]),
    ] {
        all.extend(schedules.iter().map(|schedule| Line::clients(plan(revoke, schedule))));
    }
    all
}

fn plan(revoke: &str, schedule: &str) -> ClientsPlan {
    ClientsPlan {
        clients: 24,
        ring: 4,
        large: 4,
        slot_bytes: 256 << 20,
        entries: 3,
        calls: 3000,
        stay: 20,
        revoke: revoke.to_owned(),
        schedule: schedule.to_owned(),
        seed: 1,
        prices: ClientsPrices { root: 480, segments: 9, line: 200, entry: 2 },
    }
}
