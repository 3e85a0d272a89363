//! The mouse: tabs, rows, boxes, and the timeline.
use crate::app::App;
use crate::keys::Action;
use crate::question::Time;
use crate::views::ViewKind;
use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Position;

/// How many rows the wheel moves.
const WHEEL: usize = 3;

impl App<'_> {
    pub(crate) fn mouse(&mut self, mouse: MouseEvent) {
        let at = Position { x: mouse.column, y: mouse.row };
        let wheel = match mouse.kind {
            MouseEventKind::ScrollUp => Some(Action::Up),
            MouseEventKind::ScrollDown => Some(Action::Down),
            _ => None,
        };
        if let Some(action) = wheel {
            for _ in 0..WHEEL {
                let _ = self.act(action);
            }
            return;
        }
        match mouse.kind {
            MouseEventKind::Down(MouseButton::Left) => self.press(at),
            MouseEventKind::Up(MouseButton::Left) => self.release(at),
            MouseEventKind::Drag(MouseButton::Left) if self.screen.drag.is_some() => {
                self.screen.cursor_ns = self.time_at(at);
            }
            _ => {}
        }
    }

    fn press(&mut self, at: Position) {
        self.screen.drag = None;
        if at.y == self.screen.areas.tabs_y {
            let tab = self.screen.areas.tabs.iter().find(|(from, to, _)| (*from..*to).contains(&at.x));
            if let Some((_, _, view)) = tab.copied() {
                self.screen.overlay = None;
                self.show(view);
            }
        } else if self.screen.areas.chart.contains(at) {
            self.screen.drag = self.time_at(at);
        } else if self.screen.areas.rows.contains(at) && self.screen.overlay.is_none() {
            self.press_row(at);
        }
    }

    /// A click selects. A click on what is selected opens it.
    fn press_row(&mut self, at: Position) {
        let area = self.screen.areas.rows;
        if self.screen.view == ViewKind::Flame {
            let depth = (at.y - area.y) as usize + self.screen.flame.top;
            let x = (at.x - area.x) as usize;
            let hit =
                |boxed: &&crate::view::FlameBox| boxed.depth == depth && (boxed.x..boxed.x + boxed.width).contains(&x);
            let Some(path) = self.screen.areas.boxes.iter().find(hit).map(|boxed| boxed.path.clone()) else { return };
            match path == self.screen.flame.selected {
                true => self.open(),
                false => {
                    self.screen.flame.zoom = self.screen.flame.zoom.min(path.len());
                    self.screen.flame.selected = path;
                }
            }
            return;
        }
        if self.screen.view == ViewKind::Summary {
            return;
        }
        let place = self.screen.place();
        let row = place.top + (at.y - area.y) as usize;
        if row >= crate::view::len(&self.screen) {
            return;
        }
        if row == place.selected {
            self.open();
        }
        self.screen.place_mut().selected = row;
    }

    /// A click on the timeline is a moment, and a drag is a range.
    fn release(&mut self, at: Position) {
        let Some(began) = self.screen.drag.take() else { return };
        let Some(ended) = self.time_at(at) else { return };
        let (from, to) = (began.min(ended), began.max(ended));
        self.screen.cursor_ns = None;
        self.change(|question, _| {
            question.time = match from == to {
                true => Time::At(format!("{from}ns")),
                false => Time::Range { from: Some(format!("{from}ns")), to: Some(format!("{to}ns")) },
            };
        });
    }

    /// The time of the column of the timeline that is nearest to a cell.
    fn time_at(&self, at: Position) -> Option<u64> {
        let area = self.screen.areas.chart;
        let x = at.x.clamp(area.x, area.right().saturating_sub(1).max(area.x));
        self.screen.time_of_column(x - area.x)
    }
}
