//! Metrics as the rows of a Parquet file.

use crate::page::{Page, Sample, Value};
use crate::text::POWERS;
use midair_columns::{Column, Encoder, Field, Group, Sort};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

const fn field(name: &'static str, sort: Sort, optional: bool) -> Field {
    Field {
        name,
        sort,
        optional,
    }
}

/// The columns. `time` is ns since 1970, and `labels` an object of JSON with all labels but `pid`.
const FIELDS: [Field; 5] = [
    field("time", Sort::Time, false),
    field("metric", Sort::Text, false),
    field("pid", Sort::Number, true),
    field("labels", Sort::Text, false),
    field("value", Sort::Real, false),
];

/// The rows of a file.
#[derive(Debug, Default)]
struct Rows {
    texts: Vec<String>,
    known: HashMap<String, i64>,
    columns: [Column; FIELDS.len()],
}

impl Rows {
    fn text(&mut self, text: String) -> i64 {
        if let Some(known) = self.known.get(&text) {
            return *known;
        }
        let at = self.texts.len() as i64;
        self.texts.push(text.clone());
        self.known.insert(text, at);
        at
    }

    fn add(&mut self, time: i64, metric: &str, sample: &Sample, le: Option<f64>, value: f64) {
        let labels = sample.labels.iter();
        let mut labels: BTreeMap<&str, String> =
            labels.map(|(key, text)| (*key, text.clone())).collect();
        let pid: Option<i64> = labels.remove("pid").and_then(|pid| pid.parse().ok());
        if let Some(le) = le {
            labels.insert("le", le.to_string());
        }
        let labels = serde_json::to_string(&labels).unwrap_or_default();
        let (metric, labels) = (self.text(metric.to_owned()), self.text(labels));
        let [times, metrics, pids, all, values] = &mut self.columns;
        times.values.push(time);
        metrics.values.push(metric);
        pids.values.extend(pid);
        pids.levels.push(i16::from(pid.is_some()));
        all.values.push(labels);
        values.values.push(value.to_bits() as i64);
    }

    fn of(page: &Page, time: i64) -> Rows {
        let mut rows = Rows::default();
        for family in &page.0 {
            let name = family.sampled();
            for sample in &family.samples {
                match &sample.value {
                    Value::Number(number) => rows.add(time, &name, sample, None, *number),
                    Value::Delays(delays) => {
                        let bucket = format!("{name}_bucket");
                        for power in POWERS {
                            let (le, below) = (2_f64.powi(power), delays.up_to(power));
                            rows.add(time, &bucket, sample, Some(le), below as f64);
                        }
                        let (count, sum) = (delays.count() as f64, delays.sum() as f64 / 1e9);
                        rows.add(time, &format!("{name}_count"), sample, None, count);
                        rows.add(time, &format!("{name}_sum"), sample, None, sum);
                    }
                }
            }
        }
        rows
    }
}

/// Bytes in memory, of which the encoder has one end.
#[derive(Clone, Default)]
struct Bytes(Arc<Mutex<Vec<u8>>>);

impl Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the file with a page.
///
/// # Errors
/// What the encoder says.
pub(crate) fn encoded(page: &Page, time: i64) -> io::Result<Vec<u8>> {
    let rows = Rows::of(page, time);
    let bytes = Bytes::default();
    let mut encoder = Encoder::begin(Box::new(bytes.clone()), &FIELDS)?;
    encoder.group(&Group {
        texts: &rows.texts,
        columns: &rows.columns,
    })?;
    encoder.finish(Vec::new())?;
    let mut all = bytes.0.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(std::mem::take(&mut all))
}
