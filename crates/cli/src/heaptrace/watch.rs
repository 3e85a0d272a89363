//! The live table: the sites with the most bytes, whether they grow, and how old they are.
//!
//! Receives: a snapshot of each process every second. Returns: a table on the terminal's alternate screen, so that the
//! old content returns at the end. Must hold: history is kept only for the sites that are shown. After `close`, the old
//! content stays until the next snapshot is shown.
use super::frame_names::Names;
use super::live_report::sorted;
use super::options::Key;
use super::units::{Age, Size};
use collector::{LiveSite, Snapshot};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Arc;

/// The number of snapshots that a sparkline shows.
const LOOKS: usize = 20;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const END_LINE: &str = "\x1b[K\r\n";
const CLEAR_REST: &str = "\x1b[J";
const ROWS: usize = 24;
const COLUMNS: usize = 80;

type History = HashMap<Arc<[u64]>, Vec<u64>>;

/// One process in the table: the sizes of its sites in the last snapshots, and its lines.
#[derive(Default)]
struct Shown {
    history: History,
    lines: Vec<String>,
}

pub struct Watch {
    is_open: bool,
    processes: BTreeMap<u32, Shown>,
}

impl Watch {
    pub fn new() -> Self {
        Watch { is_open: false, processes: BTreeMap::new() }
    }

    pub fn show(&mut self, snapshot: &Snapshot, name: &str, names: &mut Names) {
        let (rows, columns) = size();
        let shown = self.processes.entry(snapshot.pid).or_default();
        let top: Vec<&LiveSite> = sorted(&snapshot.sites, Key::Size).into_iter().take(rows).collect();
        names.learn(top.iter().flat_map(|site| site.frames.iter().copied()), &snapshot.modules);
        shown.remember(&top);
        shown.lines =
            vec![head(snapshot, name), "      SIZE  CHANGE    COUNT         AGE  LAST 20 LOOKS         SITE".into()];
        for site in &top {
            shown.lines.push(row(site, snapshot.time_ns, &shown.history, names));
        }
        self.draw(rows, columns);
    }

    fn draw(&mut self, rows: usize, columns: usize) {
        let mut out = String::new();
        if !self.is_open {
            out.push_str(ENTER);
            self.is_open = true;
        }
        out.push_str(HOME);
        // The rows of the screen are divided between the processes.
        let share = (rows.saturating_sub(1) / self.processes.len().max(1)).max(1);
        let lines = self.processes.values().flat_map(|shown| shown.lines.iter().take(share));
        for line in lines.take(rows.saturating_sub(1)) {
            out.extend(line.chars().take(columns));
            out.push_str(END_LINE);
        }
        out.push_str(CLEAR_REST);
        let _ = std::io::stderr().write_all(out.as_bytes());
    }

    /// Restores the screen.
    pub fn close(&mut self) {
        if self.is_open {
            self.is_open = false;
            self.processes.clear();
            let _ = std::io::stderr().write_all(LEAVE.as_bytes());
        }
    }
}

impl Shown {
    fn remember(&mut self, top: &[&LiveSite]) {
        let mut history = History::new();
        for site in top {
            let mut sizes = self.history.remove(&site.frames).unwrap_or_default();
            sizes.push(site.bytes);
            let excess = sizes.len().saturating_sub(LOOKS);
            sizes.drain(..excess);
            history.insert(Arc::clone(&site.frames), sizes);
        }
        self.history = history;
    }
}

fn head(snapshot: &Snapshot, name: &str) -> String {
    let live: u64 = snapshot.sites.iter().map(|site| site.bytes).sum();
    format!(
        "heaptrace {name} ({}): {} live in {} sites, peak {}, RSS {}, {}",
        snapshot.pid,
        Size(live),
        snapshot.sites.len(),
        Size(snapshot.totals.peak_bytes),
        Size(snapshot.memory.resident),
        Age(snapshot.time_ns),
    )
}

fn row(site: &LiveSite, now_ns: u64, history: &History, names: &Names) -> String {
    let sizes = history.get(&site.frames).map(Vec::as_slice).unwrap_or_default();
    let before = sizes.len().checked_sub(2).and_then(|at| sizes.get(at)).copied().unwrap_or(site.bytes);
    let change = match site.bytes.cmp(&before) {
        std::cmp::Ordering::Greater => "grows",
        std::cmp::Ordering::Less => "shrinks",
        std::cmp::Ordering::Equal => "",
    };
    let mut out = format!("{:>10}  {change:<7} {:>7}", Size(site.bytes).to_string(), site.count);
    let age = Age(now_ns.saturating_sub(site.oldest_ns)).to_string();
    let _ = write!(out, " {age:>12}  {:<LOOKS$}  {}", sparkline(sizes), title(site, names));
    out
}

fn sparkline(sizes: &[u64]) -> String {
    let most = sizes.iter().copied().max().unwrap_or(0).max(1);
    let bar = |size: &u64| BARS.get((*size as u128 * 7 / most as u128) as usize).copied().unwrap_or(' ');
    sizes.iter().map(bar).collect()
}

/// Returns the first five functions of the backtrace, innermost first.
fn title(site: &LiveSite, names: &Names) -> String {
    if site.is_other {
        return "other (too many stacks)".to_owned();
    }
    let named = |frame: &u64| {
        let named = names.get(*frame);
        let names: Vec<String> = named.levels.iter().filter_map(|level| level.short.clone()).collect();
        if names.is_empty() { vec![format!("0x{:x}", named.address)] } else { names }
    };
    site.frames.iter().flat_map(named).take(5).collect::<Vec<_>>().join(" < ")
}

fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(std::io::stderr()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row as usize, size.ws_col as usize),
        _ => (ROWS, COLUMNS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_has_a_bar_for_each_look() {
        assert_eq!(sparkline(&[0, 50, 100]), "▁▄█");
        assert_eq!(sparkline(&[]), "");
        assert_eq!(sparkline(&[0]), "▁");
    }
}
