//! The loop: waits for keys, signals and answers, changes the screen, and draws it.
use crate::answer::Data;
use crate::draw;
use crate::happenings::{Happening, Happenings};
use crate::keys::{self, Action};
use crate::prompt::{Prompt, Purpose, Typed};
use crate::question::{Levels, Question, Time, measures};
use crate::screen::{Busy, Overlay, Screen};
use crate::terminal::Terminal;
use crate::theme::Theme;
use crate::view::{self, MemoryRow, Step};
use crate::views::{VIEWS, ViewKind};
use crate::worker::Worker;
use crate::{Ending, Options, Quit, Recording};
use analysis::When;
use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGCONT, SIGTSTP};
use std::io;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// The time between two looks at what changes without a key: the progress, and the output of the program.
const TICK: Duration = Duration::from_millis(250);

/// The most questions that can be undone.
const MOST_UNDO: usize = 100;

/// Whether the loop goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    GoOn,
    Suspend,
    End(Ending),
}

pub(crate) struct App<'a> {
    pub(crate) screen: Screen,
    worker: Worker,
    recording: Option<&'a mut dyn Recording>,
}

/// Shows the trace until the user quits. The error is a sentence.
pub(crate) fn run(options: Options, recording: Option<&mut dyn Recording>) -> Result<Ending, String> {
    let cannot = |error: io::Error| {
        let reason = error.to_string();
        format!("the terminal cannot be used: {}", reason.split(" (os error").next().unwrap_or(&reason))
    };
    let happenings = Happenings::start().map_err(cannot)?;
    let mut terminal = Terminal::open(options.has_mouse).map_err(cannot)?;
    happenings.read_input().map_err(cannot)?;
    let worker = Worker::start(options.settings, happenings.replies()).map_err(cannot)?;
    let mut screen = Screen::new(Theme::of_environment());
    if let Some(base) = options.compare {
        screen.question.compare = Some(base);
        screen.view = ViewKind::Compare;
    }
    let mut app = App { screen, worker, recording };
    app.ask();
    loop {
        app.look_at_recording();
        terminal.draw(|frame| draw::draw(frame, &mut app.screen)).map_err(cannot)?;
        match app.wait(&happenings)? {
            Flow::GoOn => {}
            Flow::Suspend => terminal.suspend().map_err(cannot)?,
            Flow::End(ending) => return Ok(ending),
        }
        if !terminal.is_there() {
            return Ok(Ending::Signal(signal_hook::consts::SIGHUP));
        }
        if std::mem::take(&mut app.screen.is_stale) {
            terminal.resume().map_err(cannot)?;
        }
    }
}

impl App<'_> {
    /// Takes everything that has happened, and waits if nothing has.
    fn wait(&mut self, happenings: &Happenings) -> Result<Flow, String> {
        let mut next = match happenings.receiver.recv_timeout(TICK) {
            Ok(happening) => Some(happening),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Ok(Flow::End(Ending::Quit)),
        };
        while let Some(happening) = next {
            match self.take(happening)? {
                Flow::GoOn => {}
                other => return Ok(other),
            }
            next = happenings.receiver.try_recv().ok();
        }
        Ok(Flow::GoOn)
    }

    fn take(&mut self, happening: Happening) -> Result<Flow, String> {
        Ok(match happening {
            Happening::Reply(reply) => {
                self.screen.take(reply)?;
                Flow::GoOn
            }
            Happening::Signal(SIGTSTP) => Flow::Suspend,
            Happening::Signal(SIGCONT) => {
                self.screen.is_stale = true;
                Flow::GoOn
            }
            Happening::Signal(signal) => Flow::End(Ending::Signal(signal)),
            Happening::NoInput => Flow::End(Ending::Signal(signal_hook::consts::SIGHUP)),
            Happening::Input(Event::Key(key)) if key.kind != KeyEventKind::Release => self.keys(key),
            Happening::Input(Event::Mouse(mouse)) => {
                self.mouse(mouse);
                Flow::GoOn
            }
            Happening::Input(_) => Flow::GoOn,
        })
    }

    /// Sends the question that the screen now has.
    pub(crate) fn ask(&mut self) {
        self.screen.busy = Some(Busy { since: Instant::now(), share: 0.0 });
        self.worker.ask(self.screen.view, self.screen.question.clone());
    }

    fn look_at_recording(&mut self) {
        if let Some(recording) = &mut self.recording
            && (self.screen.overlay == Some(Overlay::Output) || self.screen.output.is_empty())
        {
            self.screen.output = recording.output();
        }
    }

    /// A terminal sends Esc and a key that follows soon as if Alt were held. Nothing here needs Alt, so it is those two.
    fn keys(&mut self, mut key: KeyEvent) -> Flow {
        if key.modifiers.contains(KeyModifiers::ALT) {
            key.modifiers.remove(KeyModifiers::ALT);
            let _ = self.key(&KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE));
        }
        self.key(&key)
    }

    fn key(&mut self, key: &KeyEvent) -> Flow {
        if self.screen.prompt.is_some() {
            self.type_key(key);
            return Flow::GoOn;
        }
        if std::mem::take(&mut self.screen.is_asking_to_quit) {
            return self.quit_key(key);
        }
        self.screen.message = None;
        match keys::find(key) {
            Some(action) => self.act(action),
            None => Flow::GoOn,
        }
    }

    /// Quits at once, unless the program that is recorded still runs. Then the user is asked what happens to it.
    fn quit(&mut self) -> Flow {
        let question = self.recording.as_mut().and_then(|recording| recording.question());
        match question {
            None => Flow::End(Ending::Quit),
            Some(question) => {
                self.screen.message = Some(question);
                self.screen.is_asking_to_quit = true;
                Flow::GoOn
            }
        }
    }

    fn quit_key(&mut self, key: &KeyEvent) -> Flow {
        self.screen.message = None;
        let KeyCode::Char(letter) = key.code else { return Flow::GoOn };
        match self.recording.as_mut().map(|recording| recording.answer(letter)) {
            Some(Quit::Now) => Flow::End(Ending::Quit),
            Some(Quit::Stay) | None => Flow::GoOn,
        }
    }

    pub(crate) fn act(&mut self, action: Action) -> Flow {
        if self.screen.overlay.is_some() && self.act_on_overlay(action) {
            return Flow::GoOn;
        }
        match action {
            Action::Quit => return self.quit(),
            Action::Suspend => return Flow::Suspend,
            Action::Help => self.open_overlay(Overlay::Help),
            Action::Output => match self.recording.is_some() {
                true => self.open_overlay(Overlay::Output),
                false => {
                    self.screen.message =
                        Some("No program is recorded here: `heaptrack --tui PROGRAM` shows what it prints.".into())
                }
            },
            Action::Show(view) => self.show(view),
            Action::NextView => self.show(self.screen.view.step(1)),
            Action::PreviousView => self.show(self.screen.view.step(VIEWS.len() - 1)),
            Action::Up => self.step(-1),
            Action::Down => self.step(1),
            Action::PageUp => self.step(-(self.screen.areas.rows.height.max(2) as isize - 1)),
            Action::PageDown => self.step(self.screen.areas.rows.height.max(2) as isize - 1),
            Action::First => self.step(isize::MIN / 2),
            Action::Last => self.step(isize::MAX / 2),
            Action::Left => self.left(),
            Action::Right => self.right(),
            Action::Open => self.open(),
            Action::Path => self.expand_path(),
            Action::NextCost => self.change_cost(1),
            Action::PreviousCost => self.change_cost(measures(self.screen.question.mode()).len() - 1),
            Action::MyCode => self.change(|question, is_mine| {
                question.levels = if is_mine { Levels::All } else { Levels::Mine };
            }),
            Action::Include => self.screen.prompt = Some(Prompt::new(Purpose::Include)),
            Action::Exclude => self.screen.prompt = Some(Prompt::new(Purpose::Exclude)),
            Action::Moment => self.screen.prompt = Some(Prompt::new(Purpose::Time)),
            Action::Compare => self.screen.prompt = Some(Prompt::new(Purpose::Compare)),
            Action::ShowOnly => self.filter_row(false),
            Action::ExcludeThis => self.filter_row(true),
            Action::Wrapper => self.treat_as_allocator(),
            Action::Undo => self.undo(),
            Action::Clear => self.change(|question, _| {
                *question = Question { cost: question.cost, levels: question.levels, ..Question::default() };
            }),
            Action::AtPeak => self.change(|question, _| question.time = Time::At("peak".into())),
            Action::CursorLeft => self.move_cursor(-1),
            Action::CursorRight => self.move_cursor(1),
            Action::MarkFrom => self.mark(true),
            Action::MarkTo => self.mark(false),
            Action::Pause => self.pause(),
            Action::SinceNow => self.since_now(),
            Action::Details => {
                let is_shown = self.screen.has_details.unwrap_or(false);
                self.screen.has_details = Some(!is_shown);
            }
            Action::FullNames => self.screen.has_full_names = !self.screen.has_full_names,
            Action::Cancel => self.cancel(),
        }
        Flow::GoOn
    }

    fn open_overlay(&mut self, overlay: Overlay) {
        let is_open = self.screen.overlay == Some(overlay);
        self.screen.overlay = if is_open { None } else { Some(overlay) };
        // What a program printed last is the most interesting part.
        self.screen.overlay_top = if overlay == Overlay::Output { usize::MAX } else { 0 };
    }

    /// Returns true if the action was for what covers the view.
    fn act_on_overlay(&mut self, action: Action) -> bool {
        let page = self.screen.areas.rows.height.max(2) as usize;
        let top = &mut self.screen.overlay_top;
        match action {
            Action::Up => *top = top.saturating_sub(1),
            Action::Down => *top = top.saturating_add(1),
            Action::PageUp => *top = top.saturating_sub(page),
            Action::PageDown => *top = top.saturating_add(page),
            Action::First => *top = 0,
            Action::Last => *top = usize::MAX,
            Action::Cancel => self.screen.overlay = None,
            Action::Help | Action::Output | Action::Quit | Action::Suspend => return false,
            _ => {
                self.screen.overlay = None;
                return false;
            }
        }
        true
    }

    pub(crate) fn show(&mut self, view: ViewKind) {
        if self.screen.view != view {
            self.screen.view = view;
            self.ask();
        }
    }

    /// Changes the question, so that the change can be undone. `change` also gets whether only the user's own code is
    /// shown.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Question, bool)) {
        let is_mine = self.screen.answer.as_ref().is_some_and(|answer| answer.is_mine);
        let mut question = self.screen.question.clone();
        change(&mut question, is_mine);
        if question == self.screen.question {
            return;
        }
        self.screen.undo.push(std::mem::replace(&mut self.screen.question, question));
        if self.screen.undo.len() > MOST_UNDO {
            self.screen.undo.remove(0);
        }
        self.ask();
    }

    fn undo(&mut self) {
        match self.screen.undo.pop() {
            Some(question) => {
                self.screen.question = question;
                self.ask();
            }
            None => self.screen.message = Some("Nothing to undo.".into()),
        }
    }

    /// The measure is not undone: the key that chooses it also goes back.
    fn change_cost(&mut self, by: usize) {
        self.screen.question.step_cost(by);
        self.ask();
    }

    fn filter_row(&mut self, is_excluded: bool) {
        let row = self.screen.place().selected;
        match view::only(&self.screen, row) {
            Some(("include", pattern)) if is_excluded => self.change(|question, _| question.add("exclude", pattern)),
            Some(_) if is_excluded => self.screen.message = Some("Only a function or a file can be excluded.".into()),
            Some((word, value)) => self.change(|question, _| question.add(word, value)),
            None => self.screen.message = Some("This row has no name to filter by.".into()),
        }
    }

    /// The function of the row counts as a part of the allocator from now on.
    fn treat_as_allocator(&mut self) {
        let pattern = view::only(&self.screen, self.screen.place().selected);
        let name = pattern.and_then(|(_, pattern)| pattern.strip_prefix("function:").map(str::to_owned));
        match name {
            Some(name) => self.change(|question, _| question.add("wrapper", name)),
            None => self.screen.message = Some("This row has no function.".into()),
        }
    }

    /// Sets the beginning or the end of the range to the cursor.
    fn mark(&mut self, is_from: bool) {
        let Some(ns) = self.screen.cursor_ns else {
            self.screen.message = Some("Move the cursor of the timeline first, with < and >.".into());
            return;
        };
        self.change(|question, _| {
            let (from, to) = match &question.time {
                Time::Range { from, to } => (from.clone(), to.clone()),
                _ => (None, None),
            };
            let ns = Some(format!("{ns}ns"));
            question.time = if is_from { Time::Range { from: ns, to } } else { Time::Range { from, to: ns } };
        });
    }

    fn move_cursor(&mut self, by: i64) {
        let width = self.screen.areas.chart.width.max(1) as i64;
        let now = match self.screen.cursor_ns {
            Some(ns) => {
                let runtime = self.screen.runtime_ns().max(1);
                (ns as u128 * width as u128 / runtime as u128) as i64 + by
            }
            None => width / 2,
        };
        self.screen.cursor_ns = self.screen.time_of_column(now.clamp(0, width - 1) as u16);
    }

    fn pause(&mut self) {
        if !self.screen.info.as_ref().is_some_and(|info| info.is_live) {
            self.screen.message = Some("The recording is over: nothing to pause.".into());
            return;
        }
        self.screen.is_paused = !self.screen.is_paused;
        self.worker.pause(self.screen.is_paused);
    }

    fn since_now(&mut self) {
        if !self.screen.info.as_ref().is_some_and(|info| info.is_live) {
            self.screen.message = Some("The recording is over: nothing comes after now.".into());
            return;
        }
        let now = self.screen.runtime_ns();
        self.change(|question, _| question.time = Time::Range { from: Some(format!("{now}ns")), to: None });
    }

    /// Closes what is open, one thing at a time.
    fn cancel(&mut self) {
        if self.screen.busy.take().is_some() {
            self.worker.cancel();
        } else if self.screen.view == ViewKind::Flame && self.screen.flame.zoom > 0 {
            self.screen.flame.zoom -= 1;
        } else if self.screen.view == ViewKind::Source && self.screen.source.is_some() {
            self.close_source();
        } else {
            self.screen.cursor_ns = None;
        }
    }

    fn type_key(&mut self, key: &KeyEvent) {
        let Some(prompt) = &mut self.screen.prompt else { return };
        let text = match prompt.key(key) {
            Typed::More => return,
            Typed::Cancelled => {
                self.screen.prompt = None;
                return;
            }
            Typed::Given(text) => text,
        };
        let purpose = prompt.purpose;
        let mut question = self.screen.question.clone();
        let checked = put(&mut question, purpose, text);
        let checked = checked.and_then(|()| {
            question.query(false).and_then(|_| question.difference()).map(drop).map_err(|bad| bad.to_string())
        });
        match checked {
            Ok(()) => {
                self.screen.prompt = None;
                if purpose == Purpose::Compare {
                    self.screen.view = ViewKind::Compare;
                }
                self.change(|old, _| *old = question);
            }
            Err(sentence) => prompt.error = Some(sentence),
        }
    }
}

/// Puts what the user typed into the question. The error is a sentence.
fn put(question: &mut Question, purpose: Purpose, text: String) -> Result<(), String> {
    match purpose {
        Purpose::Include => question.add("include", text),
        Purpose::Exclude => question.add("exclude", text),
        Purpose::Compare if text.starts_with('@') => question.compare = Some(text),
        Purpose::Compare => {
            heaptrack_trace::open_without_names(std::path::Path::new(&text)).map_err(|error| {
                let reason = error.to_string();
                format!("{text} cannot be read: {}", reason.split(" (os error").next().unwrap_or(&reason))
            })?;
            question.compare = Some(text);
        }
        Purpose::Time => {
            let is_time = |text: &str| match When::parse(text.trim()) {
                Some(_) => Ok(Some(text.trim().to_owned())),
                None => Err(format!("`{text}` is {}", analysis::NOT_A_TIME)),
            };
            let end = |text: &str| if text.trim().is_empty() { Ok(None) } else { is_time(text) };
            question.time = match text.split_once("..") {
                Some((from, to)) => Time::Range { from: end(from)?, to: end(to)? },
                None => Time::At(is_time(&text)?.unwrap_or_default()),
            };
        }
    }
    Ok(())
}

impl App<'_> {
    fn step(&mut self, by: isize) {
        if self.screen.view == ViewKind::Flame && by.abs() == 1 {
            let direction = if by < 0 { Step::Up } else { Step::Down };
            self.screen.flame.step(&self.screen.areas.boxes, direction);
            return;
        }
        let len = view::len(&self.screen);
        self.screen.place_mut().step(by, len);
    }

    /// The row that is selected in a tree, and whether it is open.
    fn tree_row(&self) -> Option<(usize, u64, bool)> {
        let answer = self.screen.answer.as_ref().filter(|answer| answer.view == self.screen.view)?;
        let Data::Tree(tree) = &answer.data else { return None };
        let row = self.screen.place().selected;
        let identity = tree.identity(self.screen.tree.rows.get(row)?.node);
        Some((row, identity, self.screen.tree.open.contains(&identity)))
    }

    fn refresh_tree(&mut self) {
        let Screen { answer, tree, .. } = &mut self.screen;
        if let Some(Data::Tree(data)) = answer.as_mut().map(|answer| &mut answer.data) {
            tree.refresh(data);
        }
    }

    fn left(&mut self) {
        if self.screen.view == ViewKind::Flame {
            self.screen.flame.step(&self.screen.areas.boxes, Step::Left);
        } else if self.screen.view == ViewKind::Source {
            self.close_source();
        } else if let Some((row, identity, is_open)) = self.tree_row() {
            if is_open {
                self.screen.tree.open.remove(&identity);
                self.refresh_tree();
            } else if let Some(parent) = self.screen.tree.parent(row) {
                self.screen.place_mut().selected = parent;
            }
        }
    }

    fn right(&mut self) {
        if self.screen.view == ViewKind::Flame {
            self.screen.flame.step(&self.screen.areas.boxes, Step::Right);
        } else if let Some((_, identity, is_open)) = self.tree_row() {
            if is_open {
                self.step(1);
            } else {
                self.screen.tree.open.insert(identity);
                self.refresh_tree();
            }
        } else {
            self.open();
        }
    }

    /// Opens the selected row. In views without anything below a row, shows its details.
    pub(crate) fn open(&mut self) {
        if let Some((_, identity, is_open)) = self.tree_row() {
            match is_open {
                true => self.screen.tree.open.remove(&identity),
                false => self.screen.tree.open.insert(identity),
            };
            self.refresh_tree();
            return;
        }
        match self.screen.view {
            ViewKind::Flame => self.screen.flame.zoom = self.screen.flame.selected.len(),
            ViewKind::Source if self.screen.source.is_none() => self.open_source(),
            ViewKind::Summary => self.open_summary(),
            ViewKind::Threads | ViewKind::Processes | ViewKind::Sizes | ViewKind::Lifetimes => {
                self.filter_row(false);
                self.show(ViewKind::Mine);
            }
            ViewKind::Memory => self.open_memory(),
            _ => self.screen.has_details = Some(true),
        }
    }

    /// Shows the parts of an instant, or the callers of the blocks that were live then.
    fn open_memory(&mut self) {
        match view::memory_row(&self.screen, self.screen.place().selected) {
            Some(MemoryRow::Instant(ns)) => {
                self.screen.place_mut().selected = 0;
                self.change(|question, _| question.time = Time::At(format!("{ns}ns")));
            }
            Some(MemoryRow::LiveBlocks) => self.show(ViewKind::BottomUp),
            _ => self.screen.has_details = Some(true),
        }
    }

    fn open_source(&mut self) {
        let row = self.screen.place().selected;
        let Some(answer) = &self.screen.answer else { return };
        let Data::Source(files) = &answer.data else { return };
        let Some(file) = self.screen.source_order.get(row).and_then(|at| files.get(*at)) else { return };
        let text = view::SourceText::read(&file.file);
        let first = text.first_row(answer, files);
        self.screen.source = Some(text);
        self.screen.source_row = row;
        self.screen.place_mut().selected = first;
        self.screen.place_mut().top = first.saturating_sub(5);
    }

    fn close_source(&mut self) {
        if self.screen.source.take().is_some() {
            self.screen.place_mut().selected = self.screen.source_row;
        }
    }

    /// Shows the selected owner in Your code, sorted by the measure of its list.
    fn open_summary(&mut self) {
        let row = self.screen.place().selected;
        let Some(answer) = &self.screen.answer else { return };
        let Data::Summary(lists) = &answer.data else { return };
        let Some((cost, blamed)) = view::find_in_summary(&self.screen, lists, row) else { return };
        let list = lists.iter().find(|list| list.cost == cost);
        let rank = list.and_then(|list| list.rows.iter().position(|other| other.node == blamed.node)).unwrap_or(0);
        self.screen.question.cost = cost;
        self.screen.view = ViewKind::Mine;
        self.screen.place_mut().selected = rank;
        self.screen.has_details = Some(true);
        self.ask();
    }

    fn expand_path(&mut self) {
        if self.screen.view == ViewKind::Flame {
            for _ in 0..200 {
                self.screen.flame.step(&self.screen.areas.boxes, Step::Down);
            }
            return;
        }
        let Some((row, ..)) = self.tree_row() else { return };
        let Screen { answer, tree, .. } = &mut self.screen;
        if let Some(Data::Tree(data)) = answer.as_mut().map(|answer| &mut answer.data) {
            tree.open_path(data, row);
        }
    }
}
