-- Views for people and for AMD's tools: their names and columns are AMD's. A join compares guids as well as ids, since files
-- may be united. Work without times has 0 for both: it is counted, but has no part in averages and in wall time. Times are
-- summed as floating-point numbers, which no number that a target invents makes overflow. All of it is plain SQL: other programs
-- that read SQLite's files (DuckDB) run these views, too.

CREATE VIEW code_objects AS
SELECT o.id, o.guid, o.nid, p.pid, a.absolute_index AS agent_abs_index, o.uri, o.load_base, o.load_size, o.load_delta,
    o.storage_type AS storage_type_str,
    json_extract(o.extdata, '$.size') AS code_object_size,
    json_extract(o.extdata, '$.storage_type') AS storage_type,
    json_extract(o.extdata, '$.memory_base') AS memory_base,
    json_extract(o.extdata, '$.memory_size') AS memory_size
FROM rocpd_info_code_object AS o
JOIN rocpd_info_agent AS a ON a.id = o.agent_id AND a.guid = o.guid
JOIN rocpd_info_process AS p ON p.id = o.pid AND p.guid = o.guid;

CREATE VIEW kernel_symbols AS
SELECT s.id, s.guid, s.nid, p.pid, s.code_object_id, s.kernel_name, s.display_name, s.kernel_object,
    s.kernarg_segment_size, s.kernarg_segment_alignment, s.group_segment_size, s.private_segment_size,
    s.sgpr_count, s.arch_vgpr_count, s.accum_vgpr_count,
    json_extract(s.extdata, '$.size') AS kernel_symbol_size,
    json_extract(s.extdata, '$.kernel_id') AS kernel_id,
    json_extract(s.extdata, '$.kernel_code_entry_byte_offset') AS kernel_code_entry_byte_offset,
    json_extract(s.extdata, '$.formatted_kernel_name') AS formatted_kernel_name,
    json_extract(s.extdata, '$.demangled_kernel_name') AS demangled_kernel_name,
    json_extract(s.extdata, '$.truncated_kernel_name') AS truncated_kernel_name,
    json_extract(s.extdata, '$.kernel_address.handle') AS kernel_address
FROM rocpd_info_kernel_symbol AS s
JOIN rocpd_info_process AS p ON p.id = s.pid AND p.guid = s.guid;

CREATE VIEW processes AS
SELECT n.id AS nid, n.machine_id, n.system_name, n.hostname, n.release AS system_release, n.version AS system_version,
    p.guid, p.ppid, p.pid, p.init, p.start, p."end", p.fini, p.command
FROM rocpd_info_process AS p
JOIN rocpd_info_node AS n ON n.id = p.nid AND n.guid = p.guid;

CREATE VIEW threads AS
SELECT n.id AS nid, n.machine_id, n.system_name, n.hostname, n.release AS system_release, n.version AS system_version,
    p.guid, p.ppid, p.pid, t.tid, t.start, t."end", t.name
FROM rocpd_info_thread AS t
JOIN rocpd_info_process AS p ON p.id = t.pid AND p.guid = t.guid
JOIN rocpd_info_node AS n ON n.id = t.nid AND n.guid = t.guid;

CREATE VIEW regions AS
SELECT r.id, r.guid, c.string AS category, s.string AS name, r.nid, p.pid, t.tid, r.start, r."end",
    r."end" - r.start AS duration, r.event_id, e.stack_id, e.parent_stack_id, e.correlation_id AS corr_id,
    e.extdata, COALESCE(k.string, e.call_stack) AS call_stack, e.line_info
FROM rocpd_region AS r
JOIN rocpd_event AS e ON e.id = r.event_id AND e.guid = r.guid
LEFT JOIN rocpd_string AS k ON k.id = json_extract(e.call_stack, '$.id') AND k.guid = e.guid
LEFT JOIN rocpd_string AS c ON c.id = e.category_id AND c.guid = e.guid
JOIN rocpd_string AS s ON s.id = r.name_id AND s.guid = r.guid
JOIN rocpd_info_process AS p ON p.id = r.pid AND p.guid = r.guid
JOIN rocpd_info_thread AS t ON t.id = r.tid AND t.guid = r.guid;

CREATE VIEW samples AS
SELECT s.id, s.guid, c.string AS category, n.string AS name, k.nid, p.pid, t.tid, s.timestamp,
    s.event_id, e.stack_id, e.parent_stack_id, e.correlation_id AS corr_id, e.extdata,
    COALESCE(x.string, e.call_stack) AS call_stack, e.line_info
FROM rocpd_sample AS s
JOIN rocpd_track AS k ON k.id = s.track_id AND k.guid = s.guid
JOIN rocpd_event AS e ON e.id = s.event_id AND e.guid = s.guid
LEFT JOIN rocpd_string AS x ON x.id = json_extract(e.call_stack, '$.id') AND x.guid = e.guid
LEFT JOIN rocpd_string AS c ON c.id = e.category_id AND c.guid = e.guid
LEFT JOIN rocpd_string AS n ON n.id = k.name_id AND n.guid = k.guid
JOIN rocpd_info_process AS p ON p.id = k.pid AND p.guid = k.guid
JOIN rocpd_info_thread AS t ON t.id = k.tid AND t.guid = k.guid;

-- A row for each frame of each stack at which something was launched, the innermost first.
CREATE VIEW call_stacks AS
SELECT e.guid, e.id AS event_id, e.stack_id, f.key AS depth,
    json_extract(f.value, '$.program_counter.function') AS function,
    json_extract(f.value, '$.program_counter.filename') AS file,
    json_extract(f.value, '$.program_counter.line_number') AS line
FROM rocpd_event AS e
JOIN rocpd_string AS s ON s.id = json_extract(e.call_stack, '$.id') AND s.guid = e.guid
CROSS JOIN json_each(s.string, '$.frames') AS f;

-- Samples as regions of no length.
CREATE VIEW sample_regions AS
SELECT id, guid, category, name, nid, pid, tid, timestamp AS start, timestamp AS "end", 0 AS duration,
    event_id, stack_id, parent_stack_id, corr_id, extdata, call_stack, line_info
FROM samples;

CREATE VIEW regions_and_samples AS
SELECT * FROM regions UNION ALL SELECT * FROM sample_regions;

CREATE VIEW region_args AS
SELECT r.id, r.guid, r.nid, p.pid, a.type, a.name, a.value
FROM rocpd_region AS r
JOIN rocpd_arg AS a ON a.event_id = r.event_id AND a.guid = r.guid
JOIN rocpd_info_process AS p ON p.id = r.pid AND p.guid = r.guid;

CREATE VIEW events_args AS
SELECT e.id AS event_id, c.string AS category, e.stack_id, e.parent_stack_id, e.correlation_id,
    a.position AS arg_position, a.type AS arg_type, a.name AS arg_name, a.value AS arg_value,
    COALESCE(k.string, e.call_stack) AS call_stack, e.line_info, a.extdata
FROM rocpd_arg AS a
JOIN rocpd_event AS e ON e.id = a.event_id AND e.guid = a.guid
LEFT JOIN rocpd_string AS k ON k.id = json_extract(e.call_stack, '$.id') AND k.guid = e.guid
LEFT JOIN rocpd_string AS c ON c.id = e.category_id AND c.guid = e.guid;

-- Arguments that are streams, with the stream that they name.
CREATE VIEW stream_args AS
SELECT a.id AS argument_id, a.event_id, a.position AS arg_position, a.type AS arg_type, a.value AS arg_value,
    s.id AS stream_id, s.nid, p.pid, s.name AS stream_name, s.extdata
FROM rocpd_arg AS a
JOIN rocpd_info_stream AS s ON s.id = json_extract(a.extdata, '$.stream_id') AND s.guid = a.guid
JOIN rocpd_info_process AS p ON p.id = s.pid AND p.guid = s.guid
WHERE a.name = 'stream';

CREATE VIEW kernels AS
SELECT d.id, d.guid, t.tid, c.string AS category, r.string AS region, s.display_name AS name, d.nid, p.pid,
    a.absolute_index AS agent_abs_index, a.logical_index AS agent_log_index, a.type_index AS agent_type_index,
    a.type AS agent_type, s.code_object_id, d.kernel_id, d.dispatch_id, d.stream_id, d.queue_id,
    d.graph_exec_id, d.graph_node_id, q.name AS queue, m.name AS stream, d.start, d."end", d."end" - d.start AS duration,
    d.grid_size_x AS grid_x, d.grid_size_y AS grid_y, d.grid_size_z AS grid_z,
    d.workgroup_size_x AS workgroup_x, d.workgroup_size_y AS workgroup_y, d.workgroup_size_z AS workgroup_z,
    d.group_segment_size AS lds_size, d.private_segment_size AS scratch_size,
    s.arch_vgpr_count AS vgpr_count, s.accum_vgpr_count, s.sgpr_count,
    s.group_segment_size AS static_lds_size, s.private_segment_size AS static_scratch_size,
    d.event_id, e.stack_id, e.parent_stack_id, e.correlation_id AS corr_id
FROM rocpd_kernel_dispatch AS d
JOIN rocpd_info_agent AS a ON a.id = d.agent_id AND a.guid = d.guid
JOIN rocpd_event AS e ON e.id = d.event_id AND e.guid = d.guid
LEFT JOIN rocpd_string AS c ON c.id = e.category_id AND c.guid = e.guid
JOIN rocpd_string AS r ON r.id = d.region_name_id AND r.guid = d.guid
JOIN rocpd_info_kernel_symbol AS s ON s.id = d.kernel_id AND s.guid = d.guid
LEFT JOIN rocpd_info_stream AS m ON m.id = d.stream_id AND m.guid = d.guid
LEFT JOIN rocpd_info_queue AS q ON q.id = d.queue_id AND q.guid = d.guid
JOIN rocpd_info_process AS p ON p.id = d.pid AND p.guid = d.guid
JOIN rocpd_info_thread AS t ON t.id = d.tid AND t.guid = d.guid;

CREATE VIEW memory_copies AS
SELECT m.id, m.guid, c.string AS category, m.nid, p.pid, t.tid, m.start, m."end", m."end" - m.start AS duration,
    n.string AS name, r.string AS region_name, m.stream_id, m.queue_id, m.graph_exec_id, m.graph_node_id,
    s.name AS stream_name, q.name AS queue_name, m.size,
    d.name AS dst_device, d.absolute_index AS dst_agent_abs_index, d.logical_index AS dst_agent_log_index,
    d.type_index AS dst_agent_type_index, d.type AS dst_agent_type, m.dst_address,
    f.name AS src_device, f.absolute_index AS src_agent_abs_index, f.logical_index AS src_agent_log_index,
    f.type_index AS src_agent_type_index, f.type AS src_agent_type, m.src_address,
    e.stack_id, e.parent_stack_id, e.correlation_id AS corr_id
FROM rocpd_memory_copy AS m
JOIN rocpd_string AS n ON n.id = m.name_id AND n.guid = m.guid
LEFT JOIN rocpd_string AS r ON r.id = m.region_name_id AND r.guid = m.guid
JOIN rocpd_info_agent AS d ON d.id = m.dst_agent_id AND d.guid = m.guid
JOIN rocpd_info_agent AS f ON f.id = m.src_agent_id AND f.guid = m.guid
LEFT JOIN rocpd_info_queue AS q ON q.id = m.queue_id AND q.guid = m.guid
LEFT JOIN rocpd_info_stream AS s ON s.id = m.stream_id AND s.guid = m.guid
JOIN rocpd_event AS e ON e.id = m.event_id AND e.guid = m.guid
LEFT JOIN rocpd_string AS c ON c.id = e.category_id AND c.guid = e.guid
JOIN rocpd_info_process AS p ON p.id = m.pid AND p.guid = m.guid
JOIN rocpd_info_thread AS t ON t.id = m.tid AND t.guid = m.guid;

-- Scratch memory is in here, too (level SCRATCH).
CREATE VIEW memory_allocations AS
SELECT m.id, m.guid, c.string AS category, m.nid, p.pid, t.tid, m.start, m."end", m."end" - m.start AS duration,
    m.type, m.level, a.name AS agent_name, a.absolute_index AS agent_abs_index, a.logical_index AS agent_log_index,
    a.type_index AS agent_type_index, a.type AS agent_type, m.address, m.size, m.queue_id, q.name AS queue_name,
    m.stream_id, s.name AS stream_name, e.stack_id, e.parent_stack_id, e.correlation_id AS corr_id
FROM rocpd_memory_allocate AS m
LEFT JOIN rocpd_info_agent AS a ON a.id = m.agent_id AND a.guid = m.guid
LEFT JOIN rocpd_info_queue AS q ON q.id = m.queue_id AND q.guid = m.guid
LEFT JOIN rocpd_info_stream AS s ON s.id = m.stream_id AND s.guid = m.guid
JOIN rocpd_event AS e ON e.id = m.event_id AND e.guid = m.guid
LEFT JOIN rocpd_string AS c ON c.id = e.category_id AND c.guid = e.guid
JOIN rocpd_info_process AS p ON p.id = m.pid AND p.guid = m.guid
JOIN rocpd_info_thread AS t ON t.id = m.tid AND t.guid = m.guid;

CREATE VIEW scratch_memory AS
SELECT m.id, m.guid, m.nid, p.pid, m.type AS operation, a.name AS agent_name, a.absolute_index AS agent_abs_index,
    a.logical_index AS agent_log_index, a.type_index AS agent_type_index, a.type AS agent_type, m.queue_id, t.tid,
    json_extract(m.extdata, '$.flags') AS alloc_flags, m.start, m."end", m."end" - m.start AS duration,
    m.size, m.address, e.correlation_id, e.stack_id, e.parent_stack_id, e.correlation_id AS corr_id,
    c.string AS category, e.extdata AS event_extdata
FROM rocpd_memory_allocate AS m
LEFT JOIN rocpd_info_agent AS a ON a.id = m.agent_id AND a.guid = m.guid
JOIN rocpd_event AS e ON e.id = m.event_id AND e.guid = m.guid
LEFT JOIN rocpd_string AS c ON c.id = e.category_id AND c.guid = e.guid
JOIN rocpd_info_process AS p ON p.id = m.pid AND p.guid = m.guid
JOIN rocpd_info_thread AS t ON t.id = m.tid AND t.guid = m.guid
WHERE m.level = 'SCRATCH'
ORDER BY m.start;

CREATE VIEW graph_launches AS
SELECT g.id, g.guid, g.nid, p.pid, t.tid, g.agent_id, a.absolute_index AS agent_abs_index,
    a.logical_index AS agent_log_index, a.type_index AS agent_type_index, a.type AS agent_type,
    g.queue_id, q.name AS queue, 'Graph Execution' AS name, g.start, g."end", g."end" - g.start AS duration,
    g.graph_exec_id, g.kernel_dispatch_count, g.event_id, e.stack_id, e.parent_stack_id, e.correlation_id AS corr_id
FROM rocpd_graph_launch AS g
LEFT JOIN rocpd_info_agent AS a ON a.id = g.agent_id AND a.guid = g.guid
LEFT JOIN rocpd_info_queue AS q ON q.id = g.queue_id AND q.guid = g.guid
JOIN rocpd_event AS e ON e.id = g.event_id AND e.guid = g.guid
JOIN rocpd_info_process AS p ON p.id = g.pid AND p.guid = g.guid
JOIN rocpd_info_thread AS t ON t.id = g.tid AND t.guid = g.guid;

CREATE VIEW pmc_info AS
SELECT i.id, i.guid, i.nid, p.pid, a.absolute_index AS agent_abs_index, i.is_constant, i.is_derived, i.name,
    i.description, i.block, i.expression
FROM rocpd_info_pmc AS i
JOIN rocpd_info_agent AS a ON a.id = i.agent_id AND a.guid = i.guid
JOIN rocpd_info_process AS p ON p.id = i.pid AND p.guid = i.guid;

CREATE VIEW pmc_events AS
SELECT v.id, v.guid, v.pmc_id, e.id AS event_id, c.string AS category, s.display_name AS name, d.nid, p.pid,
    d.dispatch_id, d.start, d."end", d."end" - d.start AS duration, i.name AS counter_name, v.value AS counter_value
FROM rocpd_pmc_event AS v
JOIN rocpd_info_pmc AS i ON i.id = v.pmc_id AND i.guid = v.guid
JOIN rocpd_event AS e ON e.id = v.event_id AND e.guid = v.guid
LEFT JOIN rocpd_string AS c ON c.id = e.category_id AND c.guid = e.guid
JOIN rocpd_kernel_dispatch AS d ON d.event_id = v.event_id AND d.guid = v.guid
LEFT JOIN rocpd_info_kernel_symbol AS s ON s.id = d.kernel_id AND s.guid = d.guid
JOIN rocpd_info_process AS p ON p.id = d.pid AND p.guid = d.guid;

-- Counters of whole dispatches: one row per dispatch, counter and agent, summed over the instances.
CREATE VIEW counters_collection AS
WITH counted (id, guid, event_id, pmc_id, value) AS (
    SELECT MIN(v.id), v.guid, v.event_id, MIN(v.pmc_id), SUM(v.value)
    FROM rocpd_pmc_event AS v
    JOIN rocpd_info_pmc AS i ON i.id = v.pmc_id AND i.guid = v.guid
    WHERE v.sample_id IS NULL
    GROUP BY v.guid, v.event_id, i.name
)
SELECT v.id, v.guid, d.dispatch_id, d.kernel_id, e.id AS event_id, e.correlation_id, e.stack_id,
    e.parent_stack_id, p.pid, t.tid, d.agent_id, a.absolute_index AS agent_abs_index,
    a.logical_index AS agent_log_index, a.type_index AS agent_type_index, a.type AS agent_type, d.queue_id,
    d.grid_size_x, d.grid_size_y, d.grid_size_z, d.grid_size_x * d.grid_size_y * d.grid_size_z AS grid_size,
    s.display_name AS kernel_name, r.string AS kernel_region,
    d.workgroup_size_x, d.workgroup_size_y, d.workgroup_size_z,
    d.workgroup_size_x * d.workgroup_size_y * d.workgroup_size_z AS workgroup_size,
    d.group_segment_size AS lds_block_size, d.private_segment_size AS scratch_size,
    s.arch_vgpr_count AS vgpr_count, s.accum_vgpr_count, s.sgpr_count,
    i.name AS counter_name, i.symbol AS counter_symbol, i.component, i.description, i.block, i.expression,
    i.value_type, i.id AS counter_id, v.value, d.start, d."end", i.is_constant, i.is_derived,
    d."end" - d.start AS duration, c.string AS category, d.nid, e.extdata, s.code_object_id
FROM counted AS v
JOIN rocpd_info_pmc AS i ON i.id = v.pmc_id AND i.guid = v.guid
JOIN rocpd_event AS e ON e.id = v.event_id AND e.guid = v.guid
LEFT JOIN rocpd_string AS c ON c.id = e.category_id AND c.guid = e.guid
JOIN rocpd_kernel_dispatch AS d ON d.event_id = v.event_id AND d.guid = v.guid
LEFT JOIN rocpd_string AS r ON r.id = d.region_name_id AND r.guid = d.guid
JOIN rocpd_info_agent AS a ON a.id = d.agent_id AND a.guid = d.guid
JOIN rocpd_info_kernel_symbol AS s ON s.id = d.kernel_id AND s.guid = d.guid
JOIN rocpd_info_process AS p ON p.id = d.pid AND p.guid = d.guid
JOIN rocpd_info_thread AS t ON t.id = d.tid AND t.guid = d.guid
ORDER BY v.guid, d.dispatch_id, i.name, d.agent_id;

-- Counters that were sampled while a dispatch ran: one row per sample.
CREATE VIEW spm_counters AS
SELECT v.id, v.guid, d.dispatch_id, d.kernel_id, e.id AS event_id, e.correlation_id, e.stack_id,
    e.parent_stack_id, p.pid, t.tid, d.agent_id, a.absolute_index AS agent_abs_index,
    a.logical_index AS agent_log_index, a.type_index AS agent_type_index, a.type AS agent_type, d.queue_id,
    d.grid_size_x, d.grid_size_y, d.grid_size_z, d.grid_size_x * d.grid_size_y * d.grid_size_z AS grid_size,
    s.display_name AS kernel_name, r.string AS kernel_region,
    d.workgroup_size_x, d.workgroup_size_y, d.workgroup_size_z,
    d.workgroup_size_x * d.workgroup_size_y * d.workgroup_size_z AS workgroup_size,
    d.group_segment_size AS lds_block_size, d.private_segment_size AS scratch_size,
    s.arch_vgpr_count AS vgpr_count, s.accum_vgpr_count, s.sgpr_count,
    i.name AS counter_name, i.symbol AS counter_symbol, i.component, i.description, i.block, i.expression,
    i.value_type, i.id AS counter_id, v.xcc, v.shader_engine, v.instance, v.value, m.timestamp,
    i.is_constant, i.is_derived, c.string AS category, d.nid, e.extdata, s.code_object_id
FROM rocpd_pmc_event AS v
JOIN rocpd_sample AS m ON m.id = v.sample_id AND m.guid = v.guid
JOIN rocpd_info_pmc AS i ON i.id = v.pmc_id AND i.guid = v.guid
JOIN rocpd_event AS e ON e.id = v.event_id AND e.guid = v.guid
LEFT JOIN rocpd_string AS c ON c.id = e.category_id AND c.guid = e.guid
JOIN rocpd_kernel_dispatch AS d ON d.event_id = v.event_id AND d.guid = v.guid
LEFT JOIN rocpd_string AS r ON r.id = d.region_name_id AND r.guid = d.guid
JOIN rocpd_info_agent AS a ON a.id = d.agent_id AND a.guid = d.guid
JOIN rocpd_info_kernel_symbol AS s ON s.id = d.kernel_id AND s.guid = d.guid
JOIN rocpd_info_process AS p ON p.id = d.pid AND p.guid = d.guid
JOIN rocpd_info_thread AS t ON t.id = d.tid AND t.guid = d.guid;

-- Durations in microseconds.
CREATE VIEW top_kernels AS
WITH work (id, guid, calls, ns, timed) AS (
    SELECT kernel_id, guid, COUNT(*), SUM(CAST("end" - start AS DOUBLE)), COUNT(NULLIF("end", 0))
    FROM rocpd_kernel_dispatch
    GROUP BY kernel_id, guid
),
whole (ns) AS (SELECT SUM(ns) FROM work)
SELECT s.display_name AS name, SUM(w.calls) AS total_calls, SUM(w.ns) / 1000.0 AS total_duration,
    SUM(w.ns) / 1000.0 / NULLIF(SUM(w.timed), 0) AS average, SUM(w.ns) * 100.0 / NULLIF(MAX(whole.ns), 0) AS percentage
FROM work AS w
CROSS JOIN whole
JOIN rocpd_info_kernel_symbol AS s ON s.id = w.id AND s.guid = w.guid
GROUP BY s.display_name
ORDER BY total_duration DESC;

-- Kernels, copies and calls; durations in microseconds. They are summed up by the numbers of their names before the names are
-- looked up.
CREATE VIEW top AS
WITH work (name, calls, ns, timed) AS (
    SELECT s.display_name, d.calls, d.ns, d.timed
    FROM (
        SELECT kernel_id, guid, COUNT(*) AS calls, SUM(CAST("end" - start AS DOUBLE)) AS ns,
            COUNT(NULLIF("end", 0)) AS timed
        FROM rocpd_kernel_dispatch
        GROUP BY kernel_id, guid
    ) AS d
    JOIN rocpd_info_kernel_symbol AS s ON s.id = d.kernel_id AND s.guid = d.guid
    UNION ALL
    SELECT s.string, m.calls, m.ns, m.timed
    FROM (
        SELECT name_id, guid, COUNT(*) AS calls, SUM(CAST("end" - start AS DOUBLE)) AS ns,
            COUNT(NULLIF("end", 0)) AS timed
        FROM rocpd_memory_copy
        GROUP BY name_id, guid
    ) AS m
    JOIN rocpd_string AS s ON s.id = m.name_id AND s.guid = m.guid
    UNION ALL
    SELECT s.string, r.calls, r.ns, r.calls
    FROM (
        SELECT name_id, guid, COUNT(*) AS calls, SUM(CAST("end" - start AS DOUBLE)) AS ns
        FROM rocpd_region
        GROUP BY name_id, guid
    ) AS r
    JOIN rocpd_string AS s ON s.id = r.name_id AND s.guid = r.guid
),
whole (ns) AS (SELECT SUM(ns) FROM work)
SELECT w.name, SUM(w.calls) AS total_calls, SUM(w.ns) / 1000.0 AS total_duration,
    SUM(w.ns) / 1000.0 / NULLIF(SUM(w.timed), 0) AS average, SUM(w.ns) * 100.0 / NULLIF(MAX(whole.ns), 0) AS percentage
FROM work AS w
CROSS JOIN whole
GROUP BY w.name
ORDER BY total_duration DESC;

-- How much of the time from the first to the last work an agent was at work; a copy counts for its destination.
CREATE VIEW busy AS
WITH work (guid, agent_id, began, ended) AS (
    SELECT guid, agent_id, start, "end" FROM rocpd_kernel_dispatch WHERE "end" > 0
    UNION ALL
    SELECT guid, dst_agent_id, start, "end" FROM rocpd_memory_copy WHERE "end" > 0
),
wall (ns) AS (SELECT MAX(ended) - MIN(began) FROM work),
parts (guid, agent_id, ns) AS (
    SELECT guid, agent_id, SUM(CAST(ended - began AS DOUBLE)) FROM work GROUP BY agent_id, guid
)
SELECT w.agent_id, a.type, CAST(w.ns AS BIGINT) AS GpuTime, wall.ns AS WallTime, w.ns / NULLIF(wall.ns, 0) AS Busy
FROM parts AS w
CROSS JOIN wall
JOIN rocpd_info_agent AS a ON a.id = w.agent_id AND a.guid = w.guid
ORDER BY w.guid, w.agent_id;
