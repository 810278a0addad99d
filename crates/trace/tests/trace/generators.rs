//! Tests generators: equal seeds give equal traces, and accesses have the requested distributions.

use std::collections::BTreeMap;

use addr::Kind;
use trace::{Batch, Event, KERNEL, Origin, generate};

use crate::common::Rows;

/// The whole trace that `spec` describes.
fn all(spec: &str) -> Rows {
    Rows::of(generate::parse(spec).unwrap().as_mut(), 0).unwrap()
}

/// The start and the bytes of the region `name`.
fn region(rows: &Rows, name: &str) -> (u64, u64) {
    let found = rows.events.iter().find_map(|(at, _, event)| match event {
        Event::Mapping { start, bytes, origin: Origin::Other(other), .. } if other == name => {
            assert_eq!(*at, 0);
            Some((*start, *bytes))
        }
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no region {name}"))
}

/// Checks that `counts` are as equal as those of independent random draws (chi-square test, 6
/// sigma).
fn check_equal(counts: &[u64], what: &str) {
    let mean = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    let chi: f64 = counts.iter().map(|&n| (n as f64 - mean).powi(2) / mean).sum();
    let freedom = (counts.len() - 1) as f64;
    let limit = 6.0 * (2.0 * freedom).sqrt();
    assert!((chi - freedom).abs() < limit, "{what}: chi-square {chi} for {freedom}");
}

fn check_share(part: u64, whole: u64, expected: f64, what: &str) {
    let share = part as f64 / whole as f64;
    let sigma = (expected * (1.0 - expected) / whole as f64).sqrt();
    assert!((share - expected).abs() <= 6.0 * sigma + 2e-5, "{what}: {share}, not {expected}");
}

#[test]
fn the_same_parameters_make_the_same_trace() {
    for name in generate::Pattern::NAMES {
        let spec = format!("{name},accesses=70k,seed=5");
        let first = all(&spec);
        assert_eq!(first.rows.len(), 70_000);
        assert_eq!(first, all(&spec), "{spec}");
        let parsed: generate::Parameters = spec.parse().unwrap();
        let again: generate::Parameters = parsed.to_string().parse().unwrap();
        assert_eq!(parsed, again);
        if !["strided", "pingpong", "syscall", "packet"].contains(&name) {
            assert_ne!(first.rows, all(&format!("{name},accesses=70k,seed=6")).rows, "{name}");
        }
    }
}

#[test]
fn accesses_stay_in_their_regions() {
    for spec in [
        "uniform,size=24B",
        "zipf,size=192B,exponent=0.5",
        "strided,size=72B,stride=40B",
        "chase,size=1040B,node=8B",
        "join,table=48B,entry=24B,fill=0.9",
        "uniform,size=8B",
        "zipf,size=64B",
        "chase,size=64B",
        "join,table=16B",
        "uniform,size=40T",
    ] {
        let rows = all(&format!("{spec},accesses=5k"));
        let regions: Vec<(u64, u64)> = rows
            .events
            .iter()
            .map(|event| match event.2 {
                Event::Mapping { start, bytes, .. } => (start, bytes),
                _ => panic!("{event:?}"),
            })
            .collect();
        assert!(regions.iter().all(|(start, _)| start % (1 << 30) == 0));
        for (_, addr, meta, _) in &rows.rows {
            let holds = |&&(start, bytes): &&(u64, u64)| {
                start <= *addr && addr + u64::from(meta.size()) <= start + bytes
            };
            assert_eq!(regions.iter().filter(holds).count(), 1, "{spec}: {addr:#x}");
            assert_eq!(meta.instructions(), 3);
        }
    }
}

#[test]
fn uniform_is_uniform() {
    let rows = all("uniform,size=4K,accesses=400k,stores=0.25");
    let (start, bytes) = region(&rows, "uniform");
    let mut counts = vec![0; bytes as usize / 8];
    let mut stores = 0;
    for (_, addr, meta, _) in &rows.rows {
        counts[((addr - start) / 8) as usize] += 1;
        stores += u64::from(meta.kind() == Kind::Store);
    }
    check_equal(&counts, "uniform");
    check_share(stores, 400_000, 0.25, "stores");
}

#[test]
fn zipf_has_the_popularity_of_each_rank() {
    let rows = all("zipf,size=64K,accesses=400k,exponent=1.2");
    let (start, bytes) = region(&rows, "zipf");
    let items = bytes / 64;
    let mut counts = vec![0u64; items as usize];
    rows.rows.iter().for_each(|row| counts[((row.1 - start) / 64) as usize] += 1);
    let places: Vec<usize> = (0..3)
        .map(|rank| {
            let mut order: Vec<usize> = (0..counts.len()).collect();
            order.sort_by_key(|&item| std::cmp::Reverse(counts[item]));
            order[rank]
        })
        .collect();
    assert!(places.windows(2).all(|two| two[0].abs_diff(two[1]) > 1), "scattered: {places:?}");
    counts.sort_unstable_by_key(|&count| std::cmp::Reverse(count));
    let norm: f64 = (1..=items).map(|rank| (rank as f64).powf(-1.2)).sum();
    for rank in [1u64, 2, 3, 10] {
        let expected = (rank as f64).powf(-1.2) / norm;
        check_share(counts[rank as usize - 1], 400_000, expected, &format!("rank {rank}"));
    }
}

#[test]
fn strided_goes_around() {
    let rows = all("strided,size=1K,stride=192B,accesses=1k,stores=0");
    let (start, _) = region(&rows, "strided");
    for (index, row) in rows.rows.iter().enumerate() {
        assert_eq!(row.1 - start, index as u64 * 192 % 1024);
        assert_eq!(row.2.kind(), Kind::Load);
    }
}

#[test]
fn chase_visits_every_node_once_a_round() {
    for nodes in [1usize, 2, 3, 100, 1000, 1024] {
        let rows = all(&format!("chase,size={}B,node=24B,accesses=3k", nodes * 24));
        let (start, _) = region(&rows, "list");
        let visited: Vec<usize> =
            rows.rows.iter().map(|row| ((row.1 - start) / 24) as usize).collect();
        let mut round = visited[..nodes.min(visited.len())].to_vec();
        assert!(visited.iter().zip(visited.iter().skip(nodes)).all(|(one, next)| one == next));
        round.sort_unstable();
        assert!(round.iter().copied().eq(0..nodes));
    }
}

#[test]
fn join_reads_probes_and_writes() {
    let rows = all("join,table=32K,fill=0.5,accesses=300k");
    let (table_a, a_bytes) = region(&rows, "table A");
    let (hash_table, hash_bytes) = region(&rows, "hash table");
    let (result, result_bytes) = region(&rows, "result");
    assert_eq!((a_bytes, hash_bytes, result_bytes), (32 << 10, 64 << 10, 32 << 10));
    let mut buckets = vec![0; hash_bytes as usize / 16];
    let (mut entries, mut again, mut probes) = (0u64, 0u64, 0);
    for (_, addr, meta, _) in &rows.rows {
        let entry = entries * 16 % a_bytes;
        if *addr == table_a + entry && probes == 0 {
            assert_eq!(meta.kind(), Kind::Load);
            probes = 1;
        } else if (hash_table..hash_table + hash_bytes).contains(addr) {
            assert!(meta.kind() == Kind::Load && (probes == 1 || probes == 2));
            again += u64::from(probes == 2);
            probes += 1;
            buckets[((addr - hash_table) / 16) as usize] += 1;
        } else {
            assert_eq!((*addr, meta.kind()), (result + entry, Kind::Store));
            assert!(probes == 2 || probes == 3);
            (entries, probes) = (entries + 1, 0);
        }
    }
    check_equal(&buckets, "buckets");
    check_share(again, entries, 2.0 * 2.0f64.ln() - 1.0, "collisions");
}

#[test]
fn memory_is_constant() {
    let mut source = generate::parse("join,table=16G,accesses=1G").unwrap();
    let mut batch = Batch::default();
    assert!(source.next(&mut batch).unwrap());
    let capacity = (batch.addr.capacity(), batch.meta.capacity());
    for _ in 0..20 {
        assert!(source.next(&mut batch).unwrap());
        assert_eq!((batch.addr.capacity(), batch.meta.capacity()), capacity);
    }
    assert_eq!(source.total(), Some(1_000_000_000));
}

#[test]
fn a_count_may_have_decimals_that_leave_a_whole_number() {
    for (written, accesses) in [("1.5M", 1_500_000), ("134.3k", 134_300), ("0.001k", 1), ("7.0", 7)]
    {
        let source = generate::parse(&format!("uniform,accesses={written}")).unwrap();
        assert_eq!(source.total(), Some(accesses), "{written}");
    }
}

#[test]
fn nonsense_is_refused_with_what_to_write() {
    for (spec, wanted) in [
        ("", "choose one of uniform, zipf, strided, chase, join"),
        ("jion,table=1G", "no pattern `jion`"),
        ("uniform,siz=8M", "no parameter `siz`; the parameters are size, stores, accesses"),
        ("uniform,size=8", "as in 64B, 8K or 16G"),
        ("uniform,size=8m", "as in 64B, 8K or 16G"),
        ("uniform,size=-8M", "as in 64B, 8K or 16G"),
        ("uniform,size=99999999999T", "as in 64B, 8K or 16G"),
        ("uniform,size", "`size` is not a setting"),
        ("uniform,", "`` is not a setting"),
        ("uniform,size=200T", "does not fit into 47 bits"),
        ("uniform,size=0B", "multiple of 8"),
        ("uniform,size=12B", "multiple of 8"),
        ("strided,stride=0B", "multiple of 8"),
        ("strided,size=64B,stride=128B", "holds no stride of 128 bytes"),
        ("chase,node=4B", "multiple of 8"),
        ("zipf,exponent=-1", "a number from 0 to 10"),
        ("zipf,exponent=NaN", "a number from 0 to 10"),
        ("join,fill=1", "a number from 0.01 to 0.99"),
        ("join,table=40T", "does not fit into 47 bits"),
        ("uniform,stores=2", "a number from 0 to 1"),
        ("uniform,accesses=1.0005k", "as in 5000, 300k or 50M"),
        ("uniform,accesses=.5M", "as in 5000, 300k or 50M"),
        ("uniform,accesses=1.M", "as in 5000, 300k or 50M"),
        ("uniform,accesses=99999999T", "as in 5000, 300k or 50M"),
        ("uniform,accesses=2000000T", "write a number from"),
        ("uniform,instructions=0", "write a number from 1 to 65535"),
        ("uniform,bits=40", "write 25, 32 or 47"),
        ("uniform,bits=64", "write a number from 25 to 47"),
        ("uniform,bits=32,size=4G", "does not fit into 32 bits"),
        ("uniform,seed=x", "as in 5000, 300k or 50M"),
    ] {
        let error = generate::parse(spec).err().unwrap_or_else(|| panic!("{spec} was accepted"));
        let text = error.to_string();
        assert!(text.contains(wanted) && !text.contains('\n'), "{spec}: {text}");
    }
}

/// With 32-bit addresses, a pattern makes the same accesses as with 64-bit addresses, each moved by
/// the distance between the two starts of its region.
#[test]
fn patterns_fit_into_32_bits() {
    for pattern in ["uniform,size=8M", "zipf,size=8M", "chase,size=8M", "join,table=8M"] {
        let [wide, narrow] = ["", ",bits=32"].map(|bits| {
            let spec = format!("{pattern},accesses=3000{bits}");
            let mut source = generate::parse(&spec).unwrap();
            let (mut batch, mut addr, mut starts) = (Batch::default(), Vec::new(), Vec::new());
            while source.next(&mut batch).unwrap() {
                addr.extend_from_slice(&batch.addr);
                starts.extend(batch.events.iter().filter_map(|placed| match placed.event {
                    Event::Mapping { start, .. } => Some(start),
                    _ => None,
                }));
            }
            (addr, starts)
        });
        assert!(narrow.0.iter().all(|addr| *addr < 1 << 32), "{pattern}");
        assert_eq!(narrow.0.len(), wide.0.len());
        for (wide_addr, narrow_addr) in wide.0.iter().zip(&narrow.0) {
            let region = wide.1.iter().rposition(|start| start <= wide_addr).unwrap();
            assert_eq!(wide_addr - wide.1[region], narrow_addr - narrow.1[region], "{pattern}");
        }
    }
}

/// Two processes take turns. Each has a space of its own, with pages at equal addresses.
#[test]
fn ping_and_pong_take_turns() {
    let rows = all("pingpong,code=100,itlb=3,dtlb=2,accesses=20,bits=32");
    // A turn has eight accesses: the line with the call, two lines of nops, the jumps and the
    // reads.
    let turn = &rows.rows[..8];
    let kinds: Vec<Kind> = turn.iter().map(|row| row.2.kind()).collect();
    assert_eq!(kinds, [[Kind::Fetch; 6].as_slice(), &[Kind::Load; 2]].concat());
    let instructions: Vec<u32> = turn.iter().map(|row| row.2.instructions()).collect();
    assert_eq!(instructions, [20, 64, 36, 1, 1, 1, 1, 1]);
    let addrs: Vec<u64> = turn.iter().map(|row| row.1).collect();
    assert_eq!((addrs[1] - addrs[0], addrs[2] - addrs[1]), (64, 64));
    assert_eq!((addrs[4] - addrs[3], addrs[5] - addrs[4]), (4155, 4155));
    assert_eq!(addrs[7] - addrs[6], 4160);
    assert_eq!(rows.rows[8..16].iter().map(|row| row.1).collect::<Vec<_>>(), addrs);
    let runs = rows.events.iter().filter_map(|(at, _, event)| match event {
        Event::Run { space, .. } => Some((*at, *space)),
        _ => None,
    });
    assert_eq!(runs.collect::<Vec<_>>(), [(8, 1), (16, 0)]);
    let mapped: Vec<_> = rows
        .events
        .iter()
        .filter_map(|(at, _, event)| match event {
            Event::Mapping { start, rights, .. } => Some((*at, *start, *rights)),
            _ => None,
        })
        .collect();
    assert_eq!(mapped.len(), 6);
    assert!(mapped[..3].iter().zip(&mapped[3..]).all(|(one, other)| one.1 == other.1));
    assert_eq!(mapped.iter().map(|(at, ..)| *at).collect::<Vec<_>>(), [0, 0, 0, 8, 8, 8]);
    assert_eq!(mapped.iter().map(|one| one.2).collect::<Vec<_>>(), [5, 5, 3, 5, 5, 3]);
    assert_eq!(mapped[2].1, addrs[6]);
}

/// Every access of a script is to a mapped page with the required rights, and each space continues
/// where it stopped.
#[test]
fn scripts_access_what_is_mapped() {
    let scripts = [
        "pingpong,code=1000,itlb=20,dtlb=30",
        "pingpong,code=100,itlb=2,dtlb=3,idle=1,ipc=266",
        "pingpong,code=100,itlb=2,dtlb=3,linux=1",
        "pingpong,itlb=2,dtlb=3,linux=2,ipc=100",
        "syscall",
        "syscall,linux=1,copied=4K",
        "syscall,copied=64K,code=200,data=200,work=60k",
        "packet",
        "packet,driver=200,bottom=200,stack=200,ring=200,each=1000",
    ];
    for script in scripts {
        for bits in [32, 47] {
            let rows = all(&format!("{script},bits={bits},accesses=30k"));
            let mut mapped: BTreeMap<u32, Vec<(u64, u64, u8)>> = BTreeMap::new();
            let (mut space, mut events) = (0, rows.events.iter().peekable());
            for (row, (_, addr, meta, _)) in rows.rows.iter().enumerate() {
                while let Some((_, _, event)) = events.next_if(|event| event.0 as usize <= row) {
                    match event {
                        Event::Run { space: next, .. } => space = *next,
                        Event::Mapping { start, bytes, rights, .. } => {
                            let known = mapped.entry(space).or_default();
                            let apart = |(other, length, _): &(u64, u64, u8)| {
                                start + bytes <= *other || other + length <= *start
                            };
                            assert!(known.iter().all(apart), "{script}: {start:#x} twice");
                            known.push((*start, *bytes, *rights));
                        }
                        other => panic!("{other:?}"),
                    }
                }
                let right = match meta.kind() {
                    Kind::Load => 1,
                    Kind::Store => 2,
                    Kind::Fetch => 4,
                };
                let end = addr + u64::from(meta.size());
                let holds = |(start, bytes, rights): &(u64, u64, u8)| {
                    start <= addr && end <= start + bytes && rights & right != 0
                };
                assert!(
                    mapped.get(&space).is_some_and(|known| known.iter().any(holds)),
                    "{script}, {bits} bits: space {space} has no {addr:#x} for a {}",
                    meta.kind().name()
                );
                assert!(bits == 47 || *addr < 1 << 32);
            }
        }
    }
    // A message and its answer are two passes through the kernel, which has the given number of
    // instructions.
    let rows = all("pingpong,idle=1,ipc=266,bits=32,accesses=1000");
    let runs: Vec<u32> = rows
        .events
        .iter()
        .filter_map(|(_, _, event)| match event {
            Event::Run { space, .. } => Some(*space),
            _ => None,
        })
        .take(4)
        .collect();
    assert_eq!(runs, [KERNEL, 1, KERNEL, 0]);
}
