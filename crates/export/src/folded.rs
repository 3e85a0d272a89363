//! Folded stacks: lines `outermost;...;innermost cost`, as flame graph tools read them.
//!
//! Receives: a report and a cost. Returns: rows, and a line for each. Must hold: rows with the same levels are one; a
//! level contains no `;` and no line feed; costs of zero have no row. The callers of `main` and of other start
//! functions are left out, because they are the same in all programs.
use analysis::{Costs, Level, Report};
use format::{Frame, KdeFileKind};
use std::collections::HashMap;
use std::io::{self, Write};

/// Callers of these functions are not shown.
const OUTERMOST: [&str; 3] = ["main", "__libc_start_main", "__static_initialization_and_destruction_0"];

/// A stack for people, the outermost level first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub levels: Vec<String>,
    pub cost: u64,
}

/// Returns the rows in the order of their first stack.
pub fn rows(report: &Report, cost: impl Fn(&Costs) -> u64) -> Vec<Row> {
    rows_of(report, cost, |levels| levels.collect())
}

/// Like `rows`, with the levels that `shown` returns for each stack. `shown` receives all levels, innermost first.
pub fn rows_of<'a>(
    report: &'a Report,
    cost: impl Fn(&Costs) -> u64,
    shown: impl Fn(&mut dyn Iterator<Item = Level<'a>>) -> Vec<Level<'a>>,
) -> Vec<Row> {
    // A file of KDE's that is not raw contains addresses in memory, not offsets in a module.
    let is_absolute = matches!(report.session.kde(), Some(KdeFileKind::Interpreted | KdeFileKind::Old));
    let mut rows: Vec<Row> = Vec::new();
    let mut known: HashMap<Vec<String>, usize> = HashMap::new();
    for site in &report.sites {
        let cost = cost(&site.costs);
        if cost == 0 {
            continue;
        }
        let levels = levels(report, site.stack, is_absolute, &shown);
        match known.get(&levels).and_then(|place| rows.get_mut(*place)) {
            Some(row) => row.cost = row.cost.saturating_add(cost),
            None => {
                known.insert(levels.clone(), rows.len());
                rows.push(Row { levels, cost });
            }
        }
    }
    rows
}

pub fn write(rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    for row in rows {
        writeln!(out, "{} {}", row.levels.join(";"), row.cost)?;
    }
    Ok(())
}

fn levels<'a>(
    report: &'a Report,
    stack: u32,
    is_absolute: bool,
    shown: &impl Fn(&mut dyn Iterator<Item = Level<'a>>) -> Vec<Level<'a>>,
) -> Vec<String> {
    let mut is_over = false;
    let mut of_interest = report.levels(stack).take_while(|level| {
        let was_over = is_over;
        is_over = level.function.is_some_and(|function| OUTERMOST.contains(&function));
        !was_over
    });
    let mut levels: Vec<String> = shown(&mut of_interest).iter().map(|level| name(level, is_absolute)).collect();
    if levels.is_empty() {
        levels.push("??".into());
    }
    levels.reverse();
    levels
}

/// Returns `function (file)`. If there is no name, an address or `module+offset` replaces it.
fn name(level: &Level<'_>, is_absolute: bool) -> String {
    let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let function = match (level.function, level.module) {
        _ if level.frame == Frame::CUT => "[frames left out]".to_owned(),
        _ if level.frame.is_marker() => "[damaged]".to_owned(),
        (Some(function), _) => function.to_owned(),
        (None, Some(module)) if !is_absolute => format!("{}+{:#x}", base(module), level.frame.offset()),
        (None, _) => format!("{:#x}", level.frame.offset()),
    };
    let whole = match level.file {
        Some(file) => format!("{function} ({})", base(file)),
        None => function,
    };
    whole.replace(';', ":").replace(['\n', '\r'], " ")
}
