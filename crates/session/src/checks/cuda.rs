//! What only a CUDA process has: its driver, CUPTI, who else may be at work there.

use super::Lines;
use crate::request::Request;
use crate::runtime::CUDA_NAME;
use midair_procinfo::Tid;
use midair_procinfo::module::Modules;
use midair_procinfo::show;

/// One line each.
pub(super) fn lines(request: &Request, tid: Tid, modules: &Modules, lines: &mut Lines) {
    driver(modules, lines);
    debugger(modules, lines);
    sharing(tid, lines);
    let _ = request;
}

/// Which driver, by the name of its library.
fn driver(modules: &Modules, lines: &mut Lines) {
    const NAME: &str = "CUDA driver";
    let version = modules.list.iter().find_map(|module| {
        let rest = module.file_name().strip_prefix(CUDA_NAME)?;
        let version = show(rest.strip_prefix(b".")?);
        version.contains('.').then_some(version)
    });
    match version {
        Some(version) => lines.pass(NAME, format!("version {version}")),
        None => lines.note(NAME, "its version is not in its library's name"),
    }
}

/// CUDA's debugger has its own library in the process while it works.
fn debugger(modules: &Modules, lines: &mut Lines) {
    const NAME: &str = "CUDA debugger";
    let there = modules
        .list
        .iter()
        .any(|module| module.file_name().starts_with(b"libcudadebugger.so"));
    if there {
        lines.note(
            NAME,
            "its library is loaded: while the debugger is at work CUPTI may refuse",
        );
    } else {
        lines.pass(NAME, "its library is not loaded");
    }
}

/// The Multi-Process Service runs work of several processes in one.
fn sharing(tid: Tid, lines: &mut Lines) {
    const NAME: &str = "MPS";
    let environment = match std::fs::read(format!("/proc/{tid}/environ")) {
        Ok(environment) => environment,
        Err(why) => return lines.cannot_tell(NAME, &why),
    };
    let is_client = environment
        .split(|byte| *byte == 0)
        .any(|pair| pair.starts_with(b"CUDA_MPS_"));
    if is_client {
        lines.note(
            NAME,
            "its environment names the Multi-Process Service: kernels of other processes may run beside its own",
        );
    }
}
