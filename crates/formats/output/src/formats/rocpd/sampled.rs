//! Samples of program counters. AMD's schema has no tables for them, so they are in two tables of midair's,
//! which only files of sessions with samples have: `rocpd_midair_instruction` and
//! `rocpd_midair_pc_sample`. The view `pc_samples` unites them for people, and lacks samples that the
//! device calls invalid, as the other files do.

use super::database::{Database, Step, text, whole};
use super::guid::Guid;
use super::schema::{BESIDE, full_name, insert};
use crate::code::SAMPLES;
use crate::job::Job;
use midair_record::event::{PcSample, kind};
use midair_trace::samples::REASONS;
use rusqlite::{Statement, params};
use std::collections::HashMap;

const INSTRUCTION: &str = "midair_instruction";
const SAMPLE: &str = "midair_pc_sample";
/// The methods.
const HOST_TRAP: &str = "host_trap";
const STOCHASTIC: &str = "stochastic";

/// The columns of both tables behind `id` and `guid`, and their types.
const OF_INSTRUCTION: [(&str, &str); 4] = [
    ("code_object_id", "INTEGER NOT NULL"),
    ("code_object_offset", "BIGINT NOT NULL"),
    ("instruction", "TEXT NOT NULL"),
    ("comment", "TEXT NOT NULL"),
];
const OF_SAMPLE: [(&str, &str); 21] = [
    ("nid", "INTEGER NOT NULL"),
    ("pid", "INTEGER NOT NULL"),
    ("agent_id", "INTEGER NOT NULL"),
    ("method", "TEXT NOT NULL"),
    ("timestamp", "BIGINT NOT NULL"),
    ("dispatch_id", "INTEGER NOT NULL"),
    ("stack_id", "INTEGER NOT NULL"),
    ("code_object_id", "INTEGER NOT NULL"),
    ("code_object_offset", "BIGINT NOT NULL"),
    ("address", "BIGINT NOT NULL"),
    ("instruction_id", "INTEGER"),
    ("exec_mask", "BIGINT NOT NULL"),
    ("hw_id", "INTEGER NOT NULL"),
    ("chiplet", "INTEGER NOT NULL"),
    ("wave_in_group", "INTEGER NOT NULL"),
    ("workgroup_x", "INTEGER NOT NULL"),
    ("workgroup_y", "INTEGER NOT NULL"),
    ("workgroup_z", "INTEGER NOT NULL"),
    // Words as the device writes them, whose bits say what a wave did.
    ("snapshot_0", "INTEGER NOT NULL"),
    ("snapshot_1", "INTEGER NOT NULL"),
    ("snapshot_2", "INTEGER NOT NULL"),
];

/// Returns the sessions that have samples.
pub(super) fn having<'g>(jobs: &[Job<'_>], guids: &'g [Guid]) -> Vec<&'g Guid> {
    let both = jobs.iter().zip(guids);
    both.filter(|(job, _)| job.index.has(SAMPLES))
        .map(|(_, guid)| guid)
        .collect()
}

fn tables(guid: &Guid, database: &str) -> String {
    let table = |name: &str, columns: &[(&str, &str)]| {
        let columns = columns.iter();
        let columns = columns.map(|(name, declared)| format!(", \"{name}\" {declared}"));
        format!(
            "CREATE TABLE {database}.{} (id INTEGER NOT NULL PRIMARY KEY, guid TEXT NOT NULL DEFAULT \"{guid}\"{});\n",
            full_name(name, guid),
            columns.collect::<String>()
        )
    };
    table(INSTRUCTION, &OF_INSTRUCTION) + &table(SAMPLE, &OF_SAMPLE)
}

/// Returns the statements that make the tables of these sessions, and views over them.
pub(super) fn definition(guids: &[&Guid]) -> String {
    if guids.is_empty() {
        return String::new();
    }
    let mut sql: String = guids.iter().map(|guid| tables(guid, "main")).collect();
    for name in [INSTRUCTION, SAMPLE] {
        let of_each = |guid: &&Guid| format!("SELECT * FROM {}", full_name(name, guid));
        let all: Vec<String> = guids.iter().map(of_each).collect();
        let all = all.join(" UNION ALL ");
        sql.push_str(&format!("CREATE VIEW rocpd_{name} AS {all};\n"));
    }
    let reasons = REASONS.iter().enumerate();
    let reasons = reasons.map(|(number, reason)| format!(" WHEN {number} THEN '{reason}'"));
    let reasons: String = reasons.collect();
    sql.push_str(&format!(
        "CREATE VIEW pc_samples AS SELECT S.guid, S.nid, S.pid, S.agent_id, S.method, S.\"timestamp\", S.dispatch_id, S.stack_id, \
         S.code_object_id, S.code_object_offset, S.exec_mask, I.instruction, I.comment, \
         CASE WHEN S.method = '{STOCHASTIC}' THEN (S.snapshot_0 >> 1) & 1 END AS issued, \
         CASE WHEN S.method = '{STOCHASTIC}' AND (S.snapshot_0 >> 1) & 1 = 0 THEN \
         CASE (S.snapshot_0 >> 7) & 7{reasons} END END AS stall_reason FROM rocpd_{SAMPLE} AS S \
         LEFT JOIN rocpd_{INSTRUCTION} AS I ON I.id = S.instruction_id AND I.guid = S.guid \
         WHERE S.method <> '{STOCHASTIC}' OR (S.snapshot_0 & 1 = 1 AND (S.snapshot_0 >> 26) & 1 = 0);\n"
    ));
    sql
}

/// Returns the statements that make the tables in the database next to the file.
pub(super) fn beside(guids: &[&Guid]) -> String {
    guids.iter().map(|guid| tables(guid, BESIDE)).collect()
}

/// Returns the statements that copy the rows into the file.
pub(super) fn take(guids: &[&Guid]) -> String {
    let of_each = |guid: &&Guid| {
        [INSTRUCTION, SAMPLE].map(|name| {
            let name = full_name(name, guid);
            format!("INSERT INTO main.{name} SELECT * FROM {BESIDE}.{name};\n")
        })
    };
    guids.iter().flat_map(of_each).collect()
}

/// Writes the samples of a session.
pub(super) struct Sampled<'c> {
    sample: Statement<'c>,
    /// The rows of instructions by code object and offset.
    instructions: HashMap<(u64, u64), i64>,
}

impl<'c> Sampled<'c> {
    /// Writes the instructions. None for a session without samples.
    pub(super) fn begin(database: &Database<'c>, job: &Job<'_>) -> Step<Option<Sampled<'c>>> {
        if !job.index.has(SAMPLES) {
            return Ok(None);
        }
        let names = |columns: &[(&str, &str)]| {
            let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
            names.join(", ")
        };
        let prepared = |table: &str, columns: &[(&str, &str)]| -> Step<Statement<'c>> {
            let sql = insert("INSERT", table, &names(columns), database.guid());
            Ok(database.connection().prepare(&sql)?)
        };
        let mut statement = prepared(INSTRUCTION, &OF_INSTRUCTION)?;
        let mut all: Vec<_> = job.index.instructions.all().collect();
        all.sort_unstable_by_key(|(place, _)| *place);
        let mut instructions = HashMap::new();
        for ((object, offset), of_it) in all {
            let id = statement.insert(params![
                whole(object),
                whole(offset),
                text(&of_it.instruction),
                text(&of_it.line)
            ])?;
            instructions.insert((object, offset), id);
        }
        let sample = prepared(SAMPLE, &OF_SAMPLE)?;
        Ok(Some(Sampled {
            sample,
            instructions,
        }))
    }

    /// Writes a sample, which one agent of this process on this node took.
    pub(super) fn put(&mut self, [nid, pid, agent]: [i64; 3], sample: &PcSample) -> Step<()> {
        let method = match sample.header.kind {
            kind::PC_SAMPLING_STOCHASTIC => STOCHASTIC,
            _ => HOST_TRAP,
        };
        let place = (sample.code_object_id, sample.offset);
        let [x, y, z] = sample.workgroup;
        let [first, second, third] = sample.snapshot;
        self.sample.execute(params![
            nid,
            pid,
            agent,
            method,
            whole(sample.time),
            whole(sample.dispatch_id),
            whole(sample.correlation),
            whole(sample.code_object_id),
            whole(sample.offset),
            whole(sample.pc),
            self.instructions.get(&place),
            whole(sample.exec_mask),
            sample.hw_id,
            sample.chiplet,
            sample.wave_in_group,
            x,
            y,
            z,
            first,
            second,
            third,
        ])?;
        Ok(())
    }
}
