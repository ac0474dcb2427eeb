//! Calls every exported function of the SDK's library with any arguments, on five threads, while
//! midair attaches to the process and detaches (`crates/exports/sdk-so/tests/arguments.c`). Each call
//! returns a documented status and never crashes. An attach afterwards records everything.

#[allow(
    dead_code,
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "what the library's own tests share"
)]
#[path = "../../crates/exports/sdk-so/tests/common/arguments.rs"]
mod common;

use common::{api, compile_with, functions, values};
use midair_tests::Result;
use midair_tests::attacher::Attacher;
use midair_tests::stage::stage;
use midair_tests::stand_in::Kit;
use midair_tests::table::Csv;
use midair_tests::target::PATIENCE;
use std::process::Command;

/// The number of HIP calls that the program makes in a round.
const CALLS: usize = 100;

#[test]
fn any_arguments_while_midair_attaches_and_detaches() -> Result<()> {
    let kit = Kit::new()?;
    let runtimes = kit.dir().display();
    let more = [
        format!("-L{runtimes}"),
        format!("-Wl,-rpath,{runtimes}"),
        "-Wl,--no-as-needed".to_owned(),
        "-l:libamdhip64.so.7".to_owned(),
        "-l:libhsa-runtime64.so.1".to_owned(),
    ];
    let sdk = api("rocprofiler_sdk.json");
    let statuses = values(&sdk, "rocprofiler_status_t", "ROCPROFILER_STATUS_LAST");
    let mut all = functions(&sdk, "rocprofiler_", "rocprofiler_status_t");
    // These functions are left out. A caller that guesses the right number destroys the buffer of
    // midair's tool, or makes its context count alongside another one that counts. AMD's library
    // allows the same. A tool then refuses each attach. The library's own tests cover these
    // functions.
    all.retain(|(name, ..)| {
        name != "rocprofiler_destroy_buffer" && !name.contains("counting_service")
    });
    let program = compile_with(kit.scratch(), &all, statuses, &more);
    let library = stage()?.join("lib/librocprofiler-sdk.so.1");
    let mut command = Command::new(program);
    // The last argument asks for more calls than there is time for.
    command.arg(library).args(["attached", "1", "4000000000"]);
    let mut target = kit.start_command(command, "model.log", &[])?;
    target.expect("ready")?;
    for session in 0..7 {
        // In the last session no call stops contexts by guessed numbers, which could hit ours.
        let is_last = session == 6;
        if is_last {
            target.send("still")?;
            target.expect("still")?;
        }
        let attacher = Attacher::midair(target.pid(), &["--hip-runtime-trace"])?;
        target.send("hip")?;
        target.expect("hip")?;
        let traced = attacher.detach()?.code(0)?;
        if is_last {
            let rows = Csv::read(&traced.file("hip_api_trace.csv"))?.rows;
            assert_eq!(rows.len(), CALLS);
        }
    }
    target.send("quit")?;
    target.expect("attached calls")?;
    target.target.wait(PATIENCE)?.success()?;
    Ok(())
}
