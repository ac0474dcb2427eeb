//! Every expression of every architecture can be parsed, and its value is the one that Python and
//! pandas compute (`evaluate.py`), in both forms and all units.

use midair_compute::architecture::{CHANNEL, Content, Source};
use midair_compute::evaluate::Evaluator;
use midair_compute::expression::Expression;
use midair_compute::frame::{Column, Frame, Names, field};
use midair_compute::sample::Rows;
use midair_compute::{Architecture, Form, Row, Setting};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

const ROWS: usize = 23;
const CHANNELS: u32 = 16;

/// Returns the interpreter of `cargo xtask python`.
fn python() -> PathBuf {
    let made = match std::env::var_os("MIDAIR_PYTHON") {
        Some(directory) if !directory.is_empty() => PathBuf::from(directory),
        _ => Path::new(env!("CARGO_TARGET_TMPDIR")).join("../python"),
    };
    let python = made.join("bin/python");
    assert!(
        python.is_file(),
        "{} is not there: make it with `cargo xtask python`",
        python.display()
    );
    python
}

fn names(expression: &Expression, into: &mut BTreeSet<String>) {
    match expression {
        Expression::Name(name) => {
            into.insert(name.clone());
        }
        Expression::Channel(name) => {
            into.extend((0..CHANNELS).map(|channel| format!("{name}[{channel}]")));
        }
        Expression::Number(_) | Expression::None | Expression::Variable(_) => {}
        Expression::Negative(a) => names(a, into),
        Expression::Both(a, _, b) | Expression::Compare(a, _, b) => {
            names(a, into);
            names(b, into);
        }
        Expression::If {
            then,
            condition,
            otherwise,
        } => [then, condition, otherwise]
            .into_iter()
            .for_each(|it| names(it, into)),
        Expression::Call(_, values) => values.iter().for_each(|it| names(it, into)),
    }
}

/// Returns each formula of the tables: number, column, row, text, name.
fn formulas(
    architecture: &'static Architecture,
    form: Form,
) -> Vec<(
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
)> {
    let mut all = Vec::new();
    for (_, table) in architecture.tables() {
        if table.source(form) != Source::Metrics {
            continue;
        }
        for (_, metric) in table.rows(form) {
            for cell in metric.cells {
                if let (Some(text), Content::Formula { .. }) =
                    (cell.content.formula(form), &cell.content)
                {
                    all.push((metric.id, cell.column, metric.level, text, metric.name));
                }
            }
        }
    }
    all
}

#[test]
fn every_architecture_has_its_metrics() {
    let count = |name| {
        let architecture = Architecture::named(name).unwrap();
        let tables = architecture.tables();
        tables.map(|(_, table)| table.metrics.len()).sum::<usize>()
    };
    assert_eq!(count("gfx942"), 380);
    assert_eq!(count("gfx90a"), 378);
    assert_eq!(count("gfx950"), 450);
    assert_eq!(count("gfx908"), 332);
}

#[test]
fn values_equal_those_of_pandas() {
    for architecture in Architecture::all() {
        compare(architecture);
    }
}

fn compare(architecture: &'static Architecture) {
    let mut columns: BTreeSet<String> = BTreeSet::new();
    for form in [Form::Means, Form::Sums] {
        for (id, column, level, text, _) in formulas(architecture, form) {
            let expression = Expression::parse(text);
            let expression = expression.unwrap_or_else(|e| panic!("{id} {column}: {e}: {text}"));
            names(&expression, &mut columns);
            if !level.is_empty() {
                columns.insert(format!("{level}_ACCUM"));
            }
        }
    }
    for (_, text) in architecture
        .builtins
        .iter()
        .chain(architecture.denominators)
    {
        names(&Expression::parse(text).unwrap(), &mut columns);
    }
    columns.remove(field::START);
    columns.remove(field::END);
    // Pseudo-random counts, a few of them zero, so that conditions are sometimes met and sometimes
    // not.
    let mut random = 0x1234_5678_9abc_def1_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (number, column) in columns.iter().enumerate() {
        let zero = (number % 7 == 3).then(|| next() as usize % ROWS);
        let all = (0..ROWS).map(|row| match zero == Some(row) {
            true => 0.0,
            false => (1 + next() % 1_000_000) as f64,
        });
        values.insert(column.clone(), all.collect());
    }
    let start: Vec<f64> = (0..ROWS).map(|row| row as f64 * 1e6).collect();
    let end = start
        .iter()
        .map(|start| start + 1000.0 + (next() % 100_000) as f64);
    values.insert(field::END.to_owned(), end.collect());
    values.insert(field::START.to_owned(), start);
    let mut properties: HashMap<String, f64> = [
        ("cu_per_gpu", 304.0),
        ("lds_banks_per_cu", 32.0),
        ("max_mclk", 1300.0),
        ("max_sclk", 2100.0),
        ("max_waves_per_cu", 32.0),
        ("num_hbm_channels", 128.0),
        ("num_memory_channels", 128.0),
        ("num_xcd", 8.0),
        ("pipes_per_gpu", 4.0),
        ("se_per_gpu", 32.0),
        ("simd_per_cu", 4.0),
        ("sqc_per_gpu", 160.0),
        ("total_l2_chan", 128.0),
        ("wave_size", 64.0),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();

    // Measured peaks, which tables of 2026 use.
    let units = [
        "F64Flops",
        "F32Flops",
        "F16Flops",
        "BF16Flops",
        "F8Flops",
        "I8Ops",
    ];
    let units = units.iter().map(|unit| format!("MFMA{unit}"));
    let memories = ["HBMBw", "L2Bw", "L1Bw", "LDSBw"].map(str::to_owned);
    for name in units.chain(memories) {
        properties.insert(
            format!("{name}_empirical_peak"),
            (1 + next() % 1_000_000) as f64,
        );
    }

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("given.json");
    let given = json!({"columns": values, "properties": properties, "channels": CHANNELS});
    std::fs::write(&file, given.to_string()).unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let said = Command::new(python())
        .arg(here.join("tests/evaluate.py"))
        .arg(here.join("../../../api/compute"))
        .arg(architecture.name)
        .arg(&file)
        .output()
        .unwrap();
    assert!(
        said.status.success(),
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
    let said: Value = serde_json::from_slice(&said.stdout).unwrap();

    let mut kernels = Names::default();
    let kernel = kernels.number("kernel");
    let mut frame = Frame::new(kernels, vec![kernel; ROWS]);
    for (name, values) in values {
        frame.put(&name, Column::Wide(values));
    }
    frame.classify();
    let (mut compared, mut known) = (0, 0);
    for (form, key) in [(Form::Means, "values"), (Form::Sums, "sum_form")] {
        for (unit, _) in architecture.denominators {
            let theirs = said[format!("{key} {unit}")].as_object().unwrap();
            let setting = Setting {
                architecture,
                form,
                unit,
                properties: &properties,
            };
            let mut evaluator = Evaluator::new(setting, &frame, Rows::All(ROWS));
            let mut ours: BTreeMap<String, Option<f64>> = BTreeMap::new();
            for (id, column, level, text, name) in formulas(architecture, form) {
                let channels: Vec<Option<u32>> = match name {
                    CHANNEL => (0..CHANNELS).map(Some).collect(),
                    _ => vec![None],
                };
                for channel in channels {
                    let mut key = format!("{id} {column}");
                    if let Some(channel) = channel {
                        key = format!("{key} {channel}");
                    }
                    let row = Row { level, channel };
                    if column == "expr" {
                        let spread = evaluator.spread(text, row);
                        for (q, value) in ["0", "0.25", "0.5", "0.75", "1"].into_iter().zip(spread)
                        {
                            ours.insert(format!("{key} {q}"), value.number());
                        }
                    } else {
                        ours.insert(key, evaluator.value(text, row).number());
                    }
                }
            }
            let missing: Vec<&String> = theirs
                .keys()
                .filter(|key| !ours.contains_key(*key))
                .collect();
            // The tables of 2026 lack some rows of 2025.
            assert!(
                missing.len() < 20 && (form == Form::Sums || missing.is_empty()),
                "{} {key} {unit}: without {missing:?}",
                architecture.name
            );
            for (key, ours) in ours {
                let theirs = theirs[&key].as_f64();
                let same = match (ours, theirs) {
                    (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-300),
                    (a, b) => a == b,
                };
                assert!(
                    same,
                    "{} {form:?} {unit}: {key} is {ours:?}, with pandas {theirs:?}",
                    architecture.name
                );
                compared += 1;
                known += usize::from(ours.is_some());
            }
        }
    }
    println!(
        "{}: {compared} values compared, {known} of them numbers",
        architecture.name
    );
    assert!(known * 100 > compared * 88, "{known} of {compared}");
}
