//! Every command of a midair with raised rights, in a directory of traps: files that its user may not
//! read, directories that they may not write to, and programs that they may not run.
//!
//! The commands come from the table in SECURITY.md (`midair_settings::commands`). Each is given
//! every file, directory and program that its options and variables take.

use crate::installed::{BOTH, Installed, USER, as_user, give, mode, start_as_other};
use midair_settings::commands::COMMANDS;
use midair_tests::Result;
use midair_tests::compile::attack_program;
use midair_tests::stand_in::Kit;
use midair_tests::target::{Exit, PATIENCE, run};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};

/// A text that the user may not read.
const SECRET: &str = "5ec7e7f0a11";
/// The group of a set-uid program that the user may not run.
pub(crate) const HELPERS: u32 = 54321;

/// A workload directory whose kernel has this name.
pub(crate) fn workload(at: &Path, kernel: &str) -> Result<()> {
    fs::create_dir_all(at)?;
    let system = "workload_name,gpu_model,gpu_arch,cu_per_gpu,max_sclk,num_xcd\nw,MI300X,gfx942,304,2100,8\n";
    fs::write(at.join("sysinfo.csv"), system)?;
    let rows = format!(
        "Dispatch_ID,GPU_ID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Kernel_Name,CPF_CPF_STAT_BUSY,CPF_CPF_STAT_STALL,\
         Start_Timestamp,End_Timestamp\n0,0,64,64,0,{kernel},400,100,1000,2000\n"
    );
    Ok(fs::write(at.join("pmc_perf.csv"), rows)?)
}

/// What must stay as it is: all entries below a directory, with owner, mode and contents.
fn contents(below: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut all = BTreeMap::new();
    let mut open = vec![below.to_owned()];
    while let Some(path) = open.pop() {
        let found = fs::symlink_metadata(&path)?;
        let text = match () {
            () if found.is_dir() => {
                for entry in fs::read_dir(&path)? {
                    open.push(entry?.path());
                }
                String::new()
            }
            () if found.is_file() => String::from_utf8_lossy(&fs::read(&path)?).into_owned(),
            () => String::new(),
        };
        let what = format!("{} {:o} {text}", found.uid(), found.mode());
        all.insert(path, what);
    }
    Ok(all)
}

/// The traps, and an installation.
struct Traps {
    installed: Installed,
    kit: Kit,
}

impl Traps {
    fn set() -> Result<Option<Traps>> {
        let Some(installed) = Installed::new()? else {
            return Ok(None);
        };
        let traps = Traps {
            installed,
            kit: Kit::new()?,
        };
        for name in ["rocprofv3", "rocprof-compute", "rocpd", "rocprofv3-avail"] {
            let link = traps.at("links").join(name);
            fs::create_dir_all(traps.at("links"))?;
            symlink("../bin/midair", link)?;
        }
        traps.lay()?;
        Ok(Some(traps))
    }

    /// Makes the files, and removes what an attack that succeeded has left.
    fn lay(&self) -> Result<()> {
        for name in ["closed", "roots", "users", "witness", "helper"] {
            let at = self.at(name);
            let _ = fs::remove_dir_all(&at);
            let _ = fs::remove_file(&at);
        }
        // Closed to the user.
        let closed = self.at("closed");
        workload(&closed.join("w"), SECRET)?;
        fs::write(closed.join("secret"), format!("secret: {SECRET}\n"))?;
        mode(&closed.join("secret"), 0o600)?;
        // The user may read, and not write. An earlier profile is there.
        let roots = self.at("roots");
        workload(&roots.join("w"), "kernel")?;
        fs::create_dir(roots.join("w/out"))?;
        fs::write(roots.join("file"), "root's")?;
        // The user's own, with links to both.
        let users = self.at("users");
        workload(&users.join("w"), "kernel")?;
        symlink(closed.join("secret"), users.join("w/profiling_config.yaml"))?;
        symlink(
            closed.join("w/pmc_perf.csv"),
            users.join("w/pmc_perf_0.csv"),
        )?;
        for (link, to) in [
            ("out", ""),
            ("file", "file"),
            ("w.html", "file"),
            ("w.db", "file"),
        ] {
            symlink(roots.join(to), users.join(link))?;
        }
        let witness = self.at("witness");
        fs::create_dir(&witness)?;
        mode(&witness, 0o777)?;
        for place in [&closed, &users] {
            let program = place.join("program");
            fs::copy(attack_program("witness")?, &program)?;
            mode(&program, 0o755)?;
        }
        // For another group.
        let helper = self.at("helper");
        fs::copy("/usr/bin/id", &helper)?;
        chown(&helper, Some(0), Some(HELPERS))?;
        mode(&helper, 0o4750)?;
        mode(&closed, 0o700)?;
        for entry in [&users, &users.join("w")] {
            chown(entry, Some(USER), Some(USER))?;
        }
        for link in ["out", "file", "w.html", "w.db", "w/profiling_config.yaml"] {
            std::os::unix::fs::lchown(users.join(link), Some(USER), Some(USER))?;
        }
        Ok(())
    }

    /// A file or directory of the installation's, which everybody may enter.
    fn at(&self, name: &str) -> PathBuf {
        self.installed.dir.path().join(name)
    }

    /// Runs a command as the user. `{closed}`, `{roots}`, `{users}`, `{helper}` and `{pid}` in its
    /// words stand for the traps and for a process of another user's.
    fn spring(&self, program: &Path, words: &str, pid: i32) -> Result<Exit> {
        let mut command = as_user(program, USER);
        for word in words.split_whitespace() {
            let mut word = word.replace("{pid}", &pid.to_string());
            for name in ["closed", "roots", "users", "helper"] {
                word = word.replace(&format!("{{{name}}}"), &self.at(name).display().to_string());
            }
            command.arg(word);
        }
        let closed = self.at("closed/program");
        command
            .env("WITNESS", self.at("witness"))
            .env("ROCPROF", &closed)
            .env("ROOFLINE_BIN", &closed)
            .env("XDG_CACHE_HOME", self.at("roots"))
            .env("HSA_MODEL_TOPOLOGY", self.kit.dir().join("topology"))
            .current_dir(self.at("roots"));
        run(command, PATIENCE)
    }

    /// What ran: nothing, or one of the user's programs with the user's rights alone, or else what.
    fn ran(&self) -> Result<&'static str> {
        let witness = self.at("witness");
        if witness.join("closed").exists() {
            fs::remove_file(witness.join("closed"))?;
            return Ok("a closed program");
        }
        let Ok(text) = fs::read_to_string(witness.join("users")) else {
            return Ok("nothing");
        };
        fs::remove_file(witness.join("users"))?;
        let user = USER.to_string();
        let is_plain = |line: &str| {
            let (name, value) = line.split_once(':').unwrap_or_default();
            let mut value = value.split_whitespace();
            match name {
                "Uid" | "Gid" => value.all(|id| id == user),
                "CapInh" | "CapPrm" | "CapEff" | "CapAmb" => {
                    value.all(|all| all == "0000000000000000")
                }
                _ => true,
            }
        };
        Ok(match text.lines().all(is_plain) {
            true => "as the user",
            false => "with more rights",
        })
    }

    /// Whether anything that the user can read has the secret in it.
    fn is_out(&self, exit: &Exit) -> Result<bool> {
        let mut texts: Vec<String> = contents(&self.at("users"))?.into_values().collect();
        texts.push(exit.to_string());
        Ok(texts.iter().any(|text| text.contains(SECRET)))
    }
}

/// What each command is tried with: its program and name in the table, and words.
const TRIED: &[(&str, &str, &[&str])] = &[
    (
        "midair",
        "attach",
        &[
            "attach {pid} --duration 100ms -d {roots}",
            "attach {pid} --duration 100ms -d {users}/out",
            "attach {pid} --duration 100ms -d {closed}",
            "attach {pid} -i {closed}/secret",
            "{pid} -E {closed}/secret --duration 100ms",
        ],
    ),
    (
        "midair",
        "flame",
        &["flame {pid} --duration 100ms -d {closed}"],
    ),
    ("midair", "top", &["top {pid} --duration 500ms"]),
    ("midair", "why", &["why {pid}"]),
    ("midair", "ps", &["ps"]),
    ("midair", "doctor", &["doctor {pid}", "doctor"]),
    (
        "midair",
        "run",
        &[
            "run -- {closed}/program",
            "run -- {users}/program",
            "run -- {helper} -u",
            "run -- /bin/cat {closed}/secret",
            "run -i {closed}/secret -- /bin/true",
            "run -d {roots} -- /bin/true",
        ],
    ),
    (
        "midair",
        "show",
        &[
            "show {closed}/w/pmc_perf.csv",
            "show {closed}/w",
            "show {users}/w/pmc_perf_0.csv",
            "show {users}/w",
        ],
    ),
    ("midair", "counters", &["counters -E {closed}/secret"]),
    (
        "midair",
        "metrics",
        &[
            "metrics --samples {roots}/x.csv",
            "metrics --samples {users}/file",
        ],
    ),
    (
        "midair",
        "demo",
        &["demo -d {roots}", "demo -d {users}/out"],
    ),
    (
        "midair",
        "fleet",
        &[
            "fleet --ssh {closed}/program host -- ps",
            "fleet --ssh {users}/program host -- ps",
            "fleet --hosts {closed}/secret --ssh /bin/true -- ps",
        ],
    ),
    (
        "midair",
        "serve",
        &[
            "serve --token-file {closed}/secret",
            "serve --listen unix:{roots}/socket",
            "serve --listen unix:{users}/out/socket",
            "serve --listen unix:{users}/file",
        ],
    ),
    (
        "midair",
        "compute",
        &[
            "compute analyze -p {closed}/w --list-stats",
            "compute profile -n x -- /bin/true",
        ],
    ),
    ("midair", "completions", &["completions bash"]),
    (
        "midair",
        "man",
        &[
            "man --directory {roots}",
            "man --directory {users}/out",
            "man",
        ],
    ),
    (
        "midair",
        "convert",
        &[
            "convert -i {closed}/secret -f csv",
            "convert -i {closed} -f csv -d {roots}",
        ],
    ),
    (
        "rocprofv3",
        "--pid PID",
        &[
            "--hip-trace --pid {pid} --attach-duration-msec 100 -d {roots}",
            "--pid {pid} -i {closed}/secret",
        ],
    ),
    (
        "rocprofv3",
        "-- APP",
        &[
            "--hip-trace -- {closed}/program",
            "--hip-trace -- {users}/program",
            "--hip-trace -- {helper} -u",
            "-i {closed}/secret -- /bin/true",
        ],
    ),
    (
        "rocprof-compute",
        "profile",
        &[
            "profile -n x -d {roots}/w --overwrite -- /bin/true",
            "profile -n x -d {users}/out/w --overwrite -- /bin/true",
            "profile -n x -d {closed}/w --overwrite -- /bin/true",
            "profile -n x -d {users}/p1 -- /bin/true",
            "profile -n x -d {users}/p2 --roof-only -- /bin/true",
        ],
    ),
    (
        "rocprof-compute",
        "live",
        &["live --attach-pid {pid} --attach-duration-msec 100"],
    ),
    (
        "rocprof-compute",
        "analyze",
        &[
            "analyze -p {closed}/w --list-stats",
            "analyze -p {users}/w",
            "analyze -p {users}/w --output-format db --output-name {users}/new",
            "analyze -p {users}/w --output-format db --output-name {users}/w",
            "analyze -p {users}/w --output-format db --output-name {roots}/w",
            "analyze -p {users}/w --output-format txt --output-name {users}/file",
            "analyze -p {users}/w --output-format txt --output-name {roots}/new",
            "analyze -p {users}/w --output-format csv --output-name {roots}/new",
            "analyze -p {users}/w --output-format csv --output-name {users}/out",
            "analyze -p {users}/w --html {roots}/new.html",
            "analyze -p {users}/w --html {users}/w.html",
        ],
    ),
    (
        "rocpd",
        "convert",
        &["convert -i {closed}/secret -f csv -d {roots}"],
    ),
    (
        "rocpd",
        "query",
        &[
            "query -i {closed}/secret --query x",
            "query -i {closed} --query x --script {closed}/secret",
        ],
    ),
    (
        "rocpd",
        "summary",
        &["summary -i {closed}/secret -d {roots}"],
    ),
    ("rocpd", "merge", &["merge -i {closed}/secret -d {roots}"]),
    ("rocpd", "package", &["package -i {closed}/secret"]),
    ("rocprofv3-avail", "list", &["list --arch gfx942"]),
    ("rocprofv3-avail", "info", &["info --arch gfx942 --pmc"]),
    (
        "rocprofv3-avail",
        "pmc-check",
        &["pmc-check --arch gfx942 SQ_WAVES"],
    ),
];

#[test]
fn every_command_is_tried() {
    let named: Vec<_> = COMMANDS.iter().map(|row| (row.program, row.name)).collect();
    let tried: Vec<_> = TRIED
        .iter()
        .map(|(program, name, _)| (*program, *name))
        .collect();
    assert_eq!(named, tried);
}

/// Every way to call a program of the installation's.
fn ways(traps: &Traps, program: &str) -> Vec<PathBuf> {
    match program {
        "midair" => vec![traps.installed.midair()],
        _ => vec![traps.at("links").join(program)],
    }
}

/// Points 1 to 3 of the second review: commands besides attach read, wrote and ran with the rights of
/// the program's file.
#[test]
fn no_command_does_with_capabilities_what_its_user_may_not() -> Result<()> {
    let Some(traps) = Traps::set()? else {
        return Ok(());
    };
    let target = start_as_other(&traps.kit, "two_gpus", "log", &[])?;
    let pid = target.target.pid();
    let mut before = [
        contents(&traps.at("roots"))?,
        contents(&traps.at("closed"))?,
    ];
    let mut got: Vec<String> = Vec::new();
    for (program, name, all) in TRIED {
        for words in *all {
            for way in ways(&traps, program) {
                let exit = traps.spring(&way, words, pid)?;
                let what = format!("{program} {name}: {words}");
                let after = [
                    contents(&traps.at("roots"))?,
                    contents(&traps.at("closed"))?,
                ];
                if before != after {
                    got.push(format!("{what}: changed what is root's"));
                    traps.lay()?;
                    before = [
                        contents(&traps.at("roots"))?,
                        contents(&traps.at("closed"))?,
                    ];
                }
                if traps.is_out(&exit)? {
                    got.push(format!("{what}: read what is root's: {exit}"));
                    traps.lay()?;
                }
                let ran = traps.ran()?;
                let wanted = words.contains("{users}/program");
                if ran != if wanted { "as the user" } else { "nothing" } {
                    got.push(format!("{what}: ran {ran}: {exit}"));
                }
                if exit.stdout.iter().any(|line| line == "0") {
                    got.push(format!("{what}: ran as root"));
                }
            }
        }
    }
    assert!(got.is_empty(), "{}", got.join("\n"));
    Ok(())
}

/// A set-uid or set-gid midair does nothing, whatever it is asked for.
#[test]
fn a_set_uid_program_does_nothing() -> Result<()> {
    let Some(traps) = Traps::set()? else {
        return Ok(());
    };
    let target = start_as_other(&traps.kit, "two_gpus", "log", &[])?;
    let pid = target.target.pid();
    let before = [
        contents(&traps.at("roots"))?,
        contents(&traps.at("closed"))?,
    ];
    let own = ["rocprofv3", "rocprof-compute"].map(|name| traps.at("bin").join(name));
    for bits in [0o4755, 0o2755, 0o6755] {
        for file in own.iter().chain([&traps.installed.midair()]) {
            mode(file, bits)?;
        }
        for (program, name, all) in TRIED {
            for words in all.iter().chain(&["--help"]) {
                for way in ways(&traps, program) {
                    let exit = traps.spring(&way, words, pid)?;
                    let what = format!("{bits:o} {program} {name}: {words}: {exit}");
                    assert_eq!(exit.status.code(), Some(20), "{what}");
                    let said = exit.stderr.join("\n");
                    assert!(exit.stdout.is_empty() && said.contains("setcap"), "{what}");
                    assert_eq!(traps.ran()?, "nothing", "{what}");
                }
            }
        }
        for file in &own {
            let exit = traps.spring(file, "--help", pid)?;
            assert_eq!(exit.status.code(), Some(20), "{bits:o} {exit}");
        }
        let after = [
            contents(&traps.at("roots"))?,
            contents(&traps.at("closed"))?,
        ];
        assert_eq!(before, after, "{bits:o}");
    }
    // The bits have taken the capabilities away. Without the bits all is as before.
    mode(&traps.installed.midair(), 0o755)?;
    assert!(give(&traps.installed.midair(), BOTH)?);
    traps
        .spring(&traps.installed.midair(), "doctor", pid)?
        .success()?;
    Ok(())
}
