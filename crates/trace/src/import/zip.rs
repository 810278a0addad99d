//! The members of a zip archive, one after the other, as one stream.
//!
//! ```text
//!   | PK34 header name | data ... | [PK78 lengths] | PK34 header name | data ... | PK12 ... PK56 |
//!     \____ member _______________________________/                                directory
//! ```
//!
//! DynamoRIO writes a trace as a zip archive with one member per ten million instructions. The
//! members are read from the front, each by its own header, without the directory at the end. So an
//! archive that comes through a pipe or is truncated can be read as far as it is complete. A member
//! whose length or checksum differs from what it declares is an error. APPNOTE.TXT 6.3.10, sections
//! 4.3.7 to 4.3.9.

use std::io::{self, BufRead, Read};

use flate2::bufread::DeflateDecoder;

/// Section 4.3.7: the header of a member.
const LOCAL_HEADER: u32 = 0x0403_4b50;
/// Section 4.3.9: lengths that were unknown when the header was written.
const DESCRIPTOR: u32 = 0x0807_4b50;
/// Sections 4.3.11 to 4.3.16: the beginning of the directory, in its several forms.
const DIRECTORY: [u32; 4] = [0x0201_4b50, 0x0606_4b50, 0x0706_4b50, 0x0605_4b50];
/// Section 4.4.4: the member is encrypted. The next flag says that the lengths follow the member's
/// data.
const FLAG_ENCRYPTED: u16 = 1;
const FLAG_DESCRIPTOR: u16 = 1 << 3;
/// Section 4.5.3: the extra field that holds 64-bit lengths.
const EXTRA_ZIP64: u16 = 1;

/// Reads the contents of the members of an archive.
pub(crate) struct ZipReader<R: BufRead> {
    state: State<R>,
}

enum State<R: BufRead> {
    /// The reader is at the beginning of a member or of the directory.
    Between(R),
    Stored(io::Take<R>, Member),
    Deflated(DeflateDecoder<R>, Member),
    Ended,
}

/// A member's declared properties, and the part of it that has been read.
struct Member {
    name: String,
    crc: u32,
    bytes: u64,
    /// Whether the lengths and the checksum come after the data.
    described: bool,
    zip64: bool,
    hash: crc32fast::Hasher,
    given: u64,
    packed: u64,
}

impl<R: BufRead> ZipReader<R> {
    /// The archive that `reader` starts with.
    pub(crate) fn new(reader: R) -> ZipReader<R> {
        ZipReader { state: State::Between(reader) }
    }
}

impl<R: BufRead> Read for ZipReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            match &mut self.state {
                State::Ended => return Ok(0),
                State::Between(_) => {
                    let State::Between(reader) = std::mem::replace(&mut self.state, State::Ended)
                    else {
                        return Ok(0);
                    };
                    self.state = begin(reader)?;
                }
                State::Stored(data, member) => match data.read(out)? {
                    0 if data.limit() > 0 => return Err(cut(member)),
                    0 => self.end()?,
                    read => return member.take(&out[..read]),
                },
                State::Deflated(data, member) => {
                    match data.read(out).map_err(|error| broken(member, data.get_mut(), error))? {
                        0 => {
                            member.packed = data.total_in();
                            self.end()?;
                        }
                        read => return member.take(&out[..read]),
                    }
                }
            }
        }
    }
}

impl<R: BufRead> ZipReader<R> {
    /// Checks the member that has just ended.
    fn end(&mut self) -> io::Result<()> {
        let (mut reader, member) = match std::mem::replace(&mut self.state, State::Ended) {
            State::Stored(data, member) => (data.into_inner(), member),
            State::Deflated(data, member) => (data.into_inner(), member),
            _ => return Ok(()),
        };
        let (crc, bytes) = if member.described {
            descriptor(&mut reader, &member)?
        } else {
            (member.crc, member.bytes)
        };
        if bytes != member.given {
            return Err(wrong(
                &member,
                format!("has {} bytes, but its header gives {bytes}", member.given),
            ));
        }
        if crc != member.hash.clone().finalize() {
            return Err(wrong(&member, "does not match its checksum".to_owned()));
        }
        self.state = State::Between(reader);
        Ok(())
    }
}

impl Member {
    /// Counts `bytes`. Returns an error if there are more than the member declares.
    fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.hash.update(bytes);
        self.given += bytes.len() as u64;
        if !self.described && self.given > self.bytes {
            return Err(wrong(
                self,
                format!("expands to more than the {} bytes of its header", self.bytes),
            ));
        }
        Ok(bytes.len())
    }
}

/// Reads a member's header, or the start of the directory.
fn begin<R: BufRead>(mut reader: R) -> io::Result<State<R>> {
    let mut signature = [0; 4];
    reader
        .read_exact(&mut signature)
        .map_err(|_| invalid("the archive ends without a directory: it is truncated".to_owned()))?;
    let signature = u32::from_le_bytes(signature);
    if DIRECTORY.contains(&signature) {
        // The directory repeats the headers. It is read only so that the digest covers the whole
        // file.
        io::copy(&mut reader, &mut io::sink())?;
        return Ok(State::Ended);
    }
    if signature != LOCAL_HEADER {
        return Err(invalid(format!(
            "a member of the zip should begin here, but there is {signature:#010x}"
        )));
    }
    let mut fixed = [0; 26];
    reader.read_exact(&mut fixed)?;
    let half = |at: usize| u16::from_le_bytes([fixed[at], fixed[at + 1]]);
    let word = |at: usize| u64::from(u32::from(half(at)) | u32::from(half(at + 2)) << 16);
    let (flags, method, crc) = (half(2), half(4), word(10) as u32);
    let (mut packed, mut bytes) = (word(14), word(18));
    let mut name = vec![0; usize::from(half(22))];
    reader.read_exact(&mut name)?;
    let mut extra = vec![0; usize::from(half(24))];
    reader.read_exact(&mut extra)?;
    let zip64 = zip64_lengths(&extra, &mut packed, &mut bytes);
    let member = Member {
        name: String::from_utf8_lossy(&name).into_owned(),
        crc,
        bytes,
        described: flags & FLAG_DESCRIPTOR != 0,
        zip64,
        hash: crc32fast::Hasher::new(),
        given: 0,
        packed,
    };
    if flags & FLAG_ENCRYPTED != 0 {
        return Err(wrong(&member, "is encrypted".to_owned()));
    }
    match method {
        0 if !member.described => Ok(State::Stored(reader.take(packed), member)),
        0 => Err(wrong(
            &member,
            "is stored without its length; pack it again with deflate".to_owned(),
        )),
        8 => Ok(State::Deflated(DeflateDecoder::new(reader), member)),
        other => Err(wrong(
            &member,
            format!("uses compression {other}; only stored and deflate are read"),
        )),
    }
}

/// Reads the 64-bit lengths from the extra fields, if the 32-bit ones refer to them.
fn zip64_lengths(mut extra: &[u8], packed: &mut u64, bytes: &mut u64) -> bool {
    while let [id0, id1, len0, len1, rest @ ..] = extra {
        let length = usize::from(u16::from_le_bytes([*len0, *len1])).min(rest.len());
        let (mut field, after) = rest.split_at(length);
        if u16::from_le_bytes([*id0, *id1]) == EXTRA_ZIP64 {
            for value in [bytes, packed] {
                if *value == u64::from(u32::MAX)
                    && let Some((long, others)) = field.split_first_chunk()
                {
                    *value = u64::from_le_bytes(*long);
                    field = others;
                }
            }
            return true;
        }
        extra = after;
    }
    false
}

/// The checksum and length that follow a member. They may begin with a signature or not (section
/// 4.3.9.3), and lengths may have 4 or 8 bytes; the known compressed length shows which of these
/// forms is used.
fn descriptor<R: BufRead>(reader: &mut R, member: &Member) -> io::Result<(u32, u64)> {
    let mut word = || -> io::Result<u32> {
        let mut word = [0; 4];
        reader.read_exact(&mut word).map_err(|_| cut(member))?;
        Ok(u32::from_le_bytes(word))
    };
    let first = word()?;
    let crc = if first == DESCRIPTOR { word()? } else { first };
    let packed_low = word()?;
    let second = word()?;
    let long =
        member.zip64 || (second != member.given as u32 && u64::from(second) == member.packed >> 32);
    if packed_low != member.packed as u32 {
        return Err(wrong(
            member,
            "has a compressed length that differs from its header".to_owned(),
        ));
    }
    if !long {
        return Ok((crc, u64::from(second)));
    }
    let (low, high) = (word()?, word()?);
    Ok((crc, u64::from(low) | u64::from(high) << 32))
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn wrong(member: &Member, what: String) -> io::Error {
    invalid(format!("member `{}` of the zip {what}", member.name))
}

fn cut(member: &Member) -> io::Error {
    wrong(member, "is truncated".to_owned())
}

fn broken<R: BufRead>(member: &Member, rest: &mut R, error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::InvalidData && rest.fill_buf().is_ok_and(<[u8]>::is_empty) {
        return cut(member);
    }
    wrong(member, format!("does not decompress: {error}"))
}
