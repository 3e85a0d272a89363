//! Numbers and names as KDE's heaptrack_print writes them.

/// Formats bytes in steps of 1000, with the first letter of the unit: `48B`, `996.97K`, `12.22M`.
pub fn bytes(value: i64) -> String {
    const UNITS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];
    if value.unsigned_abs() <= 1000 {
        return format!("{value}B");
    }
    let mut number = value as f64;
    let mut unit = "B";
    for name in UNITS {
        if number.abs() <= 1000.0 {
            break;
        }
        number /= 1000.0;
        unit = name;
    }
    format!("{number:.2}{unit}")
}

/// `1 block`, `3 blocks`.
pub fn blocks(count: i64) -> String {
    if count == 1 { "1 block".into() } else { format!("{count} blocks") }
}

/// Removes template arguments, as in `std::vector<>::push_back`. Operators keep their names.
pub fn without_templates(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut depth = 0usize;
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        if depth == 0
            && let Some(operator) = operator(rest)
            && !out.ends_with(|last: char| last.is_alphanumeric() || last == '_')
        {
            out.push_str(operator);
            rest = &rest[operator.len()..];
            continue;
        }
        match first {
            '<' => {
                if depth == 0 {
                    out.push('<');
                }
                depth += 1;
            }
            '>' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    out.push('>');
                }
            }
            _ if depth == 0 => out.push(first),
            _ => {}
        }
        rest = &rest[first.len_utf8()..];
    }
    out
}

/// Returns the operator with which the text begins, if its name has angle brackets.
fn operator(text: &str) -> Option<&str> {
    const NAMES: [&str; 9] = [
        "operator<=>",
        "operator<<=",
        "operator>>=",
        "operator->*",
        "operator->",
        "operator<<",
        "operator>>",
        "operator<=",
        "operator>=",
    ];
    let found = NAMES.iter().find(|name| text.starts_with(**name)).copied();
    let found = found.or_else(|| ["operator<", "operator>"].iter().find(|name| text.starts_with(**name)).copied());
    found.and_then(|name| text.get(..name.len()))
}

/// Returns the number of times per second, as a whole number. A runtime below 1 ms counts as 1 ms.
pub fn rate(count: i64, runtime_ns: u64) -> i64 {
    let ms = (runtime_ns / 1_000_000).max(1) as i128;
    (count as i128 * 1000 / ms) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_kde_does() {
        for (value, text) in [
            (0, "0B"),
            (48, "48B"),
            (1000, "1000B"),
            (1001, "1.00K"),
            (996_970, "996.97K"),
            (12_220_000, "12.22M"),
            (1_000_000, "1000.00K"),
            (2_500_000_000, "2.50G"),
            (-48, "-48B"),
            (-1_966_080, "-1.97M"),
        ] {
            assert_eq!(bytes(value), text);
        }
    }

    #[test]
    fn templates_are_left_out_and_operators_kept() {
        for (name, text) in [
            ("main", "main"),
            ("std::vector<int, std::allocator<int> >::push_back(int&&)", "std::vector<>::push_back(int&&)"),
            ("std::operator<< <char>(std::ostream&)", "std::operator<< <>(std::ostream&)"),
            ("std::operator<<<char>(x<y>)", "std::operator<<<>(x<>)"),
            ("A::operator<(A const&)", "A::operator<(A const&)"),
            ("A<int>::operator->()", "A<>::operator->()"),
            ("std::operator+<char, std::char_traits<char> >(a)", "std::operator+<>(a)"),
            ("<alloc::vec::Vec<T> as core::Clone>::clone", "<>::clone"),
            ("a->b", "a->b"),
        ] {
            assert_eq!(without_templates(name), text);
        }
    }

    #[test]
    fn rates_are_whole() {
        assert_eq!(rate(668_499, 1_824_000_000), 366_501);
        assert_eq!(rate(5, 0), 5000);
    }
}
