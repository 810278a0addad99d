//! Compares pages of two sizes with a model, which is a list of base pages.

use addr::{Kind, PageSize};
use machine::{Machine, Results, RunOptions};
use trace::Event;

use crate::support::{Row, Rows, Stream, run};

const BASE: u64 = 0x40_0000_0000;
const PAGE: u64 = 4096;

/// The state of a base page in the model.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Slot {
    /// The number of the mapping that contains the page, and the rights of the mapping.
    region: Option<(u32, u32)>,
    mapped: Option<Size>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Size {
    Base,
    Large,
}

/// A range of a few large pages, and the behaviour of an operating system that maps at first touch.
struct Model {
    /// The number of base pages in a large page.
    large: usize,
    slots: Vec<Slot>,
    regions: u32,
    first_touches: u64,
    crossings: u64,
    /// Accesses that cross the end of a base page, even inside a large page.
    straddling: u64,
    /// The number of large pages that were split.
    splits: u64,
}

impl Model {
    fn new(large: u64) -> Model {
        let large = (large / PAGE) as usize;
        Model {
            large,
            slots: vec![Slot::default(); 6 * large],
            regions: 0,
            first_touches: 0,
            crossings: 0,
            straddling: 0,
            splits: 0,
        }
    }

    fn block(&self, page: usize) -> std::ops::Range<usize> {
        let first = page / self.large * self.large;
        first..first + self.large
    }

    fn touch(&mut self, page: usize) {
        if self.slots[page].mapped.is_some() {
            return;
        }
        self.first_touches += 1;
        let block = self.block(page);
        let region = self.slots[page].region;
        let fits = |slot: &Slot| slot.region == region && slot.mapped.is_none();
        if region.is_some() && self.slots[block.clone()].iter().all(fits) {
            self.slots[block].iter_mut().for_each(|slot| slot.mapped = Some(Size::Large));
        } else {
            self.slots[page].mapped = Some(Size::Base);
        }
    }

    /// An access of eight bytes to `page`. If `straddles`, it ends in the next page.
    fn access(&mut self, page: usize, straddles: bool) {
        self.touch(page);
        self.straddling += u64::from(straddles);
        let ends_block = (page + 1).is_multiple_of(self.large);
        if straddles && (ends_block || self.slots[page].mapped == Some(Size::Base)) {
            self.crossings += 1;
            self.touch(page + 1);
        }
    }

    /// Splits a large page that begins before `page` and ends after it.
    fn split(&mut self, page: usize) {
        if page.is_multiple_of(self.large) || page >= self.slots.len() {
            return;
        }
        let block = self.block(page);
        if self.slots[page].mapped == Some(Size::Large) {
            self.splits += 1;
            self.slots[block].iter_mut().for_each(|slot| slot.mapped = Some(Size::Base));
        }
    }

    fn unmap(&mut self, first: usize, count: usize) {
        self.split(first);
        self.split(first + count);
        self.slots[first..first + count].fill(Slot::default());
    }

    fn map(&mut self, first: usize, count: usize) {
        self.unmap(first, count);
        self.regions += 1;
        let region = Some((self.regions, 3));
        self.slots[first..first + count].fill(Slot { region, mapped: None });
    }

    fn protect(&mut self, first: usize, count: usize, prot: u32) {
        self.split(first);
        self.split(first + count);
        for slot in &mut self.slots[first..first + count] {
            slot.region = slot.region.map(|(id, _)| (id, prot));
        }
    }

    fn discard(&mut self, first: usize, count: usize) {
        self.split(first);
        self.split(first + count);
        self.slots[first..first + count].iter_mut().for_each(|slot| slot.mapped = None);
    }

    /// Moves a part of a mapping to addresses outside of the mapping.
    fn remap(&mut self, from: usize, count: usize, to: usize) {
        self.unmap(to, count);
        self.split(from);
        self.split(from + count);
        let region = self.slots[from].region;
        let moved = self.slots[from..from + count].to_vec();
        self.slots[from..from + count].fill(Slot::default());
        let aligned = from.abs_diff(to).is_multiple_of(self.large);
        for (slot, moved) in self.slots[to..].iter_mut().zip(moved) {
            let small = |size| if aligned { size } else { Size::Base };
            *slot = Slot { region, mapped: moved.mapped.map(small) };
        }
    }

    fn count(&self, size: Size) -> u64 {
        self.slots.iter().filter(|slot| slot.mapped == Some(size)).count() as u64
    }
}

fn bytes(first: usize, count: usize) -> (u64, u64) {
    (BASE + first as u64 * PAGE, count as u64 * PAGE)
}

fn mmap(first: usize, count: usize) -> Event {
    let (addr, bytes) = bytes(first, count);
    let result = addr as i64;
    let (prot, flags, fd, offset, path, file) = (3, 0x32, -1, 0, None, None);
    Event::Mmap { addr, bytes, prot, flags, fd, offset, path, file, result }
}

/// A random stream of events and accesses, and the model after it.
fn life(seed: u64, large: u64, steps: usize) -> (Vec<Row>, Model) {
    let (mut stream, mut model, mut rows) = (Stream(seed), Model::new(large), Vec::new());
    let pages = model.slots.len() as u64;
    model.map(0, 1);
    rows.push(Row::Event(mmap(0, 1)));
    for _ in 0..steps {
        // Half of all ends lie on boundaries of large pages.
        let end = |stream: &mut Stream| match stream.below(2) {
            0 => stream.below(7) * model.large as u64,
            _ => stream.below(pages + 1),
        };
        let (a, b) = (end(&mut stream) as usize, end(&mut stream) as usize);
        let (first, count) = (a.min(b), a.abs_diff(b));
        let (addr, bytes) = bytes(first, count);
        let what = stream.below(60);
        if what > 4 || count == 0 {
            for _ in 0..6 {
                let page = stream.below(pages - 1) as usize;
                let straddles = stream.below(3) == 0;
                let offset = if straddles { PAGE - 4 } else { stream.below(PAGE - 8) };
                model.access(page, straddles);
                rows.push(Row::Access(Kind::Load, BASE + page as u64 * PAGE + offset, 8));
            }
            continue;
        }
        rows.push(Row::Event(match what {
            0 => {
                model.map(first, count);
                mmap(first, count)
            }
            1 => {
                model.unmap(first, count);
                Event::Munmap { addr, bytes, result: 0 }
            }
            2 => {
                let prot = 1 + 2 * stream.below(2) as u32;
                model.protect(first, count, prot);
                Event::Mprotect { addr, bytes, prot, result: 0 }
            }
            3 => {
                model.discard(first, count);
                Event::Madvise { addr, bytes, advice: 4, result: 0 }
            }
            _ => {
                let count = count.min(model.slots.len() / 2);
                let to = (first + model.slots.len() / 2) % model.slots.len();
                let to = to.min(model.slots.len() - count);
                let region = model.slots[first].region;
                let one = model.slots[first..first + count].iter().all(|s| s.region == region);
                if region.is_none() || !one || first.abs_diff(to) < count {
                    continue;
                }
                model.remap(first, count, to);
                let (new_addr, new_bytes) = self::bytes(to, count);
                let result = new_addr as i64;
                let old_bytes = new_bytes;
                Event::Mremap { addr, old_bytes, new_bytes, flags: 3, new_addr, result }
            }
        }));
    }
    (rows, model)
}

fn agree(results: &Results, model: &Model, context: &str) {
    assert_eq!(results.faults.first_touch, model.first_touches, "{context}");
    // If the host maps memory by base pages, entries of the TLB are base pages too.
    let splintered = results.nested.as_ref().is_some_and(|nested| nested.page_size == "4K");
    let crossings = if splintered { model.straddling } else { model.crossings };
    assert_eq!(results.page_crossings, crossings, "{context}");
    assert_eq!(results.faults.protection, 0, "{context}");
    let large = PageSize::from_bytes(model.large as u64 * PAGE).unwrap().to_string();
    let pages = |size: &str| results.memory.pages_by_size.get(size).copied().unwrap_or(0);
    let counts = (pages("4K"), pages(&large) * model.large as u64);
    assert_eq!(counts, (model.count(Size::Base), model.count(Size::Large)), "{context}");
}

/// Sizes, splits, moves, accesses across pages and faults are equal to those of the model, in a run
/// with checks.
#[test]
fn pages_are_as_large_as_their_regions_allow() {
    let mut splits = 0;
    for seed in 1..=6 {
        let (rows, model) = life(seed, 2 << 20, 1500);
        assert!(model.count(Size::Base) + model.count(Size::Large) > 0);
        splits += model.splits;
        for machine in ["epyc-9005", "xeon-6900p", "opteron-2008", "tlb-only"] {
            let results = run(machine, &["os.page_size=2M"], &rows);
            agree(&results, &model, &format!("{machine}, seed {seed}"));
        }
    }
    assert!(splits > 20, "{splits}");
}

/// Every page table that can map both sizes splits large pages, also in virtual machines.
#[test]
fn every_page_table_makes_pages_small() {
    let (rows, model) = life(7, 2 << 20, 800);
    for table in [
        &["page_table.format=x86-64", "page_table.levels=5"][..],
        &["page_table.format=guarded"],
        &["page_table.format=guarded-adaptive"],
        &["page_table.format=hashed"],
        &["page_table.format=hashed", "page_table.replicated=true"],
        &["page_table.format=hashed", "page_table.software_tlb=8K"],
        &["page_table.format=clustered", "page_table.partial_subblocks=true"],
        &["page_table.format=inverted"],
        &["page_table.format=tsb"],
        &["page_table.format=powerpc"],
        &["page_table.format=elastic-cuckoo"],
        &["nested.page_size=4K"],
        &[
            "nested.page_size=2M",
            "nested.tlb.entries=16",
            "mmu_cache.design=stc",
            "mmu_cache.entries=4",
        ],
        &["mmu_cache.design=utc", "mmu_cache.entries=4"],
        &["mmu_cache.design=tpc", "mmu_cache.entries=4"],
        &["core.contexts=lru", "core.asid_bits=2"],
    ] {
        let results = run("opteron-2008", &[&["os.page_size=2M"], table].concat(), &rows);
        agree(&results, &model, &format!("{table:?}"));
    }
}

/// A machine of TLBs alone can have pages of any size, including those of the MIPS R10000 and of
/// Arm.
#[test]
fn sizes_come_from_the_machine_file() {
    for size in [16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20] {
        let (rows, model) = life(size + 1, size, 400);
        let size = PageSize::from_bytes(size).unwrap();
        let setting = format!("os.page_size={size}");
        let sizes = "[\"4K\",\"16K\",\"64K\",\"256K\",\"1M\",\"4M\",\"16M\"]";
        let all = ["l1i", "l1d", "l2"].map(|tlb| format!("tlb.{tlb}.page_sizes={sizes}"));
        for settings in [&[][..], &[&all[0][..], &all[1], &all[2]]] {
            let results = run("tlb-only", &[&[&setting[..]], settings].concat(), &rows);
            agree(&results, &model, &format!("{size}"));
        }
    }
}

/// Where no event describes a mapping, each aligned block of 2 MiB counts as a region. With
/// `os.uniform`, every page has the given size.
#[test]
fn what_no_event_tells_and_what_is_uniform() {
    let touched: Vec<Row> =
        (0..8).map(|block| Row::Access(Kind::Store, BASE + (block << 20), 8)).collect();
    let pages = |settings: &[&str], rows: &[Row]| {
        run("epyc-9005", settings, rows).memory.pages_by_size.into_iter().collect::<Vec<_>>()
    };
    let some = |size: &str, pages| vec![(size.to_owned(), pages)];
    assert_eq!(pages(&["os.page_size=2M"], &touched), some("2M", 4));
    let no_l2 = ["tlb.l2d.page_sizes=[\"4K\",\"2M\",\"1G\"]", "memory.size=4G"];
    let gigantic = [&no_l2[..], &["os.page_size=1G"]].concat();
    assert_eq!(pages(&gigantic, &touched), some("4K", 8));
    let uniform = [&gigantic[..], &["os.uniform=true"]].concat();
    assert_eq!(pages(&uniform, &touched), some("1G", 1));
    // The trace has a mapping of 3 MiB, and then accesses that no mapping explains.
    let rows = [&[Row::Event(mmap(0, 768))], &touched[..]].concat();
    let mut sizes = some("2M", 1);
    sizes.extend(some("4K", 6));
    assert_eq!(pages(&["os.page_size=2M"], &rows), sizes);
    assert_eq!(pages(&["os.page_size=2M", "os.uniform=true"], &rows), some("2M", 4));
    let says = |settings: &[&str], what: &str| {
        let notes = run("epyc-9005", settings, &rows).not_modelled;
        notes.iter().any(|note| note.contains(what))
    };
    assert!(says(&["os.page_size=2M", "os.uniform=true"], "no operating system could do"));
    assert!(!says(&["os.page_size=2M"], "no operating system could do"));
    assert!(!says(&["os.uniform=true"], "no operating system could do"));
}

/// The page size for addresses that no event explains is the same for the whole run, wherever the
/// first event is. In a trace with mappings it is the base page. If the first mapping comes late,
/// or there is none, it is the size that a trace without mappings gives.
#[test]
fn an_unexplained_address_gets_one_page_size_before_and_after_the_first_mapping() {
    const UNEXPLAINED: u64 = 0x7fff_0000_0000;
    // The number of accesses that are searched for an event.
    const SEARCHED: u64 = 1 << 20;
    let access = |addr| Row::Access(Kind::Store, addr, 8);
    let touched: Vec<Row> =
        (0..3).map(|block| access(UNEXPLAINED + block * (2 << 20) + PAGE)).collect();
    let filler = |count: u64| (0..count).map(move |at| access(UNEXPLAINED + PAGE + at % 64 * 8));
    let told = || [Row::Event(mmap(0, 1024)), access(BASE)];
    let rows = |parts: &[Vec<Row>]| parts.concat();
    let (none, early) = (touched.clone(), rows(&[told().into(), touched.clone()]));
    let soon = rows(&[touched.clone(), told().into()]);
    let between = rows(&[touched[..1].into(), told().into(), touched[1..].into()]);
    let late = rows(&[
        touched[..1].into(),
        filler(SEARCHED).collect(),
        told().into(),
        touched[1..].into(),
    ]);
    // For each manager: the page sizes that a mapping of two blocks gets at its first access, and
    // those of a block without a mapping.
    for settings in [&["os.page_size=2M"][..], &["os.manager=linux"]] {
        let machine =
            |rows: &[Row]| run("epyc-9005", settings, rows).memory.pages_by_size.get("2M").copied();
        let large = |rows: &[Row]| machine(rows).unwrap_or(0);
        let unexplained = large(&none);
        assert!(unexplained > 0, "{settings:?}");
        for rows in [&early, &soon, &between] {
            assert_eq!(large(rows), 1, "{settings:?}");
        }
        assert_eq!(large(&late), 1 + unexplained, "{settings:?}");
    }
}

/// A sweep gives unexplained addresses the page size that a run gives them.
#[test]
fn a_sweep_gives_an_unexplained_address_the_page_size_that_a_run_gives() {
    let access = |block: u64| Row::Access(Kind::Store, 0x7fff_0000_0000 + (block << 21), 8);
    let rows = vec![access(0), Row::Event(mmap(0, 1024)), access(1)];
    let machine = Machine::load("epyc-9005", &["os.page_size=2M".to_owned()]).unwrap();
    let options = machine::sweep::SweepOptions { threads: 1, progress: &mut |_| true };
    let swept = machine::sweep::sweep(&[machine], &mut Rows::new(rows.clone()), options).unwrap();
    let alone = run("epyc-9005", &["os.page_size=2M"], &rows);
    assert_eq!(swept[0].as_ref().unwrap().memory, alone.memory);
    assert_eq!(alone.memory.pages_by_size.get("4K"), Some(&2));
}

/// If no large frame is free, a page gets a base frame. If no frame at all is free, the run ends
/// with an error.
#[test]
fn a_frame_that_is_refused_is_no_end_while_a_smaller_one_is_there() {
    let rows: Vec<Row> = [
        Row::Event(mmap(0, 2048)),
        Row::Access(Kind::Store, BASE, 8),
        Row::Access(Kind::Store, BASE + (2 << 20), 8),
        Row::Access(Kind::Store, BASE + (4 << 20), 8),
    ]
    .into();
    let whole = run("epyc-9005", &["os.page_size=2M"], &rows);
    assert_eq!(whole.memory.pages_by_size["2M"], 3);
    // The first two allocations are the first page's frame and the first table.
    let refused = run("epyc-9005", &["os.page_size=2M", "os.inject=fail-allocation:1"], &rows);
    assert_eq!(refused.memory.pages_by_size["2M"], 2);
    assert_eq!(refused.memory.pages_by_size["4K"], 1);
    for number in 1..=4 {
        let settings = [format!("os.inject=fail-allocation:{number}")];
        let machine = Machine::load("epyc-9005", &settings).unwrap();
        let options = RunOptions { check: true, progress: &mut |_| true };
        let error = machine.run(&mut Rows::new(rows.clone()), options).unwrap_err().to_string();
        assert!(
            error.contains("access 0: os.inject made the allocation of a frame fail"),
            "{error}"
        );
    }
}

/// Errors for page sizes that a first-level TLB cannot hold.
#[test]
fn a_size_that_no_tlb_holds_is_refused() {
    let refused = |machine: &str, settings: &[&str]| {
        let settings: Vec<String> = settings.iter().map(|one| (*one).to_owned()).collect();
        Machine::load(machine, &settings).unwrap_err().to_string()
    };
    let error = refused("r4700", &["page_table.format=x86-64", "os.page_size=2M"]);
    let says = "--set os.page_size=2M: os.page_size: tlb.l1 holds pages of 4K, but not of 2M: \
                add \"2M\" to tlb.l1.page_sizes, or map only pages that it holds";
    assert_eq!(error, says);
    let error = refused("tlb-only", &["tlb.l1d.page_sizes=[\"2M\"]", "os.page_size=2M"]);
    assert!(error.contains("not of 4K (the pages where a region has no room for 2M)"), "{error}");
    let held = "tlb.l1.page_sizes=[\"4K\",\"64K\"]";
    let error = refused("r4700", &["page_table.format=x86-64", held, "os.page_size=64K"]);
    assert!(error.contains("the page table holds pages of 4K, 2M, 1G, not 64K"), "{error}");
    let error = refused("epyc-9005", &["core.asid_bits=13"]);
    let says = "--set core.asid_bits=13: core.asid_bits: a page table of format x86-64 cannot have \
                contexts (ASIDs) of 13 bits: write 0 to 12";
    assert_eq!(error, says);
    assert!(refused("r4700", &["core.asid_bits=17"]).contains("write 0 to 16"));
    let error = refused("epyc-9005", &["os.manager=mine"]);
    assert!(error.contains("os.manager: there is no `mine`: choose first-touch"), "{error}");
    let error = refused("epyc-9005", &["os.inject=skip-everything"]);
    assert!(error.contains("write \"skip-shootdown:N\""), "{error}");
}

/// A missing shootdown is found at the processor that should have received it, or at the access
/// that uses the stale entry.
#[test]
fn a_forgotten_shootdown_is_found() {
    let (rows, _) = life(3, 2 << 20, 600);
    let checked = |machine: &str, settings: &[String]| {
        let machine = Machine::load(machine, settings).unwrap();
        let options = RunOptions { check: true, progress: &mut |_| true };
        machine.run(&mut Rows::new(rows.clone()), options)
    };
    let mut found = 0;
    for machine in ["epyc-9005", "opteron-2008", "tlb-only"] {
        for size in ["4K", "2M"] {
            for number in 1..=12 {
                let settings =
                    [format!("os.page_size={size}"), format!("os.inject=skip-shootdown:{number}")];
                match checked(machine, &settings) {
                    // The skipped shootdown concerned no entry that a TLB held.
                    Ok(_) => continue,
                    Err(error) => {
                        let error = error.to_string();
                        assert!(error.contains("check failed: access "), "{error}");
                        found += u32::from(error.contains("of processor 0 still translates"));
                    }
                }
            }
        }
    }
    assert!(found > 36, "{found}");
}

/// On two processors, the error names the processor that still has the translation which the other
/// processor unmapped.
#[test]
fn a_forgotten_shootdown_is_found_on_its_processor() {
    let rows: Vec<Row> = [
        Row::Event(mmap(0, 8)),
        Row::Event(Event::Run { cpu: Some(1), space: 0 }),
        Row::Access(Kind::Store, BASE, 8),
        Row::Event(Event::Run { cpu: Some(0), space: 0 }),
        Row::Access(Kind::Store, BASE + PAGE, 8),
        Row::Event(Event::Munmap { addr: BASE, bytes: PAGE, result: 0 }),
        Row::Access(Kind::Store, BASE + PAGE, 8),
    ]
    .into();
    let settings = ["core.count=2", "os.inject=skip-shootdown:1"].map(str::to_owned);
    let machine = Machine::load("epyc-9005", &settings).unwrap();
    let options = RunOptions { check: true, progress: &mut |_| true };
    let error = machine.run(&mut Rows::new(rows), options).unwrap_err().to_string();
    assert!(error.contains("access 2: tlb.l1d of processor 1 still translates"), "{error}");
}
