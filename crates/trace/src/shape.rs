//! Shapes: what a basic block does each time it runs, but for the addresses.
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
//! A program runs few shapes many times. Whoever has blocks to tell describes each shape once
//! and gives only addresses from then on; see [`crate::Sink`].

use addr::Kind;

use crate::{Error, Meta};

/// One memory operation of a block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Op {
    /// Index of its instruction in the block, from 0.
    pub instruction: u16,
    /// [`Kind::Load`] or [`Kind::Store`].
    pub kind: Kind,
    /// Bytes accessed; more than [`Meta::SIZE_MAX`] are cut to it.
    pub size: u32,
}

/// What executing a block once does, but for the addresses of its operations.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Shape {
    /// Address of its first instruction.
    pub pc: u64,
    /// Bytes of its instructions; more than [`Meta::SIZE_MAX`] are cut to it.
    pub bytes: u32,
    /// How many instructions it has, at most [`Shape::INSTRUCTIONS_MAX`].
    pub instructions: u32,
    /// Whether executing it gives a row of kind fetch before its operations' rows.
    pub fetch: bool,
    /// Its memory operations in the order of execution, at most [`Shape::OPS_MAX`].
    pub ops: Vec<Op>,
}

impl Shape {
    /// The most instructions of a shape: two blocks' worth still fit into one [`Meta`].
    pub const INSTRUCTIONS_MAX: u32 = 1 << 15;
    /// The most operations of a shape.
    pub const OPS_MAX: usize = 4095;

    /// Says what is wrong with the shape, if anything is.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |what: String| {
            Err(Error::Recorder(format!("the block at {:#x} cannot be recorded: {what}", self.pc)))
        };
        if self.instructions > Shape::INSTRUCTIONS_MAX {
            return wrong(format!("it has {} instructions", self.instructions));
        }
        if self.fetch && self.instructions == 0 {
            return wrong("it is fetched and has no instruction".to_owned());
        }
        if self.ops.len() > Shape::OPS_MAX {
            return wrong(format!("it has {} memory operations", self.ops.len()));
        }
        let mut instruction = 0;
        for (index, op) in self.ops.iter().enumerate() {
            if op.kind == Kind::Fetch {
                return wrong(format!("its operation {index} is a fetch"));
            }
            if op.instruction < instruction || u32::from(op.instruction) >= self.instructions {
                return wrong(format!(
                    "its operation {index} belongs to instruction {} of {}, after one of {}",
                    op.instruction, self.instructions, instruction
                ));
            }
            instruction = op.instruction;
        }
        Ok(())
    }
}

/// A shape that a [`crate::Sink`] knows; good only for the sink that gave it.
#[derive(Default, Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ShapeId(pub(crate) u32);

/// A shape as rows: what one execution appends to a batch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Rows {
    /// Address of the fetch row; for a group without one, a hint which operation it is.
    pub(crate) pc: u64,
    /// Whether the first row is a fetch.
    pub(crate) fetch: bool,
    /// The rows, with the instructions since the row before *in the group*.
    pub(crate) metas: Vec<Meta>,
    /// Instructions that begin after the last row; the next row counts them.
    pub(crate) trailing: u32,
}

impl Rows {
    /// The most instructions that a plain shape counts in its first row, or leaves.
    pub(crate) const PLAIN_INSTRUCTIONS_MAX: u32 = Meta::INSTRUCTIONS_MAX / 2;

    /// Whether it has rows, and few enough instructions that executions of such shapes after each
    /// other never leave more than a row counts.
    pub(crate) fn is_plain(&self) -> bool {
        let first = self.metas.first().map(|meta| meta.instructions());
        first.is_some_and(|first| first.max(self.trailing) <= Rows::PLAIN_INSTRUCTIONS_MAX)
    }

    /// How many addresses an execution needs.
    pub(crate) fn ops(&self) -> usize {
        self.metas.len() - usize::from(self.fetch)
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
            let now = u32::from(op.instruction) + 1;
            metas.push(Meta::new(op.kind, op.size, now - begun));
            begun = now;
        }
        Rows { pc: shape.pc, fetch: shape.fetch, metas, trailing: shape.instructions - begun }
    }
}
