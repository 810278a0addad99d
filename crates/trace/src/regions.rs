//! Regions: the named parts of a process's address space, updated by the process's events.
//!
//! ```text
//!   pieces  |libc (r-x)| |libc (rw-)|      | heap |  | stack |      what is mapped now, by address
//!   id           3            4               7         1           a piece leads to its region
//!   regions  3: libc.so.6 (r-x), 0x7f..., 1.8 MB, r-x   ...         all ever mapped, by number
//! ```
//!
//! A region is the memory that one request created: a mapping of a file, an `mmap`, the heap. It
//! keeps its number and its name when it grows, moves, loses a part or changes its rights. It stays
//! in the list when it is unmapped, so that counts can be kept by number. Adjacent anonymous
//! mappings remain separate regions, although the system joins them: if a program maps a table
//! beside an array, it makes two requests, and the table and the array are two regions.
//!
//! For accesses to addresses that no event has mapped (in a trace of another tool, or to a vsyscall
//! page), regions are inferred: one for each aligned block of 2 MiB, which extends over the part of
//! the block that was touched. This rule is fixed, so that a region's number never changes its
//! meaning with later accesses. For presentation, inferred regions that are close together are
//! joined into clusters after everything has been counted:
//!
//! ```text
//!   touched   ..xx|x..x|.x..|....|....|....|....|xxxx|xx..     blocks of 2 MiB
//!   clusters    \_________/                      \____/        more than 4 MiB apart
//! ```

use std::collections::{BTreeMap, HashMap};

use addr::Rights;

use crate::allocations::Allocations;
use crate::{Event, Origin};

/// The number of a region, assigned in order of appearance and never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct RegionId(pub u32);

/// A named part of the address space.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region {
    /// The number of the region.
    pub id: RegionId,
    /// The name: `libc.so.6 (r-x)`, `heap`, `stack`, `anonymous 1`.
    pub name: String,
    /// The lowest address that the region has had so far.
    pub start: u64,
    /// The bytes from the lowest address to the end of the highest page that the region has had so
    /// far.
    pub bytes: u64,
    /// The allowed accesses, as last requested.
    pub rights: Rights,
    /// Whether the region was inferred from accesses to addresses that no event has mapped.
    pub inferred: bool,
    /// Whether the region was created by an `mmap` without a file that is not for a thread's stack.
    /// Its name then has a number.
    is_anonymous: bool,
    /// The backing of the region's pages, if an event gives it.
    pub backing: Option<Backing>,
    /// Whether and when the region's pages were loaded without an access.
    pub populated: Option<Populated>,
    /// The allocation site for which the region was mapped, as an index into
    /// [`Regions::allocations`].
    pub site: Option<u32>,
    /// Whether the site itself called `mmap`. If an allocator called it, the mapping begins before
    /// the block that the allocator returned.
    pub is_mapped_by_site: bool,
    /// The file that is mapped in the region, and the address that the file's first byte would
    /// have.
    file: Option<(u32, u64)>,
}

/// The backing of a region's pages, which determines whether, and by which request, an operating
/// system can use large pages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Backing {
    /// A private mapping without a file.
    Anonymous,
    /// Memory that processes can share without a file on a disk: `MAP_SHARED | MAP_ANONYMOUS`, System V
    /// segments, `memfd_create` and files in `/dev/shm`.
    SharedMemory,
    /// A private mapping of memory as in [`Backing::SharedMemory`].
    PrivateOfShared,
    /// A shared mapping of a file.
    SharedFile,
    /// A private mapping of a file: programs, libraries.
    PrivateFile,
    /// Pages of the huge-page pool: `MAP_HUGETLB`.
    HugeTlb,
    /// The main thread's stack.
    Stack,
    /// Another thread's stack: `MAP_STACK`.
    ThreadStack,
    /// The memory that `brk` extends.
    Heap,
    /// The program's zero-initialised data that is not in its file.
    Bss,
}

impl Backing {
    /// The name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Backing::Anonymous => "anonymous",
            Backing::SharedMemory => "shared-memory",
            Backing::PrivateOfShared => "private-of-shared",
            Backing::SharedFile => "shared-file",
            Backing::PrivateFile => "private-file",
            Backing::HugeTlb => "hugetlb",
            Backing::Stack => "stack",
            Backing::ThreadStack => "thread-stack",
            Backing::Heap => "heap",
            Backing::Bss => "bss",
        }
    }

    /// The backing of a mapping of the file at `path`, `shared` or private.
    fn of_file(path: &str, shared: bool) -> Backing {
        let is_of = |starts: &[&str]| starts.iter().any(|start| path.starts_with(start));
        match (is_of(&["/dev/shm/", "/dev/zero", "/memfd:", "/SYSV"]), shared) {
            _ if is_of(&["/dev/hugepages/", "/anon_hugepage"]) => Backing::HugeTlb,
            _ if path == "/dev/zero" && !shared => Backing::Anonymous,
            (true, true) => Backing::SharedMemory,
            (true, false) => Backing::PrivateOfShared,
            (false, true) => Backing::SharedFile,
            (false, false) => Backing::PrivateFile,
        }
    }
}

/// The requests that load all pages of a region without an access, and the time when they do so.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Populated {
    /// The request that mapped the region, before any advice could be given: `MAP_LOCKED`, `MAP_POPULATE`, or
    /// an earlier `mlockall(MCL_FUTURE)`.
    WhenMapped,
    /// A later `mlock` or `mlockall`.
    WhenLocked,
}

impl Populated {
    /// The name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Populated::WhenMapped => "when-mapped",
            Populated::WhenLocked => "when-locked",
        }
    }
}

/// A file, a part of which is mapped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MappedFile {
    /// The path of the file.
    pub path: String,
    /// The identity of the file's build, as in [`Event::Image`].
    pub identity: Option<String>,
}

/// The position of an address in the file that is mapped there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Location {
    /// The number of the file, for [`Regions::file`]; `None` if no file is mapped at the address.
    pub file: Option<u32>,
    /// The offset in the file, or the address itself if there is no file.
    pub offset: u64,
}

/// A mapping of a range of addresses up to `last`; both ends are page boundaries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Piece {
    last: u64,
    id: RegionId,
    rights: Rights,
}

/// The regions of a process's address space.
#[derive(Clone, Debug, Default)]
pub struct Regions {
    all: Vec<Region>,
    pieces: BTreeMap<u64, Piece>,
    /// The region inferred for each aligned block.
    inferred: HashMap<u64, RegionId>,
    /// The region inferred for each aligned GiB, used when there are too many blocks.
    sparse: HashMap<u64, RegionId>,
    heap: Option<RegionId>,
    program_break: Option<u64>,
    anonymous: u32,
    thread_stacks: u32,
    /// One region for all further anonymous mappings, used when there are too many of them.
    crowd: Option<RegionId>,
    /// Whether an earlier `mlockall` makes the system load all pages of later mappings at once.
    populates: bool,
    /// The lengths of attached shared-memory segments, by their start.
    segments: BTreeMap<u64, u64>,
    is_told: bool,
    files: Vec<MappedFile>,
    /// The latest file number of each path.
    file_numbers: HashMap<String, u32>,
    allocations: Allocations,
    /// The piece that was looked up last; reset when an event changes the map.
    last: Option<(u64, Piece)>,
}

const PAGE_MASK: u64 = 0xfff;
/// log2 of the bytes of a block, for which one region is inferred.
const BLOCK_SHIFT: u32 = 21;
const GIB_SHIFT: u32 = 30;
/// The largest number of blocks that get a region of their own: 32 GiB, if the blocks are adjacent.
const BLOCKS_MAX: usize = 1 << 14;
/// Inferred regions that are at most this far apart are in one cluster.
const CLUSTER_GAP_BYTES: u64 = 4 << 20;
const MAP_SHARED: u32 = 1;
const MAP_LOCKED: u32 = 0x2000;
const MAP_POPULATE: u32 = 0x8000;
const MAP_STACK: u32 = 0x2_0000;
const MAP_HUGETLB: u32 = 0x4_0000;
const MLOCK_ONFAULT: u32 = 1;
const MCL_CURRENT: u32 = 1;
const MCL_FUTURE: u32 = 2;
const MCL_ONFAULT: u32 = 4;
/// The name of a System V shared-memory segment.
const SEGMENT: &str = "shared memory";
/// The largest number of anonymous mappings that get a region of their own.
const ANONYMOUS_MAX: u32 = 4096;

impl Regions {
    /// An address space without known mappings.
    pub fn new() -> Regions {
        Regions::default()
    }

    /// Updates the map for `event`; calls that failed change nothing.
    pub fn apply(&mut self, event: &Event) {
        if event.changes_mappings() {
            self.last = None;
            self.is_told = true;
        }
        match event {
            Event::Mapping { start, bytes, rights, origin, offset, .. } => {
                self.initial((*start, *bytes), Rights::from_bits(rights & 7), origin, *offset);
            }
            Event::Mmap { bytes, prot, flags, offset, path, result, .. } if *result >= 0 => {
                let file = path.as_deref().map(|path| (path, *offset));
                self.mmap((*result as u64, *bytes), rights_of(*prot), *flags, file);
            }
            Event::Munmap { addr, bytes, result: 0 } => self.carve(*addr, *bytes),
            Event::Mprotect { addr, bytes, prot, result: 0 } => {
                self.protect(*addr, *bytes, rights_of(*prot));
            }
            Event::Mremap { addr, old_bytes, new_bytes, result, .. } if *result >= 0 => {
                self.remap(*addr, *old_bytes, *result as u64, *new_bytes);
            }
            Event::Brk { result, .. } if *result >= 0 => self.brk(*result as u64),
            Event::Shmat { bytes: Some(bytes), result, .. } if *result >= 0 => {
                let origin = Origin::Other(SEGMENT.to_owned());
                self.initial((*result as u64, *bytes), rights_of(3), &origin, None);
                self.segments.insert(*result as u64, *bytes);
            }
            Event::Shmdt { addr, result: 0 } => {
                if let Some(bytes) = self.segments.remove(addr) {
                    self.carve(*addr, bytes);
                }
            }
            Event::Mlock { addr, bytes, flags, result: 0 } if flags & MLOCK_ONFAULT == 0 => {
                if let Some((first, last)) = pages(*addr, *bytes) {
                    self.locked(first, last);
                }
            }
            Event::Mlockall { flags, result: 0 } => {
                let at_once = flags & MCL_ONFAULT == 0;
                if at_once && flags & MCL_CURRENT != 0 {
                    self.locked(0, u64::MAX);
                }
                self.populates = at_once && flags & MCL_FUTURE != 0;
            }
            Event::Munlockall { result: 0 } => self.populates = false,
            // The process continues in an empty space.
            Event::Execve { result: 0, .. } => {
                self.populates = false;
                self.pieces.clear();
                self.segments.clear();
                self.allocations.replaced();
                (self.heap, self.program_break) = (None, None);
            }
            Event::Image { path, identity } => self.image(path, identity),
            Event::Site { number, stack } => {
                let frames = stack.iter().map(|&addr| self.locate(addr)).collect();
                self.allocations.site(*number, frames);
            }
            Event::Allocate { addr, bytes, site } => self.allocate(*addr, *bytes, *site),
            Event::Free { addr } => self.allocations.free(*addr),
            // Calls that failed, and events that do not change mappings.
            Event::Mmap { .. }
            | Event::Munmap { .. }
            | Event::Mprotect { .. }
            | Event::Mremap { .. }
            | Event::Brk { .. }
            | Event::Madvise { .. }
            | Event::ProcessMadvise { .. }
            | Event::Mlock { .. }
            | Event::Munlock { .. }
            | Event::Mlockall { .. }
            | Event::Munlockall { .. }
            | Event::Msync { .. }
            | Event::Shmat { .. }
            | Event::Shmdt { .. }
            | Event::Mbind { .. }
            | Event::HugePages { .. }
            | Event::Marker { .. }
            | Event::PageSize { .. }
            | Event::Call(_)
            | crate::events!(lives)
            | crate::events!(stream)
            | crate::events!(translation) => {}
        }
    }

    /// The current mappings according to events: starts and lengths in bytes, by ascending address.
    pub fn mapped(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.pieces.iter().map(|(&start, piece)| (start, (piece.last - start).saturating_add(1)))
    }

    /// The end of the heap, if an event has reported it.
    pub fn program_break(&self) -> Option<u64> {
        self.program_break
    }

    /// The region that contains `addr` now. If no region is known there, one is inferred.
    #[inline]
    pub fn region_of(&mut self, addr: u64) -> RegionId {
        if let Some((start, piece)) = self.last
            && start <= addr
            && addr <= piece.last
        {
            return piece.id;
        }
        match self.piece_at(addr) {
            Some(found) => {
                self.last = Some(found);
                found.1.id
            }
            None => self.infer(addr),
        }
    }

    /// The region that contains `addr`, if an event mapped it.
    pub fn region_at(&self, addr: u64) -> Option<&Region> {
        self.piece_at(addr).map(|(_, piece)| self.get(piece.id))
    }

    /// The first and last address of the range around `addr` that belongs to the region of `addr`,
    /// until the map changes; `None` if no event mapped `addr`.
    pub fn extent_of(&self, addr: u64) -> Option<(u64, u64)> {
        self.piece_at(addr).map(|(start, piece)| (start, piece.last))
    }

    /// The first address of `first..=last` that an event mapped.
    pub fn first_within(&self, first: u64, last: u64) -> Option<u64> {
        match self.piece_at(first) {
            Some(_) => Some(first),
            None => self.pieces.range(first..=last).next().map(|(&start, _)| start),
        }
    }

    /// The rights at `addr`, if an event mapped it.
    pub fn rights_at(&self, addr: u64) -> Option<Rights> {
        self.piece_at(addr).map(|(_, piece)| piece.rights)
    }

    /// The rights in all of `first..=last`, if it lies inside one mapping with the same rights
    /// everywhere.
    pub fn covering(&self, first: u64, last: u64) -> Option<Rights> {
        let (mut start, Piece { id, rights, .. }) = self.piece_at(first)?;
        for (&next, piece) in self.pieces.range(start..=last) {
            if next != start || piece.id != id || piece.rights != rights {
                return None;
            }
            if piece.last >= last {
                return Some(rights);
            }
            start = piece.last + 1;
        }
        None
    }

    /// The position of `addr` in the file that is mapped there now.
    pub fn locate(&self, addr: u64) -> Location {
        let region = self.piece_at(addr).map(|(_, piece)| self.get(piece.id));
        match region.and_then(|region| region.file) {
            Some((file, base)) => Location { file: Some(file), offset: addr.wrapping_sub(base) },
            None => Location { file: None, offset: addr },
        }
    }

    /// The file with the number `number`, which this map assigned.
    pub fn file(&self, number: u32) -> &MappedFile {
        &self.files[number as usize]
    }

    /// The allocations in this address space.
    pub fn allocations(&self) -> &Allocations {
        &self.allocations
    }

    /// Whether any event has reported a mapping.
    pub fn is_told(&self) -> bool {
        self.is_told
    }

    /// Whether all accesses to `first..=last` belong to the same region.
    pub fn is_single(&self, first: u64, last: u64) -> bool {
        let mut id = None;
        let mut covered_to = first;
        let before = self.piece_at(first).map(|(start, _)| start).unwrap_or(first);
        for (&start, piece) in self.pieces.range(before..=last) {
            if start > covered_to || id.is_some_and(|id| id != piece.id) {
                // A hole between two pieces is, or would become, another region.
                return false;
            }
            id = Some(piece.id);
            match piece.last.checked_add(1) {
                Some(next) => covered_to = next,
                None => return true,
            }
        }
        match id {
            Some(_) => covered_to > last,
            None => first >> BLOCK_SHIFT == last >> BLOCK_SHIFT,
        }
    }

    /// The region with the number `id`, which this map assigned.
    pub fn get(&self, id: RegionId) -> &Region {
        &self.all[id.0 as usize]
    }

    /// All regions so far, including unmapped ones, by number.
    pub fn all(&self) -> &[Region] {
        &self.all
    }

    fn piece_at(&self, addr: u64) -> Option<(u64, Piece)> {
        let (&start, &piece) = self.pieces.range(..=addr).next_back()?;
        (addr <= piece.last).then_some((start, piece))
    }

    fn infer(&mut self, addr: u64) -> RegionId {
        let (block, gib) = (addr >> BLOCK_SHIFT, addr >> GIB_SHIFT);
        let page = addr & !PAGE_MASK;
        if let Some(&id) = self.inferred.get(&block).or_else(|| self.sparse.get(&gib)) {
            self.extend(id, page, page | PAGE_MASK);
            return id;
        }
        let name = format!("around {page:#x}");
        let id = self.add(name, page, page | PAGE_MASK, Rights::NONE);
        self.all[id.0 as usize].inferred = true;
        match self.inferred.len() {
            BLOCKS_MAX => self.sparse.insert(gib, id),
            _ => self.inferred.insert(block, id),
        };
        id
    }

    fn initial(
        &mut self,
        (start, bytes): (u64, u64),
        rights: Rights,
        origin: &Origin,
        offset: Option<u64>,
    ) {
        let Some((first, last)) = pages(start, bytes) else { return };
        self.carve(start, bytes);
        let name = match origin {
            Origin::File(path) => file_name(path, rights),
            Origin::Stack => "stack".to_owned(),
            Origin::Heap => "heap".to_owned(),
            Origin::Bss => "bss".to_owned(),
            Origin::Other(name) => name.clone(),
        };
        let id = self.add(name, first, last, rights);
        self.all[id.0 as usize].backing = match origin {
            // The kernel's list of mappings does not show whether a mapping is shared. Files of
            // shared memory are assumed to be mapped shared.
            Origin::File(path) => match Backing::of_file(path, false) {
                Backing::PrivateOfShared => Some(Backing::SharedMemory),
                backing => Some(backing),
            },
            Origin::Stack => Some(Backing::Stack),
            Origin::Heap => Some(Backing::Heap),
            Origin::Bss => Some(Backing::Bss),
            Origin::Other(name) if name == SEGMENT => Some(Backing::SharedMemory),
            Origin::Other(name) if name == "anonymous" => Some(Backing::Anonymous),
            // Guard pages and pages of the kernel have no page sizes that could be requested.
            Origin::Other(_) => None,
        };
        if let Origin::File(path) = origin {
            self.maps_file(id, path, start.wrapping_sub(offset.unwrap_or(0)));
        }
        if *origin == Origin::Heap {
            self.heap = Some(id);
            self.program_break = last.checked_add(1);
        }
        self.pieces.insert(first, Piece { last, id, rights });
    }

    fn mmap(
        &mut self,
        (start, bytes): (u64, u64),
        rights: Rights,
        flags: u32,
        file: Option<(&str, u64)>,
    ) {
        let Some((first, last)) = pages(start, bytes) else { return };
        self.carve(start, bytes);
        let shared = flags & MAP_SHARED != 0;
        let backing = match file {
            _ if flags & MAP_HUGETLB != 0 => Backing::HugeTlb,
            Some((path, _)) => Backing::of_file(path, shared),
            None if flags & MAP_STACK != 0 => Backing::ThreadStack,
            None if shared => Backing::SharedMemory,
            None => Backing::Anonymous,
        };
        let id = match file {
            Some((path, offset)) => {
                let id = self.add(file_name(path, rights), first, last, rights);
                self.maps_file(id, path, start.wrapping_sub(offset));
                id
            }
            None if flags & MAP_STACK != 0 => {
                self.thread_stacks += 1;
                self.add(format!("thread stack {}", self.thread_stacks), first, last, rights)
            }
            None => self.anonymous(first, last, rights),
        };
        let populates = self.populates || flags & (MAP_LOCKED | MAP_POPULATE) != 0;
        // The region for further mappings contains mappings of all kinds, so it has no backing.
        if self.crowd != Some(id) {
            let region = &mut self.all[id.0 as usize];
            region.backing = Some(backing);
            region.populated = populates.then_some(Populated::WhenMapped);
        }
        self.pieces.insert(first, Piece { last, id, rights });
    }

    /// Records that all mapped pages in `first..=last` have been loaded.
    fn locked(&mut self, first: u64, last: u64) {
        let first = self.piece_at(first).map_or(first, |(start, _)| start);
        for piece in self.pieces.range(first..=last).map(|(_, piece)| piece) {
            self.all[piece.id.0 as usize].populated.get_or_insert(Populated::WhenLocked);
        }
    }

    /// The region for a new anonymous mapping.
    fn anonymous(&mut self, first: u64, last: u64, rights: Rights) -> RegionId {
        if self.anonymous < ANONYMOUS_MAX {
            self.anonymous += 1;
            let id = self.add(format!("anonymous {}", self.anonymous), first, last, rights);
            self.all[id.0 as usize].is_anonymous = true;
            return id;
        }
        match self.crowd {
            Some(id) => {
                self.extend(id, first, last);
                id
            }
            None => {
                let name = format!("anonymous, after the first {ANONYMOUS_MAX}");
                let id = self.add(name, first, last, rights);
                self.crowd = Some(id);
                id
            }
        }
    }

    fn protect(&mut self, start: u64, bytes: u64, rights: Rights) {
        let Some((first, last)) = pages(start, bytes) else { return };
        self.split(first);
        if let Some(end) = last.checked_add(1) {
            self.split(end);
        }
        for piece in self.pieces.range_mut(first..=last).map(|(_, piece)| piece) {
            piece.rights = rights;
            self.all[piece.id.0 as usize].rights = rights;
        }
    }

    fn remap(&mut self, old: u64, old_bytes: u64, new: u64, new_bytes: u64) {
        let Some((_, piece)) = self.piece_at(old) else { return };
        self.carve(old, old_bytes);
        let Some((first, last)) = pages(new, new_bytes) else { return };
        self.carve(new, new_bytes);
        if new != old {
            // A region stores only one address for the file's first byte, which is not valid after
            // a move.
            self.all[piece.id.0 as usize].file = None;
        }
        self.extend(piece.id, first, last);
        self.pieces.insert(first, Piece { last, ..piece });
    }

    fn brk(&mut self, now: u64) {
        let before = self.program_break.replace(now);
        let Some(before) = before.filter(|&before| before != now) else { return };
        if now < before {
            // The page that holds the new break stays.
            let Some(gone) = now.checked_add(PAGE_MASK).map(|addr| addr & !PAGE_MASK) else {
                return;
            };
            self.carve(gone, before.saturating_sub(gone));
            return;
        }
        let rights = Rights::READ | Rights::WRITE;
        let first = before & !PAGE_MASK;
        let Some((first, last)) = pages(first, now - first) else { return };
        // The rest of the page that contains the old break belongs to the program's data.
        let first = match self.piece_at(first) {
            Some((_, piece)) if piece.last < last => piece.last + 1,
            Some(_) => return,
            None => first,
        };
        let id = match self.heap {
            Some(id) => {
                self.extend(id, first, last);
                id
            }
            None => self.add("heap".to_owned(), first, last, rights),
        };
        self.all[id.0 as usize].backing = Some(Backing::Heap);
        self.heap = Some(id);
        self.carve(first, last - first);
        self.pieces.insert(first, Piece { last, id, rights });
    }

    /// Records the identity of the file at `path` from now on.
    fn image(&mut self, path: &str, identity: &Option<String>) {
        let known = self.file_numbers.get(path).map(|&number| self.file(number));
        if known.is_none_or(|file| file.identity != *identity) {
            let file = MappedFile { path: path.to_owned(), identity: identity.clone() };
            self.file_numbers.insert(file.path.clone(), self.files.len() as u32);
            self.files.push(file);
        }
    }

    /// Records that the file at `path` is mapped in the region `id`, with its first byte at `base`.
    fn maps_file(&mut self, id: RegionId, path: &str, base: u64) {
        if !self.file_numbers.contains_key(path) {
            self.image(path, &None);
        }
        self.all[id.0 as usize].file = Some((self.file_numbers[path], base));
    }

    /// Records an allocation. If a mapping was made for the allocation, and the allocation occupies
    /// most of it, the mapping is named after the allocation site.
    fn allocate(&mut self, addr: u64, bytes: u64, number: u32) {
        let Some(site) = self.allocations.allocate(addr, bytes, number) else { return };
        let Some((_, piece)) = self.piece_at(addr) else { return };
        let region = &mut self.all[piece.id.0 as usize];
        if region.is_anonymous && region.site.is_none() && bytes >= region.bytes / 2 {
            region.site = Some(site);
            region.is_mapped_by_site = addr == region.start;
        }
    }

    /// Unmaps the pages of the `bytes` bytes from `start`.
    fn carve(&mut self, start: u64, bytes: u64) {
        let Some((first, last)) = pages(start, bytes) else { return };
        self.allocations.gone(first, last);
        self.split(first);
        if let Some(end) = last.checked_add(1) {
            self.split(end);
        }
        while let Some((&start, _)) = self.pieces.range(first..=last).next() {
            self.pieces.remove(&start);
        }
    }

    /// Splits the piece that contains `addr`, so that `addr` is the start of a piece.
    fn split(&mut self, addr: u64) {
        let Some((start, piece)) = self.piece_at(addr).filter(|(start, _)| *start < addr) else {
            return;
        };
        self.pieces.insert(start, Piece { last: addr - 1, ..piece });
        self.pieces.insert(addr, piece);
    }

    fn add(&mut self, name: String, first: u64, last: u64, rights: Rights) -> RegionId {
        let id = RegionId(self.all.len() as u32);
        let bytes = (last - first).saturating_add(1);
        self.all.push(Region {
            id,
            name,
            start: first,
            bytes,
            rights,
            inferred: false,
            is_anonymous: false,
            backing: None,
            populated: None,
            site: None,
            is_mapped_by_site: false,
            file: None,
        });
        id
    }

    fn extend(&mut self, id: RegionId, first: u64, last: u64) {
        let region = &mut self.all[id.0 as usize];
        let end = (region.start + (region.bytes - 1)).max(last);
        region.start = region.start.min(first);
        region.bytes = (end - region.start).saturating_add(1);
    }
}

/// Whether two inferred regions are in the same cluster. The first has `bytes` bytes from `start`;
/// the second begins at `next`, which is not lower than `start`.
pub fn adjoin(start: u64, bytes: u64, next: u64) -> bool {
    next.saturating_sub(start.saturating_add(bytes)) <= CLUSTER_GAP_BYTES
}

/// The length of the smallest range from `start` on that contains the `bytes` bytes from `start`
/// and the `next_bytes` bytes from `next`; `next` is not lower than `start`.
pub fn joined_bytes(start: u64, bytes: u64, next: u64, next_bytes: u64) -> u64 {
    bytes.max((next - start).saturating_add(next_bytes))
}

/// The first and last byte of the pages that the `bytes` bytes from `start` overlap; `None` if
/// `bytes` is 0, or if the range extends beyond the last address.
fn pages(start: u64, bytes: u64) -> Option<(u64, u64)> {
    let last = start.checked_add(bytes.checked_sub(1)?)?;
    Some((start & !PAGE_MASK, last | PAGE_MASK))
}

fn rights_of(prot: u32) -> Rights {
    Rights::from_bits((prot & 7) as u8)
}

fn file_name(path: &str, rights: Rights) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    format!("{name} ({rights})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::numbers;

    /// The number of pages of the small address space in the test; the model knows region name and
    /// rights of each.
    const PAGES: u64 = 24;
    const BASE: u64 = 0x10_0000;

    fn addr(page: u64) -> u64 {
        BASE + page * 4096
    }

    /// A page-by-page model: the name of a page's mapping and its rights.
    #[derive(Default)]
    struct Model {
        pages: HashMap<u64, (String, u32)>,
    }

    fn mmap(page: u64, pages: u64, prot: u32, path: String) -> Event {
        Event::Mmap {
            addr: 0,
            bytes: pages * 4096 - 5,
            prot,
            flags: 2,
            fd: 3,
            offset: 0,
            path: Some(path),
            file: None,
            result: addr(page) as i64,
        }
    }

    #[test]
    fn the_map_agrees_with_a_page_by_page_model() {
        for seed in 1..=40u64 {
            let mut random = numbers(seed);
            let (mut regions, mut model) = (Regions::new(), Model::default());
            for step in 0..300 {
                let page = random(PAGES - 4);
                let pages = 1 + random(PAGES - page);
                let prot = random(8) as u32;
                let event = match random(4) {
                    0 => {
                        let path = format!("/lib/f{step}");
                        for page in page..page + pages {
                            model.pages.insert(page, (format!("f{step}"), prot));
                        }
                        mmap(page, pages, prot, path)
                    }
                    1 => {
                        (page..page + pages).for_each(|page| drop(model.pages.remove(&page)));
                        Event::Munmap { addr: addr(page), bytes: pages * 4096, result: 0 }
                    }
                    2 => {
                        for page in page..page + pages {
                            if let Some((_, rights)) = model.pages.get_mut(&page) {
                                *rights = prot;
                            }
                        }
                        let bytes = pages * 4096;
                        Event::Mprotect { addr: addr(page), bytes, prot, result: 0 }
                    }
                    _ => Event::Munmap { addr: addr(page), bytes: pages * 4096, result: -22 },
                };
                regions.apply(&event);
                for page in 0..PAGES {
                    let known = model.pages.get(&page);
                    let rights = known.map(|(_, prot)| Rights::from_bits(*prot as u8));
                    let at = addr(page) + random(4096);
                    assert_eq!(regions.rights_at(at), rights, "seed {seed} step {step} {event:?}");
                    if let Some((name, _)) = known {
                        let id = regions.region_of(at);
                        assert!(regions.get(id).name.starts_with(&format!("{name} (")));
                    }
                }
                let (first, last) = (random(PAGES), random(PAGES));
                let (first, last) = (first.min(last), first.max(last));
                let told = (first..=last).find(|page| model.pages.contains_key(page)).map(addr);
                assert_eq!(regions.first_within(addr(first), addr(last) + 7), told, "seed {seed}");
                let names = (first..=last).map(|page| model.pages.get(&page).map(|(name, _)| name));
                let mut names: Vec<_> = names.collect();
                names.dedup();
                assert_eq!(
                    regions.is_single(addr(first), addr(last) + 7),
                    names.len() == 1,
                    "seed {seed} step {step}"
                );
            }
        }
    }

    #[test]
    fn the_heap_grows_and_shrinks_as_one_region() {
        let mut regions = Regions::new();
        let brk = |result: i64| Event::Brk { addr: 0, result };
        regions.apply(&brk(0x5000));
        regions.apply(&brk(0x9000));
        let heap = regions.region_of(0x8fff);
        assert_eq!((regions.get(heap).name.as_str(), regions.get(heap).bytes), ("heap", 0x4000));
        regions.apply(&brk(0x6000));
        assert_eq!(regions.rights_at(0x6000), None);
        assert_eq!(regions.region_of(0x5000), heap);
        regions.apply(&brk(0x2_0000));
        assert_eq!(regions.region_of(0x1_ffff), heap);
        assert_eq!(regions.get(heap).bytes, 0x1_b000);
    }

    #[test]
    fn a_region_knows_what_stands_behind_it() {
        let (private, shared, anonymous) = (2, 1, 0x20);
        let of = |flags: u32, path: Option<&str>| {
            let mut regions = Regions::new();
            regions.apply(&Event::Mmap {
                addr: 0,
                bytes: 8192,
                prot: 3,
                flags,
                fd: path.map_or(-1, |_| 3),
                offset: 0,
                path: path.map(str::to_owned),
                file: None,
                result: addr(0) as i64,
            });
            let region = regions.region_at(addr(0)).unwrap();
            (region.backing, region.populated)
        };
        for (flags, path, backing) in [
            (private | anonymous, None, Backing::Anonymous),
            (shared | anonymous, None, Backing::SharedMemory),
            (private | anonymous | MAP_STACK, None, Backing::ThreadStack),
            (private | anonymous | MAP_HUGETLB, None, Backing::HugeTlb),
            (shared | anonymous | MAP_HUGETLB, None, Backing::HugeTlb),
            (shared, Some("/dev/hugepages/a"), Backing::HugeTlb),
            (shared, Some("/dev/shm/a"), Backing::SharedMemory),
            (shared, Some("/memfd:a (deleted)"), Backing::SharedMemory),
            (shared, Some("/dev/zero"), Backing::SharedMemory),
            (private, Some("/dev/zero"), Backing::Anonymous),
            (private, Some("/dev/shm/a"), Backing::PrivateOfShared),
            (shared, Some("/data"), Backing::SharedFile),
            (private, Some("/lib/a.so"), Backing::PrivateFile),
        ] {
            assert_eq!(of(flags, path), (Some(backing), None), "{flags:#x} {path:?}");
        }
        for flags in [MAP_LOCKED, MAP_POPULATE] {
            let found = of(private | anonymous | flags, None);
            assert_eq!(found, (Some(Backing::Anonymous), Some(Populated::WhenMapped)));
        }
    }

    #[test]
    fn a_region_knows_when_its_pages_came_in_untouched() {
        let when = |before: &[Event], after: &[Event]| {
            let mut regions = Regions::new();
            let flags = 0x22;
            let path = None;
            let map = Event::Mmap {
                addr: 0,
                bytes: 8192,
                prot: 3,
                flags,
                fd: -1,
                offset: 0,
                path,
                file: None,
                result: addr(0) as i64,
            };
            for event in before.iter().chain([&map]).chain(after) {
                regions.apply(event);
            }
            regions.region_at(addr(1)).unwrap().populated
        };
        let all = |flags| Event::Mlockall { flags, result: 0 };
        let lock = |flags| Event::Mlock { addr: addr(1), bytes: 1, flags, result: 0 };
        let (mapped, locked) = (Some(Populated::WhenMapped), Some(Populated::WhenLocked));
        assert_eq!(when(&[], &[]), None);
        assert_eq!(when(&[all(MCL_FUTURE)], &[]), mapped);
        assert_eq!(when(&[all(MCL_FUTURE), Event::Munlockall { result: 0 }], &[]), None);
        assert_eq!(when(&[all(MCL_CURRENT)], &[]), None);
        assert_eq!(when(&[], &[all(MCL_CURRENT)]), locked);
        assert_eq!(when(&[], &[lock(0)]), locked);
        // Pages that are locked when they are touched do not come in before.
        assert_eq!(when(&[], &[lock(MLOCK_ONFAULT)]), None);
        assert_eq!(when(&[all(MCL_FUTURE | MCL_ONFAULT)], &[all(MCL_CURRENT | MCL_ONFAULT)]), None);
        assert_eq!(
            when(&[], &[Event::Mlock { addr: addr(1), bytes: 1, flags: 0, result: -12 }]),
            None
        );
    }

    #[test]
    fn a_mapping_that_moves_keeps_its_region() {
        let mut regions = Regions::new();
        regions.apply(&mmap(0, 2, 3, "/data".to_owned()));
        let id = regions.region_of(addr(0));
        regions.apply(&Event::Mremap {
            addr: addr(0),
            old_bytes: 8192,
            new_bytes: 16384,
            flags: 1,
            new_addr: 0,
            result: addr(10) as i64,
        });
        assert_eq!(regions.rights_at(addr(0)), None);
        assert_eq!(regions.region_of(addr(13)), id);
    }

    #[test]
    fn anonymous_neighbours_stay_apart_and_a_crowd_stays_bounded() {
        let mut regions = Regions::new();
        let map = |at: u64| Event::Mmap {
            addr: 0,
            bytes: 4096,
            prot: 3,
            flags: 0x22,
            fd: -1,
            offset: 0,
            path: None,
            file: None,
            result: at as i64,
        };
        regions.apply(&map(0x10_0000));
        regions.apply(&map(0x10_1000));
        let (low, high) = (regions.region_of(0x10_0000), regions.region_of(0x10_1000));
        assert_eq!((&*regions.get(low).name, regions.get(low).bytes), ("anonymous 1", 4096));
        assert_eq!((&*regions.get(high).name, regions.get(high).bytes), ("anonymous 2", 4096));
        for far in 0..10_000 {
            regions.apply(&map(0x4000_0000 + far * 8192));
        }
        assert_eq!(regions.all().len(), ANONYMOUS_MAX as usize + 1);
    }

    #[test]
    fn what_no_event_explains_is_inferred_by_the_block() {
        let mut regions = Regions::new();
        let low = regions.region_of(0x4000_1234);
        assert_eq!(regions.region_of(0x401f_ffff), low);
        assert_ne!(regions.region_of(0x4020_0000), low);
        assert!(regions.is_single(0x4000_0000, 0x401f_ffff));
        assert!(!regions.is_single(0x4000_0000, 0x4020_0000));
        let region = regions.get(low);
        assert!(region.inferred);
        assert_eq!((region.start, region.bytes), (0x4000_1000, 0x1f_f000));
        regions.region_of(u64::MAX);
    }

    #[test]
    fn far_too_many_blocks_are_inferred_by_the_gib() {
        let mut regions = Regions::new();
        for block in 0..BLOCKS_MAX as u64 {
            regions.region_of(block << 22);
        }
        assert_eq!(regions.all().len(), BLOCKS_MAX);
        let far = regions.region_of(1 << 40);
        assert_eq!(regions.region_of((1 << 40) + (1 << 30) - 1), far);
        assert_ne!(regions.region_of((1 << 40) + (1 << 30)), far);
        assert_eq!(regions.region_of(0), regions.all()[0].id);
    }

    #[test]
    fn clusters_end_where_more_than_4_mib_are_untouched() {
        const MIB: u64 = 1 << 20;
        for (start, bytes, next, expected) in [
            (0, 4096, 4096, true),
            (0, MIB, 5 * MIB, true),
            (0, MIB, 5 * MIB + 1, false),
            (MIB, 9 * MIB, 2 * MIB, true),
            (u64::MAX - 4095, 4096, u64::MAX - 4095, true),
        ] {
            assert_eq!(adjoin(start, bytes, next), expected, "{start:#x} {bytes} {next:#x}");
        }
        assert_eq!(joined_bytes(MIB, MIB, 4 * MIB, 4096), 3 * MIB + 4096);
        assert_eq!(joined_bytes(MIB, 9 * MIB, 2 * MIB, MIB), 9 * MIB);
    }

    #[test]
    fn ranges_that_wrap_change_nothing() {
        let mut regions = Regions::new();
        regions.apply(&Event::Munmap { addr: u64::MAX - 5, bytes: 100, result: 0 });
        regions.apply(&Event::Mprotect { addr: 0, bytes: u64::MAX, prot: 7, result: 0 });
        regions.apply(&Event::Brk { addr: 0, result: i64::MAX });
        regions.apply(&Event::Brk { addr: 0, result: 0 });
        assert!(regions.all().is_empty());
    }
}
