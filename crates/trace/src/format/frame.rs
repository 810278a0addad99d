//! Frames: every part of the file after its version is in a frame.

use super::{BODY_BYTES_MAX, Damage, HEAD_BYTES_MAX};

/// The number of bytes of a frame before its body.
pub(crate) const FRAME_BYTES: usize = 12;

/// The types of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FrameKind {
    Head,
    Process,
    Chunk,
    Index,
    Tail,
}

impl FrameKind {
    const fn tag(self) -> [u8; 4] {
        match self {
            FrameKind::Head => *b"HEAD",
            FrameKind::Process => *b"PROC",
            FrameKind::Chunk => *b"CHNK",
            FrameKind::Index => *b"INDX",
            FrameKind::Tail => *b"TAIL",
        }
    }
}

/// The first bytes of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameHead {
    /// The type of the frame.
    pub(crate) kind: FrameKind,
    /// The number of bytes of the body; it has been checked against the allowed maximum.
    pub(crate) body_bytes: usize,
    /// The CRC that the frame should have.
    pub(crate) crc: u32,
}

impl FrameHead {
    /// Reads the [`FRAME_BYTES`] bytes before a body.
    pub(crate) fn parse(bytes: &[u8; FRAME_BYTES]) -> Result<FrameHead, Damage> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let kinds = [
            FrameKind::Head,
            FrameKind::Process,
            FrameKind::Chunk,
            FrameKind::Index,
            FrameKind::Tail,
        ];
        let Some(kind) = kinds.into_iter().find(|kind| kind.tag() == bytes[..4]) else {
            return Err(Damage::new("no part of a trace begins here: the file is damaged"));
        };
        let max = match kind {
            FrameKind::Head | FrameKind::Process => HEAD_BYTES_MAX,
            FrameKind::Chunk | FrameKind::Index | FrameKind::Tail => BODY_BYTES_MAX,
        };
        let body_bytes = word(4) as usize;
        if body_bytes > max {
            return Err(Damage(format!(
                "a part of {body_bytes} bytes, but at most {max} are possible"
            )));
        }
        Ok(FrameHead { kind, body_bytes, crc: word(8) })
    }

    /// Checks the CRC of `body`.
    pub(crate) fn verify(&self, body: &[u8]) -> Result<(), Damage> {
        if body.len() == self.body_bytes && checksum(self.kind, body) == self.crc {
            Ok(())
        } else {
            Err(Damage::new(
                "its checksum does not match: the file was damaged after it was written",
            ))
        }
    }
}

/// The bytes of a frame before its `body`.
pub(crate) fn frame(kind: FrameKind, body: &[u8]) -> [u8; FRAME_BYTES] {
    let mut head = [0; FRAME_BYTES];
    head[..4].copy_from_slice(&kind.tag());
    head[4..8].copy_from_slice(&(body.len() as u32).to_le_bytes());
    head[8..].copy_from_slice(&checksum(kind, body).to_le_bytes());
    head
}

fn checksum(kind: FrameKind, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&kind.tag());
    hasher.update(&(body.len() as u32).to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}
