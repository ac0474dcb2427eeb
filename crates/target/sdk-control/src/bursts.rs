//! A recording in bursts (`--max-overhead`): the worker thread switches the recording on and off, so
//! that it costs the application only a share of its speed.
//!
//! Hooks stay in place between bursts, and launches are counted there: what recording costs is the
//! difference between the application's launches in bursts and outside of them. What the hooks
//! themselves cost is in both, and is not seen ([`midair_sdk_hot::pause`] says what they do then).

use midair_guest::IDLE_TICK;
use midair_record::event::{Burst, Header, Plain, basis, kind};
use midair_rotation::{Basis, Bursts, Period, Turn};
use midair_sdk_api::setting;
use midair_sdk_device::queue::state;
use midair_sdk_device::sink::Sink;
use midair_sdk_hot::clock::now;
use midair_sdk_hot::pause;

/// The bursts of a collection.
#[derive(Debug)]
pub(crate) struct Bursting {
    bursts: Bursts,
}

impl Bursting {
    /// Starts, if the session records in bursts.
    pub(crate) fn begin() -> Option<Bursting> {
        if !pause::is_in_bursts() {
            return None;
        }
        let percent = setting::with(|settings| settings.burst_percent());
        let percent = percent.ok().flatten()?;
        let time = now();
        let seed = time ^ u64::from(std::process::id()) << 40;
        Some(Bursting {
            bursts: Bursts::new(percent, 0, seed, time, state::launches().unwrap_or(0)),
        })
    }

    /// Switches the recording, if it is time. Returns whether it will be soon.
    pub(crate) fn round(&mut self, sink: &mut Sink) -> bool {
        while let (turn, at) = self.bursts.next()
            && at <= now()
        {
            if !self.take(turn, sink) {
                // A queue is in use. It will be looked at again.
                return true;
            }
        }
        let (_, at) = self.bursts.next();
        at.saturating_sub(now()) <= IDLE_TICK.as_nanos() as u64
    }

    /// Takes a turn. Returns false if launches cannot be counted now.
    fn take(&mut self, turn: Turn, sink: &mut Sink) -> bool {
        let Some(launches) = state::launches() else {
            return false;
        };
        match turn {
            Turn::Begin => {
                self.bursts.begin(now(), launches);
                let (from, start) = self.bursts.began();
                let burst = Burst {
                    header: header(),
                    from,
                    start,
                    ..Burst::default()
                };
                // Before anything of the burst, so that a reader knows what belongs to it.
                sink.put(kind::BURST, burst.bytes());
                pause::set_period(true);
            }
            Turn::End => {
                pause::set_period(false);
                let launches = state::launches().unwrap_or(launches);
                self.bursts.end(now(), launches, 0);
            }
            Turn::Over => {
                let period = self.bursts.over(now(), launches);
                sink.put(kind::BURST, record(&period).bytes());
            }
        }
        true
    }

    /// Ends the last burst. Nothing new is recorded from here on.
    pub(crate) fn finish(&mut self, sink: &mut Sink) {
        let is_on = self.bursts.is_on();
        pause::set_period(false);
        let (turn, _) = self.bursts.next();
        if turn == Turn::Begin {
            // A period without its burst tells nothing.
            return;
        }
        // The launches of a queue that is still in use are not known; times are.
        let launches = state::launches().unwrap_or(0);
        if is_on {
            self.bursts.end(now(), launches, 0);
        }
        let period = self.bursts.over(now(), launches);
        sink.put(kind::BURST, record(&period).bytes());
    }
}

fn header() -> Header {
    Header {
        size: size_of::<Burst>() as u16,
        kind: kind::BURST,
        ..Header::default()
    }
}

fn record(period: &Period) -> Burst {
    Burst {
        header: header(),
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
