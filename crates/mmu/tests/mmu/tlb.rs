//! Compares the TLB with a list that is searched in order, for random geometries and streams.

use addr::{Asid, Kind, PageSize, PhysAddr, Rights, VirtAddr, VirtRange};
use mmu::{
    ArrayParams, EACH, Evicted, Found, Miss, NOTHING, Policy, SpanTlb, SpanTlbs, TIME, Tlb,
    TlbEntry, TlbParams,
};

use crate::model::{Rng, tlb::ModelTlb};

const SEEDS: u64 = 600;
const STEPS: u64 = 1500;

fn sizes() -> [PageSize; 4] {
    [12, 13, 15, 21].map(|shift| PageSize::from_shift(shift).unwrap())
}

/// A random geometry, with one to three arrays, one to four page sizes, any policy, odd numbers of
/// sets and ways, and pairs.
fn random_params(rng: &mut Rng) -> TlbParams {
    let mut left: Vec<PageSize> = sizes().to_vec();
    let arrays = (0..1 + rng.below(3)).map(|_| {
        let count = if rng.chance(30) { left.len().saturating_sub(2).max(1) } else { 1 };
        let page_sizes = (0..count).map(|_| left.remove(rng.below(left.len() as u64) as usize));
        let page_sizes = page_sizes.collect();
        let ways = rng.pick(&[1, 2, 3, 4, 6, 7, 8, 9, 12, 16, 17, 24, 33, 48, 65]);
        let sets = rng.pick(&[1, 1, 1, 2, 3, 4, 5, 8]);
        // LRU is chosen more often, because hits are reported to it in a special way.
        let replacement = if rng.chance(30) { Policy::Lru } else { rng.pick(&Policy::ALL) };
        ArrayParams { page_sizes, entries: sets * ways, ways, replacement, seed: rng.next() }
    });
    let mut arrays: Vec<ArrayParams> = arrays.take(2).collect();
    if rng.chance(50) {
        let replacement = arrays[0].replacement;
        arrays.iter_mut().for_each(|array| array.replacement = replacement);
    }
    TlbParams { arrays, paired: rng.chance(30), blocks: None }
}

/// A random address in a small number of pages of every size. Some of these pages are far apart.
fn random_addr(rng: &mut Rng, pages: u64) -> VirtAddr {
    let far = rng.pick(&[0, 0, 0, 1 << 30, 0xffff_8000_0000_0000]);
    VirtAddr::new(far + (rng.below(pages) << 12) + rng.below(4096))
}

fn random_entry(rng: &mut Rng, va: VirtAddr, params: &TlbParams, asid: Asid) -> TlbEntry {
    let held: Vec<PageSize> =
        params.arrays.iter().flat_map(|array| &array.page_sizes).copied().collect();
    let size = if rng.chance(97) { rng.pick(&held) } else { rng.pick(&sizes()) };
    let frame = |rng: &mut Rng| PhysAddr::new(rng.below(1 << 40)).align_down(size);
    // Mostly all accesses are allowed, and sometimes none.
    let rights = |rng: &mut Rng| {
        if rng.chance(70) { Rights::ALL } else { Rights::from_bits(rng.below(16) as u8) }
    };
    let allowed = rights(rng);
    let mut entry = TlbEntry::single(va.page(size), frame(rng), asid, rng.chance(10), allowed);
    entry.rights[1] = rights(rng);
    if params.paired {
        entry.frames = [0, 1].map(|_| rng.chance(75).then(|| frame(rng)));
    }
    entry
}

/// The physical address and the label of a hit.
type Place = (PhysAddr, u32);

/// The clock of all TLBs, the granules that spans request, and for each kind whether the large
/// granule is searched first.
struct Spanning {
    clock: u64,
    granules: (PageSize, Option<PageSize>),
    large_first: [bool; 4],
    /// Whether misses are currently treated as dense, so that no spans are used.
    is_dense: bool,
}

/// Looks up an address, either in a span first or only by an ordinary lookup. The spans are mostly
/// for the favoured page sizes.
fn lookup(
    rng: &mut Rng,
    tlb: &mut Tlb,
    spanning: &mut Spanning,
    va: VirtAddr,
    asid: Asid,
    kind: Kind,
) -> Result<Place, Miss> {
    spanning.is_dense ^= rng.chance(1);
    if !spanning.is_dense && rng.chance(80) {
        // The clock belongs to the caller, which may have other TLBs.
        spanning.clock = tlb.now().max(spanning.clock) + 1 + rng.below(3);
        spanning.large_first[kind as usize] ^= rng.chance(10);
        let other = (rng.pick(&sizes()), None);
        let granules = if rng.chance(90) { spanning.granules } else { other };
        let largest = granules.1.unwrap_or(granules.0);
        // A span must find either the whole page or nothing; if it finds nothing, an ordinary
        // lookup follows.
        let bytes = 1 + rng.below(largest.bytes() - va.offset_in(largest)) as u32;
        let bytes = if rng.chance(90) { bytes } else { largest.bytes() as u32 };
        let in_page = va.offset_in(largest) + u64::from(bytes) <= largest.bytes();
        let time = spanning.clock;
        let learns = rng.pick(&[NOTHING, TIME, EACH]).max(tlb.learns());
        let found = match learns {
            NOTHING => {
                let span = tlb.span::<NOTHING>(asid, granules);
                first(span, granules, spanning.large_first, va, bytes, kind, time)
            }
            TIME => {
                let span = tlb.span::<TIME>(asid, granules);
                first(span, granules, spanning.large_first, va, bytes, kind, time)
            }
            _ => {
                let span = tlb.span::<EACH>(asid, granules);
                first(span, granules, spanning.large_first, va, bytes, kind, time)
            }
        };
        tlb.set_now(time);
        if let Some(Found { phys, label, .. }) = found {
            assert!(in_page, "{bytes} bytes at {va} are not in one page of {largest}");
            return Ok((phys, label));
        }
    }
    let hit = match spanning.is_dense && rng.chance(90) {
        true => tlb.lookup_apart(va, asid, kind),
        false => tlb.lookup(va, asid, kind),
    };
    hit.map(|hit| {
        assert!(hit.rights.allows(kind));
        (hit.phys, hit.label)
    })
}

/// Makes the first lookup of a span.
fn first<const LEARNS: u8>(
    span: Option<SpanTlb<'_, LEARNS>>,
    granules: (PageSize, Option<PageSize>),
    large_first: [bool; 4],
    va: VirtAddr,
    bytes: u32,
    kind: Kind,
    time: u64,
) -> Option<Found> {
    let (serving, kind) = (|_| span, kind as usize);
    if granules.1.is_some() {
        let spans = SpanTlbs::<LEARNS, true>::new(serving, granules, large_first);
        spans.lookup(va, bytes, kind, time)
    } else {
        let spans = SpanTlbs::<LEARNS, false>::new(serving, granules, large_first);
        spans.lookup(va, bytes, kind, time)
    }
}

#[test]
fn a_tlb_does_what_a_list_searched_in_order_does() {
    for seed in 0..SEEDS {
        let mut rng = Rng(seed);
        let params = random_params(&mut rng);
        let build = if rng.chance(50) { Tlb::new } else { Tlb::behind_another };
        let (mut tlb, mut model) = (build(&params).unwrap(), ModelTlb::new(&params));
        let held = params.arrays.iter().flat_map(|array| &array.page_sizes);
        let mut spanning = Spanning {
            clock: rng.pick(&[0, 1 << 20]),
            granules: (*held.min().unwrap(), None),
            large_first: [false; 4],
            is_dense: false,
        };
        if rng.chance(70) {
            let (small, large) = (rng.pick(&sizes()), rng.pick(&sizes()));
            spanning.granules = (small, (large > small).then_some(large));
            tlb.favour(small, Some(large));
        }
        let pages = rng.pick(&[8, 40, 200, 2000]);
        let asids = rng.pick(&[1, 3]);
        let mut asid = Asid(0);
        let (mut seen, mut expected): (Vec<Evicted>, Vec<Evicted>) = (Vec::new(), Vec::new());
        for step in 0..STEPS {
            let context = || format!("seed {seed}, step {step}, {params:?}");
            if rng.chance(5) {
                asid = Asid(rng.below(asids) as u16);
            }
            let va = random_addr(&mut rng, pages);
            let of = if rng.chance(98) { asid } else { Asid(rng.below(asids) as u16) };
            match rng.below(1000) {
                0..900 => {
                    let kind = rng.pick(&Kind::ALL);
                    let hit = lookup(&mut rng, &mut tlb, &mut spanning, va, of, kind);
                    let found = model.lookup(va, of, kind);
                    assert_eq!(hit, found, "{}", context());
                    if found.is_err() {
                        let entry = random_entry(&mut rng, va, &params, of);
                        let label = rng.next() as u32;
                        let filled = tlb
                            .fill(&entry, label, rng.pick(&Kind::ALL), &mut |gone| seen.push(gone));
                        assert_eq!(
                            filled,
                            model.fill(&entry, label, &mut expected),
                            "{}",
                            context()
                        );
                    }
                }
                // An insertion without a miss, as by a prefetch or a second refill.
                900..950 => {
                    let entry = random_entry(&mut rng, va, &params, of);
                    let label = rng.next() as u32;
                    tlb.fill(&entry, label, rng.pick(&Kind::ALL), &mut |gone| seen.push(gone));
                    model.fill(&entry, label, &mut expected);
                }
                950..975 => {
                    let bytes = 1 + rng.pick(&[0, 4095, 1 << 13, 1 << 15, 1 << 22]);
                    let range = VirtRange::new(va, bytes).unwrap();
                    let flushed = if bytes == 1 {
                        tlb.flush_page(va, of, &mut |gone| seen.push(gone))
                    } else {
                        tlb.flush_range(range, of, &mut |gone| seen.push(gone))
                    };
                    let goes = |entry: &TlbEntry| {
                        (entry.global || entry.asid == of)
                            && ModelTlb::touches(params.paired, entry, range)
                    };
                    assert_eq!(flushed, model.flush(&mut expected, goes), "{}", context());
                }
                975..985 => {
                    let flushed = tlb.flush_asid(of, &mut |gone| seen.push(gone));
                    let goes = |entry: &TlbEntry| !entry.global && entry.asid == of;
                    assert_eq!(flushed, model.flush(&mut expected, goes), "{}", context());
                }
                985..990 => {
                    let flushed = tlb.flush_non_global(&mut |gone| seen.push(gone));
                    let goes = |entry: &TlbEntry| !entry.global;
                    assert_eq!(flushed, model.flush(&mut expected, goes), "{}", context());
                }
                990..993 => {
                    let flushed = tlb.flush_all(&mut |gone| seen.push(gone));
                    assert_eq!(flushed, model.flush(&mut expected, |_| true), "{}", context());
                }
                _ => {
                    tlb.drain(&mut |gone| seen.push(gone));
                    model.drain(&mut expected);
                }
            }
            seen.sort_unstable();
            expected.sort_unstable();
            assert_eq!(seen, expected, "{}", context());
            seen.clear();
            expected.clear();
            assert_eq!(tlb.counts(), model.counts, "{}", context());
            assert_eq!(tlb.entries().count(), model.entries(), "{}", context());
        }
    }
}

/// Two TLBs, one behind the other, with their models. Counts and reported hits must agree,
/// whichever functions make an access.
struct Levels {
    tlbs: [Tlb; 2],
    models: [ModelTlb; 2],
    seen: [Vec<Evicted>; 2],
    expected: [Vec<Evicted>; 2],
    /// The inserted entries, by label.
    entries: Vec<TlbEntry>,
}

impl Levels {
    fn new(params: &[TlbParams; 2]) -> Levels {
        Levels {
            tlbs: [Tlb::new(&params[0]).unwrap(), Tlb::behind_another(&params[1]).unwrap()],
            models: [0, 1].map(|level| ModelTlb::new(&params[level])),
            seen: Default::default(),
            expected: Default::default(),
            entries: Vec::new(),
        }
    }

    /// Makes an access in the models: lookups, and insertions after misses.
    fn expect(&mut self, va: VirtAddr, asid: Asid, kind: Kind, new: &TlbEntry) -> Option<Place> {
        let [near, far] = &mut self.models;
        let [near_gone, far_gone] = &mut self.expected;
        if let Ok(found) = near.lookup(va, asid, kind) {
            return Some(found);
        }
        if let Ok((phys, label)) = far.lookup(va, asid, kind) {
            let entry = TlbEntry { asid, ..self.entries[label as usize] };
            near.fill(&entry, label, near_gone);
            return Some((phys, label));
        }
        let label = self.entries.len() as u32;
        far.fill(new, label, far_gone);
        near.fill(new, label, near_gone);
        None
    }

    /// Makes an access with separate lookups and insertions ([`Tlb::lookup_apart`], [`Tlb::fill`]).
    fn one_by_one(
        &mut self,
        va: VirtAddr,
        asid: Asid,
        kind: Kind,
        new: &TlbEntry,
    ) -> Option<Place> {
        let [near, far] = &mut self.tlbs;
        let near_gone = &mut |gone| self.seen[0].push(gone);
        if let Ok(hit) = near.lookup_apart(va, asid, kind) {
            return Some((hit.phys, hit.label));
        }
        if let Ok(hit) = far.lookup_apart(va, asid, kind) {
            near.fill(&hit.entry(va, asid), hit.label, kind, near_gone);
            return Some((hit.phys, hit.label));
        }
        self.fill_both(kind, new);
        None
    }

    fn fill_both(&mut self, kind: Kind, new: &TlbEntry) {
        let [near, far] = &mut self.tlbs;
        let label = self.entries.len() as u32;
        far.fill(new, label, kind, &mut |gone| self.seen[1].push(gone));
        near.fill(new, label, kind, &mut |gone| self.seen[0].push(gone));
    }

    /// Makes several accesses in a row with both TLBs borrowed ([`Tlb::dense`]), as far as
    /// possible. Returns the results of the accesses that were made.
    fn at_once(
        &mut self,
        accesses: &[(VirtAddr, Kind, TlbEntry)],
        asid: Asid,
    ) -> Vec<Option<Place>> {
        let mut found = Vec::new();
        let [near, far] = &mut self.tlbs;
        let (Some(mut near), Some(mut far)) = (near.dense(asid), far.dense(asid)) else {
            return found;
        };
        for &(va, kind, _) in accesses {
            match near.find(va, kind) {
                Ok(held) => found.push(Some(near.hit(held, va, kind))),
                Err(Miss::Absent) => match far.find(va, kind) {
                    Ok(held) if near.is_replaced(va, &far, held) => {
                        near.missed(kind);
                        found.push(Some(far.hit(held, va, kind)));
                        near.refill(va, &far, held, &mut |gone| self.seen[0].push(gone));
                    }
                    Err(Miss::Absent) => {
                        near.missed(kind);
                        near.leave_absent(va);
                        far.missed(kind);
                        far.leave_absent(va);
                        found.push(None);
                        break;
                    }
                    Ok(_) | Err(_) => break,
                },
                Err(_) => break,
            }
        }
        if let Some(None) = found.last() {
            let (_, kind, new) = accesses[found.len() - 1];
            self.fill_both(kind, &new);
        }
        found
    }
}

#[test]
fn accesses_at_once_do_what_they_do_one_by_one() {
    let mut ran = [0u64; 3];
    for seed in 0..SEEDS {
        let mut rng = Rng(seed);
        let pages = rng.pick(&[30, 100, 400]);
        let params = [[1, 1, 2, 16], [8, 16, 32, 64]].map(|sets| {
            let (sets, ways) = (rng.pick(&sets), rng.pick(&[1, 2, 3, 4, 8, 12, 16, 17, 48]));
            let replacement = if rng.chance(40) { Policy::Lru } else { rng.pick(&Policy::ALL) };
            let page_sizes = vec![PageSize::SIZE_4K];
            let entries = sets * ways;
            let array = ArrayParams { page_sizes, entries, ways, replacement, seed: rng.next() };
            TlbParams { arrays: vec![array], paired: false, blocks: None }
        });
        let mut levels = Levels::new(&params);
        let asids = rng.pick(&[1, 3]);
        for step in 0..STEPS / 5 {
            let context = || format!("seed {seed}, step {step}, {params:?}");
            let asid = Asid(rng.below(asids) as u16);
            let accesses: Vec<(VirtAddr, Kind, TlbEntry)> = (0..1 + rng.below(12))
                .map(|_| {
                    let va = VirtAddr::new((rng.below(pages) << 12) + rng.below(4096));
                    let rights = if rng.chance(95) { Rights::ALL } else { Rights::READ };
                    let frame = PhysAddr::new(rng.below(1 << 28) << 12);
                    let page = va.page(PageSize::SIZE_4K);
                    let entry = TlbEntry::single(page, frame, asid, rng.chance(3), rights);
                    (va, rng.pick(&Kind::ALL), entry)
                })
                .collect();
            let mut next = 0;
            while next < accesses.len() {
                if rng.chance(60) {
                    let found = levels.at_once(&accesses[next..], asid);
                    for found in found {
                        let (va, kind, new) = accesses[next];
                        let expected = levels.expect(va, asid, kind, &new);
                        if expected.is_none() {
                            levels.entries.push(new);
                        }
                        assert_eq!(found, expected, "{}", context());
                        ran[usize::from(found.is_some())] += 1;
                        next += 1;
                    }
                }
                let Some(&(va, kind, new)) = accesses.get(next) else { break };
                let found = levels.one_by_one(va, asid, kind, &new);
                assert_eq!(found, levels.expect(va, asid, kind, &new), "{}", context());
                if found.is_none() {
                    levels.entries.push(new);
                }
                ran[2] += 1;
                next += 1;
            }
            if rng.chance(2) {
                for level in 0..2 {
                    let (tlb, model) = (&mut levels.tlbs[level], &mut levels.models[level]);
                    let flushed = tlb.flush_asid(asid, &mut |gone| levels.seen[level].push(gone));
                    let goes = |entry: &TlbEntry| !entry.global && entry.asid == asid;
                    assert_eq!(flushed, model.flush(&mut levels.expected[level], goes));
                }
            }
            for level in 0..2 {
                // The removal of an entry without hits need not be reported.
                for gone in [&mut levels.seen[level], &mut levels.expected[level]] {
                    gone.retain(|gone| gone.hits != [0; 3]);
                    gone.sort_unstable();
                }
                assert_eq!(levels.seen[level], levels.expected[level], "{level}, {}", context());
                let (tlb, model) = (&levels.tlbs[level], &levels.models[level]);
                assert_eq!(tlb.counts(), model.counts, "{level}, {}", context());
                assert_eq!(tlb.entries().count(), model.entries(), "{level}, {}", context());
            }
            levels.seen.iter_mut().chain(&mut levels.expected).for_each(Vec::clear);
        }
    }
    // Each of the three ways to make an access was used often: borrowed with a miss of both levels,
    // borrowed with a hit of either level, and separate.
    assert!(ran.iter().all(|ran| *ran > 10_000), "{ran:?}");
}

/// The hits that are reported at evictions, at flushes and at the end add up to the counted hits.
#[test]
fn hits_handed_out_are_all_hits() {
    for policy in Policy::ALL {
        let mut rng = Rng(1);
        let array = ArrayParams {
            page_sizes: vec![PageSize::SIZE_4K],
            entries: 48,
            ways: 48,
            replacement: policy,
            seed: 1,
        };
        let mut tlb =
            Tlb::new(&TlbParams { arrays: vec![array], paired: true, blocks: None }).unwrap();
        let mut sum = [0u64; 3];
        let (mut lookups, mut misses) = ([0u64; 3], [0u64; 3]);
        let mut add = |gone: Evicted| {
            for (sum, hits) in sum.iter_mut().zip(gone.hits) {
                *sum += hits;
            }
        };
        for _ in 0..20_000 {
            let va = random_addr(&mut rng, 150);
            let kind = rng.pick(&Kind::ALL);
            lookups[kind as usize] += 1;
            if tlb.lookup(va, Asid(7), kind).is_err() {
                misses[kind as usize] += 1;
                let mut entry = TlbEntry::single(
                    va.page(PageSize::SIZE_4K),
                    PhysAddr::new(0),
                    Asid(7),
                    false,
                    Rights::ALL,
                );
                entry.frames[1] = entry.frames[0];
                tlb.fill(&entry, 0, kind, &mut add);
            }
        }
        tlb.drain(&mut add);
        let counts = tlb.counts();
        assert_eq!((counts.hits, counts.misses), (sum, misses), "{policy}");
        assert!((0..3).all(|kind| sum[kind] + misses[kind] == lookups[kind]), "{policy}");
        assert!(sum.iter().all(|hits| *hits > 0) && counts.evictions > 0, "{policy}");
    }
}

#[test]
fn policies_print_what_they_parse() {
    for policy in Policy::ALL {
        assert_eq!(policy.to_string().parse::<Policy>().unwrap(), policy);
    }
    let error = "LRU".parse::<Policy>().unwrap_err().to_string();
    assert_eq!(
        error,
        "`LRU` is not a replacement policy: write lru, fifo, random, tree-plru, nru, lfu, srrip, \
         greedy-dual, fixed-insertion, vi-lru, greedy-dual-2d or vi-lru-2d"
    );
}

#[test]
fn a_tlb_that_cannot_be_is_refused_with_a_reason() {
    let array = |page_sizes: &[PageSize], entries, ways| ArrayParams {
        page_sizes: page_sizes.to_vec(),
        entries,
        ways,
        replacement: Policy::Lru,
        seed: 0,
    };
    let (small, large) = (PageSize::SIZE_4K, PageSize::SIZE_2M);
    for (arrays, reason) in [
        (vec![], "the TLB has no array: give it one"),
        (vec![array(&[], 4, 4)], "the array holds no page size: name at least one"),
        (vec![array(&[small], 0, 1)], "it has no entries: give it at least one"),
        (vec![array(&[small], 64, 0)], "0 ways hold nothing: write 1 to 64"),
        (vec![array(&[small], 64, 5)], "64 entries do not divide into sets of 5 ways"),
        (
            vec![array(&[small, large], 64, 4), array(&[large], 8, 8)],
            "the page size 2M is named twice: name each size once",
        ),
        (
            vec![array(&[small], u32::MAX, 1)],
            "4294967295 entries are too many to simulate: give it at most 16777216",
        ),
    ] {
        let error = Tlb::new(&TlbParams { arrays, paired: false, blocks: None }).unwrap_err();
        assert_eq!(error.to_string(), reason);
    }
}
