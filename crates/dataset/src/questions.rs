//! The questions of `heaptrack dataset report`. `fleet/` has the same ones as SQL, and the tests compare the answers.
//!
//! Must hold: answers have whole numbers and a total order, so that every engine gives the same rows. Memory is bounded
//! by the number of sessions, services and labels, and by `MOST_FUNCTIONS`.
use crate::data_file::scan;
use crate::manifest::{Dataset, Partition};
use crate::partition_name::{date_of, days};
use crate::passes::{Outcome, Pass, in_passes};
use crate::rows::Texts;
use crate::schema::{LABELS, LEAKS, SESSIONS, SITES, Table};
use foldhash::{HashMap, HashMapExt, HashSet};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The most functions of all services whose sums are kept at once, which take about 300 bytes each.
const MOST_FUNCTIONS: usize = 500_000;

#[derive(Debug, Serialize, PartialEq, Eq)]
pub struct TopPeak {
    pub service: String,
    pub version: String,
    pub traces: i64,
    pub largest_peak_bytes: i64,
    pub sum_of_peak_bytes: i64,
}

#[derive(Debug, Serialize, PartialEq, Eq)]
pub struct Grown {
    pub service: String,
    pub function: String,
    pub traces_before: i64,
    pub traces_after: i64,
    pub bytes_before: i64,
    pub bytes_after: i64,
    pub growth_per_trace: i64,
}

#[derive(Debug, Serialize, PartialEq, Eq)]
pub struct LeakingHost {
    pub service: String,
    pub host: String,
    pub traces: i64,
    pub sites: i64,
    pub leaked_bytes: i64,
}

#[derive(Debug, Serialize, PartialEq, Eq)]
pub struct NewSite {
    pub service: String,
    pub function: String,
    pub traces: i64,
    pub peak_bytes: i64,
    pub allocations: i64,
}

#[derive(Debug, Serialize, PartialEq, Eq)]
pub struct LabelCost {
    pub key: String,
    pub value: String,
    pub traces: i64,
    pub peak_bytes: i64,
    pub allocated_bytes: i64,
    pub leaked_bytes: i64,
}

fn at(table: &Table, name: &str) -> usize {
    table.index(name).unwrap_or(0)
}

/// The number of traces, and of those among them whose blocks were sampled.
pub fn traces(dataset: &Dataset) -> anyhow::Result<(usize, usize)> {
    let rate = at(&SESSIONS, "sampling_rate_bytes");
    let (mut all, mut sampled) = (0, 0);
    scan(
        dataset,
        &SESSIONS,
        &["sampling_rate_bytes"],
        |_| true,
        |_, rows| {
            all += rows.len();
            sampled += (0..rows.len()).filter(|row| rows.int(rate, *row).is_some()).count();
            Ok(())
        },
    )?;
    Ok((all, sampled))
}

/// The highest peak by service and version.
pub fn top_peak(dataset: &Dataset) -> anyhow::Result<Vec<TopPeak>> {
    let (version, peak) = (at(&SESSIONS, "version"), at(&SESSIONS, "peak_bytes"));
    let mut sums: BTreeMap<(String, String), TopPeak> = BTreeMap::new();
    scan(
        dataset,
        &SESSIONS,
        &["version", "peak_bytes"],
        |_| true,
        |partition, rows| {
            for row in 0..rows.len() {
                let key = (partition.service.clone(), rows.text(version, row).unwrap_or_default().to_owned());
                let bytes = rows.int(peak, row).unwrap_or(0);
                let (service, version) = key.clone();
                let sum = sums.entry(key).or_insert(TopPeak {
                    service,
                    version,
                    traces: 0,
                    largest_peak_bytes: 0,
                    sum_of_peak_bytes: 0,
                });
                sum.traces += 1;
                sum.largest_peak_bytes = sum.largest_peak_bytes.max(bytes);
                sum.sum_of_peak_bytes += bytes;
            }
            Ok(())
        },
    )?;
    let mut rows: Vec<TopPeak> = sums.into_values().collect();
    rows.sort_by_key(|row| Reverse(row.largest_peak_bytes));
    Ok(rows)
}

/// Sums by service and function.
struct Sums<'a, T> {
    texts: Texts,
    by: HashMap<(&'a str, u32), T>,
}

impl<'a, T: Default> Sums<'a, T> {
    fn new() -> Self {
        Sums { texts: Texts::default(), by: HashMap::new() }
    }

    fn of(&mut self, service: &'a str, function: &str) -> &mut T {
        let function = self.texts.number(function);
        self.by.entry((service, function)).or_default()
    }

    fn is_too_much(&self) -> bool {
        self.by.len() > MOST_FUNCTIONS
    }
}

/// Keeps the first `top` rows in the order of `key`.
fn first<T, K: Ord>(mut rows: Vec<T>, top: usize, key: impl Fn(&T) -> K) -> Vec<T> {
    rows.sort_by_cached_key(key);
    rows.truncate(top);
    rows
}

/// The functions whose bytes at the peak grew: the mean of seven days up to `until`, against the seven days before.
pub fn grown(dataset: &Dataset, until: Option<&str>, top: usize) -> anyhow::Result<Vec<Grown>> {
    let last = dataset.live().map(|entry| entry.partition.date.as_str()).max();
    let Some(until) = until.or(last).and_then(days) else { return Ok(Vec::new()) };
    let (start, middle, end) = (date_of(until - 13), date_of(until - 6), date_of(until));
    let is_after = |partition: &Partition| partition.date >= middle;
    let is_wanted = |partition: &Partition| partition.date >= start && partition.date <= end;
    let mut traces: HashMap<String, [i64; 2]> = HashMap::new();
    scan(dataset, &SESSIONS, &["session"], is_wanted, |partition, rows| {
        traces.entry(partition.service.clone()).or_default()[usize::from(is_after(partition))] += rows.len() as i64;
        Ok(())
    })?;
    let (function, peak) = (at(&SITES, "function"), at(&SITES, "peak_bytes"));
    let order = |row: &Grown| (Reverse(row.growth_per_trace), row.service.clone(), row.function.clone());
    let pass = |pass: Pass| {
        let mut sums: Sums<'_, [i64; 2]> = Sums::new();
        let services: HashMap<&str, &str> = traces.keys().map(|name| (name.as_str(), name.as_str())).collect();
        scan(dataset, &SITES, &["function", "peak_bytes"], is_wanted, |partition, rows| {
            let side = usize::from(is_after(partition));
            let Some(service) = services.get(partition.service.as_str()) else { return Ok(()) };
            for row in 0..rows.len() {
                let name = rows.text(function, row).unwrap_or_default();
                let bytes = rows.int(peak, row).unwrap_or(0);
                if bytes > 0 && !sums.is_too_much() && pass.has(name) {
                    sums.of(service, name)[side] += bytes;
                }
            }
            Ok(())
        })?;
        if sums.is_too_much() {
            return Ok(Outcome::TooMuch);
        }
        let grown = sums.by.iter().filter_map(|((service, function), [before, after])| {
            let [traces_before, traces_after] = traces.get(*service).copied().unwrap_or_default();
            let growth = after.checked_div(traces_after)? - before.checked_div(traces_before)?;
            (growth > 0).then(|| Grown {
                service: (*service).to_owned(),
                function: sums.texts.get(*function).unwrap_or_default().to_owned(),
                traces_before,
                traces_after,
                bytes_before: *before,
                bytes_after: *after,
                growth_per_trace: growth,
            })
        });
        Ok(Outcome::Done(first(grown.collect(), top, order)))
    };
    let rows = in_passes(pass)?.into_iter().flatten().collect();
    Ok(first(rows, top, order))
}

/// The hosts with places that hold more and more memory. Known leaks do not count.
pub fn leaking_hosts(dataset: &Dataset) -> anyhow::Result<Vec<LeakingHost>> {
    let column = |name: &str| at(&LEAKS, name);
    let (session, verdict, bytes, known) =
        (column("session"), column("verdict"), column("live_bytes"), column("suppressed"));
    let mut sums: BTreeMap<(String, String), (HashSet<i64>, LeakingHost)> = BTreeMap::new();
    scan(
        dataset,
        &LEAKS,
        &["session", "verdict", "live_bytes", "suppressed"],
        |_| true,
        |partition, rows| {
            for row in 0..rows.len() {
                if rows.text(verdict, row) != Some("grows") || rows.text(known, row).is_some() {
                    continue;
                }
                let (service, host) = (partition.service.clone(), partition.host.clone());
                let empty =
                    LeakingHost { service: service.clone(), host: host.clone(), traces: 0, sites: 0, leaked_bytes: 0 };
                let (sessions, sum) = sums.entry((service, host)).or_insert((HashSet::default(), empty));
                sum.traces += i64::from(sessions.insert(rows.int(session, row).unwrap_or(0)));
                sum.sites += 1;
                sum.leaked_bytes += rows.int(bytes, row).unwrap_or(0);
            }
            Ok(())
        },
    )?;
    let mut rows: Vec<LeakingHost> = sums.into_values().map(|(_, row)| row).collect();
    rows.sort_by_key(|row| Reverse(row.leaked_bytes));
    Ok(rows)
}

/// The functions that allocate in `version` or later, and in no earlier version of the same service. A version is
/// earlier if its first day is; of versions with the same first day, if its name is smaller.
pub fn new_sites(dataset: &Dataset, since: &str, top: usize) -> anyhow::Result<Vec<NewSite>> {
    let at_version = at(&SESSIONS, "version");
    let mut firsts: HashMap<String, BTreeMap<String, String>> = HashMap::new();
    scan(
        dataset,
        &SESSIONS,
        &["version"],
        |_| true,
        |partition, rows| {
            let versions = firsts.entry(partition.service.clone()).or_default();
            for row in 0..rows.len() {
                let first = versions.entry(rows.text(at_version, row).unwrap_or_default().to_owned());
                let first = first.or_insert_with(|| partition.date.clone());
                *first = partition.date.clone().min(std::mem::take(first));
            }
            Ok(())
        },
    )?;
    // Services that have the version; of each, whether a version is an earlier one.
    firsts.retain(|_, versions| versions.contains_key(since));
    let is_earlier = |versions: &BTreeMap<String, String>, version: &str| {
        let limit = versions.get(since).map(|date| (date.as_str(), since));
        versions.get(version).map(|date| (date.as_str(), version)) < limit
    };
    #[derive(Default)]
    struct Sum {
        is_old: bool,
        traces: i64,
        peak: i64,
        allocations: i64,
        last: Option<i64>,
    }
    let column = |name: &str| at(&SITES, name);
    let names = ["session", "version", "function", "peak_bytes", "allocations"];
    let [session, version, function, peak, allocations] = names.map(column);
    let order =
        |row: &NewSite| (Reverse(row.peak_bytes), Reverse(row.allocations), row.service.clone(), row.function.clone());
    let pass = |pass: Pass| {
        let mut sums: Sums<'_, Sum> = Sums::new();
        let is_wanted = |partition: &Partition| firsts.contains_key(&partition.service);
        scan(dataset, &SITES, &names, is_wanted, |partition, rows| {
            let Some((service, versions)) = firsts.get_key_value(&partition.service) else { return Ok(()) };
            for row in 0..rows.len() {
                let name = rows.text(function, row).unwrap_or_default();
                if sums.is_too_much() || !pass.has(name) {
                    continue;
                }
                let sum = sums.of(service, name);
                if is_earlier(versions, rows.text(version, row).unwrap_or_default()) {
                    sum.is_old = true;
                    continue;
                }
                // All rows of a function and a session are neighbours in one file.
                let session = rows.int(session, row);
                sum.traces += i64::from(sum.last != session);
                sum.last = session;
                sum.peak += rows.int(peak, row).unwrap_or(0);
                sum.allocations += rows.int(allocations, row).unwrap_or(0);
            }
            Ok(())
        })?;
        if sums.is_too_much() {
            return Ok(Outcome::TooMuch);
        }
        let found = sums.by.iter().filter(|(_, sum)| !sum.is_old).map(|((service, function), sum)| NewSite {
            service: (*service).to_owned(),
            function: sums.texts.get(*function).unwrap_or_default().to_owned(),
            traces: sum.traces,
            peak_bytes: sum.peak,
            allocations: sum.allocations,
        });
        Ok(Outcome::Done(first(found.collect(), top, order)))
    };
    let rows = in_passes(pass)?.into_iter().flatten().collect();
    Ok(first(rows, top, order))
}

/// What the traces with each label cost.
pub fn label_costs(dataset: &Dataset) -> anyhow::Result<Vec<LabelCost>> {
    let names = ["session", "peak_bytes", "allocated_bytes", "leaked_bytes"];
    let [session, peak, allocated, leaked] = names.map(|name| at(&SESSIONS, name));
    let mut costs: HashMap<i64, [i64; 3]> = HashMap::new();
    scan(
        dataset,
        &SESSIONS,
        &names,
        |_| true,
        |_, rows| {
            for row in 0..rows.len() {
                let cost = [peak, allocated, leaked].map(|column| rows.int(column, row).unwrap_or(0));
                costs.insert(rows.int(session, row).unwrap_or(0), cost);
            }
            Ok(())
        },
    )?;
    let mut sums: BTreeMap<(String, String), [i64; 4]> = BTreeMap::new();
    let [session, key, value] = ["session", "key", "value"].map(|name| at(&LABELS, name));
    scan(
        dataset,
        &LABELS,
        &["session", "key", "value"],
        |_| true,
        |_, rows| {
            for row in 0..rows.len() {
                let text = |column| rows.text(column, row).unwrap_or_default().to_owned();
                let sum = sums.entry((text(key), text(value))).or_default();
                let cost = rows.int(session, row).and_then(|session| costs.get(&session)).copied().unwrap_or_default();
                sum[0] += 1;
                sum[1..].iter_mut().zip(cost).for_each(|(sum, cost)| *sum += cost);
            }
            Ok(())
        },
    )?;
    let row = |((key, value), sums): ((String, String), [i64; 4])| {
        let [traces, peak_bytes, allocated_bytes, leaked_bytes] = sums;
        LabelCost { key, value, traces, peak_bytes, allocated_bytes, leaked_bytes }
    };
    let mut rows: Vec<LabelCost> = sums.into_iter().map(row).collect();
    rows.sort_by_key(|row| Reverse(row.peak_bytes));
    Ok(rows)
}
