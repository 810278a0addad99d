//! Decodes entries byte by byte as the manuals describe them, without using code of the crate.

use addr::{Memory, PhysAddr, Rights, VirtRange};

use crate::common::{Table, World, physical::Physical};

/// The translation of an address that hardware derives from the entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Decoded {
    /// The physical address.
    pub(crate) phys: u64,
    /// log2 of the page's bytes.
    pub(crate) shift: u32,
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) execute: bool,
    pub(crate) user: bool,
    pub(crate) global: bool,
    pub(crate) accessed: bool,
    pub(crate) dirty: bool,
    /// The memory type, under the name that the architecture's register or field gives it.
    pub(crate) memory: &'static str,
    pub(crate) key: u8,
}

fn bits(value: u64, high: u32, low: u32) -> u64 {
    value << (63 - high) >> (63 - high + low)
}

fn is(value: u64, bit: u32) -> bool {
    bits(value, bit, bit) == 1
}

/// Whether all bits from `low` up are equal.
fn is_extended(va: u64, low: u32) -> bool {
    let above = bits(va, 63, low);
    above == 0 || above == bits(u64::MAX, 63, low)
}

/// Reads an entry of eight bytes, the lowest byte first.
fn entry(memory: &Physical, at: u64) -> u64 {
    (0..8).fold(0, |entry, n| entry | u64::from(memory.read_u8(PhysAddr::new(at + n))) << (8 * n))
}

/// Decodes by Intel SDM vol. 3A, tables 4-15 to 4-20, with the memory types of the PAT that Linux
/// loads.
pub(crate) fn x86_64(memory: &Physical, root: u64, va: u64, levels: u8) -> Option<Decoded> {
    if !is_extended(va, 11 + 9 * u32::from(levels)) {
        return None;
    }
    let mut table = root;
    let (mut write, mut user, mut execute) = (true, true, true);
    for level in (0..u32::from(levels)).rev() {
        let low = 12 + 9 * level;
        let found = entry(memory, table + 8 * bits(va, low + 8, low));
        if !is(found, 0) {
            return None;
        }
        write &= is(found, 1);
        user &= is(found, 2);
        execute &= !is(found, 63);
        if level > 0 && !(level < 3 && is(found, 7)) {
            assert_eq!(bits(found, 11, 6) & 0b11, 0, "bits 6 and 7 of a table are 0");
            table = bits(found, 51, 12) << 12;
            continue;
        }
        let pat = if level > 0 { is(found, 12) } else { is(found, 7) };
        let index =
            usize::from(is(found, 3)) + 2 * usize::from(is(found, 4)) + 4 * usize::from(pat);
        assert_eq!(bits(found, 58, 52), 0, "no bits but the key's");
        let frame = bits(found, 51, low) << low;
        assert!(level == 0 || bits(found, low - 1, 13) == 0, "reserved bits of a frame are 0");
        return Some(Decoded {
            phys: frame | bits(va, low - 1, 0),
            shift: low,
            read: true,
            write,
            execute,
            user,
            global: is(found, 8),
            accessed: is(found, 5),
            dirty: is(found, 6),
            memory: ["WB", "WC", "UC-", "UC", "WB", "WP", "UC-", "WT"][index],
            key: bits(found, 62, 59) as u8,
        });
    }
    None
}

/// Decodes by the Privileged Architecture, "Virtual Address Translation Process", with Svnapot and
/// Svpbmt.
pub(crate) fn riscv(memory: &Physical, root: u64, va: u64, levels: u8) -> Option<Decoded> {
    if !is_extended(va, 11 + 9 * u32::from(levels)) {
        return None;
    }
    let mut table = root;
    for level in (0..u32::from(levels)).rev() {
        let low = 12 + 9 * level;
        let pte = entry(memory, table + 8 * bits(va, low + 8, low));
        let [valid, read, write, execute] = [0, 1, 2, 3].map(|bit| is(pte, bit));
        if !valid {
            return None;
        }
        assert!(read || !write, "a reserved combination");
        assert_eq!(bits(pte, 60, 54), 0, "reserved bits");
        let ppn = bits(pte, 53, 10);
        if !read && !execute {
            assert!(level > 0, "no table below level 0");
            assert_eq!(bits(pte, 63, 61), 0, "N and PBMT of a table");
            assert_eq!(bits(pte, 7, 4), 0, "D, A, G and U of a table");
            table = ppn << 12;
            continue;
        }
        let napot = is(pte, 63);
        if napot {
            assert_eq!((level, ppn & 0xf), (0, 0b1000), "64K is the only size of Svnapot");
        }
        assert_eq!(ppn & ((1 << (9 * level)) - 1), 0, "a misaligned superpage");
        let shift = if napot { 16 } else { low };
        return Some(Decoded {
            phys: ppn << 12 >> shift << shift | bits(va, shift - 1, 0),
            shift,
            read,
            write,
            execute,
            user: is(pte, 4),
            global: is(pte, 5),
            accessed: is(pte, 6),
            dirty: is(pte, 7),
            memory: ["PMA", "NC", "IO", "reserved"][bits(pte, 62, 61) as usize],
            key: 0,
        });
    }
    None
}

/// Decodes by DDI 0487 section D8.3, with hardware management of AF and the dirty state, and with
/// the crate's value of MAIR_EL1.
pub(crate) fn aarch64(
    memory: &Physical,
    root: u64,
    va: u64,
    (granule, size): (u32, u32),
) -> Option<Decoded> {
    if !is_extended(va, size) {
        return None;
    }
    let index_bits = granule - 3;
    let lookups = (size - granule).div_ceil(index_bits);
    let top = size - granule - index_bits * (lookups - 1);
    // The table for TTBR1_EL1 follows the table for TTBR0_EL1.
    let half = (8u64 << top).max(64);
    let mut table = if is(va, 63) { root + half } else { root };
    let lpa2 = size == 52 && granule < 16;
    let address = |descriptor: u64, low: u32| match (size, lpa2) {
        (48, _) => bits(descriptor, 47, low) << low,
        (_, true) => bits(descriptor, 49, low) << low | bits(descriptor, 9, 8) << 50,
        (_, false) => bits(descriptor, 47, low) << low | bits(descriptor, 15, 12) << 48,
    };
    for level in (0..lookups).rev() {
        let low = granule + index_bits * level;
        let high = if level == lookups - 1 { size - 1 } else { low + index_bits - 1 };
        let descriptor = entry(memory, table + 8 * bits(va, high, low));
        let kind = bits(descriptor, 1, 0);
        if kind & 1 == 0 {
            return None;
        }
        if level > 0 && kind == 3 {
            assert_eq!(bits(descriptor, 63, 59), 0, "no hierarchical attributes");
            table = address(descriptor, granule);
            continue;
        }
        assert_eq!(kind, if level == 0 { 3 } else { 1 }, "a reserved descriptor");
        assert_eq!(bits(descriptor, 63, 59), 0);
        assert!(lpa2 || bits(descriptor, 9, 8) == 3, "inner shareable");
        let run = match (is(descriptor, 52), granule, level) {
            (false, ..) => 0,
            (true, 12, _) => 4,
            (true, 14, 0) => 7,
            (true, ..) => 5,
        };
        let frame = address(descriptor, low);
        let user = is(descriptor, 6);
        let (read_only, dbm) = (is(descriptor, 7), is(descriptor, 51));
        return Some(Decoded {
            phys: frame >> (low + run) << (low + run) | bits(va, low + run - 1, 0),
            shift: low + run,
            read: true,
            write: !read_only || dbm,
            execute: !is(descriptor, if user { 54 } else { 53 }),
            user,
            global: !is(descriptor, 11),
            accessed: is(descriptor, 10),
            dirty: dbm && !read_only || is(descriptor, 55),
            memory: ["WB", "NC", "nGnRnE", "nGnRE"][bits(descriptor, 4, 2) as usize],
            key: 0,
        });
    }
    None
}

/// Checks that the decoded bytes agree with the model for every page.
pub(crate) fn check(world: &World<dyn Table>, decode: impl Fn(u64, u64) -> Option<Decoded>) {
    for (space, model) in &world.spaces {
        let mut past: Option<addr::VirtAddr> = None;
        for mapping in model.mappings() {
            let page = mapping.translation.page;
            let range = VirtRange::of_page(page);
            if let Some(addr) = past.filter(|addr| *addr < page.start()) {
                assert_eq!(decode(space.root().get(), addr.get()), None, "nothing is at {addr}");
            }
            past = range.last().checked_add(1);
            let rights = mapping.translation.rights;
            let is_present = !Rights::USER.contains(rights);
            let (mut accessed, mut dirty) = (false, false);
            // The usage of a page with several entries combines the usage of all its entries.
            let step = (page.size().bytes() / 128).max(4096);
            for into in (0..page.size().bytes()).step_by(step as usize) {
                let addr = page.start().wrapping_add(into + 8);
                let found = decode(space.root().get(), addr.get());
                assert_eq!(found.is_some(), is_present, "{addr}: {mapping:?}");
                let Some(found) = found else { break };
                let expected = Decoded {
                    phys: mapping.translation.apply(addr).get(),
                    shift: page.size().shift(),
                    read: rights.contains(Rights::READ),
                    write: rights.contains(Rights::WRITE),
                    execute: rights.contains(Rights::EXECUTE),
                    user: rights.contains(Rights::USER),
                    global: mapping.translation.global,
                    key: mapping.translation.attributes.key,
                    ..found
                };
                assert_eq!(found, expected, "{addr}: {mapping:?}");
                let names: &[&str] = match mapping.translation.attributes.memory {
                    addr::MemoryType::WriteBack => &["WB", "PMA"],
                    addr::MemoryType::WriteCombining => &["WC", "NC"],
                    addr::MemoryType::Uncached => &["UC-", "nGnRnE"],
                    addr::MemoryType::Device => &["UC", "IO", "nGnRE"],
                };
                assert!(names.contains(&found.memory), "{addr}: {mapping:?} is {}", found.memory);
                (accessed, dirty) = (accessed | found.accessed, dirty | found.dirty);
            }
            if is_present && world.walks_mark {
                let usage = (mapping.usage.referenced, mapping.usage.dirty);
                assert_eq!((accessed, dirty), usage, "{mapping:?}");
            }
        }
    }
}
