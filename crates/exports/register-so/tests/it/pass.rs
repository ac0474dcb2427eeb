//! `attach` and `detach` of the first generation, in programs that have functions of these names
//! themselves.

use crate::common::{Home, compile, source};
use std::process::Command;

struct Program {
    home: Home,
}

impl Program {
    /// Makes a program that links the register library and then, if one is given, this library of
    /// the directory.
    fn new(home: Home, also: Option<&str>) -> Program {
        Program::between(home, None, also)
    }

    /// Makes one that links a library before ours as well.
    fn between(home: Home, before: Option<&str>, also: Option<&str>) -> Program {
        let path = |name: &str| home.path(name).to_str().unwrap().to_owned();
        let mut words = vec!["-o".to_owned(), path("passer"), source("passer.c")];
        words.push("-Wl,--no-as-needed,-rpath,$ORIGIN".to_owned());
        words.extend(before.map(path));
        words.push(path("librocprofiler-register.so.0"));
        words.extend(also.map(path));
        words.push("-ldl".to_owned());
        compile(&words.iter().map(String::as_str).collect::<Vec<_>>());
        Program { home }
    }
    fn run(&self, words: &[&str]) -> Vec<String> {
        let out = Command::new("timeout")
            .args(["-s", "KILL", "60"])
            .arg(self.home.path("passer"))
            .args(words)
            .env_clear()
            .env("LD_LIBRARY_PATH", self.home.path(""))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(
            out.status.success(),
            "{words:?}: {}\n{text}\n{errors}",
            out.status
        );
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        assert_eq!(lines.remove(0), "linked 9");
        lines.extend(errors.lines().map(str::to_owned));
        lines
    }
}

fn called(who: &str) -> [String; 2] {
    [
        format!("  {who}: attach 1 2 3 4 5 6 7 0.5 1.5 2.5 3.5 4.5 5.5 6.5 7.5 8.5"),
        format!("  {who}: 24.5 42 words 0.25 -1e+300"),
    ]
}

/// Adds a library that has functions of these names of its own.
fn with_plugin(home: Home, file: &str, who: &str) -> Home {
    home.with(file, "plugin.c", &[&format!("-DWHO=\"{who}\"")])
}

#[test]
fn a_plugin_calls_its_own_functions_with_its_own_arguments() {
    let home = with_plugin(with_plugin(Home::new(), "one.so", "one"), "two.so", "two");
    // An attach library next to ours changes nothing for them.
    let home = home.with("librocprofiler-sdk-rocattach.so.1", "rocattach.c", &[]);
    let program = Program::new(home, None);
    let lines = program.run(&["plug:one.so", "plug:two.so", "plug:one.so"]);
    assert_eq!(
        lines,
        [called("one"), called("two"), called("one")].concat()
    );
    // The function is called by an address that the library passed on. The caller itself has no
    // such function.
    let lines = program.run(&["pointer:one.so"]);
    assert_eq!(lines, [called("one")[0].clone(), "pointer 24.5".to_owned()]);
}

#[test]
fn a_library_after_ours_in_the_search_order_is_reached() {
    let home = with_plugin(Home::new(), "liblate.so", "late");
    let home = home.with("librocprofiler-sdk-rocattach.so.1", "rocattach.c", &[]);
    let program = Program::new(home, Some("liblate.so"));
    assert_eq!(program.run(&["plug:liblate.so"]), called("late"));
}

/// Whoever looks up the function in our library itself gets the one that comes after ours.
#[test]
fn a_library_before_ours_in_the_search_order_is_not_the_next_one() {
    let with = |home: Home, who: &str| {
        let define = format!("-DWHO=\"{who}\"");
        home.with(&format!("lib{who}.so"), "rocattach.c", &[&define])
    };
    let home = with(with(Home::new(), "early"), "late");
    let program = Program::between(home, Some("libearly.so"), Some("liblate.so"));
    let lines = program.run(&["attach:1234", "detach"]);
    assert_eq!(lines, ["  late: attach 1234", "  late: detach"]);
}

#[test]
fn without_another_function_the_attach_library_is_called() {
    let home = Home::new().with("librocprofiler-sdk-rocattach.so.1", "rocattach.c", &[]);
    let program = Program::new(home, None);
    let lines = program.run(&["attach:1234", "detach", "attach:99"]);
    assert_eq!(
        lines,
        [
            "  rocattach: attach 1234",
            "  rocattach: detach",
            "  rocattach: attach 99"
        ]
    );
    // There is no attach library, or one without the functions: a warning is printed, and nothing
    // else happens.
    let without = Home::new().with("librocprofiler-sdk-rocattach.so.1", "tool.c", &[]);
    for home in [Home::new(), without] {
        let program = Program::new(home, None);
        let lines = program.run(&["attach:1234", "detach"]);
        assert_eq!(lines.len(), 2, "{lines:?}");
        for (line, name) in lines.iter().zip(["attach", "detach"]) {
            let wanted = format!(" {name} was called, but there is no attach library next to");
            assert!(line.contains(&wanted), "{lines:?}");
        }
    }
}
