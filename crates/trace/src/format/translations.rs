//! The stream of translations: [`Event::Translation`], [`Event::Table`] and [`Event::Entry`], which would take ten
//! times as many bytes if stored as JSON.
//!
//! ```text
//!   events          a          b        c                  JSON, in their stream
//!   translations       t t  t     t          t  t          each: how many accesses, and how many of
//!                                                          those events, since the one before
//! ```
//!
//! Addresses are coded as distances: a page from the end of the pages before, a frame from the end
//! of the frames before, an entry of the page table from the entry of that level before.
//!
//! A record: varint accesses since the record before (or the chunk's first), varint events of the
//! chunk since there, zigzag varint distance of the thread, varint kind. The kind has, from its low
//! bit on: whether a snapshot recorded it and not a walk, whether there are several pages, whether
//! the frame, the rights and the entries are known, and from bit 5 on log2 of the page size minus 12.
//! Then follow, in units of 4 KiB, the zigzag distance of the address, the varint number of pages (if
//! several), the zigzag distance of the frame; a byte with the rights; the varint number of entries,
//! and their zigzag distances in bytes. Unknown fields are left out.
//!
//! Three sizes that no page has stand for other events. With 40, the page is a part of a page table: the low five
//! bits of the kind are its level, and the zigzag distance of its page number from the last such page follows. With
//! 41 for one that was found, and 42 for one that was stored, it is the value of a page-table entry: the zigzag
//! distance of the entry from the entry behind the last one, in units of 8 bytes, and the zigzag distance of the value
//! from the last value plus 4096. A chunk with such records has a flag of its own.

use super::wire::{Bytes, put_varint, unzigzag, zigzag};
use super::{Damage, EVENT_BYTES_FULL};
use crate::Event;
use crate::translation::{Seen, Translation};

/// The unit of addresses.
const UNIT_SHIFT: u32 = 12;
const SNAPSHOT: u64 = 1;
const SEVERAL: u64 = 2;
const FRAME: u64 = 4;
const RIGHTS: u64 = 8;
const ENTRIES: u64 = 16;
const SIZE_SHIFT: u32 = 5;
/// What stands in place of the size for a page of a page table, and for an entry that was found or stored.
const TABLE: u64 = 40;
const FOUND: u64 = 41;
const STORED: u64 = 42;
/// The distance that adjacent entries of adjacent frames have.
const VALUE_STEP: u64 = 4096;
/// log2 of the bytes of an entry.
const ENTRY_SHIFT: u32 = 3;
/// The highest level of a page of a page table.
const LEVEL_MAX: u8 = 5;

/// The most bytes of one record: its numbers with 10 bytes each.
const RECORD_BYTES_MAX: usize = 10 * (8 + Translation::ENTRIES_MAX) + 1;
/// The most bytes of a stream.
pub(super) const BYTES_MAX: usize = EVENT_BYTES_FULL + RECORD_BYTES_MAX;
/// The fewest bytes of one record: it has at least five numbers.
pub(super) const RECORD_BYTES_MIN: usize = 5;

/// The last values of each field, from which the next record is predicted.
#[derive(Clone, Debug, Default)]
struct Before {
    /// The number of accesses. The next field has the number of other events of the chunk.
    at: u32,
    events: u32,
    thread: u32,
    /// The ends of the pages and of the frames, in units.
    page: u64,
    frame: u64,
    entries: Vec<u64>,
    /// The number of the last page of a page table.
    table: u64,
    /// The entry behind the last one, in units, and the last value.
    entry: u64,
    value: u64,
}

impl Before {
    /// Updates the values from a record whose pages and frames have been checked.
    fn pass(&mut self, translation: &Translation) {
        let units = translation.bytes().unwrap_or_default() >> UNIT_SHIFT;
        self.page = (translation.addr >> UNIT_SHIFT).wrapping_add(units);
        if let Some(paddr) = translation.paddr {
            self.frame = (paddr >> UNIT_SHIFT).wrapping_add(units);
        }
        if !translation.entries.is_empty() {
            self.entries.clone_from(&translation.entries);
        }
    }
}

/// A stream that is being written.
#[derive(Debug, Default)]
pub(super) struct TranslationsEncoder {
    before: Before,
    pub(super) count: u32,
    /// Whether there are pages of page tables, or their entries.
    pub(super) has_tables: bool,
    pub(super) out: Vec<u8>,
}

/// Whether an event belongs into this stream.
pub(super) fn is_here(event: &Event) -> bool {
    matches!(event, Event::Translation(_) | Event::Table { .. } | Event::Entry { .. })
}

/// Refuses a page or an entry that no page table has. The error says which.
pub(super) fn check(event: &Event) -> Result<(), &'static str> {
    match *event {
        Event::Translation(ref translation) => translation.check(),
        Event::Table { paddr, level } if paddr & 0xfff != 0 || level > LEVEL_MAX => Err(
            "a page-table page whose address is not a multiple of 4096, or whose level is above 5",
        ),
        Event::Entry { paddr, .. } if paddr & 7 != 0 => {
            Err("a page-table entry at an address that is not a multiple of 8")
        }
        _ => Ok(()),
    }
}

impl TranslationsEncoder {
    /// Appends an event of `thread` after `at` accesses and `events` other events of the chunk.
    pub(super) fn push(&mut self, at: u32, events: u32, thread: u32, event: &Event) {
        let (before, out) = (&mut self.before, &mut self.out);
        put_varint(out, u64::from(at - before.at));
        put_varint(out, u64::from(events - before.events));
        put_varint(out, zigzag(i64::from(thread) - i64::from(before.thread)));
        (before.at, before.events, before.thread) = (at, events, thread);
        self.count += 1;
        match *event {
            Event::Table { paddr, level } => {
                self.has_tables = true;
                put_varint(out, TABLE << SIZE_SHIFT | u64::from(level));
                let page = paddr >> UNIT_SHIFT;
                put_varint(out, zigzag(page.wrapping_sub(before.table) as i64));
                before.table = page;
            }
            Event::Entry { paddr, value, stored } => {
                self.has_tables = true;
                put_varint(out, if stored { STORED } else { FOUND } << SIZE_SHIFT);
                let entry = paddr >> ENTRY_SHIFT;
                put_varint(out, zigzag(entry.wrapping_sub(before.entry) as i64));
                let foreseen = before.value.wrapping_add(VALUE_STEP);
                put_varint(out, zigzag(value.wrapping_sub(foreseen) as i64));
                (before.entry, before.value) = (entry + 1, value);
            }
            Event::Translation(ref translation) => self.translation(translation),
            _ => {}
        }
    }

    fn translation(&mut self, translation: &Translation) {
        let (before, out) = (&mut self.before, &mut self.out);
        let Translation { seen, addr, page_bytes, pages, paddr, rights, ref entries } =
            *translation;
        let flag = |is_set: bool, flag: u64| if is_set { flag } else { 0 };
        let kind = flag(seen == Seen::Snapshot, SNAPSHOT)
            | flag(pages > 1, SEVERAL)
            | flag(paddr.is_some(), FRAME)
            | flag(rights.is_some(), RIGHTS)
            | flag(!entries.is_empty(), ENTRIES);
        let size = page_bytes.trailing_zeros() - UNIT_SHIFT;
        put_varint(out, u64::from(size) << SIZE_SHIFT | kind);
        put_varint(out, zigzag((addr >> UNIT_SHIFT).wrapping_sub(before.page) as i64));
        if pages > 1 {
            put_varint(out, pages);
        }
        if let Some(paddr) = paddr {
            put_varint(out, zigzag((paddr >> UNIT_SHIFT).wrapping_sub(before.frame) as i64));
        }
        out.extend(rights);
        if !entries.is_empty() {
            put_varint(out, entries.len() as u64);
            for (level, entry) in entries.iter().enumerate() {
                let last = before.entries.get(level).copied().unwrap_or_default();
                put_varint(out, zigzag(entry.wrapping_sub(last) as i64));
            }
        }
        before.pass(translation);
    }

    /// Whether the chunk must be closed.
    pub(super) fn is_full(&self) -> bool {
        self.out.len() >= EVENT_BYTES_FULL
    }

    /// Begins another chunk.
    pub(super) fn clear(&mut self) {
        (self.before, self.count, self.has_tables) = (Before::default(), 0, false);
        self.out.clear();
    }
}

/// An event of this stream at its place in a chunk.
#[derive(Debug)]
pub(super) struct PlacedTranslation {
    /// The number of accesses before the translation.
    pub(super) at: u32,
    /// The number of other events before the translation.
    pub(super) events: u32,
    pub(super) thread: u32,
    pub(super) event: Event,
}

/// The `count` events of a chunk with this number of accesses and other events. `has_tables` says whether there may be
/// pages of page tables, and their entries.
pub(super) fn take_all(
    stream: &[u8],
    count: u32,
    has_tables: bool,
    accesses: u32,
    events: u32,
) -> Result<Vec<PlacedTranslation>, Damage> {
    let mut bytes = Bytes(stream);
    let mut before = Before::default();
    let mut all = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let left = u64::from(accesses - before.at);
        before.at += bytes.varint_up_to(left, "number of accesses between translations")? as u32;
        let left = u64::from(events - before.events);
        before.events += bytes.varint_up_to(left, "number of events between translations")? as u32;
        let thread = i64::from(before.thread).checked_add(unzigzag(bytes.varint()?));
        let thread = thread.and_then(|thread| u32::try_from(thread).ok());
        before.thread = thread.ok_or_else(|| Damage::new("a translation has no thread"))?;
        let event = take(&mut bytes, &mut before, has_tables)?;
        let Before { at, events, thread, .. } = before;
        all.push(PlacedTranslation { at, events, thread, event });
    }
    bytes.end("translations")?;
    Ok(all)
}

/// Decodes the event in a record.
fn take(bytes: &mut Bytes<'_>, before: &mut Before, has_tables: bool) -> Result<Event, Damage> {
    let sizes = match has_tables {
        true => STORED + 1,
        false => u64::from(Translation::SHIFTS.end() - UNIT_SHIFT) + 1,
    };
    let kind = bytes.varint_up_to((sizes << SIZE_SHIFT) - 1, "kind of a translation")?;
    let event = match kind >> SIZE_SHIFT {
        TABLE => {
            let page = before.table.wrapping_add(unzigzag(bytes.varint()?) as u64);
            before.table = page;
            Event::Table { paddr: shifted(page, UNIT_SHIFT)?, level: (kind & 31) as u8 }
        }
        size @ (FOUND | STORED) => {
            let entry = before.entry.wrapping_add(unzigzag(bytes.varint()?) as u64);
            let foreseen = before.value.wrapping_add(VALUE_STEP);
            let value = foreseen.wrapping_add(unzigzag(bytes.varint()?) as u64);
            let paddr = shifted(entry, ENTRY_SHIFT)?;
            (before.entry, before.value) = (entry + 1, value);
            Event::Entry { paddr, value, stored: size == STORED }
        }
        _ => {
            let translation = take_translation(bytes, before, kind)?;
            before.pass(&translation);
            Event::Translation(Box::new(translation))
        }
    };
    let wrong = |what| Damage(format!("a translation has {what}"));
    check(&event).map(|()| event).map_err(wrong)
}

/// Decodes what follows the kind of a translation.
fn take_translation(
    bytes: &mut Bytes<'_>,
    before: &Before,
    kind: u64,
) -> Result<Translation, Damage> {
    let seen = if kind & SNAPSHOT == 0 { Seen::Walk } else { Seen::Snapshot };
    let page_bytes = 1 << (UNIT_SHIFT + (kind >> SIZE_SHIFT) as u32);
    let addr = take_address(bytes, before.page)?;
    let pages = if kind & SEVERAL == 0 { 1 } else { bytes.varint()? };
    let paddr = if kind & FRAME == 0 { None } else { Some(take_address(bytes, before.frame)?) };
    let rights = if kind & RIGHTS == 0 { None } else { Some(bytes.take(1)?[0]) };
    let mut entries = Vec::new();
    if kind & ENTRIES != 0 {
        let max = Translation::ENTRIES_MAX as u64;
        let count = bytes.varint_up_to(max, "number of entries of a walk")?;
        for level in 0..count as usize {
            let last = before.entries.get(level).copied().unwrap_or_default();
            entries.push(last.wrapping_add(unzigzag(bytes.varint()?) as u64));
        }
    }
    Ok(Translation { seen, addr, page_bytes, pages, paddr, rights, entries })
}

/// The address at the coded distance from `before`, in units.
fn take_address(bytes: &mut Bytes<'_>, before: u64) -> Result<u64, Damage> {
    shifted(before.wrapping_add(unzigzag(bytes.varint()?) as u64), UNIT_SHIFT)
}

/// The address of this number of units.
fn shifted(unit: u64, shift: u32) -> Result<u64, Damage> {
    match unit.leading_zeros() >= shift {
        true => Ok(unit << shift),
        false => Err(Damage::new("the address of a translation has more than 64 bits")),
    }
}
