//! The iterations of the program's main loop, and their phases, on tracks of their own.

use super::annotations::Key;
use super::packets::{Event, Name};
use super::tracks::TrackKey;
use super::{Scene, times};
use crate::files::WriteError;
use crate::screen;
use midair_record::event::kind;

impl Scene<'_> {
    /// Writes the iterations, if a loop was found.
    pub(super) fn steps(&mut self) -> Result<(), WriteError> {
        let Some(found) = self.job.trace.main_loop() else {
            return Ok(());
        };
        let place = screen::place_of_loop(&found);
        for (number, step) in (1..).zip(&found.steps) {
            let end = step.start + step.duration;
            let (name, idle) = (format!("step {number}"), 100.0 * step.idle());
            let remark = format!("{place}; no kernel runs for {idle:.0} % of it");
            times(self.out.annotate(), step.start, end)
                .uint(Key::Kernels, step.kernels)
                .text(Key::Remark, &remark);
            self.found(TrackKey::Steps, &name, (step.start, end))?;
        }
        for phase in &found.phases {
            let end = phase.start + phase.duration;
            times(self.out.annotate(), phase.start, end).text(Key::Remark, &place);
            let name = screen::phase_of_loop(&found, phase.line);
            self.found(TrackKey::Phases, &name, (phase.start, end))?;
        }
        Ok(())
    }

    /// Writes a slice that was found rather than recorded.
    fn found(
        &mut self,
        key: TrackKey,
        name: &str,
        (start, end): (u64, u64),
    ) -> Result<(), WriteError> {
        let track = self.tracks.lane(self.job, &mut self.out, key, start, end)?;
        let event = Event {
            kind: kind::MARKER_CORE_RANGE_API,
            name: Name::Text(name),
            track,
            flow: None,
            correlation: 0,
            dispatch: 0,
        };
        self.out.slice(&event, start, end)
    }
}
