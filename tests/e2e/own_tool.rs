//! A program brings a tool of its own (`rocprofiler_force_configure`), as frameworks do. Its
//! windows are complete when it flushes, on runtimes that register their tables and on those that
//! never do, with the service for code objects and without it.

use midair_tests::Result;
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::target::PATIENCE;

/// Returns the numbers of a line, such as the tool's answer to `window`.
fn numbers(line: &str) -> Result<Vec<u64>> {
    let words = line.split(' ').filter_map(|word| word.parse().ok());
    Ok(words.collect())
}

fn start(lab: &Lab, register: bool, options: &[&str]) -> Result<LabTarget> {
    let sdk = format!("{}/lib/librocprofiler-sdk.so.1", lab.stage()?);
    let (program, kernels) = (lab.program("own_tool")?, lab.kernels()?);
    let mut command = lab
        .run(&program)
        .register(register)
        .log_name(&format!("model-{register}-{}", options.join("-")))
        .arg(sdk)
        .arg(kernels);
    for option in options {
        command = command.arg(option);
    }
    let mut target = command.spawn()?;
    target.expect("ready")?;
    Ok(target)
}

/// Ends the program and returns the tool's last line, if it came that far. AMD's model mode may
/// abort at an exit.
fn end(mut target: LabTarget) -> Result<String> {
    target.send("quit")?;
    let exit = target.target.wait(PATIENCE)?;
    let line = exit.stdout.iter().find(|line| line.starts_with("end "));
    if exit.status.success() || exit.is_abort_of_amds_model() {
        return Ok(line.cloned().unwrap_or_default());
    }
    Err(exit.to_string().into())
}

#[test]
fn a_flush_hands_over_every_kernel_of_its_window() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    for register in [false, true] {
        for options in [
            &["first"][..],
            &["first", "objects"],
            &["late"],
            &["late", "objects"],
        ] {
            let mut target = start(&lab, register, options)?;
            for window in 0..10 {
                target.send("window 50")?;
                let line = target.expect("window")?;
                let [kernels, hip, refused, bad] = numbers(&line)?[..] else {
                    return Err(line.into());
                };
                assert_eq!(
                    (kernels, hip, refused, bad),
                    (50, 51, 0, 0),
                    "window {window}, register {register}, {options:?}"
                );
            }
            end(target)?;
        }
    }
    Ok(())
}

/// The start of the context started the session. The tool flushes on that same thread before the
/// session's own thread has had the processor.
#[test]
fn a_flush_waits_for_a_session_that_has_just_begun() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    for register in [false, true] {
        let mut target = start(&lab, register, &["late"])?;
        target.send("alone")?;
        if target.expect("alone")? != "alone" {
            return midair_tests::leave_out("threads cannot be kept from the processor here");
        }
        for _ in 0..3 {
            target.send("calls 50")?;
            let line = target.expect("calls")?;
            assert_eq!(numbers(&line)?, [50, 0, 0], "register {register}: {line}");
        }
        end(target)?;
    }
    Ok(())
}

/// The session starts with the context of one of the threads. The other context is notified of calls as
/// well. There is only one such moment in each process, so several processes are tried.
#[test]
fn two_threads_may_start_the_first_contexts_at_once() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    for _ in 0..6 {
        let mut target = start(&lab, true, &["late"])?;
        target.send("both 40")?;
        let line = target.expect("both")?;
        let [hip, told, refused, bad] = numbers(&line)?[..] else {
            return Err(line.into());
        };
        assert!(hip >= 40 && told >= 40, "{line}");
        assert_eq!((refused, bad), (0, 0), "{line}");
        end(target)?;
    }
    Ok(())
}

#[test]
fn a_flush_waits_for_a_callback_that_runs() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = start(&lab, true, &["first"])?;
    target.send("slow 30")?;
    let line = target.expect("slow")?;
    assert_eq!(numbers(&line)?, [0, 0], "{line}");
    end(target)?;
    Ok(())
}

#[test]
fn no_function_is_entered_after_its_context_was_stopped() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = start(&lab, true, &["first"])?;
    target.send("stop 80")?;
    let line = target.expect("stop")?;
    assert_eq!(numbers(&line)?, [0, 0, 0], "late, idle, refused: {line}");
    end(target)?;
    Ok(())
}

/// Tools keep the structs that they were given. Whatever was loaded is unloaded, each thing once.
#[test]
fn texts_outlive_the_callback_and_what_is_loaded_is_unloaded() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let mut target = start(&lab, true, &["first", "objects"])?;
    target.send("window 5")?;
    target.expect("window")?;
    target.send("names")?;
    let mut names = Vec::new();
    loop {
        let line = target.expect("")?;
        if line == "names" {
            break;
        }
        names.push(line);
    }
    for kernel in ["_Z4vaddPKfS0_Pfi.kd", "_Z5scalePffi.kd"] {
        let has = |name: &String| name.contains(&format!(" {kernel} of memory://"));
        assert!(names.iter().any(has), "{names:?}");
    }
    target.send("drop")?;
    let line = target.expect("drop")?;
    assert_eq!(
        numbers(&line)?,
        [1, 2, 0, 0],
        "one object, two symbols: {line}"
    );
    let line = end(target)?;
    let [
        objects,
        objects_gone,
        symbols,
        symbols_gone,
        early,
        bad,
        refused,
    ] = numbers(&line)?[..]
    else {
        return Err(line.into());
    };
    assert!(objects > 1 && symbols > 2, "{line}");
    assert_eq!((objects, symbols), (objects_gone, symbols_gone), "{line}");
    assert_eq!((early, bad, refused), (0, 0, 0), "{line}");
    Ok(())
}
