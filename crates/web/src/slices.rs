//! The costs of slices of time. The page of a report, which has no server, adds up a range of slices from them.
use crate::single_file::ReportError;
use analysis::{Blocks, Costs, Profile, Query};
use answers::cannot_be_read;
use heaptrack_trace::OpenTrace;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Divides the session into `count` slices of equal length and returns their costs as columns. A stack has a row in a
/// slice only if it allocated or freed in the slice, or if its live blocks changed.
pub fn slice(open: &OpenTrace, count: usize) -> Result<Value, ReportError> {
    let runtime = open.engine().runtime_ns();
    let border = |at: usize| (runtime as u128 * at as u128 / count as u128) as u64;
    let mut blocks = open.blocks().map_err(|error| cannot_be_read(&error))?;
    let mut rows = Rows::default();
    let (mut starts, mut highest, mut highest_ns) = (vec![0], Vec::new(), Vec::new());
    for number in 0..count {
        let (from, to) = (format!("{}ns", border(number)), format!("{}ns", border(number + 1)));
        // A slice has what is live at its end. What processes had not freed when they ended counts only in a range that
        // is said to reach the end of the trace, so the last slice ends at its time like all others.
        let to = if runtime == 0 { "end" } else { &to };
        let profile = profile_of(open, &mut blocks, &from, to)?;
        rows.add(&profile);
        starts.push(rows.count);
        highest.push(profile.totals.peak_bytes);
        highest_ns.push(profile.peak_time_ns);
    }
    let mut map = Map::new();
    map.insert("folded".into(), folded(open, &mut blocks, count, border)?);
    map.insert("time_ns".into(), json!((0..=count).map(border).collect::<Vec<_>>()));
    map.insert("highest".into(), json!(highest));
    map.insert("highest_ns".into(), json!(highest_ns));
    map.insert("start".into(), json!(starts));
    insert(&mut map, rows.columns);
    Ok(Value::Object(map))
}

type Columns = HashMap<&'static str, Vec<u64>>;

/// The rows of all slices so far.
#[derive(Default)]
struct Rows {
    columns: Columns,
    count: usize,
    /// The costs of each stack in the slice that was added last.
    before: HashMap<u32, Costs>,
}

impl Rows {
    /// Adds the stacks of a slice whose costs or live blocks have changed.
    fn add(&mut self, profile: &Profile) {
        let mut now = HashMap::new();
        for (site, costs) in &profile.stacks {
            now.insert(*site, *costs);
            let was = self.before.get(site).map_or((0, 0), |costs| (costs.live_bytes, costs.live_allocations));
            let is_same =
                costs.allocations + costs.deallocations == 0 && was == (costs.live_bytes, costs.live_allocations);
            if !is_same {
                push(&mut self.columns, *site, costs);
                self.count += 1;
            }
        }
        // Blocks that an `exec` ended are in no later profile.
        let ended = |(site, costs): &(&u32, &Costs)| costs.live_allocations > 0 && !now.contains_key(site);
        for (site, _) in self.before.iter().filter(ended) {
            push(&mut self.columns, *site, &Costs::default());
            self.count += 1;
        }
        self.before = now;
    }
}

fn insert(map: &mut Map<String, Value>, mut columns: Columns) {
    for name in COLUMNS.iter().map(|(name, _)| *name).chain(["stack"]) {
        map.insert(name.into(), json!(columns.remove(name).unwrap_or_default()));
    }
}

fn profile_of(open: &OpenTrace, blocks: &mut dyn Blocks, from: &str, to: &str) -> Result<Profile, ReportError> {
    let query = Query::new([("from", from), ("to", to)]).map_err(|bad| ReportError::Refused(bad.to_string()))?;
    open.engine().profile(blocks, &query).map_err(|gone| ReportError::Refused(gone.to_string()))
}

/// Events of which the trace has only sums (`--max-size`) are in no slice. Returns the costs from the start of the
/// session to the first border at or after the end of the sums. Returns null if the trace has every event.
fn folded(
    open: &OpenTrace,
    blocks: &mut dyn Blocks,
    count: usize,
    border: impl Fn(usize) -> u64,
) -> Result<Value, ReportError> {
    let Some(until) = open.engine().definitions().folded_until_ns() else { return Ok(Value::Null) };
    let first = (1..count).find(|at| border(*at) >= until).unwrap_or(count);
    let to = if first == count { "end".into() } else { format!("{}ns", border(first)) };
    let profile = profile_of(open, blocks, "0", &to)?;
    let mut columns = HashMap::new();
    profile.stacks.iter().for_each(|(site, costs)| push(&mut columns, *site, costs));
    let mut map = Map::new();
    map.insert("border".into(), json!(first));
    map.insert("highest".into(), json!(profile.totals.peak_bytes));
    map.insert("highest_ns".into(), json!(profile.peak_time_ns));
    insert(&mut map, columns);
    Ok(Value::Object(map))
}

type Column = (&'static str, fn(&Costs) -> u64);
const COLUMNS: [Column; 11] = [
    ("allocations", |costs| costs.allocations),
    ("allocated_bytes", |costs| costs.allocated_bytes),
    ("deallocations", |costs| costs.deallocations),
    ("freed_bytes", |costs| costs.freed_bytes),
    ("temporary", |costs| costs.temporary),
    ("temporary_bytes", |costs| costs.temporary_bytes),
    ("lifetime_ns", |costs| costs.lifetime_ns),
    ("live_bytes", |costs| costs.live_bytes),
    ("live_allocations", |costs| costs.live_allocations),
    ("peak_bytes", |costs| costs.peak_bytes),
    ("peak_allocations", |costs| costs.peak_allocations),
];

fn push(columns: &mut Columns, site: u32, costs: &Costs) {
    columns.entry("stack").or_default().push(site.into());
    for (name, of) in COLUMNS {
        columns.entry(name).or_default().push(of(costs));
    }
}
