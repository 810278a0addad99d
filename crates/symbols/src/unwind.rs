//! Finds the callers of a place in a program without frame pointers, from the tables that compilers write
//! for exceptions (call-frame information in `.eh_frame`; DWARF 5, section 6.4).
//!
//! ```text
//!   return address --.eh_frame_hdr--> its function's table --> CFA = rsp + 48    where the caller's frame begins
//!                                                              CFA - 8           the next return address
//!                                                              CFA - 16          the caller's rbp
//! ```
//!
//! Supports only programs for AMD64: compilers for Arm and RISC-V keep frame pointers, or keep the return
//! address in a register.

use std::collections::HashMap;

use addr2line::gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, LittleEndian, Register, RegisterRule,
    UnwindContext, UnwindSection, X86_64,
};
use object::{Object, ObjectSection, ObjectSegment};

/// The registers of an AMD64 processor after a call has returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registers {
    /// The address to which the call returns.
    pub rip: u64,
    /// The stack pointer.
    pub rsp: u64,
    /// The frame pointer, or any other value if the program uses this register for another purpose.
    pub rbp: u64,
}

/// The call-frame tables of files. Each file is opened once.
#[derive(Clone, Debug, Default)]
pub struct Unwinder {
    files: HashMap<String, Option<Tables>>,
}

/// The tables of one file.
#[derive(Clone, Debug)]
struct Tables {
    frames: Section,
    header: Section,
    /// The file offset, address and size in bytes of each segment.
    segments: Vec<(u64, u64, u64)>,
}

#[derive(Clone, Debug)]
struct Section {
    address: u64,
    bytes: Vec<u8>,
}

impl Unwinder {
    /// The registers after the return of the function that contains the call. `registers` are the
    /// registers after the return of the call itself.
    ///
    /// `path` is the file of the code, and `offset` the place in that file. `read` returns the eight bytes at
    /// an address of the stack. The result is `None` if the file has no information for the place,
    /// or if the information requires registers that are not known.
    pub fn caller(
        &mut self,
        path: &str,
        offset: u64,
        registers: Registers,
        read: &dyn Fn(u64) -> Option<u64>,
    ) -> Option<Registers> {
        if !self.files.contains_key(path) {
            self.files.insert(path.to_owned(), Tables::open(path));
        }
        self.files.get(path)?.as_ref()?.caller(offset, registers, read)
    }
}

impl Tables {
    fn open(path: &str) -> Option<Tables> {
        let contents = std::fs::read(path).ok()?;
        let file = object::File::parse(&*contents).ok()?;
        if file.architecture() != object::Architecture::X86_64 {
            return None;
        }
        let section = |name: &str| {
            let section = file.section_by_name(name)?;
            Some(Section { address: section.address(), bytes: section.data().ok()?.to_vec() })
        };
        let segment = |segment: object::Segment<'_, '_>| {
            let (offset, bytes) = segment.file_range();
            (offset, segment.address(), bytes)
        };
        Some(Tables {
            frames: section(".eh_frame")?,
            header: section(".eh_frame_hdr")?,
            segments: file.segments().map(segment).collect(),
        })
    }

    fn caller(
        &self,
        offset: u64,
        Registers { rsp, rbp, .. }: Registers,
        read: &dyn Fn(u64) -> Option<u64>,
    ) -> Option<Registers> {
        // The call is before its return address; the return address itself may already belong to
        // another function.
        let offset = offset.checked_sub(1)?;
        let address = self.segments.iter().find_map(|&(start, address, bytes)| {
            let within = offset.checked_sub(start)?;
            (within < bytes).then(|| address.wrapping_add(within))
        })?;
        let bases = BaseAddresses::default()
            .set_eh_frame(self.frames.address)
            .set_eh_frame_hdr(self.header.address);
        let frames = EhFrame::new(&self.frames.bytes, LittleEndian);
        let header = EhFrameHdr::new(&self.header.bytes, LittleEndian).parse(&bases, 8).ok()?;
        let mut context = UnwindContext::new();
        let row = header
            .table()?
            .unwind_info_for_address(
                &frames,
                &bases,
                &mut context,
                address,
                EhFrame::cie_from_offset,
            )
            .ok()?;
        let known = |register: Register| match register {
            X86_64::RSP => Some(rsp),
            X86_64::RBP => Some(rbp),
            _ => None,
        };
        let frame = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                known(*register)?.wrapping_add_signed(*offset)
            }
            CfaRule::Expression(_) => return None,
        };
        // Stacks grow down.
        if frame <= rsp {
            return None;
        }
        let saved = |register: Register| match row.register(register) {
            Some(RegisterRule::Offset(offset)) => read(frame.wrapping_add_signed(offset)),
            None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => known(register),
            Some(_) => None,
        };
        let rip = saved(X86_64::RA).filter(|&rip| rip != 0)?;
        // If the old value of the frame pointer is unknown, 0 is used, because few functions need
        // it.
        Some(Registers { rip, rsp: frame, rbp: saved(X86_64::RBP).unwrap_or(0) })
    }
}
