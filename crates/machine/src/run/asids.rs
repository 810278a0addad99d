use addr::Asid;

/// Which space has which ASID.
pub(super) struct Asids {
    owners: Vec<Option<u32>>,
}

/// How a space came by its ASID.
pub(super) enum Taken {
    /// It had it before.
    Own,
    /// Another space had it, or nobody: whatever bears it is stale.
    FromOther,
    /// The hardware has none.
    NoAsids,
}

impl Asids {
    pub(super) fn new(bits: u8) -> Asids {
        let mut owners = vec![None; if bits == 0 { 0 } else { 1 << bits.min(16) }];
        if let Some(first) = owners.first_mut() {
            *first = Some(0);
        }
        Asids { owners }
    }

    /// The ASID of `space`, and how it came by it.
    pub(super) fn of(&mut self, space: u32) -> (Asid, Taken) {
        if self.owners.is_empty() {
            return (Asid(0), Taken::NoAsids);
        }
        let asid = space as usize % self.owners.len();
        let taken = match self.owners[asid].replace(space) {
            Some(owner) if owner == space => Taken::Own,
            _ => Taken::FromOther,
        };
        (Asid(asid as u16), taken)
    }
}
