//! The page of `analyze --html`, opened in headless Chromium and clicked through (`browser.py`).

use midair_tests::chromium;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The counters of the speed of light, the memory chart and the roofline of gfx942.
const COUNTERS: [&str; 24] = [
    "SQ_WAVES",
    "GRBM_GUI_ACTIVE",
    "SQ_ACTIVE_INST_VALU",
    "SQ_INSTS_VALU_ADD_F16",
    "SQ_INSTS_VALU_MUL_F16",
    "SQ_INSTS_VALU_TRANS_F16",
    "SQ_INSTS_VALU_FMA_F16",
    "SQ_INSTS_VALU_ADD_F32",
    "SQ_INSTS_VALU_MUL_F32",
    "SQ_INSTS_VALU_TRANS_F32",
    "SQ_INSTS_VALU_FMA_F32",
    "SQ_INSTS_VALU_ADD_F64",
    "SQ_INSTS_VALU_MUL_F64",
    "SQ_INSTS_VALU_TRANS_F64",
    "SQ_INSTS_VALU_FMA_F64",
    "SQ_INSTS_VALU_MFMA_MOPS_F16",
    "SQ_INSTS_VALU_MFMA_MOPS_BF16",
    "SQ_INSTS_VALU_MFMA_MOPS_F32",
    "SQ_INSTS_VALU_MFMA_MOPS_F64",
    "SQ_INSTS_VALU_MFMA_MOPS_F8",
    "TCC_BUBBLE_sum",
    "TCC_EA0_RDREQ_32B_sum",
    "TCC_EA0_RDREQ_sum",
    "TCC_EA0_WRREQ_sum",
];

/// Writes a workload in which a third of the dispatches were counted.
fn workload(at: &Path) {
    fs::write(
        at.join("sysinfo.csv"),
        "workload_name,gpu_model,gpu_arch,cu_per_gpu,simd_per_cu,se_per_gpu,wave_size,max_waves_per_cu,max_sclk,\
         max_mclk,total_l2_chan,lds_banks_per_cu,sqc_per_gpu,pipes_per_gpu,num_xcd,num_hbm_channels\n\
         pages,MI300X_A1,gfx942,304,4,32,64,32,2100,1300,128,32,160,4,8,128\n",
    )
    .unwrap();
    fs::write(
        at.join("profiling_config.yaml"),
        "midair_version: 1\nname: pages\n",
    )
    .unwrap();
    let mut text = format!(
        "Dispatch_ID,GPU_ID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Kernel_Name,{},TCC_EA0_WRREQ_64B_sum,\
         Start_Timestamp,End_Timestamp\n",
        COUNTERS.join(",")
    );
    for id in 0..90_u64 {
        let kernel = ["gemm(float*)", "scale<int>(int*)", "<b>bold</b>"][id as usize % 3];
        let _ = write!(text, "{id},0,65536,256,0,\"{kernel}\"");
        for place in 0..=COUNTERS.len() as u64 {
            match id / 3 % 3 {
                0 => {
                    let _ = write!(text, ",{}", 1000 + 40 * place + id * id % 97);
                }
                _ => text.push(','),
            }
        }
        let start = 1_000_000 + id * 10_000;
        let _ = writeln!(text, ",{start},{}", start + 3000 + id % 7);
    }
    fs::write(at.join("pmc_perf.csv"), text).unwrap();
}

#[test]
fn a_browser_draws_the_page_and_its_table_filters() {
    let Some(browser) = chromium().unwrap() else {
        return;
    };
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    workload(here);
    let page = here.join("page.html");
    let output = Command::new(env!("CARGO_BIN_EXE_rocprof-compute"))
        .args(["analyze", "-p"])
        .arg(here)
        .arg("--html")
        .arg(&page)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser.py");
    let output = Command::new("python3")
        .arg(script)
        .args([&browser, &page])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}{errors}");
    let found: serde_json::Value = serde_json::from_str(&said).unwrap();
    let count = |key: &str| {
        found[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{key}: {said}"))
    };
    assert!(found["title"].as_str().unwrap().contains("pages"), "{said}");
    // Speed of light, with intervals; a roofline with its kernels; the memory chart.
    assert!(count("bars") >= 3 && count("intervals") >= 3, "{said}");
    assert!(count("roofs") >= 2, "{said}");
    assert_eq!(count("points"), 3, "{said}");
    let roofline = found["roofline"].as_str().unwrap();
    assert!(roofline.contains("not measured"), "{said}");
    assert!(found["chart"].as_str().unwrap().contains("L2"), "{said}");
    assert_eq!(found["drawn"], true, "{said}");
    // Names are text, whatever they contain. Typing leaves the kernels whose names contain the
    // words.
    let names = |key: &str| -> Vec<String> {
        let mut names: Vec<String> = found[key]
            .as_array()
            .unwrap_or_else(|| panic!("{key}: {said}"))
            .iter()
            .map(|name| name.as_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(
        names("kernels"),
        ["<b>bold</b>", "gemm(float*)", "scale<int>(int*)"],
        "{said}"
    );
    assert_eq!(names("filtered"), ["scale<int>(int*)"], "{said}");
    assert!(names("none").is_empty(), "{said}");
    assert_eq!(names("other_case"), ["gemm(float*)"], "{said}");
    assert_eq!(
        found["unfolds"],
        serde_json::json!([false, true, true]),
        "{said}"
    );
    // The browser loaded nothing but the page, reported no error, and nothing exceeds the window.
    assert_eq!(names("asked_for").len(), 1, "{said}");
    assert!(names("errors").is_empty(), "{said}");
    assert_eq!(found["wide"].as_i64(), Some(0), "{said}");
}
