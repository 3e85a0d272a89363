//! `heaptrack dataset profile`: the stacks of selected traces as one pprof profile, for `heaptrack analyze DIR --where`.
//!
//! Receives: a condition. Returns: a pprof file whose numbers are the mean of a trace, so that groups of different sizes
//! can be compared, or the sums with `--sum`. A mean is rounded to the nearest whole number.
use crate::data_file::scan;
use crate::filter::Filter;
use crate::manifest::{Dataset, Partition};
use crate::out;
use crate::rows::{Rows, Texts};
use crate::schema::{FRAMES, SITES, STACKS};
use anyhow::{Context, ensure};
use clap::Parser;
use export::protobuf::Message;
use foldhash::{HashMap, HashMapExt};
use std::path::PathBuf;

/// Writes the stacks of selected traces as one profile in pprof's format.
#[derive(Debug, Parser)]
#[command(name = "heaptrack dataset profile", bin_name = "heaptrack dataset profile")]
pub struct Profile {
    /// The folder of the dataset.
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub folder: PathBuf,
    /// The traces, such as "service='shop' and version='1.5'". Without it, all.
    #[arg(long = "where", default_value = "", hide_default_value = true, value_name = "WHERE")]
    pub condition: String,
    /// The file to write.
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub output: PathBuf,
    /// Write sums over all traces instead of the mean of a trace.
    #[arg(long)]
    pub sum: bool,
}

/// The values of a sample: pprof's name, its unit, and the columns that are added up for it.
const VALUES: [(&str, &str, &[&str]); 7] = [
    ("alloc_objects", "count", &["allocations"]),
    ("alloc_space", "bytes", &["allocated_bytes"]),
    ("temporary_objects", "count", &["temporary"]),
    ("inuse_objects", "count", &["leaked_allocations", "suppressed_allocations"]),
    ("inuse_space", "bytes", &["leaked_bytes", "suppressed_bytes"]),
    ("peak_objects", "count", &["peak_allocations"]),
    ("peak_space", "bytes", &["peak_bytes"]),
];

type Sums = HashMap<i64, [i64; VALUES.len()]>;

pub fn run(options: &Profile) -> anyhow::Result<()> {
    let dataset = Dataset::open(&options.folder)?;
    let filter = Filter::parse(&options.condition)?;
    let sessions = filter.sessions(&dataset)?;
    ensure!(!sessions.is_empty(), "no trace has {filter}");
    let mut sums = sums(&dataset, &filter, &sessions)?;
    if !options.sum {
        let count = sessions.len() as i64;
        sums.values_mut().flatten().for_each(|value| *value = (*value + count / 2) / count);
    }
    let stacks = stacks(&dataset, &sums)?;
    let what = if options.sum { "sums of" } else { "the mean of" };
    let title = format!("{what} {} traces: {filter}", sessions.len());
    let bytes = Writer::default().profile(&dataset, &sums, &stacks, &title)?;
    let name = options.output.display();
    std::fs::write(&options.output, bytes).with_context(|| format!("{name} cannot be written"))?;
    out(&format!("{name}: {title}\n"))
}

fn sums(dataset: &Dataset, filter: &Filter, sessions: &HashMap<i64, u32>) -> anyhow::Result<Sums> {
    let mut names = vec!["session", "stack"];
    VALUES.iter().for_each(|(.., columns)| names.extend(*columns));
    let at = |name: &str| SITES.index(name).unwrap_or(0);
    let (session, stack) = (at("session"), at("stack"));
    let columns = VALUES.map(|(.., columns)| columns.iter().map(|name| at(name)).collect::<Vec<_>>());
    let mut sums: Sums = HashMap::new();
    scan(
        dataset,
        &SITES,
        &names,
        |partition: &Partition| filter.may_have(partition),
        |_, rows| {
            for row in 0..rows.len() {
                if !rows.int(session, row).is_some_and(|session| sessions.contains_key(&session)) {
                    continue;
                }
                let sum = sums.entry(rows.int(stack, row).unwrap_or(0)).or_default();
                for (sum, columns) in sum.iter_mut().zip(&columns) {
                    *sum += columns.iter().filter_map(|column| rows.int(*column, row)).sum::<i64>();
                }
            }
            Ok(())
        },
    )?;
    Ok(sums)
}

/// The frames of each wanted stack, the innermost first.
fn stacks(dataset: &Dataset, sums: &Sums) -> anyhow::Result<HashMap<i64, Vec<i64>>> {
    let mut stacks: HashMap<i64, Vec<i64>> = HashMap::new();
    scan(
        dataset,
        &STACKS,
        &["stack", "level", "frame"],
        |_| true,
        |_, rows| {
            for row in 0..rows.len() {
                let cell = |column| rows.int(column, row).unwrap_or(0);
                let (stack, level, frame) = (cell(1), cell(2), cell(3));
                if sums.contains_key(&stack) {
                    // Two batches may have the same stack. Its levels are the same, too.
                    let frames = stacks.entry(stack).or_default();
                    if usize::try_from(level) == Ok(frames.len()) {
                        frames.push(frame);
                    }
                }
            }
            Ok(())
        },
    )?;
    Ok(stacks)
}

#[derive(Default)]
struct Writer {
    texts: Texts,
    message: Message,
}

impl Writer {
    fn text(&mut self, text: &str) -> u64 {
        u64::from(self.texts.number(text))
    }

    fn profile(
        mut self,
        dataset: &Dataset,
        sums: &Sums,
        stacks: &HashMap<i64, Vec<i64>>,
        title: &str,
    ) -> anyhow::Result<Vec<u8>> {
        self.text("");
        for (name, unit, _) in VALUES {
            let value = self.value_type(name, unit);
            self.message.message(1, &value);
        }
        let mut numbers: HashMap<i64, u64> = HashMap::new();
        let mut order: Vec<&i64> = sums.keys().collect();
        order.sort_unstable();
        for stack in order {
            let frames = stacks.get(stack).map_or(&[][..], Vec::as_slice);
            let next = |frame: &i64| {
                let next = numbers.len() as u64 + 1;
                *numbers.entry(*frame).or_insert(next)
            };
            let mut sample = Message::default();
            sample.numbers(1, frames.iter().map(next).collect::<Vec<_>>());
            sample.numbers(2, sums[stack].map(|value| value.max(0) as u64));
            self.message.message(2, &sample);
        }
        self.frames(dataset, &numbers)?;
        for comment in [concat!("heaptrack ", env!("CARGO_PKG_VERSION")), title] {
            let comment = self.text(comment);
            self.message.numbers(13, [comment]);
        }
        let default = self.text("peak_space");
        self.message.number(14, default);
        for number in 0..self.texts.len() as u32 {
            let text = self.texts.get(number).unwrap_or_default();
            self.message.always(6, text.as_bytes());
        }
        Ok(self.message.as_bytes().to_vec())
    }

    fn value_type(&mut self, name: &str, unit: &str) -> Message {
        let mut value = Message::default();
        value.number(1, self.text(name)).number(2, self.text(unit));
        value
    }

    /// The locations and functions of all frames that samples refer to. A frame is a location with one function.
    fn frames(&mut self, dataset: &Dataset, numbers: &HashMap<i64, u64>) -> anyhow::Result<()> {
        let columns: Vec<&str> = FRAMES.columns.iter().map(|column| column.name).collect();
        let mut is_written = vec![false; numbers.len() + 1];
        let mut modules: HashMap<String, u64> = HashMap::new();
        scan(
            dataset,
            &FRAMES,
            &columns,
            |_| true,
            |_, rows| {
                for row in 0..rows.len() {
                    let Some(&number) = rows.int(1, row).and_then(|frame| numbers.get(&frame)) else { continue };
                    if !std::mem::replace(&mut is_written[number as usize], true) {
                        self.frame(rows, row, number, &mut modules);
                    }
                }
                Ok(())
            },
        )
    }

    fn frame(&mut self, rows: &Rows, row: usize, number: u64, modules: &mut HashMap<String, u64>) {
        let at = |name: &str| FRAMES.index(name).unwrap_or(0);
        let line = rows.int(at("line"), row).unwrap_or(0).max(0) as u64;
        let module = rows.text(at("module"), row).unwrap_or_default();
        let name = rows.text(at("signature"), row).or(rows.text(at("function"), row)).unwrap_or_default();
        let file = rows.text(at("file"), row).unwrap_or_default();
        let (name, file) = (self.text(name), self.text(file));
        let mut function = Message::default();
        function.number(1, number).number(2, name).number(3, name).number(4, file);
        self.message.message(5, &function);
        let next = modules.len() as u64 + 1;
        let mapping = match modules.get(module) {
            Some(mapping) => *mapping,
            None => {
                let mut mapping = Message::default();
                let file = self.text(module);
                mapping.number(1, next).number(5, file).number(7, 1).number(8, 1).number(9, 1);
                self.message.message(3, &mapping);
                modules.insert(module.to_owned(), next);
                next
            }
        };
        let mut lines = Message::default();
        lines.number(1, number).number(2, line);
        let mut location = Message::default();
        location.number(1, number).number(2, mapping).message(4, &lines);
        self.message.message(4, &location);
    }
}
