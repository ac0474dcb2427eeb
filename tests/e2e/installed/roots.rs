//! What users install, in root directories of Debian that have nothing of midair's: attaching from there,
//! and into there.

use super::{alone, attaches, has, made};
use midair_tests::stage::{plain_environment, workload};
use midair_tests::stand_in::Kit;
use midair_tests::target::{PATIENCE, Target, run};
use midair_tests::{Result, is_root_for, leave_out};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns Debian roots without anything of midair's: the newest Debian, which is the lab's, and Debian
/// 12.
pub fn bare() -> Result<Vec<PathBuf>> {
    let mut roots = Vec::new();
    match midair_tests::lab::Lab::find()? {
        Some(lab) => roots.push(lab.root().to_owned()),
        None => leave_out("no newest Debian: the lab is not there")?,
    }
    let old = std::env::var_os("MIDAIR_DEBIAN_12").map(PathBuf::from);
    match old.filter(|root| root.join(".whole").exists()) {
        Some(root) => roots.push(root),
        None => leave_out("no bare Debian 12 (MIDAIR_DEBIAN_12)")?,
    }
    Ok(roots)
}

/// Lays an overlay over the root `$1`, in `/mnt/root`, which disappears with the shell, and puts the
/// files up to `--` into its `/packages`.
const OVERLAY: &str = r#"set -e
lower=$1; shift
mount -t tmpfs none /mnt
mkdir /mnt/up /mnt/work /mnt/root
mount -t overlay overlay -o "lowerdir=$lower,upperdir=/mnt/up,workdir=/mnt/work" /mnt/root
rm -rf /mnt/root/lab
mkdir -p /mnt/root/packages /mnt/root/results
while [ "$1" != -- ]; do cp -r "$1" /mnt/root/packages; shift; done; shift
mount --rbind /dev /mnt/root/dev
"#;

/// Runs a shell script in such an overlay. The files are followed by the script's arguments.
pub fn in_overlay(more: &[&str], script: &str, root: &Path, files: &[PathBuf]) -> Command {
    let mut command = Command::new("unshare");
    command.env_clear().envs(plain_environment());
    command.args(["--mount", "--propagation", "private"]);
    command.args(more).args(["sh", "-c"]);
    command.arg(format!("{OVERLAY}{script}")).arg("sh");
    command.arg(root).args(files).arg("--");
    command
}

/// One way to install.
struct Way {
    name: &'static str,
    /// How its files end.
    files: &'static str,
    /// What installs them from `/packages` of `/mnt/root`.
    install: &'static str,
    /// The program afterwards, in that root.
    program: &'static str,
    /// The program that this machine must have.
    needs: Option<&'static str>,
}

const WAYS: [Way; 4] = [
    Way {
        name: "deb",
        files: ".deb",
        install: "chroot /mnt/root sh -c 'dpkg --install /packages/*.deb'",
        program: "/usr/bin/midair",
        needs: None,
    },
    Way {
        name: "rpm",
        files: ".rpm",
        // What they need of the system is dpkg's there. Among themselves they must be complete.
        install: r#"rpm="rpm --root /mnt/root --dbpath /var/lib/rpm"
$rpm --nodeps --install /mnt/root/packages/*.rpm
$rpm --nodeps --verify midair midair-libs midair-devel
$rpm --erase midair-libs && exit 9
for needed in $($rpm --query --requires midair midair-devel | grep -o '^midair[a-z-]*'); do
  $rpm --query "$needed"
done"#,
        program: "/usr/bin/midair",
        needs: Some("rpm"),
    },
    Way {
        name: "archive",
        files: ".tar.gz",
        install: "mkdir /mnt/root/opt/m && tar -C /mnt/root/opt/m --strip-components=2 -xf /mnt/root/packages/*.tar.gz",
        program: "/opt/m/bin/midair",
        needs: None,
    },
    Way {
        name: "one file",
        files: "-linux",
        install: "mv /mnt/root/packages/midair-* /mnt/root/midair",
        program: "/midair",
        needs: None,
    },
];

impl Way {
    /// Whether this machine can do it.
    fn is_there(&self) -> Result<bool> {
        let Some(program) = self.needs else {
            return Ok(true);
        };
        let there = Command::new(program).arg("--version").output().is_ok();
        if !there {
            leave_out(&format!("no {program}, to install a package"))?;
        }
        Ok(there)
    }

    /// Prepares `midair` as it is after an installation in this root, which sees the processes of
    /// the whole machine. It writes into `results` by the name `/results`.
    fn installed(&self, root: &Path, results: &Path) -> Result<Command> {
        std::fs::create_dir_all(results)?;
        let script = format!(
            r#"mount --rbind /proc /mnt/root/proc
results=$1; shift
mount --bind "$results" /mnt/root/results
{{
{}
}} >&2
exec chroot /mnt/root {} "$@""#,
            self.install, self.program
        );
        let mut command = in_overlay(&[], &script, root, &made(self.files)?);
        command.arg(results);
        Ok(command)
    }
}

#[test]
fn each_installs_in_a_bare_debian_and_attaches_to_a_process_outside() -> Result<()> {
    if !is_root_for("installing packages in a root directory")? {
        return Ok(());
    }
    let roots = bare()?;
    for way in &WAYS {
        if !way.is_there()? {
            continue;
        }
        // Packages of Debian's are for every Debian.
        let roots = match way.name {
            "deb" => &roots[..],
            _ => &roots[roots.len().saturating_sub(1)..],
        };
        for root in roots {
            let kit = Kit::new()?;
            let results = kit.scratch().join("results");
            let command = way.installed(root, &results)?;
            attaches(&kit, command, "/results", &results)
                .map_err(|error| format!("{}: {error}", way.name))?;
        }
    }
    Ok(())
}

/// The target's root is another Debian, with the program and its runtime and nothing of midair's. It has
/// pid and mount namespaces of its own.
#[test]
fn each_attaches_into_a_root_that_has_nothing_of_ours() -> Result<()> {
    const SCRIPT: &str = r#"mount -t proc proc /mnt/root/proc
exec chroot /mnt/root env LD_LIBRARY_PATH=/packages/midair-demo \
  HSA_MODEL_TOPOLOGY=/packages/midair-demo/topology /packages/midair-demo/workload 0 1000"#;
    if !is_root_for("making a root directory")? {
        return Ok(());
    }
    let roots = bare()?;
    let (Some(newest), Some(oldest)) = (roots.first(), roots.last()) else {
        return Ok(());
    };
    let demo = midair_tests::stage::stage()?.join("lib/midair-demo");
    let own = ["--pid", "--fork", "--kill-child"];
    for (way, from, into) in [(&WAYS[0], oldest, newest), (&WAYS[3], newest, oldest)] {
        let kit = Kit::new()?;
        let files = std::slice::from_ref(&demo);
        let mut target = Target::spawn(in_overlay(&own, SCRIPT, into, files))?;
        target.expect("iter 2")?;
        let pid = target.only_child()?;
        let of_ours = |name: &str| -> Result<bool> {
            Ok(Path::new(&format!("/proc/{pid}/root")).join(name).exists())
        };
        assert!(!of_ours("usr/bin/midair")? && !of_ours("usr/lib/midair")?);
        let results = kit.scratch().join("results");
        let mut attach = way.installed(from, &results)?;
        attach.args(["attach", &pid.to_string(), "--duration", "500ms"]);
        attach.args(["-d", "/results"]);
        let exit = run(attach, PATIENCE)?.success()?;
        assert!(has(&exit.stdout, "gemm"), "{}: {exit}", way.name);
        assert!(std::fs::read_dir(&results)?.count() > 0, "{exit}");
        assert!(target.is_running()?, "{}: the program goes on", way.name);
    }
    Ok(())
}

/// The first table is to be there in less than 10 s. What others do on this machine meanwhile does not count:
/// this is processor time, with the two seconds that the demo records, and without what Python takes to make
/// an environment.
const FIRST_TABLE: f64 = 10.0;
const RECORDED: f64 = 2.0;

/// Returns the sum of a line of user and system time, as in `0m1.250000s 0m0.130000s`.
fn seconds(line: &str) -> Option<f64> {
    let mut sum = 0.0;
    for time in line.split(' ') {
        let (minutes, seconds) = time.strip_suffix('s')?.split_once('m')?;
        sum += 60.0 * minutes.parse::<f64>().ok()? + seconds.parse::<f64>().ok()?;
    }
    Some(sum)
}

/// Nothing but the wheel or the one file in the oldest supported Debian, and no compiler.
#[test]
fn the_first_table_in_a_bare_debian() -> Result<()> {
    const SCRIPT: &str = r#"mount -t proc proc /mnt/root/proc
exec chroot /mnt/root sh -ec '
cd /root
for compiler in cc gcc clang; do command -v $compiler && exit 9; done
times
for command; do
  began=$(date +%s%N)
  eval "$command"
  echo "took $((($(date +%s%N) - began) / 1000000)) ms: $command"
  times
done' sh "$@""#;
    // This is Python's own work, several seconds of it.
    const ENVIRONMENT: &str = "python3 -m venv env";
    const WHEEL: &[&str] = &[
        ENVIRONMENT,
        "env/bin/pip install --quiet --no-index /packages/*.whl",
        "env/bin/midair demo",
    ];
    const ONE_FILE: &[&str] = &["cp /packages/midair-* midair", "./midair demo"];
    if !is_root_for("making a root directory")? {
        return Ok(());
    }
    let kit = Kit::new()?;
    let (_, one_file) = alone(&kit)?;
    let packed = kit.scratch().join("midair-as-one-file");
    std::fs::rename(one_file, &packed)?;
    let Some(root) = bare()?.pop() else {
        return Ok(());
    };
    if !root.join("usr/lib/python3.11/venv").exists() {
        return leave_out("the bare Debian 12 has no python3-venv: cargo xtask debian-12");
    }
    let own = ["--pid", "--fork", "--kill-child"];
    for (name, files, commands) in [
        ("the wheel", made(".whl")?, WHEEL),
        ("the one file", vec![packed], ONE_FILE),
    ] {
        let mut command = in_overlay(&own, SCRIPT, &root, &files);
        command.args(commands);
        let exit = run(command, PATIENCE)?.success()?;
        assert!(has(&exit.stdout, "gemm"), "{exit}");
        let steps = exit.stdout.iter().filter(|line| line.starts_with("took "));
        for step in steps {
            println!("{name}: {step}");
        }
        // Each `times` of the shell is two lines: what it has used itself, and what its programs have.
        let spent = exit.stdout.iter().filter_map(|line| seconds(line));
        let spent: Vec<f64> = spent.skip(1).step_by(2).collect();
        assert_eq!(spent.len(), commands.len() + 1, "{exit}");
        let from = commands.iter().take_while(|&&it| it == ENVIRONMENT).count();
        let spent = spent[commands.len()] - spent[from];
        println!("{name}: {spent:.1} s of processor time, {RECORDED} s recorded");
        assert!(spent > 0.0 && spent + RECORDED < FIRST_TABLE, "{exit}");
    }
    Ok(())
}

/// Starts the program that works all the time, outside of every root.
pub fn working() -> Result<Target> {
    let mut target = Target::spawn(workload(&[])?)?;
    target.expect("iter 2")?;
    Ok(target)
}
