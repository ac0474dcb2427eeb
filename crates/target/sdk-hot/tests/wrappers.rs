//! Compiled C calls every wrapper, and every wrapper calls compiled C. Arguments and results must
//! come through bit by bit, whether the call is recorded or not, and the record must contain them.
//! The C side has its own struct types, made here from the ABI tables, so that a mistake in the
//! Rust signatures shows.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test"
)]

use midair_abi::tables::{ALL, Class, Function, Type};
use midair_domain::{of_buffer_kind, sets};
use midair_record::event::{Record, decode, graph, hip_event, kind};
use midair_record::spool::{Area, Reader, ReaderOptions};
use midair_sdk_hot::wrappers::hip_runtime::{
    EVENT_RECORD, EVENT_RECORD_SPT, EVENT_RECORD_WITH_FLAGS, GRAPH_EXEC_DESTROY, GRAPH_LAUNCH,
    GRAPH_LAUNCH_SPT, STREAM_WAIT_EVENT, STREAM_WAIT_EVENT_SPT,
};
use midair_sdk_hot::{markers, probe, wrappers};
use std::ffi::{CString, c_int, c_void};
use std::fmt::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Returns byte `byte` of argument `argument` (99 = the result) of slot `slot`.
fn pattern(slot: usize, argument: usize, byte: usize) -> u8 {
    (slot * 31 + argument * 7 + byte * 13 + 1) as u8
}

const PRELUDE: &str = r#"
#include <stddef.h>
#include <stdint.h>
typedef struct { uint32_t x, y, z; } dim3;
typedef struct { size_t width, height, depth; } hipExtent;
typedef struct { void *ptr; size_t pitch, xsize, ysize; } hipPitchedPtr;
typedef struct { char reserved[64]; } hipIpcMemHandle_t;
typedef hipIpcMemHandle_t hipIpcEventHandle_t;
typedef struct { uint8_t bytes[16]; } hsa_fabric_handle_t;
typedef struct { char internal[128]; } ncclUniqueId;
typedef struct { int x, y, z, w; unsigned f; } hipChannelFormatDesc;
typedef struct { int type; int id; } hipMemLocation;
typedef struct { uint64_t handle; } handle;
typedef struct { uint64_t control_directives_mask; uint16_t a, b; uint32_t c; uint64_t d; uint32_t e[3]; uint32_t f[3]; uint8_t g[96]; } hsa_ext_control_directives_t;
_Static_assert(sizeof(hsa_ext_control_directives_t) == 144, "size");
static void fill(void *p, size_t n, unsigned slot, unsigned arg, int boolean) {
    unsigned char *b = p;
    for (size_t i = 0; i < n; i++) { b[i] = (unsigned char)(slot * 31 + arg * 7 + i * 13 + 1); if (boolean) b[i] &= 1; }
}
static int same(const void *p, size_t n, unsigned slot, unsigned arg, int boolean) {
    unsigned char want[256];
    fill(want, n, slot, arg, boolean);
    return __builtin_memcmp(p, want, n) == 0;
}
int wrong;
int calls;
"#;

fn c_type(ty: &Type) -> String {
    match (ty.class, ty.size) {
        (Class::Void, _) => "void".into(),
        (Class::Bool, _) => "_Bool".into(),
        (Class::Uint | Class::Enum, size) => format!("uint{}_t", size * 8),
        (Class::Int, size) => format!("int{}_t", size * 8),
        (Class::Float, 4) => "float".into(),
        (Class::Pointer, _) => "void *".into(),
        (Class::Function, _) => "handler".into(),
        (Class::Struct, 8) if ty.c != "hipMemLocation" => "handle".into(),
        (Class::Struct, _) => ty.c.into(),
        _ => panic!("{ty:?}"),
    }
}

fn c_program() -> String {
    let mut c = String::from(PRELUDE);
    c.push_str("typedef void (*handler)(void);\n");
    let mut list = String::new();
    for (slot, function) in functions().enumerate() {
        let types: Vec<String> = function.parameters.iter().map(|p| c_type(&p.ty)).collect();
        let result = c_type(&function.result);
        let parameters: Vec<String> = types
            .iter()
            .enumerate()
            .map(|(i, t)| format!("{t} a{i}"))
            .collect();
        let parameters = if parameters.is_empty() {
            "void".into()
        } else {
            parameters.join(", ")
        };
        let void = function.result.class == Class::Void;
        write!(c, "static {result} dummy{slot}({parameters}) {{ calls++;").unwrap();
        for (i, p) in function.parameters.iter().enumerate() {
            let boolean = i32::from(p.ty.class == Class::Bool);
            write!(
                c,
                " if (!same(&a{i}, sizeof a{i}, {slot}, {i}, {boolean})) wrong++;"
            )
            .unwrap();
        }
        if !void {
            write!(
                c,
                " {result} r; fill(&r, sizeof r, {slot}, 99, 0); return r;"
            )
            .unwrap();
        }
        write!(c, " }}\nstatic int call{slot}(void *f) {{").unwrap();
        for (i, (t, p)) in types.iter().zip(function.parameters).enumerate() {
            let boolean = i32::from(p.ty.class == Class::Bool);
            write!(
                c,
                " {t} a{i}; fill(&a{i}, sizeof a{i}, {slot}, {i}, {boolean});"
            )
            .unwrap();
        }
        let arguments: Vec<String> = (0..types.len()).map(|i| format!("a{i}")).collect();
        let types = if types.is_empty() {
            "void".into()
        } else {
            types.join(", ")
        };
        let call = format!("(({result} (*)({types}))f)({})", arguments.join(", "));
        if void {
            writeln!(c, " {call}; return 1; }}").unwrap();
        } else {
            writeln!(
                c,
                " {result} r = {call}; return same(&r, sizeof r, {slot}, 99, 0); }}"
            )
            .unwrap();
        }
        writeln!(list, "{{ (void *)dummy{slot}, call{slot} }},").unwrap();
    }
    write!(
        c,
        "struct {{ void *dummy; int (*call)(void *); }} entries[] = {{\n{list}}};\n"
    )
    .unwrap();
    c
}

fn functions() -> impl Iterator<Item = &'static Function> {
    ALL.iter().flat_map(|table| table.functions)
}

/// Returns what the record of a slot must contain for a value of type `ty`, computed here from
/// bytes.
fn expected_words(ty: &Type, slot: usize, argument: usize) -> Vec<u64> {
    let mut bytes: Vec<u8> = (0..ty.size as usize)
        .map(|b| pattern(slot, argument, b))
        .collect();
    if ty.class == Class::Bool {
        bytes[0] &= 1;
    }
    let negative = ty.class == Class::Int && bytes.last().is_some_and(|b| b & 0x80 != 0);
    bytes.resize(
        bytes.len().next_multiple_of(8),
        if negative { 0xff } else { 0 },
    );
    bytes
        .chunks(8)
        .map(|w| u64::from_le_bytes(w.try_into().unwrap()))
        .collect()
}

#[repr(C)]
struct Entry {
    dummy: *mut (),
    call: unsafe extern "C" fn(*const ()) -> c_int,
}

/// Compiles the C program as a shared library and loads it.
fn load(dir: &Path) -> *mut c_void {
    let (source, library) = (dir.join("dummies.c"), dir.join("dummies.so"));
    std::fs::write(&source, c_program()).unwrap();
    let status = Command::new("cc")
        .args(["-O1", "-shared", "-fPIC", "-w", "-o"])
        .arg(&library)
        .arg(&source)
        .status()
        .expect("a C compiler is needed");
    assert!(status.success());
    let path = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: the library was just made, and contains plain functions.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!handle.is_null());
    handle
}

fn symbol<T>(library: *mut c_void, name: &std::ffi::CStr) -> *mut T {
    // SAFETY: the handle is open.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!address.is_null());
    address.cast()
}

#[test]
fn every_wrapper_passes_everything_through() {
    let dir = tempfile::tempdir().unwrap();
    let library = load(dir.path());
    let entries: *const Entry = symbol(library, c"entries");
    let wrong: *mut c_int = symbol(library, c"wrong");
    let calls: *mut c_int = symbol(library, c"calls");
    let slots: Vec<&wrappers::Slot> = wrappers::TABLES.iter().flat_map(|t| t.slots).collect();
    assert_eq!(slots.len(), functions().count());
    let all = || {
        for (index, slot) in slots.iter().enumerate() {
            // SAFETY: the C program has one entry per slot, in this order.
            let entry = unsafe { &*entries.add(index) };
            slot.original.store(entry.dummy, Ordering::Release);
            // SAFETY: the wrapper has the C type of the slot, and its original is in place.
            let same = unsafe { (entry.call)(slot.wrapper) };
            // SAFETY: it is an int of the C program, and there is only one thread.
            let wrong = unsafe { wrong.read() };
            assert_eq!(wrong, 0, "{}: an argument changed", slot.name);
            assert_eq!(same, 1, "{}: the result changed", slot.name);
        }
    };

    all();
    // SAFETY: it is an int of the C program, and there is only one thread.
    assert_eq!(unsafe { calls.read() } as usize, slots.len());

    // The same again, with every call recorded.
    let mut reader = Reader::create(&ReaderOptions {
        size: 4 << 20,
        settings: Vec::new(),
        drain_ms: 100,
        lease_ms: 0,
        session: 1,
    })
    .unwrap();
    // SAFETY: this creates a shared mapping of the spool's whole file.
    let base = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            reader.size(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            reader.fd().as_raw_fd(),
            0,
        )
    };
    assert_ne!(base, libc::MAP_FAILED);
    // SAFETY: it was mapped above, for the rest of the process.
    let area = unsafe { Area::new(base.cast(), reader.size()) }.unwrap();
    assert!(probe::session::prepare());
    // ROCTx's records contain messages, but the arguments here are not addresses of messages. The
    // end-to-end tests cover those records.
    let kinds = sets::HOOKED_CALLS - markers::KINDS;
    // SAFETY: the mapping stays.
    let generation = unsafe { probe::session::start(area, 1) };
    probe::session::open(kinds, kinds);
    assert_ne!(generation, 0);
    all();
    probe::session::stop();
    assert!(probe::quiesce(Duration::from_secs(5)));
    probe::session::close_session(generation, kinds);

    let mut records: Vec<Vec<u8>> = Vec::new();
    reader
        .drain(|bytes| -> Result<(), ()> {
            let mut rest = bytes;
            while !rest.is_empty() {
                let (_, size) = decode(rest).unwrap();
                records.push(rest[..size].to_vec());
                rest = &rest[size..];
            }
            Ok(())
        })
        .unwrap();
    // Calls of graphs and of events have two records: the call's own, and one behind which it
    // comes.
    let (mut graphs, mut events) = (Vec::new(), Vec::new());
    records.retain(|bytes| match decode(bytes).unwrap().0 {
        Record::Graph(call) => {
            graphs.push((
                call.header.operation,
                call.correlation,
                call.graph,
                call.result,
            ));
            false
        }
        Record::Event(call) => {
            events.push((
                call.header.operation,
                call.correlation,
                call.event,
                call.result,
            ));
            false
        }
        _ => true,
    });
    let calls = records.iter().filter_map(|bytes| {
        let (Record::Api(api, words), _) = decode(bytes).unwrap() else {
            return None;
        };
        let operation = match api.header.operation {
            _ if api.header.kind != kind::HIP_RUNTIME_API_EXT => return None,
            GRAPH_LAUNCH | GRAPH_LAUNCH_SPT => graph::EXEC_LAUNCH,
            GRAPH_EXEC_DESTROY => graph::EXEC_DESTROY,
            _ => return None,
        };
        let handle = u64::from_le_bytes(words[..8].try_into().unwrap());
        Some((operation, api.correlation, handle, api.retval as u32))
    });
    assert_eq!(graphs, calls.collect::<Vec<_>>());
    assert_eq!(graphs.len(), 3);
    let calls = records.iter().filter_map(|bytes| {
        let (Record::Api(api, words), _) = decode(bytes).unwrap() else {
            return None;
        };
        let (operation, at) = match api.header.operation {
            _ if api.header.kind != kind::HIP_RUNTIME_API_EXT => return None,
            EVENT_RECORD | EVENT_RECORD_SPT | EVENT_RECORD_WITH_FLAGS => (hip_event::RECORD, 0),
            STREAM_WAIT_EVENT | STREAM_WAIT_EVENT_SPT => (hip_event::WAIT, 8),
            _ => return None,
        };
        let handle = u64::from_le_bytes(words[at..at + 8].try_into().unwrap());
        Some((operation, api.correlation, handle, api.retval as u32))
    });
    assert_eq!(events, calls.collect::<Vec<_>>());
    assert_eq!(events.len(), 5);
    let tables = ALL
        .iter()
        .filter_map(|table| Some((of_buffer_kind(i32::from(table.kind))?.kind, table)))
        .flat_map(|(kind, table)| table.functions.iter().map(move |f| (kind, f)))
        // ROCTx's tables are between others, and their functions have slots, too.
        .enumerate()
        .filter(|(_, (kind, _))| kinds.contains(*kind));
    let tables: Vec<_> = tables.collect();
    assert_eq!(records.len(), tables.len());
    for ((slot, (kind, function)), bytes) in tables.into_iter().zip(&records) {
        let (Record::Api(api, tail), _) = decode(bytes).unwrap() else {
            panic!("not a call")
        };
        assert_eq!(
            (api.header.kind, api.header.operation),
            (kind, function.operation),
            "{}",
            function.name
        );
        let words: Vec<u64> = tail
            .chunks(8)
            .map(|w| u64::from_le_bytes(w.try_into().unwrap()))
            .collect();
        let expected: Vec<u64> = function
            .parameters
            .iter()
            .enumerate()
            .flat_map(|(i, p)| expected_words(&p.ty, slot, i))
            .collect();
        assert_eq!(words, expected, "{}", function.name);
        let result = expected_words(&function.result, slot, 99)
            .first()
            .copied()
            .unwrap_or(0);
        assert_eq!(api.retval, result, "{}", function.name);
        let stream = function.stream.map_or(0, |i| {
            expected_words(&function.parameters[i as usize].ty, slot, i as usize)[0]
        });
        assert_eq!(api.stream, stream, "{}", function.name);
        assert!(api.start != 0 && api.start <= api.end);
    }
}
