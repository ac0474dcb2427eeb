//! Namespaces, from both sides.

use crate::environments::kit::{
    Attach, Program, Start, as_user, refused, words, works, works_once,
};
use midair_tests::stage::{plain_environment, stage};
use midair_tests::stand_in::Kit;
use midair_tests::table::Csv;
use midair_tests::target::{PATIENCE, run};
use midair_tests::{Result, is_root_for};
use serde_json::Value;
use std::process::Command;

/// Options for all namespaces that `unshare` makes, as a container has them.
const ALL: [&str; 10] = [
    "unshare",
    "-U",
    "-r",
    "-m",
    "-n",
    "-u",
    "-i",
    "-C",
    "-pf",
    "--mount-proc",
];

#[test]
fn a_target_in_namespaces_of_its_own() -> Result<()> {
    if !is_root_for("to make namespaces")? {
        return Ok(());
    }
    let kit = Kit::new()?;
    let places: [(&[&str], usize); 8] = [
        (&["unshare", "-m"], 0),
        (&["unshare", "-pf", "--mount-proc"], 1),
        (&["unshare", "-n"], 0),
        (&["unshare", "-u", "-i"], 0),
        (&["unshare", "-U", "-r"], 0),
        (&["unshare", "-U"], 0),
        (&["unshare", "-T", "--boottime", "1000", "-f"], 1),
        (&ALL, 1),
    ];
    for (place, children) in places {
        let start = Start {
            before: words(place),
            children,
            ..Start::default()
        };
        let name = place.join(" ");
        let mut program = Program::start(&kit, &name, start)?;
        works(&mut program, &Attach::default(), &name)?;
        program.quit()?;
    }
    Ok(())
}

/// The boot clock of the program or of midair is another one: what a view and triggers compare with
/// the present is right all the same, and results have the times of the program.
#[test]
fn a_boot_clock_of_its_own() -> Result<()> {
    if !is_root_for("to make namespaces")? {
        return Ok(());
    }
    let kit = Kit::new()?;
    let ahead = |seconds: &str| words(&["unshare", "-T", "--boottime", seconds, "-f"]);
    for (program, attach) in [
        (ahead("1000"), Vec::new()),
        (ahead("-3"), Vec::new()),
        (Vec::new(), ahead("1000")),
        (ahead("7"), ahead("1000")),
        (Vec::new(), Vec::new()),
    ] {
        let name = format!("{program:?}, {attach:?}");
        let start = Start {
            children: usize::from(!program.is_empty()),
            before: program,
            environment: vec![("MODEL_KERNEL_NS".to_owned(), "50000".into())],
            ..Start::default()
        };
        let mut program = Program::start(&kit, "clock", start)?;
        program.ask("start")?;
        let command = |words: &[&str]| -> Result<Command> {
            let mut all = attach.clone();
            all.push(stage()?.join("bin/midair").to_string_lossy().into_owned());
            let (first, rest) = all.split_first().ok_or("a command")?;
            let mut command = Command::new(first);
            command.args(rest).args(words);
            command.env_clear().envs(plain_environment());
            Ok(command)
        };
        let pid = program.pid.to_string();
        let top = run(command(&["top", &pid, "--once", "--json"])?, PATIENCE)?.success()?;
        let view: Value = serde_json::from_str(&top.stdout.join("\n"))?;
        let kernel = &view["kernels"][0]["all"];
        let number = |value: &Value| value.as_u64().ok_or_else(|| format!("{name}: {view}"));
        let (calls, total) = (number(&kernel["count"])?, number(&kernel["total_ns"])?);
        assert!(calls > 0, "{name}: {view}");
        assert!(
            (20_000..10_000_000).contains(&(total / calls)),
            "{name}: {view}"
        );

        let results = tempfile::tempdir()?;
        let at = results.path().to_string_lossy();
        let words = [
            "attach",
            &pid,
            "--keep",
            "1s",
            "--trigger",
            "kernel(step) > 1us",
        ];
        let more = [
            "--keep-windows",
            "1",
            "--duration",
            "2s",
            "-f",
            "csv",
            "-d",
            &at,
            "-o",
            "w",
        ];
        run(command(&[&words[..], &more].concat())?, PATIENCE)?.success()?;
        let mut windows = std::fs::read_dir(results.path())?;
        let window = windows
            .next()
            .ok_or_else(|| format!("{name}: no window"))??;
        let rows = Csv::read(&window.path().join("w_kernel_trace.csv"))?.rows;
        assert!(rows.len() > 10, "{name}: {} rows", rows.len());

        program.ask("stop")?;
        // The worker thread's clock, and no other, is in the results.
        works_once(&mut program, &Attach::default())?;
        program.quit()?;
    }
    Ok(())
}

#[test]
fn an_attacher_in_a_container() -> Result<()> {
    if !is_root_for("to make namespaces")? {
        return Ok(());
    }
    let kit = Kit::new()?;
    let start = Start {
        before: words(&ALL),
        children: 1,
        ..Start::default()
    };
    let mut inner = Program::start(&kit, "inner", start)?;
    let mut outer = Program::start(&kit, "outer", Start::default())?;
    let enter = |flags: &[&str]| {
        let pid = inner.pid.to_string();
        let mut all = words(&["nsenter", "-t", &pid]);
        all.extend(words(flags));
        all
    };
    let whole = ["-U", "--preserve-credentials", "-m", "-p", "-n", "-u", "-i"];
    let pid = Some(inner.pid_inside()?);

    // The attacher and the program are in one container.
    let same = Attach {
        before: enter(&whole),
        pid,
        ..Attach::default()
    };
    // A process outside has no pid in the container.
    let outwards = Attach {
        before: enter(&whole),
        pid: Some(outer.pid),
        ..Attach::default()
    };
    // Two containers share their processes, but have different file systems.
    let mut sibling = enter(&[
        "-U",
        "--preserve-credentials",
        "-p",
        "unshare",
        "-m",
        "sh",
        "-c",
    ]);
    sibling.extend(words(&["mount -t proc proc /proc && exec \"$@\"", "sh"]));
    let sibling = Attach {
        before: sibling,
        pid,
        ..Attach::default()
    };
    refused(&outer, &outwards, 10, "there is no process")?;
    works(&mut inner, &same, "in one container")?;
    works(&mut inner, &sibling, "from a container beside it")?;
    // The next attach comes from outside again, and wakes the worker thread that stayed.
    works_once(&mut inner, &Attach::default())?;
    works_once(&mut outer, &Attach::default())?;
    inner.quit()?;
    outer.quit()
}

#[test]
fn user_namespaces() -> Result<()> {
    if !is_root_for("to be another user")? {
        return Ok(());
    }
    let kit = Kit::new()?;
    let inside = |uid: u32| Start {
        before: [as_user(uid), words(&["unshare", "-U", "-r"])].concat(),
        ..Start::default()
    };
    // A user's process is in a user namespace of its own. That user attaches from outside, then
    // root of that namespace, then root.
    let mut program = Program::start(&kit, "users", inside(1000))?;
    let pid = program.pid.to_string();
    let user = Attach {
        before: as_user(1000),
        ..Attach::default()
    };
    works(&mut program, &user, "its user, outside")?;
    let root_inside = Attach {
        before: [
            as_user(1000),
            words(&["nsenter", "-t", &pid, "-U", "--preserve-credentials"]),
        ]
        .concat(),
        ..Attach::default()
    };
    works(&mut program, &root_inside, "root of its namespace")?;
    works(&mut program, &Attach::default(), "root outside")?;
    let other = Attach {
        before: as_user(1001),
        ..Attach::default()
    };
    refused(
        &program,
        &other,
        11,
        "it belongs to user 1000, and midair runs as user 1001",
    )?;
    program.quit()?;

    // Conversely, a user who is root in a user namespace of their own has no more rights outside of
    // it.
    let program = Program::start(&kit, "root's", Start::default())?;
    let child = Attach {
        before: words(&["unshare", "-U", "-r"]),
        ..Attach::default()
    };
    refused(&program, &child, 11, "it is in another user namespace")?;
    program.quit()
}
