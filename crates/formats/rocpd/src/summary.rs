//! `rocpd summary`: calls and times by name, a table for each kind of work and of calls.
//!
//! The names of tables and columns are AMD's. Three answers differ on purpose: work without times
//! is not counted (its duration is not known), a domain's average and deviation cover all
//! its calls (AMD's adds up the averages of its names), and ROCTx ranges have a table.

use crate::export::{Exported, Target, export};
use crate::unite::{own_views, unite};
use crate::window::Window;
use crate::{Input, sql};
use midair_failure::Failure;
use rusqlite::Connection;
use std::collections::BTreeMap;

/// The columns of times in AMD's tables.
const TIMES: &str = "n AS Calls, took AS \"DURATION (nsec)\", mean AS \"AVERAGE (nsec)\", \
     took * 100.0 / NULLIF(whole, 0) AS \"PERCENT (INC)\", low AS \"MIN (nsec)\", high AS \"MAX (nsec)\", \
     deviation AS \"STD_DEV\"";

/// The views of work, each with the column of the name.
const WORK: [(&str, &str); 6] = [
    ("kernels", "name"),
    ("memory_copies", "name"),
    ("memory_allocations", "type"),
    ("scratch_memory", "operation"),
    ("graph_launches", "'graph ' || graph_exec_id"),
    ("hip_events", "name"),
];
/// The range in which a kernel was launched.
const RANGE: &str = "NULLIF(k.region, ''), ";
/// The name of the table of ROCTx ranges.
const MARKERS: &str = "markers";

/// How kernels are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Names {
    /// As the database shows them.
    #[default]
    Shown,
    /// As in the code object.
    Mangled,
    /// Without parameters.
    Truncated,
}

/// What is summed up.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Whether there is a table of the domains.
    pub domains: bool,
    /// Whether each table is also made by process.
    pub by_rank: bool,
    /// The kinds of calls and of work that have tables: `HIP`, `HSA`, `MARKER`, `KERNEL`, … `NONE` alone
    /// leaves out calls. All where nothing is chosen.
    pub categories: Vec<String>,
    /// How kernels are named.
    pub names: Names,
    /// Whether they are named by ROCTx ranges, where the database has these.
    pub by_range: bool,
}

/// A kind of work or of calls, and the query for its rows: name, duration, session and process.
struct Source {
    name: String,
    rows: String,
}

/// Writes the tables. Returns what became of each, by the table's name.
///
/// # Errors
/// When the databases cannot be read, or a file cannot be written.
pub fn summary(
    input: &Input,
    options: &Options,
    window: Option<Window>,
    target: &Target,
    print: &mut dyn FnMut(&str),
) -> Result<Vec<Exported>, Failure> {
    // The views of schema 4 have other columns.
    match input.parts.iter().any(|part| part.is_modern) {
        true => own_views(input, window)?,
        false => unite(input, window)?,
    }
    let sources = sources(&input.connection, options)
        .map_err(|error| sql("read the views of the database", &error))?;
    let mut tables: Vec<(String, String)> = Vec::new();
    for Source { name, rows } in &sources {
        tables.push((format!("{name}_summary"), table(rows, false)));
        if options.by_rank {
            tables.push((format!("{name}_summary_by_rank"), table(rows, true)));
        }
    }
    if options.domains && !sources.is_empty() {
        let of_each = sources.iter().map(|Source { name, rows }| {
            let name = literal(&name.to_uppercase());
            format!("SELECT {name} AS name, duration, guid, pid FROM ({rows})")
        });
        let all: Vec<String> = of_each.collect();
        let all = all.join(" UNION ALL ");
        tables.push(("domain_summary".to_owned(), table(&all, false)));
        if options.by_rank {
            tables.push(("domain_summary_by_rank".to_owned(), table(&all, true)));
        }
    }
    let mut done = Vec::new();
    for (name, query) in tables {
        let heading = name.to_uppercase();
        let target = Target {
            name: match target.name.is_empty() {
                true => name,
                false => format!("{}_{name}", target.name),
            },
            ..target.clone()
        };
        let mut is_first = true;
        let exported = export(&input.connection, &query, &target, &mut |line| {
            if std::mem::take(&mut is_first) {
                print("");
                print(&format!("{heading}:"));
            }
            print(line);
        })?;
        done.push(exported);
    }
    Ok(done)
}

fn sources(connection: &Connection, options: &Options) -> rusqlite::Result<Vec<Source>> {
    let wanted: Vec<String> = options
        .categories
        .iter()
        .map(|category| category.trim().to_lowercase())
        .collect();
    let is_none = matches!(wanted.as_slice(), [only] if only == "none");
    let mut all = Vec::new();
    for (view, name) in WORK {
        let is_wanted = |category: &String| {
            [
                category.clone(),
                format!("{category}s"),
                format!("{category}_"),
                format!("{category}s_"),
            ]
            .iter()
            .enumerate()
            .any(|(at, start)| match at {
                0 | 1 => view == start,
                _ => view.starts_with(start.as_str()),
            })
        };
        let chosen = wanted.is_empty() || is_none || wanted.iter().any(is_wanted);
        if !chosen || !has(connection, view)? {
            continue;
        }
        let rows = match (view, options.names) {
            ("kernels", Names::Mangled | Names::Truncated) => {
                let column = match options.names {
                    Names::Mangled => "kernel_name",
                    _ => "truncated_kernel_name",
                };
                let range = if options.by_range { RANGE } else { "" };
                format!(
                    "SELECT COALESCE({range}s.{column}, k.name) AS name, k.duration, k.guid, k.pid FROM kernels AS k \
                     LEFT JOIN kernel_symbols AS s ON s.id = k.kernel_id AND s.guid = k.guid WHERE k.\"end\" > 0"
                )
            }
            ("kernels", Names::Shown) if options.by_range => format!(
                "SELECT COALESCE({RANGE}k.name) AS name, k.duration, k.guid, k.pid FROM kernels AS k WHERE k.\"end\" > 0"
            ),
            _ => {
                format!("SELECT {name} AS name, duration, guid, pid FROM {view} WHERE \"end\" > 0")
            }
        };
        all.push(Source {
            name: view.to_owned(),
            rows,
        });
    }
    if is_none {
        return Ok(all);
    }
    for (name, categories) in calls(connection)? {
        let is_marker = name == "marker";
        let is_wanted = |category: &String| *category == name || is_marker && category == MARKERS;
        if !wanted.is_empty() && !wanted.iter().any(is_wanted) {
            continue;
        }
        let listed: Vec<String> = categories.iter().map(|it| literal(it)).collect();
        let listed = listed.join(", ");
        let shown = match is_marker {
            true => {
                "COALESCE(CASE WHEN json_valid(extdata) THEN json_extract(extdata, '$.message') END, name)"
            }
            false => "name",
        };
        all.push(Source {
            name: if is_marker { MARKERS.to_owned() } else { name },
            rows: format!(
                "SELECT {shown} AS name, duration, guid, pid FROM regions_and_samples WHERE category IN ({listed})"
            ),
        });
    }
    Ok(all)
}

/// Whether there is a view of this name.
fn has(connection: &Connection, view: &str) -> rusqlite::Result<bool> {
    let mut found = connection.prepare("SELECT 1 FROM pragma_table_info(?1)")?;
    found.exists([view])
}

/// Returns the kinds of calls that occur, by the first word of their categories: `hip` has
/// `HIP_RUNTIME_API_EXT` and `HIP_COMPILER_API_EXT`.
fn calls(connection: &Connection) -> rusqlite::Result<BTreeMap<String, Vec<String>>> {
    let mut statement = connection
        .prepare("SELECT DISTINCT category FROM regions_and_samples WHERE category IS NOT NULL")?;
    let mut rows = statement.query([])?;
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let category: String = row.get(0)?;
        let lower = category.to_lowercase();
        // AMD's prefix of categories that have a second word.
        let prefix = if lower.starts_with("rocm_") {
            "rocm_"
        } else {
            ""
        };
        let rest = lower.get(prefix.len()..).unwrap_or_default();
        let word = rest.split('_').next().unwrap_or_default();
        let name = format!("{prefix}{word}");
        all.entry(name).or_default().push(category);
    }
    Ok(all)
}

/// Returns the query for the table of these rows.
fn table(rows: &str, by_rank: bool) -> String {
    let (key, same, of, shown, from, order) = match by_rank {
        false => (
            "name",
            "t.name IS s.name",
            "",
            "",
            "CROSS JOIN (SELECT SUM(took) AS whole FROM t) AS w",
            "",
        ),
        true => (
            "guid, pid, name",
            "t.name IS s.name AND t.guid = s.guid AND t.pid = s.pid",
            "guid, pid, ",
            "t.pid AS ProcessID, p.hostname AS Hostname, ",
            "JOIN (SELECT guid, pid, SUM(took) AS whole FROM t GROUP BY guid, pid) AS w \
             ON w.guid = t.guid AND w.pid = t.pid \
             JOIN processes AS p ON p.guid = t.guid AND p.pid = t.pid",
            "t.pid, ",
        ),
    };
    let qualified: Vec<String> = key.split(", ").map(|it| format!("s.{it}")).collect();
    let qualified = qualified.join(", ");
    format!(
        "WITH s AS MATERIALIZED (SELECT name, duration, guid, pid FROM ({rows})), \
         m AS (SELECT {of}name, COUNT(*) AS n, SUM(duration) AS took, AVG(duration) AS mean, \
               MIN(duration) AS low, MAX(duration) AS high FROM s GROUP BY {key}), \
         d AS (SELECT {qualified}, SUM((s.duration - t.mean) * (s.duration - t.mean)) AS squares \
               FROM s JOIN m AS t ON {same} GROUP BY {qualified}), \
         t AS (SELECT s.*, sqrt(d.squares / NULLIF(s.n - 1, 0)) AS deviation FROM m AS s JOIN d ON {join}) \
         SELECT {shown}t.name AS Name, {TIMES} FROM t {from} ORDER BY {order}t.took DESC, t.name",
        join = same.replace("t.", "d."),
    )
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
