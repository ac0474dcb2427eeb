//! Conversion from a clock that counts evenly, in any unit, to CLOCK_BOOTTIME.

/// The number of points kept.
const KEPT: usize = 256;
/// The least distance of two points from which a rate is computed, ns: a reading is exact to some
/// 0.1 us.
const APART: u64 = 5_000_000;

/// One moment, on both clocks.
#[derive(Debug, Clone, Copy)]
struct Point {
    time: u64,
    boot: u64,
}

/// Points of both clocks, and the rate between them.
#[derive(Debug, Default)]
pub(super) struct Line {
    points: Vec<Point>,
    /// Nanoseconds for each unit.
    rate: Option<f64>,
    /// Index of the interval of the last conversion.
    last: usize,
}

impl Line {
    /// Adds a point; `earliest` is one from before the session, for a rate at once.
    pub(super) fn add(&mut self, time: u64, boot: u64, earliest: Option<(u64, u64)>) {
        let point = Point { time, boot };
        let first = self.points.first().copied();
        let before = earliest.map(|(time, boot)| Point { time, boot }).or(first);
        if let Some(before) = before
            && boot.saturating_sub(before.boot) >= APART
        {
            self.rate = rate(before, point);
        }
        if self.points.len() == KEPT {
            self.points.remove(1);
            self.last = 0;
        }
        self.points.push(point);
    }

    /// Converts a time; `None` if there is no point.
    #[inline]
    pub(super) fn convert(&mut self, time: u64) -> Option<u64> {
        let newest = *self.points.last()?;
        if time >= newest.time {
            // Nanoseconds until more is known.
            return Some(along(newest, self.rate.unwrap_or(1.0), time));
        }
        let (from, to) = match self.interval(self.last) {
            Some(known) if (known.0.time..known.1.time).contains(&time) => known,
            _ => {
                let above = self.points.partition_point(|point| point.time <= time);
                self.last = above.saturating_sub(1);
                match self.interval(self.last) {
                    Some(found) if above > 0 => found,
                    _ => return Some(along(*self.points.first()?, self.rate.unwrap_or(1.0), time)),
                }
            }
        };
        // Readings that lie close together give no better rate than all of them.
        let near = to.boot.saturating_sub(from.boot) < APART;
        let rate = if near { self.rate } else { rate(from, to) };
        Some(along(from, rate.unwrap_or(1.0), time))
    }

    fn interval(&self, index: usize) -> Option<(Point, Point)> {
        Some((*self.points.get(index)?, *self.points.get(index + 1)?))
    }
}

fn rate(from: Point, to: Point) -> Option<f64> {
    let (time, boot) = (
        to.time.checked_sub(from.time)?,
        to.boot.checked_sub(from.boot)?,
    );
    (time > 0).then(|| boot as f64 / time as f64)
}

/// The moment of `time` on a line through `point`. Distances are below 2^53, in which `f64` is exact.
fn along(point: Point, rate: f64, time: u64) -> u64 {
    let distance = time.wrapping_sub(point.time).cast_signed() as f64 * rate;
    point.boot.saturating_add_signed(distance as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A counter of 2.1 GHz.
    fn ticks(boot: u64) -> u64 {
        87_000_000_000 + boot / 10 * 21
    }

    #[test]
    fn a_counter_of_another_unit_is_converted_between_and_outside_of_points() {
        let mut line = Line::default();
        assert_eq!(line.convert(5), None);
        let earliest = (ticks(1_000_000_000), 1_000_000_000);
        for at in [1_050, 1_150, 1_250_u64] {
            line.add(ticks(at * 1_000_000), at * 1_000_000, Some(earliest));
        }
        for at in [
            1_040_000_000_u64,
            1_050_000_000,
            1_100_000_000,
            1_249_000_000,
            1_300_000_000,
        ] {
            let got = line.convert(ticks(at)).unwrap();
            assert!(got.abs_diff(at) <= 5, "{at}: {got}");
        }
    }

    #[test]
    fn the_rate_is_known_from_the_first_point_on_if_an_earlier_one_is() {
        let mut line = Line::default();
        line.add(ticks(2_000_000_000), 2_000_000_000, Some((ticks(0), 0)));
        assert_eq!(line.convert(ticks(2_010_000_000)), Some(2_010_000_000));
        // Without one, units are nanoseconds until there are two points.
        let mut line = Line::default();
        line.add(1_000, 50, None);
        assert_eq!(line.convert(1_010), Some(60));
        line.add(3_000_000_000, 1_500_000_050, None);
        assert_eq!(line.convert(3_000_000_100), Some(1_500_000_100));
    }

    #[test]
    fn many_points_keep_the_first() {
        let mut line = Line::default();
        for at in 0..2_000_u64 {
            line.add(ticks(at * 10_000_000), at * 10_000_000, None);
        }
        assert!(line.points.len() <= KEPT);
        for at in [7_000_u64, 30_000_000, 19_985_000_000, 19_990_000_000] {
            let got = line.convert(ticks(at)).unwrap();
            assert!(got.abs_diff(at) <= 20, "{at}: {got}");
        }
    }
}
