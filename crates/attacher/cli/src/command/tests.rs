use super::*;
use crate::{midair, rocprofv3};
use midair_settings::{Settings, Value, resolve};

fn line(words: &[&str]) -> Vec<OsString> {
    std::iter::once("rocprofv3")
        .chain(words.iter().copied())
        .map(OsString::from)
        .collect()
}

fn amd(words: &[&str]) -> Result<Given, Failure> {
    match parse(rocprofv3::command(), &line(words))? {
        Parsed::Matches(matches) => given(&matches, Front::Rocprofv3),
        Parsed::Text(text) => panic!("printed {text}"),
    }
}

fn ours(words: &[&str]) -> Result<(u32, Given), Failure> {
    let words = [&["attach"], words].concat();
    match parse(midair::command(), &line(&words))? {
        Parsed::Matches(matches) => {
            let (_, matches) = matches.subcommand().unwrap();
            Ok((
                // The process is optional if --tree, --all or --name is given.
                matches
                    .get_one::<String>("PID")
                    .and_then(|pid| pid.parse().ok())
                    .unwrap_or(0),
                given(matches, Front::Midair)?,
            ))
        }
        Parsed::Text(text) => panic!("printed {text}"),
    }
}

#[test]
fn the_commands_are_sound() {
    rocprofv3::command().debug_assert();
    midair::command().debug_assert();
}

#[test]
fn every_built_option_is_parsed_and_every_other_is_refused_by_name() {
    let (mut built, mut refused) = (0, 0);
    for option in options_of(Front::Rocprofv3) {
        let word = match option.shape {
            Shape::Flag | Shape::Boolean => None,
            Shape::Text(_) | Shape::Texts(_) | Shape::Each(_) | Shape::Groups(_) => Some("x"),
            Shape::Number { .. } => Some("7"),
            Shape::Duration => Some("7s"),
            Shape::OneOf(words) | Shape::SomeOf(words) | Shape::AnyOf(words) => {
                let mut built = words
                    .iter()
                    .filter(|word| !option.later_words.contains(word));
                Some(*built.next().unwrap())
            }
        };
        let long = format!("--{}", option.long);
        let mut spellings = vec![long.clone()];
        spellings.extend(option.aliases.iter().map(|alias| format!("--{alias}")));
        spellings.extend(option.short.map(|short| format!("-{short}")));
        for spelling in spellings {
            let words: Vec<&str> = std::iter::once(spelling.as_str()).chain(word).collect();
            match amd(&words) {
                Ok(given) => {
                    assert!(option.is_built(), "{spelling} was taken");
                    assert!(given.get(option.long).is_some(), "{spelling} was not kept");
                    built += 1;
                }
                Err(failure) => {
                    assert!(!option.is_built(), "{spelling}: {failure}");
                    assert!(failure.what.contains(&long), "{spelling}: {failure}");
                    assert_eq!(failure.kind, Kind::NotBuilt, "{spelling}");
                    refused += 1;
                }
            }
        }
    }
    assert!(
        built >= 110 && refused >= 10 && built + refused >= 120,
        "{built} built, {refused} refused"
    );
}

#[test]
fn values_may_be_missing_where_amd_allows_it_and_elsewhere_not() {
    let given = amd(&[
        "-p",
        "1",
        "--hip-trace",
        "--kernel-trace",
        "false",
        "--hsa-trace=on",
    ])
    .unwrap();
    assert_eq!(given.get("hip-trace"), Some(&Value::Switch(true)));
    assert_eq!(given.get("kernel-trace"), Some(&Value::Switch(false)));
    assert_eq!(given.get("hsa-trace"), Some(&Value::Switch(true)));
    assert_eq!(given.get("memory-copy-trace"), None);
    for words in [
        &["--hip-trace", "maybe"][..],
        &["-d"],
        &["-f"],
        &["--pid"],
        &["--pid", "x"],
        &["-f", "xml"],
    ] {
        assert_eq!(amd(words).unwrap_err().kind, Kind::Usage, "{words:?}");
    }
}

#[test]
fn the_documented_lines_parse() {
    let given = amd(&[
        "--attach",
        "12",
        "--attach-duration-msec",
        "5000",
        "--sys-trace",
        "--output-format",
        "csv",
    ])
    .unwrap();
    assert_eq!(
        (given.number("pid"), given.number("attach-duration-msec")),
        (Some(12), Some(5000))
    );
    let given = amd(&[
        "-p", "12", "-s", "-f", "csv", "json", "-d", "out", "-o", "name",
    ])
    .unwrap();
    assert_eq!(
        given.get("output-format"),
        Some(&Value::Texts(vec!["csv".into(), "json".into()]))
    );
    let resolved = resolve(
        &given,
        &Settings::new(),
        Some(std::path::Path::new("/here")),
    )
    .unwrap();
    assert_eq!(
        resolved.settings.text("ROCPROF_OUTPUT_PATH"),
        Some("/here/out")
    );
    let words = ["--attach", "12", "--perfetto-backend", "system"];
    let failure = amd(&words).unwrap_err();
    assert_eq!(
        (failure.kind, failure.what.contains("system")),
        (Kind::NotBuilt, true)
    );
    let given = amd(&[
        "--pid",
        "12345",
        "--pmc",
        "SQ_WAVES",
        "GRBM_COUNT",
        "--output-format",
        "csv",
        "--pmc",
        "TCC_HIT,TCC_MISS",
    ])
    .unwrap();
    let resolved = resolve(
        &given,
        &Settings::new(),
        Some(std::path::Path::new("/here")),
    )
    .unwrap();
    let groups = resolved.settings.counter_groups().unwrap();
    let names = |group: &Vec<midair_settings::CounterRequest>| {
        let names = group.iter().map(|counter| counter.name.clone());
        names.collect::<Vec<_>>().join(" ")
    };
    let names: Vec<String> = groups.iter().map(names).collect();
    assert_eq!(names, ["GRBM_COUNT SQ_WAVES", "TCC_HIT TCC_MISS"]);
    assert!(resolved.records_something() && resolved.without_effect.is_empty());
}

#[test]
fn in_midair_counters_are_written_with_commas() {
    let words = ["midair", "attach", "--pmc", "A,B", "12", "--pmc=C"].map(OsString::from);
    let Ok(Parsed::Matches(matches)) = parse(midair::command(), &words) else {
        panic!("not parsed");
    };
    let (_, matches) = matches.subcommand().unwrap();
    let given = given(matches, Front::Midair).unwrap();
    assert_eq!(
        given.get("pmc"),
        Some(&Value::Texts(vec!["A,B".into(), "C".into()]))
    );
    assert!(given.asks_for_traces());
}

#[test]
fn the_last_of_two_counts() {
    assert_eq!(amd(&["-p", "1", "-p", "2"]).unwrap().number("pid"), Some(2));
    let given = amd(&["--hip-trace", "--hip-trace", "false"]).unwrap();
    assert_eq!(given.get("hip-trace"), Some(&Value::Switch(false)));
}

#[test]
fn unknown_options_and_abbreviations_are_usage_errors() {
    for words in [
        &["--hip-trac"][..],
        &["--nonsense"],
        &["-Z"],
        &["word"],
        &["--pid", "1", "2"],
    ] {
        let failure = amd(words).unwrap_err();
        assert_eq!(failure.kind, Kind::Usage, "{words:?}");
        assert!(
            !failure.what.contains('\n') && !failure.hint.is_empty(),
            "{failure:?}"
        );
    }
    let failure = amd(&["--hip-trac"]).unwrap_err();
    assert!(
        failure.what.contains("'--hip-trac'") && failure.hint.contains("--hip-trace"),
        "{failure:?}"
    );
}

#[test]
fn midair_takes_the_pid_anywhere() {
    let (pid, given) = ours(&["--hip-trace", "42", "-f", "csv,json", "--duration", "2s"]).unwrap();
    assert_eq!(pid, 42);
    assert!(given.is_on("hip-trace"));
    assert_eq!(
        given.get("output-format"),
        Some(&Value::Texts(vec!["csv".into(), "json".into()]))
    );
    assert_eq!(
        given.duration("duration"),
        Some(std::time::Duration::from_secs(2))
    );
    let (_, given) = ours(&["--kernel-trace=no", "42"]).unwrap();
    assert_eq!(given.get("kernel-trace"), Some(&Value::Switch(false)));
    for words in [
        &["1", "2"][..],
        &["--tree", "0"],
        &["1", "--duration", "soon"],
        &["1", "--pid", "3"],
    ] {
        assert_eq!(ours(words).unwrap_err().kind, Kind::Usage, "{words:?}");
    }
    // A word may also be a name. Whether a process has it is found out later.
    assert!(crate::words::process("0").is_err());
    let nobody = crate::words::process("no program has this name");
    assert_eq!(nobody.unwrap_err().kind, Kind::NoProcess);
}

#[test]
fn help_lists_what_is_built_and_long_help_lists_all() {
    let short = rocprofv3::command().render_help().to_string();
    let long = rocprofv3::command().render_long_help().to_string();
    for option in options_of(Front::Rocprofv3).filter(|option| !option.hidden) {
        let name = format!("--{}", option.long);
        assert!(long.contains(&name), "{name} is not in the long help");
        let line = format!("{name} ");
        let shown = short.lines().any(|text| format!("{text} ").contains(&line));
        assert_eq!(shown, option.is_built(), "{name} in the short help");
    }
    assert!(!long.contains("--readlink"));
    for category in midair_settings::Category::ALL {
        assert!(
            long.contains(&format!("{}:", category.heading())),
            "{}",
            category.heading()
        );
    }
}

#[test]
fn completions_know_every_option() {
    for shell in [
        clap_complete::Shell::Bash,
        clap_complete::Shell::Zsh,
        clap_complete::Shell::Fish,
    ] {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut rocprofv3::command(), "rocprofv3", &mut script);
        let script = String::from_utf8(script).unwrap();
        for option in options_of(Front::Rocprofv3).filter(|option| !option.hidden) {
            assert!(script.contains(option.long), "{shell}: {}", option.long);
        }
    }
}

#[test]
fn hints_name_what_works() {
    for (words, hint) in [
        (
            &["7", "-f", "perfetto"][..],
            "did you mean pftrace? one of: csv, ",
        ),
        (&["7", "-f", "sqlite"], "did you mean rocpd? one of: "),
        (&["7", "-f", "pftrac"], "did you mean pftrace? one of: "),
        (&["7", "-f", "zzz"], "one of: csv, "),
        (&["-1"], "see --help"),
        (&["7", "--misspelt"], "see --help"),
        (
            &["7", "--kernel-trac"],
            "a similar argument exists: '--kernel-trace'",
        ),
    ] {
        let failure = ours(words).unwrap_err();
        assert!(
            failure.hint.starts_with(hint),
            "{words:?}: {}",
            failure.hint
        );
    }
}
