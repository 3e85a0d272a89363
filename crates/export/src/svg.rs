//! A flame graph as one SVG file. It has no script, so any viewer shows it; the tooltip of a box has the whole name and
//! the cost.
//!
//! Receives: folded rows. Must hold: a box is as wide as its share; a box that is too narrow to be seen is left out,
//! with all boxes above it.
use crate::folded::Row;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 17.0;
const MARGIN: f64 = 10.0;
const TOP: f64 = 40.0;
/// Boxes that are narrower than this many pixels are left out.
const NARROWEST: f64 = 0.3;
/// The approximate width of a letter.
const LETTER: f64 = 7.0;
/// The most levels that are drawn. A stack may be deeper, if a function calls itself without end.
const DEEPEST: usize = 2000;

/// The title of a picture, and the unit of its costs.
#[derive(Clone, Copy, Debug)]
pub struct Caption<'a> {
    pub title: &'a str,
    /// Written after a number: `bytes`, `allocations`.
    pub unit: &'a str,
}

#[derive(Default)]
struct Node<'a> {
    cost: u64,
    /// Sorted by name: related functions are next to each other, and two pictures can be compared.
    children: BTreeMap<&'a str, usize>,
}

pub fn write(rows: &[Row], caption: Caption, out: &mut dyn Write) -> io::Result<()> {
    let nodes = tree(rows);
    let total = nodes.first().map_or(0, |node| node.cost);
    let (boxes, depth) = boxes(&nodes, total, caption);
    let height = TOP + HEIGHT * (depth + 1) as f64 + MARGIN;
    let whole = WIDTH + 2.0 * MARGIN;
    write!(
        out,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{whole}\" height=\"{height}\" viewBox=\"0 0 {whole} {height}\" \
         font-family=\"monospace\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fbfbf8\"/>\n\
         <text x=\"{MARGIN}\" y=\"24\" font-size=\"15\">{}</text>\n",
        escape_xml(caption.title)
    )?;
    for piece in &boxes {
        // The root is at the bottom.
        let y = height - MARGIN - HEIGHT * (piece.depth + 1) as f64;
        write!(
            out,
            "<g><title>{}</title><rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"1\" fill=\"{}\"/>",
            escape_xml(&piece.title),
            piece.x,
            piece.width,
            HEIGHT - 1.0,
            colour(piece.name),
        )?;
        let letters = ((piece.width - 4.0) / LETTER) as usize;
        if letters >= 3 {
            let text = shortened(piece.name, letters);
            write!(out, "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>", piece.x + 2.0, y + 12.0, escape_xml(&text))?;
        }
        out.write_all(b"</g>\n")?;
    }
    out.write_all(b"</svg>\n")
}

fn tree(rows: &[Row]) -> Vec<Node<'_>> {
    let mut nodes = vec![Node::default()];
    for row in rows {
        let mut at = 0;
        nodes[at].cost = nodes[at].cost.saturating_add(row.cost);
        for level in row.levels.iter().take(DEEPEST) {
            let next = nodes.len();
            let child = *nodes[at].children.entry(level).or_insert(next);
            if child == next {
                nodes.push(Node::default());
            }
            at = child;
            nodes[at].cost = nodes[at].cost.saturating_add(row.cost);
        }
    }
    nodes
}

struct Box<'a> {
    name: &'a str,
    title: String,
    x: f64,
    width: f64,
    depth: usize,
}

/// Returns the boxes that can be seen, and the depth of the deepest one. The root has depth 0.
fn boxes<'a>(nodes: &[Node<'a>], total: u64, caption: Caption) -> (Vec<Box<'a>>, usize) {
    let mut boxes = Vec::new();
    let mut deepest = 0;
    let mut open = vec![(0, "all", 0, MARGIN)];
    while let Some((at, name, depth, x)) = open.pop() {
        let Some(node) = nodes.get(at) else { continue };
        let share = if total == 0 { 0.0 } else { node.cost as f64 / total as f64 };
        let width = share * WIDTH;
        if width < NARROWEST {
            continue;
        }
        deepest = deepest.max(depth);
        let title = format!("{name}\n{} {} ({:.2} %)", node.cost, caption.unit, share * 100.0);
        boxes.push(Box { name, title, x, width, depth });
        let mut left = x;
        for (name, child) in &node.children {
            open.push((*child, *name, depth + 1, left));
            left += nodes.get(*child).map_or(0.0, |child| child.cost as f64 / total as f64 * WIDTH);
        }
    }
    (boxes, deepest)
}

/// The same name has the same colour in every picture.
fn colour(name: &str) -> String {
    let hash =
        name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ byte as u64).wrapping_mul(0x100_0000_01b3));
    let part = |shift: u32, span: u64| (hash >> shift) % span;
    format!("hsl({},{}%,{}%)", 10 + part(8, 45), 70 + part(24, 20), 62 + part(40, 14))
}

fn shortened(name: &str, letters: usize) -> String {
    if name.chars().count() <= letters {
        return name.to_owned();
    }
    name.chars().take(letters.saturating_sub(1)).chain(['…']).collect()
}

/// Returns the text as it can stand in XML. Control characters, most of which XML cannot contain, become `\xNN`.
pub fn escape_xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push('\n'),
            // Control characters. XML cannot contain most of them at all.
            letter if letter.is_control() => drop(write!(out, "\\x{:02x}", letter as u32)),
            letter => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn boxes_are_as_wide_as_their_share() {
        let row =
            |levels: &[&str], cost| Row { levels: levels.iter().map(|level| (*level).to_owned()).collect(), cost };
        let rows = [row(&["main", "a<b>"], 750), row(&["main", "c"], 250), row(&["main", "tiny"], 0)];
        let mut out = Vec::new();
        write(&rows, Caption { title: "peak & more", unit: "bytes" }, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("<title>main\n1000 bytes (100.00 %)</title><rect x=\"10.0\""), "{text}");
        assert!(text.contains("<title>a&lt;b&gt;\n750 bytes (75.00 %)</title><rect x=\"10.0\""), "{text}");
        assert!(text.contains("<title>c\n250 bytes (25.00 %)</title><rect x=\"910.0\""), "{text}");
        assert!(
            text.contains("width=\"900.0\"") && text.contains("peak &amp; more") && !text.contains("tiny"),
            "{text}"
        );
    }
}
