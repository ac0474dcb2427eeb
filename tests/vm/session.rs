//! A whole session: every kernel of the GPUs' own log is in the trace.

use crate::subject::{Subject, attach, attacher, is_in, kit, say};
use midair_tests::Result;
use midair_tests::stage::run_staged;
use midair_tests::table::Csv;
use midair_tests::target::PATIENCE;

pub fn check() -> Result<()> {
    let kit = kit()?;
    let mut subject = Subject::start(&kit, &[], &[])?;
    let exit = run_staged("midair", &["doctor", &subject.pid().to_string()], PATIENCE)?;
    exit.success()?;
    let mut process = attacher(&kit, &[], subject.pid())?;
    let before = subject.log()?.dispatches().count();
    subject.work()?;
    let after = subject.log()?.dispatches().count();
    process.send("")?;
    process.wait(PATIENCE)?.success()?;
    let rows = Csv::read(&kit.scratch().join("out/out_kernel_trace.csv"))?
        .rows
        .len();
    if rows != after - before || rows == 0 {
        return Err(format!("{rows} kernels in the trace, {} in the log", after - before).into());
    }
    say(&format!(
        "a session by tracing: all {rows} kernels in the trace"
    ));
    subject.quit()?;
    let subject = Subject::listening(&kit, None)?;
    let exit = attach(&kit, &[], subject.pid())?;
    is_in("a session over the listener's socket", &exit)?;
    subject.quit()
}
