//! Blocks by lifetime, in buckets of powers of two of nanoseconds.
use super::Trace;
use super::bands::Bands;
use super::sizes::{bucket, ends};
use crate::counter::{Birth, Selection};
use crate::definitions::{KnownAllocClass, SCALE};
use crate::pass::Gone;
use crate::query::Query;
use crate::walker::{Now, Sink};
use format::{Freed, LiveBlocks};
use serde::ser::{Serialize, SerializeMap, Serializer};

const BUCKETS: usize = 65;

#[derive(Clone, Copy, Default)]
struct Bucket {
    deallocations: u64,
    freed_bytes: u64,
    live_allocations: u64,
    live_bytes: u64,
}

/// The blocks whose lifetimes are from one power of two to the next, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct LifetimeBucket {
    pub from_ns: u64,
    pub to_ns: u64,
    /// Blocks freed in the range, by how long they lived.
    pub deallocations: u64,
    pub freed_bytes: u64,
    /// Blocks that are live at the end of the range, by age.
    pub live_allocations: u64,
    pub live_bytes: u64,
}

/// Blocks by lifetime, the shortest first. Empty buckets are left out.
pub fn lifetimes(trace: &mut Trace<'_>, query: &Query) -> Result<Vec<LifetimeBucket>, Gone> {
    let lifetimes = Lifetimes::new(trace, query)?;
    let made = lifetimes.used().map(|(bucket, number)| {
        let (from_ns, to_ns) = ends(number);
        let Bucket { deallocations, freed_bytes, live_allocations, live_bytes } = *bucket;
        LifetimeBucket { from_ns, to_ns, deallocations, freed_bytes, live_allocations, live_bytes }
    });
    Ok(made.collect())
}

impl Bucket {
    const fn add_live(&mut self, (blocks, bytes): (u64, u64)) {
        self.live_allocations += blocks;
        self.live_bytes = self.live_bytes.saturating_add(bytes);
    }
}

pub(crate) struct Lifetimes {
    buckets: Vec<Bucket>,
}

struct Ages<'a> {
    alloc_classes: &'a [KnownAllocClass],
    bands: &'a Bands,
    selection: Option<Selection>,
    /// The range does, so what processes had not freed when they ended is leaked.
    reaches_end: bool,
    buckets: Vec<Bucket>,
}

impl Ages<'_> {
    /// The blocks and bytes that a block counts for, if the query asks for it.
    fn counted(&self, sequence: u64, birth: &Birth) -> Option<(u64, u64)> {
        let alloc_class = self.alloc_classes.get(birth.alloc_class as usize)?;
        let counts = alloc_class.site.number().and_then(|site| self.bands.of(site)).is_some()
            && self.selection.as_ref().is_none_or(|selection| selection.has(sequence, birth.thread));
        counts.then_some((alloc_class.blocks as u64, alloc_class.bytes))
    }
}

impl Sink for Ages<'_> {
    type Kept = Birth;

    fn keep(&self, now: &Now, alloc_class: u32) -> Option<Birth> {
        Birth::of(now, alloc_class, self.alloc_classes)
    }

    fn free(&mut self, now: &Now, sequence: u64, birth: Birth, how: Freed, _: bool) {
        let Some(weight) = self.counted(sequence, &birth) else { return };
        let age = birth.age(now);
        let Some(bucket) = self.buckets.get_mut(bucket(age) as usize) else { return };
        match how {
            Freed::Leaked if self.reaches_end => bucket.add_live(weight),
            Freed::Leaked | Freed::Replaced => {}
            _ => {
                bucket.deallocations += weight.0;
                bucket.freed_bytes = bucket.freed_bytes.saturating_add(weight.1);
            }
        }
    }

    fn end_image(&mut self, _: &Now, _: &LiveBlocks<Birth>) {}
}

impl Lifetimes {
    pub(crate) fn new(trace: &mut Trace<'_>, query: &Query) -> Result<Self, Gone> {
        let engine = trace.engine;
        let range = engine.range(query);
        let bands = Bands::new(engine, trace.table, query);
        let selection = engine.selection(trace.blocks, query, &range)?;
        let empty = vec![Bucket::default(); BUCKETS];
        let alloc_classes = engine.alloc_classes_by_size(query);
        let ages = Ages {
            alloc_classes: &alloc_classes,
            bands: &bands,
            selection,
            reaches_end: engine.reaches_end(&range),
            buckets: empty.clone(),
        };
        let moments = [engine.moment(range.from), engine.moment(range.to)];
        let point = engine.start_for(moments[0]);
        let mut walker = point.other_walker(ages);
        engine.stretch(trace.blocks, point).walk(&mut walker, &moments, |at, walker| {
            if at == 0 {
                walker.sink.buckets.clone_from(&empty);
            } else {
                let mut buckets = std::mem::take(&mut walker.sink.buckets);
                walker.live.each_from(0, |sequence, birth| {
                    let Some(weight) = walker.sink.counted(sequence, &birth) else { return };
                    let age = range.to_ns.saturating_sub(birth.time_ns);
                    if let Some(bucket) = buckets.get_mut(bucket(age) as usize) {
                        bucket.add_live(weight);
                    }
                });
                walker.sink.buckets = buckets;
            }
        })?;
        let mut buckets = walker.sink.buckets;
        if engine.definitions().session.sampling.is_some() {
            let blocks = |count: u64| count.saturating_add(SCALE as u64 / 2) / SCALE as u64;
            for bucket in &mut buckets {
                bucket.deallocations = blocks(bucket.deallocations);
                bucket.live_allocations = blocks(bucket.live_allocations);
            }
        }
        Ok(Lifetimes { buckets })
    }

    /// The buckets that are not empty, and their numbers.
    fn used(&self) -> impl Iterator<Item = (&Bucket, u32)> {
        let numbered = self.buckets.iter().zip(0u32..);
        numbered.filter(|(bucket, _)| bucket.deallocations > 0 || bucket.live_allocations > 0)
    }
}

impl Serialize for Lifetimes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let used = || self.used();
        let column = |value: fn(&Bucket) -> u64| -> Vec<u64> { used().map(|(bucket, _)| value(bucket)).collect() };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("from", &used().map(|(_, number)| ends(number).0).collect::<Vec<_>>())?;
        map.serialize_entry("to", &used().map(|(_, number)| ends(number).1).collect::<Vec<_>>())?;
        map.serialize_entry("deallocations", &column(|bucket| bucket.deallocations))?;
        map.serialize_entry("freed_bytes", &column(|bucket| bucket.freed_bytes))?;
        map.serialize_entry("live_allocations", &column(|bucket| bucket.live_allocations))?;
        map.serialize_entry("live_bytes", &column(|bucket| bucket.live_bytes))?;
        map.end()
    }
}
