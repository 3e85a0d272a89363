//! The rule for one step of a stack walk in 32 bits, and the cache of rules by code address.
//!
//! A cache entry is one word, so threads can read and write it without a lock and never see half of one:
//!
//! ```text
//!  63            32 31        21 20         4  3   2   1 0
//! | tag = pc >> 16 | rbp slot   | CFA / 8   | G | B | kind |
//! ```
use crate::cfi::{How, Row, reg};
use crate::epilogue::Epilogue;
use core::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// CFA = (B ? rbp : rsp) + n; return address at CFA - 8; rbp kept, or at CFA - 8 * slot.
    Simple,
    /// Any other rule of CFI. The step needs all registers and is not remembered.
    Complex,
    /// The outermost frame.
    End,
}

/// `B` says that the CFA is computed from rbp. `G` says that no CFI covers the address. With `G` and `B`, the step
/// follows the frame pointer, which is a guess that must be checked. With `G` but not `B`, the rule was read from the
/// code at the address, and is valid while that code is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule(pub u32);

const KIND_SIMPLE: u32 = 1;
const KIND_COMPLEX: u32 = 2;
const KIND_END: u32 = 3;
const BASE_RBP: u32 = 1 << 2;
const GUESS: u32 = 1 << 3;
const CFA_SHIFT: u32 = 4;
const CFA_BITS: u32 = 17;
const SLOT_SHIFT: u32 = CFA_SHIFT + CFA_BITS;
const SLOT_BITS: u32 = 11;

impl Rule {
    pub const COMPLEX: Rule = Rule(KIND_COMPLEX);
    pub const END: Rule = Rule(KIND_END);
    /// The rule after `push rbp; mov rbp, rsp`, which is what code without CFI most likely did.
    pub const FRAME_POINTER: Rule = Rule(KIND_SIMPLE | BASE_RBP | GUESS | 2 << CFA_SHIFT | 2 << SLOT_SHIFT);

    #[inline(always)]
    pub const fn kind(self) -> Kind {
        match self.0 & 3 {
            KIND_SIMPLE => Kind::Simple,
            KIND_COMPLEX => Kind::Complex,
            _ => Kind::End,
        }
    }
    #[inline(always)]
    pub const fn is_simple(self) -> bool {
        self.0 & 3 == KIND_SIMPLE
    }
    #[inline(always)]
    pub const fn uses_rbp(self) -> bool {
        self.0 & BASE_RBP != 0
    }
    #[inline(always)]
    pub const fn is_guess(self) -> bool {
        self.0 & GUESS != 0
    }
    /// Returns true if the rule was read from the code itself, see [`crate::epilogue`].
    #[inline(always)]
    pub const fn is_by_code(self) -> bool {
        self.0 & (GUESS | BASE_RBP) == GUESS
    }
    #[inline(always)]
    pub const fn cfa_offset(self) -> u64 {
        ((self.0 >> CFA_SHIFT & ((1 << CFA_BITS) - 1)) as u64) << 3
    }
    /// The caller's rbp is at CFA - 8 * slot. 0 = rbp is unchanged.
    #[inline(always)]
    pub const fn rbp_slot(self) -> u32 {
        self.0 >> SLOT_SHIFT
    }

    /// Returns the rule for code without CFI, from its epilogue.
    pub fn by_code(epilogue: &Epilogue) -> Rule {
        let Epilogue::Sized { cfa, saved } = epilogue else { return Rule::FRAME_POINTER };
        let slot = saved.get(reg::RBP).map_or(0, |at| (cfa - at) >> 3);
        if cfa >> 3 >= 1 << CFA_BITS || slot >= 1 << SLOT_BITS {
            return Rule::FRAME_POINTER;
        }
        Rule(KIND_SIMPLE | GUESS | ((cfa >> 3) as u32) << CFA_SHIFT | (slot as u32) << SLOT_SHIFT)
    }

    /// Returns the rule for a row of CFI.
    pub fn compile(row: &Row) -> Rule {
        if matches!(row.how[reg::RA], How::Undefined | How::Unset) && row.cfa_register != Row::EXPRESSION {
            return Rule::END;
        }
        Self::simple(row).unwrap_or(Rule::COMPLEX)
    }

    fn simple(row: &Row) -> Option<Rule> {
        let base = match row.cfa_register as usize {
            reg::RSP => 0,
            reg::RBP => BASE_RBP,
            _ => return None,
        };
        let plain_return = row.how[reg::RA] == How::At && row.value[reg::RA] == -8;
        if row.is_signal || !plain_return || row.how[reg::RSP] != How::Unset {
            return None;
        }
        let cfa = row.cfa_value;
        if cfa < 8 || cfa & 7 != 0 || cfa >> 3 >= 1 << CFA_BITS {
            return None;
        }
        let slot = match row.how[reg::RBP] {
            How::Unset | How::Same => 0,
            How::At => {
                let below = row.value[reg::RBP].wrapping_neg();
                if below < 16 || below & 7 != 0 || below >> 3 >= 1 << SLOT_BITS {
                    return None;
                }
                (below >> 3) as u32
            }
            _ => return None,
        };
        Some(Rule(KIND_SIMPLE | base | ((cfa >> 3) as u32) << CFA_SHIFT | slot << SLOT_SHIFT))
    }
}

const ENTRIES: usize = 1 << 16;

/// A direct-mapped cache. The tag and the index together determine the whole address.
#[repr(C)]
pub struct Rules {
    entries: [AtomicU64; ENTRIES],
}

impl Rules {
    #[inline(always)]
    fn place(&self, pc: u64) -> &AtomicU64 {
        let index = (pc ^ (pc >> 16).wrapping_mul(0x9e3b)) as usize & (ENTRIES - 1);
        // SAFETY: the mask keeps `index` below `ENTRIES`, the array's length.
        unsafe { self.entries.get_unchecked(index) }
    }

    #[inline(always)]
    pub fn get(&self, pc: u64) -> Option<Rule> {
        let entry = self.place(pc).load(Ordering::Relaxed);
        if entry >> 32 == pc >> 16 && entry as u32 != 0 { Some(Rule(entry as u32)) } else { None }
    }

    pub fn put(&self, pc: u64, rule: Rule) {
        if pc >> 48 == 0 {
            self.place(pc).store((pc >> 16) << 32 | rule.0 as u64, Ordering::Relaxed);
        }
    }

    /// Forgets all rules. Needed when modules were loaded or may be unloaded, because an address that has a rule may
    /// then belong to another module.
    pub fn clear(&self) {
        for entry in &self.entries {
            if entry.load(Ordering::Relaxed) != 0 {
                entry.store(0, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_pointer_step_is_what_it_says() {
        let rule = Rule::FRAME_POINTER;
        assert!(rule.is_simple() && rule.uses_rbp() && rule.is_guess());
        assert_eq!((rule.cfa_offset(), rule.rbp_slot()), (16, 2));
    }

    #[test]
    fn a_cached_rule_is_found_under_its_own_address_only() {
        let rules: Box<Rules> = {
            let words: Box<[AtomicU64]> = (0..ENTRIES).map(|_| AtomicU64::new(0)).collect();
            // SAFETY: `Rules` is laid out as in C and consists of one array of `ENTRIES` such words.
            unsafe { Box::from_raw(Box::into_raw(words).cast()) }
        };
        for pc in [0x40_1234u64, 0x7fff_f7a1_2345, 0x5555_5555_1234] {
            rules.put(pc, Rule::END);
            assert_eq!(rules.get(pc), Some(Rule::END));
            assert_eq!(rules.get(pc + 0x10000), None);
            assert_eq!(rules.get(pc + 1), None);
        }
        rules.clear();
        assert_eq!(rules.get(0x40_1234), None);
    }
}
