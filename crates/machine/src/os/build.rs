//! From the `[os]` of a machine file to a system.

use super::{System, first_touch::FirstTouch};
use crate::{Description, ram::Ram};

/// The system that `description` names, over `ram`; an error comes with the key that is wrong.
pub(crate) fn system(
    description: &Description,
    ram: &Ram,
) -> Result<Box<dyn System>, (String, String)> {
    FirstTouch::new(description.os.page_size.0, ram.page_sizes())
        .map(|system| Box::new(system) as Box<dyn System>)
        .map_err(|what| ("os.page_size".to_owned(), what))
}
