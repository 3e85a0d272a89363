//! What an address asks for.
use crate::Refusal;
use crate::address::decode;
use analysis::Query;
use analysis::view::View;
use format::Domain;

/// A question of the page. `trace` is the number of a trace.
#[derive(Clone, Debug)]
pub enum Question {
    /// The state of all traces. Those of `trace` are about this domain.
    Status { trace: usize, domain: Domain },
    /// Names by which functions of this trace and of another one, the base, are the same. `earlier`: further traces that are
    /// compared with the same base, and whose functions have their names already.
    Pairs { trace: usize, base: usize, earlier: Vec<usize>, domain: Domain },
    /// The text of a source file that the trace names.
    SourceText { trace: usize, file: String },
    /// A view of docs/views.md. `beside`: the trace that this one is compared with, whose wrappers count, too. Only the
    /// view `stacks` has it.
    View { trace: usize, view: View, query: Box<Query>, beside: Option<usize> },
}

/// Reads an address of the page: the name of the view, and the part after `?`.
pub fn question(view: &str, query: &str) -> Result<Question, Refusal> {
    let pairs = decode(query)?;
    let text = |name: &str| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let number = |name: &str, text: &str| text.parse().map_err(|_| Refusal::new(400, format!("`{name}` is a number.")));
    let trace = text("trace").map_or(Ok(0), |text| number("trace", text))?;
    let domain = || Domain::ALL.into_iter().find(|domain| text("domain") == Some(domain.name())).unwrap_or_default();
    match view {
        "status" => return Ok(Question::Status { trace, domain: domain() }),
        "pairs" => {
            let base = number("compare", text("compare").unwrap_or_default())?;
            let earlier = text("runs").unwrap_or_default().split(',').filter(|run| !run.is_empty());
            let earlier = earlier.map(|run| number("runs", run)).collect::<Result<_, _>>()?;
            return Ok(Question::Pairs { trace, base, earlier, domain: domain() });
        }
        "source-text" => {
            return Ok(Question::SourceText { trace, file: text("file").unwrap_or_default().to_owned() });
        }
        _ => {}
    }
    let view = View::parse(view).ok_or_else(|| Refusal::new(404, format!("There is no view `{view}`.")))?;
    let beside = text("compare").filter(|_| view == View::Stacks).map(|text| number("compare", text)).transpose()?;
    let is_ours = |key: &str| matches!(key, "trace" | "token" | "v") || (beside.is_some() && key == "compare");
    let asked = pairs.iter().filter(|(key, _)| !is_ours(key));
    let query = Query::new(asked.map(|(key, value)| (key.as_str(), value.as_str())))
        .map_err(|bad| Refusal::new(400, bad.to_string()))?;
    Ok(Question::View { trace, view, query: Box::new(query), beside })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_stacks_have_a_trace_beside_them() {
        let beside = |view: &str, query: &str| match question(view, query) {
            Ok(Question::View { beside, .. }) => Ok(beside),
            Ok(other) => panic!("{other:?}"),
            Err(refusal) => Err(refusal.status),
        };
        assert_eq!(beside("stacks", "trace=1&compare=0&wrapper=x"), Ok(Some(0)));
        assert_eq!(beside("stacks", "trace=1"), Ok(None));
        assert_eq!(beside("stacks", "compare=@5s"), Err(400));
        // Of other views, `compare` is a word of the query.
        let Ok(Question::View { beside, query, .. }) = question("profile", "compare=@5s") else { panic!("no view") };
        assert_eq!((beside, query.compare.is_some()), (None, true));
    }
}
