//! The frame allocator of a machine, and memory that was used before a run.
//!
//! ```text
//!   lists, or a buddy system --> scattered --> per node --> placed regions --> segments --> reservations
//! ```

use std::ops::Range;

use addr::{PageSize, PhysAddr};
use description::{
    self, Description, Refusal,
    managers::{self, page_blocks, places},
    units,
};
use physmem::{
    Allocator, Apart, Buddy, Contiguous, FrameId, Nodes, PageBlocks, Physmem, Refusing,
    Reservations, Restrictive, Scattered, SizeLists,
};

use super::{FrameStore, hashed::Kept, topology::Topology};

/// The kind of free lists.
pub enum Lists {
    /// A buddy system.
    Buddy,
    /// Lists by size.
    Sizes(Box<SizeLists>),
    /// A buddy system with page blocks; the number is log2 of the frames of its largest free block.
    Blocks(u32),
}

/// The frames that can be requested by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wished {
    /// None.
    Nowhere,
    /// Frames at the position of an address in its region, within runs of blocks. The number is
    /// log2 of the frames per block.
    Regions(u32),
    /// The frames of restrictive segments, which begin with this frame.
    Segments(FrameId),
}

/// log2 of the number of frames in a page block of Linux, which has 2M.
const BLOCK_ORDER: u32 = 9;

/// Creates the frames of `memory`, all free, in the order of its placement. Base frames have the
/// size `base`. The free lists are `lists`; `reserved` has the sizes of reservations (log2 of
/// frames), and `wished` the frames that can be requested by number. If `apart` is true, the frames
/// of pages are requested one at a time by number.
pub fn frames(
    memory: &description::Memory,
    base: PageSize,
    lists: &dyn Fn(Range<u32>) -> Lists,
    reserved: &[u32],
    wished: Wished,
    apart: bool,
    topology: Option<&Topology>,
) -> Result<FrameStore, String> {
    let one = |frames: Range<u32>| -> Box<dyn Allocator + Send> {
        let allocator: Box<dyn Allocator + Send> = match lists(frames.clone()) {
            Lists::Sizes(lists) => lists,
            Lists::Buddy => Box::new(Buddy::new(frames)),
            Lists::Blocks(max) => Box::new(PageBlocks::new(frames, BLOCK_ORDER, max)),
        };
        match memory.placement {
            Some(seed) => Box::new(Scattered::new(allocator, seed)),
            None => allocator,
        }
    };
    let nodes = topology.map_or(1, |topology| topology.count() as u8);
    let ram = Physmem::on_nodes(PhysAddr::new(0), memory.size.0, base, nodes, |ranges| {
        let all = ranges.iter().fold(0..0, |all, range| all.start..all.end.max(range.end));
        if apart {
            return Refusing::new(Box::new(Apart::new(all)) as Box<dyn Allocator + Send>);
        }
        let allocator = match topology {
            None => match wished {
                Wished::Segments(first) => one(all.start..first.0),
                Wished::Nowhere | Wished::Regions(_) => one(all.clone()),
            },
            Some(topology) => {
                let parts = ranges.iter().map(|range| (range.clone(), one(range.clone())));
                let distance = |from: usize, to: usize| topology.from(from)[to];
                Box::new(Nodes::with_distances(parts.collect(), distance))
            }
        };
        let allocator: Box<dyn Allocator + Send> = match wished {
            Wished::Nowhere => allocator,
            Wished::Regions(order) => Box::new(Contiguous::new(allocator, order)),
            Wished::Segments(first) => {
                Box::new(Restrictive::new(allocator, first, FrameId(all.end)))
            }
        };
        Refusing::new(match reserved {
            [] => allocator,
            _ => Box::new(Reservations::new(allocator, all, reserved)),
        })
    });
    ram.map_err(|error| error.to_string())
}

/// Creates empty free lists for `frames`, or for all frames. They are of the kind that
/// `description` requests or, if it requests none, of the kind that its manager uses.
pub fn lists(
    description: &Description,
    base: PageSize,
    sizes: &[PageSize],
    frames: Option<Range<u32>>,
) -> Result<Lists, Refusal> {
    let memory = &description.memory;
    let own = managers::allocator(&description.os);
    let allocator = memory.allocator.as_deref().unwrap_or(own);
    let order_max = page_blocks(&description.os).unwrap_or(BLOCK_ORDER + 1);
    match allocator {
        "size-lists" => {}
        "buddy" | "page-blocks" if memory.ordered => {
            let what = "only the allocator `size-lists` can order chunks by their movable pages \
                        (memory.ordered): set \
                        memory.allocator=size-lists, or leave memory.ordered out";
            return Err(Refusal::new("memory.ordered", what.to_owned()));
        }
        "buddy" => return Ok(Lists::Buddy),
        "page-blocks" => return Ok(Lists::Blocks(order_max)),
        other => {
            let what =
                format!("there is no allocator `{other}`: choose buddy, page-blocks, size-lists");
            return Err(Refusal::new("memory.allocator", what));
        }
    }
    let error = |error: &dyn std::fmt::Display| Refusal::new("memory.allocator", error.to_string());
    let count = u32::try_from(memory.size.0 >> base.shift())
        .map_err(|_| error(&"memory has 2^32 base frames or more: write a smaller memory.size"))?;
    let largest = PageSize::from_shift(24).unwrap_or(base);
    let mut listed: Vec<PageSize> = sizes.iter().copied().filter(|size| *size < largest).collect();
    // The list of this size always exists, because a node of a page table can be larger than any
    // page.
    listed.push(largest);
    // Each node of memory keeps its share of the requested free large pages.
    let nodes = description.memory.numa.as_ref().map_or(1, |numa| u64::from(numa.nodes.max(1)));
    let frames = frames.unwrap_or(0..count);
    let mut lists = SizeLists::new(frames, base, &listed).map_err(|wrong| error(&wrong))?;
    if memory.ordered {
        lists = lists.ordered();
    }
    for (size, bytes) in description.os.coalesced.iter().flat_map(|daemon| &daemon.watermarks) {
        let pages = (bytes.0 / size.0.bytes()).div_ceil(nodes);
        let order = size.0.shift().saturating_sub(base.shift());
        let is_listed = size.0 > base && sizes.contains(&size.0);
        if !is_listed || !lists.set_high_watermark(order, pages) {
            let listed: Vec<String> =
                sizes.iter().filter(|size| **size > base).map(PageSize::to_string).collect();
            let what = format!(
                "there is no list of free pages of {}: write one of {}",
                size.0,
                listed.join(", ")
            );
            return Err(Refusal::new("os.coalesced.watermarks", what));
        }
    }
    Ok(Lists::Sizes(Box::new(lists)))
}

/// Which frames can be requested by number; `kept` are the restrictive segments.
pub fn wished(
    description: &Description,
    kept: Option<&Kept>,
    topology: Option<&Topology>,
) -> Result<Wished, Refusal> {
    let Some(order) = places(&description.os) else {
        return Ok(kept.map_or(Wished::Nowhere, |kept| Wished::Segments(kept.first())));
    };
    if topology.is_some() {
        let what = "this manager places regions only in a memory of one node: leave [memory.numa] \
                    out";
        return Err(Refusal::new("os.manager", what.to_owned()));
    }
    if description.memory.allocator.as_deref() == Some("size-lists") {
        let what = "os.manager = \"ca\" must know which free frames are adjacent, and these lists \
                    do not show it: choose page-blocks or buddy";
        return Err(Refusal::new("memory.allocator", what.to_owned()));
    }
    Ok(Wished::Regions(order))
}

/// log2 of the frames for each of the `sizes` of reservations; `key` is the table of the machine
/// file that has them.
pub fn reserved(
    description: &Description,
    base: PageSize,
    key: &str,
    sizes: Option<Vec<units::PageSize>>,
) -> Result<Vec<u32>, Refusal> {
    let Some(sizes) = sizes else { return Ok(Vec::new()) };
    let refuse = |what: String| Err(Refusal::new(format!("{key}.sizes"), what));
    if sizes.is_empty() {
        return refuse(format!("the list has no size: write at least one, or leave {key} out"));
    }
    let mut orders = Vec::new();
    for size in sizes.into_iter().map(|size| size.0) {
        if size <= base {
            return refuse(format!(
                "a reservation of {size} is not larger than a page of {base}: choose a larger one"
            ));
        }
        if size.bytes() > description.memory.size.0 {
            return refuse(format!(
                "a reservation of {size} is larger than {}: choose a smaller reservation, or more \
                 memory",
                if key == HOST { "nested.memory" } else { "memory.size" }
            ));
        }
        orders.push(size.shift() - base.shift());
    }
    Ok(orders)
}

/// The key of the table with a host's reservations.
pub const HOST: &str = "nested.reservations";

/// The largest memory that can be aged. Aging uses every frame, and each used frame has a
/// descriptor of 32 bytes.
const AGED_BYTES_MAX: u64 = 16 << 30;

/// Simulates the use of memory before the run, which leaves frames fragmented. Returns the number
/// of frames in use afterwards.
pub fn age(frames: &mut FrameStore, aged: &description::Aged) -> Result<u64, String> {
    if frames.bytes() > AGED_BYTES_MAX {
        let what = "memory.aged fills all of memory, which may therefore have at most 16G: write a \
                    smaller memory.size";
        return Err(what.to_owned());
    }
    let permille = |share: f64| (0.0..=1.0).contains(&share).then_some((share * 1000.0) as u16);
    let (Some(free_permille), Some(wired_permille)) = (permille(aged.free), permille(aged.wired))
    else {
        return Err("free and wired are shares of memory: write numbers from 0 to 1".to_owned());
    };
    let aging = physmem::Aging { free_permille, wired_permille, seed: aged.seed };
    let aged = physmem::age(frames, aging).map_err(|error| error.to_string())?;
    Ok(aged.movable + aged.wired)
}
