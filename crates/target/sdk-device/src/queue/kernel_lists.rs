//! The choice of kernels whose launches get windows, in a form that the application's threads can
//! read ([`super::windows`] decides by it).

use midair_lockfree::{AtomicEnum, word_enum};
use midair_rotation::ClassKey;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// The number of distinct kernels; a power of two. Kernels beyond that are taken to be
/// chosen.
const KERNELS: usize = 1024;
/// The number of their classes; a power of two. Classes beyond that are taken to be unknown.
const CLASSES: usize = 4096;
/// The number of places in which an entry may be.
const PROBES: usize = 8;
/// The number of ranges of dispatches. If there are more, the last entry extends to the end of the
/// last range.
const RANGES: usize = 64;

word_enum! {
    /// What is known about a kernel.
    pub(crate) enum Verdict else Unknown {
        /// Nothing is known yet.
        Unknown = 0,
        /// The user selected the kernel.
        Selected = 1,
        /// The user did not select the kernel.
        LeftOut = 2,
    }
}

#[derive(Debug)]
struct Kernel {
    /// The kernel object; 0 = the place is free. Set once in a session.
    object: AtomicU64,
    verdict: AtomicEnum<Verdict>,
    /// The number of its recorded dispatches.
    seen: AtomicU64,
}

#[derive(Debug)]
struct Class {
    /// [`ClassKey::number`]; 0 = the place is free. Set once in a session.
    key: AtomicU64,
    /// The place of its kernel plus one; 0 = not known yet.
    kernel: AtomicU32,
}

/// The choice in the form that the application's threads read. If all bytes are zero, everything is
/// chosen.
#[derive(Debug)]
pub(crate) struct Choices {
    /// Whether there is a choice. A session without one costs only this load.
    on: AtomicBool,
    /// Whether kernels are chosen by name.
    named: AtomicBool,
    kernels: [Kernel; KERNELS],
    classes: [Class; CLASSES],
    /// The first and the last number of each range; `count` says how many ranges there are.
    ranges: [(AtomicU64, AtomicU64); RANGES],
    count: AtomicU32,
}

impl Choices {
    pub(crate) const fn new() -> Choices {
        Choices {
            on: AtomicBool::new(false),
            named: AtomicBool::new(false),
            kernels: [const {
                Kernel {
                    object: AtomicU64::new(0),
                    verdict: AtomicEnum::new(),
                    seen: AtomicU64::new(0),
                }
            }; KERNELS],
            classes: [const {
                Class {
                    key: AtomicU64::new(0),
                    kernel: AtomicU32::new(0),
                }
            }; CLASSES],
            ranges: [const { (AtomicU64::new(0), AtomicU64::new(0)) }; RANGES],
            count: AtomicU32::new(0),
        }
    }

    fn kernel(&self, object: u64) -> Option<(u32, &Kernel)> {
        let home = (object >> 6) as usize;
        let at = place(
            home,
            KERNELS,
            |at| Some(&self.kernels.get(at)?.object),
            object,
        )?;
        Some((at as u32 + 1, self.kernels.get(at)?))
    }

    fn class(&self, key: ClassKey) -> Option<&Class> {
        let home = key.number() as usize;
        let at = place(
            home,
            CLASSES,
            |at| Some(&self.classes.get(at)?.key),
            key.number(),
        )?;
        self.classes.get(at)
    }

    /// Returns whether a kernel's dispatch with this number is within the ranges.
    fn has(&self, number: u64) -> bool {
        let count = self.count.load(Relaxed) as usize;
        let mut ranges = self.ranges.iter().take(count);
        count == 0
            || ranges
                .any(|(first, last)| (first.load(Relaxed)..=last.load(Relaxed)).contains(&number))
    }

    /// Returns whether the kernel has had the last dispatch that can be chosen.
    fn is_over(&self, kernel: &Kernel) -> bool {
        let last = (self.count.load(Relaxed) as usize).checked_sub(1);
        let last = last.and_then(|last| self.ranges.get(last));
        last.is_some_and(|(_, last)| kernel.seen.load(Relaxed) >= last.load(Relaxed))
    }

    /// Removes the choice. Call it only while no thread chooses.
    pub(crate) fn clear(&self) {
        self.on.store(false, Release);
    }

    /// Starts a session's choice, of names or only of numbers. Call it only while no thread chooses.
    pub(crate) fn begin(&self, ranges: &[RangeInclusive<u64>], named: bool) {
        self.named.store(named, Relaxed);
        for kernel in &self.kernels {
            kernel.object.store(0, Relaxed);
            kernel.verdict.store(Verdict::Unknown, Relaxed);
            kernel.seen.store(0, Relaxed);
        }
        for class in &self.classes {
            class.key.store(0, Relaxed);
            class.kernel.store(0, Relaxed);
        }
        let end = ranges.last().map_or(0, |range| *range.end());
        for (at, (place, range)) in self.ranges.iter().zip(ranges).enumerate() {
            let last = if at + 1 == RANGES { end } else { *range.end() };
            place.0.store(*range.start(), Relaxed);
            place.1.store(last, Relaxed);
        }
        self.count.store(ranges.len().min(RANGES) as u32, Relaxed);
        self.on.store(true, Release);
    }

    /// Decides about the kernels that were seen. `is_chosen` returns `None` for kernels that it
    /// does not know.
    pub(crate) fn judge(&self, is_chosen: impl Fn(u64) -> Option<bool>) {
        if !self.on.load(Relaxed) {
            return;
        }
        for kernel in &self.kernels {
            let object = kernel.object.load(Acquire);
            if object != 0
                && kernel.verdict.load(Relaxed) == Verdict::Unknown
                && let Some(is_chosen) = is_chosen(object)
            {
                let verdict = match is_chosen {
                    true => Verdict::Selected,
                    false => Verdict::LeftOut,
                };
                kernel.verdict.store(verdict, Relaxed);
            }
        }
    }

    /// Notes a dispatch that was looked at. `recorded` says whether it has a number in the session.
    /// Returns its number among the recorded dispatches of its kernel, from 1, if it has one.
    #[inline]
    pub(crate) fn saw(&self, key: ClassKey, kernel_object: u64, recorded: bool) -> Option<u64> {
        if !self.on.load(Relaxed) || kernel_object == 0 {
            return None;
        }
        let (at, kernel) = self.kernel(kernel_object)?;
        let before = kernel.seen.fetch_add(u64::from(recorded), Relaxed);
        if let Some(class) = self.class(key) {
            class.kernel.store(at, Relaxed);
        }
        recorded.then(|| before + 1)
    }

    /// Returns whether a launch is to have a window, if its dispatch is expected to be of this
    /// class.
    #[inline]
    pub(crate) fn is_wanted(&self, expected: impl FnOnce() -> Option<ClassKey>) -> bool {
        if !self.on.load(Relaxed) {
            return true;
        }
        let kernel = expected().and_then(|key| {
            let at = self.class(key)?.kernel.load(Relaxed) as usize;
            self.kernels.get(at.checked_sub(1)?)
        });
        let Some(kernel) = kernel else { return true };
        kernel.verdict.load(Relaxed) != Verdict::LeftOut
            && self.has(kernel.seen.load(Relaxed).saturating_add(1))
    }

    /// Returns whether a kernel's dispatch with the number that [`Choices::saw`] has returned is
    /// chosen, or `None` if it may be. `known` decides about a kernel about which nothing is known yet.
    pub(crate) fn takes(
        &self,
        kernel_object: u64,
        nth: Option<u64>,
        known: impl FnOnce() -> Option<bool>,
    ) -> Option<bool> {
        if !self.on.load(Relaxed) {
            return Some(true);
        }
        if nth.is_some_and(|nth| !self.has(nth)) {
            return Some(false);
        }
        let verdict = self
            .kernel(kernel_object)
            .map(|(_, kernel)| &kernel.verdict);
        let is_chosen = match verdict.map_or(Verdict::Unknown, |verdict| verdict.load(Relaxed)) {
            Verdict::Selected => Some(true),
            Verdict::LeftOut => Some(false),
            Verdict::Unknown if self.named.load(Relaxed) => known(),
            Verdict::Unknown => Some(true),
        };
        // A kernel beyond the table has no numbers.
        let is_numbered = nth.is_some() || self.count.load(Relaxed) == 0;
        is_chosen.filter(|is_chosen| is_numbered || !is_chosen)
    }

    /// Returns whether a kernel is known not to be chosen.
    pub(crate) fn leaves_out(&self, kernel_object: u64) -> bool {
        let kernel = || self.kernel(kernel_object);
        self.on.load(Relaxed)
            && kernel_object != 0
            && kernel().is_some_and(|(_, kernel)| kernel.verdict.load(Relaxed) == Verdict::LeftOut)
    }

    /// Returns whether a kernel's dispatches may get windows from now on, or `None` if there is no
    /// choice.
    pub(crate) fn may_come(&self, kernel_object: u64) -> Option<bool> {
        if !self.on.load(Relaxed) || kernel_object == 0 {
            return None;
        }
        let (_, kernel) = self.kernel(kernel_object)?;
        Some(kernel.verdict.load(Relaxed) != Verdict::LeftOut && !self.is_over(kernel))
    }
}

/// Returns the place of a number. A number without a place is stored in a free one. Returns `None`
/// if all places for the number are taken.
fn place<'t>(
    home: usize,
    size: usize,
    at: impl Fn(usize) -> Option<&'t AtomicU64>,
    number: u64,
) -> Option<usize> {
    (0..PROBES)
        .map(|step| home.wrapping_add(step) % size)
        .find(|index| {
            let Some(word) = at(*index) else { return false };
            match word.load(Acquire) {
                0 => match word.compare_exchange(0, number, AcqRel, Acquire) {
                    Ok(_) => true,
                    Err(other) => other == number,
                },
                other => other == number,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_rotation::Class;

    fn key(kernel_object: u64, grid: u32) -> ClassKey {
        let class = Class {
            kernel_object,
            grid: [grid, 1, 1],
            workgroup: [64, 1, 1],
            lds: 0,
        };
        class.key()
    }

    #[test]
    fn kernels_and_numbers_decide_and_what_is_not_known_is_wanted() {
        let choices = Box::new(Choices::new());
        let (chosen, other) = (0x1000, 0x2000);
        let wanted = |object, grid| choices.is_wanted(|| Some(key(object, grid)));
        assert!(wanted(other, 1), "there is no choice");
        assert_eq!(choices.may_come(other), None);
        choices.begin(&[2..=3, 6..=6], true);
        assert!(choices.is_wanted(|| None) && wanted(chosen, 1) && wanted(other, 1));
        // Once the names are known, the other kernel gets no window, and the chosen one gets it for
        // its second dispatch.
        choices.saw(key(other, 1), other, true);
        choices.saw(key(chosen, 1), chosen, true);
        choices.judge(|object| (object != 0).then_some(object == chosen));
        assert_eq!((wanted(chosen, 1), wanted(other, 1)), (true, false));
        assert_eq!(choices.may_come(other), Some(false));
        // All classes of a kernel are numbered together, and a dispatch that is not recorded has no
        // number.
        let mut numbers = Vec::new();
        for number in 2..9 {
            if wanted(chosen, 1) {
                numbers.push(number);
            }
            choices.saw(key(chosen, 1), chosen, false);
            choices.saw(key(chosen, number), chosen, true);
            assert_eq!(choices.may_come(chosen), Some(number < 6), "{number}");
        }
        assert_eq!(numbers, [2, 3, 6]);
        choices.clear();
        assert!(wanted(other, 1) && wanted(chosen, 1));
    }

    #[test]
    fn a_dispatch_has_its_own_number_whatever_was_noted_since() {
        let choices = Box::new(Choices::new());
        choices.begin(&[1..=1], false);
        // Two queues note a dispatch of one kernel before either asks.
        let numbers = [1, 2].map(|_| choices.saw(key(64, 1), 64, true));
        assert_eq!(numbers, [Some(1), Some(2)]);
        assert_eq!(choices.saw(key(64, 1), 64, false), None);
        let takes = numbers.map(|nth| choices.takes(64, nth, || None));
        assert_eq!(takes, [Some(true), Some(false)]);
    }

    #[test]
    fn a_kernel_without_a_name_may_be_chosen_only_by_name() {
        let choices = Box::new(Choices::new());
        for (named, known, takes) in [
            (true, None, None),
            (true, Some(true), Some(true)),
            (true, Some(false), Some(false)),
            (false, None, Some(true)),
        ] {
            choices.begin(&[1..=1], named);
            let nth = choices.saw(key(64, 1), 64, true);
            assert_eq!(choices.takes(64, nth, || known), takes, "{named} {known:?}");
            // One beyond the table has no number.
            let without = choices.takes(128, None, || known);
            assert_eq!(without, takes.filter(|takes| !takes));
            assert_eq!(choices.takes(64, Some(2), || known), Some(false));
        }
        choices.clear();
        assert_eq!(choices.takes(64, None, || None), Some(true));
    }

    #[test]
    fn too_many_ranges_and_kernels_are_wanted_rather_than_missed() {
        let choices = Box::new(Choices::new());
        let ranges: Vec<_> = (0..100).map(|n| 10 * n + 1..=10 * n + 1).collect();
        choices.begin(&ranges, true);
        choices.saw(key(64, 1), 64, true);
        for number in 2..1000 {
            let is_wanted = choices.is_wanted(|| Some(key(64, 1)));
            assert_eq!(
                is_wanted,
                number % 10 == 1 || (631..=991).contains(&number),
                "{number}"
            );
            choices.saw(key(64, 1), 64, true);
        }
        choices.begin(&[], true);
        for object in 1..10_000_u64 {
            choices.saw(key(object * 64, 1), object * 64, true);
        }
        choices.judge(|_| Some(false));
        let wanted = (1..10_000_u64).filter(|n| choices.is_wanted(|| Some(key(n * 64, 1))));
        assert!(wanted.count() > 8_000);
    }
}
