//! A small assembler for the code that the engine adds. This code does not change flags.

/// No register.
pub(crate) const NONE: u8 = 0xff;

/// Code that is being emitted. It is written at one address and executed at another.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Code {
    /// The address at which the next byte is executed.
    pub(crate) at: u64,
    pub(crate) end: u64,
    /// The difference from that address to the address at which the byte is written.
    pub(crate) shift: u64,
}

/// A memory operand without a segment: base, index, scale, displacement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) base: u8,
    pub(crate) index: u8,
    pub(crate) scale: u8,
    pub(crate) disp: i32,
}

impl Place {
    /// The operand at this displacement from a register.
    pub(crate) fn behind(base: u8, disp: i32) -> Place {
        Place { base, index: NONE, scale: 1, disp }
    }

    /// The operand at a constant address.
    pub(crate) fn constant(disp: i32) -> Place {
        Place::behind(NONE, disp)
    }
}

const MOV_TO_MEMORY: u8 = 0x89;
const MOV_FROM_MEMORY: u8 = 0x8b;
const LEA: u8 = 0x8d;
const GS: u8 = 0x65;

impl Code {
    pub(crate) fn byte(&mut self, byte: u8) {
        debug_assert!(self.at < self.end);
        // SAFETY: the code that created this value has left room for a block.
        unsafe { (self.at.wrapping_add(self.shift) as *mut u8).write(byte) };
        self.at += 1;
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.byte(byte));
    }

    pub(crate) fn dword(&mut self, value: i32) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn qword(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// Overwrites the four bytes at `at`.
    pub(crate) fn patch(self, at: u64, value: i32) {
        // SAFETY: `at` is in the same memory.
        unsafe { (at.wrapping_add(self.shift) as *mut i32).write_unaligned(value) };
    }

    fn operation(&mut self, opcode: u8, register: u8, place: Place) {
        let high = |register: u8| if register == NONE { 0 } else { register >> 3 };
        let rex = 0x48 | high(register) << 2 | high(place.index) << 1 | high(place.base);
        self.byte(rex);
        self.byte(opcode);
        self.modrm(register, place);
    }

    fn modrm(&mut self, register: u8, place: Place) {
        let Place { base, index, scale, disp } = place;
        let register = (register & 7) << 3;
        let scale = (scale.trailing_zeros() as u8) << 6;
        if base == NONE {
            let index = if index == NONE { 4 } else { index & 7 };
            self.bytes(&[register | 4, scale | index << 3 | 5]);
            return self.dword(disp);
        }
        let mode = match disp {
            0 if base & 7 != 5 => 0,
            -128..128 => 1,
            _ => 2,
        };
        if index == NONE && base & 7 != 4 {
            self.byte(mode << 6 | register | base & 7);
        } else {
            let index = if index == NONE { 4 } else { index & 7 };
            self.bytes(&[mode << 6 | register | 4, scale | index << 3 | base & 7]);
        }
        match mode {
            0 => {}
            1 => self.byte(disp as u8),
            _ => self.dword(disp),
        }
    }

    /// `mov [place], register`
    pub(crate) fn store(&mut self, register: u8, place: Place) {
        self.operation(MOV_TO_MEMORY, register, place);
    }

    /// `lea register, [place]`
    pub(crate) fn lea(&mut self, register: u8, place: Place) {
        self.operation(LEA, register, place);
    }

    /// `mov gs:[slot], register`
    pub(crate) fn put_slot(&mut self, register: u8, slot: i32) {
        self.byte(GS);
        self.operation(MOV_TO_MEMORY, register, Place::constant(slot));
    }

    /// `mov register, gs:[slot]`
    pub(crate) fn get_slot(&mut self, register: u8, slot: i32) {
        self.byte(GS);
        self.operation(MOV_FROM_MEMORY, register, Place::constant(slot));
    }

    /// `mov to, from` with 32-bit registers, which clears the upper bits.
    pub(crate) fn copy_low(&mut self, to: u8, from: u8) {
        self.bytes(&[0x40 | (from >> 3) << 2 | to >> 3, 0x89, 0xc0 | (from & 7) << 3 | to & 7]);
    }

    /// `mov to, from`
    pub(crate) fn copy(&mut self, to: u8, from: u8) {
        self.bytes(&[0x48 | (from >> 3) << 2 | to >> 3, 0x89, 0xc0 | (from & 7) << 3 | to & 7]);
    }

    /// `mov register, constant`
    pub(crate) fn constant(&mut self, register: u8, value: u64) {
        if value <= u32::MAX.into() {
            if register >> 3 != 0 {
                self.byte(0x41);
            }
            self.byte(0xb8 | register & 7);
            self.dword(value as i32);
        } else {
            self.bytes(&[0x48 | register >> 3, 0xb8 | register & 7]);
            self.qword(value);
        }
    }

    /// `jmp to`. Returns the address of the displacement.
    pub(crate) fn jump(&mut self, to: u64) -> u64 {
        self.byte(0xe9);
        self.displacement(to)
    }

    /// `jcc to`. Returns the address of the displacement.
    pub(crate) fn jump_if(&mut self, condition: u8, to: u64) -> u64 {
        self.bytes(&[0x0f, 0x80 | condition]);
        self.displacement(to)
    }

    fn displacement(&mut self, to: u64) -> u64 {
        let at = self.at;
        self.dword(to.wrapping_sub(at + 4) as i32);
        at
    }

    /// `jmp` to any address. The word with the address is aligned, since the program may have set
    /// the flag that makes unaligned accesses fault.
    pub(crate) fn jump_far(&mut self, to: u64) {
        let padding = (self.at + 6).wrapping_neg() % 8;
        self.bytes(&[0xff, 0x25]);
        self.dword(padding as i32);
        (0..padding).for_each(|_| self.byte(0));
        self.qword(to);
    }

    /// Moves on to the next multiple of 8.
    pub(crate) fn align_word(&mut self) {
        while !self.at.is_multiple_of(8) {
            self.byte(0);
        }
    }

    /// `mov dword gs:[slot], value`
    pub(crate) fn number_into_slot(&mut self, value: u32, slot: i32) {
        self.bytes(&[GS, 0xc7, 0x04, 0x25]);
        self.dword(slot);
        self.dword(value as i32);
    }

    /// Jumps to the translated code for the program's address in r10, as the table of targets at `gs:table` has it. The
    /// program's rcx is then in its slot.
    pub(crate) fn indirect(&mut self, table: i32) {
        self.put_slot(1, crate::state::RCX);
        self.bytes(&[0x41, 0x0f, 0xb7, 0xca]); // movzx ecx, r10w
        self.bytes(&[GS, 0xff, 0x24, 0xcd]); // jmp gs:[rcx * 8 + TABLE]
        self.dword(table);
    }

    /// Continues after itself if r10 is `target`, and loads rcx from its slot; otherwise jumps to `fail`,
    /// where rcx is still in its slot.
    pub(crate) fn check_target(&mut self, target: u64, fail: u64) {
        self.bytes(&[0x48, 0xb9]); // mov rcx, -target
        self.qword(target.wrapping_neg());
        self.lea(1, Place { base: 1, index: 10, scale: 1, disp: 0 });
        self.bytes(&[0xe3, 5]); // jrcxz
        self.jump(fail);
        self.get_slot(1, crate::state::RCX);
    }

    /// An instruction with one 8-bit, 32-bit or 64-bit memory operand at `gs:[base + disp]`, and a register or
    /// extension of the opcode.
    fn with_gs(&mut self, is_wide: bool, opcode: u8, register: u8, base: u8, disp: i32) {
        self.byte(GS);
        let rex = 0x40 | u8::from(is_wide) << 3 | (register >> 3) << 2 | base >> 3;
        if rex != 0x40 {
            self.byte(rex);
        }
        self.byte(opcode);
        self.modrm(register, Place::behind(base, disp));
    }

    /// `mov gs:[base + disp], register` with a 32-bit register.
    pub(crate) fn store_gs(&mut self, register: u8, base: u8, disp: i32) {
        self.with_gs(false, MOV_TO_MEMORY, register, base, disp);
    }

    /// `add qword gs:[base + disp], value`
    pub(crate) fn add_wide_gs(&mut self, base: u8, disp: i32, value: i32) {
        self.with_gs(true, 0x81, 0, base, disp);
        self.dword(value);
    }

    /// `test byte gs:[base + disp], bits`
    pub(crate) fn test_gs(&mut self, base: u8, disp: i32, bits: u8) {
        self.with_gs(false, 0xf6, 0, base, disp);
        self.byte(bits);
    }

    /// `add dword gs:[base + disp], value`
    pub(crate) fn add_gs(&mut self, base: u8, disp: i32, value: i8) {
        self.with_gs(false, 0x83, 0, base, disp);
        self.byte(value as u8);
    }

    /// Loads the doubleword at `gs:[at + disp]` into `to`. Only the lower half of `at` is used.
    pub(crate) fn peek(&mut self, to: u8, at: u8, disp: i32) {
        self.byte(0x67);
        self.with_gs(false, MOV_FROM_MEMORY, to, at, disp);
    }

    /// Loads the byte at `gs:[at + disp]` into `to`, with the lower half of `at`.
    pub(crate) fn peek_byte(&mut self, to: u8, at: u8, disp: i32) {
        self.bytes(&[0x67, GS, 0x40 | (to >> 3) << 2 | at >> 3, 0x0f, 0xb6]); // movzx
        self.modrm(to, Place::behind(at, disp));
    }

    fn with_constant(&mut self, rex: u8, opcode: u8, extension: u8, register: u8) {
        self.bytes(&[rex | register >> 3, opcode, 0xc0 | extension << 3 | register & 7]);
    }

    /// `not register`, which changes no flags.
    pub(crate) fn invert(&mut self, register: u8) {
        self.with_constant(0x48, 0xf7, 2, register);
    }

    /// `shr register, bits`. It changes flags, like all functions after this one.
    pub(crate) fn shift_right(&mut self, register: u8, bits: u8) {
        self.with_constant(0x48, 0xc1, 5, register);
        self.byte(bits);
    }

    /// `and register, mask`
    pub(crate) fn mask(&mut self, register: u8, mask: i8) {
        self.with_constant(0x48, 0x83, 4, register);
        self.byte(mask as u8);
    }

    /// `and register, mask` with a 32-bit register.
    pub(crate) fn mask_low(&mut self, register: u8, mask: i32) {
        self.with_constant(0x40, 0x81, 4, register);
        self.dword(mask);
    }

    /// `cmp register, value` with a 32-bit register.
    pub(crate) fn compare_low(&mut self, register: u8, value: i32) {
        self.with_constant(0x40, 0x81, 7, register);
        self.dword(value);
    }

    /// `test register, bits` with an 8-bit register.
    pub(crate) fn test_low(&mut self, register: u8, bits: u8) {
        self.with_constant(0x40, 0xf6, 0, register);
        self.byte(bits);
    }
}
