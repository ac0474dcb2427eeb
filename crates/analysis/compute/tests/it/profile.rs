//! What `profile` collects, what it refuses, and the directory that it writes. A script stands in
//! for `rocprofv3`. The test on a real process is in `tests/e2e/compute.rs`.

use midair_compute::profile::plan::plan;
use midair_compute::report::roofline::Level;
use midair_compute::select::Blocks;
use midair_compute::{Architecture, Form};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

fn blocks(architecture: &'static Architecture, words: &[&str]) -> Blocks {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    Blocks::read(&words, architecture, Form::Means, &mut |_| {}).unwrap()
}

fn sorted(groups: &[Vec<String>]) -> Vec<&str> {
    let mut all: Vec<&str> = groups.iter().flatten().map(String::as_str).collect();
    all.sort_unstable();
    all
}

#[test]
fn the_users_blocks_need_five_counters_in_one_pass() {
    for name in ["gfx90a", "gfx942"] {
        let architecture = Architecture::named(name).unwrap();
        let chosen = blocks(architecture, &["3.1.1,4.1.1", "5.1.1"]);
        let plan = plan(architecture, &chosen, Form::Means).unwrap();
        assert_eq!(
            sorted(&plan.groups),
            [
                "CPF_CPF_STAT_BUSY",
                "CPF_CPF_STAT_STALL",
                "GRBM_GUI_ACTIVE",
                "SQ_WAVES",
                "SQ_WAVE_CYCLES"
            ],
            "{name}"
        );
        assert_eq!((plan.groups.len(), plan.unknown.len()), (1, 0));
    }
}

#[test]
fn each_set_fits_into_one_pass() {
    for architecture in Architecture::all() {
        for set in architecture.sets {
            let ids: Vec<&str> = set.metrics.iter().map(|(id, _)| *id).collect();
            let plan = plan(architecture, &blocks(architecture, &ids), Form::Means).unwrap();
            assert_eq!(
                plan.groups.len(),
                1,
                "{} {}: {plan:?}",
                architecture.name,
                set.name
            );
        }
    }
    let architecture = Architecture::named("gfx942").unwrap();
    let launch = architecture
        .sets
        .iter()
        .find(|set| set.name == "launch_stats")
        .unwrap();
    let ids: Vec<&str> = launch.metrics.iter().map(|(id, _)| *id).collect();
    let plan = plan(architecture, &blocks(architecture, &ids), Form::Means).unwrap();
    assert_eq!(
        sorted(&plan.groups),
        ["GRBM_GUI_ACTIVE", "SPI_CSN_WAVE", "SQ_WAVES"]
    );
}

#[test]
fn everything_needs_hardly_more_passes_than_the_fullest_block() {
    // AMD's first-fit planning needs 12, 12, 12 and 20.
    for (name, most) in [
        ("gfx908", 15),
        ("gfx90a", 15),
        ("gfx942", 15),
        ("gfx950", 24),
    ] {
        let architecture = Architecture::named(name).unwrap();
        let plan = plan(architecture, &Blocks::default(), Form::Means).unwrap();
        let all = sorted(&plan.groups);
        let once: BTreeSet<&str> = all.iter().copied().collect();
        assert_eq!(once.len(), all.len(), "{name}: a counter is in two groups");
        println!(
            "{name}: {} counters in {} groups; without {:?}",
            all.len(),
            plan.groups.len(),
            plan.unknown
        );
        assert!(
            plan.groups.len() <= most,
            "{name}: {} groups",
            plan.groups.len()
        );
        assert!(all.len() > 150, "{name}: {} counters", all.len());
        // Some counters that the panels name are missing in AMD's tables of counters.
        assert!(plan.unknown.len() <= 8, "{name}: {:?}", plan.unknown);
        assert!(
            plan.unknown
                .iter()
                .any(|name| name == "SQ_ACCUM_PREV_HIRES")
        );
        // Our definitions sum up the modelled levels.
        assert!(
            plan.definitions
                .contains("accumulate(SQ_LEVEL_WAVES, HIGH_RES)")
        );
    }
}

/// Writes the files of a machine with one modelled MI300X.
fn topology(at: &Path) {
    let node = |number: u32, text: &str, name: &str| {
        let node = at.join(format!("nodes/{number}"));
        fs::create_dir_all(node.join("mem_banks/0")).unwrap();
        fs::write(node.join("properties"), text).unwrap();
        fs::write(node.join("gpu_id"), format!("{}\n", number * 1000)).unwrap();
        fs::write(node.join("name"), name).unwrap();
    };
    node(0, "cpu_cores_count 4\nsimd_count 0\n", "cpu\n");
    node(
        1,
        "cpu_cores_count 0\nsimd_count 1216\nmax_waves_per_simd 8\nlds_size_in_kb 64\nwave_front_size 64\n\
         array_count 32\nsimd_arrays_per_engine 1\ncu_per_simd_array 10\nsimd_per_cu 4\n\
         max_slots_scratch_cu 32\ngfx_target_version 90402\nvendor_id 4098\ndevice_id 29857\n\
         drm_render_minor 128\nnum_xcc 8\nmax_engine_clk_fcompute 2100\nmem_banks_count 1\n",
        "ip discovery\n",
    );
    fs::write(
        at.join("nodes/1/mem_banks/0/properties"),
        "heap_type 1\nsize_in_bytes 206141652992\nflags 0\nwidth 8192\nmem_clk_max 1300\n",
    )
    .unwrap();
}

/// Runs `profile` in an empty directory, with a script in place of `rocprofv3`.
fn profile(here: &Path, script: &str, words: &[&str]) -> Output {
    let there = here.join("topology");
    topology(&there);
    let program = here.join("collector");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    Command::new(env!("CARGO_BIN_EXE_rocprof-compute"))
        .arg("profile")
        .args(words)
        .current_dir(here)
        .env("AMD_KFD_TOPOLOGY", &there)
        .env("ROCPROF", &program)
        .output()
        .unwrap()
}

#[test]
fn the_directory_is_written_and_the_collector_is_asked_for_the_counters() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    let script = "echo \"$@\" > asked; exit 31";
    let output = profile(
        here,
        script,
        &[
            "-n",
            "vadd",
            "-b",
            "3.1.1",
            "4.1.1",
            "5.1.1",
            "--no-roof",
            "-VVV",
            "--attach-pid",
            "4242",
            "--attach-duration-msec",
            "1000",
            "-k",
            "vadd",
            "scale",
        ],
    );
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // The exit code is the collector's.
    assert_eq!(output.status.code(), Some(31), "{said}");
    assert!(said.contains("No GPU kernel data collected"), "{said}");
    let asked = fs::read_to_string(here.join("asked")).unwrap();
    for words in [
        "--pid 4242 --attach-duration-msec 1000",
        "--kernel-trace",
        "--kernel-include-regex (vadd)|(scale)",
        "CPF_CPF_STAT_STALL",
    ] {
        assert!(asked.contains(words), "{words} is not in {asked}");
    }
    assert_eq!(asked.matches("--pmc").count(), 1, "{asked}");
    let dir = here.join("workloads/vadd/MI300X_A1");
    let config = fs::read_to_string(dir.join("profiling_config.yaml")).unwrap();
    assert!(config.contains("attach_pid: '4242'\n"), "{config}");
    assert!(config.contains("filter_blocks:\n- 3.1.1\n"), "{config}");
    let system = fs::read_to_string(dir.join("sysinfo.csv")).unwrap();
    let mut lines = system
        .lines()
        .map(|line| line.split(',').collect::<Vec<_>>());
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    for (name, value) in [
        ("gpu_arch", "gfx942"),
        ("num_xcd", "8"),
        ("max_mclk", "1300"),
        ("max_sclk", "2100"),
        ("total_l2_chan", "128"),
        ("workload_name", "vadd"),
    ] {
        let at = names.iter().position(|known| *known == name).unwrap();
        assert_eq!(values[at], value, "{name}");
    }
    let group = fs::read_to_string(dir.join("perfmon/pmc_perf_0.yaml")).unwrap();
    assert!(group.starts_with("jobs:\n- pmc: ["), "{group}");

    // The first profile brought no results, so the same directory may be used again. After results,
    // only with --overwrite.
    let words = ["-n", "vadd", "--attach-pid", "1", "-b", "5.1.1", "7.1.2"];
    assert_eq!(profile(here, script, &words).status.code(), Some(31));
    fs::write(dir.join("pmc_perf_0.db"), "results").unwrap();
    let again = profile(here, script, &words);
    assert_eq!(again.status.code(), Some(33));
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(
        said.contains("already has the results of a profile"),
        "{said}"
    );
    // The refusal has the words that help, ready to be typed.
    assert!(
        said.contains("add --overwrite to replace them, or write to another directory: -n vadd-$(date +%F-%H%M%S)"),
        "{said}"
    );
    let there = [
        "--output-directory",
        dir.to_str().unwrap(),
        "--attach-pid",
        "1",
        "-b",
        "5.1.1",
    ];
    let said = String::from_utf8_lossy(&profile(here, script, &there).stderr).into_owned();
    let typed = format!("--output-directory {}-$(date +%F-%H%M%S)", dir.display());
    assert!(said.contains(&typed), "{said}");
    let replaced = profile(here, script, &[&words[..], &["--overwrite"]].concat());
    assert_eq!(replaced.status.code(), Some(31));
    assert!(
        !fs::read_to_string(dir.join("profiling_config.yaml"))
            .unwrap()
            .contains("3.1.1")
    );
}

/// Samples are taken without counters, or after them if blocks of counters are chosen.
#[test]
fn samples_of_program_counters_are_taken_in_an_attach_of_their_own() {
    // It writes what it was asked for, and a file in the directory of that name.
    let script = "echo \"$@\" >> asked\n\
                  while [ \"$1\" != --output-directory ]; do shift; done\n\
                  case $(tail -n 1 asked) in\n\
                  *--pc-sampling-beta-enabled*) echo '{}' > \"$2/4242_ps_file_results.json\";; esac\n";
    let own = ["-n", "vadd", "--attach-pid", "4242", "--experimental"];
    let beta = "--output-format json --output-file %pid%_ps_file --pc-sampling-beta-enabled";
    for (words, method, counted) in [
        (
            &["--pc-sampling"][..],
            "stochastic --pc-sampling-unit cycles --pc-sampling-interval 1048576",
            0,
        ),
        (
            &[
                "-b",
                "21",
                "--pc-sampling-method",
                "host_trap",
                "--pc-sampling-interval",
                "100",
            ],
            "host_trap --pc-sampling-unit time --pc-sampling-interval 100",
            0,
        ),
        (
            &["-b", "5.1.1,21", "--vintage", "3.9"],
            "stochastic --pc-sampling-unit cycles",
            1,
        ),
    ] {
        let temporary = tempfile::tempdir().unwrap();
        let here = temporary.path();
        let output = profile(here, script, &[&own[..], words].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{said}");
        let asked = fs::read_to_string(here.join("asked")).unwrap();
        let (last, before) = asked
            .lines()
            .next_back()
            .map(|last| (last, asked.lines().count() - 1))
            .unwrap();
        assert!(
            last.contains(&format!("{beta} --pc-sampling-method {method}")),
            "{asked}"
        );
        assert!(
            last.contains("--pid 4242") && !last.contains("--pmc"),
            "{asked}"
        );
        assert_eq!(
            (before, asked.matches("--pmc").count()),
            (counted, counted),
            "{asked}"
        );
        let dir = here.join("workloads/vadd/MI300X_A1");
        assert!(dir.join("4242_ps_file_results.json").is_file(), "{said}");
        assert!(!dir.join("out").exists());
        let config = fs::read_to_string(dir.join("profiling_config.yaml")).unwrap();
        assert_eq!(
            config.contains("pc_sampling: true"),
            counted == 1,
            "{config}"
        );
    }
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let temporary = tempfile::tempdir().unwrap();
    for (words, code, what) in [
        (&["--attach-pid", "1"][..], 2, "has no name"),
        (&["-n", "x"], 2, "Profiling command required"),
        (
            &["-n", "x", "--attach-pid", "1", "--", "app"],
            2,
            "cannot be combined with a program",
        ),
        (
            &["-n", "x", "--attach-pid", "one"],
            2,
            "--attach-pid one is not a number",
        ),
        (
            &["-n", "x", "--attach-duration-msec", "5", "--", "app"],
            2,
            "requires --attach-pid",
        ),
        (
            &[
                "-n",
                "x",
                "--attach-pid",
                "1",
                "-b",
                "2",
                "--set",
                "launch_stats",
            ],
            2,
            "mutually exclusive",
        ),
        (
            &["-n", "x", "--attach-pid", "1", "--set", "nonsense"],
            2,
            "has no metric set nonsense",
        ),
        (
            &["-n", "x", "--attach-pid", "1", "-b", "nonsense"],
            2,
            "neither a block number",
        ),
        (
            &["-n", "../x", "--attach-pid", "1"],
            2,
            "not a valid directory name",
        ),
        (
            &[
                "-n",
                "x",
                "--attach-pid",
                "1",
                "--iteration-multiplexing",
                "grid",
            ],
            2,
            "--iteration-multiplexing",
        ),
        (
            &["-n", "x", "--attach-pid", "1", "--roofline"],
            20,
            "AMD's benchmark is not installed",
        ),
        (
            &["-n", "x", "--attach-pid", "1", "--roofline", "--no-roof"],
            2,
            "mutually exclusive",
        ),
        (
            &["-n", "x", "--attach-pid", "1", "--roofline-bench-only"],
            2,
            "measures only the GPU",
        ),
        (
            &[
                "-n",
                "x",
                "--attach-pid",
                "1",
                "--pc-sampling-interval",
                "8",
            ],
            2,
            "requires --pc-sampling",
        ),
        (
            &[
                "-n",
                "x",
                "--attach-pid",
                "1",
                "--experimental",
                "--ml-api-trace",
            ],
            34,
            "--ml-api-trace is not built",
        ),
        (
            &["-n", "x", "--attach-pid", "1", "--config-dir", "/proc/self"],
            40,
            "has 0 panels",
        ),
        (
            &["-n", "x", "--attach-pid", "1", "--target-error", "much"],
            2,
            "--target-error much is not a positive number",
        ),
        (
            &["-n", "x", "--target-error", "1", "--", "app"],
            2,
            "--target-error requires --attach-pid",
        ),
    ] {
        let output = profile(temporary.path(), "exit 0", words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(what), "{words:?}: {said}");
        assert!(!temporary.path().join("workloads").exists(), "{words:?}");
    }
}

#[test]
fn peaks_are_measured_by_amds_benchmark_and_said_to_be() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    let benchmark = here.join("roofline");
    let script = "#!/bin/sh\n[ \"$1 $3 $4\" = \"-o -d 2\" ] || exit 3\n\
                  printf 'device,HBMBw,FP32Flops,MFMAF16Flops\\n2,4000,100000,700000\\n' > \"$2\"\n";
    fs::write(&benchmark, script).unwrap();
    fs::set_permissions(&benchmark, fs::Permissions::from_mode(0o755)).unwrap();
    topology(&here.join("topology"));
    let run = |words: &[&str], device: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_rocprof-compute"))
            .args(words)
            .args(["--device", device])
            .current_dir(here)
            .env("AMD_KFD_TOPOLOGY", here.join("topology"))
            .env("ROOFLINE_BIN", &benchmark)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    };
    let (code, said) = run(&["profile", "-n", "x", "--roofline-bench-only"], "2");
    assert_eq!(code, Some(0), "{said}");
    let dir = here.join("workloads/x/MI300X_A1");
    assert!(dir.join("roofline.csv").is_file(), "{said}");
    // The benchmark fails, so the profile fails too, and names the benchmark.
    let (code, said) = run(&["profile", "-n", "y", "--roofline-bench-only"], "1");
    assert_eq!(code, Some(20), "{said}");
    assert!(said.contains("roofline: exit status: 3"), "{said}");

    fs::write(
        dir.join("pmc_perf.csv"),
        "Dispatch_ID,GPU_ID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Kernel_Name,SQ_WAVES,Start_Timestamp,\
         End_Timestamp\n0,0,64,64,0,vadd,1,1000,2000\n",
    )
    .unwrap();
    let analyze = |dir: &Path, words: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_rocprof-compute"))
            .args(["analyze", "-b", "4", "-p"])
            .arg(dir)
            .args(words)
            .output()
            .unwrap()
    };
    let shown_of = |dir: &Path, words: &[&str]| {
        let output = analyze(dir, words);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let shown = |dir: &Path| shown_of(dir, &[]);
    // The roofs are for the chosen types; the benchmark measured none of FP64.
    let roofs = shown_of(&dir, &["-R", "FP16,FP64"]);
    assert!(
        roofs.contains("700000.00") && !roofs.contains("VALU"),
        "{roofs}"
    );
    assert!(!roofs.contains("F64"), "{roofs}");
    let text = shown(&dir);
    assert!(
        text.contains("VALU FP32") && text.contains("MFMA F16"),
        "{text}"
    );
    assert!(text.contains("Peak, as measured"), "{text}");
    assert!(text.contains("4000.00 │ GB/s"), "{text}");
    fs::remove_file(dir.join("roofline.csv")).unwrap();
    let text = shown(&dir);
    assert!(
        text.contains("Peak, from the specification, not measured"),
        "{text}"
    );
    // 1300 MHz, 32 bytes and 128 channels.
    assert!(text.contains("5324.80 │ GB/s"), "{text}");
    // 2100 MHz and 304 units: 256 operations of F64, 4096 of F8 and of I8.
    let roofs = shown_of(&dir, &["-R", "FP64", "FP8", "i8"]);
    assert!(
        roofs.contains("MFMA F64") && roofs.contains(" 163430.40 "),
        "{roofs}"
    );
    assert_eq!(roofs.matches("2614886.40").count(), 2, "{roofs}");
    assert!(!roofs.contains("F16") && !roofs.contains("VALU"), "{roofs}");
    let refused = analyze(&dir, &["--roofline-data-types", "FP3"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("no peak is known for the type FP3"), "{said}");
}

#[test]
fn the_roofline_has_what_it_needs() {
    for (name, most) in [("gfx90a", 3), ("gfx942", 4), ("gfx950", 4)] {
        let architecture = Architecture::named(name).unwrap();
        // All levels of memory, of which those alongside the GPU's memory need further counters.
        let all = blocks(architecture, &["4"]);
        let whole = plan(architecture, &all, Form::Means).unwrap();
        let counters = sorted(&whole.groups);
        for counter in [
            "SQ_LDS_IDX_ACTIVE",
            "TCP_TOTAL_CACHE_ACCESSES_sum",
            "TCP_TCC_READ_REQ_sum",
        ] {
            assert!(counters.contains(&counter), "{name}: {counters:?}");
        }
        assert!(whole.unknown.is_empty(), "{name}: {:?}", whole.unknown);
        let memory = all.with_levels(vec![Level::Hbm]);
        let plan = plan(architecture, &memory, Form::Means).unwrap();
        assert!(
            !sorted(&plan.groups)
                .iter()
                .any(|counter| counter.contains("TCP") || counter.contains("LDS")),
            "{name}: {:?}",
            plan.groups
        );
        let all = sorted(&plan.groups);
        assert!(all.contains(&"SQ_INSTS_VALU_FMA_F32"), "{name}: {all:?}");
        assert!(
            all.iter().any(|counter| counter.contains("RDREQ")),
            "{all:?}"
        );
        assert!(plan.groups.len() <= most, "{name}: {:?}", plan.groups);
        assert!(plan.unknown.is_empty(), "{name}: {:?}", plan.unknown);
    }
}

#[test]
fn the_machine_and_its_metrics_are_listed() {
    let temporary = tempfile::tempdir().unwrap();
    let said = |words: &[&str]| {
        let output = profile(temporary.path(), "exit 0", words);
        let all = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{words:?}: {output:?}");
        all
    };
    let specs = said(&["--specs"]);
    let value = |name: &str| {
        let line = specs.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().nth(1))
    };
    assert_eq!(value("gpu_arch "), Some("gfx942"), "{specs}");
    assert_eq!(value("num_xcd "), Some("8"), "{specs}");
    assert_eq!(value("max_mclk "), Some("1300"), "{specs}");
    let metrics = said(&["--list-available-metrics"]);
    assert!(metrics.contains("\t2.1 -> "), "{metrics}");
    assert_eq!(said(&["--list-metrics"]), metrics);
    assert_eq!(said(&["--list-metrics", "gfx942"]), metrics);
}
