//! The roofline as a drawing.

use super::{Level, Peaks, Point, Roof};
use std::fmt::Write;

/// The size of the drawing without its texts.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;

/// Returns the name of a level's class in the style sheet.
fn class(level: Level) -> String {
    level.word().to_ascii_lowercase()
}

/// Returns a rate in 10⁹ or, where it is great, 10¹² of its operations a second.
fn rate(roof: &Roof) -> String {
    let operation = roof.operation();
    match roof.peak < 1000.0 {
        true => format!("{:.0} G{operation}/s", roof.peak),
        false => format!("{:.1} T{operation}/s", roof.peak / 1000.0),
    }
}

/// Draws the roofline; both axes are logarithmic.
pub fn draw(peaks: &Peaks, points: &[Point], safe: impl Fn(&str) -> String) -> String {
    let fold = |values: &mut dyn Iterator<Item = f64>, from: f64, pick: fn(f64, f64) -> f64| {
        values.fold(from, pick)
    };
    let greatest = fold(
        &mut peaks.compute.iter().map(|roof| roof.peak),
        1.0,
        f64::max,
    );
    let lowest = fold(
        &mut points.iter().map(|point| point.performance),
        greatest / 1e4,
        f64::min,
    );
    let intensities = || points.iter().map(|point| point.intensity);
    let left = fold(&mut intensities(), 0.01, f64::min);
    let right = fold(&mut intensities(), 1000.0, f64::max);
    let scale = |value: f64, low: f64, high: f64| (value / low).log10() / (high / low).log10();
    let x = |intensity: f64| scale(intensity, left, right) * WIDTH;
    let top = greatest * 2.0;
    let y = |performance: f64| {
        let lowest = lowest / 2.0;
        HEIGHT - scale(performance.max(lowest), lowest, top) * HEIGHT
    };
    let mut out = format!(
        "<svg class=\"roofline\" viewBox=\"-60 -10 {} {}\" role=\"img\" aria-label=\"Roofline\">\n",
        WIDTH + 230.0,
        HEIGHT + 65.0
    );
    for power in powers(left, right) {
        let _ = writeln!(
            out,
            "<text class=\"tick\" text-anchor=\"middle\" x=\"{:.1}\" y=\"{}\">{power}</text>",
            x(power),
            HEIGHT + 16.0
        );
    }
    for power in powers(lowest / 2.0, top) {
        let _ = writeln!(
            out,
            "<text class=\"tick\" text-anchor=\"end\" x=\"-6\" y=\"{:.1}\">{power}</text>",
            y(power) + 4.0
        );
    }
    // Each memory's roof ends at the highest roof of what computes.
    for (level, bandwidth) in &peaks.memory {
        let ridge = (greatest / bandwidth).clamp(left, right);
        let _ = writeln!(
            out,
            "<path class=\"memory {}\" d=\"M{:.1} {:.1} L{:.1} {:.1}\"/>",
            class(*level),
            x(left),
            y(left * bandwidth),
            x(ridge),
            y(ridge * bandwidth)
        );
    }
    let fastest = fold(
        &mut peaks.memory.iter().map(|(_, bandwidth)| *bandwidth),
        0.0,
        f64::max,
    );
    for roof in &peaks.compute {
        let ridge = (roof.peak / fastest).clamp(left, right);
        let _ = writeln!(
            out,
            "<path class=\"roof\" d=\"M{:.1} {:.1} H{WIDTH}\"/><text x=\"{}\" y=\"{:.1}\">{} {}</text>",
            x(ridge),
            y(roof.peak),
            WIDTH + 6.0,
            y(roof.peak) + 4.0,
            safe(roof.name),
            rate(roof)
        );
    }
    for point in points {
        let _ = writeln!(
            out,
            "<circle class=\"{}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"{:.1}\"><title>{}: {:.3} operations a byte of {}, {:.3} \
             GFLOP/s, {:.1} % of the time</title></circle>",
            class(point.level),
            x(point.intensity),
            y(point.performance),
            4.0 + point.percent / 12.0,
            safe(&point.name),
            point.intensity,
            point.level.word(),
            point.performance,
            point.percent
        );
    }
    let bandwidths: Vec<String> = peaks
        .memory
        .iter()
        .map(|(level, bandwidth)| format!("{} {bandwidth:.0} GB/s", level.word()))
        .collect();
    let _ = writeln!(
        out,
        "<text x=\"0\" y=\"{}\">across: operations per byte; upward: GFLOP/s; {}; peaks {}</text>\n</svg>",
        HEIGHT + 45.0,
        bandwidths.join(", "),
        peaks.origin()
    );
    out
}

/// The most numbers at an axis.
const MOST_TICKS: usize = 12;

/// Returns the powers of ten between two values, fewer where there are too many.
fn powers(low: f64, high: f64) -> Vec<f64> {
    if !(low > 0.0 && low < high && high.is_finite()) {
        return Vec::new();
    }
    let (first, last) = (low.log10().ceil() as i32, high.log10().floor() as i32);
    let count = usize::try_from(last - first + 1).unwrap_or(0);
    (first..=last)
        .step_by(count.div_ceil(MOST_TICKS).max(1))
        .map(|power| 10.0_f64.powi(power))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Level, Peaks, Roof};
    use super::{draw, powers};

    /// Both axes of the page have numbers, not only the texts of the roofs.
    #[test]
    fn both_axes_have_numbers() {
        let roof = Roof {
            name: "FP32",
            peak: 1000.0,
            whole: false,
        };
        let peaks = Peaks {
            measured: false,
            memory: vec![(Level::Hbm, 5000.0)],
            without: Vec::new(),
            compute: vec![roof],
        };
        let drawn = draw(&peaks, &[], str::to_owned);
        let ticks = |anchor: &str| -> Vec<&str> {
            let start = format!("<text class=\"tick\" text-anchor=\"{anchor}\"");
            let lines = drawn.lines().filter(|line| line.starts_with(&start));
            lines
                .filter_map(|line| line.split(['>', '<']).nth(2))
                .collect()
        };
        assert_eq!(ticks("middle"), ["0.01", "0.1", "1", "10", "100", "1000"]);
        assert_eq!(ticks("end"), ["0.1", "1", "10", "100", "1000"]);
    }

    #[test]
    fn an_axis_has_powers_of_ten() {
        assert_eq!(powers(0.02, 1000.0), [0.1, 1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(powers(2.0, 9.0), [0.0; 0]);
        assert!(powers(1e-300, 1e300).len() <= super::MOST_TICKS);
        for (low, high) in [
            (0.0, 1.0),
            (1.0, 1.0),
            (1.0, f64::INFINITY),
            (f64::NAN, 1.0),
        ] {
            assert!(powers(low, high).is_empty());
        }
    }
}
