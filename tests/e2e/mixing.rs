//! Our parts alongside AMD's and alongside foreign ones. Each mixture works, or is refused with a status
//! of its own and leaves the process as it was.
//!
//! The register library is ours or AMD's 0.6.0. The attaching side is our engine, or a program that
//! speaks AMD's protocol on the listener thread (`amd_injector.c`). The SDK is ours or a foreign
//! one (`mixing_sdk.c`), and so is the tool (`mixing_tool.c`). The attach helper in the target is
//! always ours, and the runtimes are AMD's real ones. The counts of the program itself say whether
//! the records are right.

use midair_tests::Result;
use midair_tests::caller::{Caller, between};
use midair_tests::compile::host_program;
use midair_tests::lab::Lab;
use midair_tests::stage::{command, plain_environment, run_staged, stage};
use midair_tests::table::Csv;
use midair_tests::target::{PATIENCE, Target};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Who made a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Ours,
    /// AMD's register library. The other foreign parts are stand-ins.
    Foreign,
}
use Owner::{Foreign, Ours};

/// The outcome that is expected of a mixture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// The calls of the session are in a file, exactly.
    Records,
    /// The foreign tool is configured, attached and detached.
    Hooks,
    /// `rocprofiler_register_attach` returns this number.
    Refused(u32),
}
use Outcome::{Hooks, Records, Refused};

/// `ROCP_REG_ROCPROFILER_ERROR`: the SDK has no tool that it can attach.
const SDK_REFUSES: u32 = 6;

/// Register library, attaching side, SDK, tool, and the expected outcome.
type Mixture = (Owner, Owner, Owner, Owner, Outcome);

const MIXTURES: [Mixture; 16] = [
    (Ours, Ours, Ours, Ours, Records),
    (Ours, Ours, Ours, Foreign, Hooks),
    // The engine brings our SDK whatever is there, and leaves an SDK that is there alone.
    (Ours, Ours, Foreign, Ours, Records),
    (Ours, Ours, Foreign, Foreign, Hooks),
    (Ours, Foreign, Ours, Ours, Records),
    (Ours, Foreign, Ours, Foreign, Hooks),
    // Our tool needs our SDK, and refuses to work with any other.
    (Ours, Foreign, Foreign, Ours, Refused(SDK_REFUSES)),
    (Ours, Foreign, Foreign, Foreign, Hooks),
    (Foreign, Ours, Ours, Ours, Records),
    (Foreign, Ours, Ours, Foreign, Hooks),
    (Foreign, Ours, Foreign, Ours, Records),
    (Foreign, Ours, Foreign, Foreign, Hooks),
    (Foreign, Foreign, Ours, Ours, Records),
    (Foreign, Foreign, Ours, Foreign, Hooks),
    (Foreign, Foreign, Foreign, Ours, Refused(SDK_REFUSES)),
    (Foreign, Foreign, Foreign, Foreign, Hooks),
];

const OUR_TOOL: &str = "rocprofiler-sdk/librocprofiler-sdk-tool.so.1";
const OUR_COLLECTOR: &str = "rocprofiler-sdk/midair-collector";

/// The parts of a mixture, in a directory of the lab.
struct Parts<'a> {
    lab: &'a Lab,
    dir: PathBuf,
    log: PathBuf,
    files: PathBuf,
}

impl<'a> Parts<'a> {
    fn lay_out(lab: &'a Lab, register: Owner, sdk: Owner) -> Result<Parts<'a>> {
        let dir = lab.scratch().join("lib");
        let files = lab.scratch().join("files");
        std::fs::create_dir_all(dir.join("rocprofiler-sdk"))?;
        std::fs::create_dir_all(&files)?;
        let staged = stage()?.join("lib");
        let put = |from: &Path, names: &[&str]| -> Result<()> {
            for name in names {
                std::fs::copy(from, dir.join(name))?;
            }
            Ok(())
        };
        let library = |source: &str, file: &str| -> Result<PathBuf> {
            Ok(lab.outside(&lab.library(source, file)?).join(file))
        };
        put(
            &staged.join("librocprofiler-sdk-attach.so.1"),
            &[
                "librocprofiler-sdk-attach.so",
                "librocprofiler-sdk-attach.so.1",
            ],
        )?;
        if register == Ours {
            let name = "librocprofiler-register.so.0";
            put(&staged.join(name), &[name])?;
        }
        let sdk = match sdk {
            Ours => staged.join("librocprofiler-sdk.so.1"),
            Foreign => library("mixing_sdk", "librocprofiler-sdk.so.1")?,
        };
        put(&sdk, &["librocprofiler-sdk.so", "librocprofiler-sdk.so.1"])?;
        for name in [OUR_TOOL, OUR_COLLECTOR] {
            put(&staged.join(name), &[name])?;
        }
        put(
            &library("mixing_tool", "libmixing_tool.so")?,
            &["libmixing_tool.so"],
        )?;
        let log = lab.scratch().join("probe.log");
        std::fs::write(&log, "")?;
        Ok(Parts {
            lab,
            dir,
            log,
            files,
        })
    }

    /// Returns the path of a tool, as the target sees it.
    fn tool(&self, tool: Owner) -> Result<String> {
        self.lab.inside(&self.dir.join(match tool {
            Ours => OUR_TOOL,
            Foreign => "libmixing_tool.so",
        }))
    }

    /// Returns the lines that a part has noted.
    fn notes(&self, owner: &str) -> Result<Vec<String>> {
        let text = std::fs::read_to_string(&self.log)?;
        let lines = text.lines().filter(|line| line.starts_with(owner));
        Ok(lines.map(str::to_owned).collect())
    }

    /// Returns how many rows the file of HIP calls has.
    fn rows(&self, pid: i32) -> Result<u64> {
        let path = self.files.join(format!("{pid}_hip_api_trace.csv"));
        Ok(Csv::read(&path)?.rows.len() as u64)
    }
}

/// An attacher that waits for a line.
struct Attacher {
    process: Target,
    engine: bool,
}

impl Attacher {
    /// Starts an attacher. `Err` is the number of the refusal.
    fn start(
        parts: &Parts<'_>,
        pid: i32,
        by: Owner,
        tool: Owner,
    ) -> Result<std::result::Result<Attacher, u32>> {
        let settings = |files: String| {
            [
                ("ROCPROF_HIP_RUNTIME_API_TRACE", "1".to_owned()),
                ("ROCPROF_OUTPUT_FORMAT", "csv".to_owned()),
                ("ROCPROF_OUTPUT_FILE_NAME", "%pid%".to_owned()),
                ("ROCPROF_OUTPUT_PATH", files),
            ]
        };
        if by == Ours {
            let mut command = command("rocprof-attach")?;
            command.args(["-p", &pid.to_string()]);
            if tool == Foreign {
                command.args(["-t", &parts.tool(tool)?]);
            }
            command.envs(settings(parts.files.display().to_string()));
            let mut process = Target::spawn(command)?;
            process.expect("Press Enter to detach...")?;
            return Ok(Ok(Attacher {
                process,
                engine: true,
            }));
        }
        let mut command = Command::new(host_program("amd_injector")?);
        command.args([pid.to_string(), parts.tool(tool)?]);
        for (name, value) in settings(parts.lab.inside(&parts.files)?) {
            command.arg(format!("{name}={value}"));
        }
        command.env_clear().envs(plain_environment());
        let mut process = Target::spawn(command)?;
        let line = process.expect("attach ")?;
        match line.trim_start_matches("attach ").parse()? {
            0 => Ok(Ok(Attacher {
                process,
                engine: false,
            })),
            code => Ok(Err(code)),
        }
    }

    fn detach(mut self) -> Result<()> {
        self.process.send("")?;
        if !self.engine {
            assert_eq!(self.process.expect("detach ")?, "detach 0");
        }
        self.process.wait(PATIENCE)?.success()?;
        Ok(())
    }
}

fn try_out(mixture: &Mixture) -> Result<()> {
    let (register, by, sdk, tool, outcome) = *mixture;
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let parts = Parts::lay_out(&lab, register, sdk)?;
    let libs = lab.inside(&parts.dir)?;
    let mut command = Caller::command(&lab)?
        .libs(&libs)
        .env("ROCP_TOOL_ATTACH", 1)
        .env("PROBE_LOG", lab.inside(&parts.log)?);
    if by == Ours && sdk == Foreign {
        // The foreign SDK is there from the start, as another profiler would be.
        command = command.preload(&format!("{libs}/librocprofiler-sdk.so.1"));
    }
    let mut caller = Caller::start(command)?;
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", caller.pid()))?;
    let ours = maps.contains(&format!("{libs}/librocprofiler-register.so.0"));
    assert_eq!(
        ours,
        register == Ours,
        "the register library in use is another one"
    );

    // Two sessions, since a process can be attached to again.
    for session in 1..=2 {
        let pid = caller.pid();
        let attacher = match Attacher::start(&parts, pid, by, tool)? {
            Ok(attacher) => attacher,
            Err(code) => {
                assert_eq!(Refused(code), outcome);
                assert!(
                    parts
                        .notes("sdk: ")?
                        .contains(&"sdk: tool declined".to_owned())
                );
                break;
            }
        };
        let before = caller.counts()?;
        caller.tell("calls 2")?;
        let made: u64 = between(&before, &caller.counts()?, "hip").values().sum();
        attacher.detach()?;
        match outcome {
            Records => assert_eq!(parts.rows(pid)?, made, "session {session}"),
            Hooks => {
                let mut all = vec!["tool configure", "tool configure_attach", "tool init"];
                for _ in 0..session {
                    all.extend(["tool attach", "tool detach"]);
                }
                assert_eq!(parts.notes("tool ")?, all);
            }
            Refused(_) => return Err(format!("session {session} was not refused").into()),
        }
        if by == Ours && sdk == Foreign {
            assert_eq!(
                parts.notes("sdk: ")?,
                [""; 0],
                "the foreign SDK was touched"
            );
        }
    }
    // The program works on, and ends as it would have without us.
    caller.tell("calls 1")?;
    caller.quit()
}

fn all_of(register: Owner, by: Owner) -> Result<()> {
    let of = MIXTURES
        .iter()
        .filter(|mixture| (mixture.0, mixture.1) == (register, by));
    let mut failures = Vec::new();
    let mut count = 0;
    for mixture in of {
        count += 1;
        if let Err(error) = std::panic::catch_unwind(|| try_out(mixture).map_err(|e| e.to_string()))
            .unwrap_or_else(|_| Err("an assertion, see above".to_owned()))
        {
            failures.push(format!("{mixture:?}: {error}"));
        }
    }
    assert_eq!(count, 4, "every SDK with every tool");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

#[test]
fn our_engine_where_our_register_is() -> Result<()> {
    all_of(Ours, Ours)
}

#[test]
fn our_engine_where_amds_register_is() -> Result<()> {
    all_of(Foreign, Ours)
}

#[test]
fn amds_protocol_on_our_register() -> Result<()> {
    all_of(Ours, Foreign)
}

#[test]
fn amds_protocol_on_amds_register() -> Result<()> {
    all_of(Foreign, Foreign)
}

#[test]
fn our_engine_and_amds_protocol_exclude_each_other() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let parts = Parts::lay_out(&lab, Ours, Ours)?;
    let command = Caller::command(&lab)?
        .libs(&lab.inside(&parts.dir)?)
        .env("PROBE_LOG", lab.inside(&parts.log)?);
    let mut caller = Caller::start(command)?;
    let pid = caller.pid();
    for first in [Ours, Foreign, Ours] {
        let attacher =
            Attacher::start(&parts, pid, first, Ours)?.map_err(|code| code.to_string())?;
        if first == Ours {
            let second = Attacher::start(&parts, pid, Foreign, Ours)?;
            assert_eq!(second.err(), Some(SDK_REFUSES));
        } else {
            let words = [
                "--pid",
                &pid.to_string(),
                "--hip-trace",
                "--attach-duration-msec",
                "100",
            ];
            let exit = run_staged("rocprofv3", &words, PATIENCE)?;
            assert_eq!(exit.status.code(), Some(15), "{exit}");
        }
        // The session of the first attacher is complete.
        let before = caller.counts()?;
        caller.tell("calls 2")?;
        let made: u64 = between(&before, &caller.counts()?, "hip").values().sum();
        attacher.detach()?;
        assert_eq!(parts.rows(pid)?, made, "{first:?}");
    }
    caller.quit()
}
