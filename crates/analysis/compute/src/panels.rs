//! `--config-dir`: panels of the user's, in the files that AMD's tool reads (AMD-171).
//!
//! What an architecture has besides panels (shorthands, units of normalization, models) stays built in.
//! An expression is used as it is written, whichever formulas are chosen.

use crate::architecture::{self, Architecture, Cell, Content, Metric, Panel, Source, Style, Table};
use crate::console::Console;
use crate::expression::Expression;
use crate::files::{self, file_name, unreadable, unusable};
use clap::ArgMatches;
use midair_counters::definitions::yaml::{self, Node};
use midair_failure::Failure;
use std::path::{Path, PathBuf};

/// The most bytes of a file, and the most files.
const BYTES: usize = 4 << 20;
const FILES: usize = 200;
/// The longest expression, as in AMD's tool.
const EXPRESSION: usize = 100_000;
/// The most warnings about expressions.
const WARNINGS: usize = 10;
/// Columns whose values are words, not expressions.
const WORDS: [&str; 4] = ["xfer", "coherency", "type", "transaction"];

/// Returns the architecture with the panels of `--config-dir`, where it is given.
///
/// # Errors
/// When the panels cannot be read.
pub(crate) fn chosen(
    matches: &ArgMatches,
    of: &'static Architecture,
    console: &Console,
) -> Result<&'static Architecture, Failure> {
    match matches.get_one::<PathBuf>("config-dir") {
        Some(directory) => read(directory, of, &mut |text| console.warning(&text)),
        None if of.panels.is_empty() => Err(architecture::unknown(of.name)),
        None => Ok(of),
    }
}

/// Reads the panels of a directory, or of the directory in it that has the architecture's name.
///
/// # Errors
/// When there are none, or a file is not as AMD's.
pub(crate) fn read(
    directory: &Path,
    of: &'static Architecture,
    warn: &mut dyn FnMut(String),
) -> Result<&'static Architecture, Failure> {
    let own = directory.join(of.name);
    let directory = match files::entries(&own) {
        Ok(_) => own,
        Err(_) => directory.to_owned(),
    };
    let found = files::entries(&directory).map_err(|error| unreadable(&directory, &error))?;
    let is_panel = |file: &PathBuf| file_name(file).ends_with(".yaml");
    let found: Vec<PathBuf> = found.into_iter().filter(is_panel).collect();
    if found.is_empty() || found.len() > FILES {
        return Err(unusable(format!(
            "{} has {} panels (*.yaml); 1 to {FILES} can be read",
            directory.display(),
            found.len()
        ))
        .hint(format!(
            "name a directory such as AMD's analysis_configs, with a directory {} in it",
            of.name
        )));
    }
    let mut reader = Reader { unread: Vec::new() };
    let mut panels = Vec::new();
    for path in &found {
        let bytes = files::head(path, BYTES + 1).map_err(|error| unreadable(path, &error))?;
        if bytes.len() > BYTES {
            return Err(unusable(format!("{} has more than 4 MiB", path.display())));
        }
        let text = String::from_utf8_lossy(&bytes);
        let panel = yaml::parse(&text)
            .map_err(|error| error.to_string())
            .and_then(|node| reader.panel(&node));
        panels.push(panel.map_err(|why| {
            unreadable(path, &why).hint("panels have the format of AMD's analysis_configs")
        })?);
    }
    panels.sort_by_key(|panel| panel.id);
    if let Some(twice) = panels.windows(2).find(|two| two[0].id == two[1].id) {
        return Err(unusable(format!(
            "{} has panel {} twice",
            directory.display(),
            twice[0].id
        )));
    }
    let more = reader.unread.len().saturating_sub(WARNINGS);
    reader
        .unread
        .into_iter()
        .take(WARNINGS)
        .for_each(&mut *warn);
    if more > 0 {
        warn(format!("{more} more formulas cannot be read"));
    }
    Ok(Box::leak(Box::new(Architecture {
        panels: Vec::leak(panels),
        // Sets are numbers of built-in metrics.
        sets: &[],
        newer_sets: &[],
        ..*of
    })))
}

type Read<T> = Result<T, String>;

/// Makes a text last as long as the built-in ones. A run reads the panels once.
fn lasting(text: &str) -> &'static str {
    String::leak(text.to_owned())
}

fn number(node: &Node, key: &str) -> Read<u32> {
    let number = node.text(key).and_then(|word| word.trim().parse().ok());
    // A table's number is its panel's, times a hundred, and two digits.
    let number = number.filter(|number| *number <= 99_999);
    number.ok_or_else(|| format!("no number {key}"))
}

/// Reads panels, and notes the formulas that cannot be read.
struct Reader {
    unread: Vec<String>,
}

impl Reader {
    fn panel(&mut self, node: &Node) -> Read<Panel> {
        let panel = node.get("Panel Config").ok_or("no Panel Config")?;
        let id = number(panel, "id")?;
        let Some(Node::List(sources)) = panel.get("data source") else {
            return Err("no list 'data source'".to_owned());
        };
        let mut tables = Vec::new();
        for source in sources {
            let Node::Map(entries) = source else {
                return Err("a data source is not a map".to_owned());
            };
            for (kind, node) in entries {
                tables.push(self.table(kind, node, id / 100)?);
            }
        }
        Ok(Panel {
            id: id / 100,
            title: lasting(panel.text("title").unwrap_or_default()),
            tables: Vec::leak(tables),
        })
    }

    fn table(&mut self, kind: &str, node: &Node, panel: u32) -> Read<Table> {
        let id = number(node, "id")?;
        if id / 100 != panel {
            return Err(format!("table {id} is in panel {panel}"));
        }
        let source = match kind {
            "metric_table" => Source::Metrics,
            "pc_sampling_table" => Source::PcSampling,
            "raw_csv_table" => match node.text("source") {
                Some("pmc_kernel_top.csv") => Source::TopKernels,
                Some("pmc_dispatch_info.csv") => Source::Dispatches,
                Some("sysinfo.csv") => Source::System,
                _ => Source::Nothing,
            },
            // Such as "None", which has a title alone.
            _ => Source::Nothing,
        };
        let style = match node.text("cli_style") {
            Some("mem_chart") => Style::MemoryChart,
            Some("simple_bar") => Style::Bar,
            Some("simple_box") => Style::Spread,
            Some("simple_multiple_bar") => Style::Bars,
            _ => Style::Plain,
        };
        let mut columns = Vec::new();
        if let Some(Node::Map(header)) = node.get("header") {
            for (key, heading) in header {
                let heading = heading.scalar().unwrap_or_default();
                columns.push((lasting(key), lasting(heading)));
            }
        }
        let mut metrics = Vec::new();
        if let Some(Node::Map(all)) = node.get("metric") {
            for (place, (name, values)) in all.iter().enumerate() {
                let id = format!("{}.{}.{place}", id / 100, id % 100);
                metrics.push(self.metric(&id, name, values)?);
            }
        }
        Ok(Table {
            id,
            title: lasting(node.text("title").unwrap_or_default()),
            source,
            style,
            columns: Vec::leak(columns),
            metrics: Vec::leak(metrics),
            newer: &[],
        })
    }

    fn metric(&mut self, id: &str, name: &str, values: &Node) -> Read<Metric> {
        let Node::Map(values) = values else {
            return Err(format!("{id} {name} is not a map"));
        };
        let word = |key: &str| {
            let found = values.iter().find(|(known, _)| known == key);
            found.and_then(|(_, value)| value.scalar())
        };
        let mut cells = Vec::new();
        for (column, value) in values {
            if ["unit", "units", "coll_level"].contains(&column.as_str()) {
                continue;
            }
            let content = match value.scalar().map(str::trim) {
                None | Some("" | "None") => Content::Nothing,
                Some(word) if WORDS.contains(&column.as_str()) => Content::Word(lasting(word)),
                Some(text) => {
                    if text.len() > EXPRESSION {
                        return Err(format!("{id} {name}: {column} is too long"));
                    }
                    if let Err(error) = Expression::parse(text) {
                        self.unread
                            .push(format!("{id} {name}: {column} cannot be read: {error}"));
                    }
                    Content::Formula {
                        means: lasting(text),
                        sums: None,
                    }
                }
            };
            cells.push(Cell {
                column: lasting(column),
                content,
            });
        }
        Ok(Metric {
            id: lasting(id),
            name: lasting(name),
            unit: lasting(word("unit").or(word("units")).unwrap_or_default()),
            level: lasting(word("coll_level").unwrap_or_default()),
            cells: Vec::leak(cells),
        })
    }
}
