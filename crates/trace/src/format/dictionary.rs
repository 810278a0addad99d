//! The dictionary stream: the rows of each local shape.

use addr::Kind;

use super::Damage;
use super::wire::{Bytes, put_varint, unzigzag, zigzag};
use crate::shape::{Link, Rows};
use crate::{Meta, Shape};

/// Appends the entry of `rows`. `pc` is the address of the previous entry, and is set to the
/// address of this entry. `linked` says whether addresses in the dictionary may be derived from
/// others.
pub(super) fn put(out: &mut Vec<u8>, rows: &Rows, linked: bool, pc: &mut u64) {
    put_varint(out, zigzag(rows.pc.wrapping_sub(*pc) as i64));
    *pc = rows.pc;
    let operations = 2 * rows.ops() as u64 + u64::from(rows.fetch);
    put_varint(
        out,
        if linked { 2 * operations + u64::from(rows.links.is_some()) } else { operations },
    );
    put_varint(out, u64::from(rows.trailing));
    for meta in &rows.metas {
        put_varint(out, u64::from(4 * meta.size() + meta.kind() as u32));
        put_varint(out, u64::from(meta.instructions()));
    }
    let Some(links) = &rows.links else { return };
    let mut said = 0;
    for &Link { from, distance } in &links.all {
        if usize::from(from) == said && said < links.said {
            put_varint(out, SAID);
            said += 1;
        } else if usize::from(from) == links.said {
            put_varint(out, FROM_START);
            put_varint(out, zigzag(distance as i64));
        } else {
            put_varint(out, FROM_SAID + u64::from(from));
            put_varint(out, zigzag(distance as i64));
        }
    }
}

/// The source of an address: the address is coded.
const SAID: u64 = 0;
/// The source of an address: it is derived from the block's start.
const FROM_START: u64 = 1;
/// The source of an address: it is derived from the first coded address. Higher numbers stand for
/// later coded addresses.
const FROM_SAID: u64 = 2;

/// The data of an entry without its rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ShapeHead {
    /// The address of the fetch row.
    pub(super) pc: u64,
    /// Whether the first row is a fetch.
    pub(super) fetch: bool,
    /// The number of loads and stores.
    pub(super) ops: u16,
    /// The number of loads and stores whose address is coded.
    pub(super) said: u16,
    /// Instructions after the last row, which the first row of the next execution counts.
    pub(super) trailing: u32,
}

/// Reads an entry and appends its rows to `metas`. If the dictionary is `linked`, also appends one
/// link per row to the links; the link of a fetch has no meaning.
pub(super) fn take(
    bytes: &mut Bytes<'_>,
    linked: bool,
    pc: &mut u64,
    metas: &mut Vec<Meta>,
    links: &mut Vec<Link>,
) -> Result<ShapeHead, Damage> {
    *pc = pc.wrapping_add(unzigzag(bytes.varint()?) as u64);
    let bits = 1 + u32::from(linked);
    let ops_max = ((Shape::OPS_MAX as u64 + 1) << bits) - 1;
    let ops = bytes.varint_up_to(ops_max, "row count of a block")?;
    let (ops, has_links) = if linked { (ops / 2, ops & 1 == 1) } else { (ops, false) };
    let trailing =
        bytes.varint_up_to(u64::from(Meta::INSTRUCTIONS_MAX), "instruction count")? as u32;
    let (fetch, ops) = (ops & 1 == 1, (ops / 2) as u16);
    for row in 0..ops + u16::from(fetch) {
        let code = bytes.varint_up_to(u64::from(4 * Meta::SIZE_MAX + 2), "row code")?;
        let instructions =
            bytes.varint_up_to(u64::from(Meta::INSTRUCTIONS_MAX), "instruction count")?;
        let kind = match code & 3 {
            0 => Kind::Fetch,
            1 => Kind::Load,
            2 => Kind::Store,
            _ => return Err(Damage::new("a row of its dictionary is no fetch, load or store")),
        };
        if (kind == Kind::Fetch) != (fetch && row == 0) {
            return Err(Damage::new("its dictionary has a block whose fetch is not the first row"));
        }
        metas.push(Meta::new(kind, code as u32 >> 2, instructions as u32));
    }
    let mut said = ops;
    if linked {
        links.resize(metas.len() - usize::from(ops), Link::default());
    }
    if has_links {
        said = take_links(bytes, ops, links)?;
    } else if linked {
        links.resize(metas.len(), Link::default());
    }
    Ok(ShapeHead { pc: *pc, fetch, ops, said, trailing })
}

/// Reads the sources of the addresses of `ops` operations and appends them to `links`. Returns how
/// many addresses are coded.
fn take_links(bytes: &mut Bytes<'_>, ops: u16, links: &mut Vec<Link>) -> Result<u16, Damage> {
    let first = links.len();
    let mut said = 0;
    for _ in 0..ops {
        let link = match bytes.varint_up_to(FROM_SAID + Shape::OPS_MAX as u64, "address code")? {
            SAID => {
                said += 1;
                Link { from: said - 1, distance: 0 }
            }
            from => {
                let distance = unzigzag(bytes.varint()?) as u64;
                let from = from.checked_sub(FROM_SAID).map_or(STARTS, |from| from as u16);
                if from != STARTS && from >= said {
                    return Err(Damage::new(
                        "its dictionary computes an address from an unknown one",
                    ));
                }
                Link { from, distance }
            }
        };
        links.push(link);
    }
    // The block's start is stored after all coded addresses.
    links[first..].iter_mut().filter(|link| link.from == STARTS).for_each(|link| link.from = said);
    Ok(said)
}

/// The value in a link that stands for the address at which the block starts; no operation has this number.
const STARTS: u16 = u16::MAX;
const _: () = assert!(Shape::OPS_MAX < STARTS as usize);
