use std::fmt;
use std::str::FromStr;

use rand_distr::Zipf;

use super::chase::Chase;
use super::join::{Join, Step, collision_probability};
use super::permutation::Permutation;
use super::script::{self, JUMP_BYTES, Packet, Sends};
use super::strided::Strided;
use super::uniform::Uniform;
use super::zipf::{ITEM_BYTES, Zipfian};
use super::{ACCESS_BYTES, Chance, Fill, Metas, Region, Room, place, random};
use crate::kernel::path::{Linux, Place, READ_BYTES};
use crate::units::{unit, with_unit};
use crate::{Error, Meta};

/// The largest number of nops, jumps or reads in a turn of a process.
const TURN_MAX: u64 = 1 << 20;

/// The largest number of cycles of a part of a turn. The next constants are the largest number of
/// pages that a part touches, and of bytes that a call copies.
const CYCLES_MAX: u64 = 60_000;
const PAGES_MAX: u64 = 200;
const COPIED_MAX: u64 = 64 << 10;

/// A call of Linux with the default parameters of [`Pattern::Syscall`].
const CALL: Linux =
    Linux { is_server: true, trap: 1200, work: 300, code: 3, data: 4, copied: 0, ipc: 266 };

/// The access pattern of a generator. Unless stated otherwise, all accesses have 8 bytes. The
/// description of each parameter ends with its default value.
#[derive(Clone, PartialEq, Debug)]
pub enum Pattern {
    /// `uniform`: words of a region, all with the same probability.
    Uniform {
        /// `size`: the size of the region in bytes. Default 1G.
        size_bytes: u64,
        /// `stores`: the share of accesses that are stores, 0 to 1. Default 0.3.
        stores: f64,
    },
    /// `zipf`: cache lines of a region, of which few get most accesses.
    Zipf {
        /// `size`: the size of the region in bytes. Default 1G.
        size_bytes: u64,
        /// `exponent`: the skew of their probabilities, 0 (none) to 10. Default 1.
        exponent: f64,
        /// `stores`: the share of accesses that are stores, 0 to 1. Default 0.3.
        stores: f64,
    },
    /// `strided`: through a region in equal steps, repeatedly.
    Strided {
        /// `size`: the size of the region in bytes. Default 1G.
        size_bytes: u64,
        /// `stride`: the step in bytes, at most the size. 64B.
        stride_bytes: u64,
        /// `stores`: the share of accesses that are stores, 0 to 1. Default 0.3.
        stores: f64,
    },
    /// `chase`: along a linked list whose nodes are in random order; only loads.
    Chase {
        /// `size`: the size of the region in bytes. Default 1G.
        size_bytes: u64,
        /// `node`: the size of a node in bytes. 64B.
        node_bytes: u64,
    },
    /// `join`: the hash join of Barr 2010, §4.5.3.
    Join {
        /// `table`: the size of table A, of table B and of the result, in bytes each. Default 1G.
        table_bytes: u64,
        /// `entry`: the size of a table's entry in bytes. 16B.
        entry_bytes: u64,
        /// `fill`: the share of the hash table's buckets that are in use, 0.01 to 0.99. Default
        /// 0.5.
        fill: f64,
    },
    /// `pingpong`: two processes that take turns (Uhlig and others 2002, §4.1). Fetches are of at most
    /// 64 bytes, and reads of 4.
    Pingpong {
        /// `code`: the number of one-byte nop instructions in a turn. Default 0.
        nops: u64,
        /// `itlb`: the number of jumps in a turn, each to a different page. Default 0.
        jumps: u64,
        /// `dtlb`: the number of reads in a turn, each from a different page. Default 0.
        reads: u64,
        /// `idle`: 1 if the second process only replies, as in U02. Default 0.
        idle: u64,
        /// `ipc`: the number of instructions that a microkernel executes for a message. One third
        /// of them is the path of the message, and the rest is entering and leaving the kernel. 0:
        /// there is no kernel between the processes. U02 gives 100 cycles for the path and 166 for
        /// entering and leaving (section 3.2). Default 0.
        ipc: u64,
        /// `linux`: messages are calls that write to and read from pipes, of a Linux in the kernel
        /// (1) or at user level behind the microkernel (2); each call is one of
        /// [`Pattern::Syscall`]. Default 0.
        linux: u64,
    },
    /// `syscall`: a program that calls Linux, in the kernel or at user level (U02 sections 3.2 and 4.2).
    Syscall {
        /// `linux`: 1 in the kernel, 2 at user level behind a microkernel. Default 2.
        linux: u64,
        /// `trap`: the cycles of entering and leaving the kernel by an interrupt, an assumption.
        /// Default 1200.
        trap: u64,
        /// `work`: the number of instructions of the call itself, an assumption. Default 300.
        work: u64,
        /// `code`: the number of pages of Linux's code that a call touches, an assumption. Default
        /// 3.
        code: u64,
        /// `data`: the number of pages of Linux's data that a call touches, an assumption. Default
        /// 4.
        data: u64,
        /// `copied`: the number of bytes that a call copies for the program. Default 0.
        copied_bytes: u64,
        /// `ipc`: as in `pingpong`, if Linux is at user level. Default 266.
        ipc: u64,
    },
    /// `packet`: a packet's path through the driver and the protocol stack of a multi-server system,
    /// SawMill (U02 section 4.10). The paper has only the sums of the footprints.
    Packet {
        /// `driver`: the number of pages of code that the driver touches per run; it touches as
        /// many pages of data. Default 10.
        driver: u64,
        /// `bottom`: the number of pages of code that the driver's bottom half touches; it touches
        /// as many pages of data. Default 6.
        bottom: u64,
        /// `stack`: the number of pages of code that the protocol stack touches; it touches as many
        /// pages of data. Default 18.
        stack: u64,
        /// `ring`: the number of pages of buffers per packet; 64 consecutive packets have different
        /// buffers. Default 5.
        ring: u64,
        /// `each`: the number of instructions per page of code, an assumption. Default 64.
        each: u64,
        /// `device`: the cycles of waiting for the device. Default 26000.
        device: u64,
        /// `ipc`: as in `pingpong`. Default 266.
        ipc: u64,
    },
}

/// A generator's parameters, as written in `join,table=16G,accesses=50M,seed=1`: the pattern's
/// name, then any of its parameters and of those below. Sizes are in bytes with a binary unit
/// (`64B`, `8K`, `16G`), counts with a decimal unit (`300k`, `50M`) or none.
#[derive(Clone, PartialEq, Debug)]
pub struct Parameters {
    /// The access pattern.
    pub pattern: Pattern,
    /// `accesses`: the number of accesses. Default 10M.
    pub accesses: u64,
    /// `seed`: the seed of all random numbers. Default 1.
    pub seed: u64,
    /// `instructions`: the number of instructions per access, 1 to 65535. Default 3, since recorded
    /// programs load or store with every second to fourth instruction.
    pub instructions: u32,
    /// `bits`: the number of address bits: 25, 32 or 47. Default 47.
    pub bits: u32,
}

impl Pattern {
    /// The names of all access patterns.
    pub const NAMES: [&str; 8] =
        ["uniform", "zipf", "strided", "chase", "join", "pingpong", "syscall", "packet"];

    /// The pattern called `name` with its default parameters.
    fn named(name: &str) -> Option<Pattern> {
        let size_bytes = 1 << 30;
        let stores = 0.3;
        Some(match name {
            "uniform" => Pattern::Uniform { size_bytes, stores },
            "zipf" => Pattern::Zipf { size_bytes, exponent: 1.0, stores },
            "strided" => Pattern::Strided { size_bytes, stride_bytes: 64, stores },
            "chase" => Pattern::Chase { size_bytes, node_bytes: 64 },
            "join" => Pattern::Join { table_bytes: size_bytes, entry_bytes: 16, fill: 0.5 },
            "pingpong" => {
                Pattern::Pingpong { nops: 0, jumps: 0, reads: 0, idle: 0, ipc: 0, linux: 0 }
            }
            "syscall" => Pattern::Syscall {
                linux: 2,
                trap: CALL.trap,
                work: CALL.work,
                code: CALL.code,
                data: CALL.data,
                copied_bytes: CALL.copied,
                ipc: CALL.ipc,
            },
            "packet" => Pattern::Packet {
                driver: 10,
                bottom: 6,
                stack: 18,
                ring: 5,
                each: 64,
                device: 26_000,
                ipc: CALL.ipc,
            },
            _ => return None,
        })
    }

    /// The pattern's name.
    pub fn name(&self) -> &'static str {
        match self {
            Pattern::Uniform { .. } => "uniform",
            Pattern::Zipf { .. } => "zipf",
            Pattern::Strided { .. } => "strided",
            Pattern::Chase { .. } => "chase",
            Pattern::Join { .. } => "join",
            Pattern::Pingpong { .. } => "pingpong",
            Pattern::Syscall { .. } => "syscall",
            Pattern::Packet { .. } => "packet",
        }
    }

    /// The parameters of the pattern by name, to be read and set.
    fn fields(&mut self) -> Vec<(&'static str, Field<'_>)> {
        use Field::{Bytes, Number};
        match self {
            Pattern::Uniform { size_bytes, stores } => {
                vec![("size", Bytes(size_bytes)), ("stores", Number(stores, 0.0, 1.0))]
            }
            Pattern::Zipf { size_bytes, exponent, stores } => vec![
                ("size", Bytes(size_bytes)),
                ("exponent", Number(exponent, 0.0, 10.0)),
                ("stores", Number(stores, 0.0, 1.0)),
            ],
            Pattern::Strided { size_bytes, stride_bytes, stores } => vec![
                ("size", Bytes(size_bytes)),
                ("stride", Bytes(stride_bytes)),
                ("stores", Number(stores, 0.0, 1.0)),
            ],
            Pattern::Chase { size_bytes, node_bytes } => {
                vec![("size", Bytes(size_bytes)), ("node", Bytes(node_bytes))]
            }
            Pattern::Join { table_bytes, entry_bytes, fill } => vec![
                ("table", Bytes(table_bytes)),
                ("entry", Bytes(entry_bytes)),
                ("fill", Number(fill, 0.01, 0.99)),
            ],
            Pattern::Pingpong { nops, jumps, reads, idle, ipc, linux } => vec![
                ("code", Field::Count(nops, 0, TURN_MAX)),
                ("itlb", Field::Count(jumps, 0, TURN_MAX)),
                ("dtlb", Field::Count(reads, 0, TURN_MAX)),
                ("idle", Field::Count(idle, 0, 1)),
                ("ipc", Field::Count(ipc, 0, CYCLES_MAX)),
                ("linux", Field::Count(linux, 0, 2)),
            ],
            Pattern::Syscall { linux, trap, work, code, data, copied_bytes, ipc } => vec![
                ("linux", Field::Count(linux, 1, 2)),
                ("trap", Field::Count(trap, 0, CYCLES_MAX)),
                ("work", Field::Count(work, 1, CYCLES_MAX)),
                ("code", Field::Count(code, 1, PAGES_MAX)),
                ("data", Field::Count(data, 0, PAGES_MAX)),
                ("copied", Field::Bytes(copied_bytes)),
                ("ipc", Field::Count(ipc, 1, CYCLES_MAX)),
            ],
            Pattern::Packet { driver, bottom, stack, ring, each, device, ipc } => vec![
                ("driver", Field::Count(driver, 1, PAGES_MAX)),
                ("bottom", Field::Count(bottom, 0, PAGES_MAX)),
                ("stack", Field::Count(stack, 0, PAGES_MAX)),
                ("ring", Field::Count(ring, 0, PAGES_MAX)),
                ("each", Field::Count(each, 1, 1000)),
                ("device", Field::Count(device, 0, 10_000_000)),
                ("ipc", Field::Count(ipc, 1, CYCLES_MAX)),
            ],
        }
    }

    /// The error that `what` is wrong with the parameters of this pattern.
    fn refuse(&self, what: &str) -> Error {
        Error::Parameters(format!("generate {}: {what}", self.name()))
    }

    /// The number of parts into which a size is divided. Each part must have room for an access, so
    /// that no access extends beyond the end of the region.
    fn parts(&self, (what, bytes): (&str, u64), (part, each): (&str, u64)) -> Result<u64, Error> {
        for (what, bytes) in [(what, bytes), (part, each)] {
            if bytes == 0 || bytes % ACCESS_BYTES != 0 {
                return Err(self.refuse(&format!(
                    "a {what} of {bytes} bytes; accesses have 8 bytes, so give a multiple of 8"
                )));
            }
        }
        if bytes < each {
            let what = format!("a {what} of {bytes} bytes holds no {part} of {each} bytes");
            return Err(self.refuse(&what));
        }
        Ok(bytes / each)
    }

    /// The regions of the pattern, and the generator of its accesses.
    fn start(
        &self,
        seed: u64,
        metas: Metas,
        room: Room,
    ) -> Result<(Vec<Region>, Box<dyn Fill + Send>), Error> {
        let mut random = random(seed);
        let parts = |what, bytes, part, each| self.parts((what, bytes), (part, each));
        match *self {
            Pattern::Uniform { size_bytes, stores } => {
                parts("size", size_bytes, "word", ACCESS_BYTES)?;
                let [region] = place(room, [("uniform", size_bytes)])?;
                let stores = Chance::of(stores);
                let fill = Uniform { region: region.clone(), stores, metas, random };
                Ok((vec![region], Box::new(fill)))
            }
            Pattern::Zipf { size_bytes, exponent, stores } => {
                let items = parts("size", size_bytes, "line", ITEM_BYTES)?;
                let [region] = place(room, [("zipf", size_bytes)])?;
                let Ok(ranks) = Zipf::new(items as f64, exponent) else {
                    return Err(
                        self.refuse(&format!("exponent={exponent}: write a number from 0 to 10"))
                    );
                };
                let order = Permutation::new(items, &mut random);
                let stores = Chance::of(stores);
                let fill = Zipfian { region: region.clone(), ranks, order, stores, metas, random };
                Ok((vec![region], Box::new(fill)))
            }
            Pattern::Strided { size_bytes, stride_bytes, stores } => {
                parts("size", size_bytes, "stride", stride_bytes)?;
                let [region] = place(room, [("strided", size_bytes)])?;
                let stores = Chance::of(stores);
                let regions = vec![region.clone()];
                let fill = Strided { region, stride_bytes, offset: 0, stores, metas, random };
                Ok((regions, Box::new(fill)))
            }
            Pattern::Chase { size_bytes, node_bytes } => {
                let nodes = parts("size", size_bytes, "node", node_bytes)?;
                let [region] = place(room, [("list", size_bytes)])?;
                let order = Permutation::new(nodes, &mut random);
                let fill = Chase { region: region.clone(), node_bytes, order, position: 0, metas };
                Ok((vec![region], Box::new(fill)))
            }
            Pattern::Join { table_bytes, entry_bytes, fill } => {
                let entries = parts("table", table_bytes, "entry", entry_bytes)?;
                let table_bytes = entries * entry_bytes;
                let buckets = (entries as f64 / fill).ceil() as u64;
                let hash_bytes = buckets.saturating_mul(entry_bytes);
                let regions = place(
                    room,
                    [("table A", table_bytes), ("hash table", hash_bytes), ("result", table_bytes)],
                )?;
                let [table_a, hash_table, result] = regions.clone();
                let collision = Chance::of(collision_probability(fill));
                let (offset, step) = (0, Step::Read);
                let fill = Join {
                    table_a,
                    hash_table,
                    result,
                    entry_bytes,
                    collision,
                    metas,
                    random,
                    offset,
                    step,
                };
                Ok((regions.to_vec(), Box::new(fill)))
            }
            Pattern::Pingpong { nops, jumps, reads, idle, ipc, linux } => {
                pingpong(room, (nops, jumps, reads), idle == 1, (linux, ipc))
            }
            Pattern::Syscall { linux, trap, work, code, data, copied_bytes, ipc } => {
                if copied_bytes > COPIED_MAX || copied_bytes % 64 != 0 {
                    return Err(self.refuse(&format!(
                        "copied={copied_bytes}: write a multiple of 64 bytes, up to {COPIED_MAX}"
                    )));
                }
                let room = room.of_programs();
                let [mut own] = place(room, [("call", 4096)])?;
                own.rights = 5;
                let (is_server, copied) = (linux == 2, copied_bytes);
                let linux = Linux { is_server, trap, work, code, data, copied, ipc };
                let place = Place::new(room.bits, room.start);
                let fill = script::calls(&own, linux, place);
                Ok((vec![own], Box::new(fill)))
            }
            Pattern::Packet { driver, bottom, stack, ring, each, device, ipc } => {
                let room = room.of_programs();
                let [mut own] = place(room, [("between packets", 4096)])?;
                own.rights = 5;
                let packet = Packet { driver, bottom, stack, ring, each, device, ipc };
                let place = Place::new(room.bits, room.start);
                let fill = script::packets(&own, packet, place);
                Ok((vec![own], Box::new(fill)))
            }
        }
    }
}

/// The regions of a ping-pong of two programs with these working sets, and the generator of its
/// accesses.
fn pingpong(
    room: Room,
    (nops, jumps, reads): (u64, u64, u64),
    is_idle: bool,
    (linux, ipc): (u64, u64),
) -> Result<(Vec<Region>, Box<dyn Fill + Send>), Error> {
    // A turn touches at least the first byte of the call's cache line.
    let wanted = [
        ("call and nops", (nops + 128).next_multiple_of(4096)),
        ("jumps", (jumps * JUMP_BYTES + 64).next_multiple_of(4096)),
        ("reads", (reads * READ_BYTES + 64).next_multiple_of(4096)),
    ];
    let room = room.of_programs();
    let mut regions = place(room, wanted)?;
    for code in &mut regions[..2] {
        code.rights = 5;
    }
    let sends = match (linux, ipc) {
        (0, 0) => Sends::Nobody,
        (0, ipc) => Sends::Microkernel(ipc),
        (linux, ipc) => {
            let ipc = if ipc == 0 { CALL.ipc } else { ipc };
            Sends::Pipes(Linux { is_server: linux == 2, ipc, ..CALL })
        }
    };
    let place = Place::new(room.bits, room.start);
    let fill = script::pingpong(&regions, (nops, jumps, reads), is_idle, sends, place);
    Ok((regions.to_vec(), Box::new(fill)))
}

/// A reference to a parameter, with its allowed values.
enum Field<'a> {
    Bytes(&'a mut u64),
    Count(&'a mut u64, u64, u64),
    Number(&'a mut f64, f64, f64),
}

impl Field<'_> {
    /// Sets the parameter to the value in `text`. The error says how to write a value.
    fn set(&mut self, text: &str) -> Result<(), String> {
        match self {
            Field::Bytes(bytes) => {
                **bytes = with_unit(text, &["B", "K", "M", "G", "T"], 1024)
                    .ok_or("write bytes with a unit, as in 64B, 8K or 16G")?;
            }
            Field::Count(count, min, max) => {
                let value = with_unit(text, &["", "k", "M", "G", "T"], 1000)
                    .ok_or("write a number, as in 5000, 300k or 50M")?;
                if value < *min || value > *max {
                    return Err(format!("write a number from {min} to {max}"));
                }
                **count = value;
            }
            Field::Number(number, min, max) => {
                let value = text.parse().ok().filter(|value| *min <= *value && *value <= *max);
                **number = value.ok_or_else(|| format!("write a number from {min} to {max}"))?;
            }
        }
        Ok(())
    }
}

impl Parameters {
    /// `pattern` with the default length and seed.
    pub fn new(pattern: Pattern) -> Parameters {
        Parameters { pattern, accesses: 10_000_000, seed: 1, instructions: 3, bits: 47 }
    }

    /// Sets the parameter `name`. If there is none with that name, the error lists the names.
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let mut instructions = u64::from(self.instructions);
        let most = u64::from(Meta::INSTRUCTIONS_MAX);
        let mut bits = u64::from(self.bits);
        let mut fields = self.pattern.fields();
        fields.push(("accesses", Field::Count(&mut self.accesses, 0, 1 << 60)));
        fields.push(("seed", Field::Count(&mut self.seed, 0, u64::MAX)));
        fields.push(("instructions", Field::Count(&mut instructions, 1, most)));
        fields.push(("bits", Field::Count(&mut bits, 25, 47)));
        let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
        let Some((_, field)) = fields.iter_mut().find(|(known, _)| *known == name) else {
            return Err(format!("no parameter `{name}`; the parameters are {}", names.join(", ")));
        };
        field.set(value).map_err(|what| format!("{name}={value}: {what}"))?;
        self.instructions = instructions as u32;
        self.bits = bits as u32;
        Ok(())
    }

    /// The pattern's regions, and the generator of its accesses.
    pub(super) fn start(&self) -> Result<(Vec<Region>, Box<dyn Fill + Send>), Error> {
        let room = Room::of(self.bits).ok_or_else(|| {
            let (name, bits) = (self.pattern.name(), self.bits);
            Error::Parameters(format!("generate {name}: bits={bits}: write 25, 32 or 47"))
        })?;
        self.pattern.start(self.seed, Metas::new(self.instructions), room)
    }
}

impl FromStr for Parameters {
    type Err = Error;

    fn from_str(spec: &str) -> Result<Parameters, Error> {
        let mut parts = spec.split(',');
        let name = parts.next().unwrap_or_default();
        let pattern = Pattern::named(name).ok_or_else(|| {
            let names = Pattern::NAMES.join(", ");
            Error::Parameters(format!("generate: no pattern `{name}`; choose one of {names}"))
        })?;
        let mut parameters = Parameters::new(pattern);
        for part in parts {
            let set = match part.split_once('=') {
                Some((name, value)) => parameters.set(name, value),
                None => Err(format!("`{part}` is not a setting; write NAME=VALUE")),
            };
            set.map_err(|what| Error::Parameters(format!("generate {name}: {what}")))?;
        }
        Ok(parameters)
    }
}

impl fmt::Display for Parameters {
    /// Writes all parameters, so that parsing the text gives equal parameters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.pattern.name())?;
        for (name, field) in self.pattern.clone().fields() {
            match field {
                Field::Bytes(bytes) => {
                    write!(f, ",{name}={}", unit(*bytes, &["B", "K", "M", "G", "T"], 1024))?;
                }
                Field::Count(count, ..) => write!(f, ",{name}={count}")?,
                Field::Number(number, ..) => write!(f, ",{name}={number}")?,
            }
        }
        let accesses = unit(self.accesses, &["", "k", "M", "G", "T"], 1000);
        write!(f, ",accesses={accesses},seed={},instructions={}", self.seed, self.instructions)?;
        // The default is not written, so that traces made before this parameter existed keep their
        // name and digest.
        if self.bits == Room::WIDE.bits { Ok(()) } else { write!(f, ",bits={}", self.bits) }
    }
}
