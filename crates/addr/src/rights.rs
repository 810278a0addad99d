use core::{fmt, ops::BitOr};

use crate::Kind;

/// What a translation allows: reading, writing, executing, and access from user mode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Rights(u8);

impl Rights {
    /// No access.
    pub const NONE: Rights = Rights(0);
    /// Loads.
    pub const READ: Rights = Rights(1);
    /// Stores.
    pub const WRITE: Rights = Rights(2);
    /// Fetches.
    pub const EXECUTE: Rights = Rights(4);
    /// Access from user mode as well as from the kernel.
    pub const USER: Rights = Rights(8);
    /// Every access, from user mode as well.
    pub const ALL: Rights = Rights(15);

    /// The rights whose bits are set in `bits`; unknown bits are dropped.
    #[inline]
    pub const fn from_bits(bits: u8) -> Rights {
        Rights(bits & Rights::ALL.0)
    }

    /// The bits: read 1, write 2, execute 4, user 8.
    #[inline]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// These rights without the right to store.
    #[inline]
    pub const fn without_write(self) -> Rights {
        Rights(self.0 & !Rights::WRITE.0)
    }

    /// Whether these rights include all of `other`.
    #[inline]
    pub const fn contains(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether an access of `kind` is allowed.
    #[inline]
    pub const fn allows(self, kind: Kind) -> bool {
        self.contains(match kind {
            Kind::Fetch => Rights::EXECUTE,
            Kind::Load => Rights::READ,
            Kind::Store => Rights::WRITE,
        })
    }
}

impl BitOr for Rights {
    type Output = Rights;

    #[inline]
    fn bitor(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (bit, letter) in [(1, 'r'), (2, 'w'), (4, 'x')] {
            write!(f, "{}", if self.0 & bit != 0 { letter } else { '-' })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}{}", if self.contains(Rights::USER) { "u" } else { "-" })
    }
}
