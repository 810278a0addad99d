//! Executions of shapes that have been executed before: the loop in which decoding spends most of
//! its time.
//!
//! ```text
//!   sequence --> local shape --> metas of its rows, copied    meta[..]
//!                            --> pc                           addr[0]
//!            codes, residual --> slot.last + distance         addr[1..]
//! ```
//!
//! The loop uses pointers, since slices would need more registers than a processor has. If all
//! codes of an execution are 0, its addresses continue with the distances of the execution before,
//! and decoding takes only additions. All other executions follow one path, whatever their
//! addresses are: tables indexed by the codes give the number of residual bytes and whether the
//! distance is added. So there is no branch to predict.
//!
//! To detect invalid chunks, three things are checked once per execution: its shape is known, there
//! is room for its rows, and its codes exist. When the chunk was opened, it was checked that all
//! codes together use exactly the bytes of the residual.

use addr::Kind;

use super::{Decoder, RESIDUAL, SPARE};
use crate::Meta;
use crate::format::Damage;
use crate::format::codes::WORD;

impl Decoder {
    /// Decodes executions of the current segment until the segment ends, or the next execution has
    /// a new shape or too little room. `rows` rows exist already; [`SPARE`] rows at the end of
    /// `addr` and `meta` stay free. Returns the new number of rows.
    #[inline(never)]
    pub(super) fn run_known(
        &mut self,
        addr: &mut [u64],
        meta: &mut [Meta],
        rows: usize,
    ) -> Result<usize, Damage> {
        let (locals, templates) = (&self.locals[..self.at.defined], self.templates.as_slice());
        let (slots, links) = (self.slots.as_mut_ptr(), self.links.as_ptr());
        let said_addrs = self.said.as_mut_ptr();
        let sequence = &self.sequence[self.at.executions..][..self.at.segment_left as usize];
        // The loop reads whole words, so it may read up to WORD bytes beyond the last code.
        let codes = &self.codes[self.at.ops..self.head.ops as usize + WORD];
        let residual = &self.streams[RESIDUAL][self.at.residual..];
        let Some(room) = addr.len().min(meta.len()).checked_sub(rows + SPARE) else {
            return Ok(rows);
        };
        let rows_start = addr[rows..].as_mut_ptr();
        let rows_end = rows_start.wrapping_add(room);
        let code_end = codes.as_ptr_range().end.wrapping_sub(WORD);

        let mut numbers = sequence.as_ptr_range();
        let (mut next_addr, mut next_meta) = (rows_start, meta[rows..].as_mut_ptr());
        let (mut next_code, mut rest) = (codes.as_ptr(), residual.as_ptr());
        let mut carry = self.at.carry;
        // SAFETY: up to `rows_end` there is room for the rows of an execution, and after it for
        // SPARE more rows. If one of a shape's addresses is derived, each row has a link to a coded
        // address or to the block's start, which is stored after the coded addresses; there is room
        // for as many coded addresses as a shape can have. The codes of an execution lie before
        // `code_end`, after which `codes` has WORD more bytes. `open` made slots for the operations
        // of all shapes. Each code is used once, in order, and all codes of the chunk together use
        // the residual except its last WORD bytes.
        unsafe {
            while numbers.start != numbers.end {
                let Some(local) = locals.get(usize::from(*numbers.start)) else { break };
                let (count, said) = (usize::from(local.rows), usize::from(local.said));
                let end = next_addr.wrapping_add(count);
                if end > rows_end {
                    break;
                }
                let mut code = next_code;
                next_code = code.wrapping_add(said);
                if next_code > code_end {
                    break;
                }
                numbers.start = numbers.start.add(1);
                next_meta.copy_from_nonoverlapping(local.metas.as_ptr(), SPARE);
                next_meta.write(local.metas[0].plus_instructions(carry as u32));
                next_addr.write(local.pc);
                if count.wrapping_sub(1) >= SPARE {
                    if count == 0 {
                        carry = carry.saturating_add(u64::from(local.trailing));
                        continue;
                    }
                    let template = &templates[local.template as usize..][..count];
                    next_meta.add(1).copy_from_nonoverlapping(template[1..].as_ptr(), count - 1);
                }
                carry = u64::from(local.trailing);
                next_meta = next_meta.add(count);
                next_addr = end;

                let mut slot = slots.add(local.slot as usize);
                if local.linked {
                    let mut to = said_addrs;
                    let to_end = to.add(said);
                    while to != to_end {
                        let word = u64::from_le_bytes(rest.cast::<[u8; WORD]>().read());
                        let (now, used) = (*slot).decode(*code, word);
                        rest = rest.add(used);
                        *slot = now;
                        to.write(now.last);
                        (slot, code, to) = (slot.add(1), code.add(1), to.add(1));
                    }
                    to.write(local.pc);
                    let is_fetched = local.metas[0].kind() == Kind::Fetch;
                    let (mut addr, mut link) = (end.sub(count), links.add(local.template as usize));
                    if is_fetched {
                        (addr, link) = (addr.add(1), link.add(1));
                    }
                    while addr != end {
                        let from = said_addrs.add(usize::from((*link).from)).read();
                        addr.write(from.wrapping_add((*link).distance));
                        (addr, link) = (addr.add(1), link.add(1));
                    }
                    continue;
                }
                let mut addr = end.sub(said);
                if said <= WORD
                    && u64::from_le_bytes(code.cast::<[u8; WORD]>().read()) & local.codes == 0
                {
                    while addr != end {
                        (*slot).last = (*slot).last.wrapping_add((*slot).distance);
                        addr.write((*slot).last);
                        (slot, addr) = (slot.add(1), addr.add(1));
                    }
                    continue;
                }
                while addr != end {
                    let word = u64::from_le_bytes(rest.cast::<[u8; WORD]>().read());
                    let (now, used) = (*slot).decode(*code, word);
                    rest = rest.add(used);
                    *slot = now;
                    addr.write(now.last);
                    (slot, code, addr) = (slot.add(1), code.add(1), addr.add(1));
                }
            }
        }
        if next_code > code_end {
            return Err(Damage::new("it has more memory operations than its header counts"));
        }
        // SAFETY: the pointers began at the start of these slices and have only moved forward.
        let (now, ran) = unsafe {
            self.at.ops += next_code.offset_from_unsigned(codes.as_ptr());
            self.at.residual += rest.offset_from_unsigned(residual.as_ptr());
            let ran = numbers.start.offset_from_unsigned(sequence.as_ptr());
            (rows + next_addr.offset_from_unsigned(rows_start), ran)
        };
        self.at.executions += ran;
        self.at.segment_left -= ran as u32;
        self.at.carry = carry;
        let ran = sequence[..ran].iter().rev().map(|&number| &locals[usize::from(number)]);
        if let Some(last) = ran.into_iter().find(|local| local.said > 0) {
            self.at.addr = self.slots[last.slot as usize + usize::from(last.said) - 1].last;
        }
        Ok(now)
    }
}
