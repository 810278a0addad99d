//! Compares virtual time with theory, and runs loads under every scheme.

use hat::{
    ContextLimit,
    locking::{Class, Locks, Mutex, Site},
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use smp::{
    Baton, Costs, HostPlan, Load, LockKind, Plan, SCHEMES, Shootdowns, TABLES, Timed, cpu, now,
    run, run_on_host, spend,
};

fn plan(scheme: &str, load: &str, cpus: usize) -> Plan {
    Plan {
        cpus,
        scheme: scheme.to_owned(),
        load: load.to_owned(),
        skeleton: None,
        table: "x86-64".to_owned(),
        hat_only: false,
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

fn host_plan(scheme: &str, threads: usize) -> HostPlan {
    HostPlan {
        threads,
        scheme: scheme.to_owned(),
        load: "fault".to_owned(),
        skeleton: None,
        table: "x86-64".to_owned(),
        hat_only: false,
        rounds: 1,
        seed: 1,
    }
}

/// The loads that take little time.
fn short() -> impl Iterator<Item = (&'static str, Load)> {
    Load::ALL.into_iter().filter(|(_, load)| *load != Load::Kenbus)
}

/// The possible values of `hat_only`: false, and true if the load can call the HAT layer alone.
fn ways(load: Load) -> impl Iterator<Item = bool> {
    [false, true].into_iter().filter(move |hat_only| !hat_only || load.has_layer_alone())
}

/// A lock with constant hold times and Poisson arrivals is a queue M/D/1: at a load of r, the mean
/// wait is r / 2 (1 - r) hold times. By Little's law, the mean number of waiting processors is the
/// number of arrivals per cycle multiplied by the mean wait. The test measures this mean number at
/// each change, and takes the mean wait from the lock's own counts.
#[test]
fn one_lock_waits_as_the_theory_of_queues_says() {
    const CPUS: usize = 48;
    const ARRIVALS: usize = 24_000;
    const HOLD: u64 = 1000;
    let (load, seed) = (0.4, 7);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut at = 0.0;
    let arrivals: Vec<u64> = (0..ARRIVALS)
        .map(|_| {
            at -= (1.0 - random.random::<f64>()).ln() * HOLD as f64 / load;
            at as u64
        })
        .collect();
    let lock = <Timed as Locks>::Mutex::new(Class::Hat, ());
    let baton = Baton::new(CPUS, Costs::FREE, LockKind::Spin, None);
    // The times at which a processor began or ended waiting, each with the change in the number of
    // waiting processors.
    let changes = std::sync::Mutex::new(Vec::new());
    let finished = baton.run(|cpu| {
        for at in arrivals.iter().skip(cpu).step_by(CPUS) {
            spend(at.saturating_sub(now()));
            let asked = now();
            lock.with(Site::Look, |()| {
                changes.lock().unwrap().extend([(asked, 1), (now(), -1)]);
                spend(HOLD);
            });
        }
    });
    let finished = finished.unwrap();
    let counts = &finished.locks[&Class::Hat];
    assert_eq!(counts.acquisitions, ARRIVALS as u64);
    assert_eq!(counts.holds.mean(), HOLD as f64);
    let wait = counts.waits.cycles as f64 / ARRIVALS as f64;
    // The load is computed from the actual arrivals, so that their randomness does not matter.
    let cycles = *finished.clocks.iter().max().unwrap() as f64;
    let load = ARRIVALS as f64 * HOLD as f64 / cycles;
    let theory = load / (2.0 * (1.0 - load)) * HOLD as f64;
    println!("mean wait {wait:.1}, theory {theory:.1} at a load of {load:.3}, seed {seed}");
    assert!((wait / theory - 1.0).abs() < 0.02, "{wait} for {theory}");
    let mut changes = changes.into_inner().unwrap();
    changes.sort_unstable();
    let (mut waiting, mut since, mut sum) = (0, 0, 0);
    for (at, more) in changes {
        sum += (at - since) as i64 * waiting;
        (waiting, since) = (waiting + more, at);
    }
    let mean_number = sum as f64 / cycles;
    let law = ARRIVALS as f64 / cycles * wait;
    println!("{mean_number:.4} wait, {law:.4} by Little's law");
    assert!((mean_number / law - 1.0).abs() < 1e-9, "{mean_number} for {law}");
    assert_eq!(finished.time.wait_cycles, counts.waits.cycles);
}

#[test]
fn every_load_runs_under_every_scheme_and_does_the_same_twice() {
    for (place, (load, known)) in short().enumerate() {
        for hat_only in ways(known) {
            for scheme in SCHEMES {
                let plan = Plan { hat_only, ..plan(scheme, load, 3) };
                let one = run(&plan).unwrap_or_else(|error| panic!("{scheme}, {load}: {error}"));
                let calls = one.locks.keys().any(|class| class.starts_with("vm_"));
                assert_eq!(calls, !hat_only, "{scheme}, {load}: {:?}", one.locks.keys());
                assert_eq!(one.time.sum(), 3 * one.cycles, "{scheme}, {load}: {:?}", one.time);
                if scheme == SCHEMES[place % SCHEMES.len()] {
                    assert_eq!(Ok(one), run(&plan), "{scheme}, {load}");
                }
            }
        }
    }
}

/// The memory manager's locks do not depend on the locking scheme of the HAT layer.
#[test]
fn what_is_above_the_layer_takes_its_locks_equally_often_under_every_scheme() {
    for (load, _) in short() {
        let above = |scheme| {
            let locks = run(&plan(scheme, load, 1)).unwrap().locks.into_iter();
            let above = locks.filter(|(class, _)| class.starts_with("vm_"));
            above.map(|(class, share)| (class, share.counts.acquisitions)).collect::<Vec<_>>()
        };
        let first = above(SCHEMES[0]);
        assert!(first.iter().any(|(class, _)| *class == "vm_space"), "{load}: {first:?}");
        SCHEMES[1..].iter().for_each(|scheme| assert_eq!(above(scheme), first, "{load}"));
    }
}

#[test]
fn locks_are_taken_equally_often_however_long_they_wait() {
    let count = |kind| {
        let outcome = run(&Plan { kind, ..plan("monitor", "fault", 1) }).unwrap();
        outcome.acquisitions_per_operation
    };
    assert_eq!(count(LockKind::Spin), count(LockKind::HandOver));
}

#[test]
fn processors_that_share_nothing_scale() {
    for table in TABLES {
        let throughput = |cpus| {
            let table = table.to_owned();
            let plan = Plan { table, hat_only: true, ..plan("embedded", "brk", cpus) };
            run(&plan).unwrap().throughput
        };
        let scaled = throughput(8) / throughput(1);
        if table.ends_with("shared") {
            assert!(scaled < 6.0, "{table}: one table is one lock, and still {scaled}");
        } else {
            assert!(scaled > 4.0, "{table}: {scaled}");
        }
    }
}

#[test]
fn a_small_pool_means_steals_and_the_same_pages() {
    let plan = Plan { pool_bytes: Some(14 * 4096), ..plan("monitor", "fault", 4) };
    let outcome = run(&plan).unwrap();
    assert!(outcome.steals > 0);
    assert!(outcome.table_bytes_peak <= 14 * 4096);
}

/// If all page tables are in use at the same time, no page has to be evicted to make room for a
/// table.
#[test]
fn a_lack_of_table_memory_is_no_lack_of_frames() {
    for cpus in 2..=5 {
        let table = "sparc-reference".to_owned();
        let plan =
            |pool_bytes| Plan { table: table.clone(), pool_bytes, ..plan("monitor", "fork", cpus) };
        let [small, large] = [Some(128 << 10), None].map(|bytes| run(&plan(bytes)).unwrap());
        assert!(cpus < 3 || small.steals > 0);
        // The locks of the lists from which pages are evicted, and of the files to which pages
        // belong.
        for class in ["vm_pages", "vm_files", "vm_object"] {
            let taken =
                |of: &smp::HatOutcome| of.locks.get(class).map_or(0, |of| of.counts.acquisitions);
            assert_eq!(taken(&small), taken(&large), "{class} on {cpus}");
        }
    }
}

/// One thread acquires each lock equally often in virtual time and on this host, because the same
/// code runs in both cases.
#[test]
fn one_thread_takes_each_lock_equally_often_on_the_host() {
    for (place, (load, known)) in short().enumerate() {
        for hat_only in ways(known) {
            // One load runs under every scheme, and every other load under one scheme.
            let own = [SCHEMES[place % SCHEMES.len()]];
            let schemes = if load == "fault" { &SCHEMES[..] } else { &own[..] };
            for scheme in schemes {
                let model = run(&Plan { hat_only, ..plan(scheme, load, 1) }).unwrap();
                let model = model.locks.iter();
                let model: Vec<_> =
                    model.map(|(class, share)| (*class, share.counts.acquisitions)).collect();
                let host = HostPlan { hat_only, load: load.to_owned(), ..host_plan(scheme, 1) };
                let host: Vec<_> = run_on_host(&host).unwrap().acquisitions.into_iter().collect();
                assert_eq!(host, model, "{scheme}, {load}");
            }
        }
    }
}

/// K94 section 6.2: if there are few contexts, spaces lose them to other spaces. If there are many
/// contexts, there is never a lack of them, and below the threshold they are not kept in a list.
#[test]
fn contexts_are_lost_where_they_are_few_and_unlisted_where_they_are_many() {
    for (scheme, hat_only) in [("global", false), ("monitor", true), ("embedded", false)] {
        let with = |contexts, threshold| {
            let contexts = Some(ContextLimit { contexts, threshold });
            let outcome = run(&Plan { contexts, hat_only, ..plan(scheme, "fork", 3) }).unwrap();
            outcome.contexts.unwrap()
        };
        let few = with(4, 0);
        assert!(few.stolen > 0 && few.unlisted == 0, "{scheme}: {few:?}");
        let many = with(65_536, 32_768);
        assert_eq!((many.stolen, many.listed), (0, 0), "{scheme}: {many:?}");
        let kept = with(65_536, 0);
        assert_eq!((kept.listed, kept.unlisted), (many.unlisted, 0), "{scheme}: {kept:?}");
    }
    let contexts = Some(ContextLimit { contexts: 3, threshold: 0 });
    let few = run(&Plan { contexts, ..plan("global", "fork", 3) }).unwrap_err();
    assert!(few.contains("more contexts than the 3 processors"), "{few}");
}

/// K94 section 3.2: unmapped pages are flushed from caches that are indexed by virtual addresses.
#[test]
fn virtual_caches_are_flushed_and_that_is_counted() {
    let with =
        |virtual_caches| run(&Plan { virtual_caches, ..plan("monitor", "tpcb", 2) }).unwrap();
    let (without, with) = (with(false), with(true));
    assert_eq!(without.shootdowns.cache_pages, 0);
    // The window of each record is unloaded on both processors.
    assert!(with.shootdowns.cache_pages >= 2 * with.operations, "{:?}", with.shootdowns);
    assert!(with.throughput < without.throughput);
}

/// No two threads use the same page. The threads share page tables with `high`, and use separate
/// page tables with `low`.
#[test]
fn threads_of_one_space_do_less_where_they_share_tables() {
    let throughput = |scheme, load| {
        let shootdowns = Shootdowns::Broadcast;
        let plan = Plan { hat_only: true, shootdowns, ..plan(scheme, load, 16) };
        run(&plan).unwrap().throughput
    };
    for [low, high] in [["mt-fault-low", "mt-fault-high"], ["mt-unmap-low", "mt-unmap-high"]] {
        let [low, high] = [low, high].map(|load| throughput("covering", load));
        assert!(high < 0.9 * low, "{high} and {low}");
    }
    assert!(throughput("covering", "mt-fault-low") > 2.0 * throughput("embedded", "mt-fault-low"));
    // The load that only maps regions allocates no frames; the loads that fault and unmap allocate
    // or free frames.
    let steps = |load| {
        let outcome = run(&plan("embedded", load, 1)).unwrap();
        outcome.locks.get("vm_frames").map_or(0, |of| of.counts.acquisitions)
    };
    let [map, fault, unmap] = ["mt-mmap-low", "mt-fault-low", "mt-unmap-low"].map(steps);
    assert_eq!(map, 0);
    assert!(fault >= 4 * 192 && unmap >= 4 * 192, "{fault}, {unmap}");
}

#[test]
fn what_cannot_run_is_told() {
    let error = |plan: Plan| run(&plan).unwrap_err();
    let many = error(Plan { cpus: 1000, ..plan("monitor", "fault", 1) });
    assert!(many.contains("1 to 128"), "{many}");
    assert!(error(plan("none", "fault", 1)).contains("`none` is not a locking scheme"));
    assert!(error(plan("global", "none", 1)).contains("`none` is not a load"));
    let above = error(Plan { hat_only: true, ..plan("global", "mt-mmap-low", 1) });
    assert!(above.contains("without --hat-only"), "{above}");
    let small = error(Plan { pool_bytes: Some(4096), ..plan("global", "fault", 2) });
    assert!(small.contains("too small for 3 spaces"), "{small}");
}

#[test]
fn the_host_runs_every_scheme_and_says_nothing_where_it_cannot() {
    for scheme in SCHEMES.into_iter().chain(["single"]) {
        let plan = host_plan(scheme, if scheme == "single" { 1 } else { 2 });
        let outcome = run_on_host(&plan).unwrap();
        assert!(outcome.nanoseconds > 0.0);
        let scales = plan.threads == 1 || (1.7..=2.2).contains(&outcome.control_scaling);
        let is_judged = outcome.judged_rounds > 0;
        assert!(scales || !is_judged, "{outcome:?}");
        assert!(is_judged || plan.threads > 1, "{outcome:?}");
        assert_eq!(outcome.scaling.is_some(), is_judged, "{outcome:?}");
        assert_eq!(outcome.predicted.is_some(), is_judged, "{outcome:?}");
        let none = run_on_host(&HostPlan { threads: 0, ..plan.clone() }).unwrap_err();
        assert!(none.contains("1 to 64"), "{none}");
        if scheme == "single" {
            let two = run_on_host(&HostPlan { threads: 2, ..plan }).unwrap_err();
            assert!(two.contains("no locks"), "{two}");
        }
    }
}

/// The chains of a hash table continue in further frames, which are smaller than the table itself.
#[test]
fn a_hashed_table_of_all_spaces_holds_those_of_64_processors() {
    let table = "hashed-shared".to_owned();
    let outcome = run(&Plan { table, ..plan("global", "fault", 64) }).unwrap();
    assert_eq!(outcome.operations, 64 * 192);
}

#[test]
fn users_run_their_commands() {
    let outcome = run(&plan("embedded", "kenbus", 1)).unwrap();
    assert_eq!(outcome.operations, 18);
    assert!(outcome.locks["vm_object"].counts.acquisitions > 10_000);
    let alone = run(&Plan { hat_only: true, ..plan("global", "kenbus", 1) }).unwrap_err();
    assert!(alone.contains("without --hat-only"), "{alone}");
}

/// Two processes: the first process forks the second, and continues after the second has ended.
const SKELETON: &str = "pagewalk-skeleton 1
file 0 /bin/sh
process 0 own sh
m 400 4 5 f0+0
m 500 10 3 a
t 400 2 x
w 5000
t 500 3 w
f 1
t 500 1 w
u 500 10
process 1 own ls
t 501 1 w
e
m 600 2 3 f0+1
t 600 1 r
t 600 1 w
end 17
";

#[test]
fn a_skeleton_is_played() {
    for scheme in SCHEMES {
        let plan = plan(scheme, "sh.skeleton", 2);
        let plan = Plan { skeleton: Some(SKELETON.to_owned()), ..plan };
        let outcome = run(&plan).unwrap_or_else(|error| panic!("{scheme}: {error}"));
        assert_eq!((&*outcome.load, outcome.operations), ("sh.skeleton", 8));
        // Each time that the skeleton is played, calls and faults lock a space, except for the
        // creation of the two spaces.
        let spaces = outcome.locks["vm_space"].counts.acquisitions;
        assert!(spaces >= 8 * 15, "{scheme}: {spaces}");
        let cut = Plan { skeleton: Some(SKELETON[..90].to_owned()), ..plan.clone() };
        let error = run(&cut).unwrap_err();
        assert!(error.starts_with("sh.skeleton: the skeleton is truncated"), "{error}");
        let alone = run(&Plan { hat_only: true, ..plan }).unwrap_err();
        assert!(alone.contains("without --hat-only"), "{alone}");
    }
}

/// One processor releases the lock and requests it again before the processor that spins has seen
/// that it is free.
#[test]
fn who_asks_first_has_a_lock_that_nobody_is_given() {
    // Processor 1 tries at 10, 50, 90 ..., and each time the cache line of the lock is transferred
    // to it.
    let spins = Costs { handover: 50, ..Costs::FREE };
    let tries = Costs { handover: 5, pause: 40, release: 2, ..Costs::FREE };
    //                          0 has it again    1 has it
    let expected = [
        (LockKind::Spin, spins, 200, 100, 2),
        (LockKind::Barging, spins, 110, 260, 1),
        // Processor 0 fetches the line three times, until 106. Processor 1 tries at 130, without
        // success until 135, and at 175, 215, 255.
        (LockKind::Barging, tries, 116, 260, 1),
    ];
    for (kind, costs, again, other, transfers) in expected {
        let lock = <Timed as Locks>::Mutex::new(Class::Hat, ());
        let had = std::sync::Mutex::new([0; 2]);
        let take = || {
            lock.with(Site::Look, |()| {
                had.lock().unwrap()[cpu().unwrap()] = now();
                spend(100);
            });
        };
        let finished = Baton::new(2, costs, kind, None).run(|cpu| {
            spend(10 * cpu as u64);
            take();
            if cpu == 0 {
                spend(10);
                take();
            }
        });
        assert_eq!(*had.lock().unwrap(), [again, other], "{kind:?}");
        assert_eq!(finished.unwrap().locks[&Class::Hat].transfers, transfers, "{kind:?}");
    }
}

/// Checks Little's law for each lock: the mean number of waiting processors, which the processors
/// measure themselves, is the number of arrivals per cycle multiplied by the mean wait, which the
/// platform counts.
#[test]
fn as_many_wait_for_each_lock_as_arrivals_and_waits_say() {
    const CPUS: usize = 6;
    const CLASSES: [Class; 3] = [Class::Hat, Class::Mmu, Class::Frame];
    for kind in [LockKind::Spin, LockKind::Adaptive, LockKind::HandOver, LockKind::Barging] {
        let locks = CLASSES.map(|class| <Timed as Locks>::Mutex::new(class, Vec::new()));
        let baton = Baton::new(CPUS, Costs::FREE, kind, None);
        let finished = baton.run(|cpu| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(cpu as u64 + 1);
            for _ in 0..400 {
                spend(random.random_range(0..900));
                let of = random.random_range(0..locks.len());
                let asked = now();
                locks[of].with(Site::Look, |seen| {
                    seen.push((asked, now()));
                    spend(random.random_range(1..400) << of);
                });
            }
        });
        let finished = finished.unwrap();
        let cycles = *finished.clocks.iter().max().unwrap() as f64;
        for (class, mut lock) in CLASSES.into_iter().zip(locks) {
            let seen = lock.get_mut();
            let changes = |(asked, had): &(u64, u64)| [(*asked, 1), (*had, -1)];
            let mut changes: Vec<(u64, i64)> = seen.iter().flat_map(changes).collect();
            changes.sort_unstable();
            let (mut at, mut waiting, mut area, mut most) = (0, 0_i64, 0.0, 0);
            for (when, change) in changes {
                area += waiting as f64 * (when - at) as f64;
                (at, waiting) = (when, waiting + change);
                most = most.max(waiting);
            }
            let counts = &finished.locks[&class];
            assert_eq!(counts.acquisitions, seen.len() as u64);
            let arrivals = counts.acquisitions as f64 / cycles;
            let wait = counts.waits.cycles as f64 / counts.acquisitions as f64;
            let (mean, law) = (area / cycles, arrivals * wait);
            assert!((mean - law).abs() < 1e-9 * law, "{kind:?}, {class:?}: {mean} for {law}");
            assert!(most >= 2, "{kind:?}, {class:?}: hardly anybody waited");
        }
    }
}
