use serde::{Deserialize, Serialize};

/// The identity of a file: equal for all mappings and descriptors of one file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct FileId {
    /// The device that contains the file, as in `stat`.
    pub device: u64,
    /// The inode number of the file on the device.
    pub inode: u64,
    /// The length of the file when the event was recorded, in bytes.
    pub bytes: u64,
}

/// The kind of file that a descriptor refers to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// A regular file, with contents and an offset.
    Regular,
    /// A directory.
    Directory,
    /// A pipe or FIFO; both ends have the same identity.
    Pipe,
    /// A socket; its two ends have different identities.
    Socket,
    /// A character device: a terminal, `/dev/null`.
    Character,
    /// A block device: a disk.
    Block,
    /// Any other kind, such as an event counter or an epoll set.
    Other,
}

/// A file descriptor, and the file that it refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Descriptor {
    /// The number of the descriptor in the process.
    pub fd: i32,
    /// The kind of file.
    pub kind: FileKind,
    /// The identity of the file.
    pub file: FileId,
    /// Whether calls that use the descriptor do not wait (`O_NONBLOCK`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nonblocking: bool,
}

/// A part of memory that the kernel reads or writes in a call. A trace does not have these
/// accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Buffer {
    /// The address of the buffer's first byte.
    pub addr: u64,
    /// The length of the buffer in bytes.
    pub bytes: u64,
}

/// A system call that may wait for another process, or that concerns files.
///
/// The arguments of a call are known when it begins, and its result when it returns. A call is
/// reported once, when it returns. All accesses and events of its thread before `began_ns` come
/// before it in the trace.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Call {
    /// Linux's name for the call: `read`, `futex`.
    pub name: String,
    /// The raw arguments.
    pub arguments: [u64; 6],
    /// The result, or minus the errno.
    pub result: i64,
    /// The time when the call began, in nanoseconds of the recording's clock.
    pub began_ns: u64,
    /// The time when the call returned, in nanoseconds of the recording's clock.
    pub ended_ns: u64,
    /// The descriptor that the call uses, opened or closed, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fd: Option<i32>,
    /// All descriptors that the call uses, as far as they were open when the call was recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub descriptors: Vec<Descriptor>,
    /// The offset in a regular file at which reading or writing began, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The memory that the kernel has read or written: data, a socket's address, control data, but
    /// not the structures that describe the request. At most 16 parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buffers: Vec<Buffer>,
}
