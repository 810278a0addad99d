//! Returns the executions of shapes in a chunk, so that they can be encoded again.

use addr::Kind;

use super::{Decoder, Local, RESIDUAL};
use crate::format::Damage;
use crate::format::codes::{Slot, word};
use crate::{Address, Op, Shape};

impl Decoder {
    /// Returns the number of local shapes, and calls `each` for all executions of the opened chunk, with the
    /// local shape's number and the coded addresses. Afterwards nothing else can be read from the chunk.
    pub(crate) fn executions(&mut self, mut each: impl FnMut(usize, &[u64])) -> Result<(), Damage> {
        let mut codes = self.codes[..self.head.ops as usize].iter();
        let (mut rest, mut addr, mut defined) = (self.streams[RESIDUAL].as_slice(), 0, 0);
        let mut said = Vec::new();
        for &number in &self.sequence {
            let number = usize::from(number);
            let Some(local) = self.locals.get(number).filter(|_| number <= defined) else {
                return Err(Damage::new("its sequence has a block that is not in its dictionary"));
            };
            let is_first = number == defined;
            defined += usize::from(is_first);
            said.clear();
            for slot in &mut self.slots[local.slot as usize..][..usize::from(local.said)] {
                let Some(&code) = codes.next() else {
                    return Err(Damage::new(
                        "it has more memory operations than its header counts",
                    ));
                };
                let before = if is_first { Slot { last: addr, distance: 0 } } else { *slot };
                let (now, used) = before.decode(code, word(rest));
                rest = &rest[used..];
                addr = now.last;
                *slot = if is_first { Slot { last: addr, distance: 0 } } else { now };
                said.push(addr);
            }
            each(number, &said);
        }
        Ok(())
    }

    /// The local shapes of the chunk, in the order of their numbers.
    pub(crate) fn shapes(&self) -> impl Iterator<Item = Shape> + '_ {
        self.locals.iter().map(|local| self.shape(local))
    }

    fn shape(&self, local: &Local) -> Shape {
        let rows = local.template as usize..local.template as usize + usize::from(local.rows);
        let metas = &self.templates[rows.clone()];
        let fetch = metas.first().filter(|meta| meta.kind() == Kind::Fetch);
        let links = if local.linked { &self.links[rows] } else { &[] };
        let (mut begun, mut said, mut ops) = (0, Vec::new(), Vec::with_capacity(metas.len()));
        for (row, meta) in metas.iter().enumerate() {
            begun += meta.instructions();
            if meta.kind() == Kind::Fetch {
                continue;
            }
            let address = match links.get(row) {
                Some(link) if link.from == local.said => Address::BehindStart(link.distance),
                Some(link) if usize::from(link.from) < said.len() => {
                    let op = said[usize::from(link.from)];
                    Address::Behind { op, distance: link.distance }
                }
                Some(_) | None => Address::Said,
            };
            if address == Address::Said {
                said.push(ops.len() as u16);
            }
            let instruction = begun.saturating_sub(1) as u16;
            ops.push(Op { instruction, kind: meta.kind(), size: meta.size(), address });
        }
        Shape {
            pc: local.pc,
            bytes: fetch.map_or(0, |meta| meta.size()),
            instructions: begun + u32::from(local.trailing),
            fetch: fetch.is_some(),
            ops,
        }
    }
}
