//! The HAT layer and the memory manager on several processors, in virtual time: each load under each locking
//! scheme.

use hat::ContextLimit;
use smp::{Costs, Load, LockKind, Plan, SCHEMES, Shootdowns, TABLES};

use super::Line;

/// All lines for layers.
pub(super) fn lines() -> Vec<Line> {
    let mut all = Vec::new();
    for (name, load) in Load::ALL {
        // It plays whole programs, which takes longer than all others together.
        if load == Load::Kenbus {
            continue;
        }
        for scheme in SCHEMES {
            for hat_only in [false, true] {
                if !hat_only || load.has_layer_alone() {
                    all.push(Line::layers(plan(name, scheme, hat_only)));
                }
            }
        }
    }
    let by_default = plan("fork", "global", false).table;
    for table in TABLES {
        // These lines are among those above.
        if table == by_default {
            continue;
        }
        for scheme in ["global", "embedded"] {
            all.push(Line::layers(Plan { table: table.to_owned(), ..plan("fork", scheme, false) }));
        }
    }
    let limit = Some(ContextLimit { contexts: 12, threshold: 3 });
    for scheme in SCHEMES {
        for load in ["fork", "exec", "fault"] {
            let plan = plan(load, scheme, false);
            all.push(Line::layers(Plan { contexts: limit, virtual_caches: true, ..plan.clone() }));
            // So few that tables are stolen.
            let pool_bytes = Some(160 << 10);
            all.push(Line::layers(Plan { pool_bytes, lock_per_list: true, ..plan }));
        }
    }
    all
}

fn plan(load: &str, scheme: &str, hat_only: bool) -> Plan {
    Plan {
        cpus: 4,
        scheme: scheme.to_owned(),
        load: load.to_owned(),
        skeleton: None,
        table: "x86-64".to_owned(),
        hat_only,
        pool_bytes: None,
        lock_per_list: false,
        shootdowns: Shootdowns::Interrupts,
        contexts: None,
        virtual_caches: false,
        kind: LockKind::Adaptive,
        costs: Costs::SPARCCENTER_2000,
        seed: 1,
    }
}
