//! The loaded runtimes: a record for each runtime whose tables are hooked, at the attach or later.

use crate::tables::Live;
use midair_abi::constants as c;
use midair_abi::tables::TableId;
use midair_record::event::{Header, Plain, RuntimeInit, kind};
use midair_sdk_api::buffer;
use midair_sdk_api::context::Wanted;
use midair_sdk_device::sink::Sink;
use midair_sdk_hot::clock::now;
use midair_sdk_hot::wrappers::TABLES;
use std::ffi::{CStr, c_int};
use std::sync::{Mutex, PoisonError};

/// A runtime that a register library has announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registered {
    operation: u32,
    version: u64,
    instance: u64,
    /// Its first table.
    table: usize,
}

/// The runtimes that register libraries announced.
#[derive(Debug)]
pub struct Registry(Mutex<Vec<Registered>>);

impl Default for Registry {
    fn default() -> Registry {
        Registry::new()
    }
}

impl Registry {
    /// Creates an empty registry.
    pub const fn new() -> Registry {
        Registry(Mutex::new(Vec::new()))
    }

    /// Notes a runtime that a register library has passed on; the library knows its version best.
    pub fn handed_over(&self, name: &CStr, version: u64, instance: u64, table: usize) {
        let Some(operation) = operation_of(name) else {
            return;
        };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|other| (other.operation, other.instance) != (operation, instance));
        known.push(Registered {
            operation,
            version,
            instance,
            table,
        });
    }

    /// Returns version and instance of the runtime with this kind of table
    /// (`rocprofiler_intercept_table_t`): as announced, or according to the name of the library at
    /// `home`.
    pub fn version(&self, table: c_int, home: usize) -> (u64, u64) {
        let operation = match table {
            c::ROCPROFILER_HSA_TABLE => c::ROCPROFILER_RUNTIME_INITIALIZATION_HSA,
            c::ROCPROFILER_HIP_RUNTIME_TABLE | c::ROCPROFILER_HIP_COMPILER_TABLE => {
                c::ROCPROFILER_RUNTIME_INITIALIZATION_HIP
            }
            c::ROCPROFILER_RCCL_TABLE => c::ROCPROFILER_RUNTIME_INITIALIZATION_RCCL,
            c::ROCPROFILER_ROCDECODE_TABLE => c::ROCPROFILER_RUNTIME_INITIALIZATION_ROCDECODE,
            c::ROCPROFILER_ROCJPEG_TABLE => c::ROCPROFILER_RUNTIME_INITIALIZATION_ROCJPEG,
            _ => c::ROCPROFILER_RUNTIME_INITIALIZATION_MARKER,
        };
        self.find(operation as u32).map_or_else(
            || (version_at(home), 0),
            |known| (known.version, known.instance),
        )
    }

    /// Returns the tables of libraries above HIP that were passed on.
    pub fn libraries(&self) -> Vec<(TableId, usize)> {
        [
            (c::ROCPROFILER_RUNTIME_INITIALIZATION_RCCL, TableId::Rccl),
            (
                c::ROCPROFILER_RUNTIME_INITIALIZATION_ROCDECODE,
                TableId::Rocdecode,
            ),
            (
                c::ROCPROFILER_RUNTIME_INITIALIZATION_ROCJPEG,
                TableId::Rocjpeg,
            ),
        ]
        .into_iter()
        .filter_map(|(operation, id)| Some((id, self.find(operation as u32)?.table)))
        .collect()
    }

    fn find(&self, operation: u32) -> Option<Registered> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known
            .iter()
            .find(|known| known.operation == operation)
            .copied()
    }

    /// Returns what the parent of a forked child knew, which is true for the child as well. Empty
    /// if a thread that the child does not have was changing it.
    pub fn known_to_parent(&self) -> Vec<Registered> {
        self.0
            .try_lock()
            .map(|known| known.clone())
            .unwrap_or_default()
    }

    /// Takes over what [`Self::known_to_parent`] returned.
    pub fn take_over(&self, known: Vec<Registered>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }
}

/// Returns AMD's operation for a name of `rocprofiler_set_api_table`. The compiler part of HIP is
/// not a runtime of its own.
fn operation_of(name: &CStr) -> Option<u32> {
    let operation = match name.to_bytes() {
        b"hsa" => c::ROCPROFILER_RUNTIME_INITIALIZATION_HSA,
        b"hip" => c::ROCPROFILER_RUNTIME_INITIALIZATION_HIP,
        b"roctx" => c::ROCPROFILER_RUNTIME_INITIALIZATION_MARKER,
        b"rccl" => c::ROCPROFILER_RUNTIME_INITIALIZATION_RCCL,
        b"rocdecode" => c::ROCPROFILER_RUNTIME_INITIALIZATION_ROCDECODE,
        b"rocjpeg" => c::ROCPROFILER_RUNTIME_INITIALIZATION_ROCJPEG,
        _ => return None,
    };
    Some(operation as u32)
}

/// Reports each runtime once in a session, however often its collection stops and starts again:
/// because an application shuts its HSA runtime down, or a tool starts another context.
#[derive(Debug)]
pub struct Reports {
    registered: &'static Registry,
    wanted: bool,
    /// The runtimes that were reported, one bit per operation.
    reported: u64,
    /// Whether tools that joined get what the session has reported before.
    tells_tools: bool,
}

impl Reports {
    /// Starts a session.
    pub fn new(registered: &'static Registry) -> Reports {
        Reports {
            registered,
            wanted: false,
            reported: 0,
            tells_tools: false,
        }
    }

    /// Notes what is wanted when the session's collection starts.
    pub fn want(&mut self, wanted: &Wanted) {
        self.wanted = wanted.kinds.contains_key(&kind::RUNTIME_INITIALIZATION);
    }

    /// Sets whether tools in the process join a session that only an attacher read so far. They
    /// then get the runtimes that were already reported to the attacher.
    pub fn set_tells_tools(&mut self, tells: bool) {
        self.tells_tools = tells;
    }

    /// Reports the runtime of a hooked table, once.
    pub fn report(&mut self, live: &Live, sink: &mut Sink) {
        let operation = match TABLES.get(live.index()).map(|table| table.id) {
            Some(TableId::HipRuntime) => c::ROCPROFILER_RUNTIME_INITIALIZATION_HIP,
            Some(TableId::HsaCore) => c::ROCPROFILER_RUNTIME_INITIALIZATION_HSA,
            Some(TableId::RoctxCore) => c::ROCPROFILER_RUNTIME_INITIALIZATION_MARKER,
            Some(TableId::Rccl) => c::ROCPROFILER_RUNTIME_INITIALIZATION_RCCL,
            Some(TableId::Rocdecode) => c::ROCPROFILER_RUNTIME_INITIALIZATION_ROCDECODE,
            Some(TableId::Rocjpeg) => c::ROCPROFILER_RUNTIME_INITIALIZATION_ROCJPEG,
            _ => return,
        };
        self.report_runtime(operation as u32, live.home(), sink);
    }

    /// Reports the runtime whose library is loaded at `home`, once.
    pub fn report_runtime(&mut self, operation: u32, home: usize, sink: &mut Sink) {
        let is_known = self.reported >> operation & 1 != 0;
        if !self.wanted || is_known && !self.tells_tools {
            return;
        }
        self.reported |= 1 << operation;
        let registered = self.registered.find(operation);
        let record = RuntimeInit {
            header: Header {
                size: size_of::<RuntimeInit>() as u16,
                kind: kind::RUNTIME_INITIALIZATION,
                flags: 0,
                operation,
            },
            time: now(),
            // As in AMD's library, it belongs to no call and takes no id.
            correlation: 0,
            version: registered.map_or_else(|| version_at(home), |known| known.version),
            instance: registered.map_or(0, |known| known.instance),
            tid: sink.tid,
            reserved: 0,
        };
        if is_known {
            // Contexts that have had this report do not get it again.
            let _ = buffer::deliver(record.bytes());
        } else {
            sink.put(kind::RUNTIME_INITIALIZATION, record.bytes());
        }
    }
}

/// Returns the version of the library loaded at `home`, from the name of its file. Nothing is
/// called, so a runtime that is not initialised stays so.
fn version_at(home: usize) -> u64 {
    std::fs::read("/proc/thread-self/maps").map_or(0, |maps| {
        maps.split(|byte| *byte == b'\n')
            .find_map(|line| {
                let line = String::from_utf8_lossy(line);
                let mut fields = line.splitn(6, ' ');
                let start = fields.next()?.split('-').next()?;
                (usize::from_str_radix(start, 16).ok()? == home)
                    .then(|| version_in(fields.last().unwrap_or_default()))
            })
            .unwrap_or(0)
    })
}

/// Returns the version in a file's name such as `libamdhip64.so.7.2.53211`, in the form of AMD's
/// registration: 10000 * major + 100 * minor + patch. A third number above 99 counts builds and is
/// not a patch.
fn version_in(path: &str) -> u64 {
    let path = path.trim().trim_end_matches(" (deleted)");
    let Some((_, numbers)) = path.rsplit_once(".so.") else {
        return 0;
    };
    let mut numbers = numbers.split('.').map(|number| number.parse::<u64>());
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    let (major, minor, patch) = (next(), next(), next());
    10_000 * major + 100 * minor.min(99) + if patch < 100 { patch } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_file_names() {
        let cases = [
            ("/usr/lib/libamdhip64.so.7.2.53211", 70_200),
            ("   /opt/rocm/lib/libhsa-runtime64.so.1.18.0", 11_800),
            ("/x/libhsa-runtime64.so.1.15.60304 (deleted)", 11_500),
            ("/x/libroctx.so.4", 40_000),
            ("/site-packages/torch/lib/libamdhip64.so", 0),
            ("", 0),
        ];
        for (path, version) in cases {
            assert_eq!(version_in(path), version, "{path}");
        }
    }

    #[test]
    fn a_mapping_is_found_by_its_start() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps
            .lines()
            .find(|line| line.contains("libc.so.6"))
            .unwrap();
        let start = libc.split('-').next().unwrap();
        assert_eq!(
            version_at(usize::from_str_radix(start, 16).unwrap()),
            60_000
        );
    }
}
