//! The costs of a stack, or of any group of stacks, within a range. docs/views.md has the meaning of each.

macro_rules! costs {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Costs {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Costs {
            /// The names, in the order of `values`.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name),)*];

            pub fn values(&self) -> [u64; Costs::NAMES.len()] {
                [$(self.$name,)*]
            }
        }
    };
}

costs! {
    /// Blocks allocated within the range.
    allocations,
    allocated_bytes,
    /// Blocks freed within the range, whenever they were allocated.
    deallocations,
    freed_bytes,
    temporary,
    temporary_bytes,
    /// The sum of the lifetimes of the blocks freed within the range.
    lifetime_ns,
    /// Live when the range begins.
    base_bytes,
    base_allocations,
    /// Live when the range ends. For the whole session, this is what leaked.
    live_bytes,
    live_allocations,
    /// Allocated within the range and live when it ends.
    kept_bytes,
    kept_allocations,
    /// Live when the program's total was highest within the range.
    peak_bytes,
    peak_allocations,
    /// The group's own maximum within the range, and when it was first reached.
    own_peak_bytes,
    own_peak_time_ns,
    /// The largest block allocated within the range.
    size_max,
}

/// Saturates, because the sizes in a malformed file may be anything.
pub fn to_signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl Costs {
    /// Adds other costs. Own peaks of two groups do not add up, so the higher one stays.
    pub fn add(&mut self, other: &Costs) {
        let sum = |mine: &mut u64, others: u64| *mine = mine.saturating_add(others);
        sum(&mut self.allocations, other.allocations);
        sum(&mut self.allocated_bytes, other.allocated_bytes);
        sum(&mut self.deallocations, other.deallocations);
        sum(&mut self.freed_bytes, other.freed_bytes);
        sum(&mut self.temporary, other.temporary);
        sum(&mut self.temporary_bytes, other.temporary_bytes);
        sum(&mut self.lifetime_ns, other.lifetime_ns);
        sum(&mut self.base_bytes, other.base_bytes);
        sum(&mut self.base_allocations, other.base_allocations);
        sum(&mut self.live_bytes, other.live_bytes);
        sum(&mut self.live_allocations, other.live_allocations);
        sum(&mut self.kept_bytes, other.kept_bytes);
        sum(&mut self.kept_allocations, other.kept_allocations);
        sum(&mut self.peak_bytes, other.peak_bytes);
        sum(&mut self.peak_allocations, other.peak_allocations);
        if other.own_peak_bytes > self.own_peak_bytes {
            self.own_peak_bytes = other.own_peak_bytes;
            self.own_peak_time_ns = other.own_peak_time_ns;
        }
        self.size_max = self.size_max.max(other.size_max);
    }

    /// Converts numbers of blocks, and sums over blocks, from units of a `scale`th of a block.
    pub(crate) fn rescaled(self, scale: u64) -> Costs {
        if scale == 1 {
            return self;
        }
        let blocks = |count: u64| count.saturating_add(scale / 2) / scale;
        Costs {
            allocations: blocks(self.allocations),
            deallocations: blocks(self.deallocations),
            temporary: blocks(self.temporary),
            lifetime_ns: blocks(self.lifetime_ns),
            base_allocations: blocks(self.base_allocations),
            live_allocations: blocks(self.live_allocations),
            kept_allocations: blocks(self.kept_allocations),
            peak_allocations: blocks(self.peak_allocations),
            ..self
        }
    }

    /// The costs that are known at one instant: only live blocks.
    pub fn live_only(&self) -> Costs {
        Costs { live_bytes: self.live_bytes, live_allocations: self.live_allocations, ..Costs::default() }
    }

    pub fn growth_bytes(&self) -> i64 {
        to_signed(self.live_bytes).saturating_sub(to_signed(self.base_bytes))
    }

    /// Whether nothing happened and nothing was held. The own peak and the largest size do not count by themselves.
    pub fn is_zero(&self) -> bool {
        Costs { own_peak_time_ns: 0, own_peak_bytes: 0, size_max: 0, ..*self } == Costs::default()
    }
}
