//! `rocprof-compute analyze` on directories as AMD's versions write them, and on broken ones.

use rusqlite::Connection;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SYSTEM: &str = "workload_name,command,gpu_model,gpu_arch,cu_per_gpu,simd_per_cu,se_per_gpu,wave_size,\
max_waves_per_cu,max_sclk,max_mclk,total_l2_chan,lds_banks_per_cu,sqc_per_gpu,pipes_per_gpu,num_xcd,num_hbm_channels\n\
vadd,,MI300X_A1,gfx942,304,4,32,64,32,2100,1300,128,32,160,4,8,128\n";
const HEAD: &str = "Dispatch_ID,GPU_ID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,\
Arch_VGPR,Accum_VGPR,SGPR,Wave_Size,Kernel_Name,Correlation_ID,Kernel_ID,";

fn run(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rocprof-compute"))
        .args(words)
        .output()
        .unwrap()
}

/// Returns the standard output of a run that succeeds.
fn shown(words: &[&str]) -> String {
    let output = run(words);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{words:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns exit code and standard error of a run that fails.
fn refused(words: &[&str]) -> (i32, String) {
    let output = run(words);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!errors.contains("panicked"), "{words:?}: {errors}");
    (output.status.code().unwrap(), errors)
}

/// Returns the fields of the row whose number is this one.
fn row(text: &str, id: &str) -> Vec<String> {
    let wanted = format!("│ {id} ");
    let line = text.lines().find(|line| line.starts_with(&wanted));
    let line = line.unwrap_or_else(|| panic!("{id} is not in\n{text}"));
    let fields = line.trim_matches('│').split('│');
    fields.map(|field| field.trim().to_owned()).collect()
}

/// Writes a directory with these counters and a line for each dispatch: kernel, nanoseconds,
/// counts.
fn directory(at: &Path, counters: &str, dispatches: &[(&str, u64, &str)]) -> PathBuf {
    fs::create_dir_all(at).unwrap();
    fs::write(at.join("sysinfo.csv"), SYSTEM).unwrap();
    let mut text = format!("{HEAD}{counters},Start_Timestamp,End_Timestamp\n");
    for (id, (kernel, time, counts)) in dispatches.iter().enumerate() {
        let start = 3_548_002_600_680 + id as u64 * 100_000;
        let gpu = id % 2;
        text.push_str(&format!(
            "{id},{gpu},65536,256,0,0,8,0,16,64,\"{kernel}(float const*, int)\",{id},1,{counts},{start},{}\n",
            start + time
        ));
    }
    fs::write(at.join("pmc_perf.csv"), text).unwrap();
    at.to_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_users_blocks_have_the_values_of_the_counters() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = directory(
        &temporary.path().join("vadd/MI300X_A1"),
        "CPF_CPF_STAT_BUSY,CPF_CPF_STAT_STALL,SQ_WAVES,SQ_WAVE_CYCLES",
        &[
            ("vadd", 1000, "100,20,4,200"),
            ("vadd", 3000, "400,40,4,600"),
        ],
    );
    fs::write(
        dir.join("profiling_config.yaml"),
        "attach_pid: '12'\nfilter_blocks:\n- 3.1.1\n- 4.1.1\n- 5.1.1\nname: vadd\n",
    )
    .unwrap();
    let means = shown(&["analyze", "-p", text(&dir)]);
    // The mean of 20 % and 10 %, and of 200 and 600 cycles.
    assert_eq!(
        row(&means, "5.1.1"),
        ["5.1.1", "CPF Stall", "15.00", "10.00", "20.00", "pct"]
    );
    assert!(means.contains("Wave Life  400"), "{means}");
    // What was not asked for is not shown.
    assert!(!means.contains("5.1.0"), "{means}");
    let sums = shown(&[
        "analyze",
        "-p",
        text(&dir),
        "--formulas",
        "2026",
        "--decimal",
        "3",
    ]);
    assert_eq!(
        row(&sums, "5.1.1"),
        ["5.1.1", "CPF Stall", "12.000", "10.000", "20.000", "pct"]
    );
    // Panel 0, in another unit of time.
    let top = row(&shown(&["analyze", "-p", text(&dir), "-t", "us"]), "0");
    assert_eq!(top[2..], ["2", "4.00", "2.00", "2.00", "100.00"]);
}

#[test]
fn normal_units_divide_counts() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = directory(
        temporary.path(),
        "SQ_INSTS_VALU,SQ_INSTS_MFMA,SQ_WAVES,GRBM_GUI_ACTIVE",
        &[
            ("vadd", 1000, "800,0,4,1600"),
            ("vadd", 1000, "800,0,4,1600"),
        ],
    );
    for (unit, value, words) in [
        ("per_kernel", "800.00", "per kernel"),
        ("per_wave", "200.00", "per wave"),
        // 200 cycles: the counter is the sum over eight XCDs.
        ("per_cycle", "4.00", "per cycle"),
        ("per_second", "800000000.00", "per second"),
    ] {
        for formulas in ["2025", "2026"] {
            let all = shown(&[
                "analyze",
                "-p",
                text(&dir),
                "-b",
                "10.1.0",
                "-n",
                unit,
                "--formulas",
                formulas,
            ]);
            let fields = row(&all, "10.1.0");
            assert_eq!(fields[2], value, "{unit} {formulas}: {fields:?}");
            assert!(fields.last().unwrap().ends_with(words), "{fields:?}");
        }
    }
}

#[test]
fn kernels_dispatches_and_gpus_are_chosen() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = directory(
        temporary.path(),
        "SQ_WAVES",
        &[
            ("short", 10, "1"),
            ("long", 900, "2"),
            ("long", 900, "4"),
            ("short", 10, "8"),
        ],
    );
    let stats = shown(&["analyze", "-p", text(&dir), "--list-stats"]);
    assert_eq!(row(&stats, "0")[1], "long(float const*, int)");
    assert_eq!(row(&stats, "1")[1..3], ["short(float const*, int)", "2"]);
    let grid = |more: &[&str]| {
        let mut words = vec!["analyze", "-p", text(&dir), "-b", "7.1.0", "7.2.0"];
        words.extend(more);
        row(&shown(&words), "7.2.0")[2].clone()
    };
    assert_eq!(grid(&[]), "455.00");
    assert_eq!(grid(&["-k", "0"]), "900.00");
    assert_eq!(grid(&["-k", "1"]), "10.00");
    assert_eq!(grid(&["-k", "0", "1"]), "455.00");
    assert_eq!(grid(&["-d", "0", "1"]), "455.00");
    assert_eq!(grid(&["-d", "> 1"]), "455.00");
    assert_eq!(grid(&["-d", "> 2"]), "10.00");
    assert_eq!(grid(&["--gpu-id", "0", "-k", "1"]), "10.00");
    let (code, errors) = refused(&["analyze", "-p", text(&dir), "-k", "2"]);
    assert_eq!(code, 2);
    assert!(errors.contains("there are 2 kernels"), "{errors}");
    let (code, errors) = refused(&["analyze", "-p", text(&dir), "--gpu-id", "7"]);
    assert_eq!(
        (code, errors.contains("select no dispatch")),
        (2, true),
        "{errors}"
    );
}

#[test]
fn directories_are_compared_with_the_first() {
    let temporary = tempfile::tempdir().unwrap();
    let of = |name: &str, waves: &str| {
        let dir = directory(
            &temporary.path().join(name),
            "SQ_WAVES,SQ_INSTS",
            &[("vadd", 10, waves)],
        );
        let system = SYSTEM.replace("vadd,,", &format!("{name},,"));
        fs::write(dir.join("sysinfo.csv"), system).unwrap();
        dir
    };
    let (base, other) = (of("base", "4,40"), of("other", "8,40"));
    let all = shown(&[
        "analyze",
        "-p",
        text(&base),
        "-p",
        text(&other),
        "-b",
        "7.2",
    ]);
    let line = all
        .lines()
        .find(|line| line.contains("Instructions per wavefront"))
        .unwrap();
    assert!(
        line.contains("10.00") && line.contains("5.00 (-50.00 %)"),
        "{line}"
    );
    // Numbers of metrics are left out.
    assert!(!all.contains("7.2.2"), "{all}");
}

#[test]
fn counters_that_took_turns_have_intervals_and_are_never_copied() {
    let temporary = tempfile::tempdir().unwrap();
    // Two counter groups are multiplexed; every third dispatch has neither.
    let mut dispatches = Vec::new();
    for round in 0..40_u64 {
        let (a, b) = (1000 + round % 7, 500 + round % 5);
        dispatches.push(("vadd", 1000, format!("{a},{},,", a * 2)));
        dispatches.push(("vadd", 1000, format!(",,{b},{}", b * 4)));
        dispatches.push(("vadd", 1000, ",,,".to_owned()));
    }
    let dispatches: Vec<(&str, u64, &str)> = dispatches
        .iter()
        .map(|(kernel, time, counts)| (*kernel, *time, counts.as_str()))
        .collect();
    let dir = directory(
        temporary.path(),
        "CPF_CPF_STAT_STALL,CPF_CPF_STAT_BUSY,SQ_WAVES,SQ_INSTS",
        &dispatches,
    );
    let words = [
        "analyze",
        "-p",
        text(&dir),
        "-b",
        "5.1.1",
        "7.2.2",
        "7.2.0",
        "--formulas",
        "2026",
    ];
    let all = shown(&words);
    let stall = row(&all, "5.1.1");
    // Number, name, average, least, greatest, unit, half width, windows, coverage.
    assert_eq!(
        stall[2..],
        ["50.00", "50.00", "50.00", "pct", "0.00", "40", "33.3 %"]
    );
    assert_eq!(row(&all, "7.2.2")[2], "4.00");
    // A counter that every dispatch has is exact.
    assert_eq!(row(&all, "7.2.0")[6..], ["exact", "120", "100.0 %"]);
    // A ratio of two counter groups: sums are estimated separately; minimum and maximum cannot be
    // estimated.
    let across = directory(
        temporary.path(),
        "SQ_WAVES,GRBM_COUNT,SQ_INSTS,GRBM_GUI_ACTIVE",
        &dispatches,
    );
    let words = [
        "analyze",
        "-p",
        text(&across),
        "-b",
        "7.2.2",
        "--formulas",
        "2026",
    ];
    let all = shown(&words);
    let ratio = row(&all, "7.2.2");
    assert_eq!(ratio[2], "0.50", "{all}");
    assert_eq!(ratio[3..5], ["N/A", "N/A"]);
    assert!(
        all.contains("no dispatch has values of all its counters"),
        "{all}"
    );
    let means = shown(&[
        "analyze",
        "-p",
        text(&across),
        "-b",
        "7.2.2",
        "--formulas",
        "2025",
    ]);
    assert!(means.contains("N/A: 7.2.2"), "{means}");
}

#[test]
fn drift_and_impossible_percentages_are_told() {
    let analyzed = |slope: u64, stall: u64| {
        let temporary = tempfile::tempdir().unwrap();
        let rows: Vec<String> = (0..120_u64)
            .map(|n| {
                format!(
                    "{},1000,{}",
                    stall + n % 7,
                    5000 + slope * n + n * 7919 % 13
                )
            })
            .collect();
        let rows: Vec<(&str, u64, &str)> = rows
            .iter()
            .map(|counts| ("vadd", 1000, counts.as_str()))
            .collect();
        let counters = "CPF_CPF_STAT_STALL,CPF_CPF_STAT_BUSY,GRBM_GUI_ACTIVE";
        let dir = directory(temporary.path(), counters, &rows);
        shown(&["analyze", "-p", text(&dir), "-b", "5.1.1"])
    };
    let all = analyzed(20, 1200);
    // The dispatches are on two GPUs, so they are of two classes.
    let drifts = all.lines().filter(|line| {
        line.starts_with("Drift: vadd(")
            && line.contains(": GRBM_GUI_ACTIVE +2")
            && line.ends_with(" % from the first to the last third of 60 dispatches")
    });
    assert_eq!(drifts.count(), 2, "{all}");
    assert!(all.contains("Above 100 % (!): 5.1.1: "), "{all}");
    let marked = &row(&all, "5.1.1")[2];
    assert_eq!(marked, "!120.30", "the value is as it is, and marked");
    let all = analyzed(0, 900);
    assert!(!all.contains("Drift") && !all.contains("Above"), "{all}");
}

#[test]
fn csv_and_database_have_the_same_values() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = directory(
        &temporary.path().join("w"),
        "SQ_WAVES,SQ_INSTS",
        &[("short", 10, "1,10"), ("long", 900, "2,30")],
    );
    let file = temporary.path().join("out.db");
    let words = [
        "analyze",
        "-p",
        text(&dir),
        "-b",
        "7",
        "--output-format",
        "db",
        "--output-name",
    ];
    shown(&[&words[..], &[text(&file)]].concat());
    let database = Connection::open(&file).unwrap();
    let version: String = database
        .query_row("SELECT schema_version FROM compute_metadata", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(version, "2.4.0");
    let of = |view: &str, more: &str| -> f64 {
        let query = format!(
            "SELECT value FROM {view} WHERE metric_id = '7.2.2' AND value_name = 'Avg' {more}"
        );
        database.query_row(&query, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(of("compute_workload_metric_view", ""), 12.5);
    assert_eq!(
        of("compute_kernel_metric_view", "AND kernel_name LIKE 'long%'"),
        15.0
    );
    let (count, median): (i64, f64) = database
        .query_row(
            "SELECT dispatch_count, duration_ns_median FROM compute_kernel_view WHERE short_name = 'long'",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    assert_eq!((count, median), (1, 900.0));

    let folder = temporary.path().join("out");
    let words = [
        "analyze",
        "-p",
        text(&dir),
        "-b",
        "7",
        "--output-format",
        "csv",
        "--output-name",
    ];
    shown(&[&words[..], &[text(&folder)]].concat());
    let table = fs::read_to_string(folder.join("702_Wavefront_Runtime_Stats.csv")).unwrap();
    assert!(
        table.starts_with("Metric_ID,Metric,Avg,Min,Max,Unit,N,Coverage,"),
        "{table}"
    );
    assert!(
        table.contains("7.2.2,Instructions per wavefront,12.5,10,15,"),
        "{table}"
    );
    assert!(table.contains("not collected: SQ_WAVE_CYCLES"), "{table}");
    assert!(folder.join("workload_metric.csv").is_file());
    let report = temporary.path().join("out.txt");
    let words = [
        "analyze",
        "-p",
        text(&dir),
        "--output-format",
        "txt",
        "--output-name",
    ];
    shown(&[&words[..], &[text(&report)]].concat());
    assert!(
        fs::read_to_string(&report)
            .unwrap()
            .contains("7.2 Wavefront Runtime Stats")
    );
}

#[test]
fn a_page_stands_alone_and_obeys_no_kernels_name() {
    let temporary = tempfile::tempdir().unwrap();
    let columns = "SQ_ACTIVE_INST_VALU,GRBM_GUI_ACTIVE,SQ_INSTS_VALU_MFMA_MOPS_F16";
    let dir = directory(
        temporary.path(),
        columns,
        &[
            ("<script>alert(1)</script>&'", 1000, "304,8,5"),
            ("scale", 500, "0,8,5"),
        ],
    );
    let file = temporary.path().join("page.html");
    let printed = shown(&["analyze", "-p", text(&dir), "--html", text(&file)]);
    assert!(printed.is_empty(), "{printed}");
    let page = fs::read_to_string(&file).unwrap();
    // Every element that is opened is closed, in order.
    let void = ["meta", "input", "!doctype", "rect", "path", "circle"];
    let mut open: Vec<&str> = Vec::new();
    let body = page.split("<style>").next().unwrap().to_owned()
        + page
            .split("</style>")
            .nth(1)
            .unwrap()
            .split("<script>")
            .next()
            .unwrap();
    for tag in body.split('<').skip(1) {
        let name = tag.split([' ', '>', '/']).next().unwrap();
        if let Some(closed) = tag.strip_prefix('/') {
            let closed = closed.split('>').next().unwrap();
            assert_eq!(open.pop(), Some(closed), "before {tag}");
        } else if !void.contains(&name) {
            open.push(name);
        }
    }
    assert_eq!(open, ["html", "body"]);
    // The page refers to nothing outside, and names contain no markup.
    for outside in ["http:", "https:", "src=", "url(", "@import", "alert(1)<"] {
        assert_eq!(page.find(outside), None, "{outside}");
    }
    assert!(
        page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&amp;&#39;"),
        "{page}"
    );
    assert_eq!(page.matches("<script>").count(), 1);
    assert!(page.contains("class=\"filter\""));
    assert!(page.contains("VALU Utilization") && page.contains("class=\"part\""));
    assert!(page.contains("from the specification, not measured"));
    assert!(page.contains("title=\"not collected: "), "{page}");
}

#[test]
fn passes_of_several_runs_become_one() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = directory(
        temporary.path(),
        "SQ_WAVES",
        &[("a", 10, "1"), ("b", 20, "2")],
    );
    fs::rename(dir.join("pmc_perf.csv"), dir.join("pmc_perf_0.csv")).unwrap();
    let other = directory(
        temporary.path(),
        "SQ_INSTS",
        &[("b", 20, "6"), ("a", 10, "5")],
    );
    fs::rename(other.join("pmc_perf.csv"), other.join("pmc_perf_1.csv")).unwrap();
    let all = shown(&["analyze", "-p", text(&dir), "-b", "7.2.2"]);
    // 5/1 and 6/2, although the second run started its kernels in another order.
    assert_eq!(row(&all, "7.2.2")[2..5], ["4.00", "3.00", "5.00"]);
}

#[test]
fn levels_of_single_passes_are_told_apart() {
    let temporary = tempfile::tempdir().unwrap();
    let level = |name: &str, sum: &str| {
        let dir = directory(temporary.path(), "SQ_ACCUM_PREV_HIRES", &[("a", 10, sum)]);
        fs::rename(dir.join("pmc_perf.csv"), dir.join(name)).unwrap();
    };
    level("SQ_LEVEL_WAVES.csv", "6400");
    level("SQ_INST_LEVEL_LDS.csv", "77");
    let dir = directory(
        temporary.path(),
        "GRBM_GUI_ACTIVE,SQ_INSTS_LDS",
        &[("a", 10, "800,11")],
    );
    let all = shown(&[
        "analyze",
        "-p",
        text(&dir),
        "-b",
        "7.2.7",
        "3.1.20",
        "11.2.10",
    ]);
    // 6400 of 100 cycles on each of 8 XCDs; 77 of 11.
    assert_eq!(row(&all, "7.2.7")[2], "64.00");
    assert!(all.contains("LDS Latency  7 "), "{all}");
    // A level is never replaced by another one.
    assert!(
        all.contains("not collected: SQ_INSTS_SMEM, SQ_INST_LEVEL_SMEM_ACCUM"),
        "{all}"
    );
}

#[test]
fn amds_rocpd_database_is_read() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../api/compute");
    assert!(golden.is_dir());
    let temporary = tempfile::tempdir().unwrap();
    let file = temporary.path().join("pmc_perf_0.db");
    let database = Connection::open(&file).unwrap();
    // The columns of AMD's schema 3 that are read.
    database
        .execute_batch(
            "CREATE TABLE rocpd_info_agent_x (id INTEGER, name TEXT, product_name TEXT, type TEXT, absolute_index INTEGER, extdata TEXT);
             CREATE TABLE rocpd_info_kernel_symbol_x (id INTEGER, kernel_name TEXT, display_name TEXT, arch_vgpr_count INTEGER, accum_vgpr_count INTEGER, sgpr_count INTEGER);
             CREATE TABLE rocpd_info_pmc_x (id INTEGER, name TEXT, symbol TEXT);
             CREATE TABLE rocpd_kernel_dispatch_x (id INTEGER, event_id INTEGER, agent_id INTEGER, kernel_id INTEGER, dispatch_id INTEGER, start BIGINT, \"end\" BIGINT,
                 grid_size_x INTEGER, grid_size_y INTEGER, grid_size_z INTEGER, workgroup_size_x INTEGER, workgroup_size_y INTEGER, workgroup_size_z INTEGER,
                 group_segment_size INTEGER, private_segment_size INTEGER);
             CREATE TABLE rocpd_pmc_event_x (event_id INTEGER, pmc_id INTEGER, value REAL);
             INSERT INTO rocpd_info_agent_x VALUES (7, 'gfx942', 'MI300X', 'GPU', 4, '{\"cu_count\": 304, \"num_xcc\": 8, \"num_shader_banks\": 32}');
             INSERT INTO rocpd_info_kernel_symbol_x VALUES (1, 'vadd.kd', 'vadd(int)', 8, 4, 16);
             INSERT INTO rocpd_info_pmc_x VALUES (1, 'SQ_WAVES', 'SQ_WAVES'), (2, 'SQ_INSTS', 'SQ_INSTS');
             INSERT INTO rocpd_kernel_dispatch_x VALUES (1, 11, 7, 1, 1, 1000, 1500, 64, 2, 1, 64, 1, 1, 0, 0), (2, 12, 7, 1, 2, 2000, 2700, 64, 2, 1, 64, 1, 1, 0, 0);
             -- The times of this one are not known.
             INSERT INTO rocpd_kernel_dispatch_x VALUES (3, 13, 7, 1, 3, 0, 0, 64, 2, 1, 64, 1, 1, 0, 0);
             INSERT INTO rocpd_pmc_event_x VALUES (11, 1, 3), (11, 1, 1), (11, 2, 20), (12, 1, 4), (12, 2, 60);
             -- A sample within the first dispatch (AMD's SPM) is no part of what it counted.
             ALTER TABLE rocpd_pmc_event_x ADD COLUMN sample_id INTEGER;
             INSERT INTO rocpd_pmc_event_x VALUES (11, 1, 1000000, 1);",
        )
        .unwrap();
    drop(database);
    let all = shown(&[
        "analyze",
        "-p",
        text(temporary.path()),
        "-b",
        "7.1.0",
        "7.2.2",
        "7.2.0",
    ]);
    // Sums over the places of the GPU and over the dispatches: 80 of 8.
    assert_eq!(row(&all, "7.2.2")[2..5], ["10.00", "5.00", "15.00"]);
    assert_eq!(row(&all, "7.2.0")[2], "600.00");
    assert_eq!(row(&all, "7.1.0")[2], "128.00");
    // A half-written file, which ends within its pages.
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 3]).unwrap();
    let (code, errors) = refused(&["analyze", "-p", text(temporary.path())]);
    assert_eq!(code, 40, "{errors}");
    assert!(errors.contains("incomplete"), "{errors}");
}

#[test]
fn results_of_a_cuda_process_are_told_as_such() {
    let temporary = tempfile::tempdir().unwrap();
    let database = Connection::open(temporary.path().join("results.db")).unwrap();
    database
        .execute_batch(
            "CREATE TABLE rocpd_kernel_dispatch_x (id INTEGER);
             CREATE TABLE rocpd_info_agent_x (id INTEGER, name TEXT, product_name TEXT, vendor_name TEXT, type TEXT, absolute_index INTEGER, extdata TEXT);
             INSERT INTO rocpd_info_agent_x VALUES (1, 'NVIDIA H200', 'NVIDIA H200', 'NVIDIA', 'GPU', 1, '{}');",
        )
        .unwrap();
    drop(database);
    let csv = temporary.path().join("csv");
    fs::create_dir(&csv).unwrap();
    fs::write(
        csv.join("7_agent_info.csv"),
        "\"Node_Id\",\"Agent_Type\",\"Vendor_Name\",\"Product_Name\"\n0,\"CPU\",\"CPU\",\"Xeon\"\n1,\"GPU\",\"NVIDIA\",\"NVIDIA H200\"\n",
    )
    .unwrap();
    for dir in [temporary.path(), &csv] {
        let (code, errors) = refused(&["analyze", "-p", text(dir)]);
        assert_eq!(code, 40, "{errors}");
        assert!(
            errors.contains("has a CUDA process on NVIDIA H200: panels need AMD counters"),
            "{errors}"
        );
        assert!(errors.contains("use `midair attach`"), "{errors}");
    }
}

#[test]
fn passes_of_several_processes_lie_beside_each_other() {
    let temporary = tempfile::tempdir().unwrap();
    let write = |name: &str, kernel: &str, values: &[(i64, i64)]| {
        let database = Connection::open(temporary.path().join(name)).unwrap();
        database
            .execute_batch(&format!(
                "CREATE TABLE rocpd_info_agent_x (id INTEGER, name TEXT, product_name TEXT, type TEXT, absolute_index INTEGER, extdata TEXT);
                 CREATE TABLE rocpd_info_kernel_symbol_x (id INTEGER, kernel_name TEXT, display_name TEXT, arch_vgpr_count INTEGER, accum_vgpr_count INTEGER, sgpr_count INTEGER);
                 CREATE TABLE rocpd_info_pmc_x (id INTEGER, name TEXT, symbol TEXT);
                 CREATE TABLE rocpd_kernel_dispatch_x (id INTEGER PRIMARY KEY, event_id INTEGER, agent_id INTEGER, kernel_id INTEGER, dispatch_id INTEGER, start BIGINT, \"end\" BIGINT,
                     grid_size_x INTEGER, grid_size_y INTEGER, grid_size_z INTEGER, workgroup_size_x INTEGER, workgroup_size_y INTEGER, workgroup_size_z INTEGER,
                     group_segment_size INTEGER, private_segment_size INTEGER);
                 CREATE TABLE rocpd_pmc_event_x (id INTEGER PRIMARY KEY, event_id INTEGER, pmc_id INTEGER, value REAL);
                 INSERT INTO rocpd_info_agent_x VALUES (7, 'gfx942', 'MI300X', 'GPU', 4, '{{\"cu_count\": 304, \"num_xcc\": 8, \"num_shader_banks\": 32}}');
                 INSERT INTO rocpd_info_kernel_symbol_x VALUES (1, '{kernel}', '{kernel}', 8, 4, 16);
                 INSERT INTO rocpd_info_pmc_x VALUES (1, 'SQ_WAVES', 'SQ_WAVES'), (2, 'SQ_INSTS', 'SQ_INSTS');
                 INSERT INTO rocpd_kernel_dispatch_x VALUES (1, 11, 7, 1, 1, 2000, 2500, 64, 1, 1, 64, 1, 1, 0, 0), (2, 12, 7, 1, 2, 1000, 1700, 64, 1, 1, 64, 1, 1, 0, 0);",
            ))
            .unwrap();
        for (event, (pmc, value)) in [11, 12]
            .iter()
            .flat_map(|e| values.iter().map(move |v| (e, v)))
        {
            database
                .execute(
                    "INSERT INTO rocpd_pmc_event_x (event_id, pmc_id, value) VALUES (?1, ?2, ?3)",
                    (event, pmc, value * (event - 10)),
                )
                .unwrap();
        }
    };
    // Both passes count waves: they are counted once.
    write("pmc_perf_0.process_0.db", "same", &[(1, 4)]);
    write("pmc_perf_0.process_1.db", "same", &[(1, 6)]);
    write("pmc_perf_1.process_0.db", "same", &[(1, 4), (2, 40)]);
    write("pmc_perf_1.process_1.db", "same", &[(1, 6), (2, 60)]);
    let workload = midair_compute::read::Workload::read(temporary.path(), &[]).unwrap();
    let frame = &workload.frame;
    assert_eq!(frame.rows, 4);
    let column = |name: &str| -> Vec<f64> {
        let column = frame.named(name).unwrap();
        (0..frame.rows).map(|row| column.get(row)).collect()
    };
    // In the order in which they started.
    assert_eq!(column("SQ_WAVES"), [8.0, 4.0, 12.0, 6.0]);
    assert_eq!(column("SQ_INSTS"), [80.0, 40.0, 120.0, 60.0]);
}

#[test]
fn bad_input_gets_a_sentence_and_a_code() {
    let temporary = tempfile::tempdir().unwrap();
    let at = |name: &str| temporary.path().join(name);
    let whole = || directory(&at("w"), "SQ_WAVES", &[("vadd", 10, "1")]);
    let input = |dir: &Path, what: &str| {
        let (code, errors) = refused(&["analyze", "-p", text(dir)]);
        assert_eq!(code, 40, "{errors}");
        assert!(errors.contains(what), "{errors}");
    };
    input(&at("nowhere"), "No such file");
    fs::create_dir(at("empty")).unwrap();
    input(&at("empty"), "is not a workload directory");
    let dir = whole();
    fs::remove_file(dir.join("sysinfo.csv")).unwrap();
    input(&dir, "has no sysinfo.csv");
    let dir = whole();
    fs::write(dir.join("sysinfo.csv"), SYSTEM.replace("gfx942", "gfx1234")).unwrap();
    input(&dir, "gfx1234");
    let dir = whole();
    fs::write(dir.join("sysinfo.csv"), "a,b\n1\n").unwrap();
    input(&dir, "no complete data line");
    let dir = whole();
    let lines = fs::read_to_string(dir.join("pmc_perf.csv")).unwrap();
    fs::write(dir.join("pmc_perf.csv"), &lines[..lines.len() - 30]).unwrap();
    input(&dir, "line 2 has");
    fs::write(dir.join("pmc_perf.csv"), lines.lines().next().unwrap()).unwrap();
    input(&dir, "has no dispatch");
    fs::write(dir.join("pmc_perf.csv"), [0xff_u8, 0, 1, 2]).unwrap();
    input(&dir, "has no column Kernel_Name");
    fs::write(dir.join("pmc_perf.csv"), "").unwrap();
    input(&dir, "has no column Kernel_Name");
    fs::remove_file(dir.join("pmc_perf.csv")).unwrap();
    fs::write(
        dir.join("results.db"),
        "no database at all, but long enough for a header",
    )
    .unwrap();
    input(&dir, "damaged");

    // Values that are not numbers, and durations of zero, give N/A with the reason.
    let dir = directory(
        &at("z"),
        "SQ_WAVES,SQ_INSTS,TCC_REQ_sum",
        &[("vadd", 0, "0,7,nan"), ("vadd", 0, "0,7,N/A")],
    );
    let all = shown(&[
        "analyze",
        "-p",
        text(&dir),
        "-b",
        "7.2.2",
        "17.3.0",
        "7.2.0",
    ]);
    assert_eq!(row(&all, "7.2.2")[2], "N/A");
    assert!(all.contains("its divisor is zero"), "{all}");
    assert_eq!(row(&all, "7.2.0")[2], "0.00");

    for (words, what) in [
        (&["analyze"][..], "no workload directory given"),
        (
            &["analyze", "-p", text(&dir), "-b", "nonsense"],
            "nonsense is neither",
        ),
        (
            &["analyze", "-p", text(&dir), "-b", "99"],
            "none of the selected blocks",
        ),
        (&["analyze", "-p", text(&dir), "-n", "per_day"], "per_day"),
        (
            &["analyze", "-p", text(&dir), "-d", "x"],
            "is not a dispatch number",
        ),
        (&["analyse"], "analyse"),
        (&["--list-metrics", "gfx1"], "gfx1"),
    ] {
        let (code, errors) = refused(words);
        assert_eq!(code, 2, "{words:?}: {errors}");
        assert!(errors.contains(what), "{words:?}: {errors}");
    }
}

#[test]
fn damaged_bytes_never_end_in_a_panic() {
    use midair_compute::read::Workload;
    use midair_compute::report::{Options, report};
    use midair_compute::select::{Blocks, Dispatches};
    let temporary = tempfile::tempdir().unwrap();
    let dir = directory(
        temporary.path(),
        "SQ_WAVES,TCC_HIT[0],TCC_MISS[0],SQ_INSTS",
        &[
            ("vadd", 10, "1,2,3,4"),
            ("scale", 20, "5,,7,8"),
            ("vadd", 10, "1e300,nan,-3,4.5"),
        ],
    );
    let file = dir.join("pmc_perf.csv");
    let whole = fs::read(&file).unwrap();
    let system = fs::read(dir.join("sysinfo.csv")).unwrap();
    let mut random = 0x1234_5678_9abc_def1_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random as usize % below
    };
    let mut read = 0;
    for round in 0..300 {
        let (mut table, mut machine) = (whole.clone(), system.clone());
        for _ in 0..=next(4) {
            let bytes = [b',', b'"', b'\n', b'-', b'9', 0, 0xff, b'e', b'\r', b'.'];
            let damaged = if round % 3 == 0 {
                &mut machine
            } else {
                &mut table
            };
            let at = next(damaged.len());
            match next(3) {
                0 => damaged[at] = bytes[next(bytes.len())],
                1 => damaged.insert(at, bytes[next(bytes.len())]),
                _ => drop(damaged.drain(at..(at + 1 + next(20)).min(damaged.len()))),
            }
        }
        fs::write(&file, &table).unwrap();
        fs::write(dir.join("sysinfo.csv"), &machine).unwrap();
        if let Ok(workload) = Workload::read(&dir, &[]) {
            read += 1;
            let (all, options) = (Dispatches::default(), Options::default());
            report(&workload, &Blocks::default(), &all, &options).unwrap();
        }
    }
    assert!(read > 30, "{read} of 300 could be read");
}

#[test]
fn the_memory_chart_is_a_table_where_it_is_asked_for() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = directory(
        temporary.path(),
        "SQ_WAVES,SQ_WAVE_CYCLES",
        &[("vadd", 10, "4,400")],
    );
    let words = ["analyze", "-p", text(&dir), "-b", "3.1.1"];
    let chart = shown(&words);
    assert!(
        chart.contains("Wave Life") && !chart.contains("Metric_ID"),
        "{chart}"
    );
    let table = shown(&[&words[..], &["--view", "table"]].concat());
    assert_eq!(row(&table, "3.1.1")[1], "Wave Life", "{table}");
}

#[test]
fn options_without_effect_are_told() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = directory(temporary.path(), "SQ_WAVES", &[("vadd", 10, "4")]);
    let words = ["analyze", "-p", text(&dir), "--kernel-names", "-g"];
    let output = run(&words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    for name in ["--kernel-names", "--debug"] {
        assert!(
            said.contains(&format!("{name} has no effect here")),
            "{said}"
        );
    }
    let (code, said) = refused(&["analyze", "-p", text(&dir), "--torch-operator", "*relu"]);
    assert_eq!(code, 34, "{said}");
    assert!(said.contains("--torch-operator is not built"), "{said}");
    let (code, said) = refused(&["--list-metrics", "gfx900"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("hint: possible values: gfx908"), "{said}");
}

#[test]
fn lists_have_amds_numbers() {
    let metrics = shown(&["--list-metrics", "gfx942"]);
    assert!(
        metrics.contains("5 -> Command Processor (CPC/CPF)\n\t5.1 -> "),
        "{metrics}"
    );
    assert!(metrics.contains("\t\t3.1.1 -> Wave Life\n"), "{metrics}");
    assert!(metrics.contains("\t\t5.1.1 -> CPF Stall\n"), "{metrics}");
    let newer = shown(&["analyze", "--list-metrics", "gfx942", "--formulas", "2026"]);
    assert!(newer.contains("\t\t2.1.1 -> MFMA FLOPs (F8)\n"), "{newer}");
    assert!(newer.contains("\t\t4.1.0 -> VALU FLOPs\n"), "{newer}");
    let blocks = shown(&["--list-blocks", "gfx90a"]);
    assert!(
        blocks.contains("12 -> Local Data Share (LDS) [lds]"),
        "{blocks}"
    );
    let sets = shown(&["--list-sets"]);
    assert!(sets.contains("│ launch_stats"), "{sets}");
}
