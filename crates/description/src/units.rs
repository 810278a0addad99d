//! Quantities in a machine file: sizes have a unit, and the number of ways may be "full".

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A number of bytes, written with its unit: `"64B"`, `"48K"`, `"1M"`, `"16G"`, `"1T"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bytes(pub u64);

const UNITS: [(char, u32); 5] = [('B', 0), ('K', 10), ('M', 20), ('G', 30), ('T', 40)];

impl Bytes {
    pub(super) fn parse(text: &str) -> Option<Bytes> {
        let unit = text.chars().last()?;
        let (_, shift) = UNITS.iter().find(|(letter, _)| *letter == unit)?;
        let number: u64 = text[..text.len() - 1].parse().ok()?;
        number.checked_mul(1 << shift).map(Bytes)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (letter, shift) = UNITS
            .iter()
            .rev()
            .find(|(_, shift)| self.0 != 0 && self.0.trailing_zeros() >= *shift)
            .unwrap_or(&UNITS[0]);
        write!(f, "{}{letter}", self.0 >> shift)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = text_with_unit(deserializer, "a size with its unit, such as \"64B\" or \"1M\"")?;
        Bytes::parse(&text).ok_or_else(|| {
            de::Error::custom(format!(
                "`{text}` is not a size: write a whole number with B, K, M, G or T, as in \"48K\""
            ))
        })
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Reads a string. The error for a plain number states that the unit is missing.
fn text_with_unit<'de, D: Deserializer<'de>>(
    deserializer: D,
    expected: &'static str,
) -> Result<String, D::Error> {
    struct Text(&'static str);
    impl de::Visitor<'_> for Text {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }
    }
    deserializer.deserialize_any(Text(expected))
}

/// A page size in a machine file, such as `"4K"`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PageSize(pub addr::PageSize);

impl<'de> Deserialize<'de> for PageSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text =
            text_with_unit(deserializer, "a page size with its unit, such as \"4K\" or \"2M\"")?;
        text.parse().map(PageSize).map_err(de::Error::custom)
    }
}

impl Serialize for PageSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// The number of ways of a set-associative array, or `"full"` for one set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ways {
    /// One set: fully associative.
    #[default]
    Full,
    /// This number of ways in each set.
    Count(u32),
}

impl Ways {
    /// The number of ways in a set of an array of `entries` entries.
    pub fn of(self, entries: u32) -> u32 {
        match self {
            Ways::Full => entries,
            Ways::Count(ways) => ways,
        }
    }
}

impl<'de> Deserialize<'de> for Ways {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Ways;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of ways, or \"full\"")
            }

            fn visit_i64<E: de::Error>(self, ways: i64) -> Result<Ways, E> {
                u32::try_from(ways).map(Ways::Count).map_err(|_| {
                    E::custom(format!(
                        "{ways} is not a number of ways: write 1 or more, or \"full\""
                    ))
                })
            }

            fn visit_u64<E: de::Error>(self, ways: u64) -> Result<Ways, E> {
                u32::try_from(ways).map(Ways::Count).map_err(|_| {
                    E::custom(format!(
                        "{ways} is not a number of ways: write 1 or more, or \"full\""
                    ))
                })
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Ways, E> {
                if text == "full" {
                    Ok(Ways::Full)
                } else {
                    Err(E::custom(format!(
                        "`{text}` is not a number of ways: write a number without quotes, such as 8, or \
                         \"full\""
                    )))
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl Serialize for Ways {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Ways::Full => serializer.serialize_str("full"),
            Ways::Count(ways) => serializer.serialize_u32(*ways),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_print_what_they_parse() {
        for text in ["0B", "1B", "64B", "48K", "1M", "1536K", "16G", "3T"] {
            assert_eq!(Bytes::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Bytes::parse("2048K").unwrap(), Bytes::parse("2M").unwrap());
        for text in ["", "K", "64", "64b", "1.5M", "-1K", "1MB", "99999999999999999T"] {
            assert_eq!(Bytes::parse(text), None, "{text}");
        }
    }
}
