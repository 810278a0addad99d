//! Memory with several nodes: `[memory.numa]`, and the operating system's policy for them: `[os.numa]`.

use serde::{Deserialize, Serialize};

use super::units::PageSize;

/// Memory nodes, each with processors and an equal part of memory.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Numa {
    /// The number of nodes.
    pub nodes: u8,
    /// The distance from each node to each node, in tenths of the latency of a node's own memory, as
    /// in ACPI's SLIT; absent: 10 to itself and 20 to every other node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distances: Vec<Vec<u32>>,
    /// The node of each processor; absent: in order, with an equal number on each node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processors: Vec<u8>,
    /// Where the numbers of this table come from.
    #[serde(default)]
    pub source: String,
}

/// From which node frames are allocated, and when pages migrate. Place rules have priority over
/// these settings.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct NumaPolicy {
    /// The node from which a page's frame is allocated.
    pub placement: Placement,
    /// What happens if the node of `placement` has no free page of the requested size.
    pub fallback: NodeFallback,
    /// Which frame is preferred if the node of `placement` has no free frame of the page's cache
    /// colour: one of this node, or one of this colour.
    pub rather: Rather,
    /// A page migrates when the number of references to it from another node exceeds the number
    /// from its own node by this value; absent: pages do not migrate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migrate_after: Option<u32>,
    /// Cycles of counting a reference; absent: 30.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count_cycles: Option<u32>,
    /// Cycles of moving a base page, if the machine file gives no costs for the manager's work; absent: one cycle for two
    /// bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_cycles: Option<u32>,
    /// Where the numbers of this table come from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
}

/// The node from which a frame is allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Placement {
    /// The node of the processor that touches the page first.
    #[default]
    Local,
    /// Blocks of the requested size are allocated from all nodes in turn.
    InTurn,
    /// The given node.
    Node(u8),
}

/// What happens if a page's node has no free page of the requested size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeFallback {
    /// The page is taken from the nearest node that has one.
    #[default]
    Borrow,
    /// A smaller page is taken from the node itself.
    Stay,
}

/// The property of a frame that has priority.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rather {
    /// A frame of the right node is preferred to a frame of the right colour.
    #[default]
    Near,
    /// A frame of the right cache colour is preferred to a frame of the right node.
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
                format!(
                    "`{text}` is not a placement: choose local, in-turn, or a node, as in `node 1`"
                )
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
    /// Cycles of moving a base page.
    pub fn moving_cycles(&self, base: PageSize) -> u64 {
        self.page_cycles.map_or(base.0.bytes() / 2, u64::from)
    }
}
