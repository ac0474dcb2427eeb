//! Samples of program counters as rows of the database, and as a file for each kernel.

use super::files::{plain, push};
use crate::files;
use crate::read::Workload;
use crate::samples::{Line, REASONS};
use midair_failure::Failure;
use rusqlite::{Connection, OptionalExtension, Statement, ToSql, params};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Returns a place in the sources as its frames: file and line.
fn frames(source: &str) -> Vec<(&str, i64)> {
    let frame = |text: &'_ str| -> Option<(usize, i64)> {
        let (file, line) = text.rsplit_once(':')?;
        Some((file.len(), line.trim().parse().ok()?))
    };
    source
        .split(" -> ")
        .filter_map(|text| {
            let text = text.trim();
            frame(text).map(|(end, line)| (&text[..end], line))
        })
        .collect()
}

/// The ids of rows that are made once and used again.
#[derive(Default)]
struct Ids {
    objects: HashMap<(u64, u64), i64>,
    symbols: HashMap<(i64, Option<String>), i64>,
    files: HashMap<String, i64>,
    lines: HashMap<(i64, i64), i64>,
}

/// Statements that are prepared once.
struct Rows<'c> {
    connection: &'c Connection,
    prepared: HashMap<&'static str, Statement<'c>>,
    texts: HashMap<(&'static str, String), i64>,
}

impl Rows<'_> {
    /// Adds a row. Returns its number.
    fn add(&mut self, text: &'static str, values: &[&dyn ToSql]) -> rusqlite::Result<i64> {
        let statement = match self.prepared.entry(text) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => free.insert(self.connection.prepare(text)?),
        };
        statement.execute(values)?;
        Ok(self.connection.last_insert_rowid())
    }

    /// Returns the row of a table of texts that has this one, and adds it if there is none.
    fn text(&mut self, insert: &'static str, ask: &str, text: &str) -> rusqlite::Result<i64> {
        let key = (insert, text.to_owned());
        if let Some(known) = self.texts.get(&key) {
            return Ok(*known);
        }
        // Another workload of the same database may have added it.
        let found = self.connection.query_row(ask, [text], |row| row.get(0));
        let id = match found.optional()? {
            Some(id) => id,
            None => self.add(insert, &[&text])?,
        };
        self.texts.insert(key, id);
        Ok(id)
    }

    fn kind(&mut self, text: &str) -> rusqlite::Result<i64> {
        self.text(
            "INSERT INTO compute_instruction_type_lookup (text) VALUES (?)",
            "SELECT instruction_type_lookup_uuid FROM compute_instruction_type_lookup WHERE text = ?",
            text,
        )
    }

    fn sample(&mut self, text: &str) -> rusqlite::Result<i64> {
        self.text(
            "INSERT INTO compute_instruction_sample_lookup (text) VALUES (?)",
            "SELECT instruction_sample_lookup_uuid FROM compute_instruction_sample_lookup WHERE text = ?",
            text,
        )
    }

    fn reason(&mut self, text: &str) -> rusqlite::Result<i64> {
        self.text(
            "INSERT INTO compute_pc_sample_stall_reason_lookup (text) VALUES (?)",
            "SELECT pc_sample_stall_reason_lookup_uuid FROM compute_pc_sample_stall_reason_lookup WHERE text = ?",
            text,
        )
    }
}

/// Writes the samples of a workload into the database. `kernels` has the rows of kernels by name.
pub(super) fn insert(
    connection: &Connection,
    id: i64,
    workload: &Workload,
    lines: &[&Line],
    kernels: &HashMap<&str, i64>,
) -> rusqlite::Result<()> {
    let mut ids = Ids::default();
    let mut rows = Rows {
        connection,
        prepared: HashMap::new(),
        texts: HashMap::new(),
    };
    // SQLite's numbers have a sign: what does not fit has none of these.
    let number = |number: u64| i64::try_from(number).ok();
    for line in lines {
        let object = (line.pid, line.code_object);
        let store = match ids.objects.get(&object) {
            Some(store) => *store,
            None => {
                let base = workload.samples.bases.get(&object).copied().flatten();
                let store = rows.add(
                    "INSERT INTO compute_code_object_store (workload_id, pid, code_object_id, load_base) VALUES (?, ?, ?, ?)",
                    params![
                        id,
                        number(line.pid),
                        number(line.code_object),
                        base.and_then(number)
                    ],
                )?;
                ids.objects.insert(object, store);
                store
            }
        };
        let symbol = (store, line.kernel.clone());
        let symbol = match ids.symbols.get(&symbol) {
            Some(symbol) => *symbol,
            None => {
                let kernel = line.kernel.as_deref().and_then(|name| kernels.get(name));
                let made = rows.add(
                    "INSERT INTO compute_kernel_symbol (code_object_uuid, kernel_uuid) VALUES (?, ?)",
                    params![store, kernel],
                )?;
                ids.symbols.insert(symbol, made);
                made
            }
        };
        let kind = match line.kinds.first() {
            Some((kind, _)) => Some(rows.kind(kind)?),
            None => None,
        };
        let instruction = rows.add(
            "INSERT INTO compute_instruction_line (kernel_symbol_uuid, instruction_type_uuid, code_object_offset, instruction) \
             VALUES (?, ?, ?, ?)",
            params![symbol, kind, number(line.offset), line.instruction],
        )?;
        let state = rows.add(
            "INSERT INTO compute_pc_sample_state (instruction_uuid, total_count, issue_count, stall_count) VALUES (?, ?, ?, ?)",
            params![
                instruction,
                number(line.count),
                line.issued.and_then(number),
                line.stalled().and_then(number)
            ],
        )?;
        for (reason, count) in &line.reasons {
            let reason = rows.reason(reason)?;
            rows.add(
                "INSERT INTO compute_pc_sample_stall_reason (pc_sample_state_uuid, pc_sample_stall_reason_lookup_uuid, count) \
                 VALUES (?, ?, ?)",
                params![state, reason, number(*count)],
            )?;
        }
        for (kind, count) in &line.kinds {
            let kind = rows.sample(kind)?;
            rows.add(
                "INSERT INTO compute_instruction_sample (pc_sample_state_uuid, instruction_sample_lookup_uuid, count) VALUES (?, ?, ?)",
                params![state, kind, number(*count)],
            )?;
        }
        let places = frames(line.source.as_deref().unwrap_or_default());
        for (place, (path, of_file)) in (0_i64..).zip(places) {
            let file = match ids.files.get(path) {
                Some(file) => *file,
                None => {
                    let file = rows.add(
                        "INSERT INTO compute_source_file (workload_id, file_path) VALUES (?, ?)",
                        params![id, path],
                    )?;
                    ids.files.insert(path.to_owned(), file);
                    file
                }
            };
            let source = match ids.lines.get(&(file, of_file)) {
                Some(source) => *source,
                None => {
                    let source = rows.add(
                        "INSERT INTO compute_source_line (source_file_uuid, line_number) VALUES (?, ?)",
                        params![file, of_file],
                    )?;
                    ids.lines.insert((file, of_file), source);
                    source
                }
            };
            rows.add(
                "INSERT INTO compute_instruction_source_line (instruction_uuid, source_line_uuid, frame_index) VALUES (?, ?, ?)",
                params![instruction, source, place],
            )?;
        }
    }
    Ok(())
}

/// The directory of the files of kernels.
const DIRECTORY: &str = "per_kernel_pc_sampling";

/// Writes the sampled instructions of each kernel, code object and process into a file. `kernels` has the numbers
/// of kernels in `kernel.csv` by name.
///
/// # Errors
/// When a file cannot be written.
pub(super) fn per_kernel(
    directory: &Path,
    workload: &Workload,
    lines: &[&Line],
    kernels: &HashMap<&str, i64>,
) -> Result<(), Failure> {
    let mut files_of: BTreeMap<(i64, u64, u64), Vec<&Line>> = BTreeMap::new();
    for line in lines {
        let kernel = line.kernel.as_deref().and_then(|name| kernels.get(name));
        // An instruction whose kernel is not known is in the summary alone.
        if let Some(kernel) = kernel {
            let key = (*kernel, line.code_object, line.pid);
            files_of.entry(key).or_default().push(line);
        }
    }
    let seen = |reason: &&str| {
        let has = |line: &&&Line| line.reasons.iter().any(|(known, _)| known == reason);
        lines.iter().any(|line| has(&line))
    };
    let reasons: Vec<&str> = REASONS.into_iter().filter(|reason| seen(reason)).collect();
    let mut head: Vec<String> = [
        "Instruction line number",
        "Code object offset",
        "Instruction line",
        "Total count",
        "Active count",
        "Stall count",
        "Wave occupancy percent",
        "Active thread percent",
    ]
    .map(str::to_owned)
    .to_vec();
    head.extend(reasons.iter().map(|reason| format!("Stall {reason}")));
    head.extend(["Source", "Code object id", "Pid"].map(str::to_owned));
    let sub = files::file_name(&files::named(&workload.path));
    // Names are out of files, and may have any characters.
    let below = directory
        .join(DIRECTORY)
        .join(plain(&workload.name))
        .join(plain(&sub));
    for ((kernel, object, pid), mut lines) in files_of {
        lines.sort_by_key(|line| line.offset);
        let mut text = String::new();
        push(&mut text, &head);
        for (place, line) in (1..).zip(lines) {
            let number = |number: Option<u64>| number.map_or_else(String::new, |it| it.to_string());
            let mut row = vec![
                format!("{place}"),
                line.offset.to_string(),
                line.instruction.clone().unwrap_or_default(),
                line.count.to_string(),
                number(line.issued),
                number(line.stalled()),
                String::new(),
                String::new(),
            ];
            row.extend(reasons.iter().map(|reason| {
                let found = line.reasons.iter().find(|(known, _)| known == reason);
                number(found.map(|(_, count)| *count))
            }));
            row.push(line.source.clone().unwrap_or_default());
            row.extend([object.to_string(), pid.to_string()]);
            push(&mut text, &row);
        }
        let into = below.join(format!("kernel_{kernel}"));
        files::make(&into)?;
        let name = format!("isa_code_object_id_{object}_pid_{pid}.csv");
        files::write(&into.join(name), &text)?;
    }
    Ok(())
}
