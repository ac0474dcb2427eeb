//! Sessions of AMD's schema 4.1, in the form of schema 3.
//!
//! There, work and calls name a track, which has the thread, the agent, the queue and the stream; and
//! categories have a table of their own. Temporary views give such a session the tables that all
//! readers here know. The schema is of a branch of AMD's (docs/sources.md#rocpd).

use rusqlite::Connection;

/// What the names of the views start with.
pub(crate) const PREFIX: &str = "modern_";
/// The table of categories, which schema 3 does not have.
pub(crate) const CATEGORIES: &str = "info_category";

/// The tables that differ, and the queries that make them of the session's own: `{name}` is a table.
const TABLES: [(&str, &str); 8] = [
    (
        "string",
        "SELECT id, guid, string FROM {string} UNION ALL SELECT -id, guid, name FROM {info_category}",
    ),
    (
        "event",
        "SELECT id, guid, -category_id AS category_id, stack_id, parent_stack_id, correlation_id, NULL AS call_stack, \
         NULL AS line_info, extdata FROM {event}",
    ),
    (
        "region",
        "SELECT x.id, x.guid, t.nid, t.pid, t.tid, x.\"start\", x.\"end\", x.name_id, x.event_id, x.extdata \
         FROM {region} AS x JOIN {track} AS t ON t.id = x.track_id",
    ),
    // The name of a sample was its track's.
    (
        "track",
        "SELECT id, guid, nid, pid, tid, name_id, extdata FROM {track} UNION ALL \
         SELECT -x.id, t.guid, t.nid, t.pid, t.tid, x.name_id, t.extdata \
         FROM {sample} AS x JOIN {track} AS t ON t.id = x.track_id",
    ),
    (
        "sample",
        "SELECT id, guid, -id AS track_id, \"timestamp\", event_id, extdata FROM {sample}",
    ),
    (
        "kernel_dispatch",
        "SELECT x.id, x.guid, t.nid, t.pid, t.tid, t.agent_id, x.kernel_id, x.dispatch_id, t.queue_id, t.stream_id, \
         x.\"start\", x.\"end\", x.private_segment_size, x.group_segment_size, x.workgroup_size_x, x.workgroup_size_y, \
         x.workgroup_size_z, x.grid_size_x, x.grid_size_y, x.grid_size_z, x.region_name_id, x.event_id, x.extdata \
         FROM {kernel_dispatch} AS x JOIN {track} AS t ON t.id = x.track_id",
    ),
    (
        "memory_copy",
        "SELECT x.id, x.guid, t.nid, t.pid, t.tid, x.\"start\", x.\"end\", x.name_id, x.dst_agent_id, x.dst_address, \
         x.src_agent_id, x.src_address, x.size, t.queue_id, t.stream_id, x.region_name_id, x.event_id, x.extdata \
         FROM {memory_copy} AS x JOIN {track} AS t ON t.id = x.track_id",
    ),
    (
        "memory_allocate",
        "SELECT x.id, x.guid, t.nid, t.pid, t.tid, t.agent_id, x.type, x.level, x.\"start\", x.\"end\", x.address, x.size, \
         t.queue_id, t.stream_id, x.event_id, x.extdata FROM {memory_allocate} AS x JOIN {track} AS t ON t.id = x.track_id",
    ),
];

/// Whether dispatches that have these columns name tracks.
pub(crate) fn is_modern(columns: &[String]) -> bool {
    let has = |name: &str| columns.iter().any(|column| column == name);
    has("track_id") && !has("agent_id")
}

/// Returns the name of the view in the place of a table of a session, if it has one.
pub(crate) fn view(database: &str, suffix: &str, table: &str) -> Option<String> {
    let (name, _) = TABLES.iter().find(|(name, _)| *name == table)?;
    Some(format!("{PREFIX}{database}_{name}{suffix}"))
}

/// Makes the views of a session.
pub(crate) fn adapt(connection: &Connection, database: &str, suffix: &str) -> rusqlite::Result<()> {
    let quoted = |name: &str| name.replace('"', "\"\"");
    for (name, query) in TABLES {
        // Once from the left: a suffix may have braces, too.
        let mut pieces = query.split(['{', '}']);
        let mut query = pieces.next().unwrap_or_default().to_owned();
        while let (Some(table), Some(rest)) = (pieces.next(), pieces.next()) {
            query += &format!("{database}.\"rocpd_{table}{}\"{rest}", quoted(suffix));
        }
        let view = view(database, suffix, name).unwrap_or_default();
        connection.execute_batch(&format!(
            "CREATE TEMP VIEW \"{}\" AS {query}",
            quoted(&view)
        ))?;
    }
    Ok(())
}
