//! The versions of AMD's tool: which words, numbers and formulas a directory gets, and the directory of 3.9.

use super::common::{collector, compute};
use flate2::read::GzDecoder;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;

const SYSTEM: &str = "workload_name,gpu_model,gpu_arch,cu_per_gpu,max_sclk,num_xcd,num_hbm_channels\nx,MI300X,gfx942,304,2100,8,128\n";
/// Two dispatches whose ratios are 20 % and 10 %; of their sums it is 12 %.
const TABLE: &str = "Dispatch_ID,GPU_ID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Kernel_Name,CPF_CPF_STAT_BUSY,CPF_CPF_STAT_STALL,CPC_ME1_DC0_SPI_BUSY,CPC_CPC_STAT_BUSY,SQC_ICACHE_HITS,SQC_ICACHE_MISSES,SQC_ICACHE_MISSES_DUPLICATE,Start_Timestamp,End_Timestamp\n\
0,0,1024,64,0,vadd,100,20,100,200,9,1,0,1000,2000\n\
1,0,1024,64,0,vadd,400,40,100,200,9,1,0,3000,6000\n";

fn directory(at: &Path) {
    fs::create_dir_all(at).unwrap();
    fs::write(at.join("sysinfo.csv"), SYSTEM).unwrap();
    fs::write(at.join("pmc_perf.csv"), TABLE).unwrap();
}

/// Returns the fields of the row whose first field is this one.
fn row(text: &str, first: &str) -> Vec<String> {
    let fields = |line: &str| -> Vec<String> {
        let fields = line.trim_matches('│').split('│');
        fields.map(|field| field.trim().to_owned()).collect()
    };
    let mut rows = text
        .lines()
        .filter(|line| line.starts_with('│'))
        .map(fields);
    rows.find(|row| row[0] == first)
        .unwrap_or_else(|| panic!("{first} is not in\n{text}"))
}

/// Checks the value and the unit of CPF Stall, the unit of a metric of another table, and a heading of panel 0.
fn check(here: &Path, words: &[&str], [value, unit, other, heading]: [&str; 4]) {
    let words = [&["analyze", "-p", "w", "-b", "5"], words].concat();
    let text = compute(here, &words);
    let stall = row(&text, "5.1.1");
    assert_eq!(
        [stall[2].as_str(), stall[5].as_str()],
        [value, unit],
        "{words:?} {text}"
    );
    assert_eq!(row(&text, "5.2.3")[5], other, "{words:?}");
    let head = text
        .lines()
        .find(|line| line.contains("Kernel_Name"))
        .unwrap();
    assert!(head.contains(&format!(" {heading} │")), "{words:?} {head}");
}

const OLD: [&str; 4] = ["15.00", "pct", "Pct", "Pct"];
const NEW: [&str; 4] = ["12.00", "Percent", "Percent", "Percent"];

#[test]
fn a_directory_has_the_words_and_formulas_of_its_version() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    let dir = here.join("w");
    directory(&dir);
    check(here, &[], OLD);
    // The formulas are a choice, and so is the version.
    check(
        here,
        &["--formulas", "2026"],
        ["12.00", "pct", "Pct", "Pct"],
    );
    check(
        here,
        &["--vintage", "3.6"],
        ["15.00", "Percent", "Percent", "Percent"],
    );
    check(here, &["--vintage", "3.9"], NEW);
    check(
        here,
        &["--vintage", "3.9.0", "--formulas", "2025"],
        ["15.00", "Percent", "Percent", "Percent"],
    );
    let config = dir.join("profiling_config.yaml");
    for (text, expected) in [
        ("dispatch: null\npath: /x\n", OLD),
        (
            "iteration_multiplexing: null\noutput_directory: /x\npath: /x\n",
            OLD,
        ),
        ("bench_only: false\noutput_directory: /x\npath: /x\n", NEW),
        ("output_directory: /x\n", NEW),
    ] {
        fs::write(&config, text).unwrap();
        check(here, &[], expected);
        check(here, &["--vintage", "3.3"], OLD);
    }
    // A log says more than what else there is.
    for (version, expected) in [("3.4.0", OLD), ("3.7.0", NEW), ("3.10.0", NEW)] {
        let log = format!("Rocprofiler-Compute version: {version}\nProfiler choice: x\n");
        fs::write(dir.join("log.txt"), log).unwrap();
        check(here, &[], expected);
    }
    fs::remove_file(dir.join("log.txt")).unwrap();
    fs::remove_file(&config).unwrap();
    fs::write(dir.join("sysinfo.csv"), SYSTEM.replace("_hbm_", "_memory_")).unwrap();
    check(here, &[], NEW);
    // A column of panel 2.
    for (version, heading) in [("3.7", "Pct of Peak"), ("3.8", "Percent of Peak")] {
        let words = ["analyze", "-p", "w", "-b", "2", "--vintage", version];
        let text = compute(here, &words);
        assert!(text.contains(&format!(" {heading} ")), "{version}: {text}");
    }
    let refused = Command::new(env!("CARGO_BIN_EXE_rocprof-compute"))
        .args(["analyze", "-p", "w", "--vintage", "2.0"])
        .current_dir(here)
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn ours_has_means_unless_counters_took_turns() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    let dir = here.join("w");
    directory(&dir);
    fs::create_dir(dir.join("perfmon")).unwrap();
    let write = |attach: &str, vintage: &str| {
        let text = format!(
            "attach_pid: {attach}\nmidair_version: '1'\noutput_directory: /x\npath: /x\n{vintage}"
        );
        fs::write(dir.join("profiling_config.yaml"), text).unwrap();
    };
    fs::write(dir.join("perfmon/pmc_perf_0.yaml"), "").unwrap();
    write("'7'", "vintage: '3.3'\n");
    check(here, &[], OLD);
    fs::write(dir.join("perfmon/pmc_perf_1.yaml"), "").unwrap();
    check(here, &[], ["12.00", "pct", "Pct", "Pct"]);
    check(here, &["--formulas", "2025"], OLD);
    // Each group counted every dispatch of a run.
    write("null", "");
    check(here, &[], OLD);
    write("null", "vintage: '3.9'\n");
    check(here, &[], NEW);
}

fn unpacked(path: &Path) -> String {
    let mut text = String::new();
    let file = fs::File::open(path).unwrap();
    // One part, as AMD's readers expect.
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    text
}

#[test]
fn the_directory_of_3_9_is_written_and_read() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    collector(here, "cp $made $out/pmc_results.db");
    let profile = [
        "profile",
        "-d",
        "w",
        "--overwrite",
        "-n",
        "vadd",
        "--vintage",
    ];
    compute(
        here,
        &[
            &profile[..],
            &["3.9", "-b", "5.1.1", "17.1.2", "--attach-pid", "7"],
        ]
        .concat(),
    );
    let dir = here.join("w");
    let config = fs::read_to_string(dir.join("profiling_config.yaml")).unwrap();
    for line in [
        "vintage: '3.9'\n",
        "pc_sampling: false\n",
        "dispatch: null\n",
    ] {
        assert!(config.contains(line), "{config}");
    }
    for key in ["format_rocprof_output:", "\npath:"] {
        assert!(!config.contains(key), "{config}");
    }
    let system = fs::read_to_string(dir.join("sysinfo.csv")).unwrap();
    let head = system.lines().next().unwrap();
    assert!(head.starts_with("workload_path,command,"), "{head}");
    for part in [
        ",se_per_gpu,sa_per_se,wave_size,",
        ",l2_banks,total_l2_chan,",
        ",num_memory_channels",
    ] {
        assert!(head.contains(part), "{head}");
    }
    assert!(!head.contains("num_hbm_channels"), "{head}");
    let table = unpacked(&dir.join("results_pmc_perf_0.csv.gz"));
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(
        lines[0],
        "GPU_ID,GUID,Correlation_Id,Dispatch_ID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,Arch_VGPR,Accum_VGPR,SGPR,Kernel_Name,Start_Timestamp,End_Timestamp,Kernel_ID,Counter_Name,Counter_Value"
    );
    // Of 40 dispatches 14 have CPF's counters; the first of them as well.
    let busy: Vec<&&str> = lines
        .iter()
        .filter(|line| line.contains(",CPF_CPF_STAT_BUSY,"))
        .collect();
    assert_eq!(busy.len(), 14);
    assert!(
        busy[0].ends_with(",3548002600680,3548002601180,1,CPF_CPF_STAT_BUSY,1000.0"),
        "{}",
        busy[0]
    );
    let shown = |words: &[&str]| compute(here, &[&["analyze", "-p", "w"], words].concat());
    let with_database = shown(&["-b", "5.1.1", "17.1.2"]);
    assert_eq!(row(&with_database, "5.1.1")[5], "Percent");
    fs::remove_file(dir.join("pmc_perf_0.db")).unwrap();
    let alone = shown(&["-b", "5.1.1", "17.1.2"]);
    for id in ["5.1.1", "17.1.2"] {
        let (a, b) = (row(&with_database, id), row(&alone, id));
        assert_eq!(a[..3], b[..3], "{with_database}{alone}");
    }
    // Of a packed and a plain file of one name, the packed one is read.
    fs::write(dir.join("results_pmc_perf_0.csv"), "nonsense\n").unwrap();
    assert_eq!(shown(&["-b", "5.1.1", "17.1.2"]), alone);

    // AMD's newest reads it: each file has the two columns, and rows of one dispatch have one number.
    let script = "import glob, sys, pandas as pd\n\
        all = pd.concat([pd.read_csv(file) for file in sorted(glob.glob(sys.argv[1] + '/results_*.csv.gz'))], ignore_index=True)\n\
        key = ['Dispatch_ID', 'Kernel_Name', 'Grid_Size', 'Workgroup_Size', 'LDS_Per_Workgroup']\n\
        wide = all.pivot_table(index=key, columns='Counter_Name', values='Counter_Value', aggfunc='sum')\n\
        print(len(wide), int(wide['TCC_HIT_sum'].sum()), int(wide['CPF_CPF_STAT_BUSY'].count()))";
    let said = Command::new(midair_tests::python::python().unwrap())
        .args(["-c", script])
        .arg(&dir)
        .output()
        .unwrap();
    let hits: u64 = (0..40).filter(|id| id % 3 != 2).map(|id| 800 + id).sum();
    let errors = String::from_utf8_lossy(&said.stderr);
    assert_eq!(
        String::from_utf8_lossy(&said.stdout).trim(),
        format!("27 {hits} 14"),
        "{errors}"
    );

    for (words, what) in [
        (
            &["3.8", "-b", "5", "--attach-pid", "7"][..],
            "cannot write a directory of version 3.8",
        ),
        (
            &[
                "3.9",
                "-b",
                "5",
                "--attach-pid",
                "7",
                "--format-rocprof-output",
                "csv",
            ],
            "is not in version 3.9",
        ),
    ] {
        let refused = Command::new(env!("CARGO_BIN_EXE_rocprof-compute"))
            .args(profile)
            .args(words)
            .current_dir(here)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains(what), "{said}");
    }
}

#[test]
fn packed_files_are_not_believed() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    let dir = here.join("w");
    directory(&dir);
    fs::remove_file(dir.join("pmc_perf.csv")).unwrap();
    let packed = |text: &[u8]| {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packer.write_all(text).unwrap();
        packer.finish().unwrap()
    };
    let file = dir.join("pmc_perf.csv.gz");
    let good = packed(TABLE.as_bytes());
    fs::write(&file, &good).unwrap();
    check(here, &[], NEW);
    let bomb = packed(&[b"1,".repeat(8), vec![b'0'; 200 << 20]].concat());
    let mut wrong = good.clone();
    let last = wrong.len() - 5;
    wrong[last] ^= 0xff;
    for (bytes, what) in [
        (&good[..good.len() - 12], "pmc_perf.csv.gz"),
        (&wrong[..], "pmc_perf.csv.gz"),
        (&bomb[..], "pmc_perf.csv.gz"),
    ] {
        fs::write(&file, bytes).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_rocprof-compute"))
            .args(["analyze", "-p", "w"])
            .current_dir(here)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(
            output.status.code(),
            Some(40),
            "{}",
            said.chars().take(300).collect::<String>()
        );
        assert!(said.contains(what), "{said}");
    }
}
