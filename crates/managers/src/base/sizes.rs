//! Pages of several sizes: requests for them, and when the coalescing daemon runs.

use addr::{PageSize, VirtRange};
use description::{self, DEFAULT_SIZES, Description, Refusal};
use hat::HatSpace;
use os::{Platform, events::Upgraded};
use physmem::{Coalesced, Level};
use ram::Failure;
use results::{DaemonCounts, DaemonSample, LevelPasses};
use trace::Event;
use vm::{Fallback, Module, Refused, Vm};

use super::{Base, Daemon, Larger, Sizes, nodes};
use crate::{
    place::{Kind, Mapped, Rules},
    wish::Wish,
};

/// The largest number of samples of the daemon's work over time. When there are more, pairs of
/// samples are merged.
const SAMPLES_MAX: usize = 256;
/// The size that `MADV_HUGEPAGE` requests: 2M, as in Linux on x86-64. If the machine does not have
/// it, the next smaller size is requested.
const ADVISED: PageSize = description::Os::ADVISED;

/// Whether all first-level TLBs hold pages of `size`.
pub(super) fn is_held(description: &Description, size: PageSize) -> bool {
    description.tlb.present().filter(|(_, level, _)| *level == 1).all(|(_, _, tlb)| {
        let arrays = tlb.arrays();
        let own = || arrays.iter().filter_map(|array| array.page_sizes.as_ref());
        let mut listed = own().chain(&tlb.page_sizes).flatten().peekable();
        listed.peek().is_none() || listed.any(|held| held.0 == size)
    })
}

/// Checks that the machine and its manager support what the rules request.
fn check_rules(rules: &Rules, description: &Description, larger: Larger) -> Result<(), String> {
    if let (Some(line), Larger::Transparent) = (rules.waits(), larger) {
        return Err(format!(
            "line {line}: no fault waits for a large page under the manager `linux`: leave out `wait`"
        ));
    }
    let nodes = description.memory.numa.as_ref().map_or(1, |numa| numa.nodes);
    let (first, named) = rules.nodes();
    if let (Some(line), 1) = (first, nodes) {
        return Err(format!(
            "line {line}: the machine has only one memory node: write [memory.numa] with nodes = \
             2 or more, or leave \
             the node out"
        ));
    }
    if let Some((line, node)) = named.filter(|(_, node)| *node >= nodes) {
        return Err(format!(
            "line {line}: there is no node {node}: the highest node is {}",
            nodes - 1
        ));
    }
    if let (Some(line), Larger::Transparent) = (rules.migrates(), larger) {
        return Err(format!(
            "line {line}: pages of the manager `linux` stay on their nodes: leave out `migrate`"
        ));
    }
    Ok(())
}

impl Sizes {
    /// The initial state that `description` requests. `larger` says why the manager makes larger
    /// pages.
    pub(super) fn new(
        description: &Description,
        vm: &Vm,
        sizes: &[PageSize],
        larger: Larger,
    ) -> Result<Sizes, Refusal> {
        let os = &description.os;
        let refuse = |key: &str, what: String| Refusal::new(key, what);
        let rules = Rules::parse(&os.place, sizes).map_err(|what| refuse("os.place", what))?;
        check_rules(&rules, description, larger).map_err(|what| refuse("os.place", what))?;
        for (name, level, tlb) in description.tlb.present().filter(|_| sizes.len() > 1) {
            let mut held: Vec<PageSize> = tlb
                .arrays()
                .iter()
                .flat_map(|array| array.page_sizes.clone().or_else(|| tlb.page_sizes.clone()))
                .flatten()
                .map(|size| size.0)
                .collect();
            // A TLB for which the machine file names no sizes can hold all sizes that reservations
            // and promotions can make.
            if held.is_empty() {
                if !matches!(larger, Larger::None | Larger::Wished) {
                    continue;
                }
                held.extend(DEFAULT_SIZES);
            }
            if let Some(size) = sizes.iter().find(|size| level == 1 && !held.contains(size)) {
                let all: Vec<String> = sizes.iter().map(|size| format!("\"{size}\"")).collect();
                let what = format!(
                    "it must list each page size that the manager maps, but {size} is missing: \
                     write \
                     page_sizes = [{}]",
                    all.join(", ")
                );
                return Err(refuse(&format!("tlb.{name}.page_sizes"), what));
            }
        }
        let paired = description.tlb.present().find(|(_, _, tlb)| tlb.paired);
        let fills = matches!(larger, Larger::Reserved | Larger::Transparent);
        if let (Some((name, _, _)), true, true) = (paired, fills, sizes.len() > 1) {
            let what = "the two pages of a pair must have the same size, but this manager makes one \
                        of them large without the other: set this key to false, or use os.manager = \
                        \"irix\"";
            return Err(refuse(&format!("tlb.{name}.paired"), what.to_owned()));
        }
        let daemon = match &os.coalesced {
            Some(coalesced) => Some(Daemon::new(coalesced, description, vm, sizes)?),
            None => None,
        };
        let moves_per_us = os.moves_per_us.unwrap_or(0.0);
        if !(moves_per_us >= 0.0 && moves_per_us.is_finite()) {
            let what = "write 0 or more pages per microsecond".to_owned();
            return Err(refuse("os.moves_per_us", what));
        }
        let promotes_to = sizes[1..].to_vec();
        let is_paired = paired.is_some();
        Ok(Sizes {
            rules,
            larger,
            moves_per_us,
            daemon,
            promotes_to,
            is_paired,
            ..Sizes::default()
        })
    }

    /// If the daemon is due, the number of migrations that it may make.
    pub(super) fn due(&mut self, now: u64) -> Option<u64> {
        let daemon = self.daemon.as_mut()?;
        daemon.ran = now >= daemon.next;
        daemon.ran.then(|| {
            daemon.next = now + daemon.period;
            daemon.moves
        })
    }

    /// Delays the daemon's next pass by `cycles` if it just ran, so that its sleep begins at the end of its
    /// pass.
    pub(super) fn put_off(&mut self, cycles: u64) {
        if let Some(daemon) = self.daemon.as_mut().filter(|daemon| daemon.ran) {
            daemon.next += cycles;
        }
    }

    /// Records the results of a pass.
    pub(super) fn passed(&mut self, pass: DaemonSample) {
        if let Some(daemon) = &mut self.daemon {
            daemon.note(pass);
        }
    }
}

impl Daemon {
    fn new(
        coalesced: &description::Coalesced,
        description: &Description,
        vm: &Vm,
        sizes: &[PageSize],
    ) -> Result<Daemon, Refusal> {
        let refuse = |key: &str, what: &str| {
            Err(Refusal::new(format!("os.coalesced.{key}"), what.to_owned()))
        };
        if !(0.0..=1.0).contains(&coalesced.mild_share) {
            return refuse("mild_share", "write a share of a chunk from 0 to 1, as in 0.25");
        }
        if coalesced.period_cycles == 0 {
            return refuse(
                "period_cycles",
                "with 0, the daemon would run all the time: write 1 or \
                                            more",
            );
        }
        let wanted: u64 = coalesced.watermarks.values().map(|bytes| bytes.0).sum();
        let memory_bytes = description.memory.size.0;
        if wanted > memory_bytes {
            let what = format!(
                "all watermarks together are {wanted} bytes, more than memory.size, {memory_bytes} \
                 bytes: lower them"
            );
            return refuse("watermarks", &what);
        }
        let base = vm.base();
        let thresholds: Vec<(u32, u64)> = sizes[1..]
            .iter()
            .map(|size| {
                let order = size.shift() - base.shift();
                (order, ((1u64 << order) as f64 * coalesced.mild_share) as u64)
            })
            .filter(|(order, _)| *order <= 12)
            .collect();
        let frames = (description.memory.size.0 >> base.shift()) as u32;
        let level = match coalesced.level {
            description::Level::Weak => Level::Weak,
            description::Level::Mild => Level::Mild,
            description::Level::Strong => Level::Strong,
        };
        let daemon = Coalesced::new(0..frames, &thresholds, coalesced.strong_after);
        vm.set_daemon(daemon.at_most(level));
        Ok(Daemon {
            period: coalesced.period_cycles,
            next: coalesced.period_cycles,
            moves: coalesced.moves,
            passes: Vec::new(),
            stride: 1,
            since: DaemonSample::default(),
            ran: false,
        })
    }

    fn note(&mut self, pass: DaemonSample) {
        self.since.add(&pass);
        if self.since.passes < self.stride {
            return;
        }
        self.passes.push(std::mem::take(&mut self.since));
        if self.passes.len() > SAMPLES_MAX {
            let pairs = self.passes.chunks(2).map(|pair| {
                let mut both = DaemonSample::default();
                pair.iter().for_each(|one| both.add(one));
                both
            });
            self.passes = pairs.collect();
            self.stride *= 2;
        }
    }
}

impl Base {
    /// Attaches the modules (page-size policies) that rules request for the mapping `mapped`.
    pub(super) fn place(
        &mut self,
        number: u32,
        space: HatSpace,
        mapped: &Mapped<'_>,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        if self.module != Module::default() {
            let module = self.module;
            self.with(platform, |kernel| kernel.attach(space, mapped.range, module))?;
        }
        for (range, wish) in self.sizes.rules.wishes(mapped) {
            let module = self.module(wish);
            self.attach(number, space, range, module, platform)?;
        }
        Ok(())
    }

    /// Attaches the module that rules request for the allocation in `event`.
    pub(super) fn allocated(
        &mut self,
        number: u32,
        event: &Event,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        if !self.sizes.rules.has_sites() {
            return Ok(());
        }
        let found = self.sizes.rules.allocated(number, event, platform.layout());
        let Some((range, wish)) = found else { return Ok(()) };
        let space = self.space(number, platform)?;
        let module = self.module(wish);
        self.attach(number, space, range, module, platform)?;
        let mapped = Mapped { range, kind: Kind::Other, name: "" };
        for (range, wish) in self.sizes.rules.of_kinds(&mapped, true) {
            let module = self.module(wish);
            self.attach(number, space, range, module, platform)?;
        }
        Ok(())
    }

    fn module(&self, wish: Wish) -> Module {
        let moves = wish.wait_us.map(|time| (time as f64 * self.sizes.moves_per_us) as u64);
        let fallback = moves.map_or(Fallback::Smaller, Fallback::Wait);
        // If the system uses large pages without a request, a request for base pages excludes them.
        let asks = wish.size > self.vm.base() || self.vm.thp().is_some();
        let page_size = Some(wish.size).filter(|_| asks);
        let module = Module { page_size, fallback, ..self.module };
        nodes::wished(module, &wish)
    }

    /// Attaches a module to a range of a space. The space counts as using pages of several sizes
    /// from now on.
    pub(super) fn attach(
        &mut self,
        number: u32,
        space: HatSpace,
        range: VirtRange,
        module: Module,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        if !matches!(self.sizes.larger, Larger::Wished | Larger::Transparent) {
            return Ok(());
        }
        self.sizes.asked.insert(number);
        self.with(platform, |kernel| kernel.attach(space, range, module))
    }

    /// The size that advice requests: the largest page size that is not larger than the size in
    /// Linux.
    pub(super) fn advised(&self) -> PageSize {
        let sizes = self.sizes.promotes_to.iter().rev();
        let size = sizes.copied().find(|size| *size <= ADVISED);
        size.unwrap_or(self.vm.base())
    }

    /// Makes the pages of a range as large as advice can request. If the call failed in the
    /// recording, only the manager `linux` can determine what the call did before it failed
    /// (`madvise_collapse`).
    pub(super) fn upgrade(
        &mut self,
        number: u32,
        space: HatSpace,
        range: VirtRange,
        came: Upgraded,
        platform: &mut dyn Platform,
    ) -> Result<(), Failure> {
        if self.sizes.larger == Larger::Transparent && !self.can_collapse {
            return Ok(());
        }
        if self.sizes.larger == Larger::Transparent {
            // A kernel that does not support the call refuses every call in the trace.
            self.sizes.knows_collapse |= came != Upgraded::Refused;
            let refused = match came {
                Upgraded::All | Upgraded::Some => Refused::No,
                Upgraded::Refused if self.sizes.knows_collapse => Refused::Known,
                Upgraded::Refused => Refused::Unknown,
            };
            return self
                .with(platform, |kernel| kernel.collapse(space, range, refused).map(|_| ()));
        }
        if self.sizes.larger != Larger::Wished || came != Upgraded::All {
            return Ok(());
        }
        self.sizes.asked.insert(number);
        let size = self.advised();
        self.with(platform, |kernel| kernel.upgrade(space, range, size).map(|_| ()))
    }

    /// Counts of the daemon.
    pub(super) fn daemon_counts(&self) -> Option<DaemonCounts> {
        let passes = self.vm.daemon_passes()?;
        let levels = passes
            .into_iter()
            .map(|(level, passes, made)| (level.name().to_owned(), LevelPasses { passes, made }));
        let over_time = self.sizes.daemon.as_ref().map(|daemon| {
            let rest = Some(daemon.since).filter(|rest| rest.passes > 0);
            daemon.passes.iter().copied().chain(rest).collect()
        });
        Some(DaemonCounts { levels: levels.collect(), over_time: over_time.unwrap_or_default() })
    }
}
