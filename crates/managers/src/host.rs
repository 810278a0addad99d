//! The host of a virtual machine, as described by `[nested]`: its memory, and the first-touch manager
//! that backs each page of the guest's memory when it is first needed.

use addr::PageSize;
use description::{self, Description, Refusal};
use os::host::{Host, Stack};
use ram::{Ram, is_linear};

use super::first_touch::FirstTouch;

/// The memory of a machine, with the host below it if there is one. The error has the key that is wrong.
pub fn stack(description: &Description) -> Result<Stack, Refusal> {
    let ram = Ram::new(description)?;
    Ok(Stack::new(ram, host(description)?))
}

/// The host in `description`, if there is one.
fn host(description: &Description) -> Result<Option<Host>, Refusal> {
    let Some(nested) = &description.nested else { return Ok(None) };
    let what = match &description.page_table {
        None => {
            "a machine without a page table has no memory that a host could back: leave [nested] \
             out"
        }
        Some(table) if is_linear(table) => {
            "a linear page table in a virtual machine is not modelled, as its entries are read \
             through the TLB: choose another page_table.format, or leave [nested] out"
        }
        Some(_) => return backing(description, nested).map(Some),
    };
    Err(Refusal::new("nested", what.to_owned()))
}

/// A host that has not backed any page yet. The error has the key that is wrong.
fn backing(description: &Description, nested: &description::Nested) -> Result<Host, Refusal> {
    let key = |key: &str| format!("nested.{key}");
    let page_size = nested.page_size.0;
    // Hardware walks the host's page table, whatever walks the guest's.
    let mut below = Description {
        page_table: Some(nested.page_table()),
        nested: None,
        walker: description::Walker::default(),
        memory: description::Memory { size: nested.memory, ..description::Memory::default() },
        ..description.clone()
    };
    // The host treats the guest's memory as one region of unlimited size.
    below.os = description::Os {
        page_size: nested.page_size,
        uniform: true,
        ..description::Os::default()
    };
    check(description, nested)?;
    let ram = Ram::of_host(&below, nested, description.memory.size.0);
    let mut ram = ram.map_err(|Refusal { key: wrong, what }| match wrong.as_str() {
        "memory.size" => Refusal::new(key("memory"), what),
        wrong if wrong.starts_with("nested.") => Refusal::new(wrong, what),
        wrong => Refusal::new(key(wrong.trim_start_matches("page_table.")), what),
    })?;
    let system = FirstTouch::new(&below.os, ram.page_sizes()).map_err(|what| {
        Refusal::new(key("page_size"), what.replacen("the page", "the host's", 1))
    })?;
    let space = ram.first_space().map_err(|refusal| Refusal::new(key("memory"), refusal.what))?;
    let keeps_room = nested.reservations.is_some();
    Ok(Host::new((ram, space), Box::new(system), page_size, keeps_room))
}

/// Checks that holes and reservations are compatible with the host's page size.
fn check(description: &Description, nested: &description::Nested) -> Result<(), Refusal> {
    let size = nested.page_size.0;
    let fine = size == PageSize::SIZE_4K;
    if nested.reservations.is_some() && !fine {
        let what = format!(
            "a reservation of the host consists of pages of 4K, but the host has pages of {size}: \
             write nested.page_size=4K, or leave nested.reservations out"
        );
        return Err(Refusal::new("nested.reservations", what));
    }
    let end = description.memory.size.0;
    let cut = nested.holes.iter().find(|hole| {
        let cuts = |at: u64| at < end && !at.is_multiple_of(size.bytes());
        cuts(hole.first) || cuts(hole.end)
    });
    if let Some(hole) = cut.filter(|_| !fine) {
        let what = format!(
            "the hole {hole} is part of a page of {size} of the host, so the host cannot map the \
             rest of this page either: write nested.page_size=4K, or leave the hole out"
        );
        return Err(Refusal::new("nested.holes", what));
    }
    Ok(())
}
