//! `librocprofiler-sdk-rocpd.so.1`: the schema of rocpd files for programs that write such files
//! themselves. The files that we write have the same text. Signatures, statuses and the search:
//! `docs/sources.md#rocpd`.

use midair_capi_build::{c_api, edge};
use midair_output::SchemaPart;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// `rocpd_status_t`, but success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Status(c_int);

impl Status {
    const ERROR: Status = Status(1);
    const INVALID_ARGUMENT: Status = Status(2);
    const INVALID_ENGINE: Status = Status(4);
    const INVALID_SCHEMA_KIND: Status = Status(5);
}

impl From<Status> for c_int {
    fn from(status: Status) -> c_int {
        status.0
    }
}

/// Names of the statuses, by number, and what they mean.
const STATUSES: [(&CStr, &CStr); 8] = [
    (c"ROCPD_STATUS_SUCCESS", c"Done"),
    (c"ROCPD_STATUS_ERROR", c"Another error"),
    (
        c"ROCPD_STATUS_ERROR_INVALID_ARGUMENT",
        c"An argument is invalid",
    ),
    (c"ROCPD_STATUS_ERROR_SQL_ERROR", c"A database error"),
    (
        c"ROCPD_STATUS_ERROR_SQL_INVALID_ENGINE",
        c"The database engine is unknown",
    ),
    (
        c"ROCPD_STATUS_ERROR_SQL_INVALID_SCHEMA_KIND",
        c"The schema part is unknown",
    ),
    (
        c"ROCPD_STATUS_ERROR_SQL_SCHEMA_NOT_FOUND",
        c"The schema file does not exist",
    ),
    (
        c"ROCPD_STATUS_ERROR_SQL_SCHEMA_PERMISSION_DENIED",
        c"Cannot read the schema file",
    ),
];

/// The version of the interface.
const VERSION: [u32; 3] = [1, 2, 1];

/// `ROCPD_SQL_ENGINE_SQLITE3`.
const SQLITE3: c_int = 1;
/// `ROCPD_SQL_OPTIONS_PERSIST_STRINGS`: the texts live on after the callback.
const PERSIST: c_int = 1;
/// `ROCPD_SQL_OPTIONS_SQLITE3_PRAGMA_FOREIGN_KEYS`.
const FOREIGN_KEYS: c_int = 2;

/// `rocpd_sql_schema_jinja_variables_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Variables {
    size: u64,
    uuid: *const c_char,
    guid: *const c_char,
}

/// `rocpd_sql_load_schema_cb_t`.
type Callback = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    *const Variables,
    *const c_char,
    *const c_char,
    *mut c_void,
);

/// The part of a kind, and the name of the file that replaces it.
fn part(kind: c_int) -> Option<(SchemaPart, &'static str)> {
    Some(match kind {
        1 => (SchemaPart::Tables, "rocpd_tables.sql"),
        2 => (SchemaPart::Indexes, "rocpd_indexes.sql"),
        3 => (SchemaPart::Views, "rocpd_views.sql"),
        4 => (SchemaPart::DataViews, "data_views.sql"),
        5 => (SchemaPart::SummaryViews, "summary_views.sql"),
        6 => (SchemaPart::Metadata, "rocpd_metadata.sql"),
        _ => return None,
    })
}

/// A file of the caller's in one of its directories or of `ROCPD_SCHEMA_PATH`, with its path.
fn file_of(name: &str, directories: Vec<PathBuf>) -> Option<(PathBuf, String)> {
    let more = std::env::var_os("ROCPD_SCHEMA_PATH").unwrap_or_default();
    directories
        .into_iter()
        .chain(std::env::split_paths(&more))
        .filter(|directory| !directory.as_os_str().is_empty())
        .map(|directory| directory.join(name))
        .find_map(|path| Some((path.clone(), std::fs::read_to_string(path).ok()?)))
}

/// A text from C; null is none.
///
/// # Safety
/// `text` must be null or a C string.
unsafe fn text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

c_api! {
    /// Stores the version of the interface; each pointer may be null.
    fn rocpd_get_version(major: *mut u32, minor: *mut u32, patch: *mut u32) {
        for (to, part) in [major, minor, patch].into_iter().zip(VERSION) {
            if !to.is_null() {
                // SAFETY: not null, and the caller's to write; unaligned, since it comes from C.
                unsafe { to.write_unaligned(part) };
            }
        }
        Ok::<(), Status>(())
    }

    /// The same in one struct.
    fn rocpd_get_version_triplet(info: *mut [u32; 3]) {
        if info.is_null() {
            return Err(Status::INVALID_ARGUMENT);
        }
        // SAFETY: as above.
        unsafe { info.write_unaligned(VERSION) };
        Ok(())
    }

    /// Hands a part of the schema to the callback, with the variables in their places.
    fn rocpd_sql_load_schema(
        engine: c_int,
        kind: c_int,
        options: c_int,
        variables: *const Variables,
        callback: Option<Callback>,
        hints: *const *const c_char,
        hints_count: u64,
        user_data: *mut c_void,
    ) {
        let callback = callback.ok_or(Status::INVALID_ARGUMENT)?;
        if engine != SQLITE3 {
            return Err(Status::INVALID_ENGINE);
        }
        let (part, file) = part(kind).ok_or(Status::INVALID_SCHEMA_KIND)?;
        let mut directories = Vec::new();
        if !hints.is_null() {
            for index in 0..usize::try_from(hints_count).map_err(|_| Status::INVALID_ARGUMENT)? {
                // SAFETY: the caller's array has so many.
                let hint = unsafe { hints.add(index).read_unaligned() };
                if !hint.is_null() {
                    // SAFETY: a C string of the caller's.
                    let hint = unsafe { CStr::from_ptr(hint) };
                    directories.push(PathBuf::from(OsStr::from_bytes(hint.to_bytes())));
                }
            }
        }
        let (path, mut sql) =
            file_of(file, directories).unwrap_or_else(|| (PathBuf::from(file), midair_output::rocpd_schema(part)));
        if options & FOREIGN_KEYS != 0 {
            sql.insert_str(0, "PRAGMA foreign_keys = ON;\n\n");
        }
        if !variables.is_null() {
            // SAFETY: the caller's struct.
            let values = unsafe { variables.read_unaligned() };
            if values.size == 0 {
                return Err(Status::INVALID_ARGUMENT);
            }
            // SAFETY: null or C strings of the caller's.
            let (uuid, guid) = unsafe { (text(values.uuid), text(values.guid)) };
            if let Some(uuid) = uuid {
                let uuid = uuid.replace('-', "_");
                let begin = if uuid.is_empty() || uuid.starts_with('_') { "" } else { "_" };
                sql = sql.replace("{{uuid}}", &format!("{begin}{uuid}"));
            }
            if let Some(guid) = guid {
                sql = sql.replace("{{guid}}", &guid);
            }
        }
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Status::ERROR)?;
        let sql = CString::new(sql).map_err(|_| Status::ERROR)?;
        // SAFETY: a function of the type that its header has, with what it may read while it runs.
        unsafe { callback(engine, kind, options, variables, path.as_ptr(), sql.as_ptr(), user_data) };
        if options & PERSIST != 0 {
            std::mem::forget((path, sql));
        }
        Ok(())
    }
}

fn status_text(
    status: c_int,
    of: impl Fn(&(&'static CStr, &'static CStr)) -> &'static CStr,
) -> *const c_char {
    edge(std::ptr::null(), || {
        let found = usize::try_from(status).ok().and_then(|at| STATUSES.get(at));
        found.map_or(std::ptr::null(), |found| of(found).as_ptr())
    })
}

/// The name of a status, or null.
#[unsafe(no_mangle)]
pub extern "C" fn rocpd_get_status_name(status: c_int) -> *const c_char {
    status_text(status, |found| found.0)
}

/// What a status means, or null.
#[unsafe(no_mangle)]
pub extern "C" fn rocpd_get_status_string(status: c_int) -> *const c_char {
    status_text(status, |found| found.1)
}
