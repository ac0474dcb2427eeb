//! `pmc_perf.csv` of a profile: AMD's columns, ours behind them, and the same tables from it as from
//! the database. A script stands in for `rocprofv3`, and leaves a database. The test on a real
//! process is in `tests/e2e/compute_csv.rs`.

use super::common::{collector, compute};
use std::fs;

#[test]
fn it_has_amds_columns_and_says_the_same_as_the_database() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    collector(here, "cp $made $out/pmc_results.db");
    let profile = |name: &str, more: &[&str]| {
        let words = ["profile", "-n", "x", "--attach-pid", "7", "-d", name, "-b"];
        compute(here, &[&words[..], &["5.1.1", "17.1.2"], more].concat());
    };
    profile("db", &[]);
    profile("csv", &["--format-rocprof-output", "csv"]);
    profile(
        "both",
        &["--format-rocprof-output", "csv", "--retain-rocpd-output"],
    );
    let has = |file: &str| here.join(file).is_file();
    assert!(has("db/pmc_perf_0.db") && !has("db/pmc_perf.csv"));
    assert!(has("csv/pmc_perf.csv") && !has("csv/pmc_perf_0.db"));
    assert!(has("both/pmc_perf.csv") && has("both/pmc_perf_0.db"));

    let text = fs::read_to_string(here.join("csv/pmc_perf.csv")).unwrap();
    let mut lines = text.lines();
    assert_eq!(
        lines.next().unwrap(),
        "Dispatch_ID,GPU_ID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,Arch_VGPR,Accum_VGPR,SGPR,\
         Wave_Size,Kernel_Name,Correlation_ID,Kernel_ID,CPF_CPF_STAT_BUSY,CPF_CPF_STAT_STALL,TCC_HIT_sum,TCC_MISS_sum,\
         Start_Timestamp,End_Timestamp,Group,Shared"
    );
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.len(), 40);
    let kernel = "\"vadd(\"\"x\"\", int)\"";
    let line = |id: u64, counts: &str, group: &str, shared: u8| {
        let start = 3_548_002_600_680 + id * 10_000;
        format!(
            "{},0,128,64,256,0,8,4,16,64,{kernel},{},1,{counts},{start},{},{group},{shared}",
            id + 1,
            900 + id,
            start + 500 + id
        )
    };
    // One group has room for all four counters. A dispatch with some of them has no whole group.
    assert_eq!(lines[0], line(0, "1000,250,800,200", "0", 0));
    assert_eq!(lines[1], line(1, ",,801,201", "", 0));
    assert_eq!(lines[5], line(5, ",,,", "", 1));

    let shown = |name: &str| {
        let text = compute(here, &["analyze", "-p", name]);
        text.replace(&format!("{name} "), "").replace(name, "")
    };
    let by_database = shown("db");
    assert!(by_database.contains("CPF Stall") && by_database.contains("± 95 %"));
    assert_eq!(by_database, shown("csv"));
}
