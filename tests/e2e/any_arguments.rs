//! Every exported function of the SDK's library with any arguments, on five threads, while midair
//! attaches to the process and detaches: a documented status and never a crash; and an attach
//! afterwards has everything (`crates/sdk-so/tests/arguments.c`).

#[allow(
    dead_code,
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "what the library's own tests share"
)]
#[path = "../../crates/sdk-so/tests/common/arguments.rs"]
mod common;

use common::{api, compile_with, functions, values};
use midair_tests::Result;
use midair_tests::attacher::Attacher;
use midair_tests::stage::stage;
use midair_tests::stand_in::Kit;
use midair_tests::table::Csv;
use midair_tests::target::PATIENCE;
use std::process::Command;

/// Calls that the program makes of HIP in a round.
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
    // Whoever guesses their numbers destroys the buffer of midair's tool, or has its context count
    // beside one that counts, as under AMD's library. A tool then refuses each attach, which the
    // library's own tests have.
    all.retain(|(name, ..)| {
        name != "rocprofiler_destroy_buffer" && !name.contains("counting_service")
    });
    let program = compile_with(kit.scratch(), &all, statuses, &more);
    let library = stage()?.join("lib/librocprofiler-sdk.so.1");
    let mut command = Command::new(program);
    // More calls than there is time for.
    command.arg(library).args(["attached", "1", "4000000000"]);
    let mut target = kit.start_command(command, "model.log", &[])?;
    target.expect("ready")?;
    for session in 0..7 {
        // The last one has nobody who stops contexts by their numbers, ours among them.
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
