//! Errors as sentences, without error numbers and without repetitions.
use format::Domain;
use std::fmt::Display;
use std::path::Path;

/// Returns the text of an error of the system without its number: "No such file or directory".
pub fn reason(error: &dyn Display) -> String {
    without_numbers(&error.to_string())
}

/// Removes every " (os error N)".
pub fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => out.push_str(rest),
            _ => {
                out.push_str(" (os error ");
                out.push_str(part);
            }
        }
    }
    out
}

/// Returns an error and its causes in one sentence. A cause with which the text already ends is left out.
pub fn sentence(error: &anyhow::Error) -> String {
    let mut out = String::new();
    for cause in error.chain() {
        let text = reason(&cause);
        if out.is_empty() {
            out = text;
        } else if !out.ends_with(&text) {
            out.push_str(": ");
            out.push_str(&text);
        }
    }
    out
}

/// Returns the error for a file that cannot be read.
pub fn unreadable(path: &Path, error: &dyn Display) -> anyhow::Error {
    anyhow::Error::msg(format!("cannot read {}: {}", path.display(), reason(error)))
}

/// Returns the error for a trace that has no blocks of the domain that was asked for.
pub fn without_domain(domain: Domain, path: &Path) -> anyhow::Error {
    let path = path.display();
    anyhow::Error::msg(match domain {
        Domain::Mapped => format!("--domain mapped: no mappings of the program of {path} were recorded"),
        _ => format!("--domain custom: the program of {path} reported no blocks of custom allocators"),
    })
}

/// "1 block", "2 blocks".
pub fn counted(count: u64, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context;

    #[test]
    fn numbers_of_the_system_are_left_out_and_nothing_is_said_twice() {
        let error = std::io::Error::from_raw_os_error(28);
        let error =
            anyhow::Error::new(error).context("x: No space left on device (os error 28)").context("cannot write y");
        assert_eq!(sentence(&error), "cannot write y: x: No space left on device");
        assert_eq!(without_numbers("a (os error 2) b (os error x)"), "a b (os error x)");
        let nested: anyhow::Result<()> = Err(anyhow::anyhow!("inner")).context("outer");
        assert_eq!(sentence(&nested.unwrap_err()), "outer: inner");
    }
}
