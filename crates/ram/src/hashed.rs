//! Frames that depend on addresses, as `[os.mosaic]` and `[os.utopia]` request.
//!
//! ```text
//!   memory  | flexible segment                | arrays | base pages | pages of 2M |
//!                                               filter,  restrictive segments
//!                                               tags
//! ```
//!
//! The arrays of a segment have one byte per set, with the number of its places in use, and a tag of 8
//! bytes per place. Both sizes are assumptions. The operating system reserves their frames at boot.

use std::ops::Range;

use addr::{PageSize, PhysAddr};
use description::{
    self, Description, Refusal, WalkerKind,
    managers::{chooses_frames, huge},
    units::Bytes,
};
use physmem::{FrameId, Iceberg, Segment, State};
use vm::Hashed;

use crate::FrameStore;

/// The bytes of a tag.
pub const TAG_BYTES: u64 = 8;

/// The parts of memory reserved for restrictive segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The segments; the one for base pages comes first.
    pub segments: [Option<Segment>; 2],
    /// For each segment, the addresses of its filter and of its tags.
    pub arrays: [(PhysAddr, PhysAddr); 2],
    /// The frames of the arrays, after which the segments begin.
    frames: (u32, u32),
}

impl Kept {
    /// Allocates the frames of the arrays. Returns their number.
    pub fn take(&self, memory: &mut FrameStore) -> Result<u64, String> {
        for frame in self.frames.0..self.frames.1 {
            if !memory.take(FrameId(frame), 0, State::Kernel) {
                return Err(
                    "the frames for the tags of os.utopia are in use already: give the machine a \
                     larger memory.size"
                        .to_owned(),
                );
            }
        }
        Ok(u64::from(self.frames.1 - self.frames.0))
    }

    /// The first frame of the segments.
    pub fn first(&self) -> FrameId {
        FrameId(self.frames.1)
    }
}

/// The frames that pages may have, if these depend on the addresses of the pages. The error has the
/// key that is wrong.
pub fn hashed(description: &Description) -> Result<Option<Hashed>, Refusal> {
    let base = description.os.frame();
    let Some(mosaic) = &description.os.mosaic else {
        return Ok(kept(description)?.map(|kept| Hashed::Utopia(kept.segments)));
    };
    let count = frames(description, base)?;
    let description::Mosaic { front_yard, back_yard, choices, .. } = *mosaic;
    match Iceberg::new(count, front_yard, back_yard, choices) {
        Some(iceberg) => Ok(Some(Hashed::Mosaic(iceberg))),
        None => {
            let what = format!(
                "a front yard of {front_yard} frames, a back yard of {back_yard} and {choices} choices \
                 of a back yard are not possible in memory.size, {}: write smaller numbers, and a front \
                 yard of 1 frame or more",
                description.memory.size
            );
            Err(Refusal::new("os.mosaic", what))
        }
    }
}

/// The numbers of all base frames.
fn frames(description: &Description, base: PageSize) -> Result<Range<u32>, Refusal> {
    let count = u32::try_from(description.memory.size.0 >> base.shift());
    count.map(|count| 0..count).map_err(|_| {
        Refusal::new(
            "memory.size",
            "memory has more than 2^32 frames: write a smaller \
                                                  size"
                .to_owned(),
        )
    })
}

/// The parts of memory reserved for restrictive segments, if there are any.
pub fn kept(description: &Description) -> Result<Option<Kept>, Refusal> {
    let Some(utopia) = &description.os.utopia else { return Ok(None) };
    let refuse = |key: &str, what: String| Err(Refusal::new(format!("os.utopia{key}"), what));
    let base = description.os.frame();
    let all = frames(description, base)?;
    let size = utopia.size.unwrap_or(Bytes(description.memory.size.0 / 16));
    let large = PageSize::SIZE_2M;
    if utopia.large_size.0 > 0 && (base >= large || huge(&description.os).is_none()) {
        let what = format!(
            "the manager `{}` does not map pages of 2M by itself: write large_size = 0, or use \
             os.manager = \"linux\"",
            description.os.manager
        );
        return refuse(".large_size", what);
    }
    // Segments are placed from the end of memory downwards, aligned to whole pages.
    let pages = if utopia.large_size.0 > 0 { large.count_of(base) as u32 } else { 1 };
    let mut end = all.end / pages * pages;
    let mut segment = |key: &str, size: Bytes, ways: u32, page: PageSize| -> Result<_, Refusal> {
        let order = page.shift() - base.shift();
        let sets = size.0.checked_div(u64::from(ways) << page.shift()).unwrap_or(0);
        if sets == 0 || (sets * u64::from(ways)) << order > u64::from(end) {
            let what = format!(
                "a segment of {size} with sets of {ways} pages of {page} does not fit into \
                 memory.size, {}, or has no set: write another size or other ways",
                description.memory.size
            );
            return Err(Refusal::new(format!("os.utopia{key}"), what));
        }
        let sets = sets as u32;
        end -= (sets * ways) << order;
        Ok(Some(Segment { first: FrameId(end), sets, ways, order }))
    };
    let of_large = match utopia.large_size {
        Bytes(0) => None,
        size => segment(".large_size", size, utopia.large_ways, large)?,
    };
    let of_base = segment(".size", size, utopia.ways, base)?;
    let segments = [of_base, of_large];
    // The filter and the tags of each segment are adjacent.
    let sizes = segments.map(|segment| {
        let places = |of: Segment| u64::from(of.sets * of.ways) * TAG_BYTES;
        segment.map_or((0, 0), |of: Segment| (u64::from(of.sets).next_multiple_of(64), places(of)))
    });
    let bytes: u64 = sizes.iter().map(|(filters, tags)| filters + tags).sum();
    let taken = bytes.div_ceil(base.bytes());
    if 4 * (u64::from(all.end - end) + taken) > 3 * u64::from(all.end) {
        let what = format!(
            "the segments take more than three quarters of memory.size, {}, but page tables and \
             files need a quarter: write smaller sizes",
            description.memory.size
        );
        return refuse("", what);
    }
    let first = end - taken as u32;
    let mut at = u64::from(first) << base.shift();
    let arrays = sizes.map(|(filters, tags)| {
        let place = (PhysAddr::new(at), PhysAddr::new(at + filters));
        at += filters + tags;
        place
    });
    Ok(Some(Kept { segments, arrays, frames: (first, end) }))
}

/// Checks that the manager and all other parts of the machine support frames that depend on
/// addresses, if `description` requests them.
pub fn check(description: &Description) -> Result<(), Refusal> {
    let os = &description.os;
    let refuse = |key: &str, what: String| Err(Refusal::new(key, what));
    let asks_tlb = description.tlb.present().find_map(|(name, _, tlb)| {
        let is_mosaic = tlb.blocks.as_ref().is_some_and(|blocks| blocks.kind == "mosaic");
        is_mosaic.then(|| format!("tlb.{name}.blocks.kind"))
    });
    if let (Some(key), None) = (asks_tlb, &os.mosaic) {
        let what = "TLB entries of kind mosaic need an allocator that chooses frames by hashes: \
                    set os.mosaic={}";
        return refuse(&key, what.to_owned());
    }
    if description.restseg.is_some() && os.utopia.is_none() {
        let what = "[restseg] searches restrictive segments, but memory has none: set os.utopia={}";
        return refuse("restseg", what.to_owned());
    }
    let key = match (&os.mosaic, &os.utopia) {
        (None, None) => return Ok(()),
        (Some(_), Some(_)) => {
            let what = "os.mosaic and os.utopia both say where a page may lie: leave one out";
            return refuse("os.utopia", what.to_owned());
        }
        (Some(_), None) => "os.mosaic",
        (None, Some(_)) => "os.utopia",
    };
    if let Some(why) = chooses_frames(os) {
        let what = format!(
            "the manager `{}` {why}: use os.manager = \"base\", \"linux\", \"ingens\" or \"hawkeye\", \
             or leave {key} out",
            os.manager
        );
        return refuse(key, what);
    }
    let has = [
        (os.eager_paging, "os.eager_paging, which chooses frames itself,"),
        (description.memory.numa.is_some(), "memory.numa"),
        (description.memory.placement.is_some(), "memory.placement"),
        (os.colors.is_some(), "os.colors"),
        (description.nested.is_some(), "[nested]"),
        (description.page_table.is_none(), "a machine without a page table"),
    ];
    if let Some((_, what)) = has.into_iter().find(|(has, _)| *has) {
        return refuse(key, format!("{what} and {key} cannot be used together: leave one out"));
    }
    if description.restseg.is_none() {
        return Ok(());
    }
    let linear = description.page_table.as_ref().is_some_and(|table| table.format == "linear");
    let has = [
        (description.walker.kind == WalkerKind::Software, "walker.kind = \"software\""),
        (linear, "a linear page table"),
        (description.spec_tlb.is_some(), "[spec_tlb]"),
        (description.range_tlb.is_some(), "[range_tlb]"),
        (description.walker.lowest_only, "walker.lowest_only"),
        (
            description.page_table.as_ref().is_some_and(|table| table.software_tlb.is_some()),
            "page_table.software_tlb",
        ),
    ];
    match has.into_iter().find(|(has, _)| *has) {
        Some((_, what)) => refuse(
            "restseg",
            format!("{what} and [restseg] cannot be used together: leave one out"),
        ),
        None => Ok(()),
    }
}
