//! Texts that fit into a number of cells of the screen. Wide characters take two cells.
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// Shortens a text in the middle, because the tail of a long name tells as much as its beginning.
pub(crate) fn shorten(text: &str, cells: usize) -> String {
    if width(text) <= cells {
        return text.to_owned();
    }
    if cells < 4 {
        return head(text, cells);
    }
    let tail_cells = (cells - 1) * 2 / 3;
    let tail: String = {
        let mut left = tail_cells;
        let fits = |letter: &char| {
            let cells = letter.width().unwrap_or(0);
            let has_room = cells <= left;
            left = left.saturating_sub(cells);
            has_room
        };
        let reversed: Vec<char> = text.chars().rev().take_while(fits).collect();
        reversed.into_iter().rev().collect()
    };
    let head = head(text, cells - 1 - width(&tail));
    format!("{head}…{tail}")
}

/// A name and its place. If there is no room for both, the line number of the place is kept if possible, and the name is
/// shortened last.
pub(crate) fn with_place(name: &str, place: &str, cells: usize) -> String {
    if place.is_empty() {
        return shorten(name, cells);
    }
    let line = place.rsplit_once(':').map(|(_, line)| format!("{name}:{line}"));
    let forms = [Some(format!("{name}  {place}")), line, Some(name.to_owned())];
    let fits = forms.into_iter().flatten().find(|form| width(form) <= cells);
    fits.unwrap_or_else(|| shorten(name, cells))
}

/// The beginning of a text.
pub(crate) fn head(text: &str, cells: usize) -> String {
    let mut left = cells;
    let fits = |letter: &char| {
        let cells = letter.width().unwrap_or(0);
        let has_room = cells <= left;
        left = left.saturating_sub(cells);
        has_room
    };
    text.chars().take_while(fits).collect()
}

/// Fills a text with spaces on the right, or cuts it.
pub(crate) fn left(text: &str, cells: usize) -> String {
    let mut text = shorten(text, cells);
    text.extend(std::iter::repeat_n(' ', cells.saturating_sub(width(&text))));
    text
}

/// Fills a text with spaces on the left. A number is never shortened in the middle, so what does not fit is cut.
pub(crate) fn right(text: &str, cells: usize) -> String {
    let text = head(text, cells);
    format!("{}{text}", " ".repeat(cells.saturating_sub(width(&text))))
}

/// Breaks a text into lines at spaces. A word that is too long is cut into pieces.
pub(crate) fn wrap(text: &str, cells: usize) -> Vec<String> {
    let cells = cells.max(1);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word = word.to_owned();
        let line = lines.last().map_or(0, |line| width(line));
        if line > 0 && line + 1 + width(&word) > cells {
            lines.push(String::new());
        } else if line > 0 {
            lines.iter_mut().next_back().into_iter().for_each(|line| line.push(' '));
        }
        loop {
            let room = cells - lines.last().map_or(0, |line| width(line)).min(cells);
            let part = head(&word, room);
            if part.is_empty() && room == cells {
                break;
            }
            lines.iter_mut().next_back().into_iter().for_each(|line| line.push_str(&part));
            word = word.get(part.len()..).unwrap_or_default().to_owned();
            if word.is_empty() {
                break;
            }
            lines.push(String::new());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_their_beginning_and_their_end() {
        assert_eq!(shorten("short", 10), "short");
        let name = "std::vector<std::basic_string<char>>::emplace_back";
        let short = shorten(name, 20);
        assert_eq!(width(&short), 20);
        assert!(name.starts_with(short.split('…').next().unwrap_or("x")) && short.ends_with("emplace_back"), "{short}");
        assert_eq!(shorten("abcdef", 3), "abc");
        assert_eq!(shorten("abcdef", 0), "");
    }

    #[test]
    fn a_place_gives_way_to_its_name() {
        assert_eq!(with_place("import", "shop.cpp:27", 30), "import  shop.cpp:27");
        assert_eq!(with_place("import", "shop.cpp:27", 10), "import:27");
        assert_eq!(with_place("import", "libx.so", 10), "import");
        assert_eq!(with_place("import", "shop.cpp:27", 5), "im…rt");
    }

    #[test]
    fn wide_characters_take_two_cells() {
        for cells in 0..20 {
            let short = shorten("日本語の関数名::メソッド", cells);
            assert!(width(&short) <= cells, "{short:?} in {cells}");
            assert_eq!(width(&left("日本語の関数名", cells)), cells);
        }
        assert_eq!(right("7", 3), "  7");
    }

    #[test]
    fn sentences_are_broken_at_spaces() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrap("", 3), [""]);
        assert!(wrap("日本語", 1).len() <= 3);
    }
}
