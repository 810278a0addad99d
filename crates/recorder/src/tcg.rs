//! QEMU 7.2's intermediate code, as far as the recorder reads and writes it.
//!
//! ```text
//!   tcg_init_ctx.ops   <-> op <-> op <-> op <-> ...          a doubly linked list
//!                          |
//!                          +-- opcode, call's arguments, link, args[16]
//!                                                              |
//!                          temporaries, constants, labels  <---+
//! ```
//!
//! QEMU translates a block of the guest into a list of operations (TCG ops), lets plugins look
//! at it, and compiles the list. The plugin interface can have callbacks put into the list, and
//! nothing else. But the functions that make the list are exported by Debian's QEMU 7.2, and
//! with them code can be put there that needs no call.
//!
//! The shapes are those of `include/tcg/tcg.h` of QEMU 7.2. The host allows their use for that
//! version only; opcodes are looked up by name in QEMU's own table all the same.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;

use crate::internals;

/// `TCGOp`.
#[repr(C)]
pub(crate) struct Op {
    /// The opcode, and of a call how many arguments it takes and gives.
    opcode: u8,
    call: u8,
    life: u16,
    link: Link,
    pub(crate) args: [usize; ARGS],
    output_pref: [u32; 2],
}

/// `MAX_OPC_PARAM` of a 64-bit host.
const ARGS: usize = 12;

/// `QTAILQ_ENTRY`; its second pointer is to the link of the operation before, or the list's head.
#[repr(C)]
struct Link {
    next: *mut Op,
    previous: *mut Link,
}

/// `TCGTemp`, of which the value of a constant is read.
#[repr(C)]
pub(crate) struct Temp {
    types: u32,
    kind: u32,
    pub(crate) value: i64,
    memory: [usize; 2],
    name: *const c_char,
    state: [usize; 2],
}

/// `TCGLabel`: its first word counts the branches to it in the upper half.
#[repr(C)]
pub(crate) struct Label {
    references: u32,
}

/// `TCGHelperInfo`.
#[repr(C)]
struct Helper {
    function: *const c_void,
    name: *const c_char,
    flags: u32,
    types: u32,
}

/// `TCG_CALL_NO_SIDE_EFFECTS`.
const NO_SIDE_EFFECTS: u32 = 4;

/// `TCGOpDef`.
#[repr(C)]
struct Definition {
    name: *const c_char,
    counts: [u8; 4],
    flags: u8,
    constraints: *const c_void,
}

type Emit = unsafe extern "C" fn(c_int) -> *mut Op;
type InsertBefore = unsafe extern "C" fn(*mut c_void, *mut Op, c_int) -> *mut Op;
type Remove = unsafe extern "C" fn(*mut c_void, *mut Op);
type Constant = unsafe extern "C" fn(c_int, i64) -> *mut Temp;
type NewTemp = unsafe extern "C" fn(c_int, bool) -> *mut Temp;
type NewLabel = unsafe extern "C" fn() -> *mut Label;

/// `TCG_CALL_NO_READ_GLOBALS | TCG_CALL_NO_WRITE_GLOBALS`: the first implies the second.
const NO_WRITES_OF_REGISTERS: u32 = 1 | 2;

/// Operations that give one result for the same arguments, as far as addresses are made of them.
#[rustfmt::skip]
const PURE: &[&CStr] = &[
    c"mov_i32", c"add_i32", c"sub_i32", c"and_i32", c"or_i32", c"xor_i32", c"shl_i32", c"shr_i32",
    c"sar_i32", c"mul_i32", c"neg_i32", c"not_i32", c"ext8s_i32", c"ext8u_i32", c"ext16s_i32",
    c"ext16u_i32", c"deposit_i32", c"extract_i32", c"sextract_i32",
    c"mov_i64", c"add_i64", c"sub_i64", c"and_i64", c"or_i64", c"xor_i64", c"shl_i64", c"shr_i64",
    c"sar_i64", c"mul_i64", c"neg_i64", c"not_i64", c"ext8s_i64", c"ext8u_i64", c"ext16s_i64",
    c"ext16u_i64", c"ext32s_i64", c"ext32u_i64", c"deposit_i64", c"extract_i64", c"sextract_i64",
    c"ext_i32_i64", c"extu_i32_i64", c"extrl_i64_i32", c"extrh_i64_i32",
];

/// `TCG_OPF_BB_END`.
const ENDS_BASIC_BLOCK: u8 = 2;
/// `TEMP_EBB`, `TEMP_CONST`, and the bits of a temporary's kind.
const EXTENDED: u32 = 1;
const CONSTANT: u32 = 5;
const KIND_MASK: u32 = 7;
/// `TCG_TYPE_I32`.
const I32: c_int = 0;
/// `TCG_TYPE_I64`.
const I64: c_int = 1;
/// `TCG_COND_GE`.
const NOT_LESS: usize = 3;
/// `TCG_COND_NE`.
const NOT_EQUAL: usize = 9;
/// `TCG_COND_GTU`.
const UNSIGNED_GREATER: usize = 13;
/// `TCG_MAX_TEMPS`.
pub(crate) const TEMPS_MAX: usize = 512;

/// The opcodes that are read or written.
#[derive(Clone, Copy)]
pub(crate) struct Opcodes {
    pub(crate) add_i64: u8,
    pub(crate) and_i64: u8,
    pub(crate) br: u8,
    pub(crate) brcond_i32: u8,
    pub(crate) brcond_i64: u8,
    pub(crate) call: u8,
    pub(crate) discard: u8,
    pub(crate) exit_tb: u8,
    pub(crate) extu_i32_i64: u8,
    pub(crate) goto_tb: u8,
    pub(crate) insn_start: u8,
    pub(crate) ld_i32: u8,
    pub(crate) ld_i64: u8,
    pub(crate) mov_i32: u8,
    pub(crate) mov_i64: u8,
    pub(crate) or_i64: u8,
    pub(crate) plugin_cb_end: u8,
    pub(crate) plugin_cb_start: u8,
    pub(crate) set_label: u8,
    pub(crate) shl_i64: u8,
    pub(crate) shr_i64: u8,
    pub(crate) st_i64: u8,
    pub(crate) sub_i64: u8,
    pub(crate) xor_i64: u8,
}

/// QEMU's functions and tables.
#[derive(Clone, Copy)]
pub(crate) struct Tcg {
    pub(crate) opcodes: Opcodes,
    /// Which opcodes give one result for the same arguments, by number.
    pure: [bool; 256],
    definitions: *const Definition,
    context: *mut c_void,
    emit: Emit,
    insert_before: InsertBefore,
    remove: Remove,
    constant: Constant,
    new_temp: NewTemp,
    new_label: NewLabel,
}

impl Tcg {
    /// Finds them, in a QEMU that is known to be 7.2.
    pub(crate) fn find() -> Option<Tcg> {
        let symbol = |name: &CStr| Some(internals::symbol(name)).filter(|found| !found.is_null());
        let definitions = symbol(c"tcg_op_defs")?.cast::<Definition>().cast_const();
        // SAFETY: the types are those of QEMU 7.2's definitions.
        unsafe {
            let count = *symbol(c"tcg_op_defs_max")?.cast::<usize>();
            let code = |name: &CStr| {
                let named = |&code: &usize| CStr::from_ptr((*definitions.add(code)).name) == name;
                (0..count).find(named).and_then(|code| u8::try_from(code).ok())
            };
            Some(Tcg {
                opcodes: Opcodes {
                    add_i64: code(c"add_i64")?,
                    and_i64: code(c"and_i64")?,
                    br: code(c"br")?,
                    brcond_i32: code(c"brcond_i32")?,
                    brcond_i64: code(c"brcond_i64")?,
                    call: code(c"call")?,
                    discard: code(c"discard")?,
                    exit_tb: code(c"exit_tb")?,
                    extu_i32_i64: code(c"extu_i32_i64")?,
                    goto_tb: code(c"goto_tb")?,
                    insn_start: code(c"insn_start")?,
                    ld_i32: code(c"ld_i32")?,
                    ld_i64: code(c"ld_i64")?,
                    mov_i32: code(c"mov_i32")?,
                    mov_i64: code(c"mov_i64")?,
                    or_i64: code(c"or_i64")?,
                    plugin_cb_end: code(c"plugin_cb_end")?,
                    plugin_cb_start: code(c"plugin_cb_start")?,
                    set_label: code(c"set_label")?,
                    shl_i64: code(c"shl_i64")?,
                    shr_i64: code(c"shr_i64")?,
                    st_i64: code(c"st_i64")?,
                    sub_i64: code(c"sub_i64")?,
                    xor_i64: code(c"xor_i64")?,
                },
                pure: {
                    let mut pure = [false; 256];
                    PURE.iter().filter_map(|name| code(name)).for_each(|code| {
                        pure[usize::from(code)] = true;
                    });
                    pure
                },
                definitions,
                context: symbol(c"tcg_init_ctx")?,
                emit: transmute::<*mut c_void, Emit>(symbol(c"tcg_emit_op")?),
                insert_before: transmute::<*mut c_void, InsertBefore>(symbol(
                    c"tcg_op_insert_before",
                )?),
                remove: transmute::<*mut c_void, Remove>(symbol(c"tcg_op_remove")?),
                constant: transmute::<*mut c_void, Constant>(symbol(c"tcg_constant_internal")?),
                new_temp: transmute::<*mut c_void, NewTemp>(symbol(c"tcg_temp_new_internal")?),
                new_label: transmute::<*mut c_void, NewLabel>(symbol(c"gen_new_label")?),
            })
        }
    }

    /// The operations of the block that is being translated.
    ///
    /// # Safety
    ///
    /// In QEMU's callback for a translated block; the operations live as long.
    pub(crate) unsafe fn ops(&self) -> Ops {
        // SAFETY: an operation that is appended is the last; going back from it ends at the
        // head of the list, whose own pointer is to the last link, which nothing follows.
        unsafe {
            let last = (self.emit)(self.opcodes.discard.into());
            let mut first = &raw mut (*last).link;
            while !(*(*(*first).previous).previous).next.is_null() {
                first = (*first).previous;
            }
            let head = (*first).previous;
            (self.remove)(self.context, last);
            Ops((*head).next)
        }
    }

    /// Whether a basic block of the intermediate code ends with `op`: temporaries end there.
    pub(crate) unsafe fn ends_basic_block(&self, op: *const Op) -> bool {
        // SAFETY: the table has an entry for each opcode.
        unsafe { (*self.definitions.add((*op).opcode.into())).flags & ENDS_BASIC_BLOCK != 0 }
    }

    /// Whether `op` goes on behind it if a condition does not hold.
    pub(crate) unsafe fn is_conditional(&self, op: *const Op) -> bool {
        // SAFETY: the caller's operation lives.
        let code = unsafe { (*op).opcode };
        code == self.opcodes.brcond_i32 || code == self.opcodes.brcond_i64
    }

    /// Whether `op`, which is no call, writes that temporary.
    pub(crate) unsafe fn writes(&self, op: *const Op, temp: usize) -> bool {
        // SAFETY: the table has an entry for each opcode; arguments begin with what is written.
        unsafe {
            let outputs = (*self.definitions.add((*op).opcode.into())).counts[0];
            (&(*op).args)[..outputs.into()].contains(&temp)
        }
    }

    /// How many temporaries `op`, which is no call, writes and reads, and how many constants follow.
    pub(crate) unsafe fn counts(&self, op: *const Op) -> [usize; 3] {
        // SAFETY: the table has an entry for each opcode.
        let counts = unsafe { (*self.definitions.add((*op).opcode.into())).counts };
        [counts[0], counts[1], counts[2]].map(usize::from)
    }

    /// Whether `op` gives the same whenever its arguments are the same.
    pub(crate) unsafe fn pure(&self, op: *const Op) -> bool {
        // SAFETY: the caller's operation lives.
        unsafe { self.pure[usize::from((*op).opcode)] }
    }

    /// The temporaries that `op`, a call, writes by itself.
    pub(crate) unsafe fn results<'a>(op: *const Op) -> &'a [usize] {
        // SAFETY: a call's arguments begin with its results; operations live while the block is
        // translated.
        unsafe { &(&(*op).args)[..usize::from((*op).call >> 4)] }
    }

    /// Whether the helper that `op`, a call, calls may write the guest's registers.
    pub(crate) unsafe fn may_write_registers(op: *const Op) -> bool {
        // SAFETY: descriptions of helpers live as long as QEMU.
        unsafe { helper(op).is_none_or(|helper| (*helper).flags & NO_WRITES_OF_REGISTERS == 0) }
    }

    /// Whether `op` is a call of the helper of that name.
    pub(crate) unsafe fn is_call(&self, op: *const Op, name: &CStr) -> bool {
        // SAFETY: names of helpers are terminated.
        unsafe {
            (*op).opcode == self.opcodes.call
                && helper(op).is_some_and(|helper| CStr::from_ptr((*helper).name) == name)
        }
    }

    /// Whether `op`, a call, may access the guest's memory. What has no effect cannot fault.
    pub(crate) unsafe fn may_access(op: *const Op) -> bool {
        // SAFETY: descriptions of helpers live as long as QEMU, and names are terminated.
        unsafe {
            helper(op).is_none_or(|helper| {
                (*helper).flags & NO_SIDE_EFFECTS == 0
                    && !computes(CStr::from_ptr((*helper).name).to_bytes())
            })
        }
    }

    /// Whether `op`, a call, may leave the block though it does not access memory: it divides.
    pub(crate) unsafe fn divides(op: *const Op) -> bool {
        // SAFETY: as above.
        unsafe {
            helper(op).is_some_and(|helper| is_division(CStr::from_ptr((*helper).name).to_bytes()))
        }
    }

    /// The label that `op` branches to, if it is a branch.
    pub(crate) unsafe fn branch_target(&self, op: *const Op) -> Option<usize> {
        let codes = &self.opcodes;
        // SAFETY: branches have their label where QEMU's own passes look for it.
        unsafe {
            match (*op).opcode {
                code if code == codes.br => Some((*op).args[0]),
                code if code == codes.brcond_i32 || code == codes.brcond_i64 => Some((*op).args[3]),
                _ => None,
            }
        }
    }

    /// A 64-bit constant.
    pub(crate) unsafe fn constant(&self, value: u64) -> usize {
        // SAFETY: QEMU makes it or finds it; the caller has looked whether there is room.
        unsafe { (self.constant)(I64, value as i64) as usize }
    }

    /// Whether the block leaves room for `more` temporaries and constants. `environment` is the
    /// first of all.
    pub(crate) unsafe fn has_temps(&self, environment: usize, more: usize) -> bool {
        // SAFETY: as below.
        let top = unsafe { self.constant(UNUSUAL) };
        top.checked_sub(environment)
            .is_some_and(|bytes| bytes / size_of::<Temp>() + more < TEMPS_MAX)
    }

    /// A 64-bit temporary that the block does not use anywhere.
    pub(crate) unsafe fn fresh_temp(&self) -> usize {
        // SAFETY: the caller has looked whether there is room.
        unsafe { self.fresh(I64) }
    }

    /// The same of 32 bits.
    pub(crate) unsafe fn fresh_narrow_temp(&self) -> usize {
        // SAFETY: the caller has looked whether there is room.
        unsafe { self.fresh(I32) }
    }

    /// The same of 64 bits, and a branch that is not taken leaves it alone.
    pub(crate) unsafe fn fresh_extended_temp(&self) -> usize {
        // SAFETY: the caller has looked whether there is room; nobody else has the temporary.
        unsafe {
            let temp = self.fresh(I64);
            let kind = &mut (*(temp as *mut Temp)).kind;
            *kind = *kind & !KIND_MASK | EXTENDED;
            temp
        }
    }

    /// QEMU gives a temporary again that was used and freed in the block before, so that our code
    /// would change it under the block's. What lies behind a constant that nobody needs is new.
    unsafe fn fresh(&self, kind: c_int) -> usize {
        // SAFETY: each turn takes a temporary that was free, and the caller has looked whether
        // there is room.
        unsafe {
            let top = self.constant(UNUSUAL);
            loop {
                let temp = (self.new_temp)(kind, false) as usize;
                if temp > top {
                    return temp;
                }
            }
        }
    }

    /// A label that nothing branches to yet.
    pub(crate) unsafe fn new_label(&self) -> *mut Label {
        // SAFETY: QEMU makes it.
        unsafe { (self.new_label)() }
    }

    /// Writes operations behind the block's last.
    pub(crate) unsafe fn append(&self, write: impl FnOnce(&Writer)) {
        // SAFETY: what is appended stands for the end, and goes again.
        unsafe {
            let end = (self.emit)(self.opcodes.discard.into());
            write(&self.before(end));
            (self.remove)(self.context, end);
        }
    }

    /// Writes operations before `op`.
    pub(crate) fn before(&self, op: *mut Op) -> Writer<'_> {
        Writer { tcg: self, before: op }
    }
}

/// Whether the helper of that name, of an x86 guest, computes with registers alone, though its flags do not
/// say so: vectors, but for those that gather and scatter, and divisions.
fn computes(name: &[u8]) -> bool {
    let is_of_vectors = [&b"_mmx"[..], b"_xmm", b"_ymm"].iter().any(|end| name.ends_with(end));
    let has_addresses = |part: &&[u8]| name.windows(part.len()).any(|window| window == *part);
    let moves = [&b"maskmov"[..], b"gather"].iter().any(has_addresses);
    let is_scalar = SCALARS.contains(&name) || name.starts_with(b"cvt");
    is_of_vectors && !moves || is_scalar || is_division(name)
}

/// Whether the helper of that name divides integers.
fn is_division(name: &[u8]) -> bool {
    (name.starts_with(b"div") || name.starts_with(b"idiv"))
        && [&b"b_AL"[..], b"w_AX", b"l_EAX", b"q_EAX"].iter().any(|end| name.ends_with(end))
}

/// Helpers for one number in a vector's register.
#[rustfmt::skip]
const SCALARS: [&[u8]; 16] = [
    b"addss", b"addsd", b"subss", b"subsd", b"mulss", b"mulsd", b"divss", b"divsd",
    b"minss", b"minsd", b"maxss", b"maxsd", b"comiss", b"comisd", b"ucomiss", b"ucomisd",
];

/// The argument that stands for `label`, to which one branch more goes.
unsafe fn refer(label: *mut Label) -> usize {
    // SAFETY: the label is QEMU's, and lives while the block is translated.
    unsafe { (*label).references += 1 << 16 };
    label as usize
}

/// The description of the helper that `op`, a call, calls.
unsafe fn helper(op: *const Op) -> Option<*const Helper> {
    // SAFETY: a call's arguments are followed by its function and its description.
    unsafe {
        let count = usize::from((*op).call & 15) + usize::from((*op).call >> 4);
        (*op).args.get(count + 1).map(|&helper| helper as *const Helper)
    }
}

/// A constant that no program has.
const UNUSUAL: u64 = 0x7061_6765_7761_6c6b;

/// The operations of a block, from one on.
pub(crate) struct Ops(*mut Op);

impl From<*mut Op> for Ops {
    fn from(first: *mut Op) -> Ops {
        Ops(first)
    }
}

impl Iterator for Ops {
    type Item = *mut Op;

    fn next(&mut self) -> Option<*mut Op> {
        let op = self.0;
        if op.is_null() {
            return None;
        }
        // SAFETY: the list's operations live while the block is translated.
        self.0 = unsafe { (*op).link.next };
        Some(op)
    }
}

impl Op {
    /// Its opcode, as in [`Opcodes`].
    pub(crate) fn opcode(&self) -> u8 {
        self.opcode
    }
}

impl Temp {
    /// Whether it is a constant.
    pub(crate) unsafe fn is_constant(temp: usize) -> bool {
        // SAFETY: the argument of an operation that takes temporaries.
        unsafe { (*(temp as *const Temp)).kind & KIND_MASK == CONSTANT }
    }

    /// The register of the guest that has this name. `environment` is the first temporary of
    /// all; those with names follow it.
    pub(crate) unsafe fn named(environment: usize, name: &CStr) -> Option<usize> {
        let temps = environment as *const Temp;
        // SAFETY: the context has room for so many, and names are terminated.
        (0..TEMPS_MAX)
            .map(|index| unsafe { temps.add(index) })
            .take_while(|&temp| unsafe { !(*temp).name.is_null() })
            .find(|&temp| unsafe { CStr::from_ptr((*temp).name) == name })
            .map(|temp| temp as usize)
    }
}

/// Inserts operations before another, one after the other.
///
/// Arguments are temporaries and constants; offsets are in bytes.
pub(crate) struct Writer<'a> {
    tcg: &'a Tcg,
    before: *mut Op,
}

impl Writer<'_> {
    /// `to = from` of 32 bits, without a sign.
    pub(crate) unsafe fn extend(&self, to: usize, from: usize) {
        // SAFETY: as for all of these, the arguments are of the kinds that the opcode takes.
        unsafe { self.put(self.tcg.opcodes.extu_i32_i64, &[to, from]) };
    }

    /// `to = 32 bits at base + offset`.
    pub(crate) unsafe fn load_32(&self, to: usize, base: usize, offset: usize) {
        // SAFETY: see `extend`.
        unsafe { self.put(self.tcg.opcodes.ld_i32, &[to, base, offset]) };
    }

    /// `to = 64 bits at base`.
    pub(crate) unsafe fn load(&self, to: usize, base: usize) {
        // SAFETY: see `extend`.
        unsafe { self.load_at(to, base, 0) };
    }

    /// `to = 64 bits at base + offset`.
    pub(crate) unsafe fn load_at(&self, to: usize, base: usize, offset: usize) {
        // SAFETY: see `extend`.
        unsafe { self.put(self.tcg.opcodes.ld_i64, &[to, base, offset]) };
    }

    /// `to = from`.
    pub(crate) unsafe fn copy(&self, to: usize, from: usize) {
        // SAFETY: see `extend`.
        unsafe { self.put(self.tcg.opcodes.mov_i64, &[to, from]) };
    }

    /// `to = one + other`.
    pub(crate) unsafe fn sum(&self, to: usize, one: usize, other: usize) {
        // SAFETY: see `extend`.
        unsafe { self.put(self.tcg.opcodes.add_i64, &[to, one, other]) };
    }

    /// `to = one & other`.
    pub(crate) unsafe fn both(&self, to: usize, one: usize, other: usize) {
        // SAFETY: see `extend`.
        unsafe { self.put(self.tcg.opcodes.and_i64, &[to, one, other]) };
    }

    /// `to = one | other`.
    pub(crate) unsafe fn either(&self, to: usize, one: usize, other: usize) {
        // SAFETY: see `extend`.
        unsafe { self.put(self.tcg.opcodes.or_i64, &[to, one, other]) };
    }

    /// `to = one ^ other`.
    pub(crate) unsafe fn differing(&self, to: usize, one: usize, other: usize) {
        // SAFETY: see `extend`.
        unsafe { self.put(self.tcg.opcodes.xor_i64, &[to, one, other]) };
    }

    /// `to = from >> bits`.
    pub(crate) unsafe fn shift_right(&self, to: usize, from: usize, bits: u64) {
        // SAFETY: see `extend`.
        unsafe { self.put(self.tcg.opcodes.shr_i64, &[to, from, self.tcg.constant(bits)]) };
    }

    /// `64 bits at base + offset = value`.
    pub(crate) unsafe fn store(&self, value: usize, base: usize, offset: usize) {
        // SAFETY: see `extend`.
        unsafe { self.put(self.tcg.opcodes.st_i64, &[value, base, offset]) };
    }

    /// `to = from + constant`.
    pub(crate) unsafe fn add(&self, to: usize, from: usize, constant: u64) {
        // SAFETY: see `extend`.
        unsafe { self.put(self.tcg.opcodes.add_i64, &[to, from, self.tcg.constant(constant)]) };
    }

    /// `to = from & constant`.
    pub(crate) unsafe fn and(&self, to: usize, from: usize, constant: u64) {
        // SAFETY: see `extend`.
        unsafe { self.put(self.tcg.opcodes.and_i64, &[to, from, self.tcg.constant(constant)]) };
    }

    /// `to = from | constant`.
    pub(crate) unsafe fn or(&self, to: usize, from: usize, constant: u64) {
        // SAFETY: see `extend`.
        unsafe { self.put(self.tcg.opcodes.or_i64, &[to, from, self.tcg.constant(constant)]) };
    }

    /// `to = from << bits`.
    pub(crate) unsafe fn shift_left(&self, to: usize, from: usize, bits: u64) {
        // SAFETY: see `extend`.
        unsafe { self.put(self.tcg.opcodes.shl_i64, &[to, from, self.tcg.constant(bits)]) };
    }

    /// Goes on at `label`.
    pub(crate) unsafe fn branch(&self, label: *mut Label) {
        // SAFETY: see `extend`.
        unsafe { self.put(self.tcg.opcodes.br, &[refer(label)]) };
    }

    /// Goes on at `label` if `temp > constant`, both without a sign.
    pub(crate) unsafe fn branch_if_above(&self, temp: usize, constant: u64, label: *mut Label) {
        // SAFETY: see `extend`.
        unsafe { self.branch_if(UNSIGNED_GREATER, temp, self.tcg.constant(constant), label) };
    }

    /// Goes on at `label` unless `temp` has its highest bit.
    pub(crate) unsafe fn branch_unless_negative(&self, temp: usize, label: *mut Label) {
        // SAFETY: see `extend`.
        unsafe { self.branch_if(NOT_LESS, temp, self.tcg.constant(0), label) };
    }

    /// Goes on at `label` if `temp != other`.
    pub(crate) unsafe fn branch_unless_equal(&self, temp: usize, other: usize, label: *mut Label) {
        // SAFETY: see `extend`.
        unsafe { self.branch_if(NOT_EQUAL, temp, other, label) };
    }

    unsafe fn branch_if(&self, condition: usize, temp: usize, other: usize, label: *mut Label) {
        // SAFETY: see `extend`.
        unsafe { self.put(self.tcg.opcodes.brcond_i64, &[temp, other, condition, refer(label)]) };
    }

    /// Goes to the block that this exit of the block is linked to, if it is.
    pub(crate) unsafe fn go_to_block(&self, exit: usize) {
        // SAFETY: see `extend`.
        unsafe { self.put(self.tcg.opcodes.goto_tb, &[exit]) };
    }

    /// Leaves translated code; `from` tells block and exit.
    pub(crate) unsafe fn leave(&self, from: usize) {
        // SAFETY: see `extend`.
        unsafe { self.put(self.tcg.opcodes.exit_tb, &[from]) };
    }

    /// `label` is here.
    pub(crate) unsafe fn label(&self, label: *mut Label) {
        // SAFETY: see `extend`. The lowest bit says that the label has a place.
        unsafe {
            (*label).references |= 1;
            self.put(self.tcg.opcodes.set_label, &[label as usize]);
        }
    }

    /// Calls `function` with `inputs`, as `like` calls another one of the same type.
    pub(crate) unsafe fn call(&self, like: *const Op, function: *const (), inputs: [usize; 2]) {
        // SAFETY: see `extend`; a call's inputs are followed by its function.
        unsafe {
            let mut args = (*like).args;
            args[..2].copy_from_slice(&inputs);
            args[2] = function as usize;
            (*self.put(self.tcg.opcodes.call, &args)).call = (*like).call;
        }
    }

    unsafe fn put(&self, opcode: u8, args: &[usize]) -> *mut Op {
        // SAFETY: QEMU makes the operation; no opcode has more arguments than it has room for.
        unsafe {
            let op = (self.tcg.insert_before)(self.tcg.context, self.before, opcode.into());
            (&mut (*op).args)[..args.len()].copy_from_slice(args);
            op
        }
    }
}
