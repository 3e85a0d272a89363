//! Demangles D's names to the path of identifiers, without types.
//!
//! The grammar is `_D` path type. A path is a list of identifiers. If one of them is a function, its type may follow
//! it, and then the names that are declared inside it. An identifier is a length and that many letters, or `Q` and a
//! distance back to an earlier identifier, or an instance of a template: `__T` name arguments `Z`. Types are parsed
//! only to find their ends.

/// The deepest nesting in one name.
const DEEPEST: usize = 48;
/// The most steps for one name. Back references can make a short name very long.
const MOST: usize = 4096;

/// Returns `None` if it is not a name of D.
pub(crate) fn demangle(raw: &str) -> Option<String> {
    if raw == "_Dmain" {
        return Some("D main".into());
    }
    let rest = raw.strip_prefix("_D")?;
    if !raw.is_ascii() || !rest.starts_with(|first: char| first.is_ascii_digit() || first == '_') {
        return None;
    }
    let mut parser = Parser { text: raw.as_bytes(), at: 2, left: MOST };
    let path = parser.path(DEEPEST)?;
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

    fn next(&mut self) -> Option<u8> {
        self.left = self.left.checked_sub(1)?;
        let byte = *self.text.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn starts_with(&self, prefix: &[u8]) -> bool {
        self.text.get(self.at..).is_some_and(|rest| rest.starts_with(prefix))
    }

    fn number(&mut self) -> Option<usize> {
        let mut value = None;
        while self.peek().is_ascii_digit() {
            let digit = (self.next()? - b'0') as usize;
            value = Some(value.unwrap_or(0usize).checked_mul(10)?.checked_add(digit)?);
        }
        value
    }

    /// Whether an identifier begins here.
    fn is_identifier(&self) -> bool {
        match self.peek() {
            b'0'..=b'9' => true,
            b'_' => self.starts_with(b"__T") || self.starts_with(b"__U"),
            b'Q' => self.back_reference().is_some_and(|(to, _)| matches!(self.text[to], b'0'..=b'9' | b'_')),
            _ => false,
        }
    }

    fn path(&mut self, depth: usize) -> Option<Vec<String>> {
        let mut path: Vec<String> = Vec::new();
        while self.is_identifier() {
            let name = self.identifier(depth.checked_sub(1)?)?;
            // A template and the function that it defines have the same name. It is written once.
            let again = path.last().and_then(|last| last.strip_suffix("!(...)")) == Some(name.as_str());
            path.extend(Some(name).filter(|name| !name.is_empty() && !again));
            let before = self.at;
            let goes_on = self.function_without_result(depth - 1).is_some() && self.is_identifier();
            if !goes_on {
                self.at = before;
            }
        }
        Some(path)
    }

    fn identifier(&mut self, depth: usize) -> Option<String> {
        self.left = self.left.checked_sub(1)?;
        let depth = depth.checked_sub(1)?;
        if self.peek() == b'Q' {
            let (to, after) = self.back_reference()?;
            let mut there = Parser { text: self.text, at: to, left: self.left };
            let name = there.identifier(depth)?;
            self.left = there.left;
            self.at = after;
            return Some(name);
        }
        if self.peek() == b'_' {
            return self.template(depth);
        }
        let length = self.number()?;
        let end = self.at.checked_add(length)?;
        let name = self.text.get(self.at..end)?;
        if name.starts_with(b"__T") || name.starts_with(b"__U") {
            // Older compilers write a length before an instance.
            let name = self.template(depth);
            self.at = end;
            return name;
        }
        self.at = end;
        // A counter of the compiler, which makes equal names different.
        if name.starts_with(b"__S") && name[3..].iter().all(u8::is_ascii_digit) {
            return Some(String::new());
        }
        match name {
            b"__ctor" => Some("this".into()),
            b"__dtor" => Some("~this".into()),
            name => String::from_utf8(name.to_vec()).ok(),
        }
    }

    /// Returns the position that the `Q` here points to, and the position after the reference.
    fn back_reference(&self) -> Option<(usize, usize)> {
        let mut at = self.at + 1;
        let mut distance = 0usize;
        loop {
            let letter = *self.text.get(at)?;
            at += 1;
            let (digit, last) = match letter {
                b'A'..=b'Z' => (letter - b'A', false),
                b'a'..=b'z' => (letter - b'a', true),
                _ => return None,
            };
            distance = distance.checked_mul(26)?.checked_add(digit as usize)?;
            if last {
                let to = self.at.checked_sub(distance).filter(|_| distance > 0)?;
                return Some((to, at));
            }
        }
    }

    fn template(&mut self, depth: usize) -> Option<String> {
        let depth = depth.checked_sub(1)?;
        self.at += 3;
        let name = self.identifier(depth)?;
        while self.peek() != b'Z' {
            if self.peek() == b'H' {
                self.next()?;
            }
            match self.next()? {
                b'T' => self.kind(depth)?,
                b'V' => {
                    self.kind(depth)?;
                    self.value(depth)?;
                }
                b'S' => self.symbol(depth)?,
                b'X' => {
                    let length = self.number()?;
                    self.at = self.at.checked_add(length)?;
                }
                _ => return None,
            }
        }
        self.next()?;
        Some(format!("{name}!(...)"))
    }

    /// Parses a symbol as an argument of a template: a whole name, or a path.
    fn symbol(&mut self, depth: usize) -> Option<()> {
        if self.starts_with(b"_D") {
            self.at += 2;
            self.path(depth)?;
            if self.peek() == b'M' {
                self.next()?;
            }
            return self.kind(depth);
        }
        self.path(depth).map(drop)
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match self.next()? {
            b'n' => Some(()),
            b'i' | b'N' => self.number().map(drop),
            b'0'..=b'9' => {
                self.number();
                Some(())
            }
            b'e' => self.real(),
            b'c' => {
                self.real()?;
                (self.next()? == b'c').then_some(())?;
                self.real()
            }
            b'a' | b'w' | b'd' => {
                let count = self.number()?;
                (self.next()? == b'_').then_some(())?;
                self.at = self.at.checked_add(count.checked_mul(2)?)?;
                Some(())
            }
            b'A' | b'S' => {
                for _ in 0..self.number()? {
                    self.value(depth)?;
                }
                Some(())
            }
            b'f' => {
                (self.next()? == b'_' && self.next()? == b'D').then_some(())?;
                self.path(depth)?;
                self.kind(depth)
            }
            _ => None,
        }
    }

    /// Parses a floating point number: `N`? hexadecimal digits `P` `N`? digits, or NAN, INF, NINF.
    fn real(&mut self) -> Option<()> {
        for word in [&b"NAN"[..], b"INF", b"NINF"] {
            if self.starts_with(word) {
                self.at += word.len();
                return Some(());
            }
        }
        while matches!(self.peek(), b'N' | b'0'..=b'9' | b'A'..=b'F') {
            self.next()?;
        }
        (self.next()? == b'P').then_some(())?;
        if self.peek() == b'N' {
            self.next()?;
        }
        self.number().map(drop)
    }

    /// Parses a type.
    fn kind(&mut self, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        if self.peek() == b'Q' {
            self.at = self.back_reference()?.1;
            self.left = self.left.checked_sub(1)?;
            return Some(());
        }
        if matches!(self.peek(), b'F' | b'U' | b'W' | b'V' | b'R' | b'Y') {
            self.function_without_result(depth)?;
            return self.kind(depth);
        }
        match self.next()? {
            b'x' | b'y' | b'O' | b'A' | b'P' => self.kind(depth),
            b'N' => match self.next()? {
                b'g' | b'h' => self.kind(depth),
                b'n' => Some(()),
                _ => None,
            },
            b'G' => {
                self.number()?;
                self.kind(depth)
            }
            b'H' => {
                self.kind(depth)?;
                self.kind(depth)
            }
            b'D' => {
                self.modifiers()?;
                self.kind(depth)
            }
            b'E' | b'C' | b'S' | b'T' | b'I' => self.path(depth).filter(|path| !path.is_empty()).map(drop),
            b'B' => {
                for _ in 0..self.number()? {
                    self.kind(depth)?;
                }
                Some(())
            }
            b'z' => matches!(self.next()?, b'i' | b'k').then_some(()),
            b'a'..=b'w' => Some(()),
            _ => None,
        }
    }

    /// Parses the qualifiers of a method's `this`.
    fn modifiers(&mut self) -> Option<()> {
        loop {
            match self.peek() {
                b'x' | b'y' | b'O' => drop(self.next()?),
                b'N' if self.starts_with(b"Ng") => self.at += 2,
                _ => return Some(()),
            }
        }
    }

    /// Parses a function's type without the type of its result: `M`? convention attributes parameters end.
    fn function_without_result(&mut self, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        if self.peek() == b'M' {
            self.next()?;
            self.modifiers()?;
        }
        matches!(self.next()?, b'F' | b'U' | b'W' | b'V' | b'R' | b'Y').then_some(())?;
        while self.peek() == b'N' && !self.starts_with(b"Ng") && !self.starts_with(b"Nh") && !self.starts_with(b"Nn") {
            if self.starts_with(b"Nk") {
                break;
            }
            self.at += 2;
        }
        loop {
            match self.peek() {
                b'X' | b'Y' | b'Z' => return self.next().map(drop),
                b'M' | b'J' | b'K' | b'L' => drop(self.next()?),
                b'N' if self.starts_with(b"Nk") => self.at += 2,
                _ => self.kind(depth)?,
            }
        }
    }
}
