//! One kernel, or one line of code: its whole name, and how long it took.

use crate::draw::{Line, Tone, bar};
use crate::rows::Row;
use crate::view::{By, View};
use crate::words::{percent, rate};
use midair_output::table::duration;

/// The most lines that a name may take.
const NAME_LINES: usize = 6;

/// Returns the lines of the screen below the header.
pub(crate) fn lines(view: &View, row: &Row, columns: usize, rows: usize) -> Vec<Line> {
    let (title, works) = match view.by {
        By::Kernel => ("KERNEL", "KERNELS"),
        By::Code => ("CODE", "LAUNCHES"),
    };
    let mut lines = vec![Line::new(Tone::Head, title.to_owned())];
    let name: Vec<char> = row.name.chars().collect();
    for part in name.chunks(columns.max(1)).take(NAME_LINES) {
        lines.push(Line::new(Tone::Plain, part.iter().collect()));
    }
    if row.symbol != row.name && !row.symbol.is_empty() {
        let symbol: Vec<char> = row.symbol.chars().collect();
        for part in symbol.chunks(columns.max(1)).take(NAME_LINES) {
            lines.push(Line::new(Tone::Dim, part.iter().collect()));
        }
    }
    lines.push(Line::empty());
    let total = &row.total;
    if total.calls == 0 {
        lines.push(Line::new(
            Tone::Plain,
            "None has finished since the attach.".to_owned(),
        ));
        return lines;
    }
    // A class of the histogram may reach beyond the times that are in it.
    let of = |share| duration(row.histogram.quantile(share).max(total.min).min(total.max) as f64);
    lines.push(Line::new(
        Tone::Plain,
        format!(
            "{} of the time now, {} in a second; {} since the attach, {} together",
            percent(row.share),
            rate(row.rate),
            total.calls,
            duration(total.total as f64)
        ),
    ));
    lines.push(Line::new(
        Tone::Plain,
        format!(
            "shortest {}  median {}  mean {}  99 % {}  longest {}",
            duration(total.min as f64),
            of(0.5),
            duration(total.mean()),
            of(0.99),
            duration(total.max as f64)
        ),
    ));
    if let Some(it) = &row.hottest {
        let place = row.hottest_in_words();
        lines.push(Line::new(
            Tone::Plain,
            format!("hottest instruction{place} of {} samples", it.all),
        ));
    }
    lines.push(Line::empty());
    lines.push(Line::new(
        Tone::Head,
        format!("{:>10} {:>9}", "FROM", works),
    ));
    let classes = row.histogram.classes();
    let room = rows.saturating_sub(lines.len()).max(1);
    // Neighbouring classes are combined until all fit.
    let together = classes.len().div_ceil(room).max(1);
    let classes: Vec<(u64, u64)> = classes
        .chunks(together)
        .map(|part| {
            let least = part.first().map_or(0, |class| class.0);
            (least, part.iter().map(|class| u64::from(class.1)).sum())
        })
        .collect();
    let most = classes
        .iter()
        .map(|class| class.1)
        .max()
        .unwrap_or(1)
        .max(1);
    for (least, count) in classes {
        let share = count as f64 / most as f64;
        let width = columns.saturating_sub(22).min(60);
        lines.push(Line::new(
            Tone::Plain,
            format!(
                "{:>10} {count:>9}  {}",
                duration(least as f64),
                bar(share, width, view.look.unicode)
            ),
        ));
    }
    lines
}
