//! The totals of `print --json`, under the names that scripts know.
use format::Totals;
use serde::ser::{Serialize, SerializeMap, Serializer};

struct Named {
    totals: Totals,
    /// Bytes and blocks of known leaks that are live at the end. They are not in `leaked_*`.
    suppressed: (u64, u64),
}

pub fn totals(totals: &Totals, suppressed: (u64, u64)) -> impl Serialize {
    Named { totals: *totals, suppressed }
}

impl Serialize for Named {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.totals.named() {
            map.serialize_entry(name, &value)?;
        }
        map.serialize_entry("suppressed_bytes", &self.suppressed.0)?;
        map.serialize_entry("suppressed_allocations", &self.suppressed.1)?;
        map.end()
    }
}
