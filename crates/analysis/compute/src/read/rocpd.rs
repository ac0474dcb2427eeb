//! Reads rocpd databases: AMD's of 2026 and `rocprofv3`'s, of every version whose tables
//! have the columns that are used here.
//!
//! The tables are read, not the views: a view joins and groups the rows again for every query.

use super::bound::{self, Database, wrong};
use super::csv::Dispatches;
use super::scan::{self, Trouble};
use crate::architecture::Architecture;
use crate::files::{file_name, unreadable, unusable};
use crate::frame::{Column, Filling, Frame, field};
use midair_failure::Failure;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row};
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

/// The fields of a dispatch that are numbers.
const FIELDS: [&str; 8] = field::around_sizes(&[], &[field::KERNEL_ID]);

/// What was read so far.
#[derive(Default)]
pub(crate) struct Reader {
    dispatches: Dispatches,
    gpu: Filling,
    numbers: Filling,
    fields: [Filling; FIELDS.len()],
    counters: HashMap<String, Filling>,
    /// For files that are passes: how long each of a row's dispatches took.
    durations: Vec<Vec<f64>>,
    /// The GPU that the dispatches ran on: its columns in the database.
    agent: Option<(String, String, Value)>,
    files: usize,
    /// The pass that is being read, and how many passes were started.
    pass: Option<String>,
    passes: usize,
    /// How often each key occurred in this pass; and the rows of the first pass, by key and number
    /// of the occurrence.
    seen: HashMap<Key, usize>,
    same: HashMap<(Key, usize), usize>,
    /// The pass that counted each counter.
    counted_in: HashMap<String, usize>,
    /// What only `pmc_perf.csv` needs, where that is wanted.
    whole: Option<Whole>,
}

/// What the columns of `pmc_perf.csv` need beyond what metrics do: the size of a wave, the call
/// that launched the dispatch, and whether it was counted alongside others.
#[derive(Default)]
struct Whole {
    waves: Filling,
    calls: Filling,
    shared: Filling,
}

/// What is equal in each run of a program: kernel, GPU, grid, workgroup and LDS.
type Key = (u32, [u64; 4]);

/// The tables that are read.
const TABLES: [&str; 6] = [
    "info_agent",
    "info_kernel_symbol",
    "info_pmc",
    "kernel_dispatch",
    "pmc_event",
    "event",
];
/// Columns of a dispatch.
const DISPATCH: [&str; 15] = [
    "id",
    "event_id",
    "agent_id",
    "kernel_id",
    "start",
    "end",
    "grid_size_x",
    "grid_size_y",
    "grid_size_z",
    "workgroup_size_x",
    "workgroup_size_y",
    "workgroup_size_z",
    "group_segment_size",
    "private_segment_size",
    "dispatch_id",
];
/// How many integers describe a dispatch while the dispatches of a file are sorted, by the first
/// integer first.
const FOUND: usize = 11;
/// Counter ids below this are looked up in a table instead of a map.
const MOST_DENSE: usize = 1 << 20;

/// Whether a counter has a value for each channel of the L2 cache.
fn has_channels(name: &str) -> bool {
    name.starts_with("TCC_") && !name.contains('[') && !name.ends_with("_sum")
}

/// A dispatch in a file.
struct Dispatch {
    event: i64,
    row: usize,
}

impl Reader {
    /// Returns a reader of all columns that `pmc_perf.csv` has.
    pub(crate) fn whole() -> Reader {
        Reader {
            whole: Some(Whole::default()),
            ..Reader::default()
        }
    }

    /// Reads a file.
    pub(crate) fn file(&mut self, path: &Path) -> Result<(), Failure> {
        let database = bound::open(path)?;
        let suffixes = bound::suffixes(&database, path)?;
        if suffixes.is_empty() {
            return Err(unusable(format!(
                "{} is not a rocpd database",
                path.display()
            )));
        }
        // A pass may have a file for each process: the part of the name before the first dot names
        // the pass.
        let name = file_name(path);
        let pass = name
            .split('.')
            .next()
            .filter(|_| name.starts_with("pmc_perf"));
        if pass.is_none() || pass != self.pass.as_deref() {
            self.passes += usize::from(pass.is_some());
            self.pass = pass.map(str::to_owned);
            self.seen.clear();
            self.same.clear();
            if self.is_again() {
                self.note_rows();
            }
        }
        for suffix in suffixes {
            bound::only_tables(&database, &TABLES, &suffix, path)?;
            self.tables(&database, &suffix, path)?;
        }
        self.files += 1;
        Ok(())
    }

    /// Whether this pass repeats a run that was already read.
    fn is_again(&self) -> bool {
        self.pass.is_some() && self.passes > 1
    }

    /// Notes the rows of the first pass, so that the dispatches of other passes are found among
    /// them.
    fn note_rows(&mut self) {
        let mut seen: HashMap<Key, usize> = HashMap::new();
        for row in 0..self.dispatches.kernel.len() {
            let key = self.key(row);
            let times = seen.entry(key).or_default();
            self.same.insert((key, *times), row);
            *times += 1;
        }
    }

    fn tables(&mut self, database: &Database, suffix: &str, path: &Path) -> Result<(), Failure> {
        let wrong = |error: rusqlite::Error| wrong(path, &error);
        // The suffix is a part of a table's name, and is quoted like it.
        let quoted = suffix.replace('"', "\"\"");
        let table = |name: &str| format!("\"rocpd_{name}{quoted}\"");

        self.refuse_cuda(database, &table("info_agent"), path)?;
        // The GPUs, numbered from 0.
        let mut gpus: HashMap<i64, f64> = HashMap::new();
        let mut statement = database
            .prepare(&format!(
                "SELECT id, name, product_name, extdata FROM {} WHERE type = 'GPU' ORDER BY absolute_index",
                table("info_agent")
            ))
            .map_err(wrong)?;
        let mut rows = statement.query([]).map_err(wrong)?;
        let mut agents = HashMap::new();
        while let Some(row) = rows.next().map_err(wrong)? {
            let id: i64 = row.get(0).map_err(wrong)?;
            gpus.insert(id, gpus.len() as f64);
            let more = serde_json::from_str(&text(row, 3)).unwrap_or(Value::Null);
            agents.insert(id, (text(row, 1), text(row, 2), more));
        }

        let mut symbols = HashMap::new();
        let mut statement = database
            .prepare(&format!(
                "SELECT id, COALESCE(display_name, kernel_name), arch_vgpr_count, accum_vgpr_count, sgpr_count FROM {}",
                table("info_kernel_symbol")
            ))
            .map_err(wrong)?;
        let mut rows = statement.query([]).map_err(wrong)?;
        while let Some(row) = rows.next().map_err(wrong)? {
            let id: i64 = row.get(0).map_err(wrong)?;
            let number = self.dispatches.names.number(&text(row, 1));
            symbols.insert(id, (number, real(row, 2), real(row, 3), real(row, 4)));
        }

        let calls = match self.whole {
            Some(_) => calls(database, &table).map_err(wrong)?,
            None => HashMap::new(),
        };
        let pass = self.is_again();
        let mut found: Vec<[i64; FOUND]> = Vec::new();
        scan::each(
            database,
            path,
            &format!("rocpd_kernel_dispatch{suffix}"),
            &DISPATCH,
            |cells| {
                let whole = |at: usize| cells[at].whole().unwrap_or(i64::MIN);
                let product = |from: usize| {
                    let all = cells[from..from + 3].iter().map(|cell| cell.whole());
                    let product = all.reduce(|a, b| a?.checked_mul(b?)).flatten();
                    product.unwrap_or(i64::MIN)
                };
                found.push([
                    whole(4),
                    whole(0),
                    whole(1),
                    whole(2),
                    whole(3),
                    whole(5),
                    product(6),
                    product(9),
                    whole(12),
                    whole(13),
                    whole(14),
                ]);
            },
        )
        .map_err(|trouble| damaged(path, trouble))?;
        found.sort_unstable();
        let mut dispatches = Vec::with_capacity(found.len());
        for [
            start,
            id,
            event,
            agent,
            kernel,
            end,
            grid,
            workgroup,
            group,
            private,
            number,
        ] in found
        {
            let (start, end) = match is_timed(start, end) {
                true => (start, end),
                false => (i64::MIN, i64::MIN),
            };
            let Some((name, arch, accum, sgpr)) = symbols.get(&kernel).copied() else {
                return Err(unusable(format!(
                    "{}: a dispatch refers to a missing kernel",
                    path.display()
                )));
            };
            let real = |number: i64| match number {
                i64::MIN => f64::NAN,
                number => number as f64,
            };
            let gpu = gpus.get(&agent).copied().unwrap_or(0.0);
            let fields = [
                real(grid),
                real(workgroup),
                real(group),
                real(private),
                arch,
                accum,
                sgpr,
                kernel as f64,
            ];
            let key = (
                name,
                [gpu, fields[0], fields[1], fields[2]].map(f64::to_bits),
            );
            let known = match self.pass.is_some() {
                true => {
                    let times = self.seen.entry(key).or_default();
                    let known = self.same.get(&(key, *times)).copied();
                    *times += 1;
                    known
                }
                false => None,
            };
            let at = match known {
                Some(at) => at,
                None => {
                    let at = self.dispatches.kernel.len();
                    self.dispatches.kernel.push(name);
                    self.dispatches.start.push(start);
                    self.dispatches.end.push(end);
                    self.gpu.push(gpu);
                    self.numbers.push(if pass || self.files > 0 {
                        at as f64
                    } else {
                        real(number)
                    });
                    for (filling, value) in self.fields.iter_mut().zip(fields) {
                        filling.push(value);
                    }
                    if let Some(whole) = &mut self.whole {
                        let more = agents.get(&agent).map(|(_, _, more)| more);
                        let wave = more.and_then(|more| more["wave_front_size"].as_f64());
                        let (call, shared) = calls.get(&id).copied().unwrap_or((f64::NAN, false));
                        whole.waves.push(wave.unwrap_or(f64::NAN));
                        whole.calls.push(call);
                        whole.shared.push(f64::from(u8::from(shared)));
                    }
                    at
                }
            };
            if pass || !self.durations.is_empty() {
                if self.durations.len() <= at {
                    self.durations.resize(at + 1, Vec::new());
                }
                if start != i64::MIN {
                    self.durations[at].push(end.saturating_sub(start) as f64);
                }
            }
            if event != i64::MIN {
                dispatches.push(Dispatch { event, row: at });
            }
            if self.agent.is_none()
                && let Some(agent) = agents.get(&agent)
            {
                self.agent = Some(agent.clone());
            }
        }
        dispatches.sort_unstable_by_key(|dispatch| dispatch.event);
        self.values(database, suffix, &table, &dispatches, path)
    }

    /// Refuses results of CUDA processes: panels exist only for AMD's GPUs.
    fn refuse_cuda(&self, database: &Connection, agents: &str, path: &Path) -> Result<(), Failure> {
        let question = format!(
            "SELECT product_name FROM {agents} WHERE type = 'GPU' AND vendor_name = 'NVIDIA' LIMIT 1"
        );
        // AMD's older files do not name the vendor.
        let Ok(mut statement) = database.prepare(&question) else {
            return Ok(());
        };
        let product = statement
            .query_row([], |row| Ok(text(row, 0)))
            .optional()
            .map_err(|error| wrong(path, &error))?;
        product.map_or(Ok(()), |product| Err(super::of_cuda(path, &product)))
    }

    /// Reads the counted values. The values of one counter at several places of the GPU are added
    /// up.
    fn values(
        &mut self,
        database: &Database,
        suffix: &str,
        table: &dyn Fn(&str) -> String,
        dispatches: &[Dispatch],
        path: &Path,
    ) -> Result<(), Failure> {
        let wrong = |error: rusqlite::Error| wrong(path, &error);
        let mut counters: HashMap<i64, usize> = HashMap::new();
        let mut names: Vec<(String, Filling)> = Vec::new();
        let mut statement = database
            .prepare(&format!(
                "SELECT id, COALESCE(symbol, name) FROM {}",
                table("info_pmc")
            ))
            .map_err(wrong)?;
        let mut rows = statement.query([]).map_err(wrong)?;
        while let Some(row) = rows.next().map_err(wrong)? {
            let name = text(row, 1);
            let id: i64 = row.get(0).map_err(wrong)?;
            // A counter is described once for each GPU.
            let at = names.iter().position(|(known, _)| *known == name);
            let at = at.unwrap_or_else(|| {
                let filling = self.counters.remove(&name).unwrap_or_default();
                names.push((name, filling));
                names.len() - 1
            });
            counters.insert(id, at);
        }
        let rows = self.dispatches.kernel.len();
        // A counter that an earlier pass counted as well is not counted twice.
        let is_twice: Vec<bool> = names
            .iter()
            .map(|(name, _)| {
                let pass = self.counted_in.get(name);
                pass.is_some_and(|pass| *pass != self.passes)
            })
            .collect();
        let mut is_counted = vec![false; names.len()];
        let is_channel: Vec<bool> = names.iter().map(|(name, _)| has_channels(name)).collect();
        // Ids of counters are small, so a table is faster than a map.
        let most = counters.keys().copied().max().unwrap_or(0);
        let dense: Vec<usize> = match usize::try_from(most) {
            Ok(most) if most < MOST_DENSE => (0..=most as i64)
                .map(|id| counters.get(&id).copied().unwrap_or(usize::MAX))
                .collect(),
            _ => Vec::new(),
        };
        let of = |id: i64| match usize::try_from(id).ok().and_then(|id| dense.get(id)) {
            Some(at) => Some(*at).filter(|at| *at != usize::MAX),
            None => counters.get(&id).copied(),
        };
        let events = table("pmc_event");
        let has_places = database
            .prepare(&format!("SELECT xcc, instance FROM {events} LIMIT 0"))
            .is_ok();
        let mut columns = vec!["event_id", "pmc_id", "value"];
        if has_places {
            columns.extend(["xcc", "instance"]);
        }
        // A sample within a dispatch is no part of what the whole dispatch counted.
        let sample = columns.len();
        if database
            .prepare(&format!("SELECT sample_id FROM {events} LIMIT 0"))
            .is_ok()
        {
            columns.push("sample_id");
        }
        let mut last = (i64::MIN, None, 0);
        let mut channels: HashMap<(usize, u32), Filling> = HashMap::new();
        let per_xcc = 16;
        let name = format!("rocpd_pmc_event{suffix}");
        scan::each(database, path, &name, &columns, |cells| {
            if cells.get(sample).is_some_and(|cell| cell.whole().is_some()) {
                return;
            }
            let event = cells[0].whole().unwrap_or(i64::MIN);
            if event != last.0 {
                // Values are usually in the order of dispatches, so try the next dispatch first.
                let next = dispatches.get(last.2).filter(|next| next.event == event);
                let at = match next {
                    Some(_) => Some(last.2),
                    None => dispatches
                        .binary_search_by_key(&event, |dispatch| dispatch.event)
                        .ok(),
                };
                last = (
                    event,
                    at.map(|at| dispatches[at].row),
                    at.map_or(last.2, |at| at + 1),
                );
            }
            let counter = cells[1].whole().and_then(of);
            let (Some(at), Some(counter)) = (last.1, counter) else {
                return;
            };
            if is_twice[counter] {
                return;
            }
            is_counted[counter] = true;
            let value = cells[2].real();
            let (_, filling) = &mut names[counter];
            if filling.rows() == 0 {
                filling.reserve(rows);
            }
            let before = filling.get(at);
            filling.set(
                at,
                if before.is_nan() {
                    value
                } else {
                    before + value
                },
            );
            if is_channel[counter]
                && let (Some(xcc), Some(instance)) = (
                    cells.get(3).and_then(|cell| cell.whole()),
                    cells.get(4).and_then(|cell| cell.whole()),
                )
                && let (Ok(xcc), Ok(instance)) = (u32::try_from(xcc), u32::try_from(instance))
                && instance < per_xcc
                && xcc < 1024
            {
                let channel = xcc * per_xcc + instance;
                channels
                    .entry((counter, channel))
                    .or_default()
                    .set(at, value);
            }
        })
        .map_err(|trouble| damaged(path, trouble))?;
        for ((name, _), _) in names.iter().zip(is_counted).filter(|(_, counted)| *counted) {
            self.counted_in.insert(name.clone(), self.passes);
        }
        for ((counter, channel), filling) in channels {
            let name = format!("{}[{channel}]", names[counter].0);
            self.counters.entry(name).or_insert(filling);
        }
        self.counters.extend(names);
        Ok(())
    }

    fn key(&self, row: usize) -> Key {
        let parts = [
            self.gpu.get(row),
            self.fields[0].get(row),
            self.fields[1].get(row),
            self.fields[2].get(row),
        ];
        let kernel = self.dispatches.kernel.get(row).copied().unwrap_or(0);
        (kernel, parts.map(f64::to_bits))
    }

    /// Returns the dispatches as a frame.
    pub(crate) fn finish(mut self, passes: bool, notes: &mut Vec<String>) -> Frame {
        let rows = self.dispatches.kernel.len();
        if !self.durations.is_empty() {
            for (at, mut all) in std::mem::take(&mut self.durations).into_iter().enumerate() {
                let start = self.dispatches.start[at];
                if start == i64::MIN {
                    continue;
                }
                all.push(self.dispatches.end[at].saturating_sub(start) as f64);
                let median = crate::evaluate::quantile(&mut all, 0.5);
                self.dispatches.end[at] = start.saturating_add(median as i64);
            }
        }
        if passes {
            notes.push(format!("{} databases are read as one profile", self.files));
        }
        let mut frame = self.dispatches.frame();
        frame.put(field::DISPATCH, self.numbers.finish(rows));
        frame.put(field::GPU, self.gpu.finish(rows));
        for (name, filling) in FIELDS.iter().zip(self.fields) {
            frame.put(name, filling.finish(rows));
        }
        if let Some(whole) = self.whole {
            frame.put(field::WAVE, whole.waves.finish(rows));
            frame.put(field::CORRELATION, whole.calls.finish(rows));
            frame.put(field::SHARED, whole.shared.finish(rows));
        }
        for (name, filling) in self.counters {
            let column = filling.finish(rows);
            // Leave out counters that are described but were never counted.
            if !matches!(column, Column::Same(value) if value.is_nan()) {
                frame.put(&name, column);
            }
        }
        frame
    }

    /// Returns what the database says about the GPU, under the names of `sysinfo.csv`.
    pub(crate) fn system(&self) -> Vec<(String, String)> {
        let Some((name, product, agent)) = &self.agent else {
            return Vec::new();
        };
        let number = |key: &str| agent[key].as_u64().filter(|number| *number > 0);
        let mut system = vec![("gpu_arch".to_owned(), name.clone())];
        let mut put = |name: &str, value: Option<u64>| {
            if let Some(value) = value {
                system.push((name.to_owned(), value.to_string()));
            }
        };
        let units = number("cu_count");
        let engines = number("num_shader_banks");
        let xccs = number("num_xcc");
        put("cu_per_gpu", units);
        put("se_per_gpu", engines);
        put("num_xcd", xccs);
        put("simd_per_cu", number("simd_per_cu"));
        put("wave_size", number("wave_front_size"));
        put("workgroup_max_size", number("workgroup_max_size"));
        put("max_waves_per_cu", number("max_waves_per_cu"));
        put("max_sclk", number("max_engine_clk_fcompute"));
        put("gpu_chip_id", number("device_id"));
        if let (Some(units), Some(engines)) = (units, engines) {
            put(
                "sqc_per_gpu",
                Some(units.div_ceil(engines).div_ceil(2) * engines),
            );
        }
        if Architecture::named(name).is_some() {
            put("lds_banks_per_cu", Some(32));
            put("pipes_per_gpu", Some(4));
            put(
                "total_l2_chan",
                match name.as_str() {
                    "gfx908" | "gfx90a" => Some(32),
                    _ => xccs.map(|xccs| 16 * xccs),
                },
            );
        }
        if !product.is_empty() {
            system.push(("gpu_model".to_owned(), product.clone()));
        }
        system
    }
}

/// Returns whether these are the times of a dispatch. Unknown times are
/// zeros, which are no duration and must not come into a mean.
fn is_timed(start: i64, end: i64) -> bool {
    start > 0 && end >= start
}

fn damaged(path: &Path, trouble: Trouble) -> Failure {
    match trouble {
        Trouble::Damaged => {
            unusable(format!("{} is damaged or incomplete", path.display())).hint("profile again")
        }
        Trouble::Io(error) => unreadable(path, &error),
        Trouble::Database(error) => wrong(path, &error),
    }
}

/// Returns of each dispatch, by its id, the call that launched it, and whether something ran alongside
/// it while it was counted. AMD's files have the stack's number as the call's.
fn calls(
    database: &Connection,
    table: &dyn Fn(&str) -> String,
) -> rusqlite::Result<HashMap<i64, (f64, bool)>> {
    let question = format!(
        "SELECT d.id, e.stack_id, d.extdata FROM {} AS d LEFT JOIN {} AS e ON e.id = d.event_id",
        table("kernel_dispatch"),
        table("event")
    );
    let mut statement = database.prepare(&question)?;
    let mut rows = statement.query([])?;
    let mut calls = HashMap::new();
    while let Some(row) = rows.next()? {
        let told = text(row, 2);
        let shared = told.contains("\"counters\"") && {
            let told: Value = serde_json::from_str(&told).unwrap_or(Value::Null);
            matches!(
                told["counters"].as_str(),
                Some("shared" | "not_known_to_be_alone")
            )
        };
        calls.insert(row.get(0)?, (real(row, 1), shared));
    }
    Ok(calls)
}

fn text(row: &Row<'_>, column: usize) -> String {
    match row.get_ref(column) {
        Ok(ValueRef::Text(text) | ValueRef::Blob(text)) => {
            String::from_utf8_lossy(text).into_owned()
        }
        _ => String::new(),
    }
}

fn real(row: &Row<'_>, column: usize) -> f64 {
    match row.get_ref(column) {
        Ok(ValueRef::Integer(number)) => number as f64,
        Ok(ValueRef::Real(number)) => number,
        _ => f64::NAN,
    }
}
