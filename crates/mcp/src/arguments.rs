//! The arguments of a tool, which an agent wrote. Nothing is ignored: a name that a tool does not know is an error.
use heaptrack_trace::Selection;
use serde_json::{Map, Value};

/// The words of a query that select a part of a trace.
pub const FILTERS: [&str; 11] =
    ["at", "from", "to", "include", "exclude", "thread", "process", "allocator", "size", "lifetime", "suppressions"];

/// The words that are instants.
const INSTANTS: [&str; 3] = ["at", "from", "to"];

pub struct Arguments<'a>(&'a Map<String, Value>);

impl<'a> Arguments<'a> {
    /// Refuses arguments that the tool does not have.
    pub fn new(given: &'a Map<String, Value>, known: &[&str]) -> Result<Self, String> {
        match given.keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) => {
                let name = crate::rows::shortened(name);
                Err(format!("there is no argument `{name}`; this tool has {}", known.join(", ")))
            }
            None => Ok(Arguments(given)),
        }
    }

    pub fn given(&self) -> &'a Map<String, Value> {
        self.0
    }

    pub fn text(&self, name: &str) -> Result<Option<&'a str>, String> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(format!("`{name}` must be a string")),
        }
    }

    pub fn required(&self, name: &str) -> Result<&'a str, String> {
        self.text(name)?.ok_or_else(|| format!("`{name}` is missing"))
    }

    /// A number from `least` to `most`.
    pub fn number(&self, name: &str, least: u64, most: u64) -> Result<Option<u64>, String> {
        let wrong = || format!("`{name}` must be a whole number from {least} to {most}");
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => {
                let number = value.as_u64().filter(|number| (least..=most).contains(number));
                number.map(Some).ok_or_else(wrong)
            }
        }
    }

    /// A list of strings that is not empty.
    pub fn texts(&self, name: &str) -> Result<Vec<&'a str>, String> {
        let wrong = || format!("`{name}` must be a list of strings that is not empty");
        let list = self.0.get(name).and_then(Value::as_array).filter(|list| !list.is_empty()).ok_or_else(wrong)?;
        list.iter().map(|word| word.as_str().ok_or_else(wrong)).collect()
    }

    /// The part of the trace that the filters select, with the cost if the tool has one.
    pub fn selection(&self) -> Result<Selection, String> {
        let mut selection = Selection::everything();
        for word in FILTERS.iter().chain(&["cost"]) {
            let values: Vec<&Value> = match self.0.get(*word) {
                None | Some(Value::Null) => continue,
                Some(Value::Array(list)) => list.iter().collect(),
                Some(one) => vec![one],
            };
            for value in values {
                let text = match value {
                    Value::String(text) => text.clone(),
                    // Answers cite instants as numbers of nanoseconds.
                    Value::Number(number) if number.is_u64() && INSTANTS.contains(word) => format!("{number}ns"),
                    Value::Number(number) if number.is_u64() => number.to_string(),
                    _ => return Err(format!("`{word}` must be a string or a whole number")),
                };
                selection = selection.with(word, &text).map_err(|error| error.to_string())?;
            }
        }
        Ok(selection)
    }
}
