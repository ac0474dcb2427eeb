//! Options by which scripts for AMD's versions from 3.2 to 3.10 call the program.

use super::common::{collector, compute, errors, run, topology};
use midair_compute::profile::plan::plan;
use midair_compute::select::Blocks;
use midair_compute::{Architecture, Form};
use std::fs;
use std::path::Path;

/// A collector that keeps its words and its input file, and leaves a result.
const KEEPS: &str = "cp $made $out/pmc_results.db";

/// Makes a collector that writes down its words first.
fn recording(here: &Path) {
    collector(here, KEEPS);
    let file = here.join("collector");
    let script = fs::read_to_string(&file).unwrap();
    let (head, rest) = script.split_once('\n').unwrap();
    let asked = here.join("asked");
    fs::write(
        &file,
        format!("{head}\necho \"$@\" >> {}\n{rest}", asked.display()),
    )
    .unwrap();
}

fn asked(here: &Path) -> String {
    let text = fs::read_to_string(here.join("asked")).unwrap();
    fs::remove_file(here.join("asked")).unwrap();
    text
}

#[test]
fn hardware_blocks_are_counted_whole() {
    let architecture = Architecture::named("gfx942").unwrap();
    let read = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Blocks::read(&words, architecture, Form::Means, &mut |_| {}).unwrap()
    };
    let counters = |words: &[&str]| -> Vec<String> {
        let plan = plan(architecture, &read(words), Form::Means).unwrap();
        plan.groups.concat()
    };
    let of = |name: &str| name.split('_').next().unwrap_or_default().to_owned();
    let both = counters(&["SQ", "TCC"]);
    for name in &both {
        let is_one = ["SQ", "TCC"].contains(&of(name).as_str()) || name == "GRBM_GUI_ACTIVE";
        assert!(is_one, "{name}");
    }
    // All counters of the two that any metric names.
    let all = counters(&[]);
    let is_named = |name: &&String| ["SQ", "TCC"].contains(&of(name).as_str());
    let missing: Vec<_> = all
        .iter()
        .filter(is_named)
        .filter(|name| !both.contains(name))
        .collect();
    assert!(
        missing.is_empty() && both.len() > 80,
        "{missing:?} {}",
        both.len()
    );
    // Metrics of these counters alone are chosen, and no others.
    let chosen = read(&["SQ", "TCC"]);
    assert!(chosen.has_metric("17.1.2") && chosen.has_metric("7.2.2"));
    assert!(!chosen.has_metric("5.1.1") && !chosen.has_metric("16.1.0"));
    assert!(!read(&["SQ"]).has_metric("17.1.2"));
    let lds = counters(&["LDS"]);
    assert!(
        lds.iter().any(|name| name == "SQ_LDS_BANK_CONFLICT"),
        "{lds:?}"
    );
    assert!(!lds.iter().any(|name| name == "SQ_INSTS_VALU"), "{lds:?}");
    // With numbers of tables, both are counted; small letters name tables.
    let more = counters(&["TCC", "5.1.1"]);
    assert!(
        more.iter().any(|name| name == "CPF_CPF_STAT_STALL"),
        "{more:?}"
    );
    assert_eq!(read(&["ta"]).numbers(), ["15"]);
    assert!(read(&["TA"]).numbers().iter().all(|number| number != "15"));
}

#[test]
fn launches_and_directories_are_told_apart() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    recording(here);
    compute(
        here,
        &[
            "profile", "-n", "x", "-b", "5", "-d", "1", "3:5", "--", "true",
        ],
    );
    let words = asked(here);
    assert!(
        words.contains("--kernel-iteration-range [1,3-5]"),
        "{words}"
    );
    let config = here.join("workloads/x/MI300X_A1/profiling_config.yaml");
    let config = fs::read_to_string(config).unwrap();
    assert!(
        config.contains("kernel_iteration_range:\n- '1'\n- '3:5'\n"),
        "{config}"
    );
    compute(here, &["profile", "-b", "5", "-d", "out", "--", "true"]);
    assert!(!asked(here).contains("--kernel-iteration-range"));
    assert!(here.join("out/pmc_perf_0.db").is_file());
    let refused = run(
        here,
        &["profile", "-n", "y", "-b", "5", "-d", "0", "--", "true"],
    );
    assert_eq!(refused.status.code(), Some(2), "{}", errors(&refused));
    assert!(!here.join("workloads/y").exists());
}

#[test]
fn groups_take_turns_in_one_run_where_amds_name_asks_for_it() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    recording(here);
    let profile = ["profile", "-n", "x", "--overwrite", "-b", "17"];
    let directory = here.join("workloads/x/MI300X_A1");
    for (words, kind) in [
        (&["--iteration-multiplexing"][..], "kernel_launch_params"),
        (&["--iteration-multiplexing", "kernel"], "kernel"),
    ] {
        compute(here, &[&profile[..], words, &["--", "true"]].concat());
        let words = asked(here);
        assert_eq!(words.lines().count(), 1, "{words}");
        assert!(
            words.contains("--input ") && !words.contains("--pmc"),
            "{words}"
        );
        let groups = fs::read_to_string(directory.join("perfmon/groups.yaml")).unwrap();
        assert!(
            groups.starts_with("jobs:\n  - pmc_groups:\n      - ["),
            "{groups}"
        );
        assert!(groups.lines().count() > 4, "{groups}");
        let config = fs::read_to_string(directory.join("profiling_config.yaml")).unwrap();
        let line = format!("iteration_multiplexing: '{kind}'\n");
        assert!(config.contains(&line), "{config}");
    }
    // An attach multiplexes in any case; without the option a program runs once for each group.
    let words = [
        &profile[..],
        &["--attach-pid", "7", "--iteration-multiplexing"],
    ]
    .concat();
    compute(here, &words);
    let words = asked(here);
    assert!(
        words.contains("--pmc") && !words.contains("--input"),
        "{words}"
    );
    compute(here, &[&profile[..], &["--", "true"]].concat());
    assert!(asked(here).contains("--pmc"));
    assert!(!directory.join("perfmon/groups.yaml").exists());
}

#[test]
fn options_of_the_roofline_are_taken_by_profile() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    recording(here);
    let output = run(
        here,
        &[
            "profile",
            "-n",
            "x",
            "-b",
            "5",
            "--sort",
            "dispatches",
            "--kernel-names",
            "-R",
            "FP4",
            "I32",
            "--",
            "true",
        ],
    );
    let said = errors(&output);
    assert!(output.status.success(), "{said}");
    for what in [
        "--sort has no effect here: profile draws no roofline",
        "--kernel-names has no effect here: the roofline always names its kernels",
        "--roofline-data-type has no effect here: profile draws no roofline",
    ] {
        assert!(said.contains(what), "{said}");
    }
}

/// Writes a directory with two kernels, measured peaks and this name.
fn workload(at: &Path, name: &str, architecture: &str) {
    fs::create_dir_all(at).unwrap();
    let system = format!(
        "workload_name,gpu_model,gpu_arch,cu_per_gpu,wave_size,max_sclk,max_mclk,total_l2_chan,num_xcd,num_hbm_channels\n\
         {name},MI300X,{architecture},304,64,2100,1300,128,8,128\n"
    );
    fs::write(at.join("sysinfo.csv"), system).unwrap();
    let counters = [
        "SQ_INSTS_VALU_FMA_F32",
        "TCC_EA0_RDREQ_sum",
        "TCC_EA0_WRREQ_sum",
        "TCC_EA0_WRREQ_64B_sum",
        "TCC_EA0_RDREQ_32B_sum",
        "TCC_BUBBLE_sum",
    ];
    let zeros: Vec<String> = ["ADD", "MUL", "TRANS", "FMA"]
        .iter()
        .flat_map(|what| ["F16", "F32", "F64"].map(|of| format!("SQ_INSTS_VALU_{what}_{of}")))
        .chain(
            ["F16", "BF16", "F32", "F64", "F8", "I8"]
                .map(|of| format!("SQ_INSTS_VALU_MFMA_MOPS_{of}")),
        )
        .filter(|name| name != counters[0])
        .collect();
    let mut text = format!(
        "Dispatch_ID,GPU_ID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Kernel_Name,{},{},Start_Timestamp,End_Timestamp\n",
        counters.join(","),
        zeros.join(",")
    );
    for (id, kernel, time) in [(0, "short", 1000), (1, "long", 4000), (2, "short", 9000)] {
        let zeros = vec!["0"; zeros.len()].join(",");
        text.push_str(&format!(
            "{id},0,1024,64,0,{kernel},{},64,32,32,0,0,{zeros},{},{}\n",
            100 * (id + 1),
            10_000 * (id + 1),
            10_000 * (id + 1) + time
        ));
    }
    fs::write(at.join("pmc_perf.csv"), text).unwrap();
    fs::write(
        at.join("roofline.csv"),
        "device,HBMBw,L2Bw,L1Bw,LDSBw,FP32Flops,MFMAF4Flops,MFMAF6F4Flops,I32Ops\n0,4000,9000,20000,30000,70000,900000,800000,5000\n",
    )
    .unwrap();
}

#[test]
fn files_are_written_where_older_options_name_them() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    workload(&here.join("w"), "x", "gfx942");
    let plain = compute(here, &["analyze", "-p", "w", "-b", "2"]);
    let quiet = compute(here, &["analyze", "-p", "w", "-b", "2", "-o", "report"]);
    assert_eq!(quiet, "");
    assert_eq!(fs::read_to_string(here.join("report")).unwrap(), plain);
    let also = compute(
        here,
        &["analyze", "-p", "w", "-b", "2", "--save-dfs", "tables"],
    );
    assert_eq!(also, plain);
    let speed = fs::read_to_string(here.join("tables/201_System_Speed_of_Light.csv")).unwrap();
    assert!(
        speed.starts_with("Metric_ID,Metric,Avg,Unit,Peak,Pct of Peak"),
        "{speed}"
    );
    let words = ["analyze", "-p", "w", "-o", "x", "--output-format", "csv"];
    assert_eq!(run(here, &words).status.code(), Some(2));

    // A name in a file leads nowhere else.
    workload(&here.join("v"), "../../../out", "gfx942");
    let words = ["analyze", "-p", "w", "-p", "v", "--save-dfs", "a/b/c"];
    compute(here, &words);
    let mut found: Vec<String> = fs::read_dir(here.join("a/b/c"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, ["0_x", "1__________out"]);
}

#[test]
fn the_roofline_places_dispatches_and_newer_types() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    workload(&here.join("w"), "x", "gfx942");
    let words = ["analyze", "-p", "w", "-b", "4", "-m", "HBM"];
    let by_kernel = compute(here, &words);
    let names = |text: &str| -> Vec<String> {
        let rows = text.lines().filter(|line| line.contains("│ HBM "));
        let rows = rows.filter(|line| !line.contains("GB/s"));
        rows.map(|line| line.split('│').nth(1).unwrap().trim().to_owned())
            .collect()
    };
    assert_eq!(names(&by_kernel), ["short", "long"], "{by_kernel}");
    for word in ["--sort", "--roofline-sort"] {
        let text = compute(here, &[&words[..], &[word, "dispatches"]].concat());
        assert_eq!(names(&text), ["2: short", "1: long", "0: short"], "{text}");
    }
    let types = ["-R", "FP4", "FP6", "I32", "I64"];
    let text = compute(here, &[&words[..], &types].concat());
    for roof in [
        ["MFMA F4", "900000.00", "GFLOP/s"],
        ["MFMA F6F4", "800000.00", "GFLOP/s"],
        ["VALU I32", "5000.00", "GIOP/s"],
    ] {
        let has = |line: &&str| roof.iter().all(|word| line.contains(word));
        assert_eq!(text.lines().filter(has).count(), 1, "{roof:?} {text}");
    }
    assert!(
        text.contains("No roof is known for I64 (as measured).\n"),
        "{text}"
    );
    // The specification has one for both types, on gfx950 alone.
    for (architecture, has) in [("gfx942", false), ("gfx950", true)] {
        workload(&here.join("s"), "x", architecture);
        fs::remove_file(here.join("s/roofline.csv")).unwrap();
        let text = compute(here, &["analyze", "-p", "s", "-b", "4", "-R", "FP4", "FP6"]);
        assert_eq!(text.contains("MFMA F6F4"), has, "{text}");
        assert_eq!(
            text.contains("No roof is known for FP4, FP6"),
            !has,
            "{text}"
        );
    }
}

#[test]
fn what_is_not_built_is_said_with_what_is() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    workload(&here.join("w"), "x", "gfx1151");
    for (words, code, what) in [
        (
            &["analyze", "-p", "w", "--gui"][..],
            34,
            "--gui is not built",
        ),
        (
            &["analyze", "-p", "w", "--experimental", "--gui", "8050"],
            34,
            "--gui is not built",
        ),
        (&["analyze", "-p", "w", "--tui"], 34, "--tui is not built"),
        (
            &["database", "--import", "-H", "host", "-w", "x"],
            34,
            "database is not built",
        ),
        (
            &["analyze", "-p", "w"],
            40,
            "no tables exist for architecture gfx1151",
        ),
    ] {
        let output = run(here, words);
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(code), "{words:?} {said}");
        assert!(said.contains(what), "{words:?} {said}");
        if what.contains("ui is") {
            assert!(
                said.contains("--html") && said.contains("midair live"),
                "{said}"
            );
        }
    }
    let said = errors(&run(here, &["analyze", "-p", "w"]));
    assert!(
        said.contains("--config-dir DIR, such as AMD's analysis_configs, has tables for gfx1151"),
        "{said}"
    );
    topology(&here.join("topology"));
    let node = here.join("topology/nodes/0/properties");
    let text = fs::read_to_string(&node).unwrap();
    fs::write(&node, text.replace("90402", "110501")).unwrap();
    let said = errors(&run(here, &["profile", "-n", "y", "--attach-pid", "1"]));
    assert!(
        said.contains("cannot count on gfx1151") && said.contains("analyze reads workloads"),
        "{said}"
    );
}
