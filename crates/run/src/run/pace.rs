//! How far apart misses are, and so which way of running accesses is the fastest.
//!
//! ```text
//!   hits between misses, on average    many             few
//!   after a miss                       a span of hits   accesses one by one, or densely,
//!                                      at once          until so many hit in a row
//! ```
//!
//! To begin a span costs as much as a few hits one by one. After it the next victim costs more, since the policy
//! has not been told in which order the span used its slots. Where misses are dense, both together are more than a
//! span saves.

/// Where misses are dense, a span is begun after so many hits in a row.
const SPAN_MIN: u32 = 12;
/// So many hits in a row are a sign that a span may come, which finds only what a shortcut leads to.
pub(super) const APART_MAX: u32 = SPAN_MIN / 2;
/// Misses are sparse if there are so many hits between two of them on average: to run these one by one costs as
/// much as a span.
const SPARSE_MIN: u32 = 4;
/// The average is taken over about so many misses.
const AVERAGED: u32 = 8;

/// How far apart misses have been of late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Hits one by one since the last miss or span; `None` before the first access, and while spans are long.
    streak: Option<u32>,
    /// Hits since the last miss, [`SPAN_MIN`] at most: after so many a span is begun in any case.
    gap: u32,
    /// [`AVERAGED`] times the hits between two misses, on average.
    average: u32,
}

impl Pace {
    /// Whether so many hits lie between two misses that it pays to begin a span after each.
    #[inline]
    fn is_sparse(&self) -> bool {
        self.average >= AVERAGED * SPARSE_MIN
    }

    /// Hits in a row before a span is begun.
    #[inline]
    fn span_min(&self) -> u32 {
        if self.is_sparse() { 1 } else { SPAN_MIN }
    }

    /// Whether it is time for a span.
    #[inline]
    pub(super) fn wants_span(&self) -> bool {
        self.streak.is_none_or(|hits| hits >= self.span_min())
    }

    /// A span has ended after so many hits.
    #[inline]
    pub(super) fn had_span(&mut self, hits: usize) {
        let hits = hits.min(SPAN_MIN as usize) as u32;
        self.gap = (self.gap + hits).min(SPAN_MIN);
        self.streak = (hits < self.span_min()).then_some(0);
    }

    /// Whether accesses that miss come one after the other.
    #[inline]
    pub(super) fn is_dense(&self) -> bool {
        !self.is_sparse() && self.streak.is_some_and(|hits| hits < APART_MAX)
    }

    /// A lookup by itself hit.
    #[inline]
    pub(super) fn hit(&mut self) {
        self.gap = (self.gap + 1).min(SPAN_MIN);
        if let Some(hits) = &mut self.streak {
            *hits += 1;
        }
    }

    /// A lookup by itself missed.
    #[inline]
    pub(super) fn missed(&mut self) {
        self.average += self.gap;
        self.average -= self.average / AVERAGED;
        self.gap = 0;
        self.streak = self.streak.map(|_| 0);
    }

    /// Hits one by one since the last miss or span.
    #[inline]
    pub(super) fn hits(&self) -> u32 {
        self.streak.unwrap_or(0)
    }

    /// A dense stretch has ended after so many hits in a row.
    #[inline]
    pub(super) fn end_dense(&mut self, hits: u32) {
        (self.streak, self.gap) = (Some(hits), hits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After misses with so many hits between two of them, in turn: the hits by themselves before a span is begun.
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
        // Of many misses in a row the last is not followed by a span, however long the hits were before them.
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
