//! Sessions, `top` and `doctor` that meet the start of PyTorch's profiler, which takes seconds in which
//! no kernel runs.

use midair_tests::Result;
use midair_tests::cuda::Kit;
use midair_tests::stage::run_staged;
use midair_tests::target::PATIENCE;
use std::process::Command;

/// Stays in a function of the module until it reads a line.
const SCRIPT: &str = "
import ctypes, sys
for library in sys.argv[2:]: driver = ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
driver.cuInit(0)
sys.path.insert(0, sys.argv[1])
from torch import profiler, modules
print('ready', flush=True)
for line in sys.stdin:
    globals()[line.strip()].wait()
";

const WAIT: &str = "
import sys
class profile:
    def start_trace(self):
        print('waits', flush=True)
        sys.stdin.readline()
        print('over', flush=True)
def wait(): profile().start_trace()
";

#[test]
fn its_start_is_named_where_nothing_was_recorded() -> Result<()> {
    let kit = Kit::new()?;
    let torch = kit.scratch().join("torch");
    for part in ["profiler", "modules"] {
        std::fs::create_dir_all(torch.join(part))?;
        std::fs::write(torch.join(part).join("__init__.py"), WAIT)?;
    }
    std::fs::write(torch.join("__init__.py"), "")?;
    let library = kit.scratch().join("libtorch_cpu.so");
    let source = kit.scratch().join("nothing.c");
    std::fs::write(&source, "int nothing(void) { return 0; }\n")?;
    let mut compiler = Command::new("gcc");
    compiler.args(["-shared", "-o"]).args([&library, &source]);
    assert!(compiler.status()?.success());
    let mut python = Command::new("python3");
    python.args(["-S", "-c", SCRIPT]).arg(kit.scratch());
    python.args([
        library,
        kit.stand_in.cupti(13),
        kit.stand_in.driver().join("libcuda.so.1"),
    ]);
    let mut target = kit.start_command(python, &[])?;
    target.expect("ready")?;
    let pid = target.pid().to_string();
    let out = kit.scratch().join("out");
    let out = out.to_str().ok_or("a path is text")?;
    for (part, is_named) in [("profiler", true), ("modules", false)] {
        target.send(part)?;
        target.expect("waits")?;
        for duration in ["100ms", "600ms"] {
            let words = [
                "attach",
                &pid,
                "--duration",
                duration,
                "-f",
                "csv",
                "-d",
                out,
            ];
            let exit = run_staged("midair", &words, PATIENCE)?;
            let said = exit.stderr.join("\n");
            assert!(said.contains("nothing was recorded"), "{part}: {exit}");
            let named = said.contains("torch.profiler was starting");
            assert_eq!(named, is_named, "{part}: {exit}");
        }
        for words in [vec!["doctor", &pid], vec!["top", &pid, "--once"]] {
            let exit = run_staged("midair", &words, PATIENCE)?;
            assert_eq!(exit.status.code(), Some(0), "{exit}");
            let said = [exit.stdout.join("\n"), exit.stderr.join("\n")].concat();
            let named = said.contains("is in profile.start_trace): its first start takes");
            assert_eq!(named, is_named, "{part}: {exit}");
        }
        target.send("on")?;
        target.expect("over")?;
    }
    Ok(())
}
