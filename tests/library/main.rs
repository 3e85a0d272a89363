//! A program outside of the workspace, which uses every public item of `heaptrack-trace`. tests/tests/trace_library.rs builds it.
use heaptrack_trace::{
    Block, Change, Costs, Error, Event, EventKind, Leak, Level, Selection, Session, Site, SiteId, Totals, Trace, Verdict,
};

fn sums(trace: &Trace, selection: &Selection) -> Result<[u64; 4], Error> {
    let [mut allocated, mut freed, mut gone, mut temporary] = [0; 4];
    trace.each_event(selection, |event: &Event| match event.kind {
        EventKind::Alloc => allocated += event.size,
        EventKind::Free { is_temporary } => {
            freed += event.size;
            temporary += u64::from(is_temporary);
            assert!(event.time_ns >= event.allocated_ns && event.block < u64::MAX && event.thread < 1000);
        }
        EventKind::Gone { is_leaked } => gone += u64::from(is_leaked),
        _ => {}
    })?;
    Ok([allocated, freed, gone, temporary])
}

fn main() -> Result<(), Error> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let trace = Trace::open(&words[0])?;
    let everything = Selection::everything();
    let session: Session<'_> = trace.session();
    assert!(!session.command.is_empty() && session.pid > 0 && session.started_unix_ns > 0 && !session.is_attached);
    assert!(session.executable.ends_with("exported") && session.tool.contains("heaptrack"));
    let totals: Totals = trace.totals();
    assert!(trace.is_complete() && !trace.is_heap_profile() && trace.not_seen().is_empty());
    assert_eq!(trace.path().to_str(), Some(words[0].as_str()));

    let sites: Vec<Site> = trace.sites(&everything)?;
    let sum = |of: fn(&Costs) -> Option<u64>| sites.iter().map(|site| of(&site.costs)).sum::<Option<u64>>();
    assert_eq!(sum(Costs::allocations), totals.allocations);
    assert_eq!(sum(Costs::allocated_bytes), totals.allocated_bytes);
    assert_eq!(sum(Costs::deallocations), totals.deallocations);
    assert_eq!(sum(Costs::temporary), totals.temporary);
    assert_eq!(sum(Costs::live_bytes), totals.leaked_bytes);
    assert_eq!(sum(Costs::live_allocations), totals.leaked_allocations);
    assert_eq!(sum(Costs::peak_bytes), totals.peak_bytes);
    assert_eq!(sum(Costs::peak_allocations), totals.peak_allocations);
    assert!(sum(Costs::lifetime_ns).is_some() && sites.iter().all(|site| site.id < trace.stack_count()));
    assert!(totals.runtime_ns > totals.peak_time_ns && totals.peak_rss_bytes > Some(0) && totals.lost_events == Some(0));

    let [allocated, freed, gone, temporary] = sums(&trace, &everything)?;
    assert_eq!([Some(allocated), Some(freed)], [totals.allocated_bytes, sum(Costs::freed_bytes)]);
    assert_eq!((gone, Some(temporary)), (0, totals.temporary));
    // Two halves are the whole.
    let halves = [Selection::new([("to", "50%")])?, everything.clone().with("from", "50%")?];
    let halves = [sums(&trace, &halves[0])?, sums(&trace, &halves[1])?];
    assert_eq!(halves[0][0] + halves[1][0], allocated);
    let (mut blocks, mut live) = (0, 0);
    trace.each_block(&everything, |block: &Block| {
        let Block { number, site, size, allocated_ns, end, .. } = *block;
        assert!(number < u64::MAX && site < trace.stack_count() && end.is_none_or(|(end, _)| end >= allocated_ns));
        blocks += 1;
        live += if end.is_none() { size } else { 0 };
    })?;
    assert_eq!((Some(blocks), Some(live)), (totals.allocations, totals.leaked_bytes));

    let held = trace.live_at("peak")?;
    assert_eq!(held.iter().map(|site| site.costs.live_bytes()).sum::<Option<u64>>(), totals.peak_bytes);
    let level = |id: SiteId, name: &str| trace.stack(id).any(|level: Level<'_>| {
        level.short == Some(name) && level.is_own_code && !level.is_inlined && level.function.is_some()
            && level.file.is_some() && level.line.is_some() && level.module.is_some() && level.offset.is_some()
    });
    assert!(sites.iter().any(|site| level(site.id, "main") && !site.is_suppressed));
    assert_eq!(trace.stack(SiteId::MAX).count(), 0);

    let leaks: Vec<Leak> = trace.leaks(&everything)?;
    let known = |leak: &Leak| {
        let verdicts = [Verdict::Grows, Verdict::Bounded, Verdict::Once, Verdict::Exit, Verdict::Tail];
        verdicts.contains(&leak.verdict) && !leak.reason.is_empty() && leak.allocations >= leak.live_allocations
            && leak.growth_bytes_per_second >= 0 && leak.suppressed.is_none() && leak.site < trace.stack_count()
    };
    assert!(leaks.iter().all(known));
    assert_eq!(Some(leaks.iter().map(|leak| leak.live_bytes).sum()), totals.leaked_bytes);

    let other = Trace::open_indexed(&words[0])?;
    let changes: Vec<Change> = trace.changes(&other, &everything.clone().with("cost", "allocations")?)?;
    assert!(changes.iter().all(|change| change.before == change.after && !change.is_new && !change.is_gone));
    assert!(changes.iter().all(|change| change.function.is_some() || change.module.is_some() || change.file.is_some()));
    let file = std::fs::File::open(&words[0]).map_err(|error| Error::File(error.to_string()))?;
    assert_eq!(Trace::open_file(file, "another name")?.totals(), totals);
    assert_eq!(Trace::open_custom(&words[0])?.totals().allocations, Some(0));
    assert!(matches!(Trace::open("no such file"), Err(Error::File(_))));
    assert!(matches!(trace.sites(&Selection::new([("thread", "99")])?), Err(Error::Selection(_))));
    assert!(matches!(trace.view("nothing", &everything), Err(Error::Selection(_))));

    // A heap profile knows only some numbers.
    let profile = Trace::open(&words[1])?;
    assert!(profile.is_heap_profile() && profile.totals().runtime_ns.is_none());
    assert_eq!(profile.totals().leaked_bytes, totals.leaked_bytes);
    assert!(profile.sites(&everything)?.iter().all(|site| site.costs.lifetime_ns().is_none()));
    assert!(profile.leaks(&everything).is_err() && profile.each_event(&everything, |_| ()).is_err());

    // If blocks were sampled, each event stands for several, and a comparison is refused.
    assert!(trace.sampled_every().is_none() && trace.weight(1) == 1.0);
    let sampled = Trace::open(&words[2])?;
    assert_eq!((sampled.sampled_every(), sampled.weight(1 << 20)), (Some(1000), 1.0));
    let (mut taken, mut estimate) = (0, 0.0);
    sampled.each_event(&everything, |event| {
        if event.kind == EventKind::Alloc {
            taken += 1;
            estimate += sampled.weight(event.size);
        }
    })?;
    let allocations = sampled.totals().allocations.unwrap_or(0);
    assert!((estimate - allocations as f64).abs() < 0.01 * estimate, "{estimate} {allocations}");
    assert!(taken < allocations, "{taken} {allocations}");
    for (new, old) in [(&sampled, &trace), (&trace, &sampled)] {
        let refused = [new.changes(old, &everything).err(), new.diff_view(old, &everything).err()];
        for error in refused.into_iter().map(|error| error.map(|error| error.to_string()).unwrap_or_default()) {
            assert!(error.contains("a comparison needs every block, and those of "), "{error}");
        }
    }

    // The answers of `heaptrack print --json`, and of two views.
    print!("{}", trace.json(&everything, None)?);
    print!("{}", trace.view("timeline", &Selection::new([("points", "8")])?)?);
    print!("{}", trace.diff_view(&other, &everything)?);
    Ok(())
}
