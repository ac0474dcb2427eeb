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
        "<svg class=\"roofline\" viewBox=\"-10 -10 {} {}\" role=\"img\" aria-label=\"Roofline\">\n",
        WIDTH + 180.0,
        HEIGHT + 50.0
    );
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
        "<text x=\"0\" y=\"{}\">{left} to {right} operations per byte; {}; peaks {}</text>\n</svg>",
        HEIGHT + 30.0,
        bandwidths.join(", "),
        peaks.origin()
    );
    out
}
