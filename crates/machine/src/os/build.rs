//! From the `[os]` of a machine file to a system.

use super::{
    System,
    at::{self, Change},
    base::Base,
    first_touch::{
        FirstTouch,
        recorded::{self, Recorded},
    },
};
use crate::{
    Description, description,
    ram::Ram,
    run::{nodes::Nodes, promotion::Promotion},
};

/// A key of the machine file, and what is wrong with it.
type Refusal = (String, String);

/// Makes a system over this memory.
type Build = fn(&Description, &Ram) -> Result<Box<dyn System>, Refusal>;

/// The managers by name.
const MANAGERS: [(&str, Build); 6] = [
    ("first-touch", FirstTouch::build),
    ("base", Base::build),
    ("irix", Base::irix),
    (RESERVING, Base::freebsd),
    (LINUX, Base::linux),
    (recorded::NAME, Recorded::build),
];

/// The manager that has reservations.
const RESERVING: &str = "freebsd";

/// The reservations that the manager has, if it has some.
pub(crate) fn reservations(os: &description::Os) -> Option<description::Reservations> {
    (os.manager == RESERVING).then(|| os.reservations.clone().unwrap_or_default())
}

/// The manager with transparent huge pages.
const LINUX: &str = "linux";

/// Its knobs, if it is the manager.
pub(crate) fn linux(os: &description::Os) -> Option<description::Linux> {
    (os.manager == LINUX).then(|| os.linux.clone().unwrap_or_default())
}

/// Whether the frames of pages are a trace's to choose, and others are left for page tables.
pub(crate) fn keeps_tables_apart(os: &description::Os) -> bool {
    os.manager == recorded::NAME
}

/// The system that `description` names, and the settings of it that will change; an error comes
/// with the key that is wrong.
pub(crate) fn system(
    description: &Description,
    ram: &Ram,
) -> Result<(Box<dyn System>, Vec<Change>), Refusal> {
    let system = manager(description, ram)?;
    let changes = at::changes(description, system.as_ref(), ram)?;
    Promotion::of(description, system.as_ref())?;
    Nodes::of(description, system.as_ref())?;
    Ok((system, changes))
}

/// The system alone.
pub(super) fn manager(description: &Description, ram: &Ram) -> Result<Box<dyn System>, Refusal> {
    let name = description.os.manager.as_str();
    match MANAGERS.iter().find(|(known, _)| *known == name) {
        Some((_, build)) => {
            wishes_are_heard(description, name)?;
            build(description, ram)
        }
        None => {
            let names = MANAGERS.map(|(name, _)| name).join(", ");
            Err(("os.manager".to_owned(), format!("there is no `{name}`: choose {names}")))
        }
    }
}

/// That only managers that have such are told of reservations, and of wishes for page sizes.
fn wishes_are_heard(description: &Description, name: &str) -> Result<(), Refusal> {
    let os = &description.os;
    if os.reservations.is_some() && name != RESERVING {
        let what =
            format!("the manager `{name}` has no reservations: use os.manager = \"{RESERVING}\"");
        return Err(("os.reservations".to_owned(), what));
    }
    if os.linux.is_some() && name != LINUX {
        let what =
            format!("the manager `{name}` has none of these knobs: use os.manager = \"{LINUX}\"");
        return Err(("os.linux".to_owned(), what));
    }
    if os.devices.is_some() && matches!(name, "first-touch" | recorded::NAME) {
        let what = format!(
            "the manager `{name}` lends no frames to devices: use os.manager = \"base\", \"freebsd\" \
             or another with a page cache"
        );
        return Err(("os.devices".to_owned(), what));
    }
    let key = match () {
        () if !os.place.is_empty() => "os.place",
        () if os.coalesced.is_some() => "os.coalesced",
        () => return Ok(()),
    };
    let hears = match key {
        "os.place" => &["irix", "first-touch", LINUX][..],
        _ => &["irix"],
    };
    if hears.contains(&name) {
        return Ok(());
    }
    let what = format!(
        "the manager `{name}` takes no wishes for page sizes: use os.manager = \"{}\"",
        hears.join("\" or \"")
    );
    Err((key.to_owned(), what))
}
