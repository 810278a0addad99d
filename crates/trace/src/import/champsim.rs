//! ChampSim's instruction traces: records of a fixed size, without header or end mark.
//!
//! ```text
//!   input_instr, 64 bytes                       cloudsuite_instr, 96 bytes
//!    0 ip            8                           0 ip            8
//!    8 is_branch     1                           8 is_branch     1
//!    9 branch_taken  1                           9 branch_taken  1
//!   10 dest_regs     2                          10 dest_regs     4
//!   12 src_regs      4                          14 src_regs      4   then 6 of padding
//!   16 dest_mem  2 x 8   stores, 0 = none       24 dest_mem  4 x 8
//!   32 src_mem   4 x 8   loads, 0 = none        56 src_mem   4 x 8
//!                                               88 asid          2   then 6 of padding
//! ```
//!
//! Records have neither the length of an instruction nor the size of an access. An access counts as
//! one byte, so that none appears to cross a page. Source: ChampSim `inc/trace_instruction.h`.

use addr::Kind;

use super::rows::{BATCH_ROWS, Rows};
use super::stream::{Decode, Fault};
use crate::count::counted;
use crate::{Arch, Batch, Event, Filter, Header};

const IP: usize = 0;
const IS_BRANCH: usize = 8;
const BRANCH_TAKEN: usize = 9;

/// The length of the longest x86 instruction: two instructions that start further apart are not
/// consecutive.
const INSTRUCTION_BYTES_MAX: u64 = 15;
/// The number of records that are examined to recognise the format.
const SEEN_RECORDS: usize = 512;
/// The first address that does not fit into 32 bits.
const ABOVE_32_BITS: u64 = 1 << 32;

/// The positions of the fields in a variant of the format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    bytes: usize,
    stores: usize,
    stores_count: usize,
    loads: usize,
    asid: Option<usize>,
    name: &'static str,
}

/// The plain format.
pub(crate) const CHAMPSIM: Layout =
    Layout { bytes: 64, stores: 16, stores_count: 2, loads: 32, asid: None, name: "champsim" };
/// The format of the CloudSuite traces.
pub(crate) const CLOUDSUITE: Layout = Layout {
    bytes: 96,
    stores: 24,
    stores_count: 4,
    loads: 56,
    asid: Some(88),
    name: "cloudsuite",
};

const LOADS_COUNT: usize = 4;

/// Decodes the records.
#[derive(Debug)]
pub(crate) struct ChampSim {
    layout: Layout,
    ip_max: u64,
    data_max: u64,
    data: u64,
    ip_zero: u64,
    asid: u16,
}

impl ChampSim {
    /// Decodes records of `layout`.
    pub(crate) fn new(layout: Layout) -> ChampSim {
        ChampSim { layout, ip_max: 0, data_max: 0, data: 0, ip_zero: 0, asid: 0 }
    }

    /// The header for a trace that starts with `bytes`.
    pub(crate) fn header(layout: Layout, bytes: &[u8], fetches: bool) -> Header {
        let mut notes = vec![
            "ChampSim's format has no sizes of accesses, no threads and no system calls; each \
             access counts as one byte"
                .to_owned(),
        ];
        let mut seen = ChampSim::new(layout);
        for record in bytes.chunks_exact(layout.bytes) {
            seen.watch(record);
        }
        notes.extend(seen.truncated());
        Header {
            producer: format!("pagewalk import {} {}", layout.name, env!("CARGO_PKG_VERSION")),
            command: Vec::new(),
            arch: Arch::X86_64,
            fetches,
            filter: Filter::None,
            page_bytes: 4096,
            notes,
            kernel_from: None,
        }
    }

    /// Whether `bytes` look like records of `layout`. There is no magic number, so all records must
    /// be plausible.
    pub(crate) fn is(layout: Layout, bytes: &[u8]) -> bool {
        let records = bytes.chunks_exact(layout.bytes).take(SEEN_RECORDS);
        let mut count = 0;
        let plausible = records.clone().all(|record| {
            count += 1;
            let ip = word(record, IP);
            // x86-64 addresses are canonical: bits 63 to 47 or, with five levels, 56 agree.
            let canonical = matches!((ip as i64) >> 56, 0 | -1);
            record[IS_BRANCH] <= 1
                && record[BRANCH_TAKEN] <= record[IS_BRANCH]
                && ip != 0
                && canonical
                && operands(layout, record).all(|(_, addr)| matches!((addr as i64) >> 56, 0 | -1))
        });
        // In any real program, most consecutive instructions are close together.
        let near = records
            .clone()
            .zip(records.skip(1))
            .filter(|(a, b)| word(b, IP).wrapping_sub(word(a, IP)).wrapping_add(1 << 20) < 1 << 21)
            .count();
        count > 0 && plausible && near * 2 + 1 >= count
    }

    /// Called if `bytes` do not look like records of `layout`. Returns what they are instead, if
    /// that is clear.
    pub(crate) fn mistaken(layout: Layout, bytes: &[u8]) -> Option<&'static str> {
        if ChampSim::is(layout, bytes) {
            return None;
        }
        if layout == CHAMPSIM && ChampSim::is(CLOUDSUITE, bytes) {
            return Some("the records have 96 bytes, as in CloudSuite traces; give --cloudsuite");
        }
        if layout == CLOUDSUITE && ChampSim::is(CHAMPSIM, bytes) {
            return Some(
                "the records have 64 bytes, as in ChampSim's own traces; leave --cloudsuite out",
            );
        }
        let mut swapped = bytes[..bytes.len().min(SEEN_RECORDS * layout.bytes)].to_vec();
        for record in swapped.chunks_exact_mut(layout.bytes) {
            let (head, operands) = record.split_at_mut(layout.stores);
            head[..8].reverse();
            let words = layout.stores_count + LOADS_COUNT;
            operands.chunks_exact_mut(8).take(words).for_each(<[u8]>::reverse);
        }
        ChampSim::is(layout, &swapped).then_some(
            "the records are in big-endian byte order; only little-endian traces can be read",
        )
    }

    /// Updates the largest addresses seen with those of `record`.
    #[inline]
    fn watch(&mut self, record: &[u8]) {
        let ip = word(record, IP);
        self.ip_max = self.ip_max.max(ip);
        self.ip_zero += u64::from(ip == 0);
        for (_, addr) in operands(self.layout, record) {
            self.data_max = self.data_max.max(addr);
            self.data += 1;
        }
    }

    /// A warning for the known defect of ChampSim's Pin tracer (its issue 301): data addresses lost
    /// their upper half while instruction addresses kept it.
    fn truncated(&self) -> Option<String> {
        const ENOUGH: u64 = 16;
        (self.data >= ENOUGH && self.data_max < ABOVE_32_BITS && self.ip_max >= ABOVE_32_BITS).then(
            || {
                format!(
                    "WRONG ADDRESSES: all {} data addresses are below 4 GiB while instructions \
                     reach {:#x}. The tool that wrote this trace cut data addresses to 32 bits \
                     (ChampSim issue 301): pages that are different look like one, so counts of \
                     TLB misses cannot be trusted. Trace the program again with a repaired tracer",
                    self.data, self.ip_max
                )
            },
        )
    }
}

impl Decode for ChampSim {
    fn decode(
        &mut self,
        bytes: &[u8],
        _last: bool,
        rows: &mut Rows,
        batch: &mut Batch,
    ) -> Result<usize, Fault> {
        let mut at = 0;
        for record in bytes.chunks_exact(self.layout.bytes) {
            if batch.len() >= BATCH_ROWS {
                break;
            }
            if record[IS_BRANCH] > 1 || record[BRANCH_TAKEN] > 1 {
                return Err(not_a_record(at, self.layout));
            }
            if word(record, IP) == 0 && record.iter().all(|&byte| byte == 0) {
                return Err(Fault::new(at, "a record of zeros: the file is truncated or damaged"));
            }
            self.watch(record);
            if let Some(asid) = self.layout.asid {
                let asid = u16::from_le_bytes([record[asid], record[asid + 1]]);
                if asid != self.asid {
                    self.asid = asid;
                    rows.event(batch, Event::Run { cpu: None, space: u32::from(asid) });
                }
            }
            let ends = record[IS_BRANCH] == 1;
            rows.instruction_unsized(batch, word(record, IP), INSTRUCTION_BYTES_MAX, ends);
            for (kind, addr) in operands(self.layout, record) {
                rows.access(batch, kind, addr, 1);
            }
            at += self.layout.bytes;
        }
        Ok(at)
    }

    fn record_bytes_max(&self) -> usize {
        self.layout.bytes
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::from_iter(self.truncated());
        if self.ip_zero > 0 {
            warnings.push(format!(
                "{}: the trace may be of another format",
                counted(self.ip_zero, "instruction has", "instructions have", "the address 0")
            ));
        }
        warnings
    }
}

/// The accesses of `record`, loads before stores. A field with 0 is empty.
#[inline]
fn operands(layout: Layout, record: &[u8]) -> impl Iterator<Item = (Kind, u64)> + '_ {
    let loads =
        (0..LOADS_COUNT).map(move |slot| (Kind::Load, word(record, layout.loads + 8 * slot)));
    let stores = (0..layout.stores_count)
        .map(move |slot| (Kind::Store, word(record, layout.stores + 8 * slot)));
    loads.chain(stores).filter(|&(_, addr)| addr != 0)
}

#[inline]
fn word(record: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&record[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cold]
fn not_a_record(at: usize, layout: Layout) -> Fault {
    let other =
        if layout == CHAMPSIM { "; if it is a CloudSuite trace, give --cloudsuite" } else { "" };
    Fault::new(
        at,
        format!(
            "not a {}-byte ChampSim record: its branch flags are neither 0 nor 1{other}",
            layout.bytes
        ),
    )
}
