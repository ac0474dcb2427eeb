//! Which dispatches are in the results: dispatches of kernels with certain names, and of each
//! kernel certain ones.
//!
//! Decision: FMT-025 (`docs/deviations/formats.md`).

use crate::index::Index;
use crate::kernel_name::KernelNames;
use crate::kernel_name::{Namer, formatted};
use crate::limits;
use midair_failure::plain;
use midair_record::event::Kernel;
use regex_lite::Regex;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::ops::RangeInclusive;

/// What the user chose. The default is everything.
#[derive(Debug, Clone, Default)]
pub struct KernelFilter {
    include: Option<Regex>,
    exclude: Option<Regex>,
    iterations: Vec<RangeInclusive<u64>>,
}

impl KernelFilter {
    /// Chooses the kernels in whose name `include` is found and `exclude` is not. Of their
    /// dispatches, those are chosen whose number, counted from 1, is within `iterations` (if it is
    /// empty, all).
    ///
    /// # Errors
    /// What is wrong with an expression.
    pub fn new(
        include: Option<&str>,
        exclude: Option<&str>,
        iterations: Vec<RangeInclusive<u64>>,
    ) -> Result<KernelFilter, String> {
        let compiled = |text: Option<&str>| {
            let regex = text.map(Regex::new).transpose();
            regex.map_err(|error| format!("'{}': {error}", text.unwrap_or_default()))
        };
        Ok(KernelFilter {
            include: compiled(include)?,
            exclude: compiled(exclude)?,
            iterations,
        })
    }

    /// Whether nothing is left out.
    pub fn is_all(&self) -> bool {
        self.include.is_none() && self.exclude.is_none() && self.iterations.is_empty()
    }

    /// Whether a kernel is chosen by the name that its symbol gets. The symbol is bytes of the
    /// target, so it may be anything.
    pub fn takes_symbol(&self, symbol: &[u8], names: KernelNames) -> bool {
        self.takes(&formatted(&limits::text(symbol), names))
    }

    /// Returns which dispatches of each kernel are chosen. If it is empty, all are.
    pub fn iterations(&self) -> &[RangeInclusive<u64>] {
        &self.iterations
    }

    fn takes(&self, name: &str) -> bool {
        let found = |regex: &Regex| regex.is_match(name);
        self.include.as_ref().is_none_or(found) && !self.exclude.as_ref().is_some_and(found)
    }
}

/// The dispatches that a choice leaves out, for the case that it leaves out all.
#[derive(Debug, Default)]
pub struct Missed {
    dispatches: u64,
    of_kernel: HashMap<u64, u64>,
}

impl Missed {
    /// The most distinct kernels. Their ids are the target's.
    const MOST: usize = 1000;
    /// The most kernels that are named.
    const NAMED: usize = 3;

    /// Takes note of a kernel that was recorded.
    pub fn see(&mut self, kernel: &Kernel) {
        self.dispatches += 1;
        if self.of_kernel.len() < Missed::MOST {
            *self.of_kernel.entry(kernel.kernel_id).or_default() += 1;
        }
    }

    /// Returns how many dispatches were left out and of which kernels, or None without dispatches.
    pub fn described(&self, index: &Index, names: KernelNames) -> Option<String> {
        if self.dispatches == 0 {
            return None;
        }
        let mut namer = Namer::new(names);
        let mut name = |id: &u64| {
            let symbol = index.symbols.get(id)?;
            let name = namer.name(&symbol.name);
            Some(name.map_or_else(|| limits::text(&symbol.name).into_owned(), Into::into))
        };
        let mut most: Vec<(&u64, &u64)> = self.of_kernel.iter().collect();
        most.sort_by_key(|(id, count)| (Reverse(**count), **id));
        let named = most.iter().filter_map(|(id, _)| name(id));
        let mut of: Vec<String> = named.take(Missed::NAMED).collect();
        let more = most.len() - of.len();
        if more > 0 {
            of.push(match of.is_empty() {
                true => plain::counted(
                    more as u64,
                    "kernel without a name",
                    "kernels without names",
                ),
                false => format!("{more} more"),
            });
        }
        Some(format!(
            "no kernel matches --kernel-include-regex, --kernel-exclude-regex and --kernel-iteration-range: {} excluded, of {}",
            plain::counted(self.dispatches, "dispatch is", "dispatches are"),
            of.join(", ")
        ))
    }
}

/// The choice, applied to the kernels of a session.
#[derive(Debug, Default)]
pub struct Selection {
    /// Kernels with a description, and whether they are chosen.
    named: HashMap<u64, bool>,
    /// Whether kernels without a description are chosen.
    unknown: bool,
    iterations: Vec<RangeInclusive<u64>>,
    /// The first dispatches of each kernel, as many as may matter. They are numbers in a heap with
    /// the greatest on top, and are sorted once all dispatches were seen.
    first: HashMap<u64, BinaryHeap<u64>>,
    sorted: HashMap<u64, Vec<u64>>,
    most: usize,
}

impl Selection {
    /// Finds the chosen kernels by the names in the index.
    pub fn new(filter: &KernelFilter, index: &Index, names: KernelNames) -> Selection {
        let mut namer = Namer::new(names);
        let named = index.symbols.iter().map(|(id, symbol)| {
            let name = namer.name(&symbol.name);
            let name = name.map_or_else(|| limits::text(&symbol.name), Into::into);
            (*id, filter.takes(&name))
        });
        let last = filter.iterations.last().map_or(0, |range| *range.end());
        Selection {
            named: named.collect(),
            unknown: filter.takes(""),
            iterations: filter.iterations.clone(),
            most: usize::try_from(last).unwrap_or(usize::MAX),
            ..Selection::default()
        }
    }

    /// Whether dispatches have to be seen ([`Selection::see`]) before they can be judged.
    pub fn counts(&self) -> bool {
        !self.iterations.is_empty()
    }

    /// Takes a dispatch into account. Numbers grow in the order in which doorbells were rung, but
    /// records may come in another order.
    pub fn see(&mut self, kernel: &Kernel) {
        if !self.takes(kernel.kernel_id) {
            return;
        }
        let first = self.first.entry(kernel.kernel_id).or_default();
        first.push(kernel.dispatch_id);
        if first.len() > self.most {
            first.pop();
        }
    }

    /// Whether a kernel is chosen.
    pub fn takes(&self, kernel_id: u64) -> bool {
        self.named.get(&kernel_id).copied().unwrap_or(self.unknown)
    }

    /// Whether a dispatch is chosen.
    pub fn has(&self, kernel: &Kernel) -> bool {
        if !self.takes(kernel.kernel_id) {
            return false;
        }
        if self.iterations.is_empty() {
            return true;
        }
        let first = self.sorted.get(&kernel.kernel_id);
        let place = first.and_then(|first| first.binary_search(&kernel.dispatch_id).ok());
        let number = place.map(|place| place as u64 + 1);
        number.is_some_and(|number| self.iterations.iter().any(|range| range.contains(&number)))
    }

    /// Called when all dispatches have been seen.
    pub fn seen(&mut self) {
        let first = std::mem::take(&mut self.first).into_iter();
        self.sorted = first
            .map(|(id, heap)| (id, heap.into_sorted_vec()))
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(kernel_id: u64, dispatch_id: u64) -> Kernel {
        Kernel {
            kernel_id,
            dispatch_id,
            ..Kernel::default()
        }
    }

    #[test]
    fn dispatches_are_numbered_by_kernel_whatever_their_order() {
        let filter = KernelFilter::new(None, None, vec![1..=1, 3..=4]).unwrap();
        let mut chosen = Selection::new(&filter, &Index::default(), KernelNames::default());
        assert!(chosen.counts() && !filter.is_all());
        let all = [(1, 9), (2, 2), (1, 1), (1, 5), (2, 8), (1, 7), (1, 3)];
        for (id, dispatch) in all {
            chosen.see(&kernel(id, dispatch));
        }
        chosen.seen();
        // Of kernel 1: 1, 3, 5, 7, 9; of kernel 2: 2, 8.
        let kept = all
            .into_iter()
            .filter(|(id, n)| chosen.has(&kernel(*id, *n)));
        assert_eq!(kept.collect::<Vec<_>>(), [(2, 2), (1, 1), (1, 5), (1, 7)]);
        assert!(chosen.sorted.values().all(|first| first.len() <= 4));
        assert!(!chosen.has(&kernel(3, 1)));
    }

    #[test]
    fn expressions_find_parts_of_names() {
        let takes = |include, exclude, name: &str| {
            KernelFilter::new(include, exclude, Vec::new())
                .unwrap()
                .takes(name)
        };
        assert!(takes(Some("add"), None, "vadd(float*)"));
        assert!(!takes(Some("^add"), None, "vadd(float*)"));
        assert!(!takes(None, Some("float"), "vadd(float*)"));
        assert!(!takes(Some("add"), Some("v"), "vadd(float*)"));
        assert!(KernelFilter::new(Some("("), None, Vec::new()).is_err());
        assert!(KernelFilter::default().is_all());
    }

    #[test]
    fn a_symbol_is_chosen_by_the_name_that_it_gets() {
        let filter = KernelFilter::new(Some(r"float const\*"), None, vec![2..=3, 7..=7]).unwrap();
        let takes = |symbol: &[u8], names| filter.takes_symbol(symbol, names);
        assert!(takes(b"_Z4vaddPKfS0_Pfi.kd", KernelNames::Demangled));
        assert!(!takes(b"_Z4vaddPKfS0_Pfi.kd", KernelNames::Mangled));
        assert!(!takes(b"_Z4vaddPKfS0_Pfi.kd", KernelNames::Truncated));
        assert!(!takes(b"_Z4vaddi.kd", KernelNames::Demangled));
        assert_eq!(filter.iterations(), [2..=3, 7..=7]);
        assert!(KernelFilter::default().iterations().is_empty());
    }
}
