//! A SpecTLB beside the walker: its prediction for each walk, and the benefit of this prediction
//! (B10 chapter 6).
//!
//! ```text
//!   walk --> references --> fault ------> absent, denied, or nothing said
//!             |                |
//!             |                v  the operating system; the walk again
//!             \---------> page found ---> right, broken, chance, or nothing said
//!                              |
//!                              v
//!                         the access itself: what serves it, while the walk is under way
//! ```
//!
//! A prediction changes nothing: the walk is made in any case, with the same references. One walker
//! can therefore have many SpecTLBs, and a sweep over their sizes needs only one walker.

use addr::{Asid, Kind, PageSize, PhysAddr, VirtAddr};
use mmu::{
    Offsets, OffsetsParams, Policy, Served, SpecFill, SpecTlb, SpecTlbParams, Speculation, Spot,
};

use description::{self, Description, Refusal};
use rustc_hash::FxHashSet;

/// The references that a walk has made up to its end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Made {
    pub(super) served: [u64; Served::COUNT],
    /// The cache or memory that served the last entry of the walk.
    pub(super) pte: Option<Served>,
    pub(super) cycles: u64,
    /// The number of references that a walk need not wait for: those of walks of the host whose end
    /// was predicted correctly.
    pub(super) spared: u64,
}

impl Made {
    /// The references that were made after the state `before`.
    pub(super) fn since(&self, before: &Made) -> Made {
        let served = std::array::from_fn(|place| self.served[place] - before.served[place]);
        let (cycles, spared) = (self.cycles - before.cycles, self.spared - before.spared);
        Made { served, cycles, spared, ..*self }
    }

    /// The number of references on the critical path if the end of the guest's walk is not
    /// predicted.
    pub(super) fn critical(&self) -> u64 {
        self.served.iter().sum::<u64>() - self.spared
    }
}

/// Counts of the walks whose prediction by a SpecTLB had one outcome (such as correct or wrong).
#[derive(Clone, Debug, Default)]
pub struct PredictedWalks {
    pub walks: u64,
    /// References of the walks with this outcome, by the cache or memory that served them. The next
    /// field counts only the reference to the last entry of each walk.
    pub references: [u64; Served::COUNT],
    pub ptes: [u64; Served::COUNT],
    /// The cycles of the references of the walks with this outcome.
    pub cycles: u64,
    /// The accesses that caused these walks, by kind and by the cache or memory that served them.
    pub accesses: [[u64; Served::COUNT]; Kind::COUNT],
}

impl PredictedWalks {
    /// The sum of `self` and `other`. It is used for walks that faulted, whose accesses have not
    /// been made yet.
    pub fn plus(mut self, other: &PredictedWalks) -> PredictedWalks {
        let PredictedWalks { walks, references, ptes, cycles, accesses: _ } = other;
        self.walks += walks;
        self.cycles += cycles;
        for place in 0..Served::COUNT {
            self.references[place] += references[place];
            self.ptes[place] += ptes[place];
        }
        self
    }
}

/// The frames that devices own.
#[derive(Clone, Debug)]
pub(super) struct DeviceFrames {
    size: PageSize,
    frames: FxHashSet<PhysAddr>,
}

impl DeviceFrames {
    /// An empty set of frames of the size `size`.
    pub(super) fn new(size: PageSize) -> DeviceFrames {
        DeviceFrames { size, frames: FxHashSet::default() }
    }

    pub(super) fn lend(&mut self, frame: PhysAddr, lent: bool) {
        if lent {
            self.frames.insert(frame);
        } else {
            self.frames.remove(&frame);
        }
    }

    /// Whether a device owns the frame at `place`.
    fn have(&self, place: PhysAddr) -> bool {
        self.frames.contains(&place.align_down(self.size))
    }
}

/// Counts by the outcome of a prediction, for walks that found their page and for walks that
/// faulted.
#[derive(Clone, Debug, Default)]
pub struct SpecCensus {
    pub found: [PredictedWalks; Speculation::ALL.len()],
    pub faulted: [PredictedWalks; Speculation::ALL.len()],
    /// Predicted addresses that a device owned.
    pub devices: u64,
    /// References on the critical path, which are the references that overlap with no correct
    /// prediction.
    pub critical: u64,
}

/// A predictor of the page at which a walk ends.
#[derive(Clone, Debug)]
pub enum Predictor {
    /// A SpecTLB. It predicts a page from its position in a large page, in which each base page has
    /// a fixed position.
    Places(SpecTlb),
    /// A table that predicts from the offsets that were recorded for each instruction.
    Offsets(Offsets),
}

/// The name of the second predictor in `spec_tlb.fill`.
const OFFSETS: &str = "offsets";

impl Predictor {
    fn predicts(&self, va: VirtAddr, by: Option<u64>, asid: Asid) -> Option<PhysAddr> {
        match self {
            Predictor::Places(tlb) => tlb.predicts(va, asid),
            Predictor::Offsets(offsets) => offsets.predicts(va, by?, asid),
        }
    }

    fn walked(
        &mut self,
        (va, by, asid): (VirtAddr, Option<u64>, Asid),
        there: Option<Spot>,
    ) -> Speculation {
        match (self, by) {
            (Predictor::Places(tlb), _) => tlb.walked(va, asid, there),
            (Predictor::Offsets(offsets), Some(by)) => offsets.walked(va, by, asid, there),
            (Predictor::Offsets(_), None) => Speculation::None,
        }
    }

    fn clear(&mut self) {
        match self {
            Predictor::Places(tlb) => tlb.clear(),
            Predictor::Offsets(offsets) => offsets.clear(),
        }
    }

    /// The numbers of entries and ways.
    pub const fn geometry(&self) -> (u32, u32) {
        match self {
            Predictor::Places(tlb) => (tlb.params().entries, tlb.params().ways),
            Predictor::Offsets(offsets) => (offsets.params().entries, offsets.params().ways),
        }
    }

    /// The names of the predictor's replacement policy, of the page size of an entry, and of the
    /// source of its entries.
    pub fn names(&self) -> [String; 3] {
        match self {
            Predictor::Places(tlb) => {
                let SpecTlbParams { replacement, page_size, fill, .. } = tlb.params();
                [replacement.to_string(), page_size.to_string(), fill.name().to_owned()]
            }
            Predictor::Offsets(_) => ["lru", "any", OFFSETS].map(str::to_owned),
        }
    }
}

/// A predictor with its counts.
#[derive(Clone, Debug)]
pub struct Speculator {
    pub tlb: Predictor,
    keeps_on_switch: bool,
    /// Whether the predictor's memory requests are marked as speculative, so that no such request
    /// reaches a device.
    pub tagged: bool,
    last: Speculation,
    pub counts: SpecCensus,
}

impl Speculator {
    /// Resets the counts to zero; its entries stay.
    pub(super) fn forget_counts(&mut self) {
        let Speculator { tlb: _, keeps_on_switch: _, tagged: _, last: _, counts } = self;
        *counts = SpecCensus::default();
    }

    /// The predictor in `description`, if there is one. The error has the key that is wrong.
    pub(super) fn of(
        description: &Description,
        sizes: &[PageSize],
    ) -> Result<Option<Speculator>, Refusal> {
        let Some(described) = &description.spec_tlb else { return Ok(None) };
        let own = |Refusal { key, what }: Refusal| Refusal::new(format!("spec_tlb.{key}"), what);
        if description.walker.kind == description::WalkerKind::Software {
            let what = "software refills the TLB, so no walk runs in parallel with the access: set \
                        walker.kind=hardware, or leave [spec_tlb] out";
            return Err(Refusal::new("spec_tlb", what.to_owned()));
        }
        if description.page_table.is_none() {
            let what = "the machine has no page table, so no walk can check a prediction: leave \
                        [spec_tlb] out, or give the machine a page_table";
            return Err(Refusal::new("spec_tlb", what.to_owned()));
        }
        if described.fill == OFFSETS {
            let offsets = offsets(described).map_err(own)?;
            return Ok(Some(Speculator::new(Predictor::Offsets(offsets), described)));
        }
        let params = params(described, sizes, description.marks_reservations()).map_err(own)?;
        let tlb = SpecTlb::new(params)
            .map_err(|error| own(Refusal::new("entries", error.to_string())))?;
        Ok(Some(Speculator::new(Predictor::Places(tlb), described)))
    }

    /// Whether the predictor needs runs of pages and the instructions of accesses.
    pub const fn wants_runs(&self) -> bool {
        matches!(self.tlb, Predictor::Offsets(_))
    }

    /// The predictor of the host `nested`, whose page table supports pages of `sizes`.
    pub(super) fn of_host(
        nested: &description::Nested,
        sizes: &[PageSize],
    ) -> Result<Option<Speculator>, Refusal> {
        let Some(described) = &nested.spec_tlb else { return Ok(None) };
        let own =
            |Refusal { key, what }: Refusal| Refusal::new(format!("nested.spec_tlb.{key}"), what);
        let set = [
            ("keeps_absent", described.keeps_absent),
            ("keeps_on_switch", described.keeps_on_switch),
            ("tagged", described.tagged),
        ];
        if let Some((key, _)) = set.into_iter().find(|(_, is_set)| *is_set) {
            let what = format!(
                "the host has one address space, in which every walk finds its page: leave \
                 nested.spec_tlb.{key} out"
            );
            return Err(own(Refusal::new(key, what)));
        }
        if described.fill == OFFSETS {
            let what = "with fill = offsets, entries are for instructions, but walks of the host \
                        belong to no instruction: write heuristic";
            return Err(own(Refusal::new("fill", what.to_owned())));
        }
        let params = params(described, sizes, false).map_err(own)?;
        let tlb = SpecTlb::new(params)
            .map_err(|error| own(Refusal::new("entries", error.to_string())))?;
        Ok(Some(Speculator::new(Predictor::Places(tlb), described)))
    }

    fn new(tlb: Predictor, described: &description::SpecTlb) -> Speculator {
        Speculator {
            tlb,
            keeps_on_switch: described.keeps_on_switch,
            tagged: described.tagged,
            last: Speculation::None,
            counts: SpecCensus::default(),
        }
    }

    /// Updates the predictor after a walk that found the page `there`. If `faulted`, the walk
    /// faulted, and `there` is the page that forbids the access, if there is one.
    pub(super) fn walked(
        &mut self,
        (va, by, asid): (VirtAddr, Option<u64>, Asid),
        there: Option<Spot>,
        faulted: bool,
        made: &Made,
        devices: Option<&DeviceFrames>,
    ) {
        if let Some(devices) = devices.filter(|devices| !devices.frames.is_empty()) {
            let place = self.tlb.predicts(va, by, asid);
            self.counts.devices += u64::from(place.is_some_and(|place| devices.have(place)));
        }
        self.last = self.tlb.walked((va, by, asid), there);
        let is_overlapped = self.is_right() && !faulted;
        self.counts.critical += if is_overlapped { 0 } else { made.critical() };
        let counts = if faulted { &mut self.counts.faulted } else { &mut self.counts.found };
        let said = &mut counts[self.last as usize];
        said.walks += 1;
        said.cycles += made.cycles;
        for (sum, count) in said.references.iter_mut().zip(made.served) {
            *sum += count;
        }
        if let Some(place) = made.pte {
            said.ptes[place as usize] += 1;
        }
    }

    /// Whether the prediction for the last walk was correct.
    pub(super) fn is_right(&self) -> bool {
        self.last == Speculation::Right
    }

    /// Counts the access for which the last walk was made, by the cache or memory that served it.
    pub(super) fn accessed(&mut self, kind: Kind, served: Served) {
        self.counts.found[self.last as usize].accesses[kind as usize][served as usize] += 1;
    }

    /// Records that the processor switched to another space.
    pub(super) fn switched(&mut self) {
        if !self.keeps_on_switch {
            self.tlb.clear();
        }
    }
}

/// A table of offsets.
fn offsets(described: &description::SpecTlb) -> Result<Offsets, Refusal> {
    if described.keeps_absent {
        let what = "with fill = offsets, entries are always kept after a wrong prediction: leave \
                    keeps_absent out";
        return Err(Refusal::new("keeps_absent", what.to_owned()));
    }
    if described.replacement.parse() != Ok(Policy::Lru) {
        let what = "with fill = offsets, the only replacement policy is lru: write lru";
        return Err(Refusal::new("replacement", what.to_owned()));
    }
    if described.pages_min > Spot::RUN_MAX {
        return Err(Refusal::new("pages_min", format!("write {} or less", Spot::RUN_MAX)));
    }
    let ways = described.ways.of(described.entries);
    let params = OffsetsParams { entries: described.entries, ways, pages_min: described.pages_min };
    Offsets::new(params).map_err(|error| Refusal::new("entries", error.to_string()))
}

/// The predictor's parameters, for a page table with pages of `sizes`. `has_marks` says whether the
/// operating system marks the entries of pages in reservations.
fn params(
    described: &description::SpecTlb,
    sizes: &[PageSize],
    has_marks: bool,
) -> Result<SpecTlbParams, Refusal> {
    let page_size = described.page_size.0;
    let larger: Vec<String> = sizes.iter().skip(1).map(ToString::to_string).collect();
    if !sizes.iter().skip(1).any(|size| *size == page_size) {
        let what = match larger.as_slice() {
            [] => "the page table has no pages larger than base pages, in which base pages could \
                   have positions: choose another page_table.format, or leave [spec_tlb] out"
                .to_owned(),
            _ => format!(
                "the page table has no large pages of {page_size}: choose one of {}",
                larger.join(", ")
            ),
        };
        return Err(Refusal::new("page_size", what));
    }
    let Some(fill) = SpecFill::ALL.into_iter().find(|fill| fill.name() == described.fill) else {
        let known = SpecFill::ALL.map(SpecFill::name).join(", ") + ", " + OFFSETS;
        return Err(Refusal::new(
            "fill",
            format!("there is no `{}`: choose one of {known}", described.fill),
        ));
    };
    if fill == SpecFill::Marks && !has_marks {
        let what = "the operating system sets no marks: use os.manager = \"freebsd\" with \
                    os.reservations.marks, or fill = \"heuristic\"";
        return Err(Refusal::new("fill", what.to_owned()));
    }
    Ok(SpecTlbParams {
        entries: described.entries,
        ways: described.ways.of(described.entries),
        replacement: described
            .replacement
            .parse()
            .map_err(|error| Refusal::new("replacement", format!("{error}")))?,
        seed: described.seed,
        page_size,
        fill,
        keeps_absent: described.keeps_absent,
    })
}
