//! Values of counters, for csv, json and pftrace. They are no records, since a database has them computed. A
//! row of csv is what a dispatch counted at all places together.

use crate::input::{Input, Part};
use crate::unreadable;
use crate::window::Window;
use midair_failure::{Failure, Kind, plain};
use midair_output::{AgentIndex, CounterCsv, CounterRow, Format, KnownCounter, KnownCounts, Plan};
use rusqlite::Row;
use std::path::PathBuf;

/// Writes `counter_collection.csv`, if dispatches have counters.
///
/// # Errors
/// When a database cannot be read, or the file cannot be written.
pub(crate) fn write(
    input: &Input,
    plan: &Plan,
    window: Option<Window>,
) -> Result<Vec<PathBuf>, Failure> {
    let lost = |error: midair_output::WriteError| Failure::new(Kind::Output, error.to_string());
    let mut file: Option<CounterCsv> = None;
    for part in &input.parts {
        let failed = |error: rusqlite::Error| unreadable(&part.path, error);
        let values = whole(input, part).map_err(failed)?;
        let question = question(part, &values, plan, window);
        let mut statement = input.connection.prepare(&question).map_err(failed)?;
        let mut rows = statement.query([]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let row = counter(row).map_err(failed)?;
            let file = match &mut file {
                Some(file) => file,
                None => {
                    let started = CounterCsv::start(&plan.directory, &plan.prefix);
                    file.insert(started.map_err(lost)?)
                }
            };
            file.put(&row).map_err(lost)?;
        }
    }
    match file {
        Some(file) => file.finish().map_err(lost),
        None => Ok(Vec::new()),
    }
}

/// Returns what the dispatches of a session counted, at each place, or at all places together where there are
/// too many values for the memory.
///
/// # Errors
/// When the database cannot be read.
pub(crate) fn known(input: &Input, part: &Part) -> Result<KnownCounts, Failure> {
    let read = || {
        let mut known = KnownCounts::default();
        describe(input, part, &mut known)?;
        let columns = part.columns(&input.connection, "pmc_event")?;
        let has_places = columns.iter().any(|column| column == "shader_engine");
        let values = counted(input, part)?.of_dispatches;
        let (places, value, group) = match (values <= MOST_VALUES, has_places) {
            (true, true) => ("v.xcc, v.shader_engine, v.instance", "v.value", ""),
            (true, false) => ("0, 0, 0", "v.value", ""),
            (false, _) => (
                "0, 0, 0",
                "TOTAL(v.value)",
                "GROUP BY d.dispatch_id, v.pmc_id",
            ),
        };
        let question = format!(
            "SELECT d.dispatch_id, v.pmc_id, {value}, {places} FROM {} AS v JOIN {} AS d ON d.event_id = v.event_id {group}",
            whole(input, part)?,
            part.table("kernel_dispatch")
        );
        let mut statement = input.connection.prepare(&question)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let number = |at: usize| row.get::<_, Option<i64>>(at).map(Option::unwrap_or_default);
            let place = [number(3)? as u32, number(4)? as u32, number(5)? as u32];
            let value: Option<f64> = row.get(2)?;
            let value = value.unwrap_or_default();
            known.add(number(0)? as u64, number(1)? as u64, place, value);
        }
        Ok(known)
    };
    read().map_err(|error: rusqlite::Error| unreadable(&part.path, error))
}

/// Reads what the counters are.
fn describe(input: &Input, part: &Part, known: &mut KnownCounts) -> rusqlite::Result<()> {
    let question = format!(
        "SELECT c.id, a.absolute_index, c.name, c.description, c.block, c.expression, c.is_derived \
         FROM {} AS c LEFT JOIN {} AS a ON a.id = c.agent_id WHERE c.id IN (SELECT pmc_id FROM {})",
        part.table("info_pmc"),
        part.table("info_agent"),
        part.table("pmc_event")
    );
    let mut statement = input.connection.prepare(&question)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let number = |at: usize| row.get::<_, Option<i64>>(at).map(Option::unwrap_or_default);
        let text = |at: usize| {
            row.get::<_, Option<String>>(at)
                .map(Option::unwrap_or_default)
        };
        let counter = KnownCounter {
            node: number(1)? as u32,
            name: text(2)?,
            description: text(3)?,
            block: text(4)?,
            expression: text(5)?,
            is_derived: number(6)? != 0,
        };
        known.describe(number(0)? as u64, counter);
    }
    Ok(())
}

/// The column by which a value belongs to a sample within a dispatch (AMD's SPM) or of a device.
const SAMPLE: &str = "sample_id";

/// Whether a session's values may be of samples. Schemas before 3.0.3 have none.
fn has_samples(input: &Input, part: &Part) -> rusqlite::Result<bool> {
    let columns = part.columns(&input.connection, "pmc_event")?;
    Ok(columns.iter().any(|column| column == SAMPLE))
}

/// Returns the table of values without the values of samples, which are no sums of dispatches.
fn whole(input: &Input, part: &Part) -> rusqlite::Result<String> {
    let table = part.table("pmc_event");
    Ok(match has_samples(input, part)? {
        true => format!("(SELECT * FROM {table} WHERE {SAMPLE} IS NULL)"),
        false => table,
    })
}

/// How many values a session has.
struct Counted {
    all: u64,
    /// Values of whole dispatches.
    of_dispatches: u64,
    /// Samples within dispatches.
    sampled: u64,
}

fn counted(input: &Input, part: &Part) -> rusqlite::Result<Counted> {
    let sample = match has_samples(input, part)? {
        true => SAMPLE,
        false => "NULL",
    };
    let question = format!(
        "SELECT COUNT(*), TOTAL(v.inside AND v.{SAMPLE} IS NULL), TOTAL(v.inside AND v.{SAMPLE} IS NOT NULL) \
         FROM (SELECT event_id IN (SELECT event_id FROM {}) AS inside, {sample} AS {SAMPLE} FROM {}) AS v",
        part.table("kernel_dispatch"),
        part.table("pmc_event")
    );
    input.connection.query_row(&question, [], |row| {
        let (of_dispatches, sampled): (f64, f64) = (row.get(1)?, row.get(2)?);
        Ok(Counted {
            all: row.get::<_, i64>(0)?.max(0) as u64,
            of_dispatches: of_dispatches as u64,
            sampled: sampled as u64,
        })
    })
}

/// The most values that are kept with their places, some 150 bytes each.
const MOST_VALUES: u64 = 1 << 22;
/// The formats whose writers take values of dispatches.
pub(crate) const WRITERS: [Format; 2] = [Format::Json, Format::Pftrace];
/// The formats that have values of dispatches.
const FORMATS: [Format; 3] = [Format::Csv, Format::Json, Format::Pftrace];

/// Returns which values of a session are not in the files, in sentences.
///
/// # Errors
/// When the database cannot be read.
pub(crate) fn left(input: &Input, part: &Part, plan: &Plan) -> Result<Vec<String>, Failure> {
    let counted = counted(input, part).map_err(|error| unreadable(&part.path, error))?;
    let Counted {
        all,
        of_dispatches,
        sampled,
    } = counted;
    let path = part.path.display();
    let counted = |count| plain::counted(count, "counter value", "counter values");
    let mut left = Vec::new();
    let others = all.saturating_sub(of_dispatches).saturating_sub(sampled);
    if others > 0 {
        left.push(format!(
            "{} of no single dispatch in {path} are not converted",
            counted(others)
        ));
    }
    if sampled > 0 {
        left.push(format!(
            "{} of samples within dispatches in {path} are converted to csv by rocpd alone",
            counted(sampled)
        ));
    }
    if of_dispatches > MOST_VALUES && plan.formats.contains(&Format::Json) {
        left.push(format!(
            "{} in {path} are too many: json has the sums over all places",
            counted(of_dispatches)
        ));
    }
    let others = plan
        .formats
        .iter()
        .filter(|format| !FORMATS.contains(format));
    let others: Vec<&str> = others.map(|format| format.name()).collect();
    if of_dispatches > 0 && !others.is_empty() {
        left.push(format!(
            "{} in {path} are converted to csv, json and pftrace, not to {}",
            counted(of_dispatches),
            others.join(", ")
        ));
    }
    Ok(left)
}

/// Returns the query for the rows of a session, of these values, in the order of the dispatches.
fn question(part: &Part, values: &str, plan: &Plan, window: Option<Window>) -> String {
    let of = |name: &str| part.table(name);
    let agent = match plan.agent_index {
        AgentIndex::Relative => "'Agent ' || COALESCE(a.logical_index, a.absolute_index)",
        AgentIndex::Absolute => "'Agent ' || a.absolute_index",
        AgentIndex::TypeRelative => "COALESCE(a.type, 'UNK') || ' ' || COALESCE(a.type_index, -1)",
    };
    let within = window.map_or(String::new(), |window| window.of_table("kernel_dispatch"));
    format!(
        "SELECT e.stack_id, d.dispatch_id, {agent}, d.queue_id, p.pid, t.tid, \
         d.grid_size_x, d.grid_size_y, d.grid_size_z, d.kernel_id, COALESCE(s.display_name, s.kernel_name), \
         d.workgroup_size_x, d.workgroup_size_y, d.workgroup_size_z, s.group_segment_size, d.private_segment_size, \
         s.arch_vgpr_count, s.accum_vgpr_count, s.sgpr_count, c.name, v.value, d.\"start\", d.\"end\" \
         FROM (SELECT event_id, pmc_id, TOTAL(value) AS value FROM {values} GROUP BY event_id, pmc_id) AS v \
         JOIN (SELECT * FROM {dispatches}{within}) AS d ON d.event_id = v.event_id \
         JOIN {counters} AS c ON c.id = v.pmc_id \
         LEFT JOIN {events} AS e ON e.id = d.event_id \
         LEFT JOIN {agents} AS a ON a.id = d.agent_id \
         LEFT JOIN {processes} AS p ON p.id = d.pid \
         LEFT JOIN {threads} AS t ON t.id = d.tid \
         LEFT JOIN {symbols} AS s ON s.id = d.kernel_id \
         ORDER BY d.event_id, d.id, c.name",
        dispatches = of("kernel_dispatch"),
        counters = of("info_pmc"),
        events = of("event"),
        agents = of("info_agent"),
        processes = of("info_process"),
        threads = of("info_thread"),
        symbols = of("info_kernel_symbol"),
    )
}

fn counter(row: &Row<'_>) -> rusqlite::Result<CounterRow> {
    let number = |at: usize| -> rusqlite::Result<u64> {
        let number: Option<i64> = row.get(at)?;
        Ok(number.unwrap_or_default() as u64)
    };
    let text = |at: usize| {
        row.get::<_, Option<String>>(at)
            .map(Option::unwrap_or_default)
    };
    let product = |from: usize| -> rusqlite::Result<u64> {
        let sizes = [number(from)?, number(from + 1)?, number(from + 2)?];
        Ok(sizes.into_iter().fold(1, u64::wrapping_mul))
    };
    Ok(CounterRow {
        correlation: number(0)?,
        dispatch: number(1)?,
        agent: text(2)?,
        queue: number(3)?,
        process: number(4)?,
        thread: number(5)?,
        grid: product(6)?,
        kernel: (number(9)?, text(10)?),
        workgroup: product(11)?,
        group_segment: number(14)?,
        scratch: number(15)?,
        registers: [number(16)?, number(17)?, number(18)?],
        counter: text(19)?,
        value: row.get::<_, Option<f64>>(20)?.unwrap_or_default(),
        times: (number(21)?, number(22)?),
    })
}
