//! Takes the commands of `docs/recipes.md` from that page and runs them. Where this machine has no
//! such program (Docker, kubectl, srun), a script of its name makes the namespaces, users and
//! capabilities that the real one would make. The profiled program comes from `midair demo`.

use crate::listener::{listens, preloaded, without_ptrace};
use midair_tests::stage::{plain_environment, stage, workload};
use midair_tests::target::{Exit, PATIENCE, Target, run, until};
use midair_tests::{Result, is_root_for, leave_out, workspace};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Docker's default capabilities (source:
/// <https://docs.docker.com/engine/containers/run/#runtime-privilege-and-linux-capabilities>).
const DOCKERS: &str = "-all,+audit_write,+chown,+dac_override,+fowner,+fsetid,+kill,+mknod,+net_bind_service,+net_raw,+setfcap,+setgid,+setpcap,+setuid,+sys_chroot";

/// Returns the shell commands of a recipe.
fn recipe(name: &str) -> Result<String> {
    let page = std::fs::read_to_string(workspace().join("docs/recipes.md"))?;
    let mark = format!("<!-- recipe: {name} -->\n```console\n");
    let (_, behind) = page.split_once(&mark).ok_or("no such recipe")?;
    let (block, _) = behind.split_once("\n```").ok_or("no end")?;
    let lines = block
        .lines()
        .map(|line| line.strip_prefix("$ ").unwrap_or(line));
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// A temporary directory in which one recipe runs.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Result<Place> {
        let dir = tempfile::tempdir()?;
        // Other users need access, too.
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777))?;
        let place = Place { dir };
        std::fs::create_dir(place.path("bin"))?;
        place.script("sudo", "exec \"$@\"")?;
        Ok(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a script of this name, in which the variables `here` and `pid` are set.
    fn script(&self, name: &str, text: &str) -> Result<()> {
        let path = self.path("bin").join(name);
        let here = self.dir.path().display();
        let text = format!("#!/bin/sh\nhere={here}\npid=$(cat $here/pid)\n{text}\n");
        std::fs::write(&path, text)?;
        Ok(std::fs::set_permissions(
            &path,
            PermissionsExt::from_mode(0o755),
        )?)
    }

    /// Starts the program through the command `before`, and waits until it works. `children` is the
    /// number of processes above it.
    fn start(&self, before: &[&str], children: usize) -> Result<Target> {
        let mut target = Target::spawn(workload(before)?)?;
        target.expect("iter 2")?;
        let mut pid = target.pid();
        for _ in 0..children {
            let below = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
            pid = below.trim().parse()?;
        }
        std::fs::write(self.path("pid"), pid.to_string())?;
        Ok(target)
    }

    /// Prepares a shell that runs these commands in this directory.
    fn shell(&self, before: &[&str], text: &str) -> Result<Command> {
        let tools = stage()?.join("bin");
        let mut words = before.to_vec();
        words.extend(["sh", "-ec", text]);
        let (first, rest) = words.split_first().ok_or("no shell")?;
        let mut command = Command::new(first);
        command.args(rest).env_clear().envs(plain_environment());
        let path = std::env::var("PATH")?;
        let all = format!("{}:{}:{path}", self.path("bin").display(), tools.display());
        command.env("PATH", all).current_dir(self.dir.path());
        Ok(command)
    }

    /// Runs the recipe, and looks for kernels on its screen and for files in `results`.
    fn works(&self, text: &str, results: &Path) -> Result<Exit> {
        let exit = run(self.shell(&[], text)?, PATIENCE)?.success()?;
        saw_kernels(&exit)?;
        let written = std::fs::read_dir(results).map_err(|error| format!("{error}: {exit}"))?;
        assert!(written.count() > 0, "{exit}");
        Ok(exit)
    }

    /// Unpacks the image from `cargo xtask dist` and returns its root.
    fn image(&self) -> Result<PathBuf> {
        let dist = std::env::var_os("MIDAIR_DIST").ok_or("MIDAIR_DIST names no directory")?;
        let archives = std::fs::read_dir(dist)?.filter_map(|entry| Some(entry.ok()?.path()));
        let mut archives = archives.filter(|path| path.to_string_lossy().ends_with("-oci.tar"));
        let archive = archives.next().ok_or("no image was made")?;
        let (layout, image) = (self.path("layout"), self.path("image"));
        for (archive, to) in [(archive, &layout), (PathBuf::new(), &image)] {
            std::fs::create_dir(to)?;
            let archive = if archive.as_os_str().is_empty() {
                // The index names the manifest, and the manifest names the layer.
                let read = |path: PathBuf| -> Result<Value> {
                    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
                };
                let blob = |digest: &Value| -> Result<PathBuf> {
                    let digest = digest.as_str().ok_or("no digest")?;
                    Ok(layout.join("blobs").join(digest.replace(':', "/")))
                };
                let index = read(layout.join("index.json"))?;
                let manifest = read(blob(&index["manifests"][0]["digest"])?)?;
                blob(&manifest["layers"][0]["digest"])?
            } else {
                archive
            };
            let mut tar = Command::new("tar");
            tar.arg("-xf").arg(archive).arg("-C").arg(to);
            run(tar, PATIENCE)?.success()?;
        }
        // A container runtime makes these directories.
        for directory in ["proc", "results"] {
            std::fs::create_dir_all(image.join(directory))?;
        }
        Ok(image)
    }
}

fn saw_kernels(exit: &Exit) -> Result<()> {
    match exit.stdout.iter().any(|line| line.contains("gemm")) {
        true => Ok(()),
        false => Err(format!("no kernels: {exit}").into()),
    }
}

/// Enters the image's root in a mount namespace of its own, and in the program's pid namespace.
const IN_IMAGE: &str = r#"while [ "$1" != -- ]; do shift; done; shift
exec nsenter -t "$pid" -p unshare --mount --propagation private sh -ec '
mount -t proc proc "$0/proc"
exec chroot "$0" "$@"' "$here/image" "$@""#;

/// No test would run a block of commands without a mark, or with one that no test here names.
#[test]
fn every_recipe_of_the_page_is_run() -> Result<()> {
    let page = std::fs::read_to_string(workspace().join("docs/recipes.md"))?;
    let marks = page
        .lines()
        .filter_map(|line| line.strip_prefix("<!-- recipe: "));
    let names: Vec<&str> = marks.filter_map(|mark| mark.strip_suffix(" -->")).collect();
    assert_eq!(page.matches("```console").count(), names.len(), "{names:?}");
    for name in names {
        let named = include_str!("recipes.rs")
            .matches(&format!("{name:?}"))
            .count();
        assert!(named > 0, "{name}");
    }
    Ok(())
}

#[test]
fn docker_and_podman() -> Result<()> {
    if !is_root_for("to make namespaces")? {
        return Ok(());
    }
    let place = Place::new()?;
    let inside = format!("--bounding-set={DOCKERS}");
    place.script(
        "docker",
        &format!(
            r#"case $1 in
inspect) echo "$pid" ;;
cp) ;;
exec) shift 2
  exec nsenter -t "$pid" -U --preserve-credentials -m -p -n -u -i setpriv {inside} "$@" ;;
esac"#
        ),
    )?;
    let container = "unshare -U -r -m -n -u -i -C -pf --kill-child --mount-proc setpriv";
    let mut container: Vec<&str> = container.split(' ').collect();
    container.push(&inside);
    let _target = place.start(&container, 1)?;
    place.works(&recipe("docker-host")?, &place.path("results"))?;
    // The container has our file system, so the copied file is the one that is staged here.
    let midair = stage()?.join("bin/midair").display().to_string();
    let results = place.path("inside");
    let text = recipe("docker-inside")?
        .replace("NAME /tmp/midair", &format!("NAME {midair}"))
        .replace("/tmp/results", &results.display().to_string());
    place.works(&text, &results)?;
    Ok(())
}

#[test]
fn kubernetes_by_the_image() -> Result<()> {
    if !is_root_for("to make namespaces")? {
        return Ok(());
    }
    let place = Place::new()?;
    let image = place.image()?;
    place.script("kubectl", IN_IMAGE)?;
    let target = "unshare -m -pf --kill-child --mount-proc";
    let target = place.start(&target.split(' ').collect::<Vec<_>>(), 1)?;
    place.works(&recipe("kubernetes-ephemeral")?, &image.join("tmp/results"))?;
    drop(target);

    // With hostPID, the pid is the node's.
    let target = place.start(&[], 0)?;
    let text =
        recipe("kubernetes-daemonset")?.replace("--tree PID", &format!("--tree {}", target.pid()));
    place.works(&text, &image.join("results"))?;
    Ok(())
}

#[test]
fn kubernetes_restricted() -> Result<()> {
    if !is_root_for("to make namespaces and be other users")? {
        return Ok(());
    }
    let place = Place::new()?;
    let nobody = "setpriv --reuid=1000 --regid=1000 --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs";
    place.script(
        "kubectl",
        &format!("case $1 in\ncp) ;;\nexec) shift 3; exec nsenter -t \"$pid\" -m -p {nobody} \"$@\" ;;\nesac"),
    )?;
    let start = format!("unshare -m -pf --kill-child --mount-proc {nobody}");
    let _target = place.start(&start.split(' ').collect::<Vec<_>>(), 1)?;
    let midair = stage()?.join("bin/midair").display().to_string();
    let results = place.path("results");
    let text = recipe("kubernetes-restricted")?
        .replace("-- /tmp/midair", &format!("-- {midair}"))
        .replace("/tmp/results", &results.display().to_string());
    place.works(&text, &results)?;
    Ok(())
}

/// The pod's profile forbids `ptrace`, for the program and for what is started alongside it alike, or every
/// call that reaches into another process. What is left is the listener.
#[test]
fn kubernetes_restricted_and_a_profile_without_ptrace() -> Result<()> {
    if !is_root_for("to make namespaces and be other users")? {
        return Ok(());
    }
    let place = Place::new()?;
    let jail = without_ptrace(place.dir.path())?.display().to_string();
    let library = preloaded(place.dir.path())?.display().to_string();
    let midair = stage()?.join("bin/midair").display().to_string();
    let results = place.path("results");
    let text = recipe("kubernetes-listener")?
        .replace("-- /tmp/midair", &format!("-- {midair}"))
        .replace("/tmp/results", &results.display().to_string());
    for profile in ["ONLY_PTRACE=1", "WHATEVER_TRACES=1"] {
        for registers in [false, true] {
            let nobody = format!(
                "env {profile} setpriv --reuid=1000 --regid=1000 --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs {jail} -"
            );
            place.script(
                "kubectl",
                &format!("case $1 in\ncp) ;;\nexec) shift 3; exec nsenter -t \"$pid\" -n -m -p {nobody} \"$@\" ;;\nesac"),
            )?;
            let preloads = match registers {
                true => format!("LD_PRELOAD={library}"),
                false => "NOTHING=1".to_owned(),
            };
            // A pod has a network of its own, and so its own names of sockets.
            let start =
                format!("unshare -n -m -pf --kill-child --mount-proc {nobody} env {preloads}");
            let target = place.start(&start.split(' ').collect::<Vec<_>>(), 1)?;
            if registers {
                listens(std::fs::read_to_string(place.path("pid"))?.parse()?)?;
                place.works(&text, &results)?;
                std::fs::remove_dir_all(&results)?;
                continue;
            }
            let exit = run(place.shell(&[], &text)?, PATIENCE)?;
            let said = exit.stderr.join("\n");
            assert_eq!(exit.status.code(), Some(26), "{profile}: {exit}");
            assert!(
                said.contains("midair's own seccomp filter refuses ptrace"),
                "{exit}"
            );
            assert!(said.contains("midair's register library"), "{exit}");
            assert!(!results.exists(), "{profile}: {exit}");
            drop(target);
        }
    }
    Ok(())
}

/// A group gets the rights, and no other user. `/etc` and `/opt` are a namespace's own.
#[test]
fn a_group_with_least_rights() -> Result<()> {
    const NAMESPACE: &str = r#"mkdir etc
mount -t tmpfs none etc
mkdir etc/up etc/work
mount -t overlay overlay -o "lowerdir=/etc,upperdir=$PWD/etc/up,workdir=$PWD/etc/work" /etc
mount -t tmpfs -o mode=755 none /opt
cp -a "$(dirname "$(dirname "$(command -v midair)")")" /opt/midair
RIGHTS
chmod 777 .
umask 0
for user in nobody daemon; do
  setpriv --reuid=$user --regid=$user --init-groups sh -c 'MEMBER' || echo "$user: $?"
done"#;
    if !is_root_for("to give capabilities")? {
        return Ok(());
    }
    if Command::new("setcap").arg("-h").output().is_err() {
        return leave_out("setcap (libcap2-bin) is not there");
    }
    let rights = recipe("least-rights")?;
    let quick_start = std::fs::read_to_string(workspace().join("docs/quick-start.md"))?;
    for line in rights.lines() {
        assert!(quick_start.contains(&format!("$ {line}\n")), "{line}");
    }
    let place = Place::new()?;
    let user = "setpriv --reuid=1000 --regid=1000 --clear-groups";
    let target = place.start(&user.split(' ').collect::<Vec<_>>(), 0)?;
    let member = recipe("least-rights-member")?.replace("PID", &target.pid().to_string());
    let text = NAMESPACE
        .replace("RIGHTS", &rights.replace(" USER", " nobody"))
        .replace("MEMBER", &member)
        .replace("--regid=$user", "--regid=65534");
    let exit = run(place.shell(&["unshare", "--mount"], &text)?, PATIENCE)?.success()?;
    saw_kernels(&exit)?;
    // 126: it is there, and may not be executed.
    let others: Vec<&String> = exit
        .stdout
        .iter()
        .filter(|line| line.starts_with("nobody: ") || line.starts_with("daemon: "))
        .collect();
    assert_eq!(others, ["daemon: 126"], "{exit}");
    assert!(place.path("results").is_dir(), "{exit}");
    Ok(())
}

#[test]
fn three_hosts_by_ssh() -> Result<()> {
    if !is_root_for("to make namespaces")? {
        return Ok(());
    }
    let place = Place::new()?;
    place.script(
        "ssh",
        "while [ \"$1\" != -- ]; do shift; done\nexec nsenter -t $(cat $here/$2.pid) -p -m -u sh -c \"PATH=$PATH; $3\"",
    )?;
    let hosts = ["node1", "node2", "node3"];
    let mut programs = Vec::new();
    for host in hosts {
        let text =
            format!("echo {host} >/proc/sys/kernel/hostname; exec -a train.py \"$0\" \"$@\"");
        let mut before: Vec<&str> = "unshare -u -m -pf --kill-child --mount-proc bash -c"
            .split(' ')
            .collect();
        before.push(&text);
        programs.push(place.start(&before, 1)?);
        std::fs::rename(place.path("pid"), place.path(&format!("{host}.pid")))?;
    }
    std::fs::write(place.path("pid"), "")?;
    let results = place.path("results");
    let text = recipe("fleet")?.replace("/scratch/results", &results.display().to_string());
    place.works(&text, &results)?;
    for host in hosts {
        assert!(results.join(host).is_dir(), "{host} writes by itself");
    }
    Ok(())
}

/// Starts a launcher with two ranks. Each has its number in this variable.
fn ranks(place: &Place, variable: &str, name: &str) -> Result<Target> {
    let text = format!(
        "for rank in 0 1; do {variable}=$rank bash -c 'exec -a {name} \"$0\" \"$@\"' \"$0\" \"$@\" & done; wait"
    );
    place.start(&["sh", "-c", &text], 0)
}

#[test]
fn launchers_and_their_ranks() -> Result<()> {
    for (name, variable, launcher) in [
        ("mpi", "OMPI_COMM_WORLD_RANK", "pgrep"),
        ("torchrun", "RANK", "pgrep"),
    ] {
        let place = Place::new()?;
        let _launcher = ranks(&place, variable, "rank")?;
        place.script(launcher, "echo $pid")?;
        let results = place.path("results");
        let exit = place.works(&recipe(name)?, &results)?;
        let mut of_ranks = Vec::new();
        collect(&results, &mut of_ranks)?;
        for rank in ["0", "1"] {
            let part = format!("rank{rank}");
            let there = of_ranks.iter().any(|file| file.contains(&part));
            assert!(name != "mpi" || there, "{of_ranks:?}: {exit}");
        }
        assert!(of_ranks.len() >= 2, "{of_ranks:?}: {exit}");
    }
    Ok(())
}

fn collect(dir: &Path, files: &mut Vec<String>) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => collect(&entry.path(), files)?,
            false => files.push(entry.file_name().to_string_lossy().into_owned()),
        }
    }
    Ok(())
}

#[test]
fn slurm_takes_what_has_the_name() -> Result<()> {
    let place = Place::new()?;
    let _ranks = ranks(&place, "SLURM_PROCID", "slurm-train.py")?;
    place.script(
        "srun",
        "while case $1 in -*) ;; *) false ;; esac; do shift; done\nexec \"$@\"",
    )?;
    let text = recipe("slurm")?.replace(r"'train\.py'", r"'slurm-train\.py'");
    place.works(&text, &place.path("results"))?;
    Ok(())
}

#[test]
fn servers_whose_workers_name_themselves() -> Result<()> {
    let place = Place::new()?;
    let _workers = ranks(&place, "RANK", "VLLM::Worker_TP0")?;
    let _scheduler = ranks(&place, "RANK", "sglang::scheduler_TP0")?;
    place.works(&recipe("vllm")?, &place.path("results"))?;
    Ok(())
}

/// The command is a child of the process that it attaches to.
#[test]
fn jupyter() -> Result<()> {
    let place = Place::new()?;
    let text = recipe("jupyter")?;
    let text = text.strip_prefix('!').ok_or("a cell's command")?;
    let text = text.replace(r#"{__import__("os").getpid()}"#, "$PPID");
    let midair = stage()?.join("bin").display().to_string();
    let (said, done) = (place.path("said"), place.path("done"));
    let cell = format!(
        "sh -c 'read -r go; cd {} && PATH={midair}:$PATH && {text} >{} 2>&1 </dev/null; mv {} {}' <{} & exec \"$0\" \"$@\"",
        place.dir.path().display(),
        said.display(),
        said.display(),
        done.display(),
        place.path("go").display(),
    );
    let mut fifo = Command::new("mkfifo");
    fifo.arg(place.path("go"));
    run(fifo, PATIENCE)?.success()?;
    let _target = place.start(&["sh", "-c", &cell], 0)?;
    std::fs::write(place.path("go"), "go\n")?;
    until("the command's end", || Ok(done.exists()))?;
    let said = std::fs::read_to_string(done)?;
    assert!(said.contains("gemm"), "{said}");
    Ok(())
}

#[test]
fn a_service_with_one_capability() -> Result<()> {
    if !is_root_for("to be another user")? {
        return Ok(());
    }
    let place = Place::new()?;
    let user = "setpriv --reuid=1000 --regid=1000 --clear-groups";
    let name = "exec -a inference \"$0\" \"$@\"";
    let mut start: Vec<&str> = user.split(' ').collect();
    start.extend(["bash", "-c", name]);
    let target = place.start(&start, 0)?;
    let service = format!(
        "{user} --bounding-set=-all,+sys_ptrace --inh-caps=-all,+sys_ptrace --ambient-caps=-all,+sys_ptrace"
    );
    let text = format!("exec {} </dev/null", recipe("systemd")?);
    let service = place.shell(&service.split(' ').collect::<Vec<_>>(), &text)?;
    let mut service = Target::spawn(service)?;
    service.expect_error("attached to")?;
    let before = target.lines().len();
    until("rounds of work", || Ok(target.lines().len() > before + 20))?;
    service.signal(libc::SIGTERM)?;
    let exit = service.wait(PATIENCE)?.success()?;
    saw_kernels(&exit)
}
