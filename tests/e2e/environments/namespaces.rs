//! Namespaces, from both sides.

use crate::environments::kit::{
    Attach, Program, Start, as_user, refused, words, works, works_once,
};
use midair_tests::stand_in::Kit;
use midair_tests::{Result, is_root_for};

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
        "it belongs to user 1000 and we are user 1001",
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
