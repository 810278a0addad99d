//! From the `[os]` of a machine file to a system.

use super::{System, base::Base, first_touch::FirstTouch};
use crate::{Description, ram::Ram};

/// A key of the machine file, and what is wrong with it.
type Refusal = (String, String);

/// Makes a system over this memory.
type Build = fn(&Description, &Ram) -> Result<Box<dyn System>, Refusal>;

/// The managers by name.
const MANAGERS: [(&str, Build); 2] = [("first-touch", FirstTouch::build), ("base", Base::build)];

/// The system that `description` names; an error comes with the key that is wrong.
pub(crate) fn system(description: &Description, ram: &Ram) -> Result<Box<dyn System>, Refusal> {
    let name = description.os.manager.as_str();
    match MANAGERS.iter().find(|(known, _)| *known == name) {
        Some((_, build)) => build(description, ram),
        None => {
            let names = MANAGERS.map(|(name, _)| name).join(", ");
            Err(("os.manager".to_owned(), format!("there is no `{name}`: choose {names}")))
        }
    }
}
