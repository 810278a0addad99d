use serde::{Deserialize, Serialize};

/// Which file it is: what two mappings or descriptors of the same file have in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct FileId {
    /// The device that holds it, as `stat` gives it.
    pub device: u64,
    /// Its number on the device.
    pub inode: u64,
    /// Its length at that time.
    pub bytes: u64,
}

/// What a descriptor leads to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// A file with contents and an offset.
    Regular,
    /// A directory.
    Directory,
    /// A pipe or FIFO; both ends have one identity.
    Pipe,
    /// A socket; its two ends have an identity each.
    Socket,
    /// A terminal, `/dev/null`.
    Character,
    /// A disk.
    Block,
    /// Anything else: an event counter, an epoll set.
    Other,
}

/// A descriptor and what it leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Descriptor {
    /// Its number in the process.
    pub fd: i32,
    /// What it is.
    pub kind: FileKind,
    /// Which one.
    pub file: FileId,
    /// Whether it does not wait (`O_NONBLOCK`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nonblocking: bool,
}

/// A part of memory that a call reads or fills: the kernel's accesses, which a trace has not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Buffer {
    /// Its first byte.
    pub addr: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// A call that may wait for somebody, or that has to do with files.
///
/// What it was asked is known when it begins, what came of it when it returns: it is told once,
/// at its return. Everything that its thread did before `began_ns` comes before it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Call {
    /// Linux's name for it: `read`, `futex`.
    pub name: String,
    /// The raw arguments.
    pub arguments: [u64; 6],
    /// The value, or minus the errno.
    pub result: i64,
    /// When it began, in nanoseconds of the recording's clock.
    pub began_ns: u64,
    /// When it returned.
    pub ended_ns: u64,
    /// The descriptor that it is about, which it opened or closed, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fd: Option<i32>,
    /// All descriptors that it is about and that were open when it was looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub descriptors: Vec<Descriptor>,
    /// Where in a regular file it began to read or write, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The memory that the kernel has read or filled: data, a socket's address, control data, but not
    /// the structures by which it was asked. 16 parts at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buffers: Vec<Buffer>,
}
