//! Counters of all members of a family. Operations on words increment the counters of many members
//! at once.
//!
//! ```text
//!   bit 2 of each count   1 0 0 1        word of members     1 0 1 1
//!   bit 1                 0 0 1 0        added to bit 0:     carries where both are 1,
//!   bit 0                 1 1 0 1        and so on upwards: as many counts as the word has bits
//! ```

/// The lower 8 bits of each counter, as planes of bits. They are added to `sums` before they
/// overflow; for a trace with many regions, few counters overflow.
#[derive(Clone, Debug)]
pub(super) struct MemberCounts {
    planes: [u64; u8::BITS as usize],
    added: u8,
    sums: Option<Box<Counts>>,
}

/// A count for each member.
pub(super) type Counts = [u64; u64::BITS as usize];

impl MemberCounts {
    pub(super) fn new() -> MemberCounts {
        MemberCounts { planes: [0; 8], added: 0, sums: None }
    }

    /// Adds one to the counter of each of `members`.
    #[inline]
    pub(super) fn add(&mut self, members: u64) {
        let mut carry = members;
        for plane in &mut self.planes {
            let sum = *plane ^ carry;
            carry &= *plane;
            *plane = sum;
            if carry == 0 {
                break;
            }
        }
        self.added += 1;
        if self.added == u8::MAX {
            self.spill();
        }
    }

    /// The counts by member.
    pub(super) fn counts(self) -> Counts {
        let mut counts = self.sums.map_or([0; 64], |sums| *sums);
        add_planes(&self.planes, &mut counts);
        counts
    }

    #[cold]
    fn spill(&mut self) {
        let sums = self.sums.get_or_insert_with(|| Box::new([0; 64]));
        add_planes(&self.planes, sums);
        (self.planes, self.added) = ([0; 8], 0);
    }
}

fn add_planes(planes: &[u64], counts: &mut Counts) {
    for (member, count) in counts.iter_mut().enumerate() {
        let bits = planes.iter().enumerate();
        *count += bits.map(|(weight, plane)| (plane >> member & 1) << weight).sum::<u64>();
    }
}

#[cfg(test)]
mod tests {
    use super::MemberCounts;

    #[test]
    fn every_member_is_counted_as_often_as_it_is_named() {
        let mut counts = MemberCounts::new();
        let mut expected = [0; 64];
        let mut word = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..3000 {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            // The first is named always, the last never.
            let members = (word | 1) & (u64::MAX >> 1);
            counts.add(members);
            for (member, count) in expected.iter_mut().enumerate() {
                *count += members >> member & 1;
            }
        }
        assert_eq!(counts.counts(), expected);
    }
}
