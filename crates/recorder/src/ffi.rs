//! The part of QEMU's plugin interface that the recorder uses, written by hand.
//!
//! The types are those of `include/qemu/qemu-plugin.h`. The part that the recorder uses is the same
//! in versions 1 to 4 of the interface. But QEMU refuses a plugin with a version that it does not
//! know, so one library is built for version 1 and one for version 4.

use core::ffi::{c_char, c_int, c_uint, c_void};

/// The version of the interface that this library requests. QEMU looks up this symbol by its name.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub(crate) static qemu_plugin_version: c_int = if cfg!(feature = "api-v1") { 1 } else { 4 };

/// `QEMU_PLUGIN_CB_NO_REGS`: the callback does not read registers.
pub(crate) const CB_NO_REGS: c_int = 0;
/// `QEMU_PLUGIN_CB_R_REGS`: the callback reads registers.
pub(crate) const CB_R_REGS: c_int = 1;
/// `QEMU_PLUGIN_MEM_RW`. QEMU 7.2 confuses the other two values.
pub(crate) const MEM_RW: c_int = 3;

/// `qemu_plugin_id_t`.
pub(crate) type Id = u64;
/// `qemu_plugin_meminfo_t`.
pub(crate) type MemInfo = u32;

/// `struct qemu_plugin_tb`: a block being translated.
#[repr(C)]
pub(crate) struct Tb {
    opaque: [u8; 0],
}

/// `struct qemu_plugin_insn`: one of its instructions.
#[repr(C)]
pub(crate) struct Insn {
    opaque: [u8; 0],
}

/// `qemu_info_t`.
#[repr(C)]
pub(crate) struct Info {
    /// The guest's instruction set, as in QEMU's name.
    pub(crate) target_name: *const c_char,
    version_min: c_int,
    version_cur: c_int,
    /// Whether a whole machine is emulated.
    pub(crate) system_emulation: bool,
    smp_vcpus: c_int,
    max_vcpus: c_int,
}

impl Info {
    /// The number of virtual CPUs that a whole machine may have.
    pub(crate) fn vcpus_max(&self) -> c_int {
        self.max_vcpus
    }
}

pub(crate) type VcpuCb = unsafe extern "C" fn(Id, c_uint);
pub(crate) type SimpleCb = unsafe extern "C" fn(Id);
pub(crate) type TransCb = unsafe extern "C" fn(Id, *mut Tb);
pub(crate) type ExecCb = unsafe extern "C" fn(c_uint, *mut c_void);
pub(crate) type MemCb = unsafe extern "C" fn(c_uint, MemInfo, u64, *mut c_void);
pub(crate) type UserdataCb = unsafe extern "C" fn(Id, *mut c_void);
pub(crate) type SyscallCb =
    unsafe extern "C" fn(Id, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);
pub(crate) type SyscallRetCb = unsafe extern "C" fn(Id, c_uint, i64, i64);

unsafe extern "C" {
    pub(crate) fn qemu_plugin_register_vcpu_init_cb(id: Id, cb: VcpuCb);
    pub(crate) fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, cb: TransCb);
    pub(crate) fn qemu_plugin_register_flush_cb(id: Id, cb: SimpleCb);
    pub(crate) fn qemu_plugin_register_vcpu_syscall_cb(id: Id, cb: SyscallCb);
    pub(crate) fn qemu_plugin_register_vcpu_syscall_ret_cb(id: Id, cb: SyscallRetCb);
    pub(crate) fn qemu_plugin_register_vcpu_tb_exec_cb(
        tb: *mut Tb,
        cb: ExecCb,
        flags: c_int,
        userdata: *mut c_void,
    );
    pub(crate) fn qemu_plugin_register_vcpu_mem_cb(
        insn: *mut Insn,
        cb: MemCb,
        flags: c_int,
        rw: c_int,
        userdata: *mut c_void,
    );
    #[cfg(feature = "inside")]
    pub(crate) fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut Insn,
        cb: ExecCb,
        flags: c_int,
        userdata: *mut c_void,
    );
    #[cfg(feature = "inside")]
    pub(crate) fn qemu_plugin_register_atexit_cb(id: Id, cb: UserdataCb, userdata: *mut c_void);
    #[cfg(feature = "inside")]
    pub(crate) fn qemu_plugin_insn_data(insn: *const Insn, to: *mut c_void, bytes: usize) -> usize;
    pub(crate) fn qemu_plugin_tb_n_insns(tb: *const Tb) -> usize;
    pub(crate) fn qemu_plugin_tb_vaddr(tb: *const Tb) -> u64;
    pub(crate) fn qemu_plugin_tb_get_insn(tb: *const Tb, index: usize) -> *mut Insn;
    pub(crate) fn qemu_plugin_insn_vaddr(insn: *const Insn) -> u64;
    pub(crate) fn qemu_plugin_insn_haddr(insn: *const Insn) -> *const c_void;
    pub(crate) fn qemu_plugin_insn_size(insn: *const Insn) -> usize;
    pub(crate) fn qemu_plugin_mem_size_shift(info: MemInfo) -> c_uint;
    pub(crate) fn qemu_plugin_mem_is_store(info: MemInfo) -> bool;
}
