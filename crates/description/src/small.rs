//! Small address spaces, which share one linear address space.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, Visitor},
};

use super::units::Bytes;

/// Which spaces are small, and how they share the slots (U02). A small space lies in a slot: a range
/// of addresses beside the slots of other small spaces, within one linear address space.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Small {
    /// The size of all slots together in bytes. The slots end at 3.5G, where the kernel's addresses
    /// begin, rounded down to a multiple of the slot size. On Arm, where the PID register relocates
    /// addresses below 32M, they end at 2G. Absent: 2G, or 480M on Arm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub area: Option<Bytes>,
    /// The size of a slot in bytes, and so the largest address range of a small space. Absent:
    /// 256M, or 32M on Arm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<Bytes>,
    /// How the copied entries of a slot are revoked when the slot is given to another space:
    /// `purge`, `versioned`, `groups`.
    pub revoke: Revoke,
    /// Which space gives up a slot: `first-come` (none), `lru` or `frequent`.
    pub schedule: Schedule,
    /// The programs in small spaces, by name or by the number of their space; absent: all programs.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "names")]
    pub members: Vec<String>,
    /// With `revoke = "groups"`: the groups of spaces that communicate, each as a list of its
    /// members.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "lists_of_names")]
    pub groups: Vec<Vec<String>>,
    /// With `revoke = "groups"`: the programs that communicate with all others, and so are members
    /// of each group.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "names")]
    pub everywhere: Vec<String>,
    /// Where the numbers of this table come from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
}

/// How copied entries are revoked when a space loses its slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Revoke {
    /// All roots are searched for copied entries immediately.
    #[default]
    Purge,
    /// Each root is searched for copied entries when it is loaded next.
    Versioned,
    /// Slots belong to groups of spaces, each with one root.
    Groups,
}

/// Which space gives up its slot to another space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// No space gives up its slot.
    FirstCome,
    /// The space that ran longest ago gives up its slot.
    #[default]
    Lru,
    /// The space that is switched to least often gives up its slot, if the space that needs one is
    /// switched to at least twice as often.
    Frequent,
}

/// A program's name, or the number of its space, with or without quotes.
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
