//! Samples of program counters in a directory: as a table, in the database, and as files.

use rusqlite::Connection;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const SYSTEM: &str = "workload_path,gpu_model,gpu_arch,cu_per_gpu,max_sclk,num_xcd,num_memory_channels\n/w,MI300X,gfx942,304,2100,8,128\n";

fn run(here: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rocprof-compute"))
        .args(words)
        .current_dir(here)
        .output()
        .unwrap()
}

fn shown(here: &Path, words: &[&str]) -> String {
    let output = run(here, &[&["analyze", "-p", "w"], words].concat());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{words:?} {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn reason(word: &str) -> String {
    format!("ROCPROFILER_PC_SAMPLING_INSTRUCTION_NOT_ISSUED_REASON_{word}")
}

/// Returns a stochastic sample of an instruction.
fn sample(index: u64, offset: u64, dispatch: u64, issued: bool, why: &str) -> Value {
    json!({
        "inst_index": index,
        "record": {
            "hw_id": {"chiplet": 0},
            "pc": {"code_object_id": 2, "code_object_offset": offset},
            "dispatch_id": dispatch,
            "wave_issued": if index == 0 { json!(u64::from(issued)) } else { json!(issued) },
            "inst_type": "ROCPROFILER_PC_SAMPLING_INSTRUCTION_TYPE_VALU",
            "snapshot": {"stall_reason": reason(why), "dual_issue_valu": 0},
        },
    })
}

/// Returns the results of a process: dispatches 1 and 2 are of "vadd", 3 of "scale".
fn results(pid: u64, samples: &[Value], trapped: &[Value]) -> Value {
    let dispatch = |id: u64, kernel: u64| {
        json!({
            "start_timestamp": 1000 * id, "end_timestamp": 1000 * id + 100 * id,
            "dispatch_info": {"dispatch_id": id, "kernel_id": kernel, "agent_id": {"handle": 77}},
        })
    };
    json!({"rocprofiler-sdk-tool": [{
        "metadata": {"pid": pid, "node": {}},
        "agents": [{"type": 1, "node_id": 0, "id": {"handle": 5}}, {"type": 2, "node_id": 1, "id": {"handle": 77}}],
        "buffer_records": {
            "pc_sample_stochastic": samples,
            "pc_sample_host_trap": trapped,
            "kernel_dispatch": [dispatch(1, 10), dispatch(2, 10), dispatch(3, 11)],
        },
        "strings": {
            "pc_sample_instructions": ["s_load_dword s8", "v_add_f32 v1", "s_endpgm"],
            "pc_sample_comments": ["/src/a.hip:3 -> /src/b.hip:9", "", "/src/a.hip:12"],
        },
        "kernel_symbols": [
            {"kernel_id": 10, "formatted_kernel_name": "vadd(float*)"},
            {"kernel_id": 11, "formatted_kernel_name": "scale"},
        ],
        "code_objects": [{"code_object_id": 2, "load_base": 4096}],
    }]})
}

/// Writes a directory of two processes without counters.
fn directory(at: &Path) {
    fs::create_dir_all(at).unwrap();
    fs::write(at.join("sysinfo.csv"), SYSTEM).unwrap();
    let samples = [
        sample(0, 0x100, 1, true, "NONE"),
        sample(0, 0x100, 2, false, "WAITCNT"),
        sample(0, 0x100, 2, false, "WAITCNT"),
        sample(0, 0x100, 2, false, "MADE_UP"),
        sample(1, 0x108, 3, false, "BARRIER_WAIT"),
        json!({"inst_index": 1, "record": {"pc": {"code_object_id": 2}}}),
    ];
    let text = results(101, &samples, &[]).to_string();
    fs::write(at.join("101_ps_file_results.json"), text).unwrap();
    let trapped = json!({"inst_index": 2, "record": {"pc": {"code_object_id": 2, "code_object_offset": 16}, "dispatch_id": 9}});
    let text = results(20, &[], &[trapped.clone(), trapped]).to_string();
    fs::write(at.join("20_ps_file_results.json"), text).unwrap();
}

/// Returns the fields of the rows of the table of samples.
fn rows(text: &str) -> Vec<Vec<String>> {
    let text = text.split("PC Sampling").last().unwrap();
    let rows = text.lines().filter(|line| line.starts_with('│')).skip(1);
    let fields = |line: &str| -> Vec<String> {
        let fields = line.trim_matches('│').split('│');
        fields.map(|field| field.trim().to_owned()).collect()
    };
    rows.map(fields).collect()
}

#[test]
fn sampled_instructions_are_a_table() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    directory(&here.join("w"));
    let text = shown(here, &["-b", "21"]);
    assert_eq!(
        rows(&text),
        [
            [
                "0",
                "101",
                "/src/a.hip:3 -> /src/b.hip:9",
                "s_load_dword s8",
                "2",
                "0x100",
                "4",
                "1",
                "3",
                "[('WAITCNT', 2), ('NONE', 1)]",
                "vadd(float*)"
            ],
            [
                "1",
                "20",
                "/src/a.hip:12",
                "s_endpgm",
                "2",
                "0x10",
                "2",
                "",
                "",
                "",
                "N/A"
            ],
            [
                "2",
                "101",
                "N/A",
                "v_add_f32 v1",
                "2",
                "0x108",
                "1",
                "0",
                "1",
                "[('BARRIER_WAIT', 1)]",
                "scale"
            ],
        ],
        "{text}"
    );
    // Kernels come from the same files, where there are no counters.
    assert!(
        text.contains("vadd(float*)") && text.contains("│     4 │"),
        "{text}"
    );
    let offsets = |words: &[&str]| -> Vec<String> {
        let text = shown(here, &[&["-b", "21"], words].concat());
        rows(&text).into_iter().map(|row| row[5].clone()).collect()
    };
    assert_eq!(
        offsets(&["--pc-sampling-sorting-type", "offset"]),
        ["0x10", "0x100", "0x108"]
    );
    assert_eq!(offsets(&["--pc-sampling-rows", "1"]), ["0x100"]);
    assert_eq!(offsets(&["--pc-sampling-rows", "0"]).len(), 3);
    // The longest kernel is the one that ran four times: 1 * 100 + 2 * 100 twice.
    assert_eq!(offsets(&["-k", "0"]), ["0x100"]);
    assert_eq!(offsets(&["-k", "1"]), ["0x108"]);
}

#[test]
fn the_database_and_its_views_have_them() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    directory(&here.join("w"));
    shown(here, &["--output-format", "db", "--output-name", "x"]);
    let database = Connection::open(here.join("x.db")).unwrap();
    let question = "SELECT pid, kernel_name, offset, instruction_type, source, count, issue_count, stall_count, stall_reason \
                    FROM compute_pc_sampling_summary_view ORDER BY pid, offset";
    let mut statement = database.prepare(question).unwrap();
    type Found = (
        i64,
        Option<String>,
        i64,
        Option<String>,
        Option<String>,
        i64,
        Option<i64>,
        Option<i64>,
        Option<String>,
    );
    let found: Vec<Found> = statement
        .query_map([], |row| {
            Ok((
                row.get(0)?,
                row.get(1)?,
                row.get(2)?,
                row.get(3)?,
                row.get(4)?,
                row.get(5)?,
                row.get(6)?,
                row.get(7)?,
                row.get(8)?,
            ))
        })
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        found,
        [
            (
                20,
                None,
                16,
                None,
                text("/src/a.hip:12"),
                2,
                None,
                None,
                None
            ),
            (
                101,
                text("vadd(float*)"),
                256,
                text("VALU"),
                text("/src/a.hip:3 -> /src/b.hip:9"),
                4,
                Some(1),
                Some(3),
                text("{\"WAITCNT\":2,\"NONE\":1}")
            ),
            (
                101,
                text("scale"),
                264,
                text("VALU"),
                None,
                1,
                Some(0),
                Some(1),
                text("{\"BARRIER_WAIT\":1}")
            ),
        ]
    );
    let bases: Vec<(i64, i64)> = database
        .prepare("SELECT pid, load_base FROM compute_code_object_store ORDER BY pid")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(bases, [(20, 4096), (101, 4096)]);

    shown(here, &["--output-format", "csv", "--output-name", "y"]);
    for name in [
        "kernel",
        "kernel_metric",
        "pc_sampling_summary",
        "source_lines",
        "workload_metric",
    ] {
        assert!(here.join(format!("y/{name}.csv")).is_file(), "{name}");
    }
    let kernels = fs::read_to_string(here.join("y/kernel.csv")).unwrap();
    let line = kernels
        .lines()
        .find(|line| line.contains("vadd(float*)"))
        .unwrap();
    let kernel = line.split(',').next().unwrap();
    let file =
        format!("y/per_kernel_pc_sampling/w/w/kernel_{kernel}/isa_code_object_id_2_pid_101.csv");
    assert_eq!(
        fs::read_to_string(here.join(file)).unwrap(),
        "Instruction line number,Code object offset,Instruction line,Total count,Active count,Stall count,Wave occupancy percent,\
         Active thread percent,Stall NONE,Stall WAITCNT,Stall BARRIER_WAIT,Source,Code object id,Pid\n\
         1,256,s_load_dword s8,4,1,3,,,1,2,,/src/a.hip:3 -> /src/b.hip:9,2,101\n"
    );
}

#[test]
fn files_of_samples_are_not_believed() {
    let temporary = tempfile::tempdir().unwrap();
    let here = temporary.path();
    let dir = here.join("w");
    directory(&dir);
    let file = dir.join("101_ps_file_results.json");
    let good = fs::read_to_string(&file).unwrap();
    let deep = format!("{{\"rocprofiler-sdk-tool\":{}", "[".repeat(100_000));
    for (text, what) in [
        (&good[..good.len() / 2], "damaged or incomplete"),
        ("", "damaged or incomplete"),
        ("{}", "damaged or incomplete"),
        (&deep, "damaged or incomplete"),
        (
            &good.replace("\"pid\":101", "\"pid\":20"),
            "both of process 20",
        ),
        (
            &good.replace("\"pc_sample_stochastic\":[", "\"pc_sample_stochastic\":[7,"),
            "damaged or incomplete",
        ),
    ] {
        fs::write(&file, text).unwrap();
        let output = run(here, &["analyze", "-p", "w"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(40), "{said}");
        assert!(said.contains(what), "{what}: {said}");
    }
    // Numbers without a meaning give a row without text.
    fs::write(
        &file,
        good.replace("\"inst_index\":1", "\"inst_index\":18446744073709551615"),
    )
    .unwrap();
    let text = shown(here, &["-b", "21"]);
    assert!(
        rows(&text)
            .iter()
            .any(|row| row[3] == "N/A" && row[5] == "0x108"),
        "{text}"
    );
    // A pipe is not waited for, and other names are other files.
    fs::remove_file(&file).unwrap();
    fs::write(dir.join("worker_ps_file_results.json"), "nonsense").unwrap();
    assert_eq!(rows(&shown(here, &["-b", "21"])).len(), 1);
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(run(here, &["analyze", "-p", "w"]).status.code(), Some(40));
}
