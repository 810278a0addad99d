//! Measures the distances between misses, and chooses the fastest way of running accesses.
//!
//! ```text
//!   hits between misses, on average    many             few
//!   after a miss                       a span of hits   accesses one by one, or densely,
//!                                      at once          until so many hit in a row
//! ```
//!
//! Beginning a span takes as long as a few single hits. After the span, choosing the next entry to
//! evict takes longer, since the policy does not know the order in which the span used the entries.
//! If misses are dense, these two costs exceed the time that a span saves.

/// If misses are dense, a span is begun after this many hits in a row.
const SPAN_MIN: u32 = 12;
/// After this many hits in a row, a span is likely to begin soon. Shortcuts to the entries are
/// therefore made, as a span finds only entries that have a shortcut.
pub(super) const APART_MAX: u32 = SPAN_MIN / 2;
/// Misses are sparse if there are on average at least this many hits between two misses. With this
/// number, running the hits one by one takes as long as a span.
const SPARSE_MIN: u32 = 4;
/// The average is taken over about this many misses.
const AVERAGED: u32 = 8;

/// The recent distances between misses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Hits run one by one since the last miss or span; `None` before the first access, and while spans are
    /// long.
    streak: Option<u32>,
    /// Hits since the last miss, at most [`SPAN_MIN`]. At [`SPAN_MIN`] a span is begun in any case.
    gap: u32,
    /// [`AVERAGED`] times the average number of hits between two misses.
    average: u32,
}

impl Pace {
    /// Whether there are so many hits between two misses that a span after each miss saves time.
    #[inline]
    fn is_sparse(&self) -> bool {
        self.average >= AVERAGED * SPARSE_MIN
    }

    /// The number of hits in a row before a span is begun.
    #[inline]
    fn span_min(&self) -> u32 {
        if self.is_sparse() { 1 } else { SPAN_MIN }
    }

    /// Whether a span should begin now.
    #[inline]
    pub(super) fn wants_span(&self) -> bool {
        self.streak.is_none_or(|hits| hits >= self.span_min())
    }

    /// Records a span of `hits` hits.
    #[inline]
    pub(super) fn had_span(&mut self, hits: usize) {
        let hits = hits.min(SPAN_MIN as usize) as u32;
        self.gap = (self.gap + hits).min(SPAN_MIN);
        self.streak = (hits < self.span_min()).then_some(0);
    }

    /// Whether misses follow each other closely.
    #[inline]
    pub(super) fn is_dense(&self) -> bool {
        !self.is_sparse() && self.streak.is_some_and(|hits| hits < APART_MAX)
    }

    /// Records a single lookup that hit.
    #[inline]
    pub(super) fn hit(&mut self) {
        self.gap = (self.gap + 1).min(SPAN_MIN);
        if let Some(hits) = &mut self.streak {
            *hits += 1;
        }
    }

    /// Records a single lookup that missed.
    #[inline]
    pub(super) fn missed(&mut self) {
        self.average += self.gap;
        self.average -= self.average / AVERAGED;
        self.gap = 0;
        self.streak = self.streak.map(|_| 0);
    }

    /// Hits run one by one since the last miss or span.
    #[inline]
    pub(super) fn hits(&self) -> u32 {
        self.streak.unwrap_or(0)
    }

    /// Records that a dense interval has ended after `hits` hits in a row.
    #[inline]
    pub(super) fn end_dense(&mut self, hits: u32) {
        (self.streak, self.gap) = (Some(hits), hits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of single hits before a span is begun, after misses with these numbers of hits between
    /// them.
    fn hits_before_a_span(gaps: &[u32]) -> u32 {
        let mut pace = Pace::default();
        pace.had_span(0);
        for &gap in gaps.iter().cycle().take(64) {
            (0..gap).for_each(|_| pace.hit());
            pace.missed();
        }
        let mut hits = 0;
        while !pace.wants_span() {
            pace.hit();
            hits += 1;
        }
        hits
    }

    #[test]
    fn spans_begin_at_once_where_most_misses_are_apart() {
        assert_eq!(hits_before_a_span(&[100]), 1);
        assert_eq!(hits_before_a_span(&[SPARSE_MIN + 1]), 1);
        assert_eq!(hits_before_a_span(&[0, 20]), 1);
        assert_eq!(hits_before_a_span(&[0]), SPAN_MIN);
        assert_eq!(hits_before_a_span(&[SPARSE_MIN - 1]), SPAN_MIN);
        // After many misses in a row, the last miss is not followed by a span, however many hits
        // there were before these misses.
        assert_eq!(hits_before_a_span(&[1_000_000, 0, 0, 0, 0, 0, 0, 0]), SPAN_MIN);
    }

    #[test]
    fn a_span_without_hits_is_not_begun_again_at_once() {
        let mut pace = Pace::default();
        assert!(pace.wants_span(), "the first accesses are a span");
        pace.had_span(SPAN_MIN as usize);
        assert!(pace.wants_span(), "the span goes on after what it did not find");
        pace.had_span(SPAN_MIN as usize - 1);
        assert!(!pace.wants_span() && pace.is_dense());
        pace.end_dense(APART_MAX);
        assert!(!pace.wants_span() && !pace.is_dense());
        (APART_MAX..SPAN_MIN).for_each(|_| pace.hit());
        assert!(pace.wants_span());
    }
}
