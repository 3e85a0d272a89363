//! KDE's options whose value may be missing, as in `print -l FILE`.
use std::ffi::OsString;

/// Parses a switch, which is on or off, in several words.
pub fn switch(text: &str) -> Result<bool, String> {
    match text {
        "1" | "on" | "yes" | "true" => Ok(true),
        "0" | "off" | "no" | "false" => Ok(false),
        _ => Err("must be 1 or 0".into()),
    }
}

/// Options whose value may be missing: short name, long name, and whether the value is a number.
const OPTIONAL: [(&str, &str, bool); 9] = [
    ("-t", "--shorten-templates", false),
    ("-m", "--merge-backtraces", false),
    ("-p", "--print-peaks", false),
    ("-a", "--print-allocators", false),
    ("-T", "--print-temporary", false),
    ("-l", "--print-leaks", false),
    ("-n", "--peak-limit", true),
    ("-s", "--sub-peak-limit", true),
    ("", "--print-suppressions", false),
];

/// Inserts `1` where the value of a switch is missing, so that clap does not take FILE of `-l FILE` for the value of
/// `-l`. Removes an option whose number is missing.
pub fn with_values(words: Vec<OsString>) -> Vec<OsString> {
    let mut out = Vec::with_capacity(words.len());
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        let option = OPTIONAL.iter().find(|(short, long, _)| word == *long || !short.is_empty() && word == *short);
        let Some((_, _, is_number)) = option else {
            out.push(word);
            continue;
        };
        let next = words.peek().and_then(|next| next.to_str());
        let has_value =
            next.is_some_and(|next| if *is_number { next.parse::<usize>().is_ok() } else { switch(next).is_ok() });
        // A word that is neither a number nor a file stays, so that clap refuses it as a number.
        let is_wrong = |next: &str| *is_number && !next.starts_with('-') && !std::path::Path::new(next).exists();
        let has_wrong_value = !has_value && next.is_some_and(is_wrong);
        out.push(word);
        if !has_value && !*is_number {
            out.push("1".into());
        } else if !has_value && !has_wrong_value {
            // Without the option, the default applies.
            out.pop();
        }
    }
    out
}
