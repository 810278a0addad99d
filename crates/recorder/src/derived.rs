//! What is known of fixed blocks that do not record all addresses, and how far one came that faults.
//!
//! ```text
//!   the block     load a | load a + 8 | store b | load pc + 64 |
//!   its records   a                     b
//!
//!   it faults:    b is none: the second load may have been made or not      SIGSEGV, at the address x
//!                 x lies in the second load, and was read: it has not       --> left after 1 access
//!                 otherwise it has, and the store has not                   --> left after 2 accesses
//! ```
//!
//! A block that records every address shows by them how far it came. Of one that does not, the
//! fault itself says it. A fixed block can be left before its end by a fault of the host alone, as it
//! calls nothing that could leave it; but for accesses whose address must be aligned, which are
//! recorded for that reason. So we see the fault before QEMU does, find the block's record, and
//! write into it how many accesses were made. QEMU may then find that nothing is wrong: it protects
//! pages whose code it has translated against writing. It returns in that case, the access is
//! done again, and we take back what we wrote.
//!
//! Which access it was is certain, unless another thread unmaps the page meanwhile: the first access
//! of its kind to an address that faults is the one that faults. Of a thread that is killed nobody
//! knows how far its last block came; what follows from the addresses that are there counts as made.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::{MaybeUninit, transmute};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use ring::{Control, Derived, Record, Tag};

use crate::trail::trail;
use crate::vcpu::{self, Phase, cursor, next};
use crate::{global, internals, skip, sure};

/// A fixed block that does not record all of its addresses, or whose accesses are counted.
pub(crate) struct Block {
    pub(crate) number: u32,
    /// The address of its first instruction.
    pub(crate) pc: u64,
    pub(crate) bytes: u32,
    pub(crate) instructions: u32,
    /// Whether its accesses are counted where they surely hit.
    pub(crate) is_counted: bool,
    /// How many addresses it records.
    pub(crate) recorded: u8,
    /// The tag of each access, and how its address follows if it is not recorded.
    pub(crate) accesses: Box<[(u16, Option<Derived>)]>,
    /// For its fetch and each access, one more than the number of the block that does nothing besides but
    /// its fetch; 0 if there is none yet.
    pub(crate) parts: Box<[AtomicU32]>,
}

impl Block {
    /// The address of its last byte.
    pub(crate) fn last(&self) -> u64 {
        self.pc + u64::from(self.bytes).saturating_sub(1)
    }

    /// How many accesses it has made that has recorded these `addresses`, as far as they show.
    pub(crate) fn made(&self, addresses: &[u64]) -> usize {
        let recorded = recorded(addresses);
        let is_recorded = |(_, derived): &&(u16, Option<Derived>)| derived.is_none();
        let mut kept = self.accesses.iter().enumerate().filter(|(_, access)| is_recorded(access));
        kept.nth(recorded).map_or(self.accesses.len(), |(index, _)| index)
    }
}

/// Blocks by their numbers, in pages that are there once a number of theirs was given. A fork's
/// child has those of its parent. Nothing is given back: QEMU may keep a block's code as long as it
/// likes.
static BLOCKS: [AtomicPtr<Page>; PAGES] = [const { AtomicPtr::new(ptr::null_mut()) }; PAGES];
type Page = [AtomicPtr<Block>; PAGE_BLOCKS];
const PAGES: usize = 1 << 16;
const PAGE_BLOCKS: usize = 1 << 12;

/// What is known of block `number`, if that is kept.
pub(crate) fn block(number: u32) -> Option<&'static Block> {
    let page = BLOCKS.get(number as usize / PAGE_BLOCKS)?.load(Ordering::Acquire);
    // SAFETY: pages and blocks live for ever.
    unsafe {
        let block = page.as_ref()?[number as usize % PAGE_BLOCKS].load(Ordering::Acquire);
        block.as_ref()
    }
}

/// Keeps what is known of block `number`. QEMU translates on one thread at a time.
pub(crate) fn keep(number: u32, block: Block) {
    let Some(place) = BLOCKS.get(number as usize / PAGE_BLOCKS) else { return };
    let mut page = place.load(Ordering::Acquire);
    if page.is_null() {
        page = Box::into_raw(Box::new([const { AtomicPtr::new(ptr::null_mut()) }; PAGE_BLOCKS]));
        place.store(page, Ordering::Release);
    }
    let block = Box::into_raw(Box::new(block));
    // SAFETY: as above.
    unsafe { (&(*page))[number as usize % PAGE_BLOCKS].store(block, Ordering::Release) };
}

/// How many accesses a fixed block has made, whose record is `record` and whose addresses follow.
pub(crate) fn accesses(record: Record, addresses: &[u64]) -> usize {
    if let Some(made) = record.made() {
        return made;
    }
    let block = block(record.fixed_parts().0);
    block.map_or_else(|| recorded(addresses), |block| block.made(addresses))
}

/// How many of a block's `addresses` were recorded before it was left.
fn recorded(addresses: &[u64]) -> usize {
    addresses.iter().take_while(|&&address| address != Record::NONE).count()
}

type Handler = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// QEMU's handlers of [`SIGNALS`].
struct Handlers(UnsafeCell<[MaybeUninit<libc::sigaction>; 2]>);

// SAFETY: written before our handler is set, by the one thread that translates; read by it.
unsafe impl Sync for Handlers {}

static HANDLERS: Handlers = Handlers(UnsafeCell::new([MaybeUninit::uninit(); 2]));
const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Where a virtual CPU's number is, counted from its environment.
static INDEX_OFFSET: AtomicUsize = AtomicUsize::new(0);
/// QEMU's function that knows translated code.
static IN_CODE: AtomicUsize = AtomicUsize::new(0);
/// Whether faults are seen.
static STATE: AtomicU32 = AtomicU32::new(UNKNOWN);
const UNKNOWN: u32 = 0;
const SEEN: u32 = 1;
const UNSEEN: u32 = 2;

/// Whether faults are seen, so that addresses may be left out. The first call, from the translation
/// of a block, when QEMU has set its handlers, sees to it.
pub(crate) fn sees_faults(index_offset: usize) -> bool {
    match STATE.load(Ordering::Acquire) {
        UNKNOWN => {
            // Code that is not recorded would be taken for the block before it.
            let all_code_is_recorded = global::shared().session().allocations[0] == 0;
            let sees = all_code_is_recorded && cfg!(target_arch = "x86_64") && watch(index_offset);
            STATE.store(if sees { SEEN } else { UNSEEN }, Ordering::Release);
            sees
        }
        state => state == SEEN,
    }
}

/// Puts our handlers before QEMU's.
fn watch(index_offset: usize) -> bool {
    let in_code = internals::symbol(c"in_code_gen_buffer");
    if in_code.is_null() {
        return false;
    }
    IN_CODE.store(in_code as usize, Ordering::Relaxed);
    INDEX_OFFSET.store(index_offset, Ordering::Relaxed);
    // SAFETY: plain system calls on structures of ours; all that the handler reads is there.
    unsafe {
        let handlers = &mut *HANDLERS.0.get();
        for (&signal, handler) in SIGNALS.iter().zip(handlers.iter_mut()) {
            let known = libc::sigaction(signal, ptr::null(), handler.as_mut_ptr()) == 0
                && (*handler.as_ptr()).sa_flags & libc::SA_SIGINFO != 0;
            if !known {
                return false;
            }
        }
        for (&signal, handler) in SIGNALS.iter().zip(handlers.iter()) {
            let mut ours = handler.assume_init();
            ours.sa_sigaction = on_fault as Handler as usize;
            if libc::sigaction(signal, &ours, ptr::null_mut()) != 0 {
                return false;
            }
        }
    }
    true
}

/// A fault, or a signal of that number.
unsafe extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: QEMU's handler is one of three arguments. It may jump out of here: nothing of ours
    // needs to be dropped.
    unsafe {
        let here = if (*info).si_code > 0 { translated(context) } else { None };
        let marked = here.and_then(|(fault, vcpu)| mark(fault, vcpu));
        let handlers = &*HANDLERS.0.get();
        let handler = handlers[usize::from(signal == SIGNALS[1])].assume_init().sa_sigaction;
        transmute::<usize, Handler>(handler)(signal, info, context);
        if let Some((place, record)) = marked {
            place.write(record);
        }
    }
}

/// A fault of the host.
#[derive(Clone, Copy)]
enum Fault {
    /// Of a page, at that address of the host, by a write or a read.
    Page(u64, bool),
    /// An address that no program can have.
    Protection,
}

impl Fault {
    /// Whether it is that of an access to `host`, an address in this process.
    fn is_of(self, host: u64, tag: Tag) -> bool {
        let size = u64::from(tag.size());
        match self {
            Fault::Page(at, writes) => {
                at.wrapping_sub(host) < size && if writes { tag.stores() } else { tag.loads() }
            }
            Fault::Protection => [host, host.wrapping_add(size - 1)].iter().any(|at| at >> 47 != 0),
        }
    }
}

/// The fault and the virtual CPU, if translated code has faulted whose thread records.
unsafe fn translated(context: *mut c_void) -> Option<(Fault, u32)> {
    // SAFETY: the kernel's context; in translated code the environment is in its register.
    unsafe {
        let (fault, code, environment) = registers(context)?;
        let in_code: unsafe extern "C" fn(*const c_void) -> bool =
            transmute(IN_CODE.load(Ordering::Relaxed));
        if global::is_stopped() || !in_code(code as *const c_void) {
            return None;
        }
        let index = environment.wrapping_add(INDEX_OFFSET.load(Ordering::Relaxed));
        let vcpu = *(index as *const u32);
        if vcpu >= vcpu::vcpus_high() || (*cursor(vcpu)).phase != Phase::Attached {
            return None;
        }
        Some((fault, vcpu))
    }
}

/// If a block has this fault that does not record all addresses: writes into the block's record, or its trail, how many
/// accesses it has made, and gives the place and what was there.
unsafe fn mark(fault: Fault, vcpu: u32) -> Option<(*mut u64, u64)> {
    // SAFETY: the thread is that of the virtual CPU, and its records lie in one span.
    unsafe {
        let base = global::internals().guest_base() as u64;
        if sure::counts() {
            let trail = trail();
            let block = block((*trail).block as u32)?;
            let addresses = &(&(*trail).addresses)[..block.recorded.into()];
            let made = made(block, addresses, fault, base)?;
            (*trail).made = 1 + made as u64;
            return Some((&raw mut (*trail).made, 0));
        }
        let from = (*cursor(vcpu)).uncounted;
        let length = usize::try_from((*next(vcpu)).offset_from(from)).ok()?;
        let records = core::slice::from_raw_parts(from, length);
        let last = skip::last_block(records);
        let (&word, addresses) = records.get(last.clone())?.split_first()?;
        let record = Record(word);
        if record.as_control() != Some(Control::Fixed) {
            return None;
        }
        let block = block(record.fixed_parts().0)?;
        let made = made(block, addresses, fault, base)?;
        let place = from.add(last.start);
        place.write(record.left_after(made as u8).0);
        Some((place, word))
    }
}

/// How many accesses a block has made that recorded these `addresses` and then had this fault; `None`
/// if it made all.
fn made(block: &Block, addresses: &[u64], fault: Fault, guest_base: u64) -> Option<usize> {
    // Accesses before the last address that is there were made.
    let mut left = recorded(addresses);
    for (index, &(tag, derived)) in block.accesses.iter().enumerate() {
        match derived {
            None if left == 0 => return Some(index),
            None => left -= 1,
            Some(Derived { from, distance }) if left == 0 => {
                let from = match from {
                    0 => block.pc,
                    address => *addresses.get(usize::from(address) - 1)?,
                };
                let host = from.wrapping_add(distance).wrapping_add(guest_base);
                if fault.is_of(host, Tag(tag)) {
                    return Some(index);
                }
            }
            Some(_) => {}
        }
    }
    None
}

/// The fault, where the code was, and the environment of the virtual CPU.
#[cfg(target_arch = "x86_64")]
unsafe fn registers(context: *mut c_void) -> Option<(Fault, u64, usize)> {
    const PROTECTION: i64 = 13;
    const PAGE: i64 = 14;
    const WRITES: i64 = 2;
    // SAFETY: the kernel's context.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let register = |name: c_int| registers[name as usize];
    let fault = match register(libc::REG_TRAPNO) {
        PAGE => Fault::Page(register(libc::REG_CR2) as u64, register(libc::REG_ERR) & WRITES != 0),
        PROTECTION => Fault::Protection,
        _ => return None,
    };
    // `TCG_AREG0` of QEMU on this host.
    Some((fault, register(libc::REG_RIP) as u64, register(libc::REG_RBP) as usize))
}

/// Nothing is left out on other hosts.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn registers(_: *mut c_void) -> Option<(Fault, u64, usize)> {
    None
}
