//! The operating systems that a machine can have, selected by its `[os]`.
//!
//! Each manager is a file of this crate and a line of [`MANAGERS`].
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "parts of one program: a field whose name says all has no comment")]

mod base;
mod changes;
mod first_touch;
pub mod host;
mod place;
mod sites;
mod wish;

pub use self::place::{WrittenRule, written_rules};

use description::{
    Description, Refusal,
    managers::{Huge, RECORDED, RESERVING, huge},
};
use os::{System, at::Change};
use ram::Ram;

use self::{
    base::Base,
    first_touch::{FirstTouch, recorded::Recorded},
};

/// A function that creates a system with this memory.
type Build = fn(&Description, &Ram) -> Result<Box<dyn System>, Refusal>;

/// The managers by name.
const MANAGERS: [(&str, Build); 10] = [
    ("first-touch", FirstTouch::build),
    ("base", Base::build),
    ("irix", Base::irix),
    (RESERVING, Base::freebsd),
    ("linux", Base::linux),
    ("ingens", Base::linux),
    ("hawkeye", Base::linux),
    ("ca", Base::linux),
    ("translation-ranger", Base::linux),
    (RECORDED, Recorded::build),
];

/// The system that `description` names, and the changes of its settings. The error has the key that
/// is wrong.
pub fn system(
    description: &Description,
    ram: &Ram,
) -> Result<(Box<dyn System>, Vec<Change>), Refusal> {
    let system = manager(description, ram)?;
    let changes = changes::changes(description, system.as_ref(), ram)?;
    Ok((system, changes))
}

/// The operating system, without the changes of settings during the run.
fn manager(description: &Description, ram: &Ram) -> Result<Box<dyn System>, Refusal> {
    let name = description.os.manager.as_str();
    match MANAGERS.iter().find(|(known, _)| *known == name) {
        Some((_, build)) => {
            base_is_smallest(description)?;
            wishes_are_heard(description, name)?;
            build(description, ram)
        }
        None => {
            let names = MANAGERS.map(|(name, _)| name).join(", ");
            Err(Refusal::new("os.manager", format!("there is no `{name}`: choose {names}")))
        }
    }
}

/// Checks that the base page is not larger than the pages that are to be mapped.
fn base_is_smallest(description: &Description) -> Result<(), Refusal> {
    let os = &description.os;
    let page_size = os.page_size.0;
    let Some(base) = os.base_page.map(|base| base.0).filter(|base| *base > page_size) else {
        return Ok(());
    };
    let what = format!(
        "base pages of {base} are larger than the pages of {page_size} that os.page_size requests: \
         set os.page_size = \"{base}\" or larger, or leave os.base_page out"
    );
    Err(Refusal::new("os.base_page", what))
}

/// Checks that reservations, or requests for page sizes, are only given to managers that support
/// them.
fn wishes_are_heard(description: &Description, name: &str) -> Result<(), Refusal> {
    let os = &description.os;
    if os.reservations.is_some() && name != RESERVING {
        let what =
            format!("the manager `{name}` has no reservations: use os.manager = \"{RESERVING}\"");
        return Err(Refusal::new("os.reservations", what));
    }
    let kind = huge(os);
    let refuse = |key: &str, of: &str| {
        let what = format!(
            "the manager `{name}` does not have the settings of {key}: use os.manager = {of}"
        );
        Err(Refusal::new(key, what))
    };
    if os.linux.is_some() && kind.is_none() {
        return refuse("os.linux", "\"linux\"");
    }
    let own = [
        ("os.ingens", os.ingens.is_some(), Huge::Ingens, "ingens"),
        ("os.hawkeye", os.hawkeye.is_some(), Huge::HawkEye, "hawkeye"),
        ("os.ca", os.ca.is_some(), Huge::Ca, "ca"),
    ];
    for (key, is_asked, of, manager) in own {
        if !is_asked || kind == Some(of) {
            continue;
        }
        if matches!(kind, Some(Huge::Ingens | Huge::HawkEye)) && of != Huge::Ca {
            let what = format!(
                "`{name}` and `{manager}` both choose the blocks that become large pages: leave \
                 one of them out"
            );
            return Err(Refusal::new(key, what));
        }
        return refuse(key, &format!("\"{manager}\""));
    }
    if os.eager_paging && name != "base" && kind.is_none() {
        let why = match name {
            RESERVING => "keeps its free blocks for reservations",
            "irix" => "has free blocks only of the sizes of pages",
            RECORDED => "uses the frames that the trace gives",
            _ => "allocates frames only at the first touch",
        };
        let what = format!(
            "the manager `{name}` {why}: use os.manager = \"base\" or \"linux\", or leave \
             os.eager_paging out"
        );
        return Err(Refusal::new("os.eager_paging", what));
    }
    if os.ranger.is_some() && kind.is_none() {
        return refuse("os.ranger", "\"translation-ranger\"");
    }
    if os.coalesced.is_some() && kind.is_some() {
        let what = format!(
            "the manager `{name}` has its own daemon that makes large free blocks, kcompactd: \
             leave os.coalesced out, or use os.manager = \"irix\""
        );
        return Err(Refusal::new("os.coalesced", what));
    }
    if os.devices.is_some() && matches!(name, "first-touch" | RECORDED) {
        let what = format!(
            "the manager `{name}` lends no frames to devices: use os.manager = \"base\", \"freebsd\" \
             or another with a page cache"
        );
        return Err(Refusal::new("os.devices", what));
    }
    let key = match () {
        () if !os.place.is_empty() => "os.place",
        () if os.coalesced.is_some() => "os.coalesced",
        () => return Ok(()),
    };
    let hears = match key {
        "os.place" => &["irix", "first-touch", "linux"][..],
        _ => &["irix"],
    };
    if hears.contains(&name) || key == "os.place" && kind.is_some() {
        return Ok(());
    }
    let lacks = if key == "os.place" {
        "ignores requests for page sizes"
    } else {
        "has no daemon that makes large free blocks"
    };
    let what = format!(
        "the manager `{name}` {lacks}: use os.manager = \"{}\", or leave {key} out",
        hears.join("\" or \"")
    );
    Err(Refusal::new(key, what))
}
