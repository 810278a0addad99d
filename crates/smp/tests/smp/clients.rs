//! Tests of the clients of a server in small spaces: the costs of the policies for slots.

use smp::{ClientsOutcome, ClientsPlan, ClientsPrices, run_clients};

fn plan(revoke: &str) -> ClientsPlan {
    ClientsPlan {
        clients: 32,
        ring: 4,
        large: 2,
        slot_bytes: 256 << 20,
        entries: 3,
        calls: 2000,
        stay: 10,
        revoke: revoke.to_owned(),
        schedule: "lru".to_owned(),
        seed: 1,
        prices: ClientsPrices { root: 480, segments: 9, line: 200, entry: 2 },
    }
}

/// There are eight slots for the 33 spaces that can be small.
#[test]
fn a_slot_costs_what_its_policy_says() {
    let run = |revoke| run_clients(&plan(revoke)).unwrap();
    let [purge, versioned, groups] = ["purge", "versioned", "groups"].map(run);
    assert!(purge.recycled > 100);
    assert_eq!(purge.roots_purged, purge.recycled * 35, "every root is looked through");
    assert_eq!(versioned.recycled, purge.recycled);
    assert!(versioned.roots_purged < purge.roots_purged / 4);
    assert_eq!((groups.recycled, groups.entries_purged), (0, 0));
    assert!(groups.root_loads > purge.root_loads, "a switch of groups loads a root");
    assert!(groups.root_loads < groups.switches / 10, "{groups:?}");
    assert!(purge.worst_cycles > versioned.worst_cycles);
    assert!(versioned.worst_cycles > groups.worst_cycles);
    assert_eq!(groups.switches, purge.switches);
}

/// If only one price is not 0, the number of all cycles is this price multiplied by the count of
/// the priced operation.
#[test]
fn each_price_is_paid_for_its_work() {
    let free = ClientsPrices { root: 0, segments: 0, line: 0, entry: 0 };
    let run = |prices| run_clients(&ClientsPlan { prices, ..plan("purge") }).unwrap();
    let paid = |run: &ClientsOutcome| (run.mean_cycles * run.switches as f64).round() as u64;
    let roots = run(ClientsPrices { root: 7, ..free });
    assert_eq!(paid(&roots), 7 * roots.root_loads);
    let lines = run(ClientsPrices { line: 7, ..free });
    // A slot of 256 MB has 64 entries of 4 bytes in a root, which are 4 lines.
    assert_eq!(paid(&lines), 7 * 4 * lines.roots_purged);
    assert_eq!(run(ClientsPrices { segments: 1, ..free }).worst_cycles, 1);
    assert_eq!(run(free).worst_cycles, 0);
}

#[test]
fn what_cannot_be_run_is_refused() {
    let wrong = |change: fn(&mut ClientsPlan)| {
        let mut plan = plan("purge");
        change(&mut plan);
        run_clients(&plan).unwrap_err()
    };
    assert!(wrong(|plan| plan.revoke = "never".into()).contains("choose from purge"));
    assert!(wrong(|plan| plan.schedule = "fair".into()).contains("choose from first-come"));
    assert!(wrong(|plan| plan.slot_bytes = 3 << 20).contains("a power of two"));
    assert!(wrong(|plan| plan.entries = 65).contains("it has 64"));
    assert!(wrong(|plan| plan.clients = 1).contains("at least two"));
}
