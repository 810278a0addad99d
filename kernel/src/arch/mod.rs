//! The architectures: each folder has the same names, through which alone the kernel uses its
//! processor.
//!
//! ```text
//!   Context    registers of user mode: new, run -> Trap, call, set_results
//!   tables     Table, table(), WholeTable, adopt, load_root, forget_page, forget_all
//!   others     start_others, interrupt, stop, this, wait
//!   machine    Boot, put, exit, ticks, ticks_per_second
//! ```

#[cfg(target_arch = "riscv64")]
mod riscv64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "riscv64")]
pub use riscv64::*;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;
