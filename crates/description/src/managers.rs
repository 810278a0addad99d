//! The managers that `os.manager` can name, by what a manager has: whoever builds a part of the machine
//! asks here, and no part asks for a manager by its name.

/// The manager that maps pages where the trace has them.
pub const RECORDED: &str = "recorded";

/// The manager that has reservations.
pub const RESERVING: &str = "freebsd";

/// The reservations that the manager has, if it has some.
pub fn reservations(os: &super::Os) -> Option<super::Reservations> {
    (os.manager == RESERVING).then(|| os.reservations.clone().unwrap_or_default())
}

/// Managers with transparent huge pages: Linux, and what is made of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Huge {
    /// As the kernel is.
    Linux,
    /// Large pages of blocks that fill.
    Ingens,
    /// Large pages of blocks that are used.
    HawkEye,
    /// Contiguity-aware placement.
    Ca,
    /// A daemon that moves pages side by side.
    Ranger,
}

/// The manager with transparent huge pages, if it is one.
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

/// Its knobs.
pub fn linux(os: &super::Os) -> Option<super::Linux> {
    huge(os).map(|_| os.linux.clone().unwrap_or_default())
}

/// log2 of the frames of its largest free blocks: the kernel's, or pages of 1G where these are allowed.
pub fn page_blocks(os: &super::Os) -> Option<u32> {
    linux(os).map(|knobs| if knobs.allows_1g() { 18 } else { 10 })
}

/// log2 of the frames of the blocks that its regions are placed in, if they are.
pub fn places(os: &super::Os) -> Option<u32> {
    page_blocks(os).filter(|_| huge(os) == Some(Huge::Ca))
}

/// Whether the frames of pages are a trace's to choose, and others are left for page tables.
pub fn keeps_tables_apart(os: &super::Os) -> bool {
    os.manager == RECORDED
}
