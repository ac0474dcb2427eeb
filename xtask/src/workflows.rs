//! What runs on GitHub: the same tasks as by hand, and no code that others can exchange.

use crate::TASKS;
use midair_dev_kit::run::root;

/// The workflows, each with its name.
fn workflows() -> Vec<(String, String)> {
    let entries = std::fs::read_dir(root().join(".github/workflows")).unwrap();
    let read = |path: std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).unwrap())
    };
    entries.map(|entry| read(entry.unwrap().path())).collect()
}

/// Returns what a workflow does that it must not.
fn mistakes(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let word = line.trim_start().trim_start_matches("- ");
        if let Some(action) = word.strip_prefix("uses: ") {
            found.extend(unpinned(action));
            if action.starts_with("actions/checkout@") {
                let step = lines.iter().skip(at + 1);
                let mut step = step.take_while(|line| !line.trim_start().starts_with("- "));
                if !step.any(|line| line.trim() == "persist-credentials: false") {
                    found.push(format!("a checkout keeps its token: {action}"));
                }
            }
        }
        let piped = line.split('|').skip(1);
        let is_shell = |part: &str| matches!(part.split_whitespace().next(), Some("sh" | "bash"));
        if line.contains("curl") && piped.into_iter().any(is_shell) {
            found.push(format!("a script from the network is run: {}", line.trim()));
        }
        if word.starts_with("run: cargo install") && !word.contains("--locked") {
            found.push(format!("versions are not fixed: {word}"));
        }
    }
    found.extend(writing_jobs(&lines));
    found
}

/// An action of another owner is named by its commit.
fn unpinned(action: &str) -> Option<String> {
    if action.starts_with("./") {
        return None;
    }
    let commit = action
        .split_once('@')
        .and_then(|(_, rest)| rest.split_whitespace().next());
    let is_digest = |commit: &str| {
        commit.len() == 40
            && commit
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    (!commit.is_some_and(is_digest)).then(|| format!("no commit is named: {action}"))
}

/// A job that may write builds nothing: dependencies' build scripts would have its token. The whole
/// workflow may only read.
fn writing_jobs(lines: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let (mut job, mut writes, mut builds) = (String::new(), false, false);
    let mut over = |job: &str, writes: bool, builds: bool| {
        if writes && (builds || job.is_empty()) {
            let whose = if job.is_empty() {
                "the whole workflow"
            } else {
                job
            };
            found.push(format!("{whose} may write and builds"));
        }
    };
    for line in lines {
        let is_job = line.starts_with("  ")
            && !line.starts_with("   ")
            && line.ends_with(':')
            && !line.trim_start().starts_with('-');
        if is_job {
            over(&job, writes, builds);
            (job, writes, builds) = (line.trim().to_owned(), false, false);
        }
        writes |= line.trim_end().ends_with(": write") || line.contains("write-all");
        builds |= line.contains("cargo ") || line.contains("actions/checkout");
    }
    over(&job, writes, builds);
    found
}

#[test]
fn no_workflow_runs_what_somebody_else_can_exchange() {
    let all = workflows();
    assert!(all.len() >= 4);
    for (name, text) in &all {
        assert!(mistakes(text).is_empty(), "{name}: {:#?}", mistakes(text));
        assert!(
            text.contains("\npermissions:\n  contents: read\n"),
            "{name}"
        );
    }
    // What the steps run has the same rules.
    let script = std::fs::read_to_string(root().join(".github/rustup.sh")).unwrap();
    assert!(mistakes(&script).is_empty() && script.contains("sha256sum --check --strict"));
}

#[test]
fn each_mistake_is_found() {
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let good = format!(
        "permissions:\n  contents: read\njobs:\n  one:\n    steps:\n      - uses: actions/checkout@{commit} # v4\n        with:\n          \
         persist-credentials: false\n      - run: cargo build\n  two:\n    permissions:\n      contents: write\n    steps:\n      - run: gh\n"
    );
    assert!(mistakes(&good).is_empty(), "{:?}", mistakes(&good));
    for (from, to) in [
        (commit, "v4"),
        (commit, "0123456"),
        ("          persist-credentials: false\n", ""),
        ("run: cargo build", "run: cargo install cargo-deny"),
        ("run: cargo build", "run: curl https://sh.rustup.rs | sh -s"),
        ("run: gh", "run: cargo xtask release"),
        ("  contents: read", "  contents: write"),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_eq!(mistakes(&bad).len(), 1, "{to}: {:?}", mistakes(&bad));
    }
}

/// GitHub runs the same tasks as one runs by hand.
#[test]
fn workflows_run_tasks_that_there_are() {
    let mut run = Vec::new();
    for (_, text) in workflows() {
        let behind = text.split("cargo xtask ").skip(1);
        run.extend(behind.map(|rest| {
            let word = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
            word.into_iter().next().unwrap_or_default().to_owned()
        }));
    }
    for name in &run {
        assert!(TASKS.iter().any(|task| task.name == name), "{name}");
    }
    for wanted in ["test", "dist", "release", "dependencies"] {
        assert!(run.iter().any(|name| name == wanted), "{wanted}");
    }
}

/// What is released is made for both machines, and no checker is left out.
#[test]
fn the_workflow_makes_and_checks_everything() {
    let file = root().join(".github/workflows/dist.yml");
    let text = std::fs::read_to_string(file).unwrap();
    for wanted in [
        "cargo xtask dist --twice\n",
        "cargo xtask dist --machine aarch64\n",
        "cargo xtask dist --check --strict\n",
    ] {
        assert!(text.contains(wanted), "{wanted}");
    }
}
