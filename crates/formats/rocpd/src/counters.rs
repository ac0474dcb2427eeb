//! Values of counters, for csv and pftrace. They are no records, since a database has them computed; a
//! row is what a dispatch counted at all places together.

use crate::input::{Input, Part};
use crate::unreadable;
use crate::window::Window;
use midair_failure::{Failure, Kind, plain};
use midair_output::{AgentIndex, CounterCsv, CounterRow, Format, KnownCounts, Plan};
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
        let question = question(part, plan, window);
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

/// Returns what the dispatches of a session counted, at all places together.
///
/// # Errors
/// When the database cannot be read.
pub(crate) fn known(input: &Input, part: &Part) -> Result<KnownCounts, Failure> {
    let question = format!(
        "SELECT d.dispatch_id, c.name, TOTAL(v.value) FROM {} AS v JOIN {} AS d ON d.event_id = v.event_id \
         JOIN {} AS c ON c.id = v.pmc_id GROUP BY d.dispatch_id, c.name ORDER BY c.name",
        part.table("pmc_event"),
        part.table("kernel_dispatch"),
        part.table("info_pmc")
    );
    let read = || {
        let mut known = KnownCounts::default();
        let mut statement = input.connection.prepare(&question)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let name: String = row.get::<_, Option<String>>(1)?.unwrap_or_default();
            let dispatch: i64 = row.get::<_, Option<i64>>(0)?.unwrap_or_default();
            known.add(dispatch as u64, &name, row.get(2)?);
        }
        Ok(known)
    };
    read().map_err(|error: rusqlite::Error| unreadable(&part.path, error))
}

/// The formats that have values of dispatches.
pub(crate) const FORMATS: [Format; 2] = [Format::Csv, Format::Pftrace];

/// Returns which values of a session are not in the files, in sentences.
///
/// # Errors
/// When the database cannot be read.
pub(crate) fn left(input: &Input, part: &Part, plan: &Plan) -> Result<Vec<String>, Failure> {
    let question = format!(
        "SELECT COUNT(*), TOTAL(event_id IN (SELECT event_id FROM {})) FROM {}",
        part.table("kernel_dispatch"),
        part.table("pmc_event")
    );
    let counted = input.connection.query_row(&question, [], |row| {
        let of_dispatches: f64 = row.get(1)?;
        Ok((row.get::<_, i64>(0)?.max(0) as u64, of_dispatches as u64))
    });
    let (all, of_dispatches) = counted.map_err(|error| unreadable(&part.path, error))?;
    let path = part.path.display();
    let counted = |count| plain::counted(count, "counter value", "counter values");
    let mut left = Vec::new();
    let others = all.saturating_sub(of_dispatches);
    if others > 0 {
        left.push(format!(
            "{} of no single dispatch in {path} are not converted",
            counted(others)
        ));
    }
    let others = plan
        .formats
        .iter()
        .filter(|format| !FORMATS.contains(format));
    let others: Vec<&str> = others.map(|format| format.name()).collect();
    if of_dispatches > 0 && !others.is_empty() {
        left.push(format!(
            "{} in {path} are converted to csv and pftrace, not to {}",
            counted(of_dispatches),
            others.join(", ")
        ));
    }
    Ok(left)
}

/// Returns the query for the rows of a session, in the order of the dispatches.
fn question(part: &Part, plan: &Plan, window: Option<Window>) -> String {
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
        values = of("pmc_event"),
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
