//! Allocation wrappers: functions such as `xmalloc` or `g_malloc`, which only pass a request on to the allocator.
//!
//! Receives: the table of stacks, the sizes that each stack allocated, the rules about wrappers. Returns: the wrappers,
//! and for each level whether it is one. Must hold: what the user says (words of the query, then rules) counts more than
//! a name, and a name more than numbers. docs/blame.md is the contract.
mod known_names;

use crate::code_class::CodeClass;
use crate::definitions::SiteId;
use crate::stack_table::{NodeId, StackTable, StackTableLevel};
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
pub use known_names::{ENDINGS, KNOWN_NAMES};
use known_names::{has_name_of_wrapper, is_known};

/// A function is a wrapper by numbers if it has at least this many callers and sizes,
pub const CALLERS: usize = 10;
pub const SIZES: usize = 10;
/// and if it calls the allocator directly in at least this many per cent of the stacks that it is in.
pub const PERCENT: usize = 90;
/// How many functions in a row may be wrappers by numbers. More would be a guess about the program's structure.
const ROUNDS: usize = 2;

/// Why a function counts as a part of the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The word `wrapper` of the query.
    Query,
    /// A rule of the user.
    Rule,
    /// It has a known name.
    Name,
    /// It is called by many functions, with many sizes.
    Numbers,
}

impl Reason {
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Query => "query",
            Reason::Rule => "rule",
            Reason::Name => "name",
            Reason::Numbers => "numbers",
        }
    }

    /// Whether the user named it. All that such a function calls is a part of the allocator too.
    const fn is_explicit(self) -> bool {
        matches!(self, Reason::Query | Reason::Rule)
    }
}

/// A function that counts as a part of the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrapper {
    /// A level of the function.
    pub level: u32,
    pub reason: Reason,
    /// The number of functions that call it directly, as far as they have names.
    pub callers: u32,
    /// The number of different sizes.
    pub sizes: u32,
    /// The number of stacks whose owner is further out because of it.
    pub stacks: u32,
}

/// The wrappers of a table of stacks.
#[derive(Clone, Debug, Default)]
pub struct Wrappers {
    /// The one with the most stacks first. Functions that change no owner are left out.
    pub list: Vec<Wrapper>,
    /// By level.
    reasons: Vec<Option<Reason>>,
    /// By level.
    functions: Vec<Option<FunctionId>>,
}

/// What is decided before the table is looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked<'a> {
    /// Names that the words `wrapper` and `not-wrapper` of a query give, with `*` for any text.
    pub(crate) wrappers: &'a [String],
    pub(crate) others: &'a [String],
    /// The full names of wrappers that were found in another trace, which this one is compared with.
    pub(crate) found: &'a [String],
}

impl Asked<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.wrappers.is_empty() && self.others.is_empty() && self.found.is_empty()
    }
}

impl Wrappers {
    /// The full names of the functions that were found by their numbers.
    pub(crate) fn found<'a>(&'a self, table: &'a StackTable) -> impl Iterator<Item = &'a str> {
        let levels = table.levels.iter().zip(&self.reasons);
        let found = levels.filter(|(_, reason)| matches!(reason, Some(Reason::Name | Reason::Numbers)));
        found.filter_map(|(level, _)| table.text(level.function))
    }

    pub(crate) fn reason(&self, level: u32) -> Option<Reason> {
        self.reasons.get(level as usize).copied().flatten()
    }

    fn function(&self, level: u32) -> Option<FunctionId> {
        self.functions.get(level as usize).copied().flatten()
    }
}

/// A function with its module. Levels without a name have none.
type FunctionId = u32;

/// What is known of a function right above the allocator.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    callers: u32,
    sizes: u32,
    stacks: u32,
}

pub(crate) struct Finder<'a> {
    table: &'a StackTable,
    /// By site, the different sizes.
    sizes: &'a [Vec<u64>],
    /// By level.
    functions: Vec<Option<FunctionId>>,
    /// By function: the first level, and why it is a wrapper.
    first: Vec<u32>,
    reasons: Vec<Option<Reason>>,
    /// By function: the user said that it is no wrapper.
    refused: Vec<bool>,
}

impl<'a> Finder<'a> {
    pub(crate) fn new(table: &'a StackTable, sizes: &'a [Vec<u64>], asked: Asked<'_>) -> Self {
        let mut known: HashMap<(u32, Option<u32>), FunctionId> = HashMap::new();
        let mut finder =
            Finder { table, sizes, functions: Vec::new(), first: Vec::new(), reasons: Vec::new(), refused: Vec::new() };
        for (number, level) in table.levels.iter().enumerate() {
            let function = level.function.filter(|_| level.class.is_some());
            let id = function.map(|function| {
                let next = finder.first.len() as FunctionId;
                let id = *known.entry((function, level.module)).or_insert(next);
                if id == next {
                    finder.first.push(number as u32);
                    finder.judge(level, asked);
                }
                id
            });
            finder.functions.push(id);
        }
        finder
    }

    /// Decides about a function as far as no numbers are needed.
    fn judge(&mut self, level: &StackTableLevel, asked: Asked<'_>) {
        let name = self.table.text(level.function).unwrap_or_default();
        let short = self.table.text(level.short).unwrap_or(name);
        let names = |list: &[String]| {
            list.iter()
                .any(|pattern| crate::code_class::matches(pattern, name) || crate::code_class::matches(pattern, short))
        };
        let is_candidate = is_candidate(level);
        let (reason, refused) = if names(asked.others) {
            (None, true)
        } else if names(asked.wrappers) {
            (Some(Reason::Query), false)
        } else {
            match level.wrapper_rule {
                Some(true) => (Some(Reason::Rule), false),
                Some(false) => (None, true),
                None if !is_candidate => (None, false),
                None if is_known(short) => (Some(Reason::Name), false),
                None => (asked.found.iter().any(|found| found == name).then_some(Reason::Numbers), false),
            }
        };
        self.reasons.push(reason);
        self.refused.push(refused);
    }

    pub(crate) fn find(mut self) -> Wrappers {
        for _ in 0..ROUNDS {
            let numbers = self.numbers();
            let found = self.by_numbers(&numbers);
            if found.is_empty() {
                break;
            }
            for (function, reason) in found {
                if let Some(place) = self.reasons.get_mut(function as usize) {
                    *place = Some(reason);
                }
            }
        }
        let reasons = self.functions.iter().map(|function| self.reason(*function)).collect();
        Wrappers { list: Vec::new(), reasons, functions: self.functions }
    }

    fn reason(&self, function: Option<FunctionId>) -> Option<Reason> {
        self.reasons.get(function? as usize).copied().flatten()
    }

    fn function(&self, node: NodeId) -> Option<FunctionId> {
        let level = self.table.nodes.get(node as usize)?.level?;
        self.functions.get(level as usize).copied().flatten()
    }

    /// The nodes of a stack that are not wrappers right above the allocator.
    fn above(&self, node: NodeId) -> NodeId {
        let mut path = self.table.path(node);
        path.find(|node| self.reason(self.function(*node)).is_none()).unwrap_or(0)
    }

    /// The numbers of the functions right above the allocator.
    fn numbers(&self) -> HashMap<FunctionId, Numbers> {
        let mut found: HashMap<FunctionId, Numbers> = HashMap::new();
        let mut callers = HashSet::new();
        let mut sizes = HashSet::new();
        for (stack, of_stack) in self.table.stacks.iter().zip(self.sizes) {
            let node = self.above(stack.node);
            let Some(function) = self.function(node) else { continue };
            if !self.table.level(node).is_some_and(is_candidate) {
                continue;
            }
            let numbers = found.entry(function).or_default();
            numbers.stacks += 1;
            let of = |level: u32| self.functions.get(level as usize).copied().flatten();
            if let Some(caller) = caller(self.table, node, of) {
                numbers.callers += callers.insert((function, caller)) as u32;
            }
            for size in of_stack {
                numbers.sizes += sizes.insert((function, *size)) as u32;
            }
        }
        found
    }

    fn by_numbers(&self, numbers: &HashMap<FunctionId, Numbers>) -> Vec<(FunctionId, Reason)> {
        let refused = |function: &FunctionId| self.refused.get(*function as usize).copied().unwrap_or(true);
        let name = |function: FunctionId| {
            let level = self.first.get(function as usize).and_then(|level| self.table.levels.get(*level as usize));
            level.and_then(|level| self.table.text(level.short.or(level.function))).unwrap_or_default()
        };
        let mut found = Vec::new();
        let mut many = Vec::new();
        for (function, numbers) in numbers.iter().filter(|(function, _)| !refused(function)) {
            if numbers.callers >= 2 && has_name_of_wrapper(name(*function)) {
                found.push((*function, Reason::Name));
            } else if numbers.callers as usize >= CALLERS && numbers.sizes as usize >= SIZES {
                many.push((*function, *numbers));
            }
        }
        for part in many.chunks(64) {
            let all = self.stacks_with(part);
            for ((function, numbers), all) in part.iter().zip(all) {
                if numbers.stacks as usize * 100 >= all * PERCENT {
                    found.push((*function, Reason::Numbers));
                }
            }
        }
        found
    }

    /// The number of stacks that each of at most 64 functions is in.
    fn stacks_with(&self, functions: &[(FunctionId, Numbers)]) -> Vec<usize> {
        let bits: HashMap<FunctionId, u64> =
            functions.iter().enumerate().map(|(at, (function, _))| (*function, 1 << at)).collect();
        // A parent comes before its children.
        let mut inside: Vec<u64> = Vec::with_capacity(self.table.nodes.len());
        for (number, node) in self.table.nodes.iter().enumerate() {
            let own = self.function(number as NodeId).and_then(|function| bits.get(&function)).copied().unwrap_or(0);
            let inherited = inside.get(node.parent as usize).copied().unwrap_or(0);
            inside.push(own | inherited);
        }
        let mut counts = vec![0; functions.len()];
        for stack in &self.table.stacks {
            let set = inside.get(stack.node as usize).copied().unwrap_or(0);
            for (at, count) in counts.iter_mut().enumerate() {
                *count += (set >> at & 1) as usize;
            }
        }
        counts
    }
}

/// libc and the kernel are never to blame, so it does not matter whether they wrap the allocator.
fn is_candidate(level: &StackTableLevel) -> bool {
    matches!(level.class, Some(CodeClass::Program | CodeClass::Dependency | CodeClass::Runtime))
}

fn is_program(table: &StackTable, level: u32) -> bool {
    table.levels.get(level as usize).is_some_and(|level| level.class == Some(CodeClass::Program))
}

/// The level that owns the memory of a stack, and whether it is in the user's own code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// 0 if nothing is known.
    pub(crate) node: NodeId,
    pub(crate) is_own: bool,
}

/// Chooses the owner of a stack. docs/blame.md has the order.
pub(crate) fn owner(table: &StackTable, wrappers: &Wrappers, leaf: NodeId, path: &mut Vec<NodeId>) -> Owner {
    path.clear();
    path.extend(table.path(leaf));
    let level = |at: usize| path.get(at).and_then(|node| table.level(*node));
    let class = |at: usize| level(at).and_then(|level| level.class);
    let reason = |at: usize| path.get(at).and_then(|node| wrappers.reason(table.nodes.get(*node as usize)?.level?));
    let is_named = |at: &usize| class(*at).is_some() && level(*at).is_some_and(|level| level.function.is_some());
    let node = |at: usize| path.get(at).copied().unwrap_or(0);
    let own = |at: usize| Owner { node: node(at), is_own: true };

    let count = path.len();
    // The outermost one, because all that it calls is a part of the allocator, itself included.
    let explicit = (0..count).rev().find(|at| reason(*at).is_some_and(Reason::is_explicit));
    let begin = explicit.map_or(0, |at| at + 1);
    let is_own = |at: &usize| class(*at) == Some(CodeClass::Program);
    let is_free = |at: &usize| reason(*at).is_none();
    let is_runtime = |at: usize| class(at) == Some(CodeClass::Runtime);
    let is_system = |at: &usize| matches!(class(*at), Some(CodeClass::Libc | CodeClass::Kernel));

    let first_own = (begin..count).find(|at| is_own(at) && is_free(at));
    if let Some(first) = first_own {
        let named = (first..count).find(|at| is_own(at) && is_free(at) && is_named(at));
        let called = || (begin..first).rev().find(|at| is_named(at) && is_free(at));
        let calling = || (first..count).find(|at| is_named(at) && is_free(at) && !is_system(at));
        return own(named.or_else(called).or_else(calling).unwrap_or(first));
    }
    // All own functions of the stack are wrappers. The outermost one is the most telling.
    if let Some(outermost) = (0..count).rev().find(|at| is_own(at)) {
        return own(outermost);
    }
    let named = |allowed: &dyn Fn(&usize) -> bool| (begin..count).find(|at| is_named(at) && is_free(at) && allowed(at));
    let first = named(&|at| !is_system(at));
    // A library without names tells more than the runtime that called it. The place where it was entered is the same for
    // most of its stacks.
    let entered = (begin..first.unwrap_or(begin))
        .rev()
        .find(|at| class(*at) == Some(CodeClass::Dependency) && first.is_some_and(&is_runtime));
    let nameless = || (begin..count).find(|at| class(*at).is_some() && is_free(at) && !is_system(at));
    let at = entered.or(first).or_else(nameless).or_else(|| named(&|_| true));
    Owner { node: node(at.unwrap_or(if begin < count { begin } else { count.saturating_sub(1) })), is_own: false }
}

/// Counts callers, sizes and stacks of the wrappers that are further in than the owner of a stack.
pub(crate) fn list(table: &StackTable, wrappers: &Wrappers, sizes: &[Vec<u64>], owners: &[Owner]) -> Vec<Wrapper> {
    let mut places: HashMap<FunctionId, usize> = HashMap::new();
    let mut found: Vec<Wrapper> = Vec::new();
    let (mut callers, mut seen_sizes) = (HashSet::new(), HashSet::new());
    let mut in_stack = Vec::new();
    for ((stack, owner), of_stack) in table.stacks.iter().zip(owners).zip(sizes) {
        in_stack.clear();
        for node in table.path(stack.node).take_while(|node| *node != owner.node) {
            let Some(level) = table.nodes.get(node as usize).and_then(|node| node.level) else { continue };
            let (Some(reason), Some(function)) = (wrappers.reason(level), wrappers.function(level)) else { continue };
            // In a stack with own code, only own code could have been the owner instead.
            let is_rival = !owner.is_own || reason.is_explicit() || is_program(table, level);
            if !is_rival || in_stack.contains(&function) {
                continue;
            }
            in_stack.push(function);
            let place = *places.entry(function).or_insert(found.len());
            if place == found.len() {
                found.push(Wrapper { level, reason, callers: 0, sizes: 0, stacks: 0 });
            }
            let Some(wrapper) = found.get_mut(place) else { continue };
            wrapper.stacks += 1;
            wrapper.sizes += of_stack.iter().filter(|size| seen_sizes.insert((function, **size))).count() as u32;
            let caller = caller(table, node, |level| wrappers.function(level));
            wrapper.callers += caller.is_some_and(|caller| callers.insert((function, caller))) as u32;
        }
    }
    let name = |wrapper: &Wrapper| {
        let level = table.levels.get(wrapper.level as usize);
        level.map(|level| (table.text(level.function), table.text(level.module)))
    };
    found.sort_by(|one, other| other.stacks.cmp(&one.stacks).then_with(|| name(one).cmp(&name(other))));
    found
}

/// The nearest caller that is another function, if it has a name.
fn caller(table: &StackTable, node: NodeId, of: impl Fn(u32) -> Option<FunctionId>) -> Option<FunctionId> {
    let function = |node: NodeId| table.nodes.get(node as usize).and_then(|node| of(node.level?));
    let own = function(node);
    let mut path = table.path(node);
    path.find(|node| function(*node) != own).and_then(function)
}

/// The different sizes of each site.
pub(crate) fn sizes(classes: impl Iterator<Item = (u64, SiteId)>, sites: usize) -> Vec<Vec<u64>> {
    let mut sizes: Vec<Vec<u64>> = vec![Vec::new(); sites];
    for (size, site) in classes {
        if let Some(list) = sizes.get_mut(site as usize) {
            list.push(size);
        }
    }
    sizes
}
