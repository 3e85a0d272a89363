//! Everything that the screen shows, and how keys and answers change it. Drawing is in `draw.rs`.
use crate::answer::{Answer, Chart, Data};
use crate::prompt::Prompt;
use crate::question::Question;
use crate::sheet::Place;
use crate::theme::Theme;
use crate::view::{self, Flame, FlameBox, SourceText, TreeRows};
use crate::views::ViewKind;
use crate::worker::{Info, Reply};
use ratatui::layout::Rect;
use std::cell::Cell;
use std::collections::HashMap;
use std::time::Instant;

/// What covers the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overlay {
    Help,
    Output,
}

/// What is being done for the latest question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy {
    pub(crate) since: Instant,
    pub(crate) share: f64,
}

/// Where things were drawn, for the mouse.
#[derive(Clone, Debug, Default)]
pub(crate) struct Areas {
    /// The first cell and the cell after the last one of each tab, by view.
    pub(crate) tabs: Vec<(u16, u16, ViewKind)>,
    pub(crate) tabs_y: u16,
    /// The columns of the chart, without its labels.
    pub(crate) chart: Rect,
    /// The view, without the titles of its columns.
    pub(crate) rows: Rect,
    pub(crate) boxes: Vec<FlameBox>,
}

pub(crate) struct Screen {
    pub(crate) theme: Theme,
    pub(crate) view: ViewKind,
    pub(crate) question: Question,
    pub(crate) undo: Vec<Question>,
    pub(crate) info: Option<Info>,
    pub(crate) answer: Option<Answer>,
    pub(crate) chart: Option<Chart>,
    pub(crate) busy: Option<Busy>,
    /// The share of the file that is read, until it is open.
    pub(crate) reading: Option<f64>,
    /// A sentence for the user, until the next key.
    pub(crate) message: Option<String>,
    places: HashMap<ViewKind, Place>,
    pub(crate) tree: TreeRows,
    pub(crate) flame: Flame,
    pub(crate) source: Option<SourceText>,
    /// The files of the view Source in the order in which they are listed.
    pub(crate) source_order: Vec<usize>,
    pub(crate) prompt: Option<Prompt>,
    pub(crate) overlay: Option<Overlay>,
    pub(crate) overlay_top: usize,
    /// `None`: shown if there is room.
    pub(crate) has_details: Option<bool>,
    pub(crate) has_full_names: bool,
    pub(crate) is_paused: bool,
    /// The cursor of the timeline.
    pub(crate) cursor_ns: Option<u64>,
    /// How many rows of each list the summary has room for.
    pub(crate) summary_rows: Cell<usize>,
    pub(crate) areas: Areas,
    /// The last lines that the recorded program printed.
    pub(crate) output: Vec<String>,
    /// The row of the list of files from which the file was opened.
    pub(crate) source_row: usize,
    /// The next key answers the question what happens to the recording.
    pub(crate) is_asking_to_quit: bool,
    /// Something else may have drawn on the terminal.
    pub(crate) is_stale: bool,
    /// The time at which a drag over the timeline began.
    pub(crate) drag: Option<u64>,
}

impl Screen {
    pub(crate) fn new(theme: Theme) -> Screen {
        Screen {
            theme,
            view: ViewKind::Summary,
            question: Question::default(),
            undo: Vec::new(),
            info: None,
            answer: None,
            chart: None,
            busy: None,
            reading: Some(0.0),
            message: None,
            places: HashMap::new(),
            tree: TreeRows::default(),
            flame: Flame::default(),
            source: None,
            source_order: Vec::new(),
            prompt: None,
            overlay: None,
            overlay_top: 0,
            has_details: None,
            has_full_names: false,
            is_paused: false,
            cursor_ns: None,
            summary_rows: Cell::new(5),
            areas: Areas::default(),
            output: Vec::new(),
            source_row: 0,
            is_asking_to_quit: false,
            is_stale: false,
            drag: None,
        }
    }

    pub(crate) fn place(&self) -> Place {
        self.places.get(&self.view).copied().unwrap_or_default()
    }

    pub(crate) fn place_mut(&mut self) -> &mut Place {
        self.places.entry(self.view).or_default()
    }

    /// True if the answer is about what is shown now.
    pub(crate) fn is_answered(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.view == self.view)
    }

    /// The length of the session so far.
    pub(crate) fn runtime_ns(&self) -> u64 {
        self.info.as_ref().map_or(0, |info| info.totals.runtime_ns)
    }

    /// Takes what the worker sent. Returns a sentence if the trace cannot be shown.
    pub(crate) fn take(&mut self, reply: Reply) -> Result<(), String> {
        match reply {
            Reply::Reading(share) => self.reading = Some(share),
            Reply::Info(info) => {
                self.reading = None;
                self.info = Some(*info);
            }
            Reply::Counting(share) => {
                if let Some(busy) = &mut self.busy {
                    busy.share = share;
                }
            }
            Reply::Answer(answer) => self.take_answer(*answer),
            Reply::Chart(chart) => self.chart = Some(*chart),
            Reply::Refused(sentence) => {
                self.busy = None;
                self.message = Some(sentence);
            }
            Reply::Failed(sentence) => return Err(sentence),
        }
        Ok(())
    }

    fn take_answer(&mut self, mut answer: Answer) {
        self.busy = None;
        if answer.view != self.view {
            return;
        }
        let selected = self.selected_identity();
        match &mut answer.data {
            Data::Tree(tree) => {
                self.tree.refresh(tree);
                if let Some(row) = selected.and_then(|identity| self.tree.find(tree, identity)) {
                    self.place_mut().selected = row;
                }
            }
            Data::Flame(tree) => self.flame.refresh(tree),
            Data::Source(files) => self.source_order = view::source_order(files, answer.question.cost()),
            _ => {}
        }
        self.answer = Some(answer);
        let len = view::len(self);
        self.place_mut().step(0, len);
    }

    /// The selected row of a tree, which keeps its identity when the tree is made again.
    fn selected_identity(&self) -> Option<u64> {
        let answer = self.answer.as_ref().filter(|answer| answer.view == self.view)?;
        let Data::Tree(tree) = &answer.data else { return None };
        self.tree.rows.get(self.place().selected).map(|row| tree.identity(row.node))
    }

    /// The time of a column of the chart: the end of its last slice.
    pub(crate) fn time_of_column(&self, column: u16) -> Option<u64> {
        let times = &self.chart.as_ref()?.columns.time_ns;
        let width = self.areas.chart.width.max(1) as usize;
        let slice = ((column as usize + 1) * times.len() / width).clamp(1, times.len().max(1)) - 1;
        times.get(slice).copied()
    }
}
