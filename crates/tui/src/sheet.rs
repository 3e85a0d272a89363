//! A table on the screen. Only the rows that are seen are made.
use crate::text;
use crate::theme::Theme;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

pub(crate) struct Column {
    pub(crate) title: String,
    /// In cells. The first column takes all cells that the others leave.
    pub(crate) width: usize,
}

impl Column {
    /// The column of names.
    pub(crate) fn name(title: &str) -> Column {
        Column { title: title.to_owned(), width: 0 }
    }

    pub(crate) fn number(title: &str) -> Column {
        Column { title: title.to_owned(), width: text::width(title).max(11) }
    }

    pub(crate) fn wide(title: &str, width: usize) -> Column {
        Column { title: title.to_owned(), width }
    }
}

pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) style: Style,
    /// What follows the text if there is room for both.
    pub(crate) more: String,
}

impl Cell {
    pub(crate) const fn styled(text: String, style: Style) -> Cell {
        Cell { text, style, more: String::new() }
    }

    /// A name and its place.
    pub(crate) const fn placed(text: String, more: String) -> Cell {
        Cell { text, style: Style::new(), more }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Cell::styled(text, Style::new())
    }
}

/// The rows of a view.
pub(crate) struct Sheet<'a> {
    /// The first column has names, which are on the left; the others have numbers, which are on the right.
    pub(crate) columns: Vec<Column>,
    pub(crate) len: usize,
    pub(crate) row: Box<dyn Fn(usize) -> Vec<Cell> + 'a>,
}

/// The row that is selected, and the first row that is seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    pub(crate) selected: usize,
    pub(crate) top: usize,
}

impl Place {
    /// Moves the selection, but not beyond the first and the last row.
    pub(crate) fn step(&mut self, by: isize, len: usize) {
        self.selected = self.selected.saturating_add_signed(by).min(len.saturating_sub(1));
    }

    /// Scrolls so that the selected row is seen.
    pub(crate) fn fit(&mut self, len: usize, height: usize) {
        self.selected = self.selected.min(len.saturating_sub(1));
        self.top = self.top.min(len.saturating_sub(height)).min(self.selected);
        if height > 0 && self.selected >= self.top + height {
            self.top = self.selected + 1 - height;
        }
    }
}

/// The gap between two columns.
const GAP: usize = 1;

impl Sheet<'_> {
    /// Draws the titles and the rows from `place.top` on.
    pub(crate) fn draw(&self, area: Rect, buffer: &mut Buffer, place: &mut Place, theme: Theme) {
        if area.height == 0 || area.width == 0 {
            return;
        }
        let widths = self.widths(area.width as usize);
        let titles: Vec<Cell> = self.columns.iter().map(|column| column.title.clone().into()).collect();
        self.line(Rect { height: 1, ..area }, buffer, &titles, &widths, Some(theme.title()));
        let height = area.height as usize - 1;
        place.fit(self.len, height);
        for (line, row) in (place.top..self.len).take(height).enumerate() {
            let area = Rect { y: area.y + 1 + line as u16, height: 1, ..area };
            let style = (row == place.selected).then(|| theme.selected());
            self.line(area, buffer, &(self.row)(row), &widths, style);
        }
    }

    fn widths(&self, width: usize) -> Vec<usize> {
        let others: usize = self.columns.iter().skip(1).map(|column| column.width + GAP).sum();
        let first = width.saturating_sub(others);
        std::iter::once(first).chain(self.columns.iter().skip(1).map(|column| column.width)).collect()
    }

    /// `all`: the style of the whole line, instead of those of its cells.
    fn line(&self, area: Rect, buffer: &mut Buffer, cells: &[Cell], widths: &[usize], all: Option<Style>) {
        if let Some(style) = all {
            buffer.set_style(area, style);
        }
        let end = area.x as usize + area.width as usize;
        let mut x = area.x as usize;
        for (number, (cell, width)) in cells.iter().zip(widths).enumerate() {
            let fitted = match number {
                0 => text::left(&text::with_place(&cell.text, &cell.more, *width), *width),
                _ => text::right(&cell.text, *width),
            };
            let room = end.saturating_sub(x).min(*width);
            buffer.set_stringn(x as u16, area.y, fitted, room, all.unwrap_or(cell.style));
            x += width + GAP;
            if x >= end {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selected_row_is_always_seen() {
        let mut place = Place::default();
        for (by, len, height, expected) in [
            (5, 100, 3, (5, 3)),
            (-5, 100, 3, (0, 0)),
            (1000, 100, 10, (99, 90)),
            (0, 4, 10, (3, 0)),
            (0, 0, 10, (0, 0)),
        ] {
            place.step(by, len);
            place.fit(len, height);
            assert_eq!((place.selected, place.top), expected);
        }
    }
}
