//! The dictionary stream: which rows the executions of each local shape give.

use addr::Kind;

use super::Damage;
use super::wire::{Bytes, put_varint, unzigzag, zigzag};
use crate::shape::Rows;
use crate::{Meta, Shape};

/// Appends the entry of `rows`; `pc` is that of the entry before and becomes this one's.
pub(super) fn put(out: &mut Vec<u8>, rows: &Rows, pc: &mut u64) {
    put_varint(out, zigzag(rows.pc.wrapping_sub(*pc) as i64));
    *pc = rows.pc;
    put_varint(out, 2 * rows.ops() as u64 + u64::from(rows.fetch));
    put_varint(out, u64::from(rows.trailing));
    for meta in &rows.metas {
        put_varint(out, u64::from(4 * meta.size() + meta.kind() as u32));
        put_varint(out, u64::from(meta.instructions()));
    }
}

/// An entry without its rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ShapeHead {
    /// Address of the fetch row.
    pub(super) pc: u64,
    /// Whether the first row is a fetch.
    pub(super) fetch: bool,
    /// Loads and stores.
    pub(super) ops: u16,
    /// Instructions left for the next row.
    pub(super) trailing: u32,
}

/// Reads an entry and appends its rows to `metas`.
pub(super) fn take(
    bytes: &mut Bytes<'_>,
    pc: &mut u64,
    metas: &mut Vec<Meta>,
) -> Result<ShapeHead, Damage> {
    *pc = pc.wrapping_add(unzigzag(bytes.varint()?) as u64);
    let ops = bytes.varint_up_to(2 * Shape::OPS_MAX as u64 + 1, "rows of a shape")?;
    let trailing = bytes.varint_up_to(u64::from(Meta::INSTRUCTIONS_MAX), "instructions")? as u32;
    let (fetch, ops) = (ops & 1 == 1, (ops / 2) as u16);
    for row in 0..ops + u16::from(fetch) {
        let code =
            bytes.varint_up_to(u64::from(4 * Meta::SIZE_MAX + 2), "as a row's size and kind")?;
        let instructions = bytes.varint_up_to(u64::from(Meta::INSTRUCTIONS_MAX), "instructions")?;
        let kind = match code & 3 {
            0 => Kind::Fetch,
            1 => Kind::Load,
            2 => Kind::Store,
            _ => return Err(Damage::new("a row of its dictionary has no kind")),
        };
        if (kind == Kind::Fetch) != (fetch && row == 0) {
            return Err(Damage::new("a fetch of its dictionary is not the first row"));
        }
        metas.push(Meta::new(kind, code as u32 >> 2, instructions as u32));
    }
    Ok(ShapeHead { pc: *pc, fetch, ops, trailing })
}
