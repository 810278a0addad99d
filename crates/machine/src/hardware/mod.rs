//! The hardware that translates: TLBs, and what lies behind them.

pub(crate) mod behind;
pub(crate) mod contexts;
pub(crate) mod in_turn;
pub(crate) mod nodes;
pub(crate) mod processor;
pub(crate) mod range_unit;
pub(crate) mod restseg;
pub(crate) mod sure;
pub(crate) mod tlbs;
pub(crate) mod walker;
