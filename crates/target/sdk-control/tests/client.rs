//! A tool written in C, compiled with its own layouts, under the SDK. It creates contexts and
//! buffers, and gets records that this test delivers. It logs what it gets, and the lines of the
//! log are compared.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what went wrong by panicking"
)]

use midair_abi::layout;
use midair_record::event::{self, Header, encode, flag, kind};
use midair_sdk_api::status::Status;
use midair_sdk_api::{buffer, capi, changes, context, registration};
use midair_sdk_control::capi as control;
use midair_sdk_hot::clock;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// An address that the linker must keep.
struct Keep(*const ());
// SAFETY: the pointer is never read.
unsafe impl Sync for Keep {}

/// The functions that the C tool calls. It is linked against this program, which exports them
/// (build.rs).
#[used]
static CALLED_FROM_C: [Keep; 28] = [
    Keep(capi::names::rocprofiler_iterate_buffer_tracing_record_args as *const ()),
    Keep(capi::names::rocprofiler_query_intercept_table_name as *const ()),
    Keep(capi::context::rocprofiler_create_context as *const ()),
    Keep(control::rocprofiler_start_context as *const ()),
    Keep(capi::context::rocprofiler_stop_context as *const ()),
    Keep(capi::context::rocprofiler_context_is_active as *const ()),
    Keep(capi::context::rocprofiler_context_is_valid as *const ()),
    Keep(capi::context::rocprofiler_create_buffer as *const ()),
    Keep(capi::context::rocprofiler_flush_buffer as *const ()),
    Keep(capi::context::rocprofiler_destroy_buffer as *const ()),
    Keep(capi::context::rocprofiler_configure_buffer_tracing_service as *const ()),
    Keep(capi::context::rocprofiler_configure_callback_tracing_service as *const ()),
    Keep(capi::context::rocprofiler_create_callback_thread as *const ()),
    Keep(capi::context::rocprofiler_assign_callback_thread as *const ()),
    Keep(capi::context::rocprofiler_at_internal_thread_create as *const ()),
    Keep(capi::names::rocprofiler_query_buffer_tracing_kind_name as *const ()),
    Keep(capi::names::rocprofiler_query_buffer_tracing_kind_operation_name as *const ()),
    Keep(capi::names::rocprofiler_iterate_buffer_tracing_kinds as *const ()),
    Keep(capi::names::rocprofiler_iterate_buffer_tracing_kind_operations as *const ()),
    Keep(capi::info::rocprofiler_query_available_agents as *const ()),
    Keep(capi::info::rocprofiler_get_version as *const ()),
    Keep(capi::info::rocprofiler_get_timestamp as *const ()),
    Keep(capi::info::rocprofiler_get_thread_id as *const ()),
    Keep(capi::registration::rocprofiler_is_initialized as *const ()),
    Keep(capi::registration::rocprofiler_is_current_client_attachment as *const ()),
    Keep(capi::info::rocprofiler_get_status_name as *const ()),
    Keep(capi::info::rocprofiler_get_status_string as *const ()),
    Keep(capi::not_implemented::rocprofiler_iterate_runtime_registration_info as *const ()),
];

/// Records that the collecting side still has when everything is stopped.
static LEFT_OVER: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Acts as the worker of a session: applies changes, and delivers what is left when everything is
/// stopped.
fn serve() {
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        changes::become_worker();
        changes::serve(true);
        ready.send(()).unwrap();
        loop {
            while !changes::is_pending() {
                std::thread::yield_now();
            }
            let ticket = changes::requested();
            if context::wanted().is_empty() {
                buffer::deliver(&std::mem::take(&mut *LEFT_OVER.lock().unwrap())).unwrap();
            }
            changes::applied(ticket);
        }
    });
    is_ready.recv().unwrap();
}

/// Returns the layouts of the JSON as assertions for the C compiler.
fn layout_header() -> String {
    let mut header = String::from("#include \"sdk.h\"\n");
    macro_rules! check {
        ($($name:ident { $($field:ident),* })*) => { $(
            writeln!(header, "_Static_assert(sizeof({0}) == {1}, \"{0}\");", stringify!($name), layout::$name::SIZE).unwrap();
            $( writeln!(header, "_Static_assert(offsetof({0}, {1}) == {2}, \"{0}.{1}\");", stringify!($name), stringify!($field), layout::$name::$field).unwrap(); )*
        )* };
    }
    check! {
        rocprofiler_correlation_id_t { internal, external, ancestor }
        rocprofiler_async_correlation_id_t { internal, external }
        rocprofiler_buffer_tracing_hsa_api_record_t { size, kind, operation, correlation_id, start_timestamp, end_timestamp, thread_id }
        rocprofiler_buffer_tracing_hip_api_record_t { size, kind, operation, correlation_id, start_timestamp, end_timestamp, thread_id }
        rocprofiler_buffer_tracing_hip_api_ext_record_t { size, kind, operation, correlation_id, start_timestamp, end_timestamp, thread_id, args, retval }
        rocprofiler_kernel_dispatch_info_t { agent_id, queue_id, kernel_id, dispatch_id, private_segment_size, group_segment_size, workgroup_size, grid_size }
        rocprofiler_buffer_tracing_kernel_dispatch_record_t { correlation_id, thread_id, start_timestamp, end_timestamp, dispatch_info }
        rocprofiler_buffer_tracing_memory_copy_record_t { correlation_id, thread_id, start_timestamp, dst_agent_id, src_agent_id, bytes, dst_address, src_address }
        rocprofiler_callback_tracing_record_t { context_id, thread_id, correlation_id, kind, operation, phase, payload }
        rocprofiler_callback_tracing_code_object_load_data_t { code_object_id, hsa_agent, uri, load_base, load_size, load_delta, storage_type }
        rocprofiler_callback_tracing_code_object_kernel_symbol_register_data_t { kernel_id, code_object_id, kernel_name, kernel_object, sgpr_count, arch_vgpr_count, accum_vgpr_count, kernel_code_entry_byte_offset, kernel_address }
        rocprofiler_client_id_t { name, handle }
        rocprofiler_tool_configure_result_t { initialize, finalize, tool_data }
    }
    let agent = (
        layout::rocprofiler_agent_v0_t::SIZE,
        layout::rocprofiler_agent_v0_t::r#type,
        layout::rocprofiler_agent_v0_t::name,
    );
    writeln!(
        header,
        "#define AGENT_SIZE {}\n#define AGENT_TYPE {}\n#define AGENT_NAME {}",
        agent.0, agent.1, agent.2
    )
    .unwrap();
    header
}

/// The loaded tool.
struct Tool(*mut c_void);

impl Tool {
    fn compile(dir: &Path) -> Tool {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
        let library = dir.join("client.so");
        std::fs::write(dir.join("layout.h"), layout_header()).unwrap();
        let status = Command::new("cc")
            .args([
                "-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-pthread",
                "-o",
            ])
            .arg(&library)
            .arg(here.join("client.c"))
            .arg(format!("-I{}", here.display()))
            .arg(format!("-I{}", dir.display()))
            .status()
            .expect("a C compiler is needed");
        assert!(status.success());
        let path = CString::new(library.to_str().unwrap()).unwrap();
        // SAFETY: the library was just made.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: after a failure dlerror returns a text.
            panic!("{:?}", unsafe { CStr::from_ptr(libc::dlerror()) });
        }
        Tool(handle)
    }
    fn symbol<T>(&self, name: &CStr) -> *mut T {
        // SAFETY: the handle is open.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!address.is_null());
        address.cast()
    }
    /// Returns the lines since the last call.
    fn lines(&self) -> Vec<String> {
        let log: *mut c_char = self.symbol(c"client_log");
        // SAFETY: it is a C string, and no callback is running now (the callers have waited).
        let text = unsafe { CStr::from_ptr(log) }.to_str().unwrap().to_owned();
        // SAFETY: as above.
        unsafe { log.write(0) };
        text.lines().map(str::to_owned).collect()
    }
    /// Waits until the log contains `words`.
    fn wait_for(&self, words: &str) {
        let log: *mut c_char = self.symbol(c"client_log");
        let end = Instant::now() + Duration::from_secs(10);
        // SAFETY: the log only grows during the loop, and its text is always followed by a NUL.
        while !unsafe { CStr::from_ptr(log) }
            .to_string_lossy()
            .contains(words)
        {
            assert!(Instant::now() < end, "{words} never came");
            std::thread::yield_now();
        }
    }
}

fn operation(record_kind: u8, name: &str) -> u32 {
    let table = midair_abi::tables::ALL
        .iter()
        .find(|table| {
            midair_domain::of_buffer_kind(i32::from(table.kind))
                .is_some_and(|domain| domain.kind == record_kind)
        })
        .unwrap();
    table
        .functions
        .iter()
        .find(|function| function.name.as_str() == name)
        .unwrap()
        .operation
}

fn api(record_kind: u8, name: &str, correlation: u64, start: u64, words: &[u64]) -> Vec<u8> {
    let record = event::Api {
        header: Header {
            kind: record_kind,
            operation: operation(record_kind, name),
            ..Default::default()
        },
        start,
        end: start + 5,
        correlation,
        ancestor: correlation / 2,
        retval: 3,
        tid: 42,
        nargs: words.len() as u32,
        ..Default::default()
    };
    encode(
        &record,
        &words
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect::<Vec<u8>>(),
    )
}

/// Grid 1,2,3 and block 4,5,6 as the words of two dim3.
const LAUNCH: [u64; 8] = [0x1000, 1 | 2 << 32, 3, 4 | 5 << 32, 6, 0x2000, 77, 0x3000];

fn kernel(dispatch_id: u64, rung: u64, flags: u8) -> Vec<u8> {
    let header = Header {
        kind: kind::KERNEL_DISPATCH,
        flags,
        ..Default::default()
    };
    encode(
        &event::Kernel {
            header,
            start: rung + 10,
            end: rung + 20,
            correlation: 8,
            rung,
            dispatch_id,
            kernel_id: 2,
            queue_id: 4,
            node: 1_000_000,
            tid: 43,
            private_segment: 16,
            group_segment: 32,
            workgroup: [64, 2, 1],
            grid: [256, 8, 1],
            ..Default::default()
        },
        &[],
    )
}

#[test]
fn a_c_tool_sees_what_was_recorded() {
    assert!(CALLED_FROM_C.iter().all(|keep| !keep.0.is_null()));
    serve();
    let dir = tempfile::tempdir().unwrap();
    let tool = Tool::compile(dir.path());

    // Configuration.
    // SAFETY: the handle is open and is never closed.
    unsafe { registration::load(tool.0, control::table()) }.unwrap();
    let mut lines = tool.lines();
    let agents: Vec<String> = lines
        .extract_if(.., |line| line.starts_with("agent size="))
        .collect();
    assert!(
        agents
            .iter()
            .all(|line| line.starts_with("agent size=312 type=") && line.ends_with("name=1")),
        "{agents:?}"
    );
    assert_eq!(
        lines,
        [
            "configure same=1 text=1.2.1 priority=0 handle=1",
            "configure attach same=1",
            "initialize data=tool initialized=-1 attachment=1",
            "context SUCCESS",
            "context SUCCESS",
            "context SUCCESS",
            "context SUCCESS",
            "thread before library=1",
            "thread after library=1",
            "thread SUCCESS",
            "buffer SUCCESS",
            "buffer SUCCESS",
            "buffer SUCCESS",
            "assign SUCCESS",
            "service SUCCESS",
            "service SUCCESS",
            "service SUCCESS",
            "service SUCCESS",
            "service SUCCESS",
            "service SUCCESS",
            "again ERROR_SERVICE_ALREADY_CONFIGURED",
            "no context ERROR_CONTEXT_NOT_FOUND",
            "no buffer ERROR_BUFFER_NOT_FOUND",
            "no kind ERROR_KIND_NOT_FOUND",
            "no operation ERROR_OPERATION_NOT_FOUND",
            "no library SUCCESS",
            "not built ERROR_NOT_IMPLEMENTED",
            "null ERROR_INVALID_ARGUMENT",
            "null ERROR_INVALID_ARGUMENT",
            "policy ERROR_INVALID_ARGUMENT",
            "table SUCCESS HIP_RUNTIME 11",
            "kinds=39 last=3 no name=ERROR_KIND_NOT_FOUND",
            &format!("agents version=1 count={} same=1", agents.len()),
            "agents SUCCESS",
            "agents ERROR_INCOMPATIBLE_ABI",
            "time=1 tid=1 words=1",
        ]
    );
    assert!(context::wanted().is_empty());

    // Attach.
    registration::attach().unwrap();
    let mut expected =
        vec!["attach data=attacher count=4 first=1 detach=0 late=ERROR_CONFIGURATION_LOCKED"];
    expected.extend(["start SUCCESS active=1"; 4]);
    expected.push("valid=0 ERROR_CONTEXT_NOT_FOUND");
    assert_eq!(tool.lines(), expected);
    assert_eq!(changes::requested(), 4);
    let wanted = context::wanted();
    assert_eq!(
        wanted.kinds.keys().copied().collect::<Vec<_>>(),
        [
            kind::HSA_CORE_API,
            kind::MEMORY_COPY,
            kind::KERNEL_DISPATCH,
            kind::HIP_RUNTIME_API_EXT,
            kind::RCCL_API
        ]
    );
    assert!(
        wanted.code_objects
            && wanted.delivers()
            && wanted.kinds.values().all(|d| d.deliver && !d.spool)
    );

    // Code objects are reported at once.
    let agent = event::Agent {
        header: Header {
            kind: kind::AGENT,
            ..Default::default()
        },
        handle: 0xa9e,
        node: 1_000_000,
        agent_type: 2,
    };
    let object = event::CodeObject {
        header: Header {
            kind: kind::CODE_OBJECT,
            ..Default::default()
        },
        code_object_id: 1,
        load_base: 0x5000,
        load_size: 0x100,
        load_delta: -16,
        memory_base: 0x7000,
        memory_size: 0x80,
        node: 1_000_000,
        uri_len: 8,
    };
    let symbol = event::KernelSymbol {
        header: Header {
            kind: kind::KERNEL_SYMBOL,
            ..Default::default()
        },
        kernel_id: 2,
        code_object_id: 1,
        kernel_object: 0x5040,
        entry_offset: 0x40,
        sgpr: 10,
        arch_vgpr: 20,
        accum_vgpr: 30,
        name_len: 7,
        ..Default::default()
    };
    let objects = [
        encode(&agent, &[]),
        encode(&object, b"memory:x"),
        encode(&symbol, b"vadd.kd"),
    ]
    .concat();
    buffer::deliver(&objects).unwrap();
    assert_eq!(
        tool.lines(),
        [
            "code object context=4 kind=10 phase=1 user=0 data=objects load size=88 id=1 hsa=a9e uri=memory:x base=5000+100 \
             delta=-16 storage=2 memory=7000+80",
            "code object context=4 kind=10 phase=1 user=0 data=objects symbol size=88 id=2 of=1 name=vadd.kd object=5040 \
             code=5080 sgpr=10 vgpr=20 accum=30",
        ]
    );

    // The device's buffer has a watermark of one byte, so there is a callback for each record. A
    // dispatch without times counts as dropped. One from before the start of the context does not
    // belong to the tool.
    let t = clock::now();
    let copy = event::Copy {
        header: Header {
            kind: kind::MEMORY_COPY,
            operation: 2,
            ..Default::default()
        },
        start: t,
        end: t + 9,
        correlation: 9,
        bytes: 4096,
        dst: 0xd0,
        src: 0x50,
        dst_node: 1_000_000,
        src_node: 1_000_001,
        tid: 44,
        ..Default::default()
    };
    let device = [
        kernel(1, 1, 0),
        kernel(2, t, 0),
        kernel(3, t, flag::UNTIMED),
        encode(&copy, &[]),
    ]
    .concat();
    buffer::deliver(&device).unwrap();
    let id = |node: u64| midair_agents::HANDLE_BASE + node;
    assert_eq!(
        tool.lines(),
        [
            "callback context=2 buffer=2 data=device count=1 dropped=0 worker=0 busy=ERROR_BUFFER_BUSY".to_owned(),
            format!(
                "record category=1 kind=11/11 KERNEL_DISPATCH_COMPLETE size=184 length=1 corr=8 t={}-{} tid=43 agent={} queue=4 \
                 kernel=2 dispatch=2 private=16 group=32 wg=64,2,1 grid=256,8,1",
                t + 10,
                t + 20,
                id(1_000_000)
            ),
            "callback context=2 buffer=2 data=device count=1 dropped=1 worker=0 busy=ERROR_BUFFER_BUSY".to_owned(),
            format!(
                "record category=1 kind=10/10 MEMORY_COPY_HOST_TO_DEVICE size=96 length=1 corr=9 t={t}-{} tid=44 dst={} src={} \
                 bytes=4096 to=d0 from=50",
                t + 9,
                id(1_000_000),
                id(1_000_001)
            ),
        ]
    );

    // Four launches fill the small buffer, whose callback runs on the tool's own thread. The buffer
    // of calls waits.
    let launches: Vec<u8> = (1..=4)
        .flat_map(|i| api(kind::HIP_RUNTIME_API_EXT, "hipLaunchKernel", i, t, &LAUNCH))
        .collect();
    buffer::deliver(&launches).unwrap();
    tool.wait_for("record category=1 kind=5/5 hipLaunchKernel size=64 length=1 corr=4/0/2 ");
    let lines = tool.lines();
    assert_eq!(lines.len(), 5, "{lines:?}");
    assert_eq!(
        lines.first().unwrap(),
        "callback context=3 buffer=3 data=launches count=4 dropped=0 worker=1 busy=ERROR_BUFFER_BUSY"
    );

    // The remaining records, and what the collecting side still had when everything was stopped,
    // are delivered before `tool_detach`.
    let mut calls = api(kind::HIP_RUNTIME_API_EXT, "hipMalloc", 5, t, &[0x99, 1024]);
    calls.extend(api(
        kind::HIP_COMPILER_API_EXT,
        "__hipPopCallConfiguration",
        6,
        t,
        &[0; 4],
    ));
    buffer::deliver(&calls).unwrap();
    *LEFT_OVER.lock().unwrap() = [
        api(kind::HSA_CORE_API, "hsa_signal_create", 7, t, &[0; 4]),
        // It started after the stop, so no tool gets it.
        api(
            kind::HSA_CORE_API,
            "hsa_signal_destroy",
            8,
            t + 1_000_000_000_000,
            &[0],
        ),
    ]
    .concat();
    registration::detach().unwrap();
    let launch = |i: u64| {
        format!(
            "record category=1 kind=21/21 hipLaunchKernel size=176 length=1 corr={i}/0/{} t={t}-{} tid=42 ret=3 f=0x1000 \
             grid=1,2,3 block=4,5,6 args=0x2000 shared=77 stream=0x3000",
            i / 2,
            t + 5
        )
    };
    assert_eq!(
        tool.lines(),
        [
            "callback context=1 buffer=1 data=calls count=6 dropped=0 worker=0 busy=ERROR_BUFFER_BUSY".to_owned(),
            launch(1)
                + " 0:const void *(1) function_address=0x1000 1:dim3(0) numBlocks={1, 2, 3} 2:dim3(0) dimBlocks={4, 5, 6} \
                   3:void **(2) args=0x2000 4:size_t(0) sharedMemBytes=77 5:hipStream_t(0) stream=0x3000 args SUCCESS",
            launch(2),
            launch(3),
            launch(4),
            format!(
                "record category=1 kind=21/21 hipMalloc size=176 length=1 corr=5/0/2 t={t}-{} tid=42 ret=3 ptr=0x99 size=1024",
                t + 5
            ),
            format!("record category=1 kind=1/1 hsa_signal_create size=64 length=1 args ERROR_KIND_NOT_FOUND corr=7/0/3 t={t}-{} tid=42", t + 5),
            "detach data=attacher running=0".to_owned(),
        ]
    );
    assert_eq!(changes::requested(), 5, "all contexts stop at one moment");
    buffer::deliver(&api(
        kind::HIP_RUNTIME_API_EXT,
        "hipMalloc",
        9,
        clock::now(),
        &[0, 0],
    ))
    .unwrap();

    // A tool that refuses is left detached, and can be attached later.
    let refuse: *mut c_int = tool.symbol(c"client_refuse_attach");
    // SAFETY: it is an int of the tool.
    unsafe { refuse.write(7) };
    assert_eq!(registration::attach(), Err(Status::ERROR));
    assert!(context::wanted().is_empty());
    assert_eq!(
        tool.lines().last().unwrap(),
        "detach data=attacher running=0"
    );
    // SAFETY: as above.
    unsafe { refuse.write(0) };
    registration::attach().unwrap();
    let again = context::wanted();
    assert_eq!(
        (again.kinds, again.code_objects, again.services.is_empty()),
        (
            wanted.kinds,
            wanted.code_objects,
            wanted.services.is_empty()
        )
    );

    // Bytes that are not records are refused; the records before them are delivered.
    let mut broken = kernel(5, clock::now(), 0);
    broken.extend([0; 16]);
    tool.lines();
    assert!(buffer::deliver(&broken).is_err());
    assert_eq!(tool.lines().len(), 2);

    // The tool ends itself: flushed, finalised, and not attached again.
    // SAFETY: it is a function of the tool without arguments.
    unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(tool.symbol(c"client_end"))()
    };
    assert_eq!(tool.lines().last().unwrap(), "finalize data=tool");
    assert!(context::wanted().is_empty());
    assert_eq!(registration::attach(), Err(Status::NOT_AVAILABLE));
    // SAFETY: the handle is open.
    let again = unsafe { registration::load(tool.0, control::table()) };
    assert_eq!(again, Err(Status::ERROR));
}
