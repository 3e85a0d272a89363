//! The tables of a dataset and their columns. docs/fleet.md describes them for users; a test compares the two.
//!
//! Must hold: a column keeps its name, its type and its meaning for ever. A new column is added at the end of its table
//! and may be null, and a reader takes a column that an older file lacks as null. A change that old readers would
//! misread needs a higher `SCHEMA`.
//!
//! Numbers are signed (INT64), because Spark has no unsigned ones, and times are in microseconds, because Spark rejects
//! nanoseconds.

/// The version of the tables and of the manifest.
pub const SCHEMA: u32 = 1;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Int,
    Text,
    Bool,
    /// Microseconds since 1970, UTC.
    Time,
}

#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub name: &'static str,
    pub kind: Kind,
    pub is_optional: bool,
}

/// How the files of a table are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Below `service=/date=/host=`.
    Partitioned,
    /// In one folder: the rows are shared by all partitions.
    Shared,
}

#[derive(Debug)]
pub struct Table {
    pub name: &'static str,
    pub columns: &'static [Column],
    /// Rows of a file are sorted by these columns, ascending.
    pub sorted_by: &'static [&'static str],
    pub place: Place,
}

impl Table {
    pub fn index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }
}

const fn int(name: &'static str) -> Column {
    Column { name, kind: Kind::Int, is_optional: false }
}

const fn int_or_null(name: &'static str) -> Column {
    Column { name, kind: Kind::Int, is_optional: true }
}

const fn text(name: &'static str) -> Column {
    Column { name, kind: Kind::Text, is_optional: false }
}

const fn text_or_null(name: &'static str) -> Column {
    Column { name, kind: Kind::Text, is_optional: true }
}

const fn flag(name: &'static str) -> Column {
    Column { name, kind: Kind::Bool, is_optional: false }
}

pub static SESSIONS: Table = Table {
    name: "sessions",
    columns: &[
        int("batch"),
        int("session"),
        text("version"),
        text("trace"),
        text("file"),
        text("program"),
        text("command"),
        text("tool"),
        int("pid"),
        Column { name: "started", kind: Kind::Time, is_optional: true },
        int_or_null("runtime_us"),
        flag("attached"),
        flag("complete"),
        flag("heap_profile"),
        int_or_null("allocations"),
        int_or_null("allocated_bytes"),
        int_or_null("deallocations"),
        int_or_null("temporary"),
        int_or_null("leaked_bytes"),
        int_or_null("leaked_allocations"),
        int_or_null("suppressed_bytes"),
        int_or_null("peak_bytes"),
        int_or_null("peak_allocations"),
        int_or_null("peak_time_us"),
        int_or_null("peak_rss_bytes"),
        int_or_null("lost_events"),
        int_or_null("sampling_rate_bytes"),
    ],
    sorted_by: &["version", "session"],
    place: Place::Partitioned,
};

pub static LABELS: Table = Table {
    name: "labels",
    columns: &[int("batch"), int("session"), text("key"), text("value")],
    sorted_by: &["key", "value", "session"],
    place: Place::Partitioned,
};

pub static SITES: Table = Table {
    name: "sites",
    columns: &[
        int("batch"),
        int("session"),
        text("version"),
        text("function"),
        text_or_null("file"),
        int_or_null("line"),
        text_or_null("module"),
        int("stack"),
        int_or_null("allocations"),
        int_or_null("allocated_bytes"),
        int_or_null("deallocations"),
        int_or_null("temporary"),
        int_or_null("leaked_bytes"),
        int_or_null("leaked_allocations"),
        int_or_null("suppressed_bytes"),
        int_or_null("suppressed_allocations"),
        int_or_null("peak_bytes"),
        int_or_null("peak_allocations"),
    ],
    sorted_by: &["function", "version", "session", "stack"],
    place: Place::Partitioned,
};

pub static STACKS: Table = Table {
    name: "stacks",
    columns: &[int("batch"), int("stack"), int("level"), int("frame")],
    sorted_by: &["stack", "level"],
    place: Place::Shared,
};

pub static FRAMES: Table = Table {
    name: "frames",
    columns: &[
        int("batch"),
        int("frame"),
        text("function"),
        text_or_null("signature"),
        text_or_null("file"),
        int_or_null("line"),
        text_or_null("module"),
        int_or_null("offset"),
        flag("inlined"),
        flag("own_code"),
    ],
    sorted_by: &["frame"],
    place: Place::Shared,
};

pub static BUCKETS: Table = Table {
    name: "buckets",
    columns: &[
        int("batch"),
        int("session"),
        int("bucket"),
        int("end_us"),
        int("live_bytes"),
        int("live_allocations"),
        int("live_bytes_end"),
        int("allocations"),
        int("allocated_bytes"),
        int("deallocations"),
        int("temporary"),
        int_or_null("rss_bytes"),
    ],
    sorted_by: &["session", "bucket"],
    place: Place::Partitioned,
};

pub static LEAKS: Table = Table {
    name: "leaks",
    columns: &[
        int("batch"),
        int("session"),
        text("version"),
        text("verdict"),
        text("function"),
        text_or_null("file"),
        text_or_null("module"),
        int("stack"),
        int("live_bytes"),
        int("live_allocations"),
        int("allocations"),
        int("growth_bytes_per_second"),
        text("reason"),
        text_or_null("suppressed"),
    ],
    sorted_by: &["verdict", "function", "session"],
    place: Place::Partitioned,
};

pub static MEMORY: Table = Table {
    name: "memory",
    columns: &[
        int("batch"),
        int("session"),
        text("instant"),
        int("time_us"),
        text("kind"),
        text("name"),
        int("rss_bytes"),
        int("pss_bytes"),
    ],
    sorted_by: &["kind", "session", "instant"],
    place: Place::Partitioned,
};

pub static PROCESSES: Table = Table {
    name: "processes",
    columns: &[
        int("batch"),
        int("session"),
        int("process"),
        int("pid"),
        int_or_null("parent"),
        text("name"),
        text("command"),
        text_or_null("start"),
        int("start_us"),
        int_or_null("end_us"),
        text_or_null("exit"),
        int_or_null("allocations"),
        int_or_null("allocated_bytes"),
        int_or_null("leaked_bytes"),
        int_or_null("peak_bytes"),
    ],
    sorted_by: &["session", "process"],
    place: Place::Partitioned,
};

pub static EVENTS: Table = Table {
    name: "events",
    columns: &[
        int("batch"),
        int("session"),
        int("time_us"),
        text("event"),
        int("block"),
        int("stack"),
        int("size"),
        int("thread"),
        int("allocated_us"),
    ],
    sorted_by: &["session"],
    place: Place::Partitioned,
};

pub static TABLES: [&Table; 10] =
    [&SESSIONS, &LABELS, &SITES, &STACKS, &FRAMES, &BUCKETS, &LEAKS, &MEMORY, &PROCESSES, &EVENTS];

#[cfg(test)]
mod tests {
    use super::*;

    /// Every table and column is in docs/fleet.md, in the same order.
    #[test]
    fn the_document_has_all_columns() {
        let document = include_str!("../../../docs/fleet.md");
        for table in TABLES {
            let start = format!("| `{}` | ", table.name);
            let row = document.lines().find(|line| line.starts_with(&start)).unwrap();
            let cell = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
            let cells: Vec<&str> = row.split(" | ").collect();
            let columns: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
            assert_eq!(cell(cells[2]), columns, "{}", table.name);
            assert_eq!(cell(cells[3]), table.sorted_by, "{}", table.name);
        }
    }

    #[test]
    fn every_sorting_column_exists() {
        for table in TABLES {
            assert!(table.sorted_by.iter().all(|name| table.index(name).is_some()), "{}", table.name);
        }
    }
}
