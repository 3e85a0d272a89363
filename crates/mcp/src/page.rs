//! Lists are answered in pages. A cursor leads to the next one.
//!
//! Must hold: a cursor is only good for the question that it came with, about the same state of the trace.
use crate::MOST_BYTES;
use crate::arguments::Arguments;
use serde_json::Value;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The most rows of a page.
pub const MOST_ROWS: u64 = 200;
const ROWS: u64 = 20;

pub struct Page {
    first: usize,
    limit: usize,
    /// Stands for the question and the state of the trace.
    question: u64,
}

impl Page {
    /// `state`: changes when the answers about the trace may have changed.
    pub fn new(tool: &str, arguments: &Arguments<'_>, state: u64) -> Result<Self, String> {
        let limit = arguments.number("limit", 1, MOST_ROWS)?.unwrap_or(ROWS) as usize;
        let mut hasher = DefaultHasher::new();
        (tool, state).hash(&mut hasher);
        for (name, value) in arguments.given().iter().filter(|(name, _)| !["limit", "cursor"].contains(&name.as_str()))
        {
            (name, value.to_string()).hash(&mut hasher);
        }
        let question = hasher.finish();
        let first = match arguments.text("cursor")? {
            None => 0,
            Some(cursor) => {
                let wrong = "`cursor` is not one of this question; ask again without it";
                let (hash, first) = cursor.split_once('-').ok_or(wrong)?;
                let is_ours = u64::from_str_radix(hash, 16) == Ok(question);
                first.parse().ok().filter(|_| is_ours).ok_or(wrong)?
            }
        };
        Ok(Page { first, limit, question })
    }

    /// Puts this page of the rows into an answer: `rows`, how many there are in total, and the cursor of the next page.
    pub fn put<T>(&self, answer: &mut Value, all: &[T], row: impl Fn(&T) -> Value) {
        let mut rows = Vec::new();
        let mut bytes = 0;
        for one in all.iter().skip(self.first).take(self.limit) {
            let row = row(one);
            bytes += row.to_string().len();
            if bytes > MOST_BYTES && !rows.is_empty() {
                break;
            }
            rows.push(row);
        }
        let next = self.first.saturating_add(rows.len());
        if next < all.len() && !rows.is_empty() {
            answer["next_cursor"] = format!("{:x}-{next}", self.question).into();
        }
        answer["total_rows"] = all.len().into();
        answer["rows"] = rows.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};

    fn page(arguments: Value, state: u64) -> Result<Page, String> {
        let map: Map<String, Value> = arguments.as_object().unwrap().clone();
        let known = ["limit", "cursor", "cost"];
        Page::new("top", &Arguments::new(&map, &known).unwrap(), state)
    }

    #[test]
    fn pages_together_have_every_row_once() {
        let all: Vec<u32> = (0..50).collect();
        let (mut seen, mut cursor) = (Vec::new(), Value::Null);
        loop {
            let mut answer = json!({});
            page(json!({ "limit": 20, "cursor": cursor }), 1).unwrap().put(&mut answer, &all, |row| json!(row));
            seen.extend(answer["rows"].as_array().unwrap().iter().map(|row| row.as_u64().unwrap() as u32));
            assert_eq!(answer["total_rows"], 50);
            match answer.get("next_cursor") {
                Some(next) => cursor = next.clone(),
                None => break,
            }
        }
        assert_eq!(seen, all);
    }

    #[test]
    fn an_answer_is_bounded_in_bytes() {
        let all = vec!["x".repeat(5000); 100];
        let mut answer = json!({});
        page(json!({ "limit": 100 }), 1).unwrap().put(&mut answer, &all, |row| json!(row));
        assert_eq!(answer["rows"].as_array().unwrap().len(), 6);
        assert!(answer.get("next_cursor").is_some());
    }

    #[test]
    fn a_cursor_of_another_question_is_refused() {
        let mut answer = json!({});
        page(json!({ "limit": 1, "cost": "peak" }), 1).unwrap().put(&mut answer, &[1, 2], |row| json!(row));
        let cursor = answer["next_cursor"].clone();
        assert!(page(json!({ "cost": "peak", "cursor": cursor }), 1).is_ok());
        assert!(page(json!({ "cost": "live", "cursor": cursor }), 1).is_err());
        assert!(page(json!({ "cost": "peak", "cursor": cursor }), 2).is_err());
        for wrong in ["", "-", "x-1", "1-1", "99999999999999999999-5", "-18446744073709551615"] {
            assert!(page(json!({ "cursor": wrong }), 1).is_err(), "{wrong}");
        }
        for wrong in [json!(0), json!(201), json!(-1), json!("5"), json!(1e30), json!([])] {
            assert!(page(json!({ "limit": wrong }), 1).is_err(), "{wrong}");
        }
    }
}
