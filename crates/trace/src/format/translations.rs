//! The stream of translations: [`Event::Translation`], which would take ten times as many bytes if stored as JSON.
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

use super::wire::{Bytes, put_varint, unzigzag, zigzag};
use super::{Damage, EVENT_BYTES_FULL};
use crate::translation::{Seen, Translation};

/// The unit of addresses.
const UNIT_SHIFT: u32 = 12;
const SNAPSHOT: u64 = 1;
const SEVERAL: u64 = 2;
const FRAME: u64 = 4;
const RIGHTS: u64 = 8;
const ENTRIES: u64 = 16;
const SIZE_SHIFT: u32 = 5;

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
    pub(super) out: Vec<u8>,
}

impl TranslationsEncoder {
    /// Appends a translation of `thread` after `at` accesses and `events` other events of the chunk.
    pub(super) fn push(&mut self, at: u32, events: u32, thread: u32, translation: &Translation) {
        let (before, out) = (&mut self.before, &mut self.out);
        put_varint(out, u64::from(at - before.at));
        put_varint(out, u64::from(events - before.events));
        put_varint(out, zigzag(i64::from(thread) - i64::from(before.thread)));
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
        (before.at, before.events, before.thread) = (at, events, thread);
        before.pass(translation);
        self.count += 1;
    }

    /// Whether the chunk must be closed.
    pub(super) fn is_full(&self) -> bool {
        self.out.len() >= EVENT_BYTES_FULL
    }

    /// Begins another chunk.
    pub(super) fn clear(&mut self) {
        (self.before, self.count) = (Before::default(), 0);
        self.out.clear();
    }
}

/// A translation at its place in a chunk.
#[derive(Debug)]
pub(super) struct PlacedTranslation {
    /// The number of accesses before the translation.
    pub(super) at: u32,
    /// The number of other events before the translation.
    pub(super) events: u32,
    pub(super) thread: u32,
    pub(super) translation: Translation,
}

/// The `count` translations of a chunk with this number of accesses and other events.
pub(super) fn take_all(
    stream: &[u8],
    count: u32,
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
        let translation = take(&mut bytes, &before)?;
        before.pass(&translation);
        let Before { at, events, thread, .. } = before;
        all.push(PlacedTranslation { at, events, thread, translation });
    }
    bytes.end("translations")?;
    Ok(all)
}

/// Decodes the translation in a record.
fn take(bytes: &mut Bytes<'_>, before: &Before) -> Result<Translation, Damage> {
    let sizes = u64::from(Translation::SHIFTS.end() - UNIT_SHIFT) + 1;
    let kind = bytes.varint_up_to((sizes << SIZE_SHIFT) - 1, "kind of a translation")?;
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
    let translation = Translation { seen, addr, page_bytes, pages, paddr, rights, entries };
    let wrong = |what| Damage(format!("a translation has {what}"));
    translation.check().map(|()| translation).map_err(wrong)
}

/// The address at the coded distance from `before`, in units.
fn take_address(bytes: &mut Bytes<'_>, before: u64) -> Result<u64, Damage> {
    let unit = before.wrapping_add(unzigzag(bytes.varint()?) as u64);
    match unit.leading_zeros() >= UNIT_SHIFT {
        true => Ok(unit << UNIT_SHIFT),
        false => Err(Damage::new("the address of a translation has more than 64 bits")),
    }
}
