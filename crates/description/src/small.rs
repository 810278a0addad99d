//! Small address spaces, side by side in one.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, Visitor},
};

use super::units::Bytes;

/// Which spaces share one, and what becomes of that when slots are few (U02).
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Small {
    /// Bytes of all slots together. They end where the kernel's addresses begin, at 3.5G; those of a PID
    /// register at 2G. Absent: 2G, and 480M.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub area: Option<Bytes>,
    /// Bytes of a slot, and so of all that a small space can have. Absent: 256M, and 32M.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<Bytes>,
    /// What becomes of copied entries when a slot is given to another: `purge`, `versioned`, `groups`.
    pub revoke: Revoke,
    /// Who gives up a slot: `first-come` (nobody), `lru` or `frequent`.
    pub schedule: Schedule,
    /// The programs that are to be small, by name or by the number of their space; none: all.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "names")]
    pub members: Vec<String>,
    /// With `groups`, who talks to whom: the members of each.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "lists_of_names")]
    pub groups: Vec<Vec<String>>,
    /// With `groups`, who talks to all, and so is in each.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "names")]
    pub everywhere: Vec<String>,
    /// Where the numbers come from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
}

/// What becomes of the entries that were copied for whoever loses a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Revoke {
    /// Every root is looked through at once.
    #[default]
    Purge,
    /// Each root is, when it is loaded next.
    Versioned,
    /// Slots belong to groups, which have a root each.
    Groups,
}

/// Who gives up a slot for another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// Nobody.
    FirstCome,
    /// Whoever ran longest ago.
    #[default]
    Lru,
    /// Whoever is switched to least often, for who is twice as often.
    Frequent,
}

/// A program's name, or the number of its space, with quotes or without.
struct Name(String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a program's name or the number of its space")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Name, E> {
                Ok(Name(name.to_owned()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Name, E> {
                Ok(Name(number.to_string()))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Name, E> {
                Ok(Name(number.to_string()))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

fn names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<Name>::deserialize(deserializer)?;
    Ok(names.into_iter().map(|name| name.0).collect())
}

fn lists_of_names<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Vec<String>>, D::Error> {
    let lists = Vec::<Vec<Name>>::deserialize(deserializer)?;
    Ok(lists.into_iter().map(|names| names.into_iter().map(|name| name.0).collect()).collect())
}
