//! Which part of a trace a question is about.
use crate::error::Error;
use analysis::Query;

/// Selects a part of a trace, and says how to look at it: a list of words with values, which are those of
/// `heaptrack print` and of docs/views.md.
///
/// | word | value |
/// |---|---|
/// | `at` | the instant, such as `1.5s`, `200ms`, `50%`, `peak` or `end` |
/// | `from`, `to` | the ends of a range, written in the same way |
/// | `include`, `exclude` | a part of the name of a function, file or module; repeatable |
/// | `thread`, `process`, `allocator` | only the blocks of this one; repeatable |
/// | `size`, `lifetime` | `MIN..MAX` |
/// | `cost` | `peak`, `leaked`, `live`, `allocations`, `temporary`, `allocated` and more |
/// | `suppressions` | `off` counts known leaks, too |
///
/// A time without a unit is in seconds.
///
/// ```
/// use heaptrack_trace::Selection;
///
/// let late = Selection::new([("from", "50%"), ("include", "cache")])?;
/// let live = Selection::everything().with("at", "peak")?;
/// assert!(Selection::new([("at", "soon")]).is_err());
/// assert_eq!((late.words().count(), live.words().next()), (2, Some(("at", "peak"))));
/// # Ok::<(), heaptrack_trace::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Selection {
    pub(crate) query: Query,
}

impl Selection {
    /// The whole session.
    pub fn everything() -> Self {
        Self::default()
    }

    /// The part that these words select. Words that contradict each other are refused.
    pub fn new<'a>(words: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, Error> {
        Ok(Selection { query: Query::new(words)? })
    }

    /// The same selection with one more word. A word that is not repeatable replaces its earlier value.
    pub fn with(mut self, word: &str, value: &str) -> Result<Self, Error> {
        self.query.set(word, value)?;
        self.query.check()?;
        Ok(self)
    }

    /// The words and their values, as they were given.
    pub fn words(&self) -> impl Iterator<Item = (&str, &str)> {
        self.query.given().iter().map(|(word, value)| (*word, value.as_str()))
    }
}
