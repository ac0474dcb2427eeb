//! Clients of the SDK that we did not write. Where a library can be had, it runs unchanged. For the
//! others, a midair client makes the same calls in the same order (`tests/c/client_*.c`).

use crate::sample_counters::waves;
use midair_tests::Result;
use midair_tests::attacher::Attacher;
use midair_tests::client::ClientHost;
use midair_tests::lab::Lab;
use midair_tests::table::Csv;
use midair_tests::target::until;

/// Waits until the client has the records of this many kernels, and checks that all its calls
/// succeeded.
fn has(host: &mut ClientHost, expected: u64) -> Result<()> {
    until(&format!("{expected} kernels"), || {
        assert_eq!(host.client("flush")?, 0);
        Ok(host.count()?["kernels"] >= expected)
    })?;
    let count = host.count()?;
    assert_eq!(
        (count["kernels"], count["named"]),
        (expected, expected),
        "{count:?}"
    );
    let failed = (count["failed"], count["wrong"]);
    assert_eq!(failed, (0, 0), "{count:?} {:?}", host.lines());
    Ok(())
}

/// Records in windows, with launches between the windows that belong to none. `calls` says whether
/// the client is notified of each launch. `module` says whether each window loads the kernels again, for
/// a client that asks for code objects last.
fn windows(name: &str, calls: bool, module: bool) -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    for register in [true, false] {
        let command = ClientHost::command(&lab)?
            .register(register)
            .log_name(&format!("log-{register}"));
        let mut host = ClientHost::start(&lab, command)?;
        host.load(&lab, name)?;
        host.round(2)?;
        let mut all = 0;
        for number in [5, 3] {
            assert_eq!(host.client("start")?, 0);
            if module {
                host.send("module")?;
                host.expect("module")?;
            }
            host.round(number)?;
            all += u64::from(number);
            has(&mut host, all)?;
            assert_eq!(host.client("stop")?, 0);
            host.round(1)?;
        }
        has(&mut host, all)?;
        let count = host.count()?;
        if calls {
            assert_eq!((count["enters"], count["exits"]), (all, all), "{count:?}");
        }
        host.quit()?;
    }
    Ok(())
}

#[test]
fn the_calls_of_kinetos_plug_in() -> Result<()> {
    windows("kineto", true, false)
}

#[test]
fn the_calls_of_xlas_profiler() -> Result<()> {
    windows("xla", true, false)
}

#[test]
fn the_calls_of_calipers_service() -> Result<()> {
    windows("caliper", true, true)
}

/// Proton starts its context once and leaves it on.
#[test]
fn the_calls_of_proton() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut host = ClientHost::start(&lab, ClientHost::command(&lab)?)?;
    host.load(&lab, "proton")?;
    host.round(2)?;
    let mut all = 0;
    for number in [5, 3] {
        assert_eq!(host.client("start")?, 0);
        host.round(number)?;
        all += u64::from(number);
        has(&mut host, all)?;
    }
    // The program makes another queue while the context is on.
    host.send("queue")?;
    host.expect("queue")?;
    host.round(4)?;
    has(&mut host, all + 4)?;
    assert_eq!(host.client("stop")?, 0);
    host.quit()
}

/// TAU is there from the start and never stops its context. The register library finds it, as a
/// tool that the process was started with.
#[test]
fn the_calls_of_taus_layer() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let tool = lab.install(&midair_tests::client::library("tau")?)?;
    for at_start in [true, false] {
        let mut command = ClientHost::command(&lab)?.log_name(&format!("log-{at_start}"));
        if at_start {
            command = command.env("ROCP_TOOL_LIBRARIES", &tool);
        }
        let mut host = ClientHost::start(&lab, command)?;
        host.load(&lab, "tau")?;
        host.round(6)?;
        has(&mut host, 6)?;
        assert_eq!(host.client("stop")?, 0);
        host.quit()?;
    }
    Ok(())
}

/// PAPI counts for the whole device between a start and a stop, and reads in between. It reads the
/// kernels' values. Afterwards the process can be attached to.
#[test]
fn the_calls_of_papis_component() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut host = ClientHost::start(&lab, ClientHost::command(&lab)?)?;
    host.load(&lab, "papi")?;
    host.round(2)?;
    for rounds in [3, 5] {
        assert_eq!(host.client("start")?, 0);
        let waves = |host: &ClientHost| -> Result<u64> { Ok(waves(&host.model_log()?)) };
        // A queue is enabled for counters only when the program has been seen checking for room in
        // its ring. The first round brings that about.
        host.round(1)?;
        assert_eq!(host.client("flush")?, 0);
        let (before, counted) = (waves(&host)?, host.count()?["kernels"]);
        host.round(rounds)?;
        assert_eq!(host.client("flush")?, 0);
        let count = host.count()?;
        assert_eq!(
            count["kernels"] - counted,
            waves(&host)? - before,
            "{count:?}"
        );
        assert_eq!(count["copies"], 8, "{count:?}");
        assert!(count["named"] > 300, "{count:?}");
        assert_eq!(host.client("stop")?, 0);
    }
    let count = host.count()?;
    assert_eq!((count["failed"], count["wrong"]), (0, 0), "{count:?}");
    let attacher = Attacher::start(host.pid(), &["--kernel-trace"])?;
    host.round(3)?;
    let traced = attacher.detach()?.code(0)?;
    let rows = Csv::read(&traced.file("kernel_trace.csv"))?.rows;
    assert_eq!(rows.len(), 3);
    host.quit()
}
