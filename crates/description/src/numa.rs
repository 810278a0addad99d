//! Memory of several nodes: `[memory.numa]`, and what the operating system does with them, `[os.numa]`.

use serde::{Deserialize, Serialize};

use super::units::PageSize;

/// Nodes of memory, each with an equal part of it and with processors.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Numa {
    /// How many there are.
    pub nodes: u8,
    /// From each node to each, in tenths of the latency of a node's own memory, as firmware tells them
    /// (ACPI's SLIT); absent: 10 to itself and 20 to every other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distances: Vec<Vec<u32>>,
    /// The node of each processor; absent: in order, as many on each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processors: Vec<u8>,
    /// Where the numbers come from.
    #[serde(default)]
    pub source: String,
}

/// From which node frames come, and when pages move to another: what is said of no range in particular.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct NumaPolicy {
    /// The node of a page's frame.
    pub placement: Placement,
    /// What happens where that node has no page of the wished size.
    pub fallback: NodeFallback,
    /// What gives way where it has no frame of the page's cache colour.
    pub rather: Rather,
    /// How many more references than its own node another one makes to a page before that moves there;
    /// absent: it stays where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migrate_after: Option<u32>,
    /// Cycles that counting a reference takes; absent: 30.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count_cycles: Option<u32>,
    /// Cycles that moving a base page takes, where the manager's work has no prices; absent: a cycle
    /// for two bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_cycles: Option<u32>,
    /// Where the numbers come from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
}

/// The node that a frame should come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Placement {
    /// That of the processor which touches the page first.
    #[default]
    Local,
    /// Each block of the wished size from the next.
    InTurn,
    /// This one.
    Node(u8),
}

/// What happens where a node has no page of the wished size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeFallback {
    /// One of the nearest node that has one.
    #[default]
    Borrow,
    /// A smaller one of the node's own.
    Stay,
}

/// What matters more of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rather {
    /// Its node.
    #[default]
    Near,
    /// Its cache colour.
    Colored,
}

impl std::str::FromStr for Placement {
    type Err = String;

    fn from_str(text: &str) -> Result<Placement, String> {
        let number = || text.strip_prefix("node")?.trim().parse().ok();
        match text {
            "local" => Ok(Placement::Local),
            "in-turn" => Ok(Placement::InTurn),
            _ => number().map(Placement::Node).ok_or_else(|| {
                format!("`{text}` is not a placement: choose local, in-turn, or as in `node 1`")
            }),
        }
    }
}

impl std::fmt::Display for Placement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Placement::Local => f.write_str("local"),
            Placement::InTurn => f.write_str("in-turn"),
            Placement::Node(node) => write!(f, "node {node}"),
        }
    }
}

impl Serialize for Placement {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Placement {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Placement, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl NumaPolicy {
    /// Cycles that moving a base page takes.
    pub fn moving_cycles(&self, base: PageSize) -> u64 {
        self.page_cycles.map_or(base.0.bytes() / 2, u64::from)
    }
}
