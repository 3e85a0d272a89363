//! Draws the boxes of the flame graph.
use crate::answer::Data;
use crate::screen::Screen;
use crate::text;
use crate::view::box_label;
use analysis::Cost;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;

/// More lines of boxes than that are not drawn.
const DEEPEST: usize = 1000;

pub(super) fn draw(screen: &mut Screen, area: Rect, buffer: &mut Buffer) {
    let Some(mut answer) = screen.answer.take() else { return };
    if let Data::Flame(tree) = &mut answer.data {
        let cost = drawable(answer.question.cost());
        let (boxes, _) = screen.flame.boxes(tree, cost, area.width as usize, DEEPEST);
        screen.areas.boxes = boxes;
        screen.areas.rows = area;
        let height = area.height as usize;
        let depth = screen.flame.selected.len();
        let deepest = screen.areas.boxes.iter().map(|flame| flame.depth).max().unwrap_or(0);
        let top = screen.flame.top.min((deepest + 1).saturating_sub(height)).min(depth);
        screen.flame.top = if depth >= top + height { depth + 1 - height } else { top };
    }
    screen.answer = Some(answer);
    let (Some(answer), flame) = (&screen.answer, &screen.flame) else { return };
    let Data::Flame(tree) = &answer.data else { return };
    let cost = drawable(answer.question.cost());
    for (number, boxed) in screen.areas.boxes.iter().enumerate() {
        let Some(line) = boxed.depth.checked_sub(flame.top).filter(|line| *line < area.height as usize) else {
            continue;
        };
        let class = tree.level(boxed.node).and_then(|level| level.class);
        let mut style = screen.theme.flame(class, number);
        if boxed.path == flame.selected {
            style = style.add_modifier(Modifier::REVERSED | Modifier::BOLD);
        }
        let label = box_label(screen, answer, tree, boxed.node, cost, boxed.width.saturating_sub(1));
        let label = match boxed.width {
            0..3 => " ".repeat(boxed.width),
            // Without colours, a bar tells neighbours apart.
            width if !screen.theme.has_colours() => format!("│{}", text::left(&label, width - 1)),
            width => format!(" {}", text::left(&label, width - 1)),
        };
        buffer.set_stringn(area.x + boxed.x as u16, area.y + line as u16, label, boxed.width, style);
    }
}

/// Growth can be negative, and a box cannot.
const fn drawable(cost: Cost) -> Cost {
    match cost {
        Cost::Growth => Cost::Live,
        cost => cost,
    }
}
