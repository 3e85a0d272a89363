//! The rules that make a freed block temporary: ours, and KDE's with the quirks of its reader.
//!
//! Must hold: a trace is counted by the rule of its recorder, which its Session block names. So a trace that was made from a file of
//! KDE's heaptrack has the number of temporary blocks that KDE's own tools print for that file.
use super::KdeFileKind;
use crate::Freed;

/// Which rule makes a block temporary. The numbers are those of the Session block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Counting {
    /// Ours: the thread that allocated the block frees it, and allocated nothing in between.
    #[default]
    Thread = 0,
    /// KDE's for files with addresses: no thread allocated or freed anything in between.
    Block = 1,
    /// KDE's for all other files: the last event was an allocation of the same allocation class, or it was a free and the block's
    /// allocation class has index 0.
    AllocClass = 2,
}

impl Counting {
    /// The rule with that number in the Session block. A number that is not known here means our own rule.
    pub(crate) const fn from_number(number: u64) -> Self {
        match number {
            1 => Counting::Block,
            2 => Counting::AllocClass,
            _ => Counting::Thread,
        }
    }

    /// The rule of a file of KDE's.
    pub(super) const fn of_file(kind: KdeFileKind) -> Self {
        match kind {
            KdeFileKind::Interpreted => Counting::AllocClass,
            KdeFileKind::Old | KdeFileKind::Raw => Counting::Block,
        }
    }

    /// Compatibility: the rule of a trace whose Session block does not name one. Such a trace was written before that field existed. If it
    /// was made from a file of KDE's, its tool has KDE's name.
    pub(crate) fn of_tool(tool: &str) -> Self {
        KdeFileKind::of_tool(tool).map_or(Counting::Thread, Counting::of_file)
    }

    /// KDE's rule, if the trace is counted by one.
    #[inline]
    pub const fn kde(self) -> Option<KdeRule> {
        match self {
            Counting::Thread => None,
            Counting::Block => Some(KdeRule { is_by_alloc_class: false }),
            Counting::AllocClass => Some(KdeRule { is_by_alloc_class: true }),
        }
    }
}

/// KDE's rule for temporary blocks. The latest allocation is forgotten at every free (`is_temporary`) and at some frees of unknown
/// blocks (`forgets_at_unknown_free`); the caller keeps it, because it knows the threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KdeRule {
    is_by_alloc_class: bool,
}

impl KdeRule {
    /// Returns whether a free makes its block temporary. `latest` is the latest allocation, if no free came after it.
    pub fn is_temporary(self, latest: Option<u64>, sequence: u64, alloc_class: u32, how: Freed) -> bool {
        // KDE's reader of interpreted files remembers the allocation class of the last allocation, and class 0 after a free. So a block of
        // class 0 is always temporary if another free came right before its own.
        let is_mistaken = self.is_by_alloc_class && latest.is_none() && alloc_class == 0;
        how == Freed::Call && (latest == Some(sequence) || is_mistaken)
    }

    /// True if a free of an unknown block makes KDE's reader forget the latest allocation. It does so in interpreted files; in files with
    /// addresses it ignores such a free.
    #[inline]
    pub const fn forgets_at_unknown_free(self) -> bool {
        self.is_by_alloc_class
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_rules_match() {
        for counting in [Counting::Thread, Counting::Block, Counting::AllocClass] {
            assert_eq!(Counting::from_number(counting as u64), counting);
        }
        assert_eq!(Counting::from_number(3), Counting::Thread);
        assert_eq!(Counting::from_number(u64::MAX), Counting::Thread);
    }

    #[test]
    fn old_traces_have_the_rule_of_their_tool() {
        assert_eq!(Counting::of_tool("KDE heaptrack 1.4.0 (interpreted)"), Counting::AllocClass);
        assert_eq!(Counting::of_tool("KDE heaptrack 1.4.0 (raw)"), Counting::Block);
        assert_eq!(Counting::of_tool("KDE heaptrack 0.0.0 (format 0)"), Counting::Block);
        assert_eq!(Counting::of_tool("heaptrack 0.1.0"), Counting::Thread);
        assert_eq!(Counting::of_tool(""), Counting::Thread);
    }

    #[test]
    fn the_mistake_is_about_the_first_class_after_a_free() {
        let (block, class) = (KdeRule { is_by_alloc_class: false }, KdeRule { is_by_alloc_class: true });
        for rule in [block, class] {
            assert!(rule.is_temporary(Some(7), 7, 3, Freed::Call));
            assert!(!rule.is_temporary(Some(7), 7, 3, Freed::Realloc));
            assert!(!rule.is_temporary(Some(8), 7, 0, Freed::Call));
            assert!(!rule.is_temporary(None, 7, 3, Freed::Call));
        }
        assert!(class.is_temporary(None, 7, 0, Freed::Call));
        assert!(!block.is_temporary(None, 7, 0, Freed::Call));
    }
}
