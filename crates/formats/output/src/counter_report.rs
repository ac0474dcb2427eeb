//! What is shown of counters at the end of `midair attach`: tables for people, and the same as
//! fields of the JSON document ([`Screen::json`](crate::Screen::json)).

use crate::counter_table;
use crate::device_table;
use crate::gpu;
use crate::job::Job;
use crate::model::{Plan, Trace};
use crate::table::Style;
use midair_record::event::kind;
use midair_trace::api::Names;
use serde_json::{Map, Value};

/// Counters of one or more sessions.
#[derive(Debug, Clone, Default)]
pub struct CounterReport {
    /// The tables, with line ends of their own; empty where there were no counters.
    pub text: String,
    /// For each kernel, grid and workgroup what its dispatches counted.
    pub(crate) kernels: Vec<Value>,
    /// What was read from whole devices, over time.
    pub(crate) devices: Vec<Value>,
    /// What was sampled of a whole NVIDIA GPU.
    pub(crate) metrics: Vec<Value>,
}

impl CounterReport {
    /// Makes the report of a session.
    pub fn of(trace: &Trace, names: &Names, plan: &Plan, style: Style) -> CounterReport {
        let mut report = CounterReport::default();
        if trace.records.index().count_of(kind::COUNTER_COLLECTION) > 0 {
            let job = Job::new(trace, names, plan);
            if trace.counters.interval != 0 {
                let lines = device_table::lines(&job);
                report.text = device_table::text(&job, &lines, style);
                report.devices = device_table::fields(&job, &lines);
            } else {
                let rows = counter_table::rows(&job);
                report.text = counter_table::text(&job, &rows, style);
                report.kernels = counter_table::fields(&job, &rows);
            }
        }
        let samples = trace.gpu.as_ref();
        let table = gpu::gpu_table(samples, style);
        if !report.text.is_empty() && !table.is_empty() {
            report.text.push('\n');
        }
        report.text.push_str(&table);
        report.metrics = samples.map(gpu::fields).unwrap_or_default();
        let pid = trace.process.pid;
        let all = [
            &mut report.kernels,
            &mut report.devices,
            &mut report.metrics,
        ];
        for row in all.into_iter().flatten().filter_map(Value::as_object_mut) {
            row.insert("process".to_owned(), pid.into());
        }
        report
    }

    /// Adds the report of another session, whose tables come below this label.
    pub fn add(&mut self, label: &str, other: CounterReport) {
        if !other.text.is_empty() {
            self.text.push_str(&format!("\n{label}\n{}", other.text));
        }
        self.kernels.extend(other.kernels);
        self.devices.extend(other.devices);
        self.metrics.extend(other.metrics);
    }

    /// Puts the members of the JSON document, with so many kernels at most.
    pub(crate) fn put(&self, document: &mut Map<String, Value>, rows: usize) {
        let kernels: Vec<Value> = self.kernels.iter().take(rows).cloned().collect();
        let left_out = self.kernels.len() - kernels.len();
        let members = [
            ("counters", self.text.lines().collect::<Vec<_>>().into()),
            ("kernel_counters", Value::Array(kernels)),
            ("kernel_counters_left_out", left_out.into()),
            ("device_counters", Value::Array(self.devices.clone())),
            ("gpu_metrics", Value::Array(self.metrics.clone())),
        ];
        for (name, value) in members {
            document.insert(name.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reports_of_several_sessions_come_one_below_the_other() {
        let of = |text: &str, number: u64| CounterReport {
            text: text.to_owned(),
            kernels: vec![json!(number), json!(number + 1)],
            devices: vec![json!(number + 2)],
            metrics: vec![json!(number + 3)],
        };
        let mut report = of("first\n", 10);
        report.add("process 2", of("second\n", 20));
        // One that has no tables gets no label.
        report.add("process 3", of("", 30));
        let mut document = Map::new();
        report.put(&mut document, 5);
        assert_eq!(
            Value::Object(document),
            json!({
                "counters": ["first", "", "process 2", "second"],
                "kernel_counters": [10, 11, 20, 21, 30],
                "kernel_counters_left_out": 1,
                "device_counters": [12, 22, 32],
                "gpu_metrics": [13, 23, 33],
            })
        );
    }
}
