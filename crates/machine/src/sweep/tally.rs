//! Counts of members of which each event concerns some: a word at a time.
//!
//! ```text
//!   bit 2 of each count   1 0 0 1        word of members     1 0 1 1
//!   bit 1                 0 0 1 0        added to bit 0:     carries where both are 1,
//!   bit 0                 1 1 0 1        and so on upwards: as many counts as the word has bits
//! ```

/// Counts below 256 in planes of bits; they are moved to `sums` before they overflow.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    planes: [u64; u8::BITS as usize],
    added: u8,
    sums: [u64; u64::BITS as usize],
}

impl Tally {
    pub(super) fn new() -> Tally {
        Tally { planes: [0; 8], added: 0, sums: [0; 64] }
    }

    /// Counts one for each of `members`.
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
    pub(super) fn counts(mut self) -> [u64; u64::BITS as usize] {
        self.spill();
        self.sums
    }

    #[cold]
    fn spill(&mut self) {
        for (member, sum) in self.sums.iter_mut().enumerate() {
            let bits = self.planes.iter().enumerate();
            *sum += bits.map(|(weight, plane)| (plane >> member & 1) << weight).sum::<u64>();
        }
        (self.planes, self.added) = ([0; 8], 0);
    }
}

#[cfg(test)]
mod tests {
    use super::Tally;

    #[test]
    fn every_member_is_counted_as_often_as_it_is_named() {
        let mut tally = Tally::new();
        let mut expected = [0; 64];
        let mut word = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..3000 {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            // The first is named always, the last never.
            let members = (word | 1) & (u64::MAX >> 1);
            tally.add(members);
            for (member, count) in expected.iter_mut().enumerate() {
                *count += members >> member & 1;
            }
        }
        assert_eq!(tally.counts(), expected);
    }
}
