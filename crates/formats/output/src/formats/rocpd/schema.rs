//! The tables of a rocpd file. Names, columns, defaults, checks and the order of the references
//! match AMD's schema 3.0.3. AMD's tools up to ROCm 7.2 look columns up by name. Its newest
//! tools refuse a file whose tables differ in any of these from the version that the file names,
//! even in how a default is quoted.
//!
//! Every table has its session's guid in its name and in each row. So several sessions can be in
//! one file, or several files can be attached to one connection and united. For each table there is
//! a view without the guid.

use super::guid::Guid;
use std::fmt::Write;

/// The version of the schema. AMD's tools up to ROCm 7.2, which write "3", do not look at it. Its
/// newest tools want it whole and in parts, and accept no other form.
pub(super) const SCHEMA_VERSION: [(&str, &str); 4] = [
    ("schema_version", "3.0.3"),
    ("schema_version_major", "3"),
    ("schema_version_minor", "0"),
    ("schema_version_patch", "3"),
];

/// A column: its name, its declared type with constraints, and the table to whose `id` it refers.
struct Column(&'static str, &'static str, Option<&'static str>);

/// A table without its prefix "rocpd_"; `id` and `guid` come before the columns.
struct Table {
    name: &'static str,
    columns: &'static [Column],
}

const fn plain(name: &'static str, declared: &'static str) -> Column {
    Column(name, declared, None)
}

const fn names(name: &'static str, declared: &'static str, table: &'static str) -> Column {
    Column(name, declared, Some(table))
}

const NODE: Column = names("nid", "INTEGER NOT NULL", "info_node");
const PROCESS: Column = names("pid", "INTEGER NOT NULL", "info_process");
const THREAD: Column = names("tid", "INTEGER", "info_thread");
const AGENT: Column = names("agent_id", "INTEGER", "info_agent");
const QUEUE: Column = names("queue_id", "INTEGER", "info_queue");
const STREAM: Column = names("stream_id", "INTEGER", "info_stream");
const REGION_NAME: Column = names("region_name_id", "INTEGER", "string");
const EVENT: Column = names("event_id", "INTEGER", "event");
const START: Column = plain("start", "BIGINT NOT NULL");
const END: Column = plain("end", "BIGINT NOT NULL");
const EXTDATA: Column = plain("extdata", "JSONB NOT NULL DEFAULT \"{}\"");
const GRAPH_EXEC: Column = plain("graph_exec_id", "INTEGER NOT NULL DEFAULT 0");
const GRAPH_NODE: Column = plain("graph_node_id", "INTEGER NOT NULL DEFAULT 0");

/// The references in AMD's order, for tables where that is not the order of the columns.
const REFERENCES: &[(&str, &[&str])] = &[
    ("pmc_event", &["pmc_id", "event_id", "sample_id"]),
    (
        "memory_copy",
        &[
            "nid",
            "pid",
            "tid",
            "name_id",
            "dst_agent_id",
            "src_agent_id",
            "stream_id",
            "queue_id",
            "region_name_id",
            "event_id",
        ],
    ),
    (
        "memory_allocate",
        &[
            "nid",
            "pid",
            "tid",
            "agent_id",
            "stream_id",
            "queue_id",
            "event_id",
        ],
    ),
];

/// All tables except `rocpd_metadata`, which has no guid column. Each comes after those to which it
/// refers.
const TABLES: &[Table] = &[
    Table {
        name: "string",
        columns: &[plain("string", "TEXT NOT NULL UNIQUE")],
    },
    Table {
        name: "info_node",
        columns: &[
            plain("hash", "BIGINT NOT NULL UNIQUE"),
            plain("machine_id", "TEXT NOT NULL UNIQUE"),
            plain("system_name", "TEXT"),
            plain("hostname", "TEXT"),
            plain("release", "TEXT"),
            plain("version", "TEXT"),
            plain("hardware_name", "TEXT"),
            plain("domain_name", "TEXT"),
        ],
    },
    Table {
        name: "info_process",
        columns: &[
            NODE,
            plain("ppid", "INTEGER"),
            plain("pid", "INTEGER NOT NULL"),
            plain("init", "BIGINT"),
            plain("fini", "BIGINT"),
            plain("start", "BIGINT"),
            plain("end", "BIGINT"),
            plain("command", "TEXT"),
            plain("environment", "JSONB NOT NULL DEFAULT \"{}\""),
            EXTDATA,
        ],
    },
    Table {
        name: "info_thread",
        columns: &[
            NODE,
            plain("ppid", "INTEGER"),
            PROCESS,
            plain("tid", "INTEGER NOT NULL"),
            plain("name", "TEXT"),
            plain("start", "BIGINT"),
            plain("end", "BIGINT"),
            EXTDATA,
        ],
    },
    Table {
        name: "info_agent",
        columns: &[
            NODE,
            PROCESS,
            plain("type", "TEXT CHECK (\"type\" IN ('CPU', 'GPU', 'NIC'))"),
            plain("absolute_index", "INTEGER"),
            plain("logical_index", "INTEGER"),
            plain("type_index", "INTEGER"),
            plain("uuid", "INTEGER"),
            plain("name", "TEXT"),
            plain("model_name", "TEXT"),
            plain("vendor_name", "TEXT"),
            plain("product_name", "TEXT"),
            plain("user_name", "TEXT"),
            EXTDATA,
        ],
    },
    Table {
        name: "info_queue",
        columns: &[NODE, PROCESS, plain("name", "TEXT"), EXTDATA],
    },
    Table {
        name: "info_stream",
        columns: &[NODE, PROCESS, plain("name", "TEXT"), EXTDATA],
    },
    Table {
        name: "info_pmc",
        columns: &[
            NODE,
            PROCESS,
            AGENT,
            plain(
                "target_arch",
                "TEXT CHECK (\"target_arch\" IN ('CPU', 'GPU', 'NIC'))",
            ),
            plain("event_code", "INT"),
            plain("instance_id", "INTEGER"),
            plain("name", "TEXT NOT NULL"),
            plain("symbol", "TEXT NOT NULL"),
            plain("description", "TEXT"),
            plain("long_description", "TEXT DEFAULT \"\""),
            plain("component", "TEXT"),
            plain("units", "TEXT DEFAULT \"\""),
            plain(
                "value_type",
                "TEXT CHECK (\"value_type\" IN ('ABS', 'ACCUM', 'RELATIVE'))",
            ),
            plain("block", "TEXT"),
            plain("expression", "TEXT"),
            plain("is_constant", "INTEGER"),
            plain("is_derived", "INTEGER"),
            plain("spm_support", "INTEGER"),
            EXTDATA,
        ],
    },
    Table {
        name: "info_code_object",
        columns: &[
            NODE,
            PROCESS,
            AGENT,
            plain("uri", "TEXT"),
            plain("load_base", "BIGINT"),
            plain("load_size", "BIGINT"),
            plain("load_delta", "BIGINT"),
            plain(
                "storage_type",
                "TEXT CHECK (\"storage_type\" IN ('FILE', 'MEMORY'))",
            ),
            EXTDATA,
        ],
    },
    Table {
        name: "info_kernel_symbol",
        columns: &[
            NODE,
            PROCESS,
            names("code_object_id", "INTEGER NOT NULL", "info_code_object"),
            plain("kernel_name", "TEXT"),
            plain("display_name", "TEXT"),
            plain("kernel_object", "INTEGER"),
            plain("kernarg_segment_size", "INTEGER"),
            plain("kernarg_segment_alignment", "INTEGER"),
            plain("group_segment_size", "INTEGER"),
            plain("private_segment_size", "INTEGER"),
            plain("sgpr_count", "INTEGER"),
            plain("arch_vgpr_count", "INTEGER"),
            plain("accum_vgpr_count", "INTEGER"),
            EXTDATA,
        ],
    },
    Table {
        name: "track",
        columns: &[
            NODE,
            names("pid", "INTEGER", "info_process"),
            THREAD,
            names("name_id", "INTEGER", "string"),
            EXTDATA,
        ],
    },
    Table {
        name: "event",
        columns: &[
            names("category_id", "INTEGER", "string"),
            plain("stack_id", "INTEGER"),
            plain("parent_stack_id", "INTEGER"),
            plain("correlation_id", "INTEGER"),
            plain("call_stack", "JSONB NOT NULL DEFAULT \"{}\""),
            plain("line_info", "JSONB NOT NULL DEFAULT \"{}\""),
            EXTDATA,
        ],
    },
    Table {
        name: "arg",
        columns: &[
            names("event_id", "INTEGER NOT NULL", "event"),
            plain("position", "INTEGER NOT NULL"),
            plain("type", "TEXT NOT NULL"),
            plain("name", "TEXT NOT NULL"),
            plain("value", "TEXT"),
            EXTDATA,
        ],
    },
    Table {
        name: "sample",
        columns: &[
            names("track_id", "INTEGER NOT NULL", "track"),
            plain("timestamp", "BIGINT NOT NULL"),
            EVENT,
            EXTDATA,
        ],
    },
    Table {
        name: "pmc_event",
        columns: &[
            EVENT,
            names("sample_id", "INTEGER", "sample"),
            names("pmc_id", "INTEGER NOT NULL", "info_pmc"),
            plain("value", "REAL DEFAULT 0.0"),
            plain("xcc", "INTEGER"),
            plain("shader_engine", "INTEGER"),
            plain("instance", "INTEGER"),
            plain("extdata", "JSONB DEFAULT \"{}\""),
        ],
    },
    Table {
        name: "region",
        columns: &[
            NODE,
            PROCESS,
            names("tid", "INTEGER NOT NULL", "info_thread"),
            START,
            END,
            names("name_id", "INTEGER NOT NULL", "string"),
            EVENT,
            EXTDATA,
        ],
    },
    Table {
        name: "kernel_dispatch",
        columns: &[
            NODE,
            PROCESS,
            THREAD,
            names("agent_id", "INTEGER NOT NULL", "info_agent"),
            names("kernel_id", "INTEGER NOT NULL", "info_kernel_symbol"),
            plain("dispatch_id", "INTEGER NOT NULL"),
            names("queue_id", "INTEGER NOT NULL", "info_queue"),
            names("stream_id", "INTEGER NOT NULL", "info_stream"),
            START,
            END,
            plain("private_segment_size", "INTEGER"),
            plain("group_segment_size", "INTEGER"),
            plain("workgroup_size_x", "INTEGER NOT NULL"),
            plain("workgroup_size_y", "INTEGER NOT NULL"),
            plain("workgroup_size_z", "INTEGER NOT NULL"),
            plain("grid_size_x", "INTEGER NOT NULL"),
            plain("grid_size_y", "INTEGER NOT NULL"),
            plain("grid_size_z", "INTEGER NOT NULL"),
            GRAPH_EXEC,
            GRAPH_NODE,
            REGION_NAME,
            EVENT,
            EXTDATA,
        ],
    },
    Table {
        name: "memory_copy",
        columns: &[
            NODE,
            PROCESS,
            THREAD,
            START,
            END,
            names("name_id", "INTEGER NOT NULL", "string"),
            names("dst_agent_id", "INTEGER", "info_agent"),
            plain("dst_address", "INTEGER"),
            names("src_agent_id", "INTEGER", "info_agent"),
            plain("src_address", "INTEGER"),
            plain("size", "INTEGER NOT NULL"),
            QUEUE,
            STREAM,
            GRAPH_EXEC,
            GRAPH_NODE,
            REGION_NAME,
            EVENT,
            EXTDATA,
        ],
    },
    Table {
        name: "memory_allocate",
        columns: &[
            NODE,
            PROCESS,
            THREAD,
            AGENT,
            plain(
                "type",
                "TEXT CHECK (\"type\" IN ('ALLOC', 'FREE', 'REALLOC', 'RECLAIM'))",
            ),
            plain(
                "level",
                "TEXT CHECK (\"level\" IN ('REAL', 'VIRTUAL', 'SCRATCH'))",
            ),
            START,
            END,
            plain("address", "INTEGER"),
            plain("size", "INTEGER NOT NULL"),
            QUEUE,
            STREAM,
            EVENT,
            EXTDATA,
        ],
    },
    Table {
        name: "graph_launch",
        columns: &[
            NODE,
            PROCESS,
            THREAD,
            AGENT,
            QUEUE,
            START,
            END,
            plain("graph_exec_id", "INTEGER NOT NULL"),
            plain("kernel_dispatch_count", "INTEGER NOT NULL DEFAULT 0"),
            EVENT,
            EXTDATA,
        ],
    },
];

/// Returns the quoted name of a table with the file's guid.
pub(super) fn full_name(table: &str, guid: &Guid) -> String {
    format!("\"rocpd_{table}{}\"", guid.suffix())
}

/// Returns the columns that refer to rows of other tables, and these tables.
fn references(table: &Table) -> Vec<(&'static str, &'static str)> {
    let mut all: Vec<_> = table
        .columns
        .iter()
        .filter_map(|Column(name, _, parent)| Some((*name, (*parent)?)))
        .collect();
    if let Some((_, order)) = REFERENCES.iter().find(|(name, _)| *name == table.name) {
        all.sort_by_key(|(name, _)| order.iter().position(|known| known == name));
    }
    all
}

/// A part of the schema of a rocpd file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaPart {
    /// The tables of a session.
    Tables,
    /// Indexes, for joins of calls with what they launched.
    Indexes,
    /// A view over each table.
    Views,
    /// The metadata that says which schema it is.
    Metadata,
    /// The views for people and for AMD's tools.
    DataViews,
    /// Views that sum up: they are among those.
    SummaryViews,
}

/// Returns the statements of a part of one session's schema, with `{{uuid}}` in place of the ends
/// of names and `{{guid}}` in place of the guid.
pub fn rocpd_schema(part: SchemaPart) -> String {
    // A guid that occurs in no other text.
    const HERE: &str = "@guid@";
    let guid = Guid::named(HERE);
    let sql = match part {
        SchemaPart::Tables => tables(&guid, AUTOINCREMENT),
        SchemaPart::Views => views(std::slice::from_ref(&guid)),
        SchemaPart::DataViews => include_str!("views.sql").to_owned(),
        SchemaPart::Metadata => metadata(&guid),
        SchemaPart::Indexes => indexes(&guid),
        SchemaPart::SummaryViews => "-- Nothing of this kind.\n".to_owned(),
    };
    sql.replace(&guid.suffix(), "{{uuid}}")
        .replace(HERE, "{{guid}}")
}

/// Returns the statements that write the schema's version into a session's metadata.
pub(super) fn metadata(guid: &Guid) -> String {
    let (suffix, guid) = (guid.suffix(), guid.to_string());
    let own = [("uuid", suffix.as_str()), ("guid", guid.as_str())];
    SCHEMA_VERSION
        .into_iter()
        .chain(own)
        .map(|(tag, value)| {
            format!(
                "INSERT INTO \"rocpd_metadata{suffix}\" (tag, value) VALUES ('{tag}', '{value}');\n"
            )
        })
        .collect()
}

/// Returns the statements that make the tables of each session, and the views over all of them.
pub(super) fn definition(guids: &[Guid]) -> String {
    let of_each = |guid: &Guid| tables(guid, "") + &indexes(guid);
    let mut sql: String = guids.iter().map(of_each).collect();
    sql.push_str(&views(guids));
    sql.push_str(include_str!("views.sql"));
    sql
}

/// Returns the statements that make a view over each table of the sessions.
fn views(guids: &[Guid]) -> String {
    let mut sql = String::new();
    for name in std::iter::once("metadata").chain(TABLES.iter().map(|table| table.name)) {
        let of_each = |guid: &Guid| format!("SELECT * FROM {}", full_name(name, guid));
        let all: Vec<String> = guids.iter().map(of_each).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(
            sql,
            "CREATE VIEW rocpd_{name} AS {};",
            all.join(" UNION ALL ")
        );
    }
    sql
}

/// A word in the declaration of a column that makes SQLite keep a table of last ids. Looking each
/// new id up in it and writing it there costs as much as the row itself. Only a program that inserts
/// rows later has a use for it.
const AUTOINCREMENT: &str = " AUTOINCREMENT";

/// The tables with a row for each thing that happened. While they are written, their ids are
/// declared without [`AUTOINCREMENT`]. [`complete`] then puts it into the schema, which does not
/// change how rows are stored (source: sqlite.org/autoinc.html).
const LONG: [&str; 9] = [
    "arg",
    "event",
    "region",
    "kernel_dispatch",
    "memory_copy",
    "memory_allocate",
    "sample",
    "pmc_event",
    LAUNCHES,
];
/// The long table that few sessions have rows in. It is declared as the small ones are.
const LAUNCHES: &str = "graph_launch";

/// The columns by which calls and what they launched are joined, each with its table.
const INDEXES: [(&str, &str); 3] = [
    ("event", "stack_id"),
    ("region", "event_id"),
    ("kernel_dispatch", "event_id"),
];

/// Returns the name of an index.
pub(super) fn index_name(table: &str, column: &str, guid: &Guid) -> String {
    format!("rocpd_{table}_{column}{}", guid.suffix())
}

/// Returns the name of a table.
pub(super) fn long_name(table: &str, guid: &Guid) -> String {
    format!("rocpd_{table}{}", guid.suffix())
}

/// The statement that finds the first page of a table or of an index by its name.
pub(super) const ROOT: &str = "SELECT rootpage FROM main.sqlite_schema WHERE name = ?";

/// Returns the tables of a session that have few rows, each after those to which it refers.
fn small(guid: &Guid) -> impl Iterator<Item = String> {
    let all = std::iter::once("metadata").chain(TABLES.iter().map(|table| table.name));
    let small = all.filter(|name| !LONG.contains(name));
    small.map(|name| full_name(name, guid))
}

/// Returns the statements that make the small tables in the database next to the file. Rows are
/// inserted there while pages are appended to the file ([`Pages`](super::pages::Pages)).
pub(super) fn beside(guids: &[Guid]) -> String {
    let mut sql = String::new();
    for guid in guids {
        let all: Vec<String> = small(guid).collect();
        for statement in tables(guid, "").split_inclusive(";\n") {
            let name = statement.strip_prefix("CREATE TABLE ");
            if let Some(rest) = name
                && all.iter().any(|name| rest.starts_with(name.as_str()))
            {
                sql.push_str(&format!("CREATE TABLE {BESIDE}.{rest}"));
            }
        }
    }
    sql
}

/// The database next to the file.
pub(super) const BESIDE: &str = "beside";

/// Returns the statements that copy the rows of the small tables into the file.
pub(super) fn take(guids: &[Guid]) -> String {
    let of_each = |guid: &Guid| {
        let copies = small(guid)
            .map(|name| format!("INSERT INTO main.{name} SELECT * FROM {BESIDE}.{name};\n"));
        copies.chain([last_id(LAUNCHES, guid)]).collect::<String>()
    };
    guids.iter().map(of_each).collect()
}

/// Returns the statements that make a session's indexes.
fn indexes(guid: &Guid) -> String {
    let mut sql = String::new();
    for (table, column) in INDEXES {
        // Writing to a String cannot fail.
        let _ = writeln!(
            sql,
            "CREATE INDEX \"{}\" ON {} (\"{column}\");",
            index_name(table, column, guid),
            full_name(table, guid)
        );
    }
    sql
}

/// Returns the statements for the time when all rows of all sessions are there.
pub(super) fn complete(guids: &[Guid]) -> String {
    // Without figures about the tables, SQLite takes a guid for the best way to find a row,
    // although all rows share it. A few rows of each table are analysed.
    let mut sql = "PRAGMA analysis_limit = 400;\n".to_owned();
    for guid in guids {
        for (table, _) in INDEXES {
            // Writing to a String cannot fail.
            let _ = writeln!(sql, "ANALYZE {};", full_name(table, guid));
        }
    }
    sql.push_str("PRAGMA writable_schema = ON;\n");
    for guid in guids {
        for table in LONG {
            let name = full_name(table, guid);
            let text = name.replace('"', "'");
            sql.push_str(&format!(
                "UPDATE sqlite_sequence SET seq = (SELECT COALESCE(MAX(id), 0) FROM {name}) WHERE name = {text};\n"
            ));
            if table != LAUNCHES {
                sql.push_str(&format!(
                    "UPDATE sqlite_schema SET sql = replace(sql, ' PRIMARY KEY, guid ', ' PRIMARY KEY{AUTOINCREMENT}, guid ')
                     WHERE type = 'table' AND name = {text};\n"
                ));
            }
        }
    }
    sql.push_str("PRAGMA writable_schema = OFF;\n");
    sql
}

/// Returns the statements that make the tables of a session. `long` is appended to the declared ids
/// of the [`LONG`] tables.
fn tables(guid: &Guid, long: &str) -> String {
    // Writing to a String cannot fail, hence the ignored results.
    let mut sql = format!(
        "CREATE TABLE {} (id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, tag TEXT NOT NULL, value TEXT NOT NULL);\n",
        full_name("metadata", guid)
    );
    for table in TABLES {
        let _ = write!(
            sql,
            "CREATE TABLE {} (id INTEGER NOT NULL PRIMARY KEY{}, guid TEXT NOT NULL DEFAULT \"{guid}\"",
            full_name(table.name, guid),
            if LONG.contains(&table.name) && table.name != LAUNCHES {
                long
            } else {
                AUTOINCREMENT
            }
        );
        for Column(name, declared, _) in table.columns {
            let _ = write!(sql, ", \"{name}\" {declared}");
        }
        for (name, parent) in references(table) {
            let parent = full_name(parent, guid);
            let _ = write!(
                sql,
                ", FOREIGN KEY (\"{name}\") REFERENCES {parent} (id) ON UPDATE CASCADE"
            );
        }
        sql.push_str(");\n");
    }
    // Each insert searches the list of last ids from its start, so the tables with most inserts
    // come first.
    let first = LONG.iter().filter(|table| **table != LAUNCHES);
    sql.extend(first.map(|table| last_id(table, guid)));
    sql
}

/// Returns the statement that puts a long table into the list of last ids.
fn last_id(table: &str, guid: &Guid) -> String {
    let name = full_name(table, guid).replace('"', "'");
    format!("INSERT INTO main.sqlite_sequence (name, seq) VALUES ({name}, 0);\n")
}

/// Returns an `INSERT` (or `INSERT OR IGNORE`) of these columns, which are separated by commas,
/// with one parameter each.
pub(super) fn insert(verb: &str, table: &str, columns: &str, guid: &Guid) -> String {
    let (quoted, places): (Vec<String>, Vec<&str>) = columns
        .split(", ")
        .map(|name| (format!("\"{name}\""), "?"))
        .unzip();
    let places = places.join(", ");
    format!(
        "{verb} INTO {BESIDE}.{} ({}) VALUES ({places})",
        full_name(table, guid),
        quoted.join(", ")
    )
}

/// Returns the statement that finds a text's id.
pub(super) fn find_string(guid: &Guid) -> String {
    format!(
        "SELECT id FROM {BESIDE}.{} WHERE string = ?",
        full_name("string", guid)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_come_after_those_that_they_name() {
        let mut before = Vec::new();
        for table in TABLES {
            for Column(name, _, parent) in table.columns {
                assert!(
                    parent.is_none_or(|parent| before.contains(&parent)),
                    "{}.{name}",
                    table.name
                );
            }
            before.push(table.name);
        }
    }

    /// All parts, with a session's names in their places, make a database whose views can be read.
    #[test]
    fn the_parts_of_the_schema_make_a_database() {
        let part = |part| {
            let sql = rocpd_schema(part);
            assert!(!sql.contains("@guid@"), "{sql}");
            sql.replace("{{uuid}}", "_a_b").replace("{{guid}}", "a-b")
        };
        let database = rusqlite::Connection::open_in_memory().unwrap();
        for each in [
            SchemaPart::Tables,
            SchemaPart::Indexes,
            SchemaPart::Views,
            SchemaPart::Metadata,
            SchemaPart::DataViews,
            SchemaPart::SummaryViews,
        ] {
            database.execute_batch(&part(each)).unwrap();
        }
        let mut all = database
            .prepare("SELECT tag, value FROM rocpd_metadata_a_b ORDER BY id")
            .unwrap();
        let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        let rows: Vec<(String, String)> = rows.unwrap().map(Result::unwrap).collect();
        let wanted = [
            ("schema_version", "3.0.3"),
            ("schema_version_major", "3"),
            ("schema_version_minor", "0"),
            ("schema_version_patch", "3"),
            ("uuid", "_a_b"),
            ("guid", "a-b"),
        ];
        let wanted = wanted.map(|(tag, value)| (tag.to_owned(), value.to_owned()));
        assert_eq!(rows, wanted);
        for view in ["rocpd_metadata", "rocpd_kernel_dispatch", "kernels"] {
            let sql = format!("SELECT COUNT(*) FROM {view}");
            let count: i64 = database.query_row(&sql, [], |row| row.get(0)).unwrap();
            let wanted = if view == "rocpd_metadata" { 6 } else { 0 };
            assert_eq!(count, wanted, "{view}");
        }
    }
}
