//! From the options to a query.
use super::Print;
use analysis::{BadQuery, Pattern, Query};

impl Print {
    /// Returns the query that the options describe.
    pub fn query(&self) -> Result<Query, BadQuery> {
        let mut query = Query::default();
        let single = [
            ("domain", &self.domain),
            ("at", &self.at),
            ("from", &self.from),
            ("to", &self.to),
            ("size", &self.size),
            ("lifetime", &self.lifetime),
            ("cost", &self.cost),
            ("hide", &self.hide),
            ("collapse", &self.collapse),
            ("merge", &self.merge),
            ("compare", &self.compare),
            ("limit", &self.limit),
            ("depth", &self.depth),
            ("points", &self.points),
            ("top", &self.top),
            ("by", &self.by),
            ("function", &self.function),
            ("file", &self.source_file),
        ];
        for (name, value) in single {
            if let Some(value) = value {
                query.set(name, value)?;
            }
        }
        let repeated = [
            ("include", &self.include),
            ("exclude", &self.exclude),
            ("thread", &self.thread),
            ("process", &self.process),
            ("allocator", &self.allocator),
            ("wrapper", &self.wrapper),
            ("not-wrapper", &self.not_wrapper),
        ];
        for (name, values) in repeated {
            for value in values {
                query.set(name, value)?;
            }
        }
        if let Some(text) = &self.filter_bt_function {
            query.include.push(Pattern::exact_function(text));
        }
        if self.known.no_suppressions {
            query.set("suppressions", "off")?;
        }
        if let Some(base) = &self.diff {
            query.set("compare", &base.to_string_lossy())?;
        }
        query.check()?;
        Ok(query)
    }
}
