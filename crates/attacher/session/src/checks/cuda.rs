//! Checks for CUDA processes only: the driver, CUPTI, and other profilers.

use super::Lines;
use crate::cupti;
use crate::profiler_start;
use crate::request::Request;
use midair_failure::Failure;
use midair_nvmetrics::{Access, access, is_divided, other_profiler, too_old};
use midair_procinfo::files::{MOST_WORDS, kernel_text_up_to};
use midair_procinfo::module::Modules;
use midair_procinfo::{Pid, Tid};

/// Adds a line for each check.
pub(super) fn lines(
    request: &Request,
    (pid, tid): (Pid, Tid),
    modules: &Modules,
    lines: &mut Lines,
) {
    asked_for(request, tid, lines);
    driver(modules, lines);
    match cupti::first_candidate(pid, tid, modules, &request.settings) {
        Ok(found) => report_result("CUPTI", found, lines),
        Err(why) => lines.cannot_tell("CUPTI", &why),
    }
    let other = cupti::other_profiler(pid, tid, modules);
    let none = "none at its start; an attach finds out whether one uses CUPTI now";
    report_result(
        "CUDA profilers",
        other.map_or(Ok(none.to_owned()), Err),
        lines,
    );
    if let Some(found) = profiler_start::said_now(tid, modules) {
        lines.note("torch.profiler", found);
    }
    gpu_counters(lines);
    debugger(modules, lines);
    sharing(tid, lines);
}

fn report_result(name: &str, found: Result<String, Failure>, lines: &mut Lines) {
    match found {
        Ok(found) => lines.pass(name, found),
        Err(failure) => lines.fail(name, failure),
    }
}

/// Reports which parts of the request apply to a CUDA process.
fn asked_for(request: &Request, tid: Tid, lines: &mut Lines) {
    const NAME: &str = "recording";
    match crate::cuda::settings_for(request, tid) {
        Ok((settings, warnings, _)) => {
            let on = crate::cuda::recorded(&settings);
            lines.pass(NAME, [vec![on], warnings].concat().join("; "));
        }
        Err(failure) => lines.fail(NAME, failure),
    }
}

/// Reports whether the GPU can be sampled as a whole (`--gpu-metrics`), as far as known
/// without trying. It does not decide whether an attach is possible.
pub(super) fn gpu_counters(lines: &mut Lines) {
    of_counters(
        &Counters {
            divided: is_divided(),
            too_old: too_old(),
            other: other_profiler(),
            access: access(),
        },
        lines,
    );
}

/// What decides whether GPUs can be sampled.
struct Counters {
    divided: bool,
    too_old: Option<(String, u32)>,
    other: Option<(&'static str, &'static str)>,
    access: Access,
}

fn of_counters(counters: &Counters, lines: &mut Lines) {
    const NAME: &str = "GPU counters";
    if counters.divided {
        let found = "a GPU is partitioned (MIG), and --gpu-metrics requires the whole GPU";
        return lines.note(NAME, found);
    }
    if let Some((place, number)) = &counters.too_old {
        let found = format!(
            "the GPU at {place} (device {number:04x}) is older than Turing, and CUPTI samples GPUs from Turing (2018) on"
        );
        return lines.note(NAME, found);
    }
    if let Some((name, whose)) = counters.other {
        let found = format!(
            "{whose} runs here ({name}): while it uses the GPU's counters, --gpu-metrics cannot"
        );
        return lines.note(NAME, found);
    }
    match counters.access {
        Access::NoDriver => lines.note(NAME, "no /proc/driver/nvidia/params found, so the permissions are unknown"),
        Access::All => lines.pass(NAME, "all users may sample them (--gpu-metrics)"),
        Access::Admin => lines.pass(NAME, "administrators may sample them (--gpu-metrics), and this user is one"),
        Access::Refused => lines.note(
            NAME,
            "--gpu-metrics requires an administrator (RmProfilingAdminOnly is 1): root, CAP_SYS_ADMIN, or NVreg_RestrictProfilingToAdminUsers=0",
        ),
    }
}

/// Reports the driver's version, from the file name of its library.
fn driver(modules: &Modules, lines: &mut Lines) {
    const NAME: &str = "CUDA driver";
    match cupti::driver(modules) {
        Some(version) => lines.pass(NAME, format!("version {version}")),
        None => lines.note(NAME, "its version is not in its library's name"),
    }
}

/// Reports CUDA's debugger. While it is active, it has a library of its own in the process.
fn debugger(modules: &Modules, lines: &mut Lines) {
    const NAME: &str = "CUDA debugger";
    let there = modules
        .list
        .iter()
        .any(|module| module.file_name().starts_with(b"libcudadebugger.so"));
    if there {
        lines.note(
            NAME,
            "its library is loaded: while the debugger is active, CUPTI may refuse",
        );
    } else {
        lines.pass(NAME, "its library is not loaded");
    }
}

/// Reports the Multi-Process Service, which runs the work of several processes in one.
fn sharing(tid: Tid, lines: &mut Lines) {
    const NAME: &str = "MPS";
    let environment = match kernel_text_up_to(format!("{tid}/environ"), MOST_WORDS) {
        Ok(environment) => environment,
        Err(why) => return lines.cannot_tell(NAME, &why),
    };
    let is_client = environment
        .split(|byte| *byte == 0)
        .any(|pair| pair.starts_with(b"CUDA_MPS_"));
    if is_client {
        lines.note(
            NAME,
            "it uses the Multi-Process Service: kernels of other processes may run concurrently",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::Verdict;

    /// Each obstacle has its sentence, whatever comes after it.
    #[test]
    fn what_keeps_a_gpu_from_being_sampled() {
        let told = |counters: Counters| {
            let mut lines = Lines::default();
            of_counters(&counters, &mut lines);
            let [check] = &lines.checks[..] else {
                panic!("one line, not {:?}", lines.checks);
            };
            let passes = matches!(check.verdict, Verdict::Pass);
            (passes, check.found.clone())
        };
        let free = |access| Counters {
            divided: false,
            too_old: None,
            other: None,
            access,
        };
        for (counters, passes, says) in [
            (free(Access::All), true, "all users"),
            (free(Access::Admin), true, "this user is one"),
            (free(Access::NoDriver), false, "are unknown"),
            (free(Access::Refused), false, "RmProfilingAdminOnly is 1"),
            (
                Counters {
                    other: Some(("nv-hostengine", "DCGM")),
                    ..free(Access::All)
                },
                false,
                "DCGM runs here (nv-hostengine)",
            ),
            (
                Counters {
                    other: Some(("ncu", "Nsight Compute")),
                    ..free(Access::Refused)
                },
                false,
                "Nsight Compute runs here (ncu)",
            ),
            (
                Counters {
                    too_old: Some(("0000:af:00.0".to_owned(), 0x1db1)),
                    ..free(Access::All)
                },
                false,
                "0000:af:00.0 (device 1db1) is older than Turing",
            ),
            (
                Counters {
                    divided: true,
                    ..free(Access::All)
                },
                false,
                "MIG",
            ),
        ] {
            let (passed, found) = told(counters);
            assert_eq!(passed, passes, "{found}");
            assert!(found.contains(says), "{found}");
        }
    }
}
