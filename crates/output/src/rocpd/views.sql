-- Views for people and for AMD's tools: their names and columns are AMD's. A join compares guids as well as ids, since files
-- may be united. Work without times has 0 for both: it is counted, but has no part in averages and in wall time. Times are
-- summed with TOTAL, which no number that a target invents makes overflow.

CREATE VIEW code_objects AS
SELECT o.id, o.guid, o.nid, p.pid, a.absolute_index AS agent_abs_index, o.uri, o.load_base, o.load_size, o.load_delta,
    o.storage_type AS storage_type_str,
    json_extract(o.extdata, '$.size') AS code_object_size,
    json_extract(o.extdata, '$.storage_type') AS storage_type,
    json_extract(o.extdata, '$.memory_base') AS memory_base,
    json_extract(o.extdata, '$.memory_size') AS memory_size
FROM rocpd_info_code_object AS o
JOIN rocpd_info_agent AS a ON (a.id, a.guid) = (o.agent_id, o.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (o.pid, o.guid);

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
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (s.pid, s.guid);

CREATE VIEW processes AS
SELECT n.id AS nid, n.machine_id, n.system_name, n.hostname, n.release AS system_release, n.version AS system_version,
    p.guid, p.ppid, p.pid, p.init, p.start, p."end", p.fini, p.command
FROM rocpd_info_process AS p
JOIN rocpd_info_node AS n ON (n.id, n.guid) = (p.nid, p.guid);

CREATE VIEW threads AS
SELECT n.id AS nid, n.machine_id, n.system_name, n.hostname, n.release AS system_release, n.version AS system_version,
    p.guid, p.ppid, p.pid, t.tid, t.start, t."end", t.name
FROM rocpd_info_thread AS t
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (t.pid, t.guid)
JOIN rocpd_info_node AS n ON (n.id, n.guid) = (t.nid, t.guid);

CREATE VIEW regions AS
SELECT r.id, r.guid, c.string AS category, s.string AS name, r.nid, p.pid, t.tid, r.start, r."end",
    r."end" - r.start AS duration, r.event_id, e.stack_id, e.parent_stack_id, e.correlation_id AS corr_id,
    e.extdata, e.call_stack, e.line_info
FROM rocpd_region AS r
JOIN rocpd_event AS e ON (e.id, e.guid) = (r.event_id, r.guid)
LEFT JOIN rocpd_string AS c ON (c.id, c.guid) = (e.category_id, e.guid)
JOIN rocpd_string AS s ON (s.id, s.guid) = (r.name_id, r.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (r.pid, r.guid)
JOIN rocpd_info_thread AS t ON (t.id, t.guid) = (r.tid, r.guid);

CREATE VIEW samples AS
SELECT s.id, s.guid, c.string AS category, n.string AS name, k.nid, p.pid, t.tid, s.timestamp,
    s.event_id, e.stack_id, e.parent_stack_id, e.correlation_id AS corr_id, e.extdata, e.call_stack, e.line_info
FROM rocpd_sample AS s
JOIN rocpd_track AS k ON (k.id, k.guid) = (s.track_id, s.guid)
JOIN rocpd_event AS e ON (e.id, e.guid) = (s.event_id, s.guid)
LEFT JOIN rocpd_string AS c ON (c.id, c.guid) = (e.category_id, e.guid)
LEFT JOIN rocpd_string AS n ON (n.id, n.guid) = (k.name_id, k.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (k.pid, k.guid)
JOIN rocpd_info_thread AS t ON (t.id, t.guid) = (k.tid, k.guid);

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
JOIN rocpd_arg AS a ON (a.event_id, a.guid) = (r.event_id, r.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (r.pid, r.guid);

CREATE VIEW events_args AS
SELECT e.id AS event_id, c.string AS category, e.stack_id, e.parent_stack_id, e.correlation_id,
    a.position AS arg_position, a.type AS arg_type, a.name AS arg_name, a.value AS arg_value,
    e.call_stack, e.line_info, a.extdata
FROM rocpd_arg AS a
JOIN rocpd_event AS e ON (e.id, e.guid) = (a.event_id, a.guid)
LEFT JOIN rocpd_string AS c ON (c.id, c.guid) = (e.category_id, e.guid);

-- Arguments that are streams, with the stream that they name.
CREATE VIEW stream_args AS
SELECT a.id AS argument_id, a.event_id, a.position AS arg_position, a.type AS arg_type, a.value AS arg_value,
    s.id AS stream_id, s.nid, p.pid, s.name AS stream_name, s.extdata
FROM rocpd_arg AS a
JOIN rocpd_info_stream AS s ON (s.id, s.guid) = (json_extract(a.extdata, '$.stream_id'), a.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (s.pid, s.guid)
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
JOIN rocpd_info_agent AS a ON (a.id, a.guid) = (d.agent_id, d.guid)
JOIN rocpd_event AS e ON (e.id, e.guid) = (d.event_id, d.guid)
LEFT JOIN rocpd_string AS c ON (c.id, c.guid) = (e.category_id, e.guid)
JOIN rocpd_string AS r ON (r.id, r.guid) = (d.region_name_id, d.guid)
JOIN rocpd_info_kernel_symbol AS s ON (s.id, s.guid) = (d.kernel_id, d.guid)
LEFT JOIN rocpd_info_stream AS m ON (m.id, m.guid) = (d.stream_id, d.guid)
LEFT JOIN rocpd_info_queue AS q ON (q.id, q.guid) = (d.queue_id, d.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (d.pid, d.guid)
JOIN rocpd_info_thread AS t ON (t.id, t.guid) = (d.tid, d.guid);

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
JOIN rocpd_string AS n ON (n.id, n.guid) = (m.name_id, m.guid)
LEFT JOIN rocpd_string AS r ON (r.id, r.guid) = (m.region_name_id, m.guid)
JOIN rocpd_info_agent AS d ON (d.id, d.guid) = (m.dst_agent_id, m.guid)
JOIN rocpd_info_agent AS f ON (f.id, f.guid) = (m.src_agent_id, m.guid)
LEFT JOIN rocpd_info_queue AS q ON (q.id, q.guid) = (m.queue_id, m.guid)
LEFT JOIN rocpd_info_stream AS s ON (s.id, s.guid) = (m.stream_id, m.guid)
JOIN rocpd_event AS e ON (e.id, e.guid) = (m.event_id, m.guid)
LEFT JOIN rocpd_string AS c ON (c.id, c.guid) = (e.category_id, e.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (m.pid, m.guid)
JOIN rocpd_info_thread AS t ON (t.id, t.guid) = (m.tid, m.guid);

-- Scratch memory is in here, too (level SCRATCH).
CREATE VIEW memory_allocations AS
SELECT m.id, m.guid, c.string AS category, m.nid, p.pid, t.tid, m.start, m."end", m."end" - m.start AS duration,
    m.type, m.level, a.name AS agent_name, a.absolute_index AS agent_abs_index, a.logical_index AS agent_log_index,
    a.type_index AS agent_type_index, a.type AS agent_type, m.address, m.size, m.queue_id, q.name AS queue_name,
    m.stream_id, s.name AS stream_name, e.stack_id, e.parent_stack_id, e.correlation_id AS corr_id
FROM rocpd_memory_allocate AS m
LEFT JOIN rocpd_info_agent AS a ON (a.id, a.guid) = (m.agent_id, m.guid)
LEFT JOIN rocpd_info_queue AS q ON (q.id, q.guid) = (m.queue_id, m.guid)
LEFT JOIN rocpd_info_stream AS s ON (s.id, s.guid) = (m.stream_id, m.guid)
JOIN rocpd_event AS e ON (e.id, e.guid) = (m.event_id, m.guid)
LEFT JOIN rocpd_string AS c ON (c.id, c.guid) = (e.category_id, e.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (m.pid, m.guid)
JOIN rocpd_info_thread AS t ON (t.id, t.guid) = (m.tid, m.guid);

CREATE VIEW scratch_memory AS
SELECT m.id, m.guid, m.nid, p.pid, m.type AS operation, a.name AS agent_name, a.absolute_index AS agent_abs_index,
    a.logical_index AS agent_log_index, a.type_index AS agent_type_index, a.type AS agent_type, m.queue_id, t.tid,
    json_extract(m.extdata, '$.flags') AS alloc_flags, m.start, m."end", m."end" - m.start AS duration,
    m.size, m.address, e.correlation_id, e.stack_id, e.parent_stack_id, e.correlation_id AS corr_id,
    c.string AS category, e.extdata AS event_extdata
FROM rocpd_memory_allocate AS m
LEFT JOIN rocpd_info_agent AS a ON (a.id, a.guid) = (m.agent_id, m.guid)
JOIN rocpd_event AS e ON (e.id, e.guid) = (m.event_id, m.guid)
LEFT JOIN rocpd_string AS c ON (c.id, c.guid) = (e.category_id, e.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (m.pid, m.guid)
JOIN rocpd_info_thread AS t ON (t.id, t.guid) = (m.tid, m.guid)
WHERE m.level = 'SCRATCH'
ORDER BY m.start;

CREATE VIEW graph_launches AS
SELECT g.id, g.guid, g.nid, p.pid, t.tid, g.agent_id, a.absolute_index AS agent_abs_index,
    a.logical_index AS agent_log_index, a.type_index AS agent_type_index, a.type AS agent_type,
    g.queue_id, q.name AS queue, 'Graph Execution' AS name, g.start, g."end", g."end" - g.start AS duration,
    g.graph_exec_id, g.kernel_dispatch_count, g.event_id, e.stack_id, e.parent_stack_id, e.correlation_id AS corr_id
FROM rocpd_graph_launch AS g
LEFT JOIN rocpd_info_agent AS a ON (a.id, a.guid) = (g.agent_id, g.guid)
LEFT JOIN rocpd_info_queue AS q ON (q.id, q.guid) = (g.queue_id, g.guid)
JOIN rocpd_event AS e ON (e.id, e.guid) = (g.event_id, g.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (g.pid, g.guid)
JOIN rocpd_info_thread AS t ON (t.id, t.guid) = (g.tid, g.guid);

CREATE VIEW pmc_info AS
SELECT i.id, i.guid, i.nid, p.pid, a.absolute_index AS agent_abs_index, i.is_constant, i.is_derived, i.name,
    i.description, i.block, i.expression
FROM rocpd_info_pmc AS i
JOIN rocpd_info_agent AS a ON (a.id, a.guid) = (i.agent_id, i.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (i.pid, i.guid);

CREATE VIEW pmc_events AS
SELECT v.id, v.guid, v.pmc_id, e.id AS event_id, c.string AS category, s.display_name AS name, d.nid, p.pid,
    d.dispatch_id, d.start, d."end", d."end" - d.start AS duration, i.name AS counter_name, v.value AS counter_value
FROM rocpd_pmc_event AS v
JOIN rocpd_info_pmc AS i ON (i.id, i.guid) = (v.pmc_id, v.guid)
JOIN rocpd_event AS e ON (e.id, e.guid) = (v.event_id, v.guid)
LEFT JOIN rocpd_string AS c ON (c.id, c.guid) = (e.category_id, e.guid)
JOIN rocpd_kernel_dispatch AS d ON (d.event_id, d.guid) = (v.event_id, v.guid)
LEFT JOIN rocpd_info_kernel_symbol AS s ON (s.id, s.guid) = (d.kernel_id, d.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (d.pid, d.guid);

-- Counters of whole dispatches: one row per dispatch, counter and agent, summed over the instances.
CREATE VIEW counters_collection AS
SELECT MIN(v.id) AS id, v.guid, d.dispatch_id, d.kernel_id, e.id AS event_id, e.correlation_id, e.stack_id,
    e.parent_stack_id, p.pid, t.tid, d.agent_id, a.absolute_index AS agent_abs_index,
    a.logical_index AS agent_log_index, a.type_index AS agent_type_index, a.type AS agent_type, d.queue_id,
    d.grid_size_x, d.grid_size_y, d.grid_size_z, d.grid_size_x * d.grid_size_y * d.grid_size_z AS grid_size,
    s.display_name AS kernel_name, r.string AS kernel_region,
    d.workgroup_size_x, d.workgroup_size_y, d.workgroup_size_z,
    d.workgroup_size_x * d.workgroup_size_y * d.workgroup_size_z AS workgroup_size,
    d.group_segment_size AS lds_block_size, d.private_segment_size AS scratch_size,
    s.arch_vgpr_count AS vgpr_count, s.accum_vgpr_count, s.sgpr_count,
    i.name AS counter_name, i.symbol AS counter_symbol, i.component, i.description, i.block, i.expression,
    i.value_type, i.id AS counter_id, SUM(v.value) AS value, d.start, d."end", i.is_constant, i.is_derived,
    d."end" - d.start AS duration, c.string AS category, d.nid, e.extdata, s.code_object_id
FROM rocpd_pmc_event AS v
JOIN rocpd_info_pmc AS i ON (i.id, i.guid) = (v.pmc_id, v.guid)
JOIN rocpd_event AS e ON (e.id, e.guid) = (v.event_id, v.guid)
LEFT JOIN rocpd_string AS c ON (c.id, c.guid) = (e.category_id, e.guid)
JOIN rocpd_kernel_dispatch AS d ON (d.event_id, d.guid) = (v.event_id, v.guid)
LEFT JOIN rocpd_string AS r ON (r.id, r.guid) = (d.region_name_id, d.guid)
JOIN rocpd_info_agent AS a ON (a.id, a.guid) = (d.agent_id, d.guid)
JOIN rocpd_info_kernel_symbol AS s ON (s.id, s.guid) = (d.kernel_id, d.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (d.pid, d.guid)
JOIN rocpd_info_thread AS t ON (t.id, t.guid) = (d.tid, d.guid)
WHERE v.sample_id IS NULL
GROUP BY v.guid, d.dispatch_id, i.name, d.agent_id;

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
JOIN rocpd_sample AS m ON (m.id, m.guid) = (v.sample_id, v.guid)
JOIN rocpd_info_pmc AS i ON (i.id, i.guid) = (v.pmc_id, v.guid)
JOIN rocpd_event AS e ON (e.id, e.guid) = (v.event_id, v.guid)
LEFT JOIN rocpd_string AS c ON (c.id, c.guid) = (e.category_id, e.guid)
JOIN rocpd_kernel_dispatch AS d ON (d.event_id, d.guid) = (v.event_id, v.guid)
LEFT JOIN rocpd_string AS r ON (r.id, r.guid) = (d.region_name_id, d.guid)
JOIN rocpd_info_agent AS a ON (a.id, a.guid) = (d.agent_id, d.guid)
JOIN rocpd_info_kernel_symbol AS s ON (s.id, s.guid) = (d.kernel_id, d.guid)
JOIN rocpd_info_process AS p ON (p.id, p.guid) = (d.pid, d.guid)
JOIN rocpd_info_thread AS t ON (t.id, t.guid) = (d.tid, d.guid);

-- Durations in microseconds.
CREATE VIEW top_kernels AS
WITH work (name, ns, timed) AS (
    SELECT s.display_name, d."end" - d.start, d."end" > 0
    FROM rocpd_kernel_dispatch AS d
    JOIN rocpd_info_kernel_symbol AS s ON (s.id, s.guid) = (d.kernel_id, d.guid)
)
SELECT name, COUNT(*) AS total_calls, TOTAL(ns) / 1000.0 AS total_duration, TOTAL(ns) / 1000.0 / SUM(timed) AS average,
    TOTAL(ns) * 100.0 / (SELECT TOTAL(ns) FROM work) AS percentage
FROM work
GROUP BY name
ORDER BY total_duration DESC;

-- Kernels, copies and calls; durations in microseconds.
CREATE VIEW top AS
WITH work (name, ns, timed) AS (
    SELECT s.display_name, d."end" - d.start, d."end" > 0
    FROM rocpd_kernel_dispatch AS d
    JOIN rocpd_info_kernel_symbol AS s ON (s.id, s.guid) = (d.kernel_id, d.guid)
    UNION ALL
    SELECT s.string, m."end" - m.start, m."end" > 0
    FROM rocpd_memory_copy AS m
    JOIN rocpd_string AS s ON (s.id, s.guid) = (m.name_id, m.guid)
    UNION ALL
    SELECT s.string, r."end" - r.start, 1
    FROM rocpd_region AS r
    JOIN rocpd_string AS s ON (s.id, s.guid) = (r.name_id, r.guid)
)
SELECT name, COUNT(*) AS total_calls, TOTAL(ns) / 1000.0 AS total_duration, TOTAL(ns) / 1000.0 / SUM(timed) AS average,
    TOTAL(ns) * 100.0 / (SELECT TOTAL(ns) FROM work) AS percentage
FROM work
GROUP BY name
ORDER BY total_duration DESC;

-- How much of the time from the first to the last work an agent was at work; a copy counts for its destination.
CREATE VIEW busy AS
WITH work (guid, agent_id, began, ended) AS (
    SELECT guid, agent_id, start, "end" FROM rocpd_kernel_dispatch WHERE "end" > 0
    UNION ALL
    SELECT guid, dst_agent_id, start, "end" FROM rocpd_memory_copy WHERE "end" > 0
),
wall (ns) AS (SELECT MAX(ended) - MIN(began) FROM work)
SELECT w.agent_id, a.type, CAST(TOTAL(w.ended - w.began) AS INTEGER) AS GpuTime, wall.ns AS WallTime,
    TOTAL(w.ended - w.began) / wall.ns AS Busy
FROM work AS w
JOIN wall
JOIN rocpd_info_agent AS a ON (a.id, a.guid) = (w.agent_id, w.guid)
GROUP BY w.guid, w.agent_id;
