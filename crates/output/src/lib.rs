//! Writers of traces: csv, json; names of files; tables.
