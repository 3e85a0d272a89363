//! Counts words. With the feature `keep` it also keeps every text, which is a regression.

/// Returns the number of words in `lines` lines of text.
pub fn count(lines: usize) -> usize {
    let mut kept: Vec<String> = Vec::new();
    let mut words = 0;
    for line in 0..lines {
        let text = format!("{line} {:>1000}", "word");
        words += text.split_whitespace().count();
        if cfg!(feature = "keep") {
            kept.push(text);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    #[test]
    fn one_line_has_two_words() {
        assert_eq!(super::count(1), 2);
    }
}
