//! The domain of a block: malloc's blocks, those that the program reported itself, or its mappings.
//!
//! Each domain has allocation classes, events, folded events, checkpoints and a summary of its own, in kinds of blocks
//! of its own; everything else is shared. So a reader that knows only malloc's kinds sees malloc's trace, and a reader
//! that is set to another domain sees a trace of the same shape whose events are only those of that domain.
use crate::{BlockKind, RawBlock};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Domain {
    #[default]
    Malloc,
    /// Blocks of the program's own allocators, reported through `heaptrack_api.h`.
    Custom,
    /// The mappings that the program made itself, with mmap and its relatives.
    Mapped,
}

impl Domain {
    pub const ALL: [Domain; 3] = [Domain::Malloc, Domain::Custom, Domain::Mapped];

    pub const fn name(self) -> &'static str {
        match self {
            Domain::Malloc => "malloc",
            Domain::Custom => "custom",
            Domain::Mapped => "mapped",
        }
    }
}

/// The kinds of which each domain has its own, in the order of `Domain`.
const OWN: [[BlockKind; 3]; 5] = [
    [BlockKind::AllocClasses, BlockKind::CustomAllocClasses, BlockKind::MappedAllocClasses],
    [BlockKind::Events, BlockKind::CustomEvents, BlockKind::MappedEvents],
    [BlockKind::Checkpoint, BlockKind::CustomCheckpoint, BlockKind::MappedCheckpoint],
    [BlockKind::Summary, BlockKind::CustomSummary, BlockKind::MappedSummary],
    [BlockKind::Folded, BlockKind::CustomFolded, BlockKind::MappedFolded],
];

impl BlockKind {
    /// The domain to which a kind belongs, and the kind with the same content for malloc. `None` for a shared kind.
    const fn own(self) -> Option<(Domain, BlockKind)> {
        let mut row = 0;
        while row < OWN.len() {
            let mut domain = 0;
            while domain < Domain::ALL.len() {
                if OWN[row][domain] as u8 == self as u8 {
                    return Some((Domain::ALL[domain], OWN[row][0]));
                }
                domain += 1;
            }
            row += 1;
        }
        None
    }

    /// The domain to which a kind belongs. Shared kinds belong to none.
    pub const fn domain(self) -> Option<Domain> {
        match self.own() {
            Some((domain, _)) => Some(domain),
            None => None,
        }
    }

    /// The kind for another domain with the content of this kind of malloc's. Shared kinds stay as they are.
    pub fn of(self, domain: Domain) -> BlockKind {
        OWN.iter().find(|row| row[0] == self).map_or(self, |row| row[domain as usize])
    }

    /// The kind that a reader of one domain sees, or `None` if the block belongs to another domain.
    pub const fn in_domain(self, domain: Domain) -> Option<BlockKind> {
        match self.own() {
            Some((own, plain)) => {
                if own as u8 == domain as u8 {
                    Some(plain)
                } else {
                    None
                }
            }
            // Only malloc's blocks have an allocator.
            None if matches!(self, BlockKind::Allocators) && !matches!(domain, Domain::Malloc) => None,
            None => Some(self),
        }
    }
}

impl RawBlock {
    /// Turns a block of malloc's domain into one of `domain` with the same content. Shared kinds stay as they are.
    pub fn of(self, domain: Domain) -> RawBlock {
        RawBlock { kind: self.kind.of(domain), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_shared_or_belongs_to_one_domain() {
        for kind in BlockKind::ALL {
            let seen = Domain::ALL.map(|domain| kind.in_domain(domain));
            match kind.domain() {
                None if kind == BlockKind::Allocators => assert_eq!(seen, [Some(kind), None, None]),
                None => assert!(seen == [Some(kind); 3] && Domain::ALL.iter().all(|domain| kind.of(*domain) == kind)),
                Some(own) => {
                    for (domain, seen) in Domain::ALL.into_iter().zip(seen) {
                        assert_eq!(seen.is_some(), domain == own, "{kind:?} {domain:?}");
                        assert!(
                            seen.is_none_or(|plain| plain.of(own) == kind && plain.domain() == Some(Domain::Malloc))
                        );
                    }
                }
            }
        }
        for domain in Domain::ALL {
            assert_eq!(BlockKind::ALL.into_iter().filter(|kind| kind.domain() == Some(domain)).count(), 5);
        }
    }
}
