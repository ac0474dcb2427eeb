//! The thread that computes the values of samples while the next ones are decoded. With eleven
//! metrics at 10 kHz decoding takes more than half a processor and values a quarter, and emptying
//! images the rest: on one thread that was too much, and samples were lost (seen on an H100 and an
//! H200).

use super::Refusal;
use super::device::Image;
use super::evaluator::Fast;
use super::host::{Group, Host, Slow};
use super::library::Cupti;
use super::run::{Say, clock};
use crate::wire::{Event, Samples};
use std::ffi::CStr;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

/// The number of samples whose values are computed in both ways.
const COMPARED: u64 = 32;
/// Values that differ by less count as equal: the two ways may add in another order.
const SAME: f64 = 1e-9;

/// Samples of an image whose values are wanted.
pub struct Work {
    pub image: Image,
    /// The number of the group.
    pub group: usize,
    /// These are the first samples since the image was initialised.
    pub anew: bool,
    /// The samples' numbers in the image, and their times.
    pub samples: Vec<(usize, (u64, u64))>,
}

/// An image whose samples were said, or why they were not: nothing if no process reads any more.
pub type Done = Result<Image, Option<Refusal>>;

/// Facts that are reported at the end.
#[derive(Default)]
pub struct Facts {
    /// Processor time.
    pub evaluate: Duration,
    /// Processor time of each of the two ways, for the samples whose values were computed in both.
    pub prepared: Duration,
    pub by_name: Duration,
    pub compared: u32,
    /// Whether all groups were evaluated without looking names up.
    pub fast: bool,
}

/// The two ways to compute the values of a group.
pub struct Evaluation<'a> {
    fast: Option<Fast>,
    slow: Slow<'a>,
    compared: u64,
}

/// The evaluations of all groups, on their way to the thread.
pub struct Evaluations<'a>(Vec<Evaluation<'a>>);

// SAFETY: the objects of CUPTI and of NVIDIA's evaluator in it are bound to no thread, and only the
// thread that has the value uses them. Of the loaded libraries it has functions and handles alone.
unsafe impl Send for Evaluations<'_> {}

impl<'a> Evaluations<'a> {
    /// Makes them.
    ///
    /// # Errors
    /// CUPTI's status.
    pub fn new(
        cupti: &'a Cupti,
        chip: &CStr,
        availability: &[u64],
        groups: &[Group],
    ) -> Result<Evaluations<'a>, Refusal> {
        let each = groups.iter().map(|group| {
            Ok(Evaluation {
                fast: Fast::new(cupti, chip, group),
                slow: Slow::new(Host::new(cupti, chip, availability)?, group),
                compared: 0,
            })
        });
        each.collect::<Result<_, _>>().map(Evaluations)
    }

    /// Computes the values of what comes and says them, until there is no more work.
    pub fn work(
        mut self,
        groups: &[Group],
        work: &Receiver<Work>,
        done: &Sender<Done>,
        say: &Mutex<Say<'_>>,
    ) -> Facts {
        let mut facts = Facts::default();
        for one in work {
            let before = cpu();
            let result = self.samples(groups, &one, &mut facts);
            facts.evaluate += cpu().saturating_sub(before);
            let answer = match result {
                Err(refusal) => Err(Some(refusal)),
                Ok(samples) => {
                    let said = samples.times.is_empty()
                        || say
                            .lock()
                            .is_ok_and(|mut say| say(&Event::Samples(samples)).is_ok());
                    if said { Ok(one.image) } else { Err(None) }
                }
            };
            let over = answer.is_err();
            if done.send(answer).is_err() || over {
                break;
            }
        }
        facts.fast = self.0.iter().all(|it| it.fast.is_some());
        facts
    }

    fn samples(
        &mut self,
        groups: &[Group],
        work: &Work,
        facts: &mut Facts,
    ) -> Result<Samples, Refusal> {
        let mut samples = Samples {
            group: work.group as u32,
            ..Samples::default()
        };
        let (Some(evaluation), Some(group)) = (self.0.get_mut(work.group), groups.get(work.group))
        else {
            return Ok(samples);
        };
        if work.anew {
            evaluation.begin(&work.image);
        }
        let width = group.metrics.len();
        samples.values.reserve_exact(work.samples.len() * width);
        samples.times.reserve_exact(work.samples.len());
        for (index, times) in &work.samples {
            let from = samples.values.len();
            samples.values.resize(from + width, 0.0);
            let values = samples.values.get_mut(from..).unwrap_or_default();
            evaluation.values(&work.image, *index, values, facts)?;
            for (value, divisor) in values.iter_mut().zip(&group.divisors) {
                *value /= divisor;
            }
            samples.times.push(*times);
        }
        Ok(samples)
    }
}

/// Processor time of this thread.
fn cpu() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

impl Evaluation<'_> {
    /// Prepares for an image. Call it before taking samples from an image that was initialised
    /// again.
    fn begin(&mut self, image: &Image) {
        if let Some(fast) = &self.fast {
            // SAFETY: the image was initialised for this group, and it has as many bytes as it
            // says.
            if unsafe { fast.attributes(image.as_ptr(), image.bytes()) }.is_err() {
                self.fast = None;
            }
        }
    }

    fn values(
        &mut self,
        image: &Image,
        index: usize,
        values: &mut [f64],
        facts: &mut Facts,
    ) -> Result<(), Refusal> {
        let (at, bytes) = (image.as_ptr(), image.bytes());
        let Some(fast) = &self.fast else {
            // SAFETY: the image was initialised for this group, as `begin` says.
            return unsafe { self.slow.evaluate(at, bytes, index, values) };
        };
        let whole = self.compared >= COMPARED;
        let before = if whole { Duration::ZERO } else { cpu() };
        // SAFETY: the image was initialised for this group, as `begin` says.
        let got = unsafe { fast.evaluate(at, bytes, index, values) };
        if got.is_ok() && whole {
            return Ok(());
        }
        let between = cpu();
        let mut other = vec![0.0; values.len()];
        // SAFETY: the image was initialised for this group, as `begin` says.
        unsafe { self.slow.evaluate(at, bytes, index, &mut other) }?;
        self.compared += 1;
        facts.compared += 1;
        facts.prepared += between.saturating_sub(before);
        facts.by_name += cpu().saturating_sub(between);
        let same = |(a, b): (&f64, &f64)| {
            a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= SAME * a.abs().max(b.abs())
        };
        if got.is_err() || !values.iter().zip(&other).all(same) {
            self.fast = None;
        }
        values.copy_from_slice(&other);
        Ok(())
    }
}
