//! The filled tables of a workload, which every output format shows.

pub mod chart;
pub mod database;
pub mod drift;
pub mod files;
pub mod grid;
pub mod html;
pub mod roofline;
mod sampled;
mod stored;
pub mod text;

use crate::architecture::{CHANNEL, Content, Form, Metric, Source, Style, Table};
use crate::evaluate::{Evaluator, Value};
use crate::frame::field;
use crate::program::{Row as Of, Setting};
use crate::read::Workload;
use crate::sample::Rows;
use crate::select::{Blocks, Dispatches, KernelTime, kernel_times};
use crate::vintage::Vintage;
use midair_failure::Failure;

/// How values are shown.
#[derive(Debug, Clone)]
pub struct Options {
    /// The word of `--normal-unit`.
    pub normal_unit: String,
    /// The word of `--time-unit`.
    pub time_unit: String,
    /// Digits after the decimal point.
    pub decimals: usize,
    /// The most rows in the tables of kernels and dispatches.
    pub most: usize,
    /// Which formulas and numbers to use; None: as of the version.
    pub form: Option<Form>,
    /// The version whose words, numbers and formulas to use; None: as of the directory.
    pub vintage: Option<Vintage>,
    /// Whether to show the memory chart as a table.
    pub plain_tables: bool,
    /// Further columns to show, by heading.
    pub include: Vec<String>,
    /// The places of the columns to show; empty: all.
    pub columns: Vec<usize>,
    /// The types of data whose roofs are in the roofline; empty: FP32 and FP16.
    pub data_types: Vec<String>,
    /// The levels of memory in the roofline; empty: all.
    pub memory_levels: Vec<roofline::Level>,
    /// Whether the roofline has points of dispatches instead of kernels.
    pub of_dispatches: bool,
    /// Whether sampled instructions are sorted by place instead of samples.
    pub by_offset: bool,
    /// The most sampled instructions to show; 0: all.
    pub sample_rows: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            normal_unit: "per_kernel".to_owned(),
            time_unit: "ns".to_owned(),
            decimals: 2,
            most: 10,
            form: None,
            vintage: None,
            plain_tables: false,
            include: Vec::new(),
            columns: Vec::new(),
            data_types: Vec::new(),
            memory_levels: Vec::new(),
            of_dispatches: false,
            by_offset: false,
            sample_rows: 10,
        }
    }
}

impl Options {
    /// Returns the levels of memory in the roofline.
    pub fn levels(&self) -> &[roofline::Level] {
        match self.memory_levels.as_slice() {
            [] => &roofline::Level::ALL,
            levels => levels,
        }
    }

    /// Returns the nanoseconds in the chosen unit of time.
    pub fn nanoseconds(&self) -> f64 {
        match self.time_unit.as_str() {
            "s" => 1e9,
            "ms" => 1e6,
            "us" => 1e3,
            _ => 1.0,
        }
    }
}

/// A field of a table.
#[derive(Debug, Clone)]
pub enum Entry {
    /// Text.
    Text(String),
    /// A count or the like, which is always shown as a whole number.
    Whole(u64),
    /// A number.
    Number(f64),
    /// A value of a metric.
    Value(Box<Value>),
    /// Nothing.
    Empty,
}

/// A row of a table.
#[derive(Debug, Clone)]
pub struct Line {
    /// The metric's number, or nothing.
    pub id: String,
    /// The fields, by column.
    pub entries: Vec<Entry>,
}

impl Line {
    /// Returns the first value of a metric, which stands for the row where only one column is
    /// shown.
    pub fn main(&self) -> Option<&Value> {
        self.entries.iter().find_map(|entry| match entry {
            Entry::Value(value) => Some(&**value),
            _ => None,
        })
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        match self.entries.first() {
            Some(Entry::Text(name)) => name,
            _ => "",
        }
    }
}

/// A filled table.
#[derive(Debug, Clone)]
pub struct Sheet {
    /// The number of its panel.
    pub panel: u32,
    /// The panel's title.
    pub panel_title: &'static str,
    /// A hundred times the panel's number plus its own.
    pub id: u32,
    /// Its title, or nothing.
    pub title: String,
    /// How a terminal shows it.
    pub style: Style,
    /// Where its rows come from.
    pub source: Source,
    /// Headings of the columns.
    pub headings: Vec<String>,
    /// The rows.
    pub lines: Vec<Line>,
}

impl Sheet {
    /// Whether any value is known.
    pub fn has_values(&self) -> bool {
        self.source != Source::Metrics
            || self
                .lines
                .iter()
                .flat_map(|line| &line.entries)
                .any(|entry| match entry {
                    Entry::Value(value) => value.result.is_ok(),
                    _ => false,
                })
    }

    /// Whether counters took turns in some value.
    pub fn is_sampled(&self) -> bool {
        self.lines
            .iter()
            .flat_map(|line| &line.entries)
            .any(|entry| match entry {
                Entry::Value(value) => value.result.is_ok() && !value.is_exact(),
                _ => false,
            })
    }
}

/// A workload's tables.
#[derive(Debug)]
pub struct Report {
    /// The tables, by number.
    pub sheets: Vec<Sheet>,
    /// The kernels of the chosen dispatches, by time, the longest first.
    pub kernels: Vec<KernelTime>,
    /// The dispatches.
    pub rows: Rows,
    /// The kernels that changed while they were counted, in words.
    pub drifts: Vec<String>,
    /// The formulas.
    pub form: Form,
    /// The peaks of the GPU and the points of the kernels, where panel 4 is wanted.
    pub roofline: Option<(roofline::Peaks, Vec<roofline::Point>)>,
}

/// Fills the wanted tables.
///
/// # Errors
/// When a kernel, dispatch or GPU that was asked for does not exist.
pub fn report(
    workload: &Workload,
    blocks: &Blocks,
    dispatches: &Dispatches,
    options: &Options,
) -> Result<Report, Failure> {
    let rows = dispatches.rows(&workload.frame)?;
    let asked = options.form.or(options.vintage.map(Vintage::form));
    let form = asked.unwrap_or(workload.form);
    let numbers = asked.unwrap_or(workload.numbers);
    let kernels = kernel_times(&workload.frame, &rows);
    let mut evaluator = Evaluator::new(
        setting(workload, form, options),
        &workload.frame,
        rows.clone(),
    );
    let mut sheets = Vec::new();
    for (panel, table) in workload.architecture.tables() {
        let always = matches!(table.source, Source::TopKernels | Source::Dispatches);
        if !always && !blocks.has_table(table) {
            continue;
        }
        let mut sheet = Sheet {
            panel: panel.id,
            panel_title: panel.title,
            id: table.id,
            title: table.title.to_owned(),
            style: table.style,
            source: table.source(numbers),
            headings: Vec::new(),
            lines: Vec::new(),
        };
        match sheet.source {
            Source::TopKernels => top_kernels(&mut sheet, workload, &kernels, options),
            Source::Dispatches => dispatch_list(&mut sheet, workload, &rows, options),
            Source::System => system(&mut sheet, workload),
            Source::Metrics => metrics(
                &mut sheet,
                table,
                workload,
                blocks,
                options,
                &mut evaluator,
                (numbers, form),
            ),
            Source::PcSampling if !workload.samples.is_empty() => {
                let of = (!dispatches.kernels.is_empty()).then_some(kernels.as_slice());
                sampled::fill(&mut sheet, workload, of, options);
            }
            Source::PcSampling | Source::Nothing => continue,
        }
        sheets.push(sheet);
    }
    let mut all = workload.architecture.tables();
    let wanted =
        all.any(|(panel, table)| panel.id == crate::select::ROOFLINE && blocks.has_table(table));
    let peaks = roofline::peaks(workload, options).filter(|_| wanted);
    let roofline = peaks.map(|peaks| {
        let points = roofline::points(workload, &kernels, &rows, options);
        (peaks, points)
    });
    Ok(Report {
        drifts: drift::of(&workload.frame, &rows),
        roofline,
        sheets,
        kernels,
        rows,
        form,
    })
}

/// Returns what the expressions of a workload are read with.
pub fn setting<'a>(workload: &'a Workload, form: Form, options: &'a Options) -> Setting<'a> {
    Setting {
        architecture: workload.architecture,
        form,
        unit: &options.normal_unit,
        properties: &workload.properties,
    }
}

fn headings(sheet: &mut Sheet, all: &[&str]) {
    sheet.headings = all.iter().map(|heading| (*heading).to_owned()).collect();
}

fn top_kernels(sheet: &mut Sheet, workload: &Workload, kernels: &[KernelTime], options: &Options) {
    let unit = &options.time_unit;
    sheet.headings = ["Kernel_Name", "Count"].map(str::to_owned).to_vec();
    for what in ["Sum", "Mean", "Median"] {
        sheet.headings.push(format!("{what}({unit})"));
    }
    let vintage = options.vintage.unwrap_or(workload.vintage);
    sheet.headings.push(vintage.heading("Pct").to_owned());
    let scale = options.nanoseconds();
    for (place, kernel) in kernels.iter().enumerate().take(options.most) {
        sheet.lines.push(Line {
            id: place.to_string(),
            entries: vec![
                Entry::Text(workload.frame.names.text(kernel.kernel).to_owned()),
                Entry::Whole(kernel.count as u64),
                Entry::Number(kernel.sum / scale),
                Entry::Number(kernel.sum / kernel.count as f64 / scale),
                Entry::Number(kernel.median / scale),
                Entry::Number(kernel.percent),
            ],
        });
    }
}

fn dispatch_list(sheet: &mut Sheet, workload: &Workload, rows: &Rows, options: &Options) {
    headings(sheet, &["Dispatch_ID", "Kernel_Name", "GPU_ID"]);
    let frame = &workload.frame;
    let at = |name: &str, row: usize| {
        let value = frame.named(name).map_or(0.0, |column| column.get(row));
        Entry::Whole(value as u64)
    };
    for (place, row) in rows.iter().enumerate().take(options.most) {
        let kernel = frame.kernel.get(row).copied().unwrap_or(0);
        sheet.lines.push(Line {
            id: place.to_string(),
            entries: vec![
                at(field::DISPATCH, row),
                Entry::Text(frame.names.text(kernel).to_owned()),
                at(field::GPU, row),
            ],
        });
    }
}

fn system(sheet: &mut Sheet, workload: &Workload) {
    headings(sheet, &["Info", "Value"]);
    for (name, value) in &workload.system {
        sheet.lines.push(Line {
            id: String::new(),
            entries: vec![Entry::Text(name.clone()), Entry::Text(value.clone())],
        });
    }
}

/// Returns the unit of a metric; `$normUnit` is replaced by the unit of `--normal-unit`.
pub fn unit(text: &str, options: &Options) -> String {
    if ["ns", "Nanoseconds"].contains(&text) && options.time_unit != "ns" {
        return options.time_unit.clone();
    }
    let Some(inner) = text
        .strip_prefix('(')
        .and_then(|text| text.strip_suffix(')'))
    else {
        return text.to_owned();
    };
    match inner.split_once('+') {
        Some((what, unit)) if unit.trim() == "$normUnit" => {
            format!("{} {}", what.trim(), options.normal_unit.replace('_', " "))
        }
        _ => inner.to_owned(),
    }
}

/// Returns the title of a table whose metrics share a unit, such as `L2 Requests (per normUnit)`,
/// with that unit.
pub fn with_unit(title: &str, options: &Options) -> String {
    title.replace("per normUnit", &options.normal_unit.replace('_', " "))
}

fn metrics(
    sheet: &mut Sheet,
    table: &'static Table,
    workload: &Workload,
    blocks: &Blocks,
    options: &Options,
    evaluator: &mut Evaluator<'_>,
    (numbers, form): (Form, Form),
) {
    sheet.title = with_unit(table.title, options);
    let spread = table.style == Style::Spread;
    let vintage = options.vintage.unwrap_or(workload.vintage);
    for (key, heading) in table.columns {
        match *key {
            "expr" if spread => {
                let all = ["Min", "Q1", "Median", "Q3", "Max"].map(str::to_owned);
                sheet.headings.extend(all);
            }
            _ => sheet.headings.push(vintage.heading(heading).to_owned()),
        }
    }
    let channels = workload
        .properties
        .get("total_l2_chan")
        .copied()
        .unwrap_or(16.0);
    let channels = (channels.clamp(0.0, 1024.0)) as u32;
    for (number, metric) in table.rows(numbers) {
        if !blocks.has_metric(number) {
            continue;
        }
        if metric.name == CHANNEL {
            for channel in 0..channels {
                let of = Of {
                    level: metric.level,
                    channel: Some(channel),
                };
                let name = channel.to_string();
                let id = format!("{}.{channel}", table.number());
                let line = line(
                    id,
                    name,
                    metric,
                    table,
                    options,
                    evaluator,
                    (form, vintage),
                    of,
                );
                sheet.lines.push(line);
            }
            continue;
        }
        let of = Of {
            level: metric.level,
            channel: None,
        };
        let name = metric.name.to_owned();
        let id = number.to_owned();
        sheet.lines.push(line(
            id,
            name,
            metric,
            table,
            options,
            evaluator,
            (form, vintage),
            of,
        ));
    }
}

#[expect(clippy::too_many_arguments, reason = "one row, in two places")]
fn line(
    id: String,
    name: String,
    metric: &'static Metric,
    table: &'static Table,
    options: &Options,
    evaluator: &mut Evaluator<'_>,
    (form, vintage): (Form, Vintage),
    of: Of<'_>,
) -> Line {
    let mut entries = Vec::new();
    for (key, _) in table.columns {
        let cell = metric.cells.iter().find(|cell| cell.column == *key);
        match (*key, cell.map(|cell| &cell.content)) {
            ("metric", _) => entries.push(Entry::Text(name.clone())),
            ("unit" | "units", _) => {
                let word = vintage.unit(metric.unit, metric.name);
                entries.push(Entry::Text(unit(word, options)));
            }
            (_, Some(Content::Word(word))) => entries.push(Entry::Text((*word).to_owned())),
            (key, Some(content @ Content::Formula { .. })) => {
                let Some(text) = content.formula(form) else {
                    entries.push(Entry::Empty);
                    continue;
                };
                if key == "expr" && table.style == Style::Spread {
                    let spread = evaluator.spread(text, of);
                    entries.extend(spread.map(|value| Entry::Value(Box::new(value))));
                    continue;
                }
                let mut value = evaluator.value(text, of);
                if metric.unit == "ns" {
                    let scale = options.nanoseconds();
                    value.result = value.result.map(|value| value / scale);
                    value.half_width = value.half_width.map(|width| width / scale);
                }
                entries.push(Entry::Value(Box::new(value)));
            }
            (_, Some(Content::Nothing)) => entries.push(Entry::Value(Box::new(Value {
                result: Err(crate::evaluate::Why::NoFormula),
                n: 0,
                of: evaluator.rows().len(),
                coverage: 0.0,
                half_width: None,
            }))),
            (_, None) => entries.push(Entry::Empty),
        }
    }
    Line { id, entries }
}
