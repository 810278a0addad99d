//! The node of memory from which frames are allocated, as requested by a machine file and by place
//! rules.

use description::{self, Description, NodeFallback, NumaPolicy, Rather};
use vm::{Module, Placement};

use crate::wish::Wish;

/// The NUMA policy for ranges without a place rule.
pub(super) fn policy(description: &Description) -> NumaPolicy {
    description.os.numa.clone().unwrap_or_default()
}

/// The policy module of a range without a place rule.
pub(super) fn module(policy: &NumaPolicy) -> Module {
    Module {
        placement: placement(policy.placement),
        stays: policy.fallback == NodeFallback::Stay,
        color_first: policy.rather == Rather::Colored,
        migrate_after: policy.migrate_after,
        ..Module::default()
    }
}

/// `module`, changed by the NUMA settings in `wish`, the request of a place rule.
pub(super) fn wished(module: Module, wish: &Wish) -> Module {
    let Wish { placement: on, fallback, rather, migrate_after, .. } = *wish;
    Module {
        placement: on.map_or(module.placement, placement),
        stays: fallback.map_or(module.stays, |fallback| fallback == NodeFallback::Stay),
        color_first: rather.map_or(module.color_first, |rather| rather == Rather::Colored),
        migrate_after: migrate_after.unwrap_or(module.migrate_after),
        ..module
    }
}

fn placement(placement: description::Placement) -> Placement {
    match placement {
        description::Placement::Local => Placement::Local,
        description::Placement::InTurn => Placement::InTurn,
        description::Placement::Node(node) => Placement::Node(node),
    }
}
