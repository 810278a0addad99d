//! Translates what the plugin reports besides accesses into events of the trace.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ring::{Call, EventCode};
use symbols::{Registers, Unwinder};
use trace::{Buffer, Descriptor, Event, FileId, FileKind, Origin, Sink};

use crate::allocations::Allocations;
use crate::decode::Fault;
use crate::maps::{Line, images};

/// The rights in QEMU's page flags: the lowest three bits are read, write and execute.
const RIGHTS: u64 = 7;
const WRITABLE: u64 = 2;
/// Linux: the right to execute a mapping.
const PROT_EXEC: u32 = 4;
/// The size in bytes of the range without rights that QEMU leaves below a stack.
const GUARD_BYTES: u64 = 4096;

/// The recorded state of a process and its address space. A fork's child inherits it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// The guest's regions as reported: address of the first byte, end, flags.
    regions: Vec<(u64, u64, u64)>,
    /// The text of `/proc/PID/maps`.
    maps: Vec<u8>,
    /// The address range of the main thread's stack.
    stack: Option<(u64, u64)>,
    /// The address at which the heap begins, which `brk` grows.
    heap: Option<u64>,
    /// The program and arguments of an `execve` in progress.
    pub(crate) executing: Option<Executing>,
    /// Notes on what could not be recorded.
    pub(crate) notes: Vec<String>,
    /// The process identifiers of children that were forked since this list was last read.
    pub(crate) forked: Vec<u32>,
    /// The executable mappings of files.
    pub(crate) images: Vec<Image>,
    /// The build of each file with an executable mapping, by its path.
    identities: BTreeMap<String, Option<String>>,
    /// The files whose builds are already in the trace of this process.
    identified: BTreeSet<String>,
    allocations: Allocations,
    /// The stack of a thread, as reported for the next allocated block: the number of the thread, the first
    /// address, and the words.
    stack_words: Option<(u32, u64, Vec<u64>)>,
    unwinder: Unwinder,
    /// Whether the program runs in a process of its own, without QEMU.
    pub(crate) is_native: bool,
    /// What the process reported about its windows in the current segment.
    pub(crate) windows: Reported,
}

/// What a process reports about its windows.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Reported {
    /// The numbers of accesses and instructions that the process has left out.
    pub(crate) left_out: (u64, u64),
    /// Whether the process has reached the sign that begins its windows.
    pub(crate) begins: bool,
    /// Whether the process waits for the addresses of the sign.
    pub(crate) asks: bool,
}

/// The maximum number of calls that are recorded for one allocation.
const CALLS_MAX: usize = 24;

/// An executable mapping of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Image {
    pub(crate) path: String,
    /// The offset in the file at which the mapping begins.
    pub(crate) offset: u64,
    /// The address in the guest's memory at which the mapping begins, and its length in bytes.
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}

impl Image {
    /// The executable mapping that `event` creates, if it creates one.
    pub(crate) fn of(event: &Event) -> Option<Image> {
        let (path, offset, start, bytes) = match event {
            Event::Mapping { start, bytes, rights, origin: Origin::File(path), offset, .. }
                if u32::from(*rights) & PROT_EXEC != 0 =>
            {
                (path, offset.unwrap_or(0), *start, *bytes)
            }
            Event::Mmap { bytes, prot, offset, path: Some(path), result, .. }
                if *result >= 0 && prot & PROT_EXEC != 0 =>
            {
                (path, *offset, *result as u64, *bytes)
            }
            _ => return None,
        };
        Some(Image { path: path.clone(), offset, start, bytes })
    }
}

/// An `execve` whose result is not known yet.
#[derive(Clone, Debug)]
pub(crate) struct Executing {
    pub(crate) thread: u32,
    pub(crate) path: String,
    pub(crate) arguments: Vec<String>,
}

impl Facts {
    /// The part that a child inherits.
    pub(crate) fn inherited(&self) -> Facts {
        Facts {
            stack: self.stack,
            heap: self.heap,
            images: self.images.clone(),
            identities: self.identities.clone(),
            allocations: self.allocations.clone(),
            is_native: self.is_native,
            ..Facts::default()
        }
    }

    /// Handles an event of `thread`, and passes the resulting events of the trace to `sink`.
    pub(crate) fn take(
        &mut self,
        thread: u32,
        code: EventCode,
        words: &[u64],
        sink: &mut dyn Sink,
    ) -> Result<(), Fault> {
        match (code, words) {
            (EventCode::ThreadStart, &[tid]) => {
                sink.event(thread, Event::ThreadStart { tid: tid as i64 })?;
            }
            (EventCode::LeftOut, &[accesses, instructions]) => {
                let left_out = &mut self.windows.left_out;
                left_out.0 = left_out.0.saturating_add(accesses);
                left_out.1 = left_out.1.saturating_add(instructions);
            }
            (EventCode::Begins, []) => self.windows.begins = true,
            (EventCode::Places, []) => self.windows.asks = true,
            (EventCode::ThreadEnd, []) => sink.event(thread, Event::ThreadEnd)?,
            (EventCode::Region, &[start, end, flags]) if start < end => {
                self.regions.push((start, end, flags));
            }
            (EventCode::MapsText, _) => self.maps.extend(bytes(words)?),
            (EventCode::Layout, &[base]) => {
                for mapping in self.mappings(base) {
                    self.look(thread, &mapping, sink)?;
                    sink.event(thread, mapping)?;
                }
                // In the child of a fork, these are the allocations of its parent.
                for event in self.allocations.all() {
                    sink.event(thread, event)?;
                }
            }
            (EventCode::Allocate, &[addr, bytes, ref stack @ ..]) => {
                let own = stack.iter().skip(1).take_while(|&&call| self.is_code(call)).count();
                let stack = &stack[..stack.len().min(own + 1)];
                let words = self.stack_words.take().filter(|&(of, ..)| of == thread);
                let unwound = words.map(|(_, start, words)| self.unwound(start, &words));
                let stack = match &unwound {
                    Some(unwound) if unwound.len() > stack.len() => unwound.as_slice(),
                    _ => stack,
                };
                let (site, event) = self.allocations.allocate(addr, bytes, stack);
                if let Some(site) = site {
                    sink.event(thread, site)?;
                }
                sink.event(thread, event)?;
            }
            (EventCode::Stack, &[start, ref words @ ..]) => {
                self.stack_words = Some((thread, start, words.to_vec()));
            }
            (EventCode::Free, &[addr]) => {
                self.allocations.free(addr);
                sink.event(thread, Event::Free { addr })?;
            }
            (EventCode::Execve, _) => {
                let text = bytes(words)?;
                let mut strings = text.split(|&byte| byte == 0).map(lossy);
                let path = strings.next().unwrap_or_default();
                let mut arguments: Vec<String> = strings.collect();
                arguments.pop();
                self.executing = Some(Executing { thread, path, arguments });
            }
            (EventCode::Note, _) => self.notes.push(lossy(&bytes(words)?)),
            (EventCode::FileCall, _) => {
                let call = file_call(words).ok_or_else(|| {
                    Fault::Garbled(format!("a system call in {} words", words.len()))
                })?;
                sink.event(thread, Event::Call(Box::new(call)))?;
            }
            (
                EventCode::Call,
                &[call, a, b, c, d, e, f, result, device, inode, size, ref path @ ..],
            ) => {
                let Some(call) = Call::from_bits(call) else {
                    return Err(Fault::Garbled(format!("system call {call}")));
                };
                let path = bytes(path)?;
                let path = (!path.is_empty()).then(|| lossy(&path));
                let file = FileId { device, inode, bytes: size };
                let file = (file != FileId { device: 0, inode: 0, bytes: 0 }).then_some(file);
                let event = self.call(call, [a, b, c, d, e, f], result as i64, path, file);
                self.look(thread, &event, sink)?;
                sink.event(thread, event)?;
            }
            _ => return Err(Fault::Garbled(format!("{code:?} with {} words", words.len()))),
        }
        Ok(())
    }

    /// Remembers an executable mapping that `event` creates. Before that, reports the build of its
    /// file.
    fn look(&mut self, thread: u32, event: &Event, sink: &mut dyn Sink) -> Result<(), Fault> {
        if let Event::Munmap { addr, bytes, result: 0 } = *event {
            self.allocations.unmapped(addr, bytes);
        }
        let Some(image) = Image::of(event) else { return Ok(()) };
        if self.identified.insert(image.path.clone()) {
            let identity = self.identities.entry(image.path.clone());
            let identity = identity.or_insert_with(|| symbols::identity(Path::new(&image.path)));
            let (path, identity) = (image.path.clone(), identity.clone());
            sink.event(thread, Event::Image { path, identity })?;
        }
        if !self.images.contains(&image) {
            self.images.push(image);
        }
        Ok(())
    }

    /// The return addresses of the calls that led to the function whose frame pointer is `start`.
    /// `words` are the words of the stack from this address on. The list ends at a call for which a
    /// file's unwind tables do not say where the next frame is.
    fn unwound(&mut self, start: u64, words: &[u64]) -> Vec<u64> {
        let read = |addr: u64| {
            let at = addr.checked_sub(start)?;
            words.get((at / 8) as usize).copied().filter(|_| at.is_multiple_of(8))
        };
        let mut calls = Vec::new();
        let (Some(rbp), Some(rip)) = (read(start), read(start.wrapping_add(8))) else {
            return calls;
        };
        let mut registers = Some(Registers { rip, rsp: start.wrapping_add(16), rbp });
        while let Some(now) = registers.filter(|_| calls.len() < CALLS_MAX) {
            let holds = |image: &&Image| now.rip.wrapping_sub(image.start) < image.bytes;
            // The image that was mapped last is the one at this address.
            let Some(image) = self.images.iter().rev().find(holds) else { break };
            calls.push(now.rip);
            let offset = image.offset + (now.rip - image.start);
            registers = self.unwinder.caller(&image.path, offset, now, &read);
        }
        calls
    }

    /// Whether executable memory of a file is mapped at `addr`.
    fn is_code(&self, addr: u64) -> bool {
        self.images.iter().any(|image| addr.wrapping_sub(image.start) < image.bytes)
    }

    fn call(
        &mut self,
        call: Call,
        a: [u64; 6],
        result: i64,
        path: Option<String>,
        file: Option<FileId>,
    ) -> Event {
        let (addr, bytes) = (a[0], a[1]);
        match call {
            Call::Mmap => Event::Mmap {
                addr,
                bytes,
                prot: a[2] as u32,
                flags: a[3] as u32,
                fd: a[4] as i32,
                offset: a[5],
                path,
                file,
                result,
            },
            Call::Munmap => Event::Munmap { addr, bytes, result },
            Call::Mprotect => Event::Mprotect { addr, bytes, prot: a[2] as u32, result },
            Call::Mremap => Event::Mremap {
                addr,
                old_bytes: bytes,
                new_bytes: a[2],
                flags: a[3] as u32,
                new_addr: a[4],
                result,
            },
            Call::Brk => {
                self.heap.get_or_insert(result as u64);
                Event::Brk { addr, result }
            }
            Call::Madvise => Event::Madvise { addr, bytes, advice: a[2] as u32, result },
            Call::Clone if Call::makes_thread(a[0]) => {
                Event::Clone { flags: a[0], stack: a[1], result }
            }
            Call::Clone | Call::Fork => {
                self.forked.extend(u32::try_from(result).ok().filter(|&pid| pid != 0));
                Event::Fork { result, flags: a[0] }
            }
            Call::ProcessMadvise => Event::ProcessMadvise {
                pidfd: a[0] as i32,
                ranges: a[1],
                ranges_count: a[2],
                advice: a[3] as u32,
                result,
            },
            Call::Mlock => Event::Mlock { addr, bytes, flags: 0, result },
            Call::Mlock2 => Event::Mlock { addr, bytes, flags: a[2] as u32, result },
            Call::Munlock => Event::Munlock { addr, bytes, result },
            Call::Mlockall => Event::Mlockall { flags: a[0] as u32, result },
            Call::Munlockall => Event::Munlockall { result },
            Call::Msync => Event::Msync { addr, bytes, flags: a[2] as u32, result },
            Call::Shmat => Event::Shmat {
                id: a[0] as i32,
                addr: a[1],
                flags: a[2] as u32,
                bytes: file.map(|file| file.bytes),
                file,
                result,
            },
            Call::Shmdt => Event::Shmdt { addr, result },
            Call::Mbind => Event::Mbind {
                addr,
                bytes,
                mode: a[2] as u32,
                nodes: a[3],
                flags: a[5] as u32,
                result,
            },
            // The numbers of a program's markers and requests are defined in `pagewalk.h`.
            Call::Marker if a[1] == 2 => {
                Event::PageSize { addr: a[2], bytes: a[3], page_bytes: a[4] }
            }
            Call::Marker => Event::Marker { number: a[2] },
            Call::HugePages => Event::HugePages { disabled: a[1] != 0, result },
            Call::Execve => {
                let path = self.executing.take().map(|executing| executing.path);
                Event::Execve { path: path.unwrap_or_default(), result }
            }
            Call::Exit => Event::Exit { status: a[0] as i32, group: false },
            Call::ExitGroup => Event::Exit { status: a[0] as i32, group: true },
        }
    }

    /// Combines QEMU's regions with the kernel's files; `base` is the guest's base.
    fn mappings(&mut self, base: u64) -> Vec<Event> {
        let text = lossy(&std::mem::take(&mut self.maps));
        let lines: Vec<Line> = text.lines().filter_map(Line::parse).collect();
        let mut regions = std::mem::take(&mut self.regions);
        if regions.is_empty() {
            regions = images(&lines, base);
            let note = "this QEMU does not report what it mapped before the program began: the \
                        stack has no name";
            self.notes.push(note.to_owned());
        }
        if self.stack.is_none() && !self.is_native {
            // QEMU puts a page without rights below the stack that it makes.
            let is_file = |at: u64| {
                let at = at.wrapping_add(base);
                lines.iter().any(|line| line.holds(at) && line.path.starts_with('/'))
            };
            let guarded = |pair: &&[(u64, u64, u64)]| {
                let (guard, stack) = (pair[0], pair[1]);
                guard.1 == stack.0
                    && guard.1 - guard.0 == GUARD_BYTES
                    && guard.2 & RIGHTS == 0
                    && stack.2 & WRITABLE != 0
                    && !is_file(stack.0)
            };
            self.stack = regions.windows(2).find(guarded).map(|pair| (pair[1].0, pair[1].1));
        }
        let mut mappings: Vec<(u64, u64, u8, Origin, Option<Part>)> = Vec::new();
        for (start, end, flags) in regions {
            let rights = (flags & RIGHTS) as u8;
            let mut at = start;
            while at < end {
                let line = lines.iter().find(|line| line.holds(at.wrapping_add(base)));
                let until = line.map_or(end, |line| line.end.wrapping_sub(base).clamp(at + 1, end));
                let before = mappings.last().filter(|before| before.1 == at);
                let origin = self.origin(at, rights, line, before.map(|before| &before.3));
                let part = line.filter(|_| matches!(origin, Origin::File(_)));
                let part = part.map(|line| Part {
                    offset: line.offset + (at.wrapping_add(base) - line.start),
                    device: line.device,
                    inode: line.inode,
                });
                let goes_on = |last: &(u64, u64, u8, Origin, Option<Part>)| {
                    let after = last.4.map(|part| part.after(last.1 - last.0));
                    last.1 == at && last.2 == rights && last.3 == origin && after == part
                };
                match mappings.last_mut() {
                    Some(last) if goes_on(last) => last.1 = until,
                    _ => mappings.push((at, until, rights, origin, part)),
                }
                at = until;
            }
        }
        let event = |(start, end, rights, origin, part): (u64, u64, u8, Origin, Option<Part>)| {
            let file = match (&origin, part) {
                (Origin::File(path), Some(part)) => part.file(path),
                _ => None,
            };
            let offset = part.map(|part| part.offset);
            Event::Mapping { start, bytes: end - start, rights, origin, offset, file }
        };
        mappings.into_iter().map(event).collect()
    }

    fn origin(&self, at: u64, rights: u8, line: Option<&Line>, before: Option<&Origin>) -> Origin {
        let path = line.map_or("", |line| line.path);
        if path.starts_with('/') {
            return Origin::File(path.to_owned());
        }
        // If the program does not run in QEMU, the names in the kernel's list are those of the
        // program's own mappings.
        match path {
            _ if !self.is_native => {}
            "[stack]" => return Origin::Stack,
            "[heap]" => return Origin::Heap,
            "" => {}
            other => return Origin::Other(other.trim_matches(['[', ']']).to_owned()),
        }
        if self.stack.is_some_and(|(start, end)| (start..end).contains(&at)) {
            return Origin::Stack;
        }
        if self.heap.is_some_and(|heap| heap == at) || matches!(before, Some(Origin::Heap)) {
            return Origin::Heap;
        }
        match before {
            Some(Origin::File(_) | Origin::Bss) if u64::from(rights) & WRITABLE != 0 => Origin::Bss,
            _ if rights == 0 => Origin::Other("guard".to_owned()),
            _ if at >= 0xffff_ffff_ff60_0000 => Origin::Other("vsyscall".to_owned()),
            _ => Origin::Other("anonymous".to_owned()),
        }
    }
}

/// A call as reported by [`EventCode::FileCall`]. `None` if the report is invalid.
fn file_call(words: &[u64]) -> Option<trace::Call> {
    let (head, rest) = words.split_first_chunk::<12>()?;
    let [_, a, b, c, d, e, f, result, began_ns, ended_ns, offset, fds] = *head;
    let (fds, rest) = rest.split_at_checked(usize::try_from(fds).ok()?.checked_mul(5)?)?;
    let (&buffers, rest) = rest.split_first()?;
    let (buffers, name) = rest.split_at_checked(usize::try_from(buffers).ok()?.checked_mul(2)?)?;
    let descriptors: Vec<Descriptor> = fds
        .as_chunks::<5>()
        .0
        .iter()
        .map(|&[fd, mode, device, inode, bytes]| Descriptor {
            fd: fd as i32,
            kind: kind((mode >> 32) as u32),
            file: FileId { device, inode, bytes },
            nonblocking: mode as u32 & libc::O_NONBLOCK as u32 != 0,
        })
        .collect();
    let buffers = buffers.as_chunks::<2>().0.iter();
    Some(trace::Call {
        name: String::from_utf8(bytes(name).ok()?).ok()?,
        arguments: [a, b, c, d, e, f],
        result: result as i64,
        began_ns,
        ended_ns,
        fd: descriptors.first().map(|first| first.fd),
        descriptors,
        offset: (offset != u64::MAX).then_some(offset),
        buffers: buffers.map(|&[addr, bytes]| Buffer { addr, bytes }).collect(),
    })
}

/// The kind of a file with this mode.
fn kind(mode: u32) -> FileKind {
    match mode & libc::S_IFMT {
        libc::S_IFREG => FileKind::Regular,
        libc::S_IFDIR => FileKind::Directory,
        libc::S_IFIFO => FileKind::Pipe,
        libc::S_IFSOCK => FileKind::Socket,
        libc::S_IFCHR => FileKind::Character,
        libc::S_IFBLK => FileKind::Block,
        _ => FileKind::Other,
    }
}

/// A mapped part of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Part {
    offset: u64,
    device: u64,
    inode: u64,
}

impl Part {
    /// The part that begins `bytes` later.
    fn after(self, bytes: u64) -> Part {
        Part { offset: self.offset.wrapping_add(bytes), ..self }
    }

    /// The identity of the file, if it is still at `path`.
    fn file(self, path: &str) -> Option<FileId> {
        let Part { device, inode, .. } = self;
        let found = std::fs::metadata(path).ok()?;
        (found.ino() == inode).then_some(FileId { device, inode, bytes: found.len() })
    }
}

/// The text in an event's last words: its length in bytes, and the bytes.
fn bytes(words: &[u64]) -> Result<Vec<u8>, Fault> {
    let garbled = || Fault::Garbled("a text longer than its event".to_owned());
    let (&length, words) = words.split_first().ok_or_else(garbled)?;
    if length > 8 * words.len() as u64 {
        return Err(garbled());
    }
    let mut bytes = Vec::with_capacity(8 * words.len());
    words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    bytes.truncate(length as usize);
    Ok(bytes)
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
