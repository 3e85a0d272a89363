//! The program, its totals, and lists of places in its code.
use super::{Context, Tool, about};
use crate::arguments::Arguments;
use crate::rows::{self, place_of, shortened};
use crate::traces::Asked;
use analysis::view::{Blamed, Verdict, by_blamed, judge};
use analysis::{Cost, Definitions, Profile, Query};
use heaptrack_trace::{Selection, Trace};
use serde_json::{Map, Value, json};

pub const VERDICTS: [&str; 5] = ["grows", "bounded", "once", "exit", "tail"];

/// The most words of a command line.
const MOST_WORDS: usize = 40;

/// The query, and the costs that it selects.
pub fn profile(trace: &Trace, selection: &Selection) -> Result<(Query, Profile), String> {
    let query = trace.query(selection).map_err(|error| error.to_string())?;
    let profile = trace.parts().0.profile(&query).map_err(|error| error.to_string())?;
    Ok((query, profile))
}

fn definitions(trace: &Trace) -> &Definitions {
    trace.parts().0.engine().definitions()
}

/// The cost that is asked for, or a usual one that the file knows.
pub fn cost_of(trace: &Trace, query: &Query) -> Cost {
    let usual = || definitions(trace).profile.map_or(Cost::Peak, |known| known.usual());
    let of_instant = query.at.map(|_| Cost::Live);
    query.cost.or(of_instant).unwrap_or_else(usual)
}

pub fn open_trace(_: &Tool, context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<Value, String> {
    let asked = context.asked(arguments)?;
    let mut answer = about(&asked);
    put_session(&mut answer, &asked);
    Ok(answer)
}

fn put_session(answer: &mut Value, asked: &Asked) {
    let trace = &asked.trace;
    let (session, totals) = (trace.session(), trace.totals());
    let words = session.command.iter().take(MOST_WORDS);
    answer["command"] = words.map(|word| shortened(word)).collect::<Vec<_>>().into();
    answer["pid"] = session.pid.into();
    answer["attached"] = session.is_attached.into();
    answer["written_by"] = session.tool.into();
    answer["is_heap_profile"] = trace.is_heap_profile().into();
    answer["stacks"] = trace.stack_count().into();
    answer["processes"] = definitions(trace).processes.len().into();
    let totals = [
        ("allocations", totals.allocations),
        ("allocated_bytes", totals.allocated_bytes),
        ("deallocations", totals.deallocations),
        ("temporary", totals.temporary),
        ("leaked_bytes", totals.leaked_bytes),
        ("leaked_allocations", totals.leaked_allocations),
        ("peak_bytes", totals.peak_bytes),
        ("peak_allocations", totals.peak_allocations),
        ("peak_time_ns", totals.peak_time_ns),
        ("peak_rss_bytes", totals.peak_rss_bytes),
        ("runtime_ns", totals.runtime_ns),
        ("lost_events", totals.lost_events),
    ];
    let known = totals.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into())));
    answer["session_totals"] = known.collect::<Map<String, Value>>().into();
}

pub fn summary(_: &Tool, context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<Value, String> {
    const ROWS: usize = 5;
    let asked = context.asked(arguments)?;
    let (query, profile) = profile(&asked.trace, &arguments.selection()?)?;
    let mut answer = about(&asked);
    put_session(&mut answer, &asked);
    put_range(&mut answer, &asked.trace, &profile);
    let costs = match query.at {
        Some(_) => vec![Cost::Live],
        None => vec![Cost::Peak, Cost::Leaked, Cost::Allocations, Cost::Temporary],
    };
    for cost in costs.into_iter().filter(|cost| definitions(&asked.trace).knows(*cost)) {
        let (rows, total) = blamed(&asked.trace, &profile, &query, cost);
        let rows = rows.iter().take(ROWS).map(|row| blamed_row(&asked.trace, row, total));
        answer[format!("most_{}", cost.name())] = rows.collect::<Vec<_>>().into();
    }
    Ok(answer)
}

/// The selected range of time, and its totals.
fn put_range(answer: &mut Value, trace: &Trace, profile: &Profile) {
    let definitions = definitions(trace);
    if definitions.profile.is_none() {
        answer["range"] = json!({ "from_ns": profile.range.from_ns, "to_ns": profile.range.to_ns });
    }
    let costs = &profile.totals;
    let instant = [("live_bytes", costs.live_bytes), ("live_allocations", costs.live_allocations)];
    let range = [
        ("allocations", costs.allocations),
        ("allocated_bytes", costs.allocated_bytes),
        ("temporary", costs.temporary),
        ("peak_bytes", costs.peak_bytes),
    ];
    let mut totals = rows::costs(definitions, &instant);
    if !profile.range.instant {
        totals.extend(rows::costs(definitions, &range));
    }
    answer["totals"] = totals.into();
}

fn blamed(trace: &Trace, profile: &Profile, query: &Query, cost: Cost) -> (Vec<Blamed>, i64) {
    let rows = by_blamed(profile, trace.parts().1, query, cost);
    let total = rows.iter().map(|row| row.value).fold(0, i64::saturating_add);
    (rows, total)
}

fn blamed_row(trace: &Trace, row: &Blamed, total: i64) -> Value {
    let mut made = place_of(trace.parts().1, row.node);
    made.insert("site".into(), row.stack.into());
    made.insert("value".into(), row.value.into());
    made.insert("percent".into(), percent(row.value, total));
    let costs = &row.sum.costs;
    let costs = [
        ("allocations", costs.allocations),
        ("allocated_bytes", costs.allocated_bytes),
        ("temporary", costs.temporary),
        ("peak_bytes", costs.peak_bytes),
        ("live_bytes", costs.live_bytes),
        ("leaked_bytes", row.sum.leaked_bytes),
    ];
    made.extend(rows::costs(definitions(trace), &costs).into_iter().filter(|(_, value)| *value != json!(0)));
    made.into()
}

/// A share, to a tenth of a per cent.
pub fn percent(value: i64, total: i64) -> Value {
    match total {
        0 => Value::Null,
        total => json!((value as f64 * 1000.0 / total as f64).round() / 10.0),
    }
}

pub fn top_sites(tool: &Tool, context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<Value, String> {
    let asked = context.asked(arguments)?;
    list(tool, arguments, &asked)
}

pub fn live_at(tool: &Tool, context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<Value, String> {
    if arguments.given().get("at").is_none_or(Value::is_null) {
        return Err("`at` is missing".into());
    }
    let asked = context.asked(arguments)?;
    list(tool, arguments, &asked)
}

fn list(tool: &Tool, arguments: &Arguments<'_>, asked: &Asked) -> Result<Value, String> {
    let page = tool.page(arguments, asked)?;
    let (query, profile) = profile(&asked.trace, &arguments.selection()?)?;
    let cost = cost_of(&asked.trace, &query);
    let (rows, total) = blamed(&asked.trace, &profile, &query, cost);
    let mut answer = about(asked);
    answer["cost"] = cost.name().into();
    put_range(&mut answer, &asked.trace, &profile);
    page.put(&mut answer, &rows, |row| blamed_row(&asked.trace, row, total));
    Ok(answer)
}

pub fn leaks(tool: &Tool, context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<Value, String> {
    let wanted = arguments.text("verdict")?;
    if wanted.is_some_and(|wanted| !VERDICTS.contains(&wanted)) {
        return Err(format!("`verdict` must be one of {}", VERDICTS.join(", ")));
    }
    let asked = context.asked(arguments)?;
    let page = tool.page(arguments, &asked)?;
    if asked.trace.is_heap_profile() {
        return Err(
            "verdicts need events, and this is a heap profile, which has only sums; `top_sites` with cost `live` works"
                .into(),
        );
    }
    let query = asked.trace.query(&arguments.selection()?).map_err(|error| error.to_string())?;
    let (open, table) = asked.trace.parts();
    let mut blocks = open.blocks().map_err(|error| error.to_string())?;
    let mut judged = judge(&mut open.for_view(table, &mut blocks), &query).map_err(|error| error.to_string())?;
    judged.retain(|leak| wanted.is_none_or(|wanted| leak.verdict.name() == wanted));
    let total = judged.iter().map(|leak| leak.live_bytes).fold(0, u64::saturating_add);
    let mut answer = about(&asked);
    answer["live_bytes"] = total.into();
    answer["growing_places"] = judged.iter().filter(|leak| leak.verdict == Verdict::Grows).count().into();
    page.put(&mut answer, &judged, |leak| {
        let mut row = place_of(table, leak.node);
        let suppressed = leak.suppressed.as_deref().map(shortened);
        for (name, value) in [
            ("site", json!(leak.stack)),
            ("verdict", leak.verdict.name().into()),
            ("reason", shortened(&leak.reason).into()),
            ("live_bytes", leak.live_bytes.into()),
            ("live_allocations", leak.live_allocations.into()),
            ("allocations", leak.allocations.into()),
            ("growth_bytes_per_second", leak.growth_bytes_per_second.into()),
            ("first_ns", leak.first_ns.into()),
            ("last_ns", leak.last_ns.into()),
            ("known_leak", suppressed.into()),
        ] {
            row.insert(name.into(), value);
        }
        row.into()
    });
    Ok(answer)
}

pub fn stack(tool: &Tool, context: &mut Context<'_>, arguments: &Arguments<'_>) -> Result<Value, String> {
    let site = arguments.number("site", 0, u32::MAX as u64)?.ok_or("`site` is missing")? as u32;
    let asked = context.asked(arguments)?;
    let page = tool.page(arguments, &asked)?;
    if site >= asked.trace.stack_count() {
        return Err(format!("there is no site {site}; this trace has {} of them, from 0", asked.trace.stack_count()));
    }
    let (_, profile) = profile(&asked.trace, &Selection::everything())?;
    let costs = profile.stacks.iter().find(|(id, _)| *id == site).map(|(_, costs)| *costs).unwrap_or_default();
    let table = asked.trace.parts().1;
    let mut answer = about(&asked);
    answer["site"] = site.into();
    let named: Vec<_> =
        analysis::Costs::NAMES.iter().copied().zip(costs.values()).filter(|(_, value)| *value > 0).collect();
    answer["costs"] = rows::costs(definitions(&asked.trace), &named).into();
    answer["is_known_leak"] = table.stack(site).suppressed.is_some().into();
    let nodes: Vec<_> = table.path(table.stack(site).node).collect();
    page.put(&mut answer, &nodes, |node| {
        let mut row = place_of(table, *node);
        let level = table.level(*node);
        row.insert("inlined".into(), level.is_some_and(|level| level.inlined).into());
        row.insert("class".into(), level.and_then(|level| level.class).map(|class| class.name()).into());
        row.into()
    });
    Ok(answer)
}
