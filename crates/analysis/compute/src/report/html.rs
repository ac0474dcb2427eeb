//! A report as a single page: it needs no other file and nothing from the network.
//!
//! It has the speed of light as bars with their intervals, the memory chart as a drawing, the
//! roofline where its values are known, all tables, and a table of kernels that is filtered as one
//! types.

use super::text::{field, is_marked};
use super::{Entry, Line, Options, Report, Sheet, roofline};
use crate::architecture::{Source, Style};
use crate::read::Workload;
use midair_failure::Failure;
use std::fmt::Write;
use std::path::Path;

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");

/// Writes the page of some workloads.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path, jobs: &[(&Workload, &Report)], options: &Options) -> Result<(), Failure> {
    crate::files::write(path, &page(jobs, options))
}

/// Escapes a text for HTML. Characters that would reverse the order of text are replaced.
fn safe(text: &str) -> String {
    let plain = midair_failure::plain::line(text);
    let mut out = String::with_capacity(plain.len());
    for c in plain.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Returns the page.
pub fn page(jobs: &[(&Workload, &Report)], options: &Options) -> String {
    let mut out =
        String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n");
    // The page loads nothing, whatever the name of a kernel contains.
    out.push_str(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n",
    );
    let names: Vec<&str> = jobs
        .iter()
        .map(|(workload, _)| workload.name.as_str())
        .collect();
    let _ = write!(
        out,
        "<title>{} — rocprof-compute</title>\n<style>{STYLE}</style></head>\n<body>\n",
        safe(&names.join(", "))
    );
    for (workload, report) in jobs {
        one(&mut out, workload, report, options);
    }
    let _ = write!(out, "<script>{SCRIPT}</script>\n</body></html>\n");
    out
}

fn one(out: &mut String, workload: &Workload, report: &Report, options: &Options) {
    let known = |name: &str| workload.system.iter().find(|(key, _)| key == name);
    let model = known("gpu_model").map_or("", |(_, model)| model.as_str());
    let _ = writeln!(
        out,
        "<section class=\"workload\"><h1>{}</h1><p class=\"facts\">{} {} · {} of {}</p>",
        safe(&workload.name),
        safe(workload.architecture.name),
        safe(model),
        midair_failure::plain::counted(report.rows.len(), "dispatch", "dispatches"),
        midair_failure::plain::counted(report.kernels.len(), "kernel", "kernels")
    );
    for note in &workload.notes {
        let _ = writeln!(out, "<p class=\"note\">{}</p>", safe(note));
    }
    kernels(out, workload, report, options);
    if let Some(peaks) = roofline::peaks(workload, options) {
        let points = roofline::points(workload, &report.kernels, &report.rows, options);
        out.push_str("<details open><summary>Roofline</summary>\n");
        if let Some(missing) = roofline::missing(&peaks, &points) {
            let _ = writeln!(out, "<p class=\"note\">{}</p>", safe(&missing));
        }
        out.push_str(&roofline::draw(&peaks, &points, safe));
        out.push_str("</details>\n");
    }
    for sheet in &report.sheets {
        if matches!(sheet.source, Source::TopKernels) || sheet.lines.is_empty() {
            continue;
        }
        let _ = writeln!(
            out,
            "<details{}><summary>{}.{} {}</summary>",
            if sheet.panel <= 4 && sheet.source == Source::Metrics {
                " open"
            } else {
                ""
            },
            sheet.id / 100,
            sheet.id % 100,
            safe(if sheet.title.is_empty() {
                sheet.panel_title
            } else {
                &sheet.title
            })
        );
        if sheet.id == 201 {
            bars(out, sheet, options);
        }
        match sheet.style {
            Style::MemoryChart => {
                // The chart shows only what can be drawn; the numbers themselves are in the table
                // below it.
                let drawn = super::chart::draw(sheet, options.decimals);
                let _ = writeln!(out, "<pre class=\"chart\">{}</pre>", lines(&drawn));
                table(out, sheet, options);
            }
            _ => table(out, sheet, options),
        }
        out.push_str("</details>\n");
    }
    out.push_str("</section>\n");
}

fn lines(text: &str) -> String {
    text.lines().map(safe).collect::<Vec<_>>().join("\n")
}

/// Writes the table of kernels with a field that filters it.
fn kernels(out: &mut String, workload: &Workload, report: &Report, options: &Options) {
    let unit = safe(&options.time_unit);
    let _ = writeln!(
        out,
        "<h2>Kernels</h2><input type=\"search\" class=\"filter\" placeholder=\"part of a name\" \
         aria-label=\"Filter kernels\"><table class=\"kernels\"><thead><tr><th>Kernel</th><th>Count</th>\
         <th>Sum ({unit})</th><th>Mean ({unit})</th><th>Median ({unit})</th><th>%</th></tr></thead><tbody>"
    );
    let (scale, digits) = (options.nanoseconds(), options.decimals);
    for kernel in &report.kernels {
        let name = safe(workload.frame.names.text(kernel.kernel));
        let _ = writeln!(
            out,
            "<tr><td>{name}</td><td>{}</td><td>{:.digits$}</td><td>{:.digits$}</td><td>{:.digits$}</td>\
             <td>{:.digits$}</td></tr>",
            kernel.count,
            kernel.sum / scale,
            kernel.sum / kernel.count as f64 / scale,
            kernel.median / scale,
            kernel.percent
        );
    }
    out.push_str("</tbody></table>\n");
}

/// Writes percentages of the peak as bars, each with its interval.
fn bars(out: &mut String, sheet: &Sheet, options: &Options) {
    let rows: Vec<(&Line, f64, Option<f64>)> = sheet
        .lines
        .iter()
        .filter_map(|line| {
            let values: Vec<&crate::evaluate::Value> = line
                .entries
                .iter()
                .filter_map(|entry| match entry {
                    Entry::Value(value) => Some(&**value),
                    _ => None,
                })
                .collect();
            let percent = values.get(2)?.number()?;
            Some((line, percent, values[2].half_width))
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    let (height, left, width) = (20, 250, 500);
    let _ = writeln!(
        out,
        "<svg class=\"bars\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"Part of the peak\">",
        left + width + 90,
        rows.len() * height + 4
    );
    for (place, (line, percent, half)) in rows.iter().enumerate() {
        let y = place * height + 2;
        let at =
            |percent: f64| f64::from(left) + percent.clamp(0.0, 100.0) / 100.0 * f64::from(width);
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" class=\"name\">{}</text><rect x=\"{left}\" y=\"{y}\" width=\"{width}\" \
             height=\"14\" class=\"peak\"/><rect x=\"{left}\" y=\"{y}\" width=\"{:.1}\" height=\"14\" class=\"part\"/>",
            left - 8,
            y + 12,
            safe(line.name()),
            at(*percent) - f64::from(left)
        );
        if let Some(half) = half {
            let _ = writeln!(
                out,
                "<path d=\"M{:.1} {} H{:.1} M{:.1} {} v8 M{:.1} {} v8\" class=\"error\"/>",
                at(percent - half),
                y + 7,
                at(percent + half),
                at(percent - half),
                y + 3,
                at(percent + half),
                y + 3
            );
        }
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\">{percent:.digits$} %</text>",
            left + width + 8,
            y + 12,
            digits = options.decimals
        );
    }
    out.push_str("</svg>\n");
}

fn table(out: &mut String, sheet: &Sheet, options: &Options) {
    let metrics = sheet.source == Source::Metrics;
    out.push_str("<table><thead><tr>");
    if metrics {
        out.push_str("<th></th>");
    }
    for heading in &sheet.headings {
        let _ = write!(out, "<th>{}</th>", safe(heading));
    }
    let sampled = sheet.is_sampled();
    if sampled {
        out.push_str("<th>± 95 %</th><th>n</th><th>Coverage</th>");
    }
    out.push_str("</tr></thead><tbody>\n");
    for line in &sheet.lines {
        out.push_str("<tr>");
        if metrics {
            let _ = write!(out, "<td class=\"id\">{}</td>", safe(&line.id));
        }
        for entry in &line.entries {
            match entry {
                Entry::Text(text) => {
                    let _ = write!(out, "<td class=\"text\">{}</td>", safe(text));
                }
                Entry::Value(value) if value.result.is_err() => {
                    let why = value.result.as_ref().err().map(ToString::to_string);
                    let _ = write!(
                        out,
                        "<td class=\"unknown\" title=\"{}\">N/A</td>",
                        safe(&why.unwrap_or_default())
                    );
                }
                entry if is_marked(line, entry) => {
                    let _ = write!(
                        out,
                        "<td class=\"unknown\" title=\"certainly no percentage: its counters do not count \
                         what their names say\">!{}</td>",
                        safe(&field(entry, options.decimals))
                    );
                }
                entry => {
                    let _ = write!(out, "<td>{}</td>", safe(&field(entry, options.decimals)));
                }
            }
        }
        if sampled {
            for word in super::text::certainty(line, options.decimals) {
                let _ = write!(out, "<td>{}</td>", safe(&word));
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table>\n");
}
