//! Triton itself and its profiler Proton, as they come from PyPI. Kernels that Triton compiles for
//! gfx942 run on AMD's HIP and a modelled GPU, and Proton's files are compared with that GPU's log.

use midair_tests::attacher::Attacher;
use midair_tests::lab::{Lab, LabTarget};
use midair_tests::stage::run_staged;
use midair_tests::table::{Csv, json};
use midair_tests::target::{PATIENCE, until};
use midair_tests::{Result, leave_out, workspace};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The work-items of the grids, by which `add` and `scale` of `tests/python/triton_kernels.py` are
/// distinguished.
const KERNELS: [(&str, u32); 2] = [("add", 4 * 4 * 64), ("scale", 3 * 2 * 64)];
/// AMD's HIP in the lab.
const HIP: &str = "/usr/lib/x86_64-linux-gnu/libamdhip64.so.7";

/// How often each kernel ran, and how long it took, in ns.
type Times = BTreeMap<String, (u64, u64)>;

/// Returns the directory with Triton, as `cargo xtask amd-headers` makes it.
fn triton() -> Result<Option<PathBuf>> {
    let there = std::env::var_os("MIDAIR_TRITON")
        .map_or_else(|| workspace().join("target/triton"), PathBuf::from);
    if there.join("triton/_C/libproton.so").exists() {
        return Ok(Some(there));
    }
    leave_out("no Triton; `cargo xtask amd-headers` fetches it")?;
    Ok(None)
}

/// The program at work, with our SDK where Proton looks for AMD's.
struct Program {
    target: LabTarget,
}

impl Program {
    /// Starts the program. `None` means that the test was left out.
    fn start(lab: &Lab) -> Result<Option<Program>> {
        let Some(triton) = triton()? else {
            return Ok(None);
        };
        // Triton is too big to be copied into the lab. So it is mounted for the program and its
        // children.
        let inside = lab.scratch().join("triton");
        std::fs::create_dir(&inside)?;
        let (from, to) = (
            triton.to_str().ok_or("a path is text")?,
            inside.to_str().ok_or("a path is text")?,
        );
        let source = workspace().join("tests/python/triton_kernels.py");
        let script = lab.scratch().join("triton_kernels.py");
        std::fs::copy(source, &script)?;
        let mount = "mount --bind \"$0\" \"$1\" && shift && exec \"$@\"";
        let mut target = lab
            .run("/usr/bin/python3")
            .prefix(&[
                "unshare",
                "--mount",
                "--propagation",
                "private",
                "bash",
                "-c",
                mount,
                from,
                to,
            ])
            .arg(lab.inside(&script)?)
            .libs(&format!("{}/lib", lab.stage()?))
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", lab.inside(lab.scratch())?)
            .env("PYTHONPATH", lab.inside(&inside)?)
            .env("PYTHONDONTWRITEBYTECODE", 1)
            .env(
                "TRITON_CACHE_DIR",
                format!("{}/cache", lab.inside(lab.scratch())?),
            )
            .env("TRITON_LIBHIP_PATH", HIP)
            .spawn()?;
        assert_eq!(target.expect("ready")?, "ready gfx942");
        Ok(Some(Program { target }))
    }

    fn tell(&mut self, command: &str) -> Result<()> {
        self.target.send(command)?;
        let word = command.split(' ').next().unwrap_or_default();
        self.target.expect(word)?;
        Ok(())
    }

    /// Returns what the device ran so far.
    fn ran(&self) -> Result<Times> {
        let log = self.target.model_log()?;
        let mut times = Times::new();
        for dispatch in log.dispatches() {
            let kernel = KERNELS.iter().find(|(_, items)| dispatch.grid[0] == *items);
            let (name, _) = kernel.ok_or_else(|| format!("which kernel is {dispatch:?}?"))?;
            let (count, time) = times.entry((*name).to_owned()).or_default();
            *count += 1;
            *time += dispatch.packet.end - dispatch.packet.start;
        }
        Ok(times)
    }

    /// Runs a session of Proton, and checks that its file has what the device ran in these rounds.
    fn session(&mut self, lab: &Lab, name: &str, rounds: u64) -> Result<()> {
        let path = lab.scratch().join(name);
        self.tell(&format!("start {}", lab.inside(&path)?))?;
        let before = self.ran()?;
        self.tell(&format!("round {rounds}"))?;
        let expected = since(&before, &self.ran()?);
        assert_eq!(expected["add"].0, rounds);
        assert_eq!(expected["scale"].0, 2 * rounds);
        self.tell("finalize")?;
        assert_eq!(read(&path.with_extension("hatchet"))?, expected);
        Ok(())
    }

    fn quit(mut self) -> Result<()> {
        self.target.send("quit")?;
        self.target.expect("done")?;
        let exit = self.target.target.wait(PATIENCE)?;
        assert!(
            exit.status.success() || exit.is_abort_of_amds_model(),
            "{exit}"
        );
        Ok(())
    }
}

fn since(before: &Times, after: &Times) -> Times {
    let earlier = |name: &str| before.get(name).copied().unwrap_or_default();
    let part = |(name, (count, time)): (&String, &(u64, u64))| {
        let (old_count, old_time) = earlier(name);
        (name.clone(), (count - old_count, time - old_time))
    };
    after.iter().map(part).collect()
}

/// Reads the kernels in a file of Proton's, which are the leaves of its tree. All are in the scope
/// `step`, on device 0.
fn read(path: &std::path::Path) -> Result<Times> {
    fn collect(node: &Value, above: &[&str], times: &mut Times) -> Result<()> {
        let name = node["frame"]["name"].as_str().ok_or("a name")?;
        let children = node["children"].as_array().ok_or("children")?;
        if children.is_empty() {
            let metrics = &node["metrics"];
            assert_eq!(above, ["ROOT", "step"], "{name}");
            assert_eq!(metrics["device_type"], "HIP", "{metrics}");
            assert_eq!(metrics["device_id"], "0", "{metrics}");
            let number = |of: &str| metrics[of].as_u64().ok_or("a number");
            times.insert(name.to_owned(), (number("count")?, number("time (ns)")?));
        }
        let path = [above, &[name]].concat();
        children
            .iter()
            .try_for_each(|child| collect(child, &path, times))
    }
    let whole = json(path)?;
    let mut times = Times::new();
    collect(&whole[0], &[], &mut times)?;
    assert_eq!(whole[1]["HIP"]["0"]["arch"], "gfx942", "{whole}");
    Ok(times)
}

/// Before, between and after the sessions there is work that belongs to none of them.
#[test]
fn proton_has_the_kernels_that_triton_compiled() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let Some(mut program) = Program::start(&lab)? else {
        return Ok(());
    };
    program.tell("round 2")?;
    program.session(&lab, "first", 5)?;
    program.tell("round 1")?;
    program.session(&lab, "second", 3)?;
    program.tell("round 1")?;
    program.quit()
}

/// We attach while Proton records. Proton also records alone, before the session and after it.
#[test]
fn proton_and_an_attach_have_the_same_kernels() -> Result<()> {
    let Some(lab) = Lab::find()? else {
        return Ok(());
    };
    let Some(mut program) = Program::start(&lab)? else {
        return Ok(());
    };
    program.session(&lab, "alone", 2)?;
    let pid = program.target.pid();
    let attacher = Attacher::midair(pid, &["--kernel-trace"])?;
    program.session(&lab, "attached", 4)?;
    let traced = attacher.detach()?.code(0)?;
    let mut counts = BTreeMap::new();
    for row in Csv::read(&traced.file("kernel_trace.csv"))?.rows {
        *counts.entry(row["Kernel_Name"].clone()).or_insert(0) += 1;
    }
    let expected = [("add".to_owned(), 4), ("scale".to_owned(), 8)];
    assert_eq!(counts, expected.into());
    // Proton's own session starts when ours is over (AMD-075).
    until("Proton's own session", || {
        let words = ["doctor", &pid.to_string(), "--json"];
        let told: Value =
            serde_json::from_str(&run_staged("midair", &words, PATIENCE)?.stdout.join("\n"))?;
        let checks = told["checks"].as_array().ok_or("there are checks")?;
        Ok(checks
            .iter()
            .any(|check| check["name"] == "own session" && check["status"] == "note"))
    })?;
    program.session(&lab, "alone_again", 3)?;
    program.quit()
}
