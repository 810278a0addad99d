//! The properties of the managers that `os.manager` can name. Code that builds a part of the machine
//! asks for a property here, and does not compare names of managers.

/// The manager that maps pages to the frames that are recorded in the trace.
pub const RECORDED: &str = "recorded";

/// The manager that uses reservations.
pub const RESERVING: &str = "freebsd";

/// The settings of the manager's reservations; `None` if it has none.
pub fn reservations(os: &super::Os) -> Option<super::Reservations> {
    (os.manager == RESERVING).then(|| os.reservations.clone().unwrap_or_default())
}

/// Managers with transparent huge pages: Linux, and managers derived from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Huge {
    /// Linux itself.
    Linux,
    /// Blocks that are mostly mapped become large pages.
    Ingens,
    /// Blocks that are used often become large pages.
    HawkEye,
    /// Contiguity-aware placement of pages.
    Ca,
    /// A daemon moves pages to make them contiguous.
    Ranger,
}

/// The manager, if it is one with transparent huge pages.
pub fn huge(os: &super::Os) -> Option<Huge> {
    match os.manager.as_str() {
        "linux" => Some(Huge::Linux),
        "ingens" => Some(Huge::Ingens),
        "hawkeye" => Some(Huge::HawkEye),
        "ca" => Some(Huge::Ca),
        "translation-ranger" => Some(Huge::Ranger),
        _ => None,
    }
}

/// The Linux settings of the manager, if it has any.
pub fn linux(os: &super::Os) -> Option<super::Linux> {
    huge(os).map(|_| os.linux.clone().unwrap_or_default())
}

/// log2 of the number of frames in the manager's largest free blocks. These have the size of the
/// kernel's largest blocks, or 1 GiB if pages of 1 GiB are used.
pub fn page_blocks(os: &super::Os) -> Option<u32> {
    linux(os).map(|knobs| if knobs.has_1g() { 18 } else { 10 })
}

/// log2 of the number of frames in the blocks in which the manager places regions; `None` if the
/// manager does not place regions.
pub fn places(os: &super::Os) -> Option<u32> {
    page_blocks(os).filter(|_| huge(os) == Some(Huge::Ca))
}

/// Whether the trace chooses the frames of pages, so that page tables need frames of their own.
pub fn keeps_tables_apart(os: &super::Os) -> bool {
    os.manager == RECORDED
}

/// The allocator of frames that the manager has, unless `memory.allocator` names another one.
pub fn allocator(os: &super::Os) -> &'static str {
    match os.manager.as_str() {
        "irix" => "size-lists",
        _ if page_blocks(os).is_some() => "page-blocks",
        _ => "buddy",
    }
}

/// The reason for which the manager cannot restrict pages to the frames that hashes of their
/// addresses allow; `None` if it can.
pub fn chooses_frames(os: &super::Os) -> Option<&'static str> {
    match (huge(os), os.manager.as_str()) {
        (Some(Huge::Ca), _) => Some("places regions itself"),
        (Some(Huge::Ranger), _) => Some(MOVES),
        _ if os.ranger.is_some() => Some(MOVES),
        (Some(Huge::Linux | Huge::Ingens | Huge::HawkEye), _) | (None, "base") => None,
        (None, RESERVING) => Some("keeps its free blocks for reservations"),
        (None, "irix") => Some("has free lists by page size, with blocks that may not be split"),
        (None, RECORDED) => Some("uses the frames of the trace"),
        (None, _) => Some("gives frames at the first touch, in the order of touches"),
    }
}

const MOVES: &str =
    "has a daemon that moves pages to frames other than those that hashes of their addresses allow";
