//! The combined peak of a tree a second time, from what `export --rows events` says of each process by itself. It shares no code with
//! the replay of the events (`tree.rs`), and knows nothing of forks: a block counts from the row of its allocation to the row of its end.
use super::tree::Peak;
use crate::run::heaptrack;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;

/// What a row says: the time, the event, and the number of the block. A block has one allocation and at most one end.
type Row = (u64, String, u64);

/// The rows in their order, each with the size of its block.
fn table(trace: &Path, options: &[&str]) -> Vec<(Row, u64)> {
    let mut command = Command::new(heaptrack());
    command.args(["export", "--to", "csv", "--rows", "events"]).args(options).arg(trace);
    let output = command.output().expect("heaptrack can be run");
    assert!(output.status.success(), "{options:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let mut lines = text.lines();
    let head = lines.next().expect("a header");
    assert!(head.starts_with("time_ns,event,block,size,"), "{head}");
    let number = |cell: &str| cell.parse::<u64>().expect("a number");
    lines
        .map(|line| {
            let cells: Vec<&str> = line.splitn(5, ',').collect();
            ((number(cells[0]), cells[1].to_owned(), number(cells[2])), number(cells[3]))
        })
        .collect()
}

/// Merges the tables of the processes, in the order of the table of all, and adds up what is live. Panics if the tables contradict each
/// other. `processes`: those of `print --json`.
pub fn peak(trace: &Path, processes: &Value) -> Peak {
    let mut rows: HashMap<Row, u64> = HashMap::new();
    let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
    for process in processes.as_array().expect("processes") {
        let index = format!("#{}", process["index"]);
        let own = table(trace, &["--process", &index]);
        let allocations = own.iter().filter(|((_, event, _), _)| event == "alloc").count() as u64;
        assert_eq!(Some(allocations), process["totals"]["allocations"].as_u64(), "{process}");
        for (row, size) in own {
            *ends.entry(row.2).or_default() += (row.1 != "alloc") as u64;
            assert_eq!(rows.insert(row, size), None, "{index}: a row is in one table");
        }
    }
    assert!(ends.values().all(|ends| *ends <= 1), "a block ends once");
    let (mut live, mut peak) = (Peak::default(), Peak::default());
    for (row, _) in table(trace, &[]) {
        let size = rows.remove(&row).unwrap_or_else(|| panic!("{row:?} is in no table of a process"));
        let (ns, event, _) = row;
        if event != "alloc" {
            (live.bytes, live.blocks) = (live.bytes - size, live.blocks - 1);
            continue;
        }
        (live.bytes, live.blocks) = (live.bytes + size, live.blocks + 1);
        if live.bytes > peak.bytes {
            peak = Peak { ns, ..live };
        }
    }
    assert!(rows.is_empty(), "{} rows are only in tables of processes", rows.len());
    peak
}
