//! The totals of `print --json`, under the names that scripts know.
use analysis::{KnownCosts, Variances};
use format::Totals;
use serde::ser::{Serialize, SerializeMap, Serializer};

struct Named {
    totals: Totals,
    /// Bytes and blocks of known leaks that are live at the end. They are not in `leaked_*`.
    suppressed: (u64, u64),
    known: Option<KnownCosts>,
    /// How certain the totals are, if blocks were sampled.
    errors: Option<Variances>,
}

/// `known`: what a heap profile of another tool knows. Other totals are null.
pub fn totals(
    totals: &Totals,
    suppressed: (u64, u64),
    known: Option<KnownCosts>,
    errors: Option<Variances>,
) -> impl Serialize {
    Named { totals: *totals, suppressed, known, errors }
}

impl Serialize for Named {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let suppressed = [("suppressed_bytes", self.suppressed.0), ("suppressed_allocations", self.suppressed.1)];
        for (name, value) in self.totals.named().chain(suppressed) {
            let is_known = self.known.is_none_or(|known| known.has(name));
            map.serialize_entry(name, &is_known.then_some(value))?;
        }
        for (name, error) in self.errors.iter().flat_map(Variances::errors) {
            map.serialize_entry(name, &error)?;
        }
        map.end()
    }
}
