//! Flame graphs by operator, module or kernel (`--stacks-by`), of a stack as PyTorch has it: modules' calls
//! from Python, and native frames inside of them.

use crate::common::{
    agents, append, append_described, entries, golden_json, list, names, trace_of, writer,
};
use crate::html::{data, looked_at};
use crate::rocpd_rows::{header, one_kernel, plan};
use midair_output::{Format, Frames, Names, Plan, RecordWriter, Trace, write};
use midair_record::event::{
    self, Code, Header, IS_MODULE, Kernel, LaunchStack, Module, NativeCode, Stack, kind,
};
use std::path::PathBuf;

const TORCH: &str = "/venv/lib/python3.12/site-packages/torch";

/// The frames of the stack, the innermost first: library or file, name, whether it is a module.
const FRAMES: [(&str, &str, bool); 10] = [
    ("lib/libtorch_cuda.so", "at::native::launch()", false),
    (
        "lib/libtorch_cpu.so",
        "at::_ops::mm::redispatch(c10::DispatchKeySet, at::Tensor const&, at::Tensor const&)",
        false,
    ),
    ("lib/libtorch_cpu.so", "c10::Dispatcher::call()", false),
    (
        "lib/libtorch_cpu.so",
        "at::_ops::mm::call(at::Tensor const&, at::Tensor const&)",
        false,
    ),
    (
        "lib/libtorch_python.so",
        "torch::autograd::THPVariable_mm()",
        false,
    ),
    ("nn/modules/linear.py", "Linear.forward", false),
    ("nn/modules/module.py", "GPT.layers.0.attn", true),
    ("nn/modules/module.py", "Module._wrapped_call_impl", false),
    ("nn/modules/module.py", "GPT", true),
    ("train.py", "step", false),
];

fn describe(writer: &mut RecordWriter) {
    append(
        writer,
        &event::encode(
            &Stack {
                header: Header {
                    flags: event::NATIVE,
                    ..header(kind::STACK, 0)
                },
                ..Stack::default()
            },
            &[],
        ),
    );
    for (number, (file, name, is_module)) in (1..).zip(FRAMES) {
        let path = format!("{TORCH}/{file}");
        if file.contains(".so") {
            let module = Module {
                header: header(kind::MODULE, number),
                path_len: path.len() as u32,
                ..Module::default()
            };
            append(writer, &event::encode(&module, path.as_bytes()));
            let place = NativeCode {
                header: header(kind::NATIVE_CODE, number),
                module: number,
                reserved: 0,
                address: 0x1000,
            };
            append(writer, &event::encode(&place, &[]));
        }
        let flags = if is_module { IS_MODULE } else { 0 };
        let code = Code {
            header: Header {
                flags,
                ..header(kind::CODE, number)
            },
            file_len: path.len() as u32,
            name_len: name.len() as u32,
        };
        append(writer, &event::encode(&code, (path + name).as_bytes()));
    }
    let words = (1..=FRAMES.len() as u32).flat_map(|number| [number, 7]);
    let stack = Stack {
        header: header(kind::STACK, 1),
        frames: FRAMES.len() as u32,
        is_cut: 0,
    };
    let words: Vec<u8> = words.flat_map(u32::to_ne_bytes).collect();
    append(writer, &event::encode(&stack, &words));
}

/// A session of one kernel, of 500 ns.
fn session() -> (Trace, Names) {
    let golden = golden_json();
    let mut writer = writer();
    append_described(&mut writer, &agents(), &golden);
    describe(&mut writer);
    let launch = LaunchStack {
        header: header(kind::LAUNCH_STACK, 1),
        correlation: 1,
    };
    append(&mut writer, &event::encode(&launch, &[]));
    let kernel = Kernel {
        start: 1_000_000,
        end: 1_000_500,
        correlation: 1,
        dispatch_id: 1,
        ..one_kernel()
    };
    append(&mut writer, &event::encode(&kernel, &[]));
    (trace_of(writer, &golden), names(&golden))
}

fn written(format: Format, frames: Frames) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let (trace, names) = session();
    let plan = Plan {
        frames,
        ..plan(directory.path(), &[format])
    };
    write(&trace, &names, &plan).unwrap();
    let [name] = entries(directory.path()).try_into().unwrap();
    let file = directory.path().join(name);
    (directory, file)
}

/// The frames that each choice has, the outermost first, without the kernel.
const BY: [(Frames, &[&str]); 4] = [
    (
        Frames::All,
        &[
            "step",
            "GPT",
            "Module._wrapped_call_impl",
            "GPT.layers.0.attn",
            "Linear.forward",
            "torch::autograd::THPVariable_mm()",
            "aten::mm",
            "c10::Dispatcher::call()",
            "aten::mm",
            "at::native::launch()",
        ],
    ),
    (
        Frames::Operators,
        &[
            "step",
            "GPT",
            "GPT.layers.0.attn",
            "Linear.forward",
            "aten::mm",
        ],
    ),
    (Frames::Modules, &["GPT", "GPT.layers.0.attn"]),
    (Frames::None, &[]),
];

fn bare<'n>(frames: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    frames
        .map(|frame| frame.rsplit_once(" (").map_or(frame, |(name, _)| name))
        .collect()
}

#[test]
fn stacks_have_the_frames_that_were_asked_for() {
    for (frames, wanted) in BY {
        let (_directory, file) = written(Format::Folded, frames);
        let text = std::fs::read_to_string(file).unwrap();
        let (path, time) = text.trim_end().rsplit_once(' ').unwrap();
        let all = bare(path.split(';'));
        let (kernel, all) = all.split_last().unwrap();
        assert!(kernel.starts_with("vadd"), "{text}");
        assert_eq!((all, time), (wanted, "500"), "{frames:?}");
    }
}

/// Headless Chromium shows the choice at first, and each other one.
#[test]
fn the_page_starts_with_the_choice_and_has_the_others() {
    let (_directory, file) = written(Format::Html, Frames::Modules);
    let whole = data(&file);
    assert_eq!(whole["by"], "module");
    assert_eq!(list(&whole["stacks"])[0][1].as_array().unwrap().len(), 11);
    let Some(found) = looked_at(&file) else {
        return;
    };
    let drawn = |name: &str| -> Vec<String> {
        let boxes = list(&found["flames"][name]).iter();
        let names = boxes.map(|it| it["name"].as_str().unwrap().to_owned());
        names.collect()
    };
    for (view, frames) in [
        ("by frame", Frames::All),
        ("by operator", Frames::Operators),
        ("by module", Frames::Modules),
        ("by kernel", Frames::None),
        ("GPU time", Frames::Modules),
    ] {
        let all = drawn(view);
        let all = bare(all.iter().map(String::as_str));
        let (_, wanted) = BY.iter().find(|(by, _)| *by == frames).unwrap();
        let (kernel, rest) = all.split_last().unwrap();
        assert!(kernel.starts_with("vadd"), "{view}: {all:?}");
        assert_eq!(&rest[1..], *wanted, "{view}");
    }
    let wanted = ["step", "GPT", "GPT.layers.0.attn", "Linear.forward"];
    let python = drawn("by Python");
    assert_eq!(bare(python.iter().map(String::as_str))[1..5], wanted);
}
