//! Conditions for hardware counters: what the machine, its kernel driver and its other processes
//! mean for `--pmc` and `--pmc-device`. None of them forbids an attach. Each is reported with what
//! was found, its cause, and the remedy.

use super::{Lines, traces};
use crate::gpu_users::{self, text};
use crate::profiler_lock;
use crate::sampling::{described, sampling};
use midair_agents::{Agent, AgentType};
use midair_counters::Architecture;
use midair_failure::plain;
use midair_procinfo::{Pid, Tid};
use midair_ptrace::kfd::Kfd;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// `CAP_PERFMON` and `CAP_SYS_ADMIN`. The driver accepts either.
const MAY_LOCK: u64 = 1 << 38 | 1 << 21;
/// GPUs of an instruction set version below this one do not switch the counters' clock off.
const GATED_FROM: u32 = 110_000;
/// The most processes on a GPU that are named. More are only counted.
const MOST_NAMED: usize = 8;

/// The machine that is inspected.
pub(super) struct Machine<'a> {
    /// Where the kernel's files are: `/sys`.
    pub sys: PathBuf,
    pub gpus: Vec<&'a Agent>,
    /// The process that would be attached to.
    pub pid: Pid,
    /// The driver's profiler lock: the version of its interface, or why there is none.
    pub lock: Result<u32, String>,
    /// Whether this process may take the lock.
    pub may_lock: bool,
    /// The files that AMD's packet library may be, in the order in which they are tried.
    pub libraries: Vec<OsString>,
    /// The file that it is in the process's root, where that is another root.
    pub there: Option<PathBuf>,
}

/// Adds lines about the counters and the samples of the machine's GPUs, or none where there is no GPU. `there` is AMD's
/// packet library in the process's root, where that is another root.
pub(super) fn lines(agents: &[Agent], pid: Pid, there: Option<PathBuf>, lines: &mut Lines) {
    let gpus: Vec<&Agent> = agents
        .iter()
        .filter(|agent| agent.agent_type == AgentType::Gpu)
        .collect();
    if gpus.is_empty() {
        return;
    }
    let lock = Kfd::open()
        .map_err(|error| format!("cannot open /dev/kfd: {error}"))
        .and_then(|kfd| {
            let interface = kfd.profiler_interface();
            interface.map_err(|error| profiler_lock::not_offered(&error))
        });
    let machine = Machine {
        sys: PathBuf::from(gpu_users::SYS),
        gpus,
        pid,
        lock: lock.map(|interface| interface.version),
        may_lock: midair_procinfo::task::status(Tid::from(Pid::own()))
            .is_ok_and(|status| status.cap_effective & MAY_LOCK != 0),
        libraries: midair_aqlprofile::libraries(|name| std::env::var_os(name)),
        there,
    };
    machine.tell(lines);
    for (name, what) in traces::checks(agents) {
        match what {
            Ok(text) => lines.pass(&name, text),
            Err(text) => lines.note(&name, text),
        }
    }
    for (number, gpu) in machine.gpus.iter().enumerate() {
        let name = format!("samples: GPU {number}");
        match described(&sampling(gpu.gpu_id)) {
            Ok(ways) => lines.pass(&name, ways),
            Err(why) => lines.note(&name, why),
        }
    }
}

impl Machine<'_> {
    pub(super) fn tell(&self, lines: &mut Lines) {
        self.library(lines);
        self.profiler_lock(lines);
        for (number, gpu) in self.gpus.iter().enumerate() {
            self.counters(number, gpu, lines);
            self.clock(number, gpu, lines);
            self.others(number, gpu, lines);
        }
    }

    /// Reports AMD's packet library. Without it no packets can be made.
    fn library(&self, lines: &mut Lines) {
        const NAME: &str = "counters: library";
        // The last candidate is a name for the loader to search, and not a path.
        let found = self.libraries.iter().find(|file| is_file(Path::new(file)));
        match (found, &self.there) {
            (Some(file), _) => lines.pass(NAME, format!("{}", Path::new(file).display())),
            (None, Some(file)) => lines.pass(
                NAME,
                format!(
                    "{} in the root of the process, which an attach as root uses",
                    plain::line(&file.to_string_lossy())
                ),
            ),
            (None, None) => lines.note(
                NAME,
                format!(
                    "no ROCm below /opt has AMD's packet library, so counters work only if the loader finds {}; install the package \
                     hsa-amd-aqlprofile (Debian: libhsa-amd-aqlprofile64-1), or set ROCM_PATH",
                    midair_aqlprofile::SONAME
                ),
            ),
        }
    }

    /// Reports the driver's profiler lock. While it is held, no other profiler restarts the
    /// counters, provided that the other one asks for the lock, too.
    fn profiler_lock(&self, lines: &mut Lines) {
        const NAME: &str = "counters: profiler lock";
        match (&self.lock, self.may_lock) {
            (Ok(version), true) => lines.pass(
                NAME,
                format!("the driver has one (interface {version}), and this user may take it"),
            ),
            (Ok(version), false) => lines.note(
                NAME,
                format!(
                    "the driver has one (interface {version}), but this user may not take it (no CAP_PERFMON): another profiler may \
                     restart the counters; run midair as root"
                ),
            ),
            (Err(why), _) => lines.note(
                NAME,
                format!(
                    "cannot take it ({why}): another profiler may restart the counters, so run no other profiler on these GPUs"
                ),
            ),
        }
    }

    fn counters(&self, number: usize, gpu: &Agent, lines: &mut Lines) {
        let name = format!("counters: GPU {number}");
        match Architecture::find(&gpu.name) {
            Some(known) => lines.pass(
                &name,
                format!("{}: {} counters", gpu.name, known.counters.len()),
            ),
            None => {
                let known: Vec<&str> = Architecture::all().iter().map(|a| a.name).collect();
                let known = known.join(", ");
                lines.note(
                    &name,
                    format!(
                        "the counters of {} are unknown; midair knows {known}",
                        gpu.name
                    ),
                );
            }
        }
    }

    /// Reports the counters' clock. On gfx11 and gfx12 it stands still while the driver chooses
    /// clocks by itself, and the counters then read 0.
    fn clock(&self, number: usize, gpu: &Agent, lines: &mut Lines) {
        const LEVEL: &str = "power_dpm_force_performance_level";
        if gpu.gfx_target_version < GATED_FROM {
            return;
        }
        let name = format!("counters: clock of GPU {number}");
        let render = format!("class/drm/renderD{}/device", gpu.drm_render_minor);
        let file = self.sys.join(render).join(LEVEL);
        match text(&file) {
            Err(why) => lines.cannot_tell(&name, &why),
            Ok(level) if level.trim() == "auto" => lines.note(
                &name,
                format!(
                    "the driver manages clocks ({LEVEL} is auto), so {} stops the counters' clock and counters read 0; echo \
                     profile_standard | sudo tee {}",
                    gpu.name,
                    file.display()
                ),
            ),
            Ok(level) => lines.pass(&name, format!("{LEVEL} is {}", level.trim())),
        }
    }

    /// Reports other processes on the GPU. Counters of whole devices count their work, too.
    fn others(&self, number: usize, gpu: &Agent, lines: &mut Lines) {
        let name = format!("counters: others on GPU {number}");
        let others = match gpu_users::others(&self.sys, gpu.gpu_id, self.pid) {
            Err(why) => return lines.cannot_tell(&name, &why),
            Ok(others) => others,
        };
        if others.is_empty() {
            return lines.pass(&name, "no other process uses it");
        }
        let named: Vec<String> = others.iter().take(MOST_NAMED).map(u32::to_string).collect();
        let more = match others.len() - named.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        lines.note(
            &name,
            format!(
                "processes {}{more} have memory or queues on it: counters of blocks other than SQ and SPI include their work; end them, or \
                 use only counters of SQ and SPI",
                named.join(", ")
            ),
        );
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a file of this side's own installation"
)]
fn is_file(file: &Path) -> bool {
    file.is_file()
}

#[cfg(test)]
mod tests {
    use super::super::{Check, Verdict};
    use super::*;

    /// A machine with one GPU. Its files are below a directory of the test.
    struct Model {
        sys: tempfile::TempDir,
        gpu: Agent,
        there: Option<PathBuf>,
    }

    impl Model {
        fn new(name: &str, version: u32) -> Model {
            let gpu = Agent {
                name: name.to_owned(),
                agent_type: AgentType::Gpu,
                gfx_target_version: version,
                drm_render_minor: 128,
                gpu_id: 4711,
                ..Agent::default()
            };
            let sys = tempfile::tempdir().unwrap();
            let there = None;
            let model = Model { sys, gpu, there };
            model.write("class/kfd/kfd/proc/77/vram_4711", "4096\n");
            model
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.sys.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        fn tell(&self, lock: Result<u32, String>, may_lock: bool) -> Vec<Check> {
            let machine = Machine {
                sys: self.sys.path().to_owned(),
                gpus: vec![&self.gpu],
                pid: Pid::new(77).unwrap(),
                lock,
                may_lock,
                libraries: vec!["/nowhere/lib.so".into(), "lib.so".into()],
                there: self.there.clone(),
            };
            let mut lines = Lines {
                checks: Vec::new(),
                enters: true,
            };
            machine.tell(&mut lines);
            lines.checks
        }
    }

    fn found<'a>(checks: &'a [Check], name: &str) -> (&'a str, bool) {
        let check = checks.iter().find(|check| check.name == name);
        let check = check.unwrap_or_else(|| panic!("{name}: {checks:?}"));
        (&check.found, matches!(check.verdict, Verdict::Pass))
    }

    #[test]
    fn the_clock_of_counters_is_told_of_where_the_gpu_stops_it() {
        const LEVEL: &str = "class/drm/renderD128/device/power_dpm_force_performance_level";
        let model = Model::new("gfx1100", 110_000);
        model.write(LEVEL, "auto\n");
        let checks = model.tell(Ok(1), true);
        let (text, good) = found(&checks, "counters: clock of GPU 0");
        assert!(
            !good && text.contains("read 0") && text.contains("sudo tee"),
            "{text}"
        );
        model.write(LEVEL, "profile_standard\n");
        assert!(found(&model.tell(Ok(1), true), "counters: clock of GPU 0").1);
        // The file is missing, so the state of the clock is unknown.
        let model = Model::new("gfx1201", 120_001);
        let checks = model.tell(Ok(1), true);
        let (text, good) = found(&checks, "counters: clock of GPU 0");
        assert!(!good && text.contains("cannot be determined"), "{text}");
        // This GPU does not stop the clock.
        let checks = Model::new("gfx942", 90_402).tell(Ok(1), true);
        assert!(checks.iter().all(|check| !check.name.contains("clock")));
    }

    #[test]
    fn the_profiler_lock_is_told_of_with_what_it_lacks() {
        const NAME: &str = "counters: profiler lock";
        let model = Model::new("gfx942", 90_402);
        assert!(found(&model.tell(Ok(3), true), NAME).1);
        let checks = model.tell(Ok(3), false);
        let (text, good) = found(&checks, NAME);
        assert!(
            !good && text.contains("CAP_PERFMON") && text.contains("as root"),
            "{text}"
        );
        let checks = model.tell(Err("the kernel driver has none".to_owned()), true);
        let (text, good) = found(&checks, NAME);
        assert!(
            !good && text.contains("(the kernel driver has none)"),
            "{text}"
        );
    }

    #[test]
    fn other_processes_on_the_gpu_are_named() {
        const NAME: &str = "counters: others on GPU 0";
        let model = Model::new("gfx942", 90_402);
        assert!(
            found(&model.tell(Ok(1), true), NAME).1,
            "it is the only one"
        );
        // One process without anything there, one with memory, one with a queue, and one on another
        // GPU.
        model.write("class/kfd/kfd/proc/81/vram_4711", "0\n");
        model.write("class/kfd/kfd/proc/82/vram_4711", "8192\n");
        model.write("class/kfd/kfd/proc/83/queues/1/gpuid", "4711\n");
        model.write("class/kfd/kfd/proc/84/queues/1/gpuid", "12\n");
        let checks = model.tell(Ok(1), true);
        let (text, good) = found(&checks, NAME);
        assert!(!good && text.starts_with("processes 82, 83 have"), "{text}");
    }

    #[test]
    fn unknown_gpus_and_a_missing_library_are_told_of() {
        let checks = Model::new("gfx900", 90_000).tell(Ok(1), true);
        let (text, good) = found(&checks, "counters: GPU 0");
        assert!(
            !good && text.contains("gfx900") && text.contains("gfx942"),
            "{text}"
        );
        let (text, good) = found(&checks, "counters: library");
        assert!(!good && text.contains("hsa-amd-aqlprofile"), "{text}");
        let mut model = Model::new("gfx942", 90_402);
        model.there = Some("/opt/rocm/lib/lib.so".into());
        let checks = model.tell(Ok(1), true);
        let (text, good) = found(&checks, "counters: library");
        assert!(
            good && text.starts_with("/opt/rocm/lib/lib.so in the root"),
            "{text}"
        );
        assert!(found(&checks, "counters: GPU 0").1);
    }
}
