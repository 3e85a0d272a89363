//! Where the blocks of an allocation class are counted.
//!
//! Must hold: a group is a plain 32-bit number, because the counting loop reads one at every event. The two largest
//! numbers are marks. No list of groups is that long, so a mark that is used as an index finds nothing.

/// The group that the blocks of an allocation class are counted in: their site, unless a view groups them by something
/// else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GroupId(u32);

impl GroupId {
    /// The definition of the allocation class was lost, so its events are damaged.
    pub(crate) const LOST: GroupId = GroupId(u32::MAX);
    /// The query leaves the allocation class out. Its blocks count in the program's total only.
    pub(crate) const LEFT_OUT: GroupId = GroupId(u32::MAX - 1);

    /// The group of this number; left out if there is none.
    pub(crate) fn new(number: Option<u32>) -> Self {
        number.map_or(GroupId::LEFT_OUT, GroupId)
    }

    #[inline]
    pub(crate) const fn is_lost(self) -> bool {
        self.0 == GroupId::LOST.0
    }

    /// Whether it is a group, and not one of the marks.
    #[inline]
    pub(crate) const fn is_counted(self) -> bool {
        self.0 < GroupId::LEFT_OUT.0
    }

    pub(crate) fn number(self) -> Option<u32> {
        self.is_counted().then_some(self.0)
    }

    /// An index into the list of groups. It is beyond the end of every list if this is not a group.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}
