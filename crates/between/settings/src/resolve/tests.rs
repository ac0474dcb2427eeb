use super::*;

mod together;

fn give(line: &[(&str, &[&str])]) -> Result<Given, Refusal> {
    let mut given = Given::new();
    for (long, words) in line {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        given.give(
            option(long).unwrap_or_else(|| panic!("no --{long}")),
            &words,
        )?;
    }
    Ok(given)
}

fn settle(line: &[(&str, &[&str])], inherited: &[(&str, &str)]) -> Resolved {
    resolve(
        &give(line).unwrap(),
        &Settings::from_iter(inherited.iter().copied()),
        Some(Path::new("/work/here")),
    )
    .unwrap()
}

/// The trace variables that are on.
fn on(resolved: &Resolved) -> Vec<&str> {
    let mut names: Vec<&str> = resolved
        .settings
        .iter()
        .filter(|(name, value)| name.ends_with("_TRACE") && *value == "1")
        .map(|(name, _)| name)
        .collect();
    names.sort_unstable();
    names
}

const HIP: [&str; 2] = [
    "ROCPROF_HIP_COMPILER_API_TRACE",
    "ROCPROF_HIP_RUNTIME_API_TRACE",
];
const HSA: [&str; 4] = [
    "ROCPROF_HSA_AMD_EXT_API_TRACE",
    "ROCPROF_HSA_CORE_API_TRACE",
    "ROCPROF_HSA_FINALIZER_EXT_API_TRACE",
    "ROCPROF_HSA_IMAGE_EXT_API_TRACE",
];

#[test]
fn hip_trace() {
    assert_eq!(on(&settle(&[("hip-trace", &[])], &[])), HIP);
}

#[test]
fn hsa_trace() {
    assert_eq!(on(&settle(&[("hsa-trace", &["yes"])], &[])), HSA);
}

#[test]
fn single_traces_set_their_own_variable_only() {
    for (option, variable) in trace_switches() {
        assert_eq!(
            on(&settle(&[(option.long, &[])], &[])),
            [variable],
            "--{}",
            option.long
        );
        assert_eq!(
            on(&settle(&[(option.long, &["off"])], &[(variable, "1")])),
            [""; 0],
            "--{} off",
            option.long
        );
    }
    // The switches that are built, by name: the loop above must not run over an empty list.
    let names: Vec<_> = trace_switches().map(|(option, _)| option.long).collect();
    assert_eq!(
        names,
        [
            "hip-runtime-trace",
            "hip-compiler-trace",
            "hsa-core-trace",
            "hsa-amd-trace",
            "hsa-image-trace",
            "hsa-finalizer-trace",
            "cuda-runtime-trace",
            "cuda-driver-trace",
            "kernel-trace",
            "memory-copy-trace",
            "marker-trace",
            "memory-allocation-trace",
            "scratch-memory-trace",
            "rccl-trace",
            "ompt-trace",
            "rocdecode-trace",
            "rocjpeg-trace",
            "hip-graph-trace",
            "hip-event-trace",
            "kfd-page-migration-trace",
            "kfd-page-mapping-trace",
            "kfd-queue-trace",
            "kfd-dropped-events-trace"
        ]
    );
}

#[test]
fn sys_trace_is_all_that_is_built_and_tells_the_rest() {
    let resolved = settle(&[("sys-trace", &[])], &[]);
    let mut all = [
        &HIP[..],
        &HSA[..],
        &[
            "MIDAIR_CUDA_DRIVER_API_TRACE",
            "MIDAIR_CUDA_RUNTIME_API_TRACE",
            "ROCPROF_HIP_EVENT_TRACE",
            "ROCPROF_HIP_GRAPH_TRACE",
            "ROCPROF_KERNEL_TRACE",
            "ROCPROF_KFD_DROPPED_EVENTS_TRACE",
            "ROCPROF_KFD_PAGE_MAPPING_TRACE",
            "ROCPROF_KFD_PAGE_MIGRATION_TRACE",
            "ROCPROF_KFD_QUEUE_TRACE",
            "ROCPROF_MARKER_API_TRACE",
            "ROCPROF_MEMORY_ALLOCATION_TRACE",
            "ROCPROF_MEMORY_COPY_TRACE",
            "ROCPROF_OMPT_TRACE",
            "ROCPROF_RCCL_API_TRACE",
            "ROCPROF_ROCDECODE_API_TRACE",
            "ROCPROF_ROCJPEG_API_TRACE",
            "ROCPROF_SCRATCH_MEMORY_TRACE",
        ],
    ]
    .concat();
    all.sort_unstable();
    assert_eq!(on(&resolved), all);
    assert!(
        resolved.left_out.contains(&"rocshmem-trace")
            && resolved.left_out.contains(&"hipfile-trace")
    );
    assert_eq!(
        resolved
            .left_out
            .iter()
            .filter(|long| **long == "hipfile-trace")
            .count(),
        1
    );
}

#[test]
fn runtime_trace_has_neither_hsa_nor_compiler() {
    let resolved = settle(&[("runtime-trace", &[])], &[]);
    assert_eq!(
        on(&resolved),
        [
            "MIDAIR_CUDA_RUNTIME_API_TRACE",
            "ROCPROF_HIP_EVENT_TRACE",
            "ROCPROF_HIP_GRAPH_TRACE",
            "ROCPROF_HIP_RUNTIME_API_TRACE",
            "ROCPROF_KERNEL_TRACE",
            "ROCPROF_KFD_DROPPED_EVENTS_TRACE",
            "ROCPROF_KFD_PAGE_MAPPING_TRACE",
            "ROCPROF_KFD_PAGE_MIGRATION_TRACE",
            "ROCPROF_KFD_QUEUE_TRACE",
            "ROCPROF_MARKER_API_TRACE",
            "ROCPROF_MEMORY_ALLOCATION_TRACE",
            "ROCPROF_MEMORY_COPY_TRACE",
            "ROCPROF_OMPT_TRACE",
            "ROCPROF_RCCL_API_TRACE",
            "ROCPROF_ROCDECODE_API_TRACE",
            "ROCPROF_ROCJPEG_API_TRACE",
            "ROCPROF_SCRATCH_MEMORY_TRACE"
        ]
    );
}

/// Kernels cost more than calls, so calls alone do not bring what needs them: launches of graphs, and
/// events.
#[test]
fn calls_bring_graphs_and_events_where_kernels_are_recorded() {
    const CALLS: &str = "ROCPROF_HIP_RUNTIME_API_TRACE";
    const KERNELS: &str = "ROCPROF_KERNEL_TRACE";
    let calls: (&str, &[&str]) = ("hip-runtime-trace", &[]);
    let kernels: (&str, &[&str]) = ("kernel-trace", &[]);
    let of = |line: &[(&str, &[&str])], inherited: &[(&str, &str)]| -> Vec<String> {
        let resolved = settle(line, inherited);
        on(&resolved)
            .iter()
            .map(|name| (*name).to_owned())
            .collect()
    };
    assert_eq!(of(&[calls], &[]), [CALLS]);
    assert_eq!(
        of(&[calls, kernels], &[]),
        [HIP_EVENT_TRACE, HIP_GRAPH_TRACE, CALLS, KERNELS]
    );
    assert_eq!(
        of(&[calls], &[(KERNELS, "1")]),
        [HIP_EVENT_TRACE, HIP_GRAPH_TRACE, CALLS, KERNELS]
    );
    assert_eq!(
        of(&[calls], &[(HIP_GRAPH_TRACE, "1")]),
        [HIP_GRAPH_TRACE, CALLS]
    );
    assert_eq!(
        of(&[calls], &[(HIP_EVENT_TRACE, "1")]),
        [HIP_EVENT_TRACE, CALLS]
    );
    assert_eq!(
        of(&[calls, ("hip-event-trace", &[])], &[]),
        [HIP_EVENT_TRACE, CALLS]
    );
    assert_eq!(
        of(&[calls, ("hip-graph-trace", &[])], &[]),
        [HIP_GRAPH_TRACE, CALLS]
    );
    assert_eq!(of(&[("hip-graph-trace", &[])], &[]), [HIP_GRAPH_TRACE]);
    let not_them: (&str, &[&str]) = ("hip-graph-trace", &["false"]);
    let nor_these: (&str, &[&str]) = ("hip-event-trace", &["false"]);
    assert_eq!(
        of(&[calls, kernels, not_them, nor_these], &[]),
        [CALLS, KERNELS]
    );
}

#[test]
fn an_explicit_word_beats_an_aggregate() {
    let resolved = settle(
        &[
            ("sys-trace", &["1"]),
            ("hsa-trace", &["false"]),
            ("kernel-trace", &["no"]),
            ("marker-trace", &["no"]),
        ],
        &[],
    );
    assert_eq!(
        on(&resolved),
        [
            "MIDAIR_CUDA_DRIVER_API_TRACE",
            "MIDAIR_CUDA_RUNTIME_API_TRACE",
            HIP[0],
            HIP[1],
            "ROCPROF_KFD_DROPPED_EVENTS_TRACE",
            "ROCPROF_KFD_PAGE_MAPPING_TRACE",
            "ROCPROF_KFD_PAGE_MIGRATION_TRACE",
            "ROCPROF_KFD_QUEUE_TRACE",
            "ROCPROF_MEMORY_ALLOCATION_TRACE",
            "ROCPROF_MEMORY_COPY_TRACE",
            "ROCPROF_OMPT_TRACE",
            "ROCPROF_RCCL_API_TRACE",
            "ROCPROF_ROCDECODE_API_TRACE",
            "ROCPROF_ROCJPEG_API_TRACE",
            "ROCPROF_SCRATCH_MEMORY_TRACE"
        ]
    );
    assert_eq!(on(&settle(&[("sys-trace", &["false"])], &[])), [""; 0]);
    let resolved = settle(&[("hsa-trace", &[]), ("hsa-image-trace", &["f"])], &[]);
    assert_eq!(on(&resolved), [HSA[0], HSA[1], HSA[2]]);
}

#[test]
fn off_takes_an_inherited_variable_and_its_old_name_away() {
    let resolved = settle(
        &[("hip-compiler-trace", &["0"])],
        &[("ROCPROF_HIP_API_TRACE", "1")],
    );
    assert!(!resolved.settings.is_on("ROCPROF_HIP_COMPILER_API_TRACE"));
    assert!(resolved.settings.is_on("ROCPROF_HIP_RUNTIME_API_TRACE"));
}

#[test]
fn output_directory_is_relative_to_the_attacher() {
    let path = |line: &[(&str, &[&str])], inherited: &[(&str, &str)]| {
        settle(line, inherited)
            .settings
            .text("ROCPROF_OUTPUT_PATH")
            .unwrap()
            .to_owned()
    };
    assert_eq!(path(&[], &[]), "/work/here");
    assert_eq!(
        path(
            &[("output-directory", &["out"])],
            &[("ROCPROF_OUTPUT_PATH", "/env")]
        ),
        "/work/here/out"
    );
    assert_eq!(
        path(&[("output-directory", &["./out/%pid%"])], &[]),
        "/work/here/out/%pid%"
    );
    assert_eq!(path(&[("output-directory", &["/abs"])], &[]), "/abs");
    assert_eq!(path(&[("output-directory", &["."])], &[]), "/work/here");
    assert_eq!(path(&[("output-directory", &["%cwd%/x"])], &[]), "%cwd%/x");
    assert_eq!(
        path(&[], &[("ROCPROF_OUTPUT_PATH", "rel")]),
        "/work/here/rel"
    );
    let byte = "%byte-e9%/%pid%";
    assert_eq!(
        path(&[("output-directory", &[byte])], &[]),
        format!("/work/here/{byte}")
    );
}

/// The name of a directory has no keys, and a directory that is gone matters only to what is
/// relative.
#[test]
fn the_current_directory_is_taken_literally_and_only_if_needed() {
    let path = |directory: Option<&str>, cwd: Option<&Path>| {
        let line: Vec<(&str, &[&str])> = Vec::new();
        let mut given = give(&line).unwrap();
        if let Some(directory) = directory {
            let option = option("output-directory").unwrap();
            given.give(option, &[directory.to_owned()]).unwrap();
        }
        let settings = resolve(&given, &Settings::new(), cwd).unwrap().settings;
        settings.text(OUTPUT_PATH).unwrap().to_owned()
    };
    let odd = Some(Path::new("/50%pid%"));
    assert_eq!(path(None, odd), "/50%byte-25%pid%byte-25%");
    assert_eq!(path(Some("%pid%"), odd), "%pid%");
    assert_eq!(
        path(Some("out-%pid%"), odd),
        "/50%byte-25%pid%byte-25%/out-%pid%"
    );
    assert_eq!(path(Some("/abs"), None), "/abs");
    assert_eq!(path(Some("out"), None), "%cwd%/out");
    assert_eq!(path(None, None), "%cwd%");
}

#[test]
fn output_file() {
    let name = |line: &[(&str, &[&str])], inherited: &[(&str, &str)]| {
        settle(line, inherited)
            .settings
            .text("ROCPROF_OUTPUT_FILE_NAME")
            .map(str::to_owned)
    };
    assert_eq!(
        name(
            &[("output-file", &["out"])],
            &[("ROCPROF_OUTPUT_FILE_NAME", "env")]
        )
        .as_deref(),
        Some("out")
    );
    assert_eq!(
        name(&[], &[("ROCPROF_OUTPUT_FILE_NAME", "env")]).as_deref(),
        Some("env")
    );
    assert_eq!(name(&[], &[]), None);
    assert!(matches!(
        give(&[("output-file", &[""])]),
        Err(Refusal::Usage(_))
    ));
}

#[test]
fn output_format_is_honoured_exactly() {
    let formats = |line: &[(&str, &[&str])], inherited: &[(&str, &str)]| {
        settle(line, inherited)
            .settings
            .text("ROCPROF_OUTPUT_FORMAT")
            .unwrap()
            .to_owned()
    };
    assert_eq!(formats(&[], &[]), "rocpd");
    assert_eq!(
        formats(&[("output-format", &["csv", "json"])], &[]),
        "csv,json"
    );
    assert_eq!(
        formats(&[("output-format", &["json,csv", "json"])], &[]),
        "json,csv"
    );
    assert_eq!(
        formats(
            &[("output-format", &["csv"])],
            &[("ROCPROF_OUTPUT_FORMAT", "json")]
        ),
        "csv"
    );
    assert_eq!(formats(&[], &[("ROCPROF_OUTPUT_FORMAT", "json")]), "json");
    assert_eq!(
        give(&[("perfetto-backend", &["system"])]),
        Err(Refusal::NotBuilt("--perfetto-backend system".into()))
    );
    assert!(matches!(
        give(&[("output-format", &["xml"])]),
        Err(Refusal::Usage(_))
    ));
    let inherited = Settings::from_iter([("ROCPROF_OUTPUT_FORMAT", "csv,xml")]);
    let refused = resolve(&Given::new(), &inherited, None).unwrap_err();
    assert!(matches!(refused, Refusal::Usage(_)), "{refused:?}");
    assert_eq!(formats(&[("output-format", &["otf2"])], &[]), "otf2");
}

#[test]
fn log_level() {
    let resolved = settle(
        &[("log-level", &["info"])],
        &[("ROCPROF_LOG_LEVEL", "error")],
    );
    for name in [
        "ROCPROF_LOG_LEVEL",
        "ROCPROFILER_LOG_LEVEL",
        "ROCTX_LOG_LEVEL",
    ] {
        assert_eq!(resolved.settings.text(name), Some("info"));
    }
    let resolved = settle(
        &[("log-level", &["config"])],
        &[("ROCPROF_LOG_LEVEL", "error")],
    );
    assert_eq!(resolved.settings.text("ROCPROF_LOG_LEVEL"), Some("error"));
    assert!(matches!(
        give(&[("log-level", &["loud"])]),
        Err(Refusal::Usage(_))
    ));
}

#[test]
fn pid_and_durations() {
    let resolved = settle(
        &[("pid", &["1234"]), ("attach-duration-msec", &["2000"])],
        &[],
    );
    assert_eq!(resolved.settings.text("ROCPROF_ATTACH_PID"), Some("1234"));
    assert_eq!(
        resolved.settings.number("ROCPROF_ATTACH_DURATION"),
        Ok(Some(2000))
    );
    for (long, word) in [
        ("pid", "0"),
        ("pid", "-1"),
        ("pid", "self"),
        ("pid", "99999999999"),
        ("attach-duration-msec", "0"),
        ("duration", "soon"),
    ] {
        assert!(
            matches!(give(&[(long, &[word])]), Err(Refusal::Usage(_))),
            "--{long} {word}"
        );
    }
    let given = give(&[
        ("duration", &["1.5s"]),
        ("drain", &["20ms"]),
        ("spool-size", &["128"]),
    ])
    .unwrap();
    assert_eq!(
        given.duration("duration"),
        Some(std::time::Duration::from_millis(1500))
    );
    assert_eq!(
        given.duration("drain"),
        Some(std::time::Duration::from_millis(20))
    );
    assert_eq!(given.number("spool-size"), Some(128));
}

#[test]
fn attach_sync_output_and_version() {
    let resolved = settle(&[("attach-sync-output", &["false"])], &[]);
    assert_eq!(
        resolved
            .settings
            .text("ROCPROF_ATTACH_OUTPUT_GENERATION_SYNC"),
        Some("0")
    );
    assert!(give(&[("version", &[])]).unwrap().is_on("version"));
}

#[test]
fn what_is_not_built_is_refused_by_name_unless_it_is_off() {
    let mut refused = 0;
    for option in options().filter(|option| !option.is_built()) {
        let error = option.read(&[]).unwrap_err().to_string();
        assert!(
            error.contains(&format!("--{}", option.long)),
            "--{}: {error}",
            option.long
        );
        refused += 1;
        if option.shape == Shape::Boolean && option.state == State::NotBuilt {
            assert_eq!(
                option.read(&["false".into()]),
                Ok(None),
                "--{}",
                option.long
            );
        }
    }
    assert!(refused > 10, "only {refused}");
}

#[test]
fn inherited_variables_without_effect_are_told() {
    let resolved = settle(
        &[],
        &[
            ("ROCPROF_MARKER_TRACE", "1"),
            ("ROCPROF_RCCL_API_TRACE", "0"),
            ("ROCPROF_DEMANGLE_KERNELS", "1"),
            ("ROCPROF_SPM_COUNTERS", "spm: SQ_WAVES"),
            ("ROCPROF_ROCSHMEM_API_TRACE", "true"),
            ("ROCPROF_HIPFILE_API_TRACE", "0"),
            ("ROCPROF_SPM_COUNTER_COLLECTION", "1"),
            ("ROCPROF_COUNTER_COLLECTION", "0"),
            ("ROCPROF_BENCHMARK_MODE", ""),
            ("ROCPROF_KERNEL_TRACE", "1"),
        ],
    );
    let told: Vec<(&str, &str)> = resolved
        .without_effect
        .iter()
        .map(|(variable, long)| (variable.as_str(), *long))
        .collect();
    assert_eq!(
        told,
        [
            ("ROCPROF_ROCSHMEM_API_TRACE", "rocshmem-trace"),
            ("ROCPROF_SPM_COUNTERS", "spm"),
            // Set alongside those that the option itself sets.
            ("ROCPROF_SPM_COUNTER_COLLECTION", "spm"),
        ]
    );
    assert!(resolved.records_something());
    assert!(!settle(&[], &[]).records_something());
}

/// Bare it means all kinds, as in AMD's tool, and words choose some.
#[test]
fn kinds_of_openmp_events_are_chosen_by_words() {
    let inherited = [("ROCPROF_OMPT_TRACE_OPERATIONS", "sync")];
    let of = |words: &[&str]| {
        let settings = settle(&[("ompt-trace", words)], &inherited).settings;
        let operations = settings.text("ROCPROF_OMPT_TRACE_OPERATIONS");
        (
            settings.is_on("ROCPROF_OMPT_TRACE"),
            operations.map(str::to_owned),
        )
    };
    assert_eq!(of(&[]), (true, None));
    assert_eq!(of(&["all"]), (true, None));
    assert_eq!(
        of(&["parallel", "task"]),
        (true, Some("parallel,task".to_owned()))
    );
    assert_eq!(of(&["false"]), (false, None));
    let every = settle(&[("sys-trace", &[])], &[]);
    assert!(every.settings.is_on("ROCPROF_OMPT_TRACE") && every.records_something());
    let without = settle(&[("sys-trace", &[]), ("ompt-trace", &["false"])], &[]);
    assert!(!without.settings.is_on("ROCPROF_OMPT_TRACE"));
    let option = option("ompt-trace").unwrap();
    assert_eq!(option.read(&[]), Ok(Some(Value::Switch(true))));
    let why = option
        .read(&["nonsense".to_owned()])
        .unwrap_err()
        .to_string();
    assert!(why.contains("thread, parallel"), "{why}");
    let mut given = Given::new();
    given.give(option, &["task".to_owned()]).unwrap();
    assert!(given.asks_for_traces());
}

#[test]
fn counters_given_replace_inherited_ones() {
    let inherited = [("ROCPROF_COUNTER_GROUPS", "pmc: X\npmc: Y")];
    let names = |resolved: &Resolved| -> Vec<Vec<String>> {
        let groups = resolved.settings.counter_groups().unwrap();
        let names = |group: Vec<crate::CounterRequest>| group.into_iter().map(|c| c.name).collect();
        groups.into_iter().map(names).collect()
    };
    let told = settle(&[], &inherited);
    assert_eq!(names(&told), [["X"], ["Y"]]);
    assert!(told.settings.is_on("ROCPROF_COUNTER_COLLECTION"));
    let one = settle(&[("pmc", &["B A"])], &inherited);
    assert_eq!(names(&one), [["A", "B"]]);
    assert_eq!(one.settings.text("ROCPROF_COUNTERS"), Some("pmc: B A"));
    assert_eq!(one.settings.text("ROCPROF_COUNTER_GROUPS"), None);
    let two = settle(&[("pmc", &["A", "C"])], &[("ROCPROF_COUNTERS", "pmc: X")]);
    assert_eq!(names(&two), [["A"], ["C"]]);
    let text = "pmc: A\npmc: C";
    assert_eq!(two.settings.text("ROCPROF_COUNTER_GROUPS"), Some(text));
    assert!(two.records_something());
    // None are asked for, and then the switch stays as it was.
    let none = settle(&[], &[]).settings;
    assert_eq!(none.get("ROCPROF_COUNTER_COLLECTION"), None);
    assert!(matches!(give(&[("pmc", &["..."])]), Err(Refusal::Usage(_))));
    let wrong = Settings::from_iter([("ROCPROF_COUNTERS", "SQ_WAVES")]);
    assert!(matches!(
        resolve(&Given::new(), &wrong, None),
        Err(Refusal::Usage(_))
    ));
}

#[test]
fn counters_of_devices_have_a_line_for_each_group() {
    let resolved = settle(
        &[("pmc-device", &["B A", "C"])],
        &[("MIDAIR_PMC_DEVICE", "pmc: X")],
    );
    assert_eq!(
        resolved.settings.text("MIDAIR_PMC_DEVICE"),
        Some("pmc: B A\npmc: C")
    );
    assert_eq!(resolved.settings.get("ROCPROF_COUNTER_COLLECTION"), None);
    assert!(resolved.records_something());
}

#[test]
fn names_of_kernels_and_agents() {
    let resolved = settle(
        &[
            ("mangled-kernels", &[]),
            ("agent-index", &["type-relative"]),
        ],
        &[],
    );
    assert_eq!(
        resolved.settings.text("ROCPROF_DEMANGLE_KERNELS"),
        Some("0")
    );
    assert_eq!(
        resolved.settings.text("ROCPROF_AGENT_INDEX"),
        Some("type-relative")
    );
    assert!(!resolved.settings.is_on("ROCPROF_TRUNCATE_KERNELS"));
    let resolved = settle(
        &[("truncate-kernels", &["1"]), ("mangled-kernels", &["no"])],
        &[],
    );
    assert!(resolved.settings.is_on("ROCPROF_TRUNCATE_KERNELS"));
    assert_eq!(
        resolved.settings.text("ROCPROF_DEMANGLE_KERNELS"),
        Some("1")
    );
    assert!(matches!(
        give(&[("agent-index", &["by-name"])]),
        Err(Refusal::Usage(_))
    ));
}

#[test]
fn what_was_asked_for_by_name() {
    let named = |line: &[(&str, &[&str])]| give(line).unwrap().traces_by_name();
    assert_eq!(named(&[("sys-trace", &[])]), [""; 0]);
    assert_eq!(
        named(&[
            ("runtime-trace", &[]),
            ("hip-trace", &[]),
            ("kernel-trace", &["1"])
        ]),
        ["hip-trace", "kernel-trace"]
    );
    assert_eq!(named(&[("cuda-trace", &["off"])]), [""; 0]);
}

#[test]
fn cupti_is_named_by_an_absolute_path() {
    let path = "/venv/lib/libcupti.so.13";
    let resolved = settle(&[("cupti", &[path])], &[(CUPTI, "/other")]);
    assert_eq!(resolved.settings.text(CUPTI), Some(path));
    assert_eq!(
        settle(&[], &[(CUPTI, path)]).settings.text(CUPTI),
        Some(path)
    );
    for relative in ["libcupti.so", "./x", "~/x"] {
        let given = give(&[("cupti", &[relative])]).unwrap();
        let refused = resolve(&given, &Settings::new(), None).unwrap_err();
        assert!(matches!(refused, Refusal::Usage(_)), "{relative}");
    }
}

#[test]
fn what_asks_for_traces() {
    let asks = |line: &[(&str, &[&str])]| give(line).unwrap().asks_for_traces();
    assert!(!asks(&[]));
    assert!(!asks(&[("kernel-trace", &["no"])]));
    assert!(!asks(&[("stats", &[]), ("output-format", &["csv"])]));
    assert!(asks(&[("kernel-trace", &[])]));
    assert!(asks(&[("runtime-trace", &[])]));
    assert!(asks(&[("pmc", &["SQ_WAVES"])]));
}

#[test]
fn kernels_are_renamed_after_ranges_that_are_recorded() {
    const RANGES: &str = "ROCPROF_MARKER_API_TRACE";
    let rename: (&str, &[&str]) = ("kernel-rename", &[]);
    let kernels: (&str, &[&str]) = ("kernel-trace", &[]);
    assert!(settle(&[rename, kernels], &[]).settings.is_on(RANGES));
    assert!(!settle(&[kernels], &[]).settings.is_on(RANGES));
    assert!(!settle(&[rename], &[]).settings.is_on(RANGES));
    let inherited = [("ROCPROF_KERNEL_RENAME", "1")];
    assert!(settle(&[kernels], &inherited).settings.is_on(RANGES));
}

#[test]
fn numbers_are_taken_up_to_their_limits_and_in_their_units() {
    let set = |option: &str, number: u64, variable: &str| {
        let number = number.to_string();
        let given = give(&[(option, &[number.as_str()])])?;
        let resolved = resolve(&given, &Settings::new(), Some(Path::new("/work/here")))?;
        Ok::<_, Refusal>(resolved.settings.get(variable).map(str::to_owned))
    };
    let bytes = |number| set("max-size", number, "MIDAIR_MAX_BYTES");
    assert_eq!(bytes(1).unwrap().as_deref(), Some("1048576"));
    assert_eq!(bytes(3).unwrap().as_deref(), Some("3145728"));
    // 2^44 MiB less one, the most that is less than 2^64 bytes.
    let most = (1 << 44) - 1;
    let all = ((1_u64 << 44) - 1) * 1_048_576;
    assert_eq!(bytes(most).unwrap(), Some(all.to_string()));
    assert!(bytes(most + 1).is_err() && bytes(0).is_err());
}

#[test]
fn words_that_are_given_and_words_that_are_missing() {
    let given = give(&[("log-level", &["info"]), ("pid", &["4194304"])]).unwrap();
    assert_eq!(given.text("log-level"), Some("info"));
    // It is a number, and the greatest that Linux gives.
    assert_eq!(
        (given.text("pid"), given.number("pid")),
        (None, Some(4_194_304))
    );
    assert!(give(&[("pid", &["4194305"])]).is_err());
    let given = give(&[("trigger", &["gap > 5ms", "memory > 90%"]), ("merge", &[])]).unwrap();
    assert_eq!(given.texts("trigger"), ["gap > 5ms", "memory > 90%"]);
    for none in ["preload", "merge"] {
        assert_eq!(given.texts(none), [""; 0], "--{none}");
    }
    for list in ["pmc", "output-format", "preload"] {
        let Err(Refusal::Usage(said)) = give(&[(list, &[])]) else {
            panic!("--{list} without a word");
        };
        assert_eq!(said, format!("--{list} needs a value"));
    }
}

#[test]
fn what_harms_nobody_is_not_told() {
    let harmless = [
        ("ROCPROF_ATTACH_CHILDREN", "1"),
        ("ROCPROF_ATTACH_OUTPUT_GENERATION_SYNC", "1"),
    ];
    let told = settle(&[], &harmless).without_effect;
    assert!(told.is_empty(), "{told:?}");
}

#[test]
fn a_list_goes_behind_its_word() {
    let words = ["SQ_WAVES", "GRBM_COUNT"].map(str::to_owned).to_vec();
    let mut settings = Settings::new();
    let spm = option("spm").unwrap();
    apply(spm, &Value::Texts(words), &mut settings, "/");
    assert_eq!(
        settings.get("ROCPROF_SPM_COUNTERS"),
        Some("spm: SQ_WAVES GRBM_COUNT")
    );
}

#[test]
fn all_calls_of_cuda_are_a_word_of_its_switches() {
    let settings = |word: Option<&str>| {
        let mut given = Given::new();
        let words: Vec<String> = word.map(str::to_owned).into_iter().collect();
        given.give(option("cuda-trace").unwrap(), &words).unwrap();
        resolve(&given, &Settings::new(), None).unwrap().settings
    };
    let some = settings(None);
    assert!(some.is_on(crate::CUDA_RUNTIME_API_TRACE));
    assert!(!some.is_on(crate::CUDA_ALL_CALLS));
    let all = settings(Some("all"));
    assert!(all.is_on(crate::CUDA_DRIVER_API_TRACE) && all.is_on(crate::CUDA_ALL_CALLS));
    let refused = |long: &str| {
        let words = ["every".to_owned()];
        let why = Given::new().give(option(long).unwrap(), &words);
        why.unwrap_err().to_string()
    };
    assert!(refused("cuda-driver-trace").contains("true, false or all"));
    assert!(!refused("kernel-trace").contains("all"));
    let words = ["all".to_owned()];
    let why = Given::new().give(option("kernel-trace").unwrap(), &words);
    assert!(why.is_err());
}

#[test]
fn samples_are_something_to_record_and_asked_for_completely() {
    let options: [(&str, &[&str]); 4] = [
        ("pc-sampling-beta-enabled", &[]),
        ("pc-sampling-method", &["host_trap"]),
        ("pc-sampling-unit", &["time"]),
        ("pc-sampling-interval", &["10"]),
    ];
    let resolved = settle(&options, &[]);
    assert!(resolved.records_something());
    assert_eq!(
        resolved.settings.text("ROCPROF_PC_SAMPLING_INTERVAL"),
        Some("10")
    );
    let refused = resolve(&give(&options[..3]).unwrap(), &Settings::default(), None);
    let why = refused.unwrap_err().to_string();
    assert!(why.ends_with("missing --pc-sampling-interval"), "{why}");
}
