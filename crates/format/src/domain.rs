//! The domain of a block: malloc's blocks, or those that the program reported itself.
//!
//! Each domain has allocation classes, events, folded events, checkpoints and a summary of its own, in kinds of blocks
//! of its own; everything else is shared. So a reader that knows only malloc's kinds sees malloc's trace, and a reader
//! that is set to the custom domain sees a trace of the same shape whose events are only those of the custom domain.
use crate::{BlockKind, RawBlock};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Domain {
    #[default]
    Malloc,
    /// Blocks of the program's own allocators, reported through `heaptrack_api.h`.
    Custom,
}

impl BlockKind {
    /// The kind with the same content for the custom domain. Shared kinds stay as they are.
    pub const fn custom(self) -> BlockKind {
        match self {
            BlockKind::AllocClasses => BlockKind::CustomAllocClasses,
            BlockKind::Events => BlockKind::CustomEvents,
            BlockKind::Checkpoint => BlockKind::CustomCheckpoint,
            BlockKind::Summary => BlockKind::CustomSummary,
            BlockKind::Folded => BlockKind::CustomFolded,
            shared => shared,
        }
    }

    /// The kind that a reader of one domain sees, or `None` if the block belongs to the other domain.
    pub const fn in_domain(self, domain: Domain) -> Option<BlockKind> {
        let plain = match self {
            BlockKind::CustomAllocClasses => BlockKind::AllocClasses,
            BlockKind::CustomEvents => BlockKind::Events,
            BlockKind::CustomCheckpoint => BlockKind::Checkpoint,
            BlockKind::CustomSummary => BlockKind::Summary,
            BlockKind::CustomFolded => BlockKind::Folded,
            // What the program reports itself has no allocator.
            BlockKind::Allocators if matches!(domain, Domain::Custom) => return None,
            plain => {
                let is_shared = plain.custom() as u8 == plain as u8;
                return if is_shared || matches!(domain, Domain::Malloc) { Some(plain) } else { None };
            }
        };
        match domain {
            Domain::Malloc => None,
            Domain::Custom => Some(plain),
        }
    }

    /// True for the kinds of the custom domain.
    pub const fn is_custom(self) -> bool {
        self.in_domain(Domain::Malloc).is_none()
    }
}

impl RawBlock {
    /// Turns a block of malloc's domain into one of `domain` with the same content. Shared kinds stay as they are.
    pub fn of(self, domain: Domain) -> RawBlock {
        match domain {
            Domain::Malloc => self,
            Domain::Custom => RawBlock { kind: self.kind.custom(), ..self },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_shared_or_belongs_to_one_domain() {
        for kind in BlockKind::ALL {
            match (kind.in_domain(Domain::Malloc), kind.in_domain(Domain::Custom)) {
                (Some(malloc), Some(custom)) => assert!(malloc == kind && custom == kind && kind.custom() == kind),
                (Some(BlockKind::Allocators), None) => (),
                (Some(malloc), None) => {
                    assert!(malloc == kind && kind.custom().in_domain(Domain::Custom) == Some(kind))
                }
                (None, Some(plain)) => assert!(plain.custom() == kind && kind.is_custom()),
                (None, None) => panic!("{kind:?} belongs to no domain"),
            }
        }
        assert_eq!(BlockKind::ALL.into_iter().filter(|kind| kind.is_custom()).count(), 5);
    }
}
