//! Which code is the user's, as `heaptrack.toml` says it in its section `[code]`.
//!
//! Receives: the text of the file. Returns: lines of a rules file (`--rules`). Must hold: a key that is not known and a
//! pattern that is no rule are refused, with the file, the line and the key.
use super::settings::{FILE, Settings, Source};
use crate::trouble::unreadable;
use analysis::CodeClasses;
use anyhow::Context;
use std::path::Path;
use toml::Spanned;
use toml::de::DeValue;
use web::NamedText;

/// The keys of the section, and the beginning of the rules that each makes. The first rule that matches counts.
const KEYS: [(&str, &str); 5] = [
    ("rules", ""),
    ("not-wrappers", "not-wrapper name "),
    ("wrappers", "wrapper name "),
    ("own", "program path "),
    ("third-party", "dependency path "),
];

/// The rules of a file of `--rules`, and after them those of the nearest `heaptrack.toml`. `None` if there are none.
pub fn all_rules(rules: Option<&Path>) -> anyhow::Result<Option<NamedText>> {
    let given = rules.map(|file| {
        let text = std::fs::read_to_string(file).map_err(|error| unreadable(file, &error))?;
        CodeClasses::new("").add_rules(&text).with_context(|| format!("{}", file.display()))?;
        anyhow::Ok(NamedText { name: file.display().to_string(), text })
    });
    let found = std::env::current_dir().ok().and_then(|folder| Settings::find(&folder));
    let kept = found.map(|path| {
        let text = std::fs::read_to_string(&path).map_err(|error| unreadable(&path, &error))?;
        parse(&path, &text)
    });
    let (given, kept) = (given.transpose()?, kept.transpose()?.unwrap_or_default());
    Ok(match given {
        _ if kept.is_empty() => given,
        Some(given) => Some(NamedText { text: format!("{}\n{kept}", given.text), ..given }),
        None => Some(NamedText { name: FILE.into(), text: kept }),
    })
}

fn parse(path: &Path, text: &str) -> anyhow::Result<String> {
    let source = Source { path, text };
    let table = source.table()?;
    let Some(code) = table.get_ref().get("code") else { return Ok(String::new()) };
    let Some(entries) = code.get_ref().as_table() else {
        return Err(source.wrong(code.span(), "[code] must be a table"));
    };
    for (key, _) in entries {
        let name = key.get_ref().as_ref();
        if !KEYS.iter().any(|(known, _)| *known == name) {
            let known = KEYS.map(|(known, _)| known).join(", ");
            return Err(source.wrong(key.span(), format!("`{name}` is not a key of [code]; its keys are {known}")));
        }
    }
    let mut lines = String::new();
    for (name, beginning) in KEYS {
        let Some(value) = entries.get(name) else { continue };
        add(&source, name, beginning, value, &mut lines)?;
    }
    Ok(lines)
}

fn add(
    source: &Source<'_>,
    name: &str,
    beginning: &str,
    value: &Spanned<DeValue<'_>>,
    lines: &mut String,
) -> anyhow::Result<()> {
    let not_a_list = || source.bad_value(name, value, "must be a list of texts in quotes");
    for entry in value.get_ref().as_array().ok_or_else(not_a_list)?.iter() {
        let pattern = entry.get_ref().as_str().ok_or_else(not_a_list)?;
        let line = format!("{beginning}{pattern}\n");
        let is_one_rule =
            !pattern.contains('\n') && !pattern.trim().is_empty() && !pattern.trim_start().starts_with('#');
        if !is_one_rule || CodeClasses::new("").add_rules(&line).is_err() {
            let reason = if beginning.is_empty() { "must be `CLASS SUBJECT PATTERN`" } else { "must be one pattern" };
            return Err(source.bad_value(name, entry, reason));
        }
        lines.push_str(&line);
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        parse(Path::new("dir/heaptrack.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn the_section_makes_rules() {
        let text = "[check]\nmax-peak = 1\n[code]\nown = [\"*/app/*\"]\nthird-party = [\"*/vendor/*\"]\n\
            wrappers = [\"pool_get\", \"arena::*\"]\nnot-wrappers = [\"xmalloc\"]\nrules = [\"runtime module */libscript*.so\"]\n";
        let rules = "runtime module */libscript*.so\nnot-wrapper name xmalloc\nwrapper name pool_get\n\
            wrapper name arena::*\nprogram path */app/*\ndependency path */vendor/*\n";
        assert_eq!(read(text).as_deref(), Ok(rules));
        assert_eq!(read("[check]\nmax-peak = 1\n").as_deref(), Ok(""));
    }

    #[test]
    fn mistakes_name_the_line_and_the_key() {
        for (text, expected) in [
            ("[code]\nmine = []", "dir/heaptrack.toml:2: `mine` is not a key of [code]; its keys are rules, "),
            ("[code]\nown = \"x\"", "dir/heaptrack.toml:2: own = \"x\": must be a list of texts in quotes"),
            ("[code]\nown = [1]", "dir/heaptrack.toml:2: own = [1]: must be a list of texts in quotes"),
            ("[code]\nwrappers = [\"a\", \"\"]", "dir/heaptrack.toml:2: wrappers = \"\": must be one pattern"),
            ("[code]\nrules = [\"x\"]", "dir/heaptrack.toml:2: rules = \"x\": must be `CLASS SUBJECT PATTERN`"),
            ("code = 1", "dir/heaptrack.toml:1: [code] must be a table"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{text:?}: {error}");
        }
    }
}
