//! Shapes: the rows that a basic block makes each time it runs, without the addresses of its
//! operations.
//!
//! ```text
//!   Shape   pc 0x4010a0, 23 bytes, 6 instructions
//!           ops   [1: load 8]  [4: store 4]          instruction in the block, kind, size
//!
//!   rows    fetch 0x4010a0 23B +1   load A 8B +1   store B 4B +3        1 instruction left over
//!                          |                |                 |
//!                          from the shape   the two addresses of one execution
//! ```
//!
//! A program executes few shapes many times. A recorder describes each shape once and later gives
//! only addresses; see [`crate::Sink`]. In a shape, an address can be derived from another address
//! of the same execution ([`Address`]).

use addr::Kind;

use crate::{Error, Meta};

/// One memory operation of a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Op {
    /// The index, in the block, of the instruction that makes the operation, from 0.
    pub instruction: u16,
    /// [`Kind::Load`] or [`Kind::Store`].
    pub kind: Kind,
    /// The number of bytes accessed; a size above [`Meta::SIZE_MAX`] is reduced to this maximum.
    pub size: u32,
    /// The source of the operation's address.
    pub address: Address,
}

/// How the address of an operation is determined each time its block runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Address {
    /// Each execution of the block gives the address explicitly.
    #[default]
    Said,
    /// The address is `distance` bytes after the address of an earlier operation, which is given
    /// explicitly.
    Behind {
        /// The index of the earlier operation.
        op: u16,
        /// The distance in bytes; two's complement.
        distance: u64,
    },
    /// The address is this many bytes after the block's first instruction.
    BehindStart(u64),
}

/// The effects of executing a block once, without the addresses of its operations.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Shape {
    /// The address of the block's first instruction.
    pub pc: u64,
    /// The number of bytes of the block's instructions; a size above [`Meta::SIZE_MAX`] is reduced
    /// to this maximum.
    pub bytes: u32,
    /// The number of the block's instructions, at most [`Shape::INSTRUCTIONS_MAX`]; 0 if the block
    /// is the rest of an instruction that began in an earlier block.
    pub instructions: u32,
    /// Whether an execution has a row of kind fetch before the rows of its operations.
    pub fetch: bool,
    /// The memory operations of the block in the order of execution, at most [`Shape::OPS_MAX`].
    pub ops: Vec<Op>,
}

impl Shape {
    /// The most instructions of a shape. The instructions of two such blocks still fit into one
    /// [`Meta`].
    pub const INSTRUCTIONS_MAX: u32 = 1 << 15;
    /// The most operations of a shape.
    pub const OPS_MAX: usize = 4095;

    /// An error if the shape is invalid.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |what: String| {
            Err(Error::Recorder(format!(
                "the block at {:#x} cannot be stored in a trace: {what}",
                self.pc
            )))
        };
        if self.instructions > Shape::INSTRUCTIONS_MAX {
            return wrong(format!("it has {} instructions", self.instructions));
        }
        if self.fetch && self.instructions == 0 {
            return wrong("it has a fetch but no instruction".to_owned());
        }
        if self.ops.len() > Shape::OPS_MAX {
            return wrong(format!("it has {} memory operations", self.ops.len()));
        }
        let mut instruction = 0;
        for (index, op) in self.ops.iter().enumerate() {
            if op.kind == Kind::Fetch {
                return wrong(format!("its operation {index} is a fetch"));
            }
            // If the block has no instructions, its operations belong to an instruction that began
            // in an earlier block.
            let end = self.instructions.max(1);
            if op.instruction < instruction || u32::from(op.instruction) >= end {
                return wrong(format!(
                    "its operation {index} belongs to instruction {} of {}, after one of {}",
                    op.instruction, self.instructions, instruction
                ));
            }
            instruction = op.instruction;
            if let Address::Behind { op, .. } = op.address
                && self.ops[..index].get(usize::from(op)).map(|op| op.address)
                    != Some(Address::Said)
            {
                return wrong(format!(
                    "its operation {index} computes its address from an unknown one"
                ));
            }
        }
        Ok(())
    }
}

/// A shape that was defined for a [`crate::Sink`]; valid only for that sink.
#[derive(Default, Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ShapeId(pub(crate) u32);

/// A shape as rows: what one execution appends to a batch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Rows {
    /// The address of the fetch row. For a group of rows without a fetch, a hint that identifies
    /// the operation.
    pub(crate) pc: u64,
    /// Whether the first row is a fetch.
    pub(crate) fetch: bool,
    /// The rows, with the number of instructions since the previous row *of the group*.
    pub(crate) metas: Vec<Meta>,
    /// Instructions that begin after the last row; the next row counts them.
    pub(crate) trailing: u32,
    /// The sources of addresses, if not all are given explicitly.
    pub(crate) links: Option<Box<Links>>,
}

/// The sources of the addresses of a shape's operations, if not all are given explicitly.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Links {
    /// The number of addresses that are given explicitly.
    pub(crate) said: usize,
    /// One source per operation.
    pub(crate) all: Vec<Link>,
}

/// The source of one address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Link {
    /// The index of the base address among the addresses given explicitly. The number of these
    /// addresses stands for the block's start.
    pub(crate) from: u16,
    /// The distance from the base address in bytes; 0 for an address given explicitly.
    pub(crate) distance: u64,
}

impl Links {
    /// The sources of the addresses of `ops`; `None` if all addresses are given explicitly.
    fn new(ops: &[Op]) -> Option<Box<Links>> {
        let is_said = |op: &&Op| op.address == Address::Said;
        let said = ops.iter().filter(is_said).count();
        let before = |index: usize| ops[..index].iter().filter(is_said).count() as u16;
        let link = |(index, op): (usize, &Op)| match op.address {
            Address::Said => Link { from: before(index), distance: 0 },
            Address::Behind { op, distance } => Link { from: before(op.into()), distance },
            Address::BehindStart(distance) => Link { from: said as u16, distance },
        };
        let all = || ops.iter().enumerate().map(link).collect();
        (said < ops.len()).then(|| Box::new(Links { said, all: all() }))
    }

    /// The addresses of all operations, if `said` are the explicit ones and the block starts at
    /// `pc`.
    pub(crate) fn addrs<'a>(&'a self, said: &'a [u64], pc: u64) -> impl Iterator<Item = u64> + 'a {
        let base = move |from: u16| said.get(usize::from(from)).copied().unwrap_or(pc);
        self.all.iter().map(move |link| base(link.from).wrapping_add(link.distance))
    }

    /// The explicitly given addresses among `addrs`, the addresses of all operations; `None` if
    /// another address differs from its derived value.
    fn said(&self, addrs: &[u64], pc: u64) -> Option<Vec<u64>> {
        let mut said = Vec::with_capacity(self.said);
        for (link, &addr) in self.all.iter().zip(addrs) {
            if usize::from(link.from) == said.len() && said.len() < self.said {
                said.push(addr);
            }
        }
        (addrs.len() == self.all.len() && self.addrs(&said, pc).eq(addrs.iter().copied()))
            .then_some(said)
    }
}

impl Rows {
    /// The most instructions that a plain shape counts in its first row, or leaves over for the
    /// next execution's first row.
    pub(crate) const PLAIN_INSTRUCTIONS_MAX: u32 = Meta::INSTRUCTIONS_MAX / 2;

    /// Whether the shape is plain: it has rows, and the instructions that one execution leaves over
    /// always fit into the count of the next execution's first row.
    pub(crate) fn is_plain(&self) -> bool {
        let first = self.metas.first().map(|meta| meta.instructions());
        first.is_some_and(|first| first.max(self.trailing) <= Rows::PLAIN_INSTRUCTIONS_MAX)
    }

    /// The number of operations.
    pub(crate) fn ops(&self) -> usize {
        self.metas.len() - usize::from(self.fetch)
    }

    /// The number of addresses that are given explicitly.
    pub(crate) fn said(&self) -> usize {
        self.links.as_ref().map_or(self.ops(), |links| links.said)
    }

    /// For a shape in which some addresses are derived: the explicitly given addresses among
    /// `addrs`, the addresses of all operations. `None` if the shape derives no address, or if an
    /// address differs from its derived value.
    pub(crate) fn said_of(&self, addrs: &[u64]) -> Option<Vec<u64>> {
        self.links.as_ref()?.said(addrs, self.pc)
    }
}

impl From<&Shape> for Rows {
    /// `shape` must have passed [`Shape::check`].
    fn from(shape: &Shape) -> Rows {
        let mut metas = Vec::with_capacity(shape.ops.len() + 1);
        let mut begun = 0;
        if shape.fetch {
            metas.push(Meta::new(Kind::Fetch, shape.bytes, 1));
            begun = 1;
        }
        for op in &shape.ops {
            let now = (u32::from(op.instruction) + 1).min(shape.instructions);
            metas.push(Meta::new(op.kind, op.size, now - begun));
            begun = now;
        }
        let (pc, fetch, trailing) = (shape.pc, shape.fetch, shape.instructions - begun);
        Rows { pc, fetch, metas, trailing, links: Links::new(&shape.ops) }
    }
}
