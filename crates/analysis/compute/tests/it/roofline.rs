//! The roofline of `analyze`: the levels of memory that `-m` chooses, and the units of its roofs.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Counts of one dispatch of 1 us: 64 * 1000 operations (F32 additions) and 512 * 2 of F8, which
/// move 65,024 bytes between compute units and L1, 32,512 to L2, 8,128 to memory, and 130,048 of
/// LDS.
const COUNTS: [(&str, u64); 28] = [
    ("SQ_WAVES", 16),
    ("GRBM_GUI_ACTIVE", 2000),
    ("SQ_INSTS_VALU_ADD_F16", 0),
    ("SQ_INSTS_VALU_MUL_F16", 0),
    ("SQ_INSTS_VALU_TRANS_F16", 0),
    ("SQ_INSTS_VALU_FMA_F16", 0),
    ("SQ_INSTS_VALU_ADD_F32", 1000),
    ("SQ_INSTS_VALU_MUL_F32", 0),
    ("SQ_INSTS_VALU_TRANS_F32", 0),
    ("SQ_INSTS_VALU_FMA_F32", 0),
    ("SQ_INSTS_VALU_ADD_F64", 0),
    ("SQ_INSTS_VALU_MUL_F64", 0),
    ("SQ_INSTS_VALU_TRANS_F64", 0),
    ("SQ_INSTS_VALU_FMA_F64", 0),
    ("SQ_INSTS_VALU_MFMA_MOPS_F16", 0),
    ("SQ_INSTS_VALU_MFMA_MOPS_BF16", 0),
    ("SQ_INSTS_VALU_MFMA_MOPS_F32", 0),
    ("SQ_INSTS_VALU_MFMA_MOPS_F64", 0),
    ("SQ_INSTS_VALU_MFMA_MOPS_F8", 2),
    ("TCC_BUBBLE_sum", 0),
    ("TCC_EA0_RDREQ_32B_sum", 0),
    ("TCC_EA0_RDREQ_sum", 127),
    ("TCC_EA0_WRREQ_sum", 0),
    ("TCC_EA0_WRREQ_64B_sum", 0),
    ("TCP_TOTAL_CACHE_ACCESSES_sum", 1016),
    ("TCP_TCC_READ_REQ_sum", 500),
    ("TCP_TCC_WRITE_REQ_sum", 8),
    ("TCP_TCC_ATOMIC_WITH_RET_REQ_sum", 0),
];
const LDS: [(&str, u64); 3] = [
    ("TCP_TCC_ATOMIC_WITHOUT_RET_REQ_sum", 0),
    ("SQ_LDS_IDX_ACTIVE", 1020),
    ("SQ_LDS_BANK_CONFLICT", 4),
];

/// Writes a workload of a modelled MI300X, without the counters whose names contain one of these
/// words.
fn workload(at: &Path, without: &[&str]) {
    fs::create_dir_all(at).unwrap();
    fs::write(
        at.join("sysinfo.csv"),
        "workload_name,gpu_model,gpu_arch,cu_per_gpu,simd_per_cu,se_per_gpu,wave_size,max_waves_per_cu,max_sclk,\
         max_mclk,total_l2_chan,lds_banks_per_cu,sqc_per_gpu,pipes_per_gpu,num_xcd,num_hbm_channels\n\
         roofs,MI300X_A1,gfx942,304,4,32,64,32,2100,1300,128,32,160,4,8,128\n",
    )
    .unwrap();
    let all = COUNTS.into_iter().chain(LDS);
    let kept: Vec<(&str, u64)> = all
        .filter(|(name, _)| !without.iter().any(|word| name.contains(word)))
        .collect();
    let names: Vec<&str> = kept.iter().map(|(name, _)| *name).collect();
    let counts: Vec<String> = kept.iter().map(|(_, count)| count.to_string()).collect();
    fs::write(
        at.join("pmc_perf.csv"),
        format!(
            "Dispatch_ID,GPU_ID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Kernel_Name,{},Start_Timestamp,End_Timestamp\n\
             0,0,1024,64,0,vadd,{},1000,2000\n",
            names.join(","),
            counts.join(",")
        ),
    )
    .unwrap();
}

fn analyze(dir: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rocprof-compute"))
        .args(["analyze", "-p"])
        .arg(dir)
        .args(words)
        .output()
        .unwrap()
}

fn shown(dir: &Path, words: &[&str]) -> String {
    let output = analyze(dir, &[&["-b", "4", "--decimal", "3"], words].concat());
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the cells of the rows that start with this word.
fn rows<'a>(text: &'a str, first: &str) -> Vec<Vec<&'a str>> {
    text.lines()
        .map(|line| line.split('│').map(str::trim).collect::<Vec<_>>())
        .filter(|cells| cells.get(1) == Some(&first))
        .map(|cells| cells[2..cells.len() - 1].to_vec())
        .collect()
}

#[test]
fn a_kernel_has_a_point_at_each_level_of_memory() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("all");
    workload(&dir, &[]);
    let text = shown(&dir, &[]);
    // 1300 MHz, 32 bytes, 128 channels; 2100 MHz, 128 bytes, 128 channels or 304 units.
    for (level, bandwidth) in [
        ("HBM", "5324.800"),
        ("L2", "34406.400"),
        ("vL1D", "81715.200"),
        ("LDS", "81715.200"),
    ] {
        assert_eq!(rows(&text, level), [[bandwidth, "GB/s"]], "{level}: {text}");
    }
    // 65,024 operations over the bytes of each level. The roof is 65.024 GFLOP/s of what the
    // bandwidth allows: 8 * 5324.8, 2 * 34406.4, 1 * 81715.2 and 0.5 * 81715.2.
    assert_eq!(
        rows(&text, "vadd(x)").len() + rows(&text, "vadd").len(),
        4,
        "{text}"
    );
    assert_eq!(
        rows(&text, "vadd"),
        [
            ["HBM", "8.000", "65.024", "0.153", "HBM"],
            ["L2", "2.000", "65.024", "0.094", "L2"],
            ["vL1D", "1.000", "65.024", "0.080", "vL1D"],
            ["LDS", "0.500", "65.024", "0.159", "LDS"],
        ],
        "{text}"
    );
    assert!(!text.contains("No kernel can be placed"), "{text}");
}

#[test]
fn levels_are_chosen() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("all");
    workload(&dir, &[]);
    let levels = |words: &[&str]| -> Vec<String> {
        let text = shown(&dir, words);
        let all = rows(&text, "vadd");
        let levels: Vec<String> = all.iter().map(|cells| cells[0].to_owned()).collect();
        for level in ["HBM", "L2", "vL1D", "LDS"] {
            let there = levels.iter().any(|known| known == level);
            assert_eq!(rows(&text, level).len(), usize::from(there), "{text}");
        }
        levels
    };
    assert_eq!(levels(&["-m", "HBM"]), ["HBM"]);
    // Words and commas, either case, in the order of the levels; the older name as well.
    assert_eq!(
        levels(&["--roofline-mem-level", "lds,L2", "VL1D"]),
        ["L2", "vL1D", "LDS"]
    );
    assert_eq!(levels(&["--mem-level", "LDS"]), ["LDS"]);
    assert_eq!(levels(&["-m", "ALL"]), ["HBM", "L2", "vL1D", "LDS"]);
    let refused = analyze(&dir, &["-b", "4", "-m", "L3"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("no level of memory is called L3"), "{said}");
    assert!(said.contains("known are HBM, L2, vL1D, LDS"), "{said}");
    // The page has what was chosen.
    let page = temporary.path().join("page.html");
    let output = analyze(
        &dir,
        &["-m", "HBM", "LDS", "--html", page.to_str().unwrap()],
    );
    assert!(output.status.success(), "{output:?}");
    let html = fs::read_to_string(&page).unwrap();
    let count = |what: &str| html.matches(what).count();
    assert_eq!(count("<path class=\"memory "), 2, "{html}");
    assert_eq!(count("<circle class=\"hbm\""), 1, "{html}");
    assert_eq!(count("<circle class=\"lds\""), 1, "{html}");
    assert!(html.contains("HBM 5325 GB/s, LDS 81715 GB/s"), "{html}");
}

#[test]
fn a_level_without_counters_is_told() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("some");
    workload(&dir, &["TCP", "LDS"]);
    let text = shown(&dir, &[]);
    assert_eq!(rows(&text, "vadd").len(), 1, "{text}");
    assert!(
        text.contains("No kernel can be placed at L2, vL1D, LDS: bytes were not counted"),
        "{text}"
    );
    // The roofs are known all the same. Measured ones come from the file alone.
    assert_eq!(rows(&text, "L2"), [["34406.400", "GB/s"]], "{text}");
    fs::write(
        dir.join("roofline.csv"),
        "device,HBMBw,L1Bw,FP32Flops\n0,4000,30000,100000\n",
    )
    .unwrap();
    let text = shown(&dir, &[]);
    assert_eq!(rows(&text, "vL1D"), [["30000.000", "GB/s"]], "{text}");
    assert!(rows(&text, "L2").is_empty(), "{text}");
    assert!(rows(&text, "LDS").is_empty(), "{text}");
}

#[test]
fn the_roof_of_whole_numbers_has_their_unit() {
    let temporary = tempfile::tempdir().unwrap();
    let dir = temporary.path().join("all");
    workload(&dir, &[]);
    let text = shown(&dir, &["-R", "FP16,I8", "-m", "HBM"]);
    assert_eq!(
        rows(&text, "MFMA I8"),
        [["2614886.400", "GIOP/s"]],
        "{text}"
    );
    assert_eq!(
        rows(&text, "MFMA F16"),
        [["1307443.200", "GFLOP/s"]],
        "{text}"
    );
    // A kernel's operations are of floating-point numbers: the roof of whole numbers limits none.
    let text = shown(&dir, &["-R", "I8", "-m", "HBM"]);
    assert!(!text.contains("GFLOP/s │\n"), "{text}");
    assert_eq!(rows(&text, "vadd")[0][4], "HBM", "{text}");
    let page = temporary.path().join("page.html");
    let words = ["-R", "FP32", "I8", "--html", page.to_str().unwrap()];
    let output = analyze(&dir, &words);
    assert!(output.status.success(), "{output:?}");
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains(">MFMA I8 2614.9 TIOP/s<"), "{html}");
    assert!(html.contains(">VALU FP32 81.7 TFLOP/s<"), "{html}");
    // Small peaks keep the smaller unit.
    fs::write(
        dir.join("roofline.csv"),
        "device,HBMBw,FP32Flops,MFMAI8Ops\n0,4000,700,900\n",
    )
    .unwrap();
    assert!(analyze(&dir, &words).status.success());
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains(">MFMA I8 900 GIOP/s<"), "{html}");
    assert!(html.contains(">VALU FP32 700 GFLOP/s<"), "{html}");
}
