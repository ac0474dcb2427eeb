//! The view of HIP events. AMD's schema has a table for them since 3.0.4; in midair's files, which are of
//! 3.0.3, they are regions (FMT-055).

use rusqlite::Connection;

/// The table of AMD's schema 3.0.4.
pub(crate) const TABLE: &str = "hip_event";
/// Its columns (docs/sources.md#rocpd).
pub(super) const COLUMNS: [&str; 15] = [
    "id",
    "guid",
    "nid",
    "pid",
    "tid",
    "start",
    "end",
    "name_id",
    "agent_id",
    "queue_id",
    "stream_id",
    "hip_event_handle",
    "source_queue_id",
    "event_id",
    "extdata",
];
/// Makes the view of both, with AMD's columns, after the views of the tables.
pub(super) const VIEW: &str = "
CREATE TEMP VIEW hip_events AS
SELECT h.id, h.guid, c.string AS category, h.nid, p.pid, t.tid, h.start, h.\"end\", h.\"end\" - h.start AS duration,
    n.string AS name, h.stream_id, h.queue_id, s.name AS stream_name, q.name AS queue_name, a.name AS device,
    a.absolute_index AS agent_abs_index, a.logical_index AS agent_log_index, a.type_index AS agent_type_index,
    a.type AS agent_type, h.hip_event_handle, h.source_queue_id, e.stack_id, e.parent_stack_id, e.correlation_id AS corr_id
FROM (
    SELECT id, guid, nid, pid, tid, start, \"end\", name_id, agent_id, queue_id, stream_id, hip_event_handle, source_queue_id, event_id
    FROM rocpd_hip_event
    UNION ALL
    SELECT r.id, r.guid, r.nid, r.pid, r.tid, r.start, r.\"end\", r.name_id, json_extract(b.extdata, '$.agent_id'),
        json_extract(b.extdata, '$.queue_id'), json_extract(b.extdata, '$.stream_id'),
        json_extract(b.extdata, '$.hip_event_handle'), json_extract(b.extdata, '$.source_queue_id'), r.event_id
    FROM rocpd_region AS r
    JOIN rocpd_event AS b ON b.id = r.event_id AND b.guid = r.guid
    JOIN rocpd_string AS k ON k.id = b.category_id AND k.guid = b.guid
    WHERE k.string = 'BARRIER'
) AS h
JOIN rocpd_event AS e ON e.id = h.event_id AND e.guid = h.guid
LEFT JOIN rocpd_string AS c ON c.id = e.category_id AND c.guid = e.guid
JOIN rocpd_string AS n ON n.id = h.name_id AND n.guid = h.guid
LEFT JOIN rocpd_info_agent AS a ON a.id = h.agent_id AND a.guid = h.guid
LEFT JOIN rocpd_info_queue AS q ON q.id = h.queue_id AND q.guid = h.guid
LEFT JOIN rocpd_info_stream AS s ON s.id = h.stream_id AND s.guid = h.guid
JOIN rocpd_info_process AS p ON p.id = h.pid AND p.guid = h.guid
JOIN rocpd_info_thread AS t ON t.id = h.tid AND t.guid = h.guid;
";

/// Whether a file has the view.
pub(super) fn is_there(connection: &Connection) -> rusqlite::Result<bool> {
    let mut found = connection.prepare("SELECT 1 FROM pragma_table_info('hip_events')")?;
    found.exists([])
}
