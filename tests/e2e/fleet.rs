//! `midair fleet`: the same command on many hosts. The hosts are namespaces of this machine, and
//! `ssh` is a script that enters them.

use midair_tests::lab::LabTarget;
use midair_tests::stage::{plain_environment, stage};
use midair_tests::stand_in::Kit;
use midair_tests::target::{PATIENCE, Target, run};
use midair_tests::{Result, is_root_for, leave_out};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Rounds of work while attached; each launches four kernels.
const ROUNDS: u64 = 10;

/// A script that takes the arguments of ssh. Hosts are directories next to it, which hold the id of
/// a process in the host's namespaces. The host `dead` cannot be reached, and `hung` never answers.
const SSH: &str = r#"#!/bin/sh
while [ "$1" != -- ]; do shift; done
host=$2 here=$(dirname "$0")
case $host in
dead) echo 'ssh: connect to host dead port 22: No route to host' >&2; exit 255 ;;
hung) sleep 600; exit ;;
esac
pid=$(cat "$here/$host/pid") || exit 255
exec nsenter -t "$pid" -p -m -u sh -c "cd $here/$host && $3"
"#;

/// Hosts, with a program on two modelled GPUs each.
struct Fleet {
    kit: Kit,
    ssh: PathBuf,
    programs: Vec<LabTarget>,
}

impl Fleet {
    fn of(names: &[&str]) -> Result<Fleet> {
        let kit = Kit::new()?;
        let ssh = kit.scratch().join("ssh");
        std::fs::write(&ssh, SSH)?;
        std::fs::set_permissions(&ssh, PermissionsExt::from_mode(0o755))?;
        let mut programs = Vec::new();
        for name in names {
            let mut command = Command::new("unshare");
            command.args(["-u", "-pf", "--mount-proc", "--kill-child"]);
            command.arg(kit.program("two_gpus")?);
            let mut program = kit.start_command(command, &format!("{name}.log"), &[])?;
            program.expect("ready")?;
            let home = kit.scratch().join(name);
            std::fs::create_dir(&home)?;
            std::fs::write(home.join("pid"), program.target.only_child()?.to_string())?;
            programs.push(program);
        }
        Ok(Fleet { kit, ssh, programs })
    }

    /// Prepares `midair fleet` on these hosts.
    fn command(&self, words: &[&str]) -> Result<Command> {
        let midair = stage()?.join("bin/midair");
        let mut command = Command::new(&midair);
        command.env_clear().envs(plain_environment());
        command.args(["fleet", "--program"]).arg(midair);
        command.arg("--ssh").arg(&self.ssh).args(words);
        Ok(command)
    }

    fn work(&mut self) -> Result<()> {
        for program in &mut self.programs {
            program.send(&format!("work {ROUNDS}"))?;
        }
        for program in &mut self.programs {
            program.expect("work")?;
        }
        Ok(())
    }
}

#[test]
fn every_host_has_its_line_and_its_own_failure() -> Result<()> {
    if !is_root_for("to make namespaces")? {
        return Ok(());
    }
    let mut fleet = Fleet::of(&["a", "b"])?;
    let words = "--timeout 3 --json a b dead hung -- attach --name two_gpus -f csv -d results";
    let words: Vec<&str> = words.split(' ').collect();
    let mut attacher = Target::spawn(fleet.command(&words)?)?;
    // Both hosts record. They may start in any order.
    midair_tests::target::until("both attaches", || {
        let said = attacher.errors();
        let on = |host: &str| said.iter().any(|line| line.starts_with(host));
        Ok(on("a: attached to") && on("b: attached to"))
    })?;
    fleet.work()?;
    attacher.send("")?;
    let exit = attacher.wait(PATIENCE)?;
    assert_eq!(exit.status.code(), Some(35), "{exit}");
    let said = exit.stdout.last().ok_or("no document")?;
    let document: Value = serde_json::from_str(said)?;
    let hosts = document["hosts"].as_array().ok_or("no hosts")?;
    let of = |index: usize, member: &str| hosts[index][member].clone();
    for host in [0, 1] {
        assert_eq!(of(host, "exit_code"), 0, "{exit}");
        assert_eq!(of(host, "lost"), 0, "{exit}");
        assert!(of(host, "records").as_u64() >= Some(ROUNDS * 4), "{exit}");
    }
    assert_eq!(of(2, "exit_code"), Value::Null);
    assert!(of(2, "failure").is_string(), "{exit}");
    let why = of(3, "failure");
    assert!(
        why.as_str().is_some_and(|why| why.contains("--timeout")),
        "{exit}"
    );
    // Each of two GPUs ran two kernels. The table has the rows of both hosts as one.
    let rows = document["tables"][0]["rows"].as_array().ok_or("no rows")?;
    let calls: u64 = rows.iter().filter_map(|row| row["calls"].as_u64()).sum();
    assert_eq!(calls, 2 * ROUNDS * 4, "{exit}");
    assert!(rows.iter().all(|row| row["hosts"] == 2), "{exit}");
    for host in ["a", "b"] {
        let results = fleet.kit.scratch().join(host).join("results");
        assert!(results.is_dir(), "each host writes by itself: {exit}");
    }
    Ok(())
}

#[test]
fn commands_that_end_by_themselves_and_mistakes() -> Result<()> {
    if !is_root_for("to make namespaces")? {
        return Ok(());
    }
    let fleet = Fleet::of(&["a"])?;
    let exit = run(fleet.command(&["a", "--", "ps"])?, PATIENCE)?.success()?;
    let about = |line: &String| line.starts_with("a: ") && line.contains("two_gpus");
    assert!(exit.stdout.iter().any(about), "{exit}");
    // The host refuses: the exit code and the message are the host's.
    let exit = run(
        fleet.command(&["a", "--", "attach", "1234567", "--duration", "1s"])?,
        PATIENCE,
    )?;
    assert_eq!(exit.status.code(), Some(10), "{exit}");
    assert!(
        exit.stdout.iter().any(|line| line.contains("1234567")),
        "{exit}"
    );
    // The command is refused here, before any host is asked.
    let exit = run(
        fleet.command(&["a", "--", "attach", "--durration", "1s"])?,
        PATIENCE,
    )?;
    assert_eq!(exit.status.code(), Some(2), "{exit}");
    Ok(())
}

/// Starts sshd in a bare Debian 12 that has the one file and sees the processes of this machine.
/// Its arguments: the root, the program, a port and a directory for the key.
const SSHD: &str = r#"set -e
lower=$1 program=$2 port=$3 keys=$4
mount -t tmpfs none /mnt
mkdir /mnt/up /mnt/work /mnt/root
mount -t overlay overlay -o "lowerdir=$lower,upperdir=/mnt/up,workdir=/mnt/work" /mnt/root
cp "$program" /mnt/root/usr/bin/midair
mount --rbind /proc /mnt/root/proc
mount --rbind /dev /mnt/root/dev
mkdir -p /mnt/root/run/sshd /mnt/root/root/.ssh
chroot /mnt/root ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/key
chroot /mnt/root ssh-keygen -q -A
cp /mnt/root/root/.ssh/key.pub /mnt/root/root/.ssh/authorized_keys
cp /mnt/root/root/.ssh/key "$keys/key"
chmod 600 "$keys/key"
exec chroot /mnt/root /usr/sbin/sshd -D -e -p "$port" -o ListenAddress=127.0.0.1 -o UsePAM=no -o StrictModes=no -o PidFile=none"#;

/// With the real ssh: an attach that ends when Enter is pressed here, and a host whose sshd is not
/// there.
#[test]
fn by_real_ssh() -> Result<()> {
    if !is_root_for("to make a root directory")? {
        return Ok(());
    }
    let root = std::env::var_os("MIDAIR_DEBIAN_12").map(PathBuf::from);
    let root = root.filter(|root| root.join("usr/sbin/sshd").exists());
    let (Some(root), true) = (root, Path::new("/usr/bin/ssh").exists()) else {
        return leave_out("no Debian 12 with sshd (MIDAIR_DEBIAN_12), or no ssh here");
    };
    let kit = Kit::new()?;
    let dist = std::env::var_os("MIDAIR_DIST").ok_or("MIDAIR_DIST names no directory")?;
    let files = std::fs::read_dir(dist)?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files = files.filter(|path| path.to_string_lossy().ends_with("-linux"));
    let program = files.next().ok_or("the one file was not made")?;
    // The port is free now, and will stay so for the moment that this takes.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port();
    let mut command = Command::new("unshare");
    command.env_clear().envs(plain_environment());
    command.args([
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        SSHD,
        "sh",
    ]);
    command
        .arg(root)
        .arg(program)
        .arg(port.to_string())
        .arg(kit.scratch());
    let mut sshd = Target::spawn(command)?;
    sshd.expect_error("Server listening on")?;

    let mut target = kit.start("two_gpus", "model.log", &[])?;
    target.expect("ready")?;
    let key = kit.scratch().join("key");
    let ssh = format!(
        "ssh -p {port} -i {} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR",
        key.display()
    );
    let mut command = Command::new(stage()?.join("bin/midair"));
    command.env_clear().envs(plain_environment());
    command.args(["fleet", "--ssh", &ssh, "root@127.0.0.1", "--"]);
    command.args(["attach", &target.pid().to_string(), "-d", "/tmp/results"]);
    let mut attacher = Target::spawn(command)?;
    attacher.expect_error("root@127.0.0.1: attached to process")?;
    target.send(&format!("work {ROUNDS}"))?;
    target.expect("work")?;
    attacher.send("")?;
    let exit = attacher.wait(PATIENCE)?.success()?;
    let host = exit
        .stdout
        .iter()
        .find(|line| line.starts_with("root@127.0.0.1"));
    let host = host.ok_or_else(|| format!("no line of the host: {exit}"))?;
    let words: Vec<&str> = host.split_whitespace().collect();
    assert_eq!(words[1], "0", "{exit}");
    assert!(
        exit.stdout.iter().any(|line| line.contains("reduce")),
        "{exit}"
    );
    let file =
        |line: &String| line.starts_with("root@127.0.0.1:/") && line.ends_with("_results.db");
    assert!(exit.stdout.iter().any(file), "{exit}");
    drop(sshd);

    let mut command = Command::new(stage()?.join("bin/midair"));
    command.env_clear().envs(plain_environment());
    command.args(["fleet", "--ssh", &ssh, "root@127.0.0.1", "--", "ps"]);
    let exit = run(command, PATIENCE)?;
    assert_eq!(exit.status.code(), Some(37), "{exit}");
    assert!(
        exit.stdout
            .iter()
            .any(|line| line.contains("ssh could not reach it")),
        "{exit}"
    );
    Ok(())
}
