//! D's names, as far as people read them: the path of identifiers, without types.
//!
//! `_D` identifiers type; an identifier is a length and so many letters, `Q` and a distance back to an earlier one, or
//! `__T` name arguments `Z`, an instance of a template.

/// Identifiers in one name, nested ones included.
const MOST: usize = 64;

/// `None`: not a name of D.
pub(super) fn demangle(raw: &str) -> Option<String> {
    if raw == "_Dmain" {
        return Some("D main".into());
    }
    let rest = raw.strip_prefix("_D")?;
    if !raw.is_ascii() || !rest.starts_with(|first: char| first.is_ascii_digit() || first == '_') {
        return None;
    }
    let mut parser = Parser { text: raw.as_bytes(), at: 2, left: MOST };
    let path = parser.path()?;
    (!path.is_empty()).then(|| path.join("."))
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    left: usize,
}

impl Parser<'_> {
    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    fn path(&mut self) -> Option<Vec<String>> {
        let mut path = Vec::new();
        while let Some(name) = self.identifier() {
            // A template and what it makes have one name: said once.
            let again = path.last().and_then(|last: &String| last.strip_suffix("!(...)")) == Some(name.as_str());
            path.extend(Some(name).filter(|name| !name.is_empty() && !again));
            // A function inside of a function: the outer one's type stands between.
            let type_len = [&b"MFZ"[..], b"FZ", b"MFNaNbNiNfZ", b"FNaNbNiNfZ", b"FNfZ", b"MFNfZ"]
                .iter()
                .find(|kind| self.text.get(self.at..).is_some_and(|rest| rest.starts_with(kind)))
                .map(|kind| kind.len());
            if let Some(length) = type_len
                && self.text.get(self.at + length).is_some_and(|next| next.is_ascii_digit() || *next == b'_')
            {
                self.at += length;
            }
        }
        Some(path)
    }

    fn identifier(&mut self) -> Option<String> {
        self.left = self.left.checked_sub(1)?;
        if self.text.get(self.at..)?.starts_with(b"__T") || self.text.get(self.at..)?.starts_with(b"__U") {
            return self.template();
        }
        match self.peek() {
            b'Q' => self.back_reference(),
            b'0'..=b'9' => self.plain(),
            _ => None,
        }
    }

    fn plain(&mut self) -> Option<String> {
        let mut length = 0usize;
        while self.peek().is_ascii_digit() {
            length = length.checked_mul(10)?.checked_add((self.peek() - b'0') as usize)?;
            self.at += 1;
        }
        let end = self.at.checked_add(length)?;
        let name = self.text.get(self.at..end)?;
        if name.starts_with(b"__T") || name.starts_with(b"__U") {
            // Older compilers put a length before an instance.
            let inner = Parser { text: self.text.get(..end)?, at: self.at, left: self.left }.template();
            self.at = end;
            return inner;
        }
        self.at = end;
        // The compiler's own: a counter that tells equal names apart.
        if name.starts_with(b"__S") && name[3..].iter().all(u8::is_ascii_digit) {
            return Some(String::new());
        }
        String::from_utf8(name.to_vec()).ok()
    }

    fn back_reference(&mut self) -> Option<String> {
        let start = self.at;
        let mut at = start + 1;
        let mut distance = 0usize;
        loop {
            let letter = *self.text.get(at)?;
            at += 1;
            match letter {
                b'A'..=b'Z' => distance = distance.checked_mul(26)?.checked_add((letter - b'A') as usize)?,
                b'a'..=b'z' => {
                    distance = distance.checked_mul(26)?.checked_add((letter - b'a') as usize)?;
                    break;
                }
                _ => return None,
            }
        }
        let from = start.checked_sub(distance)?;
        if distance == 0 || !self.text.get(from)?.is_ascii_digit() {
            return None;
        }
        let name = Parser { text: self.text, at: from, left: self.left }.plain()?;
        self.at = at;
        Some(name)
    }

    /// Skips the arguments: to the `Z` behind which a path or a type can go on.
    fn template(&mut self) -> Option<String> {
        self.at += 3;
        let name = self.identifier()?;
        let rest = self.text.get(self.at..)?;
        let goes_on = |at: usize| match rest.get(at + 1) {
            None => true,
            Some(next) => next.is_ascii_digit() || b"QFMP_".contains(next),
        };
        let end = (0..rest.len()).find(|at| rest[*at] == b'Z' && goes_on(*at))?;
        self.at += end + 1;
        Some(format!("{name}!(...)"))
    }
}
