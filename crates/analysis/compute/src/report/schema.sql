-- Tables and views of an analysis database, schema 2.4.0 (names and types: docs/sources.md#compute).
CREATE TABLE compute_workload (
    workload_id INTEGER NOT NULL PRIMARY KEY,
    name VARCHAR,
    sub_name VARCHAR,
    sys_info_extdata JSON,
    profiling_config_extdata JSON,
    roofline_bench_extdata JSON,
    UNIQUE (name, sub_name)
);
CREATE TABLE compute_metadata (
    id INTEGER NOT NULL PRIMARY KEY,
    compute_version VARCHAR,
    git_version VARCHAR,
    schema_version VARCHAR
);
CREATE TABLE compute_kernel (
    kernel_uuid INTEGER NOT NULL PRIMARY KEY,
    workload_id INTEGER NOT NULL,
    kernel_name VARCHAR,
    short_name VARCHAR,
    FOREIGN KEY (workload_id) REFERENCES compute_workload (workload_id),
    UNIQUE (workload_id, kernel_name)
);
CREATE TABLE compute_dispatch (
    dispatch_uuid INTEGER NOT NULL PRIMARY KEY,
    kernel_uuid INTEGER NOT NULL,
    dispatch_id INTEGER,
    gpu_id INTEGER,
    start_timestamp INTEGER,
    end_timestamp INTEGER,
    FOREIGN KEY (kernel_uuid) REFERENCES compute_kernel (kernel_uuid),
    UNIQUE (kernel_uuid, dispatch_id)
);
CREATE TABLE compute_metric_definition (
    metric_uuid INTEGER NOT NULL PRIMARY KEY,
    workload_id INTEGER NOT NULL,
    metric_id VARCHAR,
    name VARCHAR,
    description TEXT,
    table_name VARCHAR,
    sub_table_name VARCHAR,
    unit VARCHAR,
    FOREIGN KEY (workload_id) REFERENCES compute_workload (workload_id),
    UNIQUE (workload_id, metric_id)
);
CREATE TABLE compute_kernel_metric_value (
    value_uuid INTEGER NOT NULL PRIMARY KEY,
    kernel_uuid INTEGER NOT NULL,
    metric_uuid INTEGER NOT NULL,
    value_name VARCHAR,
    value FLOAT,
    FOREIGN KEY (kernel_uuid) REFERENCES compute_kernel (kernel_uuid),
    FOREIGN KEY (metric_uuid) REFERENCES compute_metric_definition (metric_uuid),
    UNIQUE (kernel_uuid, metric_uuid, value_name)
);
CREATE TABLE compute_workload_metric_value (
    value_uuid INTEGER NOT NULL PRIMARY KEY,
    workload_id INTEGER NOT NULL,
    metric_uuid INTEGER NOT NULL,
    value_name VARCHAR,
    value FLOAT,
    FOREIGN KEY (metric_uuid) REFERENCES compute_metric_definition (metric_uuid),
    FOREIGN KEY (workload_id) REFERENCES compute_workload (workload_id),
    UNIQUE (workload_id, metric_uuid, value_name)
);
CREATE TABLE compute_kernel_roofline_data (
    roofline_uuid INTEGER NOT NULL PRIMARY KEY,
    kernel_uuid INTEGER NOT NULL,
    total_flops FLOAT,
    l0_cache_data FLOAT,
    l1_cache_data FLOAT,
    l2_cache_data FLOAT,
    hbm_cache_data FLOAT,
    lds_cache_data FLOAT,
    FOREIGN KEY (kernel_uuid) REFERENCES compute_kernel (kernel_uuid),
    UNIQUE (kernel_uuid)
);
CREATE TABLE compute_workload_roofline_data (
    roofline_uuid INTEGER NOT NULL PRIMARY KEY,
    workload_id INTEGER NOT NULL,
    total_flops FLOAT,
    l0_cache_data FLOAT,
    l1_cache_data FLOAT,
    l2_cache_data FLOAT,
    hbm_cache_data FLOAT,
    lds_cache_data FLOAT,
    FOREIGN KEY (workload_id) REFERENCES compute_workload (workload_id),
    UNIQUE (workload_id)
);
CREATE TABLE compute_memchart_block (
    block_uuid INTEGER NOT NULL PRIMARY KEY,
    workload_id INTEGER NOT NULL,
    block_id VARCHAR,
    title VARCHAR,
    parent_block_uuid INTEGER,
    position VARCHAR,
    grid_column INTEGER,
    sort_order INTEGER,
    FOREIGN KEY (parent_block_uuid) REFERENCES compute_memchart_block (block_uuid),
    FOREIGN KEY (workload_id) REFERENCES compute_workload (workload_id),
    UNIQUE (workload_id, block_id)
);
CREATE TABLE compute_memchart_block_metric (
    block_metric_uuid INTEGER NOT NULL PRIMARY KEY,
    block_uuid INTEGER NOT NULL,
    metric_uuid INTEGER NOT NULL,
    label VARCHAR,
    category VARCHAR,
    sort_order INTEGER,
    FOREIGN KEY (block_uuid) REFERENCES compute_memchart_block (block_uuid),
    FOREIGN KEY (metric_uuid) REFERENCES compute_metric_definition (metric_uuid),
    UNIQUE (block_uuid, sort_order)
);
CREATE TABLE compute_memchart_arrow (
    arrow_uuid INTEGER NOT NULL PRIMARY KEY,
    workload_id INTEGER NOT NULL,
    from_block_uuid INTEGER NOT NULL,
    to_block_uuid INTEGER NOT NULL,
    metric_uuid INTEGER NOT NULL,
    label VARCHAR,
    group_label VARCHAR,
    category VARCHAR,
    direction VARCHAR,
    sort_order INTEGER,
    FOREIGN KEY (from_block_uuid) REFERENCES compute_memchart_block (block_uuid),
    FOREIGN KEY (metric_uuid) REFERENCES compute_metric_definition (metric_uuid),
    FOREIGN KEY (to_block_uuid) REFERENCES compute_memchart_block (block_uuid),
    FOREIGN KEY (workload_id) REFERENCES compute_workload (workload_id),
    UNIQUE (workload_id, sort_order)
);
CREATE TABLE compute_code_object_store (
    code_object_uuid INTEGER NOT NULL PRIMARY KEY,
    workload_id INTEGER NOT NULL,
    pid INTEGER,
    code_object_id INTEGER,
    load_base INTEGER,
    FOREIGN KEY (workload_id) REFERENCES compute_workload (workload_id),
    UNIQUE (workload_id, pid, code_object_id)
);
CREATE TABLE compute_kernel_symbol (
    kernel_symbol_uuid INTEGER NOT NULL PRIMARY KEY,
    code_object_uuid INTEGER NOT NULL,
    kernel_uuid INTEGER,
    code_object_offset INTEGER,
    FOREIGN KEY (code_object_uuid) REFERENCES compute_code_object_store (code_object_uuid),
    FOREIGN KEY (kernel_uuid) REFERENCES compute_kernel (kernel_uuid),
    UNIQUE (code_object_uuid, code_object_offset),
    UNIQUE (code_object_uuid, kernel_uuid)
);
CREATE TABLE compute_instruction_type_lookup (
    instruction_type_lookup_uuid INTEGER NOT NULL PRIMARY KEY,
    text VARCHAR,
    UNIQUE (text)
);
CREATE TABLE compute_instruction_line (
    instruction_uuid INTEGER NOT NULL PRIMARY KEY,
    kernel_symbol_uuid INTEGER NOT NULL,
    instruction_type_uuid INTEGER,
    code_object_offset INTEGER,
    instruction TEXT,
    FOREIGN KEY (instruction_type_uuid) REFERENCES compute_instruction_type_lookup (instruction_type_lookup_uuid),
    FOREIGN KEY (kernel_symbol_uuid) REFERENCES compute_kernel_symbol (kernel_symbol_uuid),
    UNIQUE (kernel_symbol_uuid, code_object_offset)
);
CREATE TABLE compute_pc_sample_state (
    pc_sample_state_uuid INTEGER NOT NULL PRIMARY KEY,
    instruction_uuid INTEGER NOT NULL,
    dispatch_uuid INTEGER,
    total_count INTEGER,
    issue_count INTEGER,
    stall_count INTEGER,
    wave_occupancy_percent FLOAT,
    active_thread_percent FLOAT,
    FOREIGN KEY (dispatch_uuid) REFERENCES compute_dispatch (dispatch_uuid),
    FOREIGN KEY (instruction_uuid) REFERENCES compute_instruction_line (instruction_uuid)
);
CREATE TABLE compute_instruction_sample_lookup (
    instruction_sample_lookup_uuid INTEGER NOT NULL PRIMARY KEY,
    text VARCHAR,
    UNIQUE (text)
);
CREATE TABLE compute_instruction_sample (
    instruction_sample_uuid INTEGER NOT NULL PRIMARY KEY,
    pc_sample_state_uuid INTEGER NOT NULL,
    instruction_sample_lookup_uuid INTEGER NOT NULL,
    count INTEGER,
    FOREIGN KEY (instruction_sample_lookup_uuid) REFERENCES compute_instruction_sample_lookup (instruction_sample_lookup_uuid),
    FOREIGN KEY (pc_sample_state_uuid) REFERENCES compute_pc_sample_state (pc_sample_state_uuid)
);
CREATE TABLE compute_pc_sample_stall_reason_lookup (
    pc_sample_stall_reason_lookup_uuid INTEGER NOT NULL PRIMARY KEY,
    text VARCHAR,
    UNIQUE (text)
);
CREATE TABLE compute_pc_sample_stall_reason (
    pc_sample_stall_reason_uuid INTEGER NOT NULL PRIMARY KEY,
    pc_sample_state_uuid INTEGER NOT NULL,
    pc_sample_stall_reason_lookup_uuid INTEGER NOT NULL,
    count INTEGER,
    FOREIGN KEY (pc_sample_stall_reason_lookup_uuid) REFERENCES compute_pc_sample_stall_reason_lookup (pc_sample_stall_reason_lookup_uuid),
    FOREIGN KEY (pc_sample_state_uuid) REFERENCES compute_pc_sample_state (pc_sample_state_uuid)
);
CREATE TABLE compute_source_file (
    source_file_uuid INTEGER NOT NULL PRIMARY KEY,
    workload_id INTEGER NOT NULL,
    file_path TEXT,
    md5_checksum VARCHAR,
    FOREIGN KEY (workload_id) REFERENCES compute_workload (workload_id),
    UNIQUE (workload_id, file_path)
);
CREATE TABLE compute_source_line (
    source_line_uuid INTEGER NOT NULL PRIMARY KEY,
    source_file_uuid INTEGER NOT NULL,
    line_number INTEGER,
    content TEXT,
    FOREIGN KEY (source_file_uuid) REFERENCES compute_source_file (source_file_uuid),
    UNIQUE (source_file_uuid, line_number)
);
CREATE TABLE compute_instruction_source_line (
    instruction_source_line_uuid INTEGER NOT NULL PRIMARY KEY,
    instruction_uuid INTEGER NOT NULL,
    source_line_uuid INTEGER NOT NULL,
    frame_index INTEGER,
    FOREIGN KEY (instruction_uuid) REFERENCES compute_instruction_line (instruction_uuid),
    FOREIGN KEY (source_line_uuid) REFERENCES compute_source_line (source_line_uuid),
    UNIQUE (instruction_uuid, frame_index)
);

CREATE VIEW compute_kernel_view AS
WITH timed AS (
    SELECT
        kernel_uuid,
        end_timestamp - start_timestamp AS duration,
        ROW_NUMBER() OVER (PARTITION BY kernel_uuid ORDER BY end_timestamp - start_timestamp) AS place,
        COUNT(*) OVER (PARTITION BY kernel_uuid) AS count
    FROM compute_dispatch
)
SELECT
    K.kernel_uuid, K.workload_id, W.name AS workload_name, K.kernel_name, K.short_name,
    COUNT(T.duration) AS dispatch_count,
    SUM(T.duration) AS duration_ns_sum,
    MIN(T.duration) AS duration_ns_min,
    MAX(T.duration) AS duration_ns_max,
    AVG(CASE WHEN T.place IN ((T.count + 1) / 2, (T.count + 2) / 2) THEN T.duration END) AS duration_ns_median,
    AVG(T.duration) AS duration_ns_mean
FROM compute_kernel K
    JOIN compute_workload W ON W.workload_id = K.workload_id
    LEFT JOIN timed T ON T.kernel_uuid = K.kernel_uuid
GROUP BY K.kernel_uuid;

CREATE VIEW compute_workload_metric_view AS
SELECT
    W.workload_id, W.name AS workload_name, M.metric_uuid, M.name AS metric_name, M.metric_id, M.description,
    M.table_name, M.sub_table_name, M.unit, V.value_uuid, V.value_name, V.value
FROM compute_workload_metric_value V
    JOIN compute_metric_definition M ON M.metric_uuid = V.metric_uuid
    JOIN compute_workload W ON W.workload_id = V.workload_id;

CREATE VIEW compute_kernel_metric_view AS
SELECT
    W.workload_id, W.name AS workload_name, K.kernel_uuid, K.kernel_name, M.metric_uuid, M.name AS metric_name,
    M.metric_id, M.description, M.table_name, M.sub_table_name, M.unit, V.value_uuid, V.value_name, V.value
FROM compute_kernel_metric_value V
    JOIN compute_metric_definition M ON M.metric_uuid = V.metric_uuid
    JOIN compute_kernel K ON K.kernel_uuid = V.kernel_uuid
    JOIN compute_workload W ON W.workload_id = K.workload_id;

CREATE VIEW compute_pc_sampling_summary_view AS
SELECT
    O.workload_id, O.pid, O.code_object_id, K.kernel_uuid, K.kernel_name, L.code_object_offset AS offset,
    L.instruction, T.text AS instruction_type,
    (SELECT GROUP_CONCAT(source, ' -> ') FROM (
        SELECT F.file_path || ':' || S.line_number AS source
        FROM compute_instruction_source_line I
            JOIN compute_source_line S ON S.source_line_uuid = I.source_line_uuid
            JOIN compute_source_file F ON F.source_file_uuid = S.source_file_uuid
        WHERE I.instruction_uuid = L.instruction_uuid
        ORDER BY I.frame_index
    )) AS source,
    P.total_count AS count, P.issue_count, P.stall_count, P.wave_occupancy_percent, P.active_thread_percent,
    (SELECT JSON_GROUP_OBJECT(R.text, Z.count)
        FROM compute_pc_sample_stall_reason Z
            JOIN compute_pc_sample_stall_reason_lookup R
                ON R.pc_sample_stall_reason_lookup_uuid = Z.pc_sample_stall_reason_lookup_uuid
        WHERE Z.pc_sample_state_uuid = P.pc_sample_state_uuid
        HAVING COUNT(*) > 0) AS stall_reason
FROM compute_pc_sample_state P
    JOIN compute_instruction_line L ON L.instruction_uuid = P.instruction_uuid
    JOIN compute_kernel_symbol Y ON Y.kernel_symbol_uuid = L.kernel_symbol_uuid
    JOIN compute_code_object_store O ON O.code_object_uuid = Y.code_object_uuid
    LEFT JOIN compute_kernel K ON K.kernel_uuid = Y.kernel_uuid
    LEFT JOIN compute_instruction_type_lookup T ON T.instruction_type_lookup_uuid = L.instruction_type_uuid;

CREATE VIEW compute_source_lines_view AS
SELECT F.workload_id, F.file_path, F.md5_checksum, L.line_number, L.content
FROM compute_source_line L
    JOIN compute_source_file F ON F.source_file_uuid = L.source_file_uuid;
