//! The functions of a file that may be hooked, and which of them call each other.
//!
//! Receives: a file and its symbols. Returns: each wanted function, with its first instructions. Must hold: a function
//! that calls another one is left out only if the hook of the called function is certain to see these calls.
use crate::code::Site;
use crate::files::{Function, Object, Symbols};
use crate::hooked_functions::{Allocators, Wanted};
use crate::maps::Maps;
use crate::memory::Memory;
use capture::allocators::Family;
use capture::entry::Shim;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl};
use std::iter;

/// The most bytes of a function that are decoded. It is also how many are decoded if its size is not known.
const MOST_CODE: u64 = 16 << 10;
const SMALLEST_LOOK: u64 = 64;

/// A wanted function that was found in a module.
pub struct Candidate {
    pub function: Function,
    pub wanted: Wanted,
    /// Its first instructions, or why they cannot be displaced.
    pub site: Result<Site, &'static str>,
    /// The allocators of its other names, as `mi_malloc` is another name of mimalloc's `malloc`.
    pub other_groups: Vec<(Family, String)>,
    /// The target, if the function is only a jump.
    pub forwards_to: Option<u64>,
    /// The targets of its direct calls and jumps outside of itself.
    leads_to: Vec<u64>,
}

/// The wanted functions of one file.
pub struct Look<'a> {
    pub object: &'a Object,
    pub symbols: Symbols,
    pub candidates: Vec<Candidate>,
    /// It is a static program without `free`: the linker leaves it out of a program that never calls it.
    pub may_lack_free: bool,
    /// Some of its functions are hooked by shims of the capture library, and are not among the candidates. So the
    /// candidates of an allocator need not be able to allocate and free.
    pub is_partly_hooked: bool,
}

impl<'a> Look<'a> {
    /// `is_static`: the program has no loader.
    pub fn at(object: &'a Object, symbols: Symbols, maps: &Maps, memory: &Memory, is_static: bool) -> Look<'a> {
        let allocators = Allocators::of(symbols.functions.iter().map(|function| function.name.as_str()));
        // A static program exports nothing, and its hidden functions have become local. Elsewhere, a local function
        // counts if its name is an allocator's own, because a plain name may be that of any other function.
        let usable = |function: &&Function| {
            let is_own_name = || {
                let wanted = allocators.find(&function.name);
                wanted.is_some_and(|wanted| !wanted.group.0.is_addition() && wanted.group.0 != Family::Libc)
            };
            !function.is_local || object.is_program && is_static || is_own_name()
        };
        let mut candidates: Vec<Candidate> = Vec::new();
        // If a function has several names, the first one counts: malloc and free, then names without a prefix, then
        // those that do not throw, then those of C++.
        let mut functions: Vec<&Function> = symbols.functions.iter().filter(usable).collect();
        functions.sort_by_cached_key(|function| {
            let name = function.name.as_str();
            let wanted = allocators.find(name);
            let is_plain = wanted.as_ref().is_some_and(|wanted| wanted.group.0 == Family::Libc);
            (
                !matches!(name, "malloc" | "free"),
                !is_plain,
                wanted.as_ref().is_none_or(|wanted| matches!(wanted.shim, Shim::New | Shim::ResizeNew)),
                wanted.is_none_or(|wanted| !wanted.group.0.is_addition()),
            )
        });
        for function in functions {
            let Some(wanted) = allocators.find(&function.name) else { continue };
            let known = candidates.iter_mut().find(|known| known.function.at == function.at);
            if let Some(known) = known {
                known.other_groups.push(wanted.group);
            } else if maps.at(function.at).is_some_and(|mapping| mapping.execute) {
                candidates.push(Candidate::new(function, wanted, memory));
            }
        }
        let may_lack_free = is_static && object.is_program && symbols.find("free").is_none();
        keep_allocators(&mut candidates, may_lack_free);
        Look { object, symbols, candidates, may_lack_free, is_partly_hooked: false }
    }
}

/// Keeps the functions of allocators: of each group that has a function that allocates and one that frees. Operators,
/// C23's variants of free and the functions of a sandbox are kept if there is any such group. A function is in the groups of
/// all its names. `may_lack_free` is that of the `Look`.
pub fn keep_allocators(candidates: &mut Vec<Candidate>, may_lack_free: bool) {
    let has = |group: &(Family, String), is: fn(&Wanted) -> bool| {
        let of_group = |other: &Candidate| other.groups().any(|one| one == group);
        candidates.iter().any(|other| of_group(other) && !other.wanted.is_no_allocator() && is(&other.wanted))
    };
    let is_whole = |group: &(Family, String)| {
        let frees = has(group, |w| w.meaning.is_free()) || may_lack_free && group.0 == Family::Libc;
        !group.0.is_addition() && has(group, |w| w.meaning.is_allocating()) && frees
    };
    let mut groups: Vec<(Family, String)> = candidates.iter().flat_map(|other| other.groups().cloned()).collect();
    groups.sort();
    groups.dedup();
    groups.retain(is_whole);
    candidates.retain(|candidate| {
        let is_kept = |group: &(Family, String)| {
            // jemalloc without a prefix is an addition to the malloc that it defines.
            let is_plain_jemalloc = group.0 == Family::Jemalloc && group.1.is_empty();
            let is_addition = group.0.is_addition() || candidate.wanted.is_no_allocator() || is_plain_jemalloc;
            let is_needed = group.0 != Family::Duckdb || groups.iter().any(|(family, _)| *family == Family::Jemalloc);
            groups.contains(group) || is_addition && is_needed && !groups.is_empty()
        };
        candidate.groups().any(is_kept)
    });
}

impl Candidate {
    /// The allocators of all its names.
    fn groups(&self) -> impl Iterator<Item = &(Family, String)> {
        iter::once(&self.wanted.group).chain(&self.other_groups)
    }

    /// Returns true for an operator that calls one of `functions`. C++'s operators do nothing else that matters here.
    pub fn is_operator_that_calls(&self, functions: &[u64]) -> bool {
        self.function.name.starts_with("_Z") && self.leads_to.iter().any(|to| functions.contains(to))
    }

    fn new(function: &Function, wanted: Wanted, memory: &Memory) -> Candidate {
        let look = if function.size == 0 { MOST_CODE } else { function.size.clamp(SMALLEST_LOOK, MOST_CODE) };
        let mut code = vec![0; look as usize];
        let length = memory.read_some(function.at, &mut code);
        code.truncate(length);
        let site = Site::find(function.at, &code, function.size);
        // A trial move, so that code that cannot be moved is known before anything is changed.
        let site = site.and_then(|site| site.moved(site.at).map(|_| site));
        code.truncate(if function.size == 0 { code.len() } else { function.size as usize });
        Candidate {
            function: function.clone(),
            wanted,
            site,
            other_groups: Vec::new(),
            forwards_to: forwards_to(function.at, &code).map(|to| behind_table(memory, to)),
            leads_to: targets(memory, function.at, &code),
        }
    }
}

/// Returns the target, if the function is only a jump.
fn forwards_to(at: u64, code: &[u8]) -> Option<u64> {
    let mut decoder = Decoder::with_ip(64, code, at, DecoderOptions::NONE);
    let first = decoder.iter().find(|instruction| instruction.code() != Code::Endbr64)?;
    (first.flow_control() == FlowControl::UnconditionalBranch).then(|| first.near_branch_target())
}

/// Returns true if the function calls the one at `other` or jumps to it.
pub fn leads_to(memory: &Memory, function: &Function, other: u64) -> bool {
    let size = if function.size == 0 { MOST_CODE } else { function.size.min(MOST_CODE) };
    let mut code = vec![0; size as usize];
    let length = memory.read_some(function.at, &mut code);
    targets(memory, function.at, code.get(..length).unwrap_or_default()).contains(&other)
}

/// Returns the targets of a function's direct calls and jumps outside of itself.
fn targets(memory: &Memory, start: u64, code: &[u8]) -> Vec<u64> {
    let end = start + code.len() as u64;
    let decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let near = decoder.into_iter().map(|instruction| instruction.near_branch_target());
    let outside = near.filter(|target| *target != 0 && !(start..end).contains(target));
    outside.map(|target| behind_table(memory, target)).collect()
}

/// If the code at `at` is a jump through a module's table of addresses (a PLT stub), returns the address in the table.
/// Otherwise returns `at`.
fn behind_table(memory: &Memory, at: u64) -> u64 {
    let mut code = [0; 16];
    let length = memory.read_some(at, &mut code);
    let mut decoder = Decoder::with_ip(64, code.get(..length).unwrap_or_default(), at, DecoderOptions::NONE);
    let mut instruction = decoder.decode();
    if instruction.code() == Code::Endbr64 {
        instruction = decoder.decode();
    }
    let is_through =
        instruction.flow_control() == FlowControl::IndirectBranch && instruction.is_ip_rel_memory_operand();
    let place = instruction.ip_rel_memory_address();
    memory.word(place).ok().filter(|_| is_through).unwrap_or(at)
}

/// Removes functions that only jump to another candidate, freeing functions (other than `free` itself) that call
/// another freeing function, and operators that call malloc or another allocating function of libc. The other function
/// must be patched: then its hook sees these calls.
pub fn drop_forwarders(candidates: &mut Vec<Candidate>) {
    // A candidate is compared with all candidates that can be patched, even with those that are removed here. A removed
    // one leads to a function that is patched, so the call is still seen. A function that is hooked only through
    // imports does not count, because its hook does not see direct calls.
    let patched = candidates.iter().filter(|candidate| candidate.site.is_ok());
    let is_libc = |c: &Candidate| c.wanted.group.0 == Family::Libc && c.wanted.meaning.is_allocating();
    let known: Vec<(u64, bool, bool)> =
        patched.map(|c| (c.function.at, c.wanted.meaning.is_free(), c.wanted.is_malloc || is_libc(c))).collect();
    candidates.retain(|candidate| {
        let others = || known.iter().filter(|other| other.0 != candidate.function.at);
        if candidate.forwards_to.is_some_and(|to| others().any(|other| other.0 == to)) {
            return false;
        }
        let is_operator = candidate.function.name.starts_with("_Z");
        if !is_operator && !candidate.wanted.meaning.is_free() || candidate.function.name == "free" {
            return true;
        }
        !others().any(|other| {
            let sees_it = if candidate.wanted.meaning.is_free() { other.1 } else { other.2 };
            sees_it && candidate.leads_to.contains(&other.0)
        })
    });
}

/// Removes a realloc or reallocarray that calls a patched one of another file. An example is libc's reallocarray, if
/// another file has replaced realloc. The hook of the called function sees the call.
pub fn drop_passed_on(looks: &mut [Look<'_>]) {
    let is_resizing = |candidate: &Candidate| candidate.wanted.shim == Shim::Resize;
    let all = looks.iter().enumerate().flat_map(|(of, look)| look.candidates.iter().map(move |known| (of, known)));
    let patched = all.filter(|(_, candidate)| candidate.site.is_ok() && is_resizing(candidate));
    let patched: Vec<(usize, u64)> = patched.map(|(of, candidate)| (of, candidate.function.at)).collect();
    for (of, look) in looks.iter_mut().enumerate() {
        look.candidates.retain(|candidate| {
            let leads_out = |known: &&(usize, u64)| known.0 != of && candidate.leads_to.contains(&known.1);
            !is_resizing(candidate) || !patched.iter().any(|known| leads_out(&known))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mere_jump_is_known() {
        assert_eq!(forwards_to(0x10_0000, b"\xe9\x00\x10\x00\x00"), Some(0x10_1005));
        assert_eq!(forwards_to(0x10_0000, b"\xf3\x0f\x1e\xfa\xeb\x10"), Some(0x10_0016));
        assert_eq!(forwards_to(0x10_0000, b"\x53\xe9\x00\x10\x00\x00"), None);
    }
}
