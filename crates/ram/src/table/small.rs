//! The addresses of slots for small spaces, by the machine's way of relocating addresses.

use addr::{VirtAddr, VirtRange};
use description::{Description, Refusal, units::Bytes};
use hat::small::{LayoutError, SlotLayout};

use super::{Format, Relocation};

/// How addresses are relocated on a machine whose `description` requests small spaces.
pub fn relocation(description: &Description) -> Result<Relocation, Refusal> {
    let table = description.page_table.as_ref().filter(|table| table.software_tlb.is_none());
    let format = table.and_then(|table| Format::named(&table.format));
    format.and_then(|format| format.relocation).ok_or_else(|| {
        let all = Format::ALL.into_iter().filter(|format| format.relocation.is_some());
        let names: Vec<&str> = all.map(|format| format.name).collect();
        let what = format!(
            "small spaces need segments or a PID register, which only processors of 32 bits have: \
             choose page_table.format from {}, without page_table.software_tlb",
            names.join(", ")
        );
        Refusal::new("os.small", what)
    })
}

/// The slots that `description` requests, in the area of its page table in which tables of other
/// spaces can be visible.
pub fn layout(description: &Description) -> Result<Option<SlotLayout>, Refusal> {
    let Some(small) = &description.os.small else { return Ok(None) };
    let refuse = |key: &str, what: String| Err(Refusal::new(format!("os.small{key}"), what));
    let relocation = relocation(description)?;
    let Relocation { covers, slots_max, has_global, .. } = relocation;
    let has = [
        (description.core.asid_bits > 0, "core.asid_bits above 0"),
        (description.nested.is_some(), "[nested]"),
        (description.spec_tlb.is_some(), "[spec_tlb]"),
        (description.os.promotion.is_some(), "[os.promotion]"),
        (has_global && !description.core.global_pages, "core.global_pages = false"),
        (description.range_tlb.is_some(), "[range_tlb]"),
        (description.restseg.is_some(), "[restseg]"),
        (description.memory.numa.is_some(), "[memory.numa]"),
        (description.tlb.present().any(|(_, _, tlb)| tlb.paired), "paired TLBs"),
        (description.tlb.present().any(|(_, _, tlb)| tlb.blocks.is_some()), "blocks of pages"),
    ];
    if let Some((_, what)) = has.into_iter().find(|(has, _)| *has) {
        return refuse(
            "",
            format!("{what} and small spaces cannot be used together: leave one out"),
        );
    }
    let area = small.area.unwrap_or(Bytes(relocation.area));
    let slot = small.slot.unwrap_or(Bytes(relocation.slot));
    if relocation.is_fixed && slot.0 != relocation.slot {
        let own = Bytes(relocation.slot);
        let what = format!("a PID register has slots of {own}: leave os.small.slot out");
        return refuse(".slot", what);
    }
    // The largest slot size that leaves at least one slot's worth of addresses to large spaces.
    let sizes = (0..).map(|shift| covers << shift);
    let slot_max = sizes.take_while(|slot| relocation.end / slot > 1).last().unwrap_or(covers);
    if !slot.0.is_power_of_two() || slot.0 < covers || slot.0 > slot_max {
        let sizes = match (Bytes(covers), Bytes(slot_max)) {
            (least, most) if least == most => least.to_string(),
            (least, most) => format!("a power of two from {least} to {most}"),
        };
        let what = format!(
            "a slot of {slot} is not possible: write {sizes}; an entry of a root of this table \
             covers {}",
            Bytes(covers)
        );
        return refuse(".slot", what);
    }
    // Slots begin at multiples of their size.
    let end = VirtAddr::new(relocation.end / slot.0 * slot.0);
    let range = end.get().checked_sub(area.0).filter(|start| *start > 0 && area.0 > 0);
    let range = range.and_then(|start| VirtRange::new(VirtAddr::new(start), area.0).ok());
    let Some(range) = range else {
        let most = Bytes(end.get() - slot.0);
        let what = format!(
            "the area ends at {end}, so an area of {area} has no room: write {most} or less"
        );
        return refuse(".area", what);
    };
    match SlotLayout::new(range, slot.0, covers) {
        Ok(layout) if u64::from(layout.slots()) > slots_max => {
            let most = Bytes(slots_max * slot.0);
            let what = format!(
                "an area of {area} has {} slots, but the 16 domains of the processor, one of which \
                 is the kernel's, can separate only {slots_max} spaces: write {most} or less",
                layout.slots()
            );
            refuse(".area", what)
        }
        Ok(layout) => Ok(Some(layout)),
        Err(LayoutError::Slot { .. }) => unreachable!("the size of a slot has been checked above"),
        Err(LayoutError::Area(_)) => {
            let what = format!(
                "the area has {area}, which is not a multiple of a slot's {slot}: write a multiple \
                  of {slot}; the area ends at {end}"
            );
            refuse(".area", what)
        }
    }
}
