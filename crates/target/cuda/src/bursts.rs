//! A recording in bursts (`--max-overhead`), so that it costs the application only a share of its
//! speed.
//!
//! Each burst is the whole of a session: CUPTI is switched on, drained, switched off and finalized
//! ([`crate::session`] says how, and why that does no harm). Between bursts nothing of it is left, so
//! nothing is lost there. A CUPTI that stays does cost something, and to switch it on and off again
//! may end a process. So where it could not be finalized, there is no further burst.
//!
//! What switching takes is measured, and counts as if the application stood still meanwhile. While a
//! burst is on, the worst counts that was ever measured: a loop that does nothing but launch empty
//! kernels (`bench-results/gpu-check*.md`, parts d and v).
//!
//! Decisions: CUDA-038 (`docs/deviations/cuda.md`).

use crate::session::{End, Session};
use crate::sink::{Sink, header};
use crate::work::{Plan, describe};
use midair_guest::{IDLE_TICK, now};
use midair_record::event::{Burst, basis, kind};
use midair_record::spool::{outcome, status};
use midair_rotation::{Basis, Bursts, Period, Turn};
use std::sync::atomic::Ordering::{Acquire, SeqCst};

/// The part of its speed that a loop of launches loses at most: while kernels and copies are recorded,
/// and with calls or ranges.
const WORST: f64 = 0.45;
const WORST_WITH_CALLS: f64 = 0.55;
/// What a record is taken to cost the thread that makes it, in ns. It says what a program loses that
/// launches less.
const PER_RECORD: u64 = 1_500;

/// The bursts of a session.
#[derive(Debug)]
pub(crate) struct Bursting {
    plan: Plan,
    session: Session,
    bursts: Bursts,
    /// Records before this burst.
    records: u64,
    /// Whether a burst has started.
    has_begun: bool,
    /// Whether no further burst may start.
    is_over: bool,
    /// Whether another profiler has come.
    taken: bool,
}

impl Bursting {
    /// Starts with the time before the first burst: CUPTI is not used yet.
    pub(crate) fn new(plan: Plan, percent: u32, sink: Sink) -> Bursting {
        let time = now();
        let seed = time ^ u64::from(std::process::id()) << 40;
        let worst = match plan.choice.calls() || plan.choice.has(kind::MARKER_CORE_RANGE_API) {
            true => WORST_WITH_CALLS,
            false => WORST,
        };
        Bursting {
            session: Session::new(&plan.cupti, &plan.choice, sink),
            bursts: Bursts::rare(percent, PER_RECORD, worst, seed, time),
            plan,
            records: 0,
            has_begun: false,
            is_over: false,
            taken: false,
        }
    }

    /// Runs a round. Returns whether the next one should follow soon.
    pub(crate) fn round(&mut self) -> bool {
        let mut busy = self.bursts.is_on() && self.session.tick();
        while !self.is_over
            && let (turn, at) = self.bursts.next()
            && at <= now()
        {
            match turn {
                Turn::Begin => self.begin(),
                Turn::End => {
                    let drain = self.plan.area.head().drain_ms.load(Acquire);
                    self.end(now() + u64::from(drain) * 1_000_000, End::Burst, &|| ());
                }
                Turn::Over => self.over(),
            }
            busy = true;
        }
        let (_, at) = self.bursts.next();
        busy || !self.is_over && at.saturating_sub(now()) <= IDLE_TICK.as_nanos() as u64
    }

    fn begin(&mut self) {
        let before = now();
        let first = !self.has_begun;
        let plan = &self.plan;
        let on = self.session.turn_on(|sink| {
            if first {
                describe(plan, sink);
            }
        });
        if let Err(why) = on {
            self.taken = why.status == status::OTHER_PROFILER;
            self.is_over = true;
            self.session.sink().note(&why.text);
            return;
        }
        self.has_begun = true;
        let took = now().saturating_sub(before);
        self.bursts.switched(took);
        self.bursts.begin(self.session.on_since(), 0);
        let (from, start) = self.bursts.began();
        let burst = Burst {
            header: header::<Burst>(kind::BURST, 0, 0, 0),
            from,
            start,
            switched: took,
            ..Burst::default()
        };
        // Before anything of the burst, so that a reader knows what belongs to it.
        self.session.sink().put(&burst, &[]);
        self.records = self.session.sink().stored;
    }

    fn end(&mut self, deadline: u64, end: End, detached: &dyn Fn()) {
        let off = self.session.turn_off(deadline, end, detached);
        let records = self.session.sink().stored.saturating_sub(self.records);
        self.bursts.switched(off.took);
        self.bursts.end(off.at, 0, records);
        if end == End::Burst
            && let Some(why) = off.stays
        {
            self.is_over = true;
            self.session.sink().note(&format!(
                "this was the last burst, since CUPTI could not be removed from the process after it ({why}), and disabling and enabling \
                 it again may crash the process: later work was not recorded"
            ));
        }
    }

    fn over(&mut self) {
        let period = self.bursts.over(now(), 0);
        self.session.sink().put(&record(&period), &[]);
    }

    /// How many kinds are enabled.
    pub(crate) fn slots(&self) -> u32 {
        self.session.slots()
    }

    /// Whether another profiler waits.
    pub(crate) fn is_requested(&self) -> bool {
        self.session.is_requested()
    }

    /// Whether another profiler has come.
    pub(crate) fn is_taken(&self) -> bool {
        self.taken
    }

    /// The path of the CUPTI that was used.
    pub(crate) fn used(&self) -> Option<String> {
        self.has_begun.then(|| self.plan.cupti.path().to_owned())
    }

    /// Ends the session, with the arguments and the result of [`Session::finish`].
    pub(crate) fn finish(mut self, deadline: u64, quick: bool, detached: &dyn Fn()) -> u32 {
        if self.bursts.is_on() {
            let end = if quick { End::Quick } else { End::Detach };
            self.end(deadline, end, detached);
        } else {
            detached();
            // A profiler that waits for us uses CUPTI in its own way from now on.
            crate::session::KEEP_LOADED.fetch_or(quick, SeqCst);
        }
        // A period without its burst tells nothing.
        if self.bursts.next().0 == Turn::Over {
            self.over();
        }
        let how = match (self.has_begun, self.is_over && !self.taken) {
            (false, _) => outcome::NO_BURST,
            (true, true) => outcome::BURSTS_ENDED,
            (true, false) => 0,
        };
        self.session.close() | how
    }
}

fn record(period: &Period) -> Burst {
    Burst {
        header: header::<Burst>(kind::BURST, 0, 0, 0),
        from: period.from,
        start: period.start,
        end: period.end,
        to: period.to,
        inside: period.inside,
        all: period.all,
        cost: (period.cost * 1e6) as u32,
        basis: match period.basis {
            Basis::Unknown => basis::UNKNOWN,
            Basis::Measured => basis::MEASURED,
            Basis::Assumed => basis::ASSUMED,
        },
        switched: period.switched,
    }
}

#[cfg(test)]
mod tests;
