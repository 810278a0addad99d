//! Tests of parts that need a whole machine around them.

mod walker;
