//! Which options heaptrack applies to which output and which it refuses, from the table of docs/views.md. A unit test
//! of `crates/cli` keeps that table equal to the one in the code.
use super::query::{Base, Merge, Query, When};
use super::trace::Trace;
use crate::targets::workspace;
use std::path::Path;

/// The costs that an instant has.
const OF_AN_INSTANT: [&str; 2] = ["live", "leaked"];

/// Options that are refused only if they apply to no output of a command.
const ABOUT_ONE_OUTPUT: [&str; 2] = ["suppressions", "cost"];

/// Each option of `print` with the outputs to which it applies, as readable text.
pub struct Support {
    rows: Vec<(String, String)>,
}

/// The option of `print` for a parameter of a query.
fn option(word: &str) -> &str {
    if word == "suppressions" { "no-suppressions" } else { word }
}

/// The views in a list of outputs. `None` if the list has all views.
fn views(places: &str) -> Option<&str> {
    if places.contains("every --view") { None } else { Some(places.split("--view ").nth(1).unwrap_or("")) }
}

impl Support {
    pub fn read() -> Self {
        let page = std::fs::read_to_string(workspace().join("docs/views.md")).expect("docs/views.md");
        let table = page.split("<!-- options -->\n").nth(1).expect("the table of options");
        let mut rows = Vec::new();
        for line in table.lines().skip(2).take_while(|line| !line.is_empty()) {
            let (options, places) = line.trim_matches('|').split_once(" | ").expect("two columns");
            let options = options.split(", ").map(|option| option.trim().trim_matches('`').trim_start_matches("--"));
            rows.extend(options.map(|option| (option.to_owned(), places.trim().to_owned())));
        }
        Support { rows }
    }

    fn places(&self, option: &str) -> &str {
        let row = self.rows.iter().find(|(name, _)| name == option);
        row.map(|(_, places)| places.as_str())
            .unwrap_or_else(|| panic!("docs/views.md does not say where --{option} applies"))
    }

    /// Whether an option applies to `output`, which is named as in the table: `the text report`, `--json`, `folded
    /// stacks (-F)`, `--view flame`.
    pub fn has(&self, option: &str, output: &str) -> bool {
        let places = self.places(option);
        match output.strip_prefix("--view ") {
            None => places.split(", ").any(|place| place == output),
            Some(view) => views(places).is_none_or(|views| views.split(", ").any(|name| name == view)),
        }
    }

    /// The query without the parameters for which a command with these outputs is refused.
    pub fn fit(&self, query: Query, outputs: &[&str]) -> Query {
        let mut query = query;
        for (word, _) in query.words() {
            let mut heeding = outputs.iter().map(|output| self.has(option(word), output));
            let is_heeded =
                if ABOUT_ONE_OUTPUT.contains(&word) { heeding.any(|yes| yes) } else { heeding.all(|yes| yes) };
            if !is_heeded {
                query.forget(word);
            }
        }
        if outputs == ["--view diff"] && !query.by_function {
            query.hide.clear();
        }
        query.cost = query.cost.filter(|cost| !query.is_of_an_instant() || OF_AN_INSTANT.contains(cost));
        query
    }

    /// The sentences with which `print` must refuse the query; it may print any one of them. If the list is empty,
    /// `print` must answer.
    pub fn refusals_of_print(&self, query: &Query, output: &str, trace: &Trace, file: &Path) -> Vec<String> {
        let ignored = query.words().into_iter().map(|(word, _)| option(word)).filter(|name| !self.has(name, output));
        let sentence = |name| format!("--{name} changes nothing in {output}; it is for {}", self.places(name));
        let mut all: Vec<String> = ignored.map(sentence).collect();
        if output == "--view diff" && !query.by_function && !query.hide.is_empty() {
            all.push("--hide changes nothing in --view diff without --by function".into());
        }
        all.extend(query.cost_of_no_instant().map(|(cost, why)| format!("--cost {cost}: {why}")));
        all.extend(query.late(trace).map(|(name, value, why)| format!("--{name} {value} {why} ({})", file.display())));
        all
    }

    /// The same for the page's server. If a time is not in the trace, the server answers with a note instead of a
    /// refusal.
    pub fn refusals_of_server(&self, query: &Query, view: &str) -> Vec<String> {
        let output = format!("--view {view}");
        let ignored = query.words().into_iter().filter(|(word, _)| !self.has(option(word), &output));
        let mut all: Vec<String> = ignored
            .map(|(word, value)| {
                let others = views(self.places(option(word))).expect("a view that does not heed it");
                format!("`{word}={value}` changes nothing in the view `{view}`; it is for {others}")
            })
            .collect();
        if view == "diff" && !query.by_function && !query.hide.is_empty() {
            all.push("`hide` changes a diff only with `by=function`".into());
        }
        all.extend(query.cost_of_no_instant().map(|(cost, why)| format!("`cost={cost}`: {why}")));
        all
    }
}

impl Query {
    /// True for `--at T` and `--compare @T`.
    pub fn is_of_an_instant(&self) -> bool {
        self.at.is_some() || matches!(self.compare, Some(Base::At(_)))
    }

    /// A cost that an instant does not have, and the refusal for it.
    fn cost_of_no_instant(&self) -> Option<(&'static str, &'static str)> {
        let cost = self.cost.filter(|cost| self.is_of_an_instant() && !OF_AN_INSTANT.contains(cost))?;
        Some((cost, "of one instant only `live` and `leaked` are known; ask for a range instead"))
    }

    /// The first time that is after the end of the trace: the parameter, its value, and the refusal for it.
    pub fn late(&self, trace: &Trace) -> Option<(&'static str, String, String)> {
        let is_late = |when: &When| matches!(when, When::Ns(ns) if *ns > trace.runtime_ns);
        let name = match self.compare {
            _ if self.at.as_ref().is_some_and(is_late) => "at",
            _ if self.from.as_ref().is_some_and(is_late) => "from",
            Some(Base::At(when)) if is_late(&when) => "compare",
            Some(Base::Range(from, to)) if is_late(&from) || is_late(&to) => "compare",
            _ => return None,
        };
        let value = self.words().into_iter().find(|(word, _)| *word == name).expect("a word").1;
        let seconds = trace.runtime_ns as f64 / 1e9;
        let length = if seconds < 1.0 { format!("{:.1} ms", seconds * 1e3) } else { format!("{seconds:.3} s") };
        Some((name, value, format!("is after the end of the trace, which is {length} long")))
    }

    fn forget(&mut self, word: &str) {
        match word {
            "wrapper" => self.wrappers.clear(),
            "not-wrapper" => self.not_wrappers.clear(),
            "hide" => self.hide.clear(),
            "collapse" => self.collapse = false,
            "merge" => self.merge = Merge::Function,
            "cost" => self.cost = None,
            "compare" => self.compare = None,
            "by" => self.by_function = false,
            "function" => self.function = None,
            "depth" => self.depth = 0,
            "points" => self.points = 0,
            "top" => self.top = None,
            "at" => self.at = None,
            other => panic!("every output heeds `{other}`"),
        }
    }
}
