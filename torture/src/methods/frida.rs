//! frida's method: `inject_library_file` of its Python package. One process makes many cycles, so
//! that only the injection is measured.

use super::{Method, fresh_probe, is_mapped};
use crate::kit::Kit;
use crate::tally::{Cycle, Entry};
use midair_tests::Result;
use midair_tests::target::Target;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// frida, if `MIDAIR_FRIDA` names a Python with its package (`cargo xtask torture` makes one).
pub struct Frida {
    python: PathBuf,
    version: String,
    server: Option<Target>,
}

/// The least time limit of a cycle, the same as gdb's.
const LEAST: Duration = Duration::from_secs(10);

const SERVER: &str = r#"
import sys, time, frida
print("version", frida.__version__, flush=True)
device = frida.get_local_device()
for line in sys.stdin:
    pid, path = line.split()
    began = time.monotonic()
    try:
        device.inject_library_file(int(pid), path, "torture_entry", "")
        print("in", int((time.monotonic() - began) * 1e9), flush=True)
    except Exception as error:
        print("not", type(error).__name__, str(error).replace("\n", " "), flush=True)
"#;

impl Frida {
    /// Looks for frida.
    pub fn find() -> Option<Frida> {
        let python = PathBuf::from(std::env::var_os("MIDAIR_FRIDA")?);
        let mut frida = Frida {
            python,
            version: String::new(),
            server: None,
        };
        frida.server = frida.start().ok();
        frida.server.is_some().then_some(frida)
    }

    /// Returns frida's version.
    pub fn version(&self) -> &str {
        &self.version
    }

    fn start(&mut self) -> Result<Target> {
        let mut command = Command::new(&self.python);
        command.args(["-c", SERVER]);
        let mut server = Target::spawn(command)?;
        let line = server.expect("version ")?;
        self.version = format!("frida {}", line.trim_start_matches("version "));
        Ok(server)
    }
}

impl Method for Frida {
    fn name(&self) -> &'static str {
        "frida"
    }

    fn cycle(&mut self, kit: &Kit, pid: i32, limit: Duration) -> Result<Cycle> {
        self.inject(kit, pid, limit.max(LEAST))
    }

    // frida's server may go on tracing the target, which then cannot even be reaped. So the server
    // is ended here, and another one is started later.
    fn release(&mut self, _pid: i32) {
        self.server = None;
    }
}

impl Frida {
    fn inject(&mut self, kit: &Kit, pid: i32, limit: Duration) -> Result<Cycle> {
        let probe = fresh_probe(kit)?;
        let mut server = match self.server.take() {
            Some(server) => server,
            None => self.start()?,
        };
        server.send(&format!("{pid} {}", probe.display()))?;
        let server_pid = server.pid();
        // Another thread waits for the answer, so that a missing answer can be reported.
        let (said, heard) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            let line = server.expect("");
            let _nobody = said.send(line.map_err(|error| error.to_string()));
            server
        });
        let line = match heard.recv_timeout(limit) {
            Ok(line) => line,
            Err(_) => {
                // SAFETY: kill takes numbers only. The pid belongs to a child of midair's that is not
                // reaped yet and that leads its own process group, so no other process is hit.
                unsafe { libc::kill(-server_pid, libc::SIGKILL) };
                // The thread is not joined, because a helper of frida's may hold the pipe open for
                // long.
                drop(reader);
                return Ok(Cycle::Hung(format!("no end after {limit:?}")));
            }
        };
        let line = match line {
            Ok(line) => line,
            Err(error) => {
                drop(reader.join());
                return Ok(Cycle::Failed(error));
            }
        };
        self.server = reader.join().ok();
        let Some(ns) = line.strip_prefix("in ") else {
            let words = line.trim_start_matches("not ").to_owned();
            return Ok(
                match words.starts_with("PermissionDenied") || words.contains("ProcessNotFound") {
                    true => Cycle::Refused("PermissionDenied".to_owned(), words),
                    false => Cycle::Failed(words),
                },
            );
        };
        // frida unloads the library once its function has returned. Where the target counts
        // libraries, that is checked.
        let attach = Duration::from_nanos(ns.parse()?);
        let waits = Instant::now();
        let _still = is_mapped(pid, &probe);
        Ok(Cycle::Entered(Entry {
            attach,
            out: waits.elapsed(),
            tier: "leader".to_owned(),
            thread: Some(pid),
            ..Entry::default()
        }))
    }
}
