//! The settings of a manager, from a machine file.

use addr::PageSize;
use description::{self, Description, Refusal, WalkerKind, managers::reservations, units::Bytes};
use ram::{Ram, hashed::hashed};
use vm::{Marks, Reference, Reserving, Settings};

/// The settings of a manager with this memory, from a machine file.
pub(super) fn settings<'a>(
    description: &Description,
    ram: &Ram,
    sizes: &'a [PageSize],
) -> Result<Settings<'a>, Refusal> {
    let refuse = |key: &str, what: String| Err(Refusal::new(key, what));
    let base = sizes[0];
    let in_pages = |bytes: u64| bytes >> base.shift();
    let swap_bytes = description.swap.as_ref().map_or(0, |swap| swap.size.0);
    let Ok(swap_pages) = u32::try_from(in_pages(swap_bytes)) else {
        return refuse(
            "swap.size",
            format!("swap can have at most 4294967295 pages of {base}: write a smaller size"),
        );
    };
    let all = in_pages(description.memory.size.0);
    let marks = match &description.os.marks {
        None => Marks::of(all, base),
        Some(asked) => marks(asked, description.memory.size, base)
            .map_err(|what| Refusal::new("os.marks", what))?,
    };
    let known = vm::POLICIES.iter().map(|(name, _)| *name);
    let name = description.os.replacement.as_str();
    let Some(replacement) = known.clone().find(|known| *known == name) else {
        let names: Vec<&str> = known.collect();
        let what = format!("there is no `{name}`: choose {}", names.join(", "));
        return refuse("os.replacement", what);
    };
    // A hardware walker sets accessed and dirty bits in the entries; a software handler does not.
    let hardware = description.walker.kind == WalkerKind::Hardware && !ram.is_linear();
    let reference = if hardware { Reference::Hardware } else { Reference::ValidBit };
    let reserving = reservations(&description.os).map(|asked| Reserving { eager: asked.eager });
    let sizing = if sizes.len() > 1 && reserving.is_none() { "modules" } else { "base" };
    let paired = description.tlb.present().any(|(_, _, tlb)| tlb.paired);
    Ok(Settings {
        sizes,
        sizing,
        paired,
        replacement,
        reference,
        swap_pages,
        marks,
        reserving,
        nodes: description.memory.numa.as_ref().map_or(1, |numa| numa.nodes),
        colors: colors(description)?,
        thp: None,
        groups: &[],
        hashed: hashed(description)?,
    })
}

/// The number of cache colours of base pages.
fn colors(description: &Description) -> Result<u32, Refusal> {
    match description.os.colors {
        Some(0) => Err(Refusal::new("os.colors", "write 1 or more, or leave it out".to_owned())),
        colors => Ok(colors.unwrap_or(1)),
    }
}

/// The requested watermarks, for memory of `size`; the error says why they are not possible.
fn marks(asked: &description::Marks, size: Bytes, base: PageSize) -> Result<Marks, String> {
    let named =
        [("min", asked.min), ("low", asked.low), ("high", asked.high), ("memory.size", size)];
    for pair in named.windows(2) {
        let [(below, less), (above, more)] = pair else { continue };
        if less.0 > more.0 {
            return Err(format!(
                "`{below}`, {less}, is more than `{above}`, {more}: write min, low and high in \
                 ascending order, none of them above memory.size"
            ));
        }
    }
    let [min, low, high] = [asked.min, asked.low, asked.high].map(|mark| mark.0 >> base.shift());
    Ok(Marks { min, low, high })
}
