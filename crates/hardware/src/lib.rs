//! The hardware that translates addresses: TLBs, and the hardware behind them.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "parts of one program: a field whose name says all has no comment")]

pub mod behind;
pub mod contexts;
pub mod in_turn;
pub mod nodes;
pub mod processor;
pub mod range_unit;
pub mod restseg;
pub mod sure;
pub mod tlbs;
pub mod walker;
