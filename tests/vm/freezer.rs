//! A process whose cgroup is frozen (`docker pause`). An attach says so before its deadline is
//! over. The process is unharmed when it goes on.

use crate::subject::{Subject, attach, attacher, is_in, is_refused, kit, say, short};
use midair_tests::Result;
use midair_tests::stage::run_staged;
use midair_tests::stand_in::Kit;
use midair_tests::target::{PATIENCE, until};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Exit code of a process that is stopped.
const STOPPED: i32 = 19;

/// A cgroup that can be frozen.
struct Group {
    path: PathBuf,
    file: &'static str,
    words: [&'static str; 2],
}

impl Group {
    fn put(&self, file: &str, text: &str) -> Result<()> {
        let path = self.path.join(file);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()).into())
    }

    fn freeze(&self) -> Result<()> {
        self.put(self.file, self.words[1])?;
        until("the group's being frozen", || {
            let (file, text) = match self.file {
                "cgroup.freeze" => ("cgroup.events", "frozen 1"),
                file => (file, "FROZEN"),
            };
            Ok(std::fs::read_to_string(self.path.join(file))?.contains(text))
        })
    }

    fn thaw(&self) -> Result<()> {
        self.put(self.file, self.words[0])
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Where a check failed, the processes in the cgroup must be able to end.
        let _thawed = self.thaw();
    }
}

pub fn version_2() -> Result<()> {
    let path = Path::new("/sys/fs/cgroup/midair-freezer").to_path_buf();
    std::fs::create_dir_all(&path)?;
    let group = Group {
        path,
        file: "cgroup.freeze",
        words: ["0", "1"],
    };
    check("version 2", &group)
}

pub fn version_1() -> Result<()> {
    let top = Path::new("/run/freezer");
    std::fs::create_dir_all(top)?;
    let mut mount = std::process::Command::new("mount");
    mount
        .args(["-t", "cgroup", "-o", "freezer", "freezer"])
        .arg(top);
    midair_tests::target::run(mount, PATIENCE)?.success()?;
    let path = top.join("midair");
    std::fs::create_dir_all(&path)?;
    let group = Group {
        path,
        file: "freezer.state",
        words: ["THAWED", "FROZEN"],
    };
    check("version 1", &group)
}

fn check(name: &str, group: &Group) -> Result<()> {
    let kit = kit()?;
    for listens in [false, true] {
        let mut subject = match listens {
            false => Subject::start(&kit, &[], &[])?,
            true => Subject::listening(&kit, None)?,
        };
        group.put("cgroup.procs", &subject.pid().to_string())?;
        let kind = if listens {
            "with a listener"
        } else {
            "without a listener"
        };
        let who = format!("cgroups, {name}, a frozen process {kind}");
        group.freeze()?;
        let began = Instant::now();
        let exit = attach(&kit, &[], subject.pid())?;
        let took = began.elapsed();
        is_refused(&who, &exit, STOPPED, "frozen")?;
        if took > Duration::from_secs(20) {
            return Err(format!("{who}: it took {took:?}").into());
        }
        let doctor = run_staged("midair", &["doctor", &subject.pid().to_string()], PATIENCE)?;
        if !doctor.stdout.iter().any(|line| line.contains("frozen")) {
            return Err(format!("{who}: doctor does not say so: {doctor}").into());
        }
        group.thaw()?;
        subject.work()?;
        let exit = attach(&kit, &[], subject.pid())?;
        is_in(&format!("{who}, thawed"), &exit)?;
        within(&kit, group, &mut subject, &who)?;
        subject.quit()?;
    }
    Ok(())
}

/// Freezes the process within a session. The detach says that it did not complete, and the process
/// goes on as before once it is thawed.
fn within(kit: &Kit, group: &Group, subject: &mut Subject, who: &str) -> Result<()> {
    let mut process = attacher(kit, &[], subject.pid())?;
    subject.work()?;
    group.freeze()?;
    let began = Instant::now();
    process.send("")?;
    let exit = process.wait(PATIENCE)?;
    let took = began.elapsed();
    let said = short(&exit.stderr.join(" "));
    say(&format!(
        "{who} that was frozen within a session: the detach ended after {:.0} s with {:?}: {said}",
        took.as_secs_f64(),
        exit.status.code(),
    ));
    group.thaw()?;
    subject.work()?;
    let exit = attach(kit, &[], subject.pid())?;
    is_in(&format!("{who} after that"), &exit)
}
