//! Pages in Prometheus' exposition by protocol buffers, the only one that has native histograms: neither of its texts
//! can carry them (prometheus.io/docs/instrumenting/exposition_formats; a Prometheus that is set to scrape native
//! histograms asks for this one first). The messages are `io.prometheus.client` in Prometheus'
//! client_model, as far as a page needs them.

use crate::page::{Family, Kind, Page, Sample, Value};
use midair_live::{DELAY_SCHEMA, Delays};
use prost::Message;

const COUNTER: i32 = 0;
const GAUGE: i32 = 1;
const HISTOGRAM: i32 = 4;

#[derive(Clone, PartialEq, Message)]
struct MetricFamily {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "2")]
    help: Option<String>,
    #[prost(int32, optional, tag = "3")]
    kind: Option<i32>,
    #[prost(message, repeated, tag = "4")]
    metric: Vec<Metric>,
    #[prost(string, optional, tag = "5")]
    unit: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    label: Vec<Label>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Number>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Number>,
    #[prost(message, optional, tag = "7")]
    histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, optional, tag = "1")]
    name: Option<String>,
    #[prost(string, optional, tag = "2")]
    value: Option<String>,
}

/// A counter or a gauge: both have the same field.
#[derive(Clone, PartialEq, Message)]
struct Number {
    #[prost(double, optional, tag = "1")]
    value: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(uint64, optional, tag = "1")]
    sample_count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    sample_sum: Option<f64>,
    #[prost(sint32, optional, tag = "5")]
    schema: Option<i32>,
    #[prost(double, optional, tag = "6")]
    zero_threshold: Option<f64>,
    #[prost(uint64, optional, tag = "7")]
    zero_count: Option<u64>,
    #[prost(message, repeated, tag = "12")]
    positive_span: Vec<Span>,
    /// Each count less the one before it.
    #[prost(sint64, repeated, packed = "false", tag = "13")]
    positive_delta: Vec<i64>,
}

/// So many classes that follow one another, so far behind the span before it; the first is counted from class 0.
#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(sint32, optional, tag = "1")]
    offset: Option<i32>,
    #[prost(uint32, optional, tag = "2")]
    length: Option<u32>,
}

/// Returns the page: each family with its length before it.
pub(crate) fn write(page: &Page) -> Vec<u8> {
    let mut out = Vec::new();
    // A family without a metric is an error.
    for family in page.0.iter().filter(|family| !family.samples.is_empty()) {
        out.extend(message(family).encode_length_delimited_to_vec());
    }
    out
}

fn message(family: &Family) -> MetricFamily {
    MetricFamily {
        name: Some(family.sampled()),
        help: Some(format!("{}.", family.help)),
        kind: Some(match family.kind {
            Kind::Counter => COUNTER,
            Kind::Gauge | Kind::Info => GAUGE,
            Kind::Histogram => HISTOGRAM,
        }),
        metric: family
            .samples
            .iter()
            .map(|it| metric(it, family.kind))
            .collect(),
        unit: Some(family.unit.to_owned()).filter(|unit| !unit.is_empty()),
    }
}

fn metric(sample: &Sample, kind: Kind) -> Metric {
    let labels = sample.labels.iter().map(|(key, text)| Label {
        name: Some((*key).to_owned()),
        value: Some(text.clone()),
    });
    let mut metric = Metric {
        label: labels.collect(),
        ..Metric::default()
    };
    match &sample.value {
        Value::Delays(delays) => metric.histogram = Some(histogram(delays)),
        Value::Number(number) => {
            let number = Some(Number {
                value: Some(*number),
            });
            match kind {
                Kind::Counter => metric.counter = number,
                _ => metric.gauge = number,
            }
        }
    }
    metric
}

fn histogram(delays: &Delays) -> Histogram {
    let (first, counts) = delays.classes();
    let mut before = 0;
    let deltas = counts.iter().map(|count| {
        let count = i64::try_from(*count).unwrap_or(i64::MAX);
        count - std::mem::replace(&mut before, count)
    });
    Histogram {
        sample_count: Some(delays.count()),
        sample_sum: Some(delays.sum() as f64 / 1e9),
        schema: Some(DELAY_SCHEMA),
        zero_threshold: Some(0.0),
        zero_count: Some(delays.zero()),
        positive_delta: deltas.collect(),
        // Without times it is one empty span, or else it would be a histogram without native classes.
        positive_span: vec![Span {
            offset: Some(first),
            length: Some(counts.len() as u32),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_its_families_one_after_the_other() {
        let mut page = Page::default();
        let family = page.family("midair_kernels", Kind::Counter, "", "Kernels");
        family.add(&[("pid", "42"), ("class", "gemm")], 7.0);
        page.family("midair_none", Kind::Gauge, "", "Nothing");
        let family = page.family("midair_build", Kind::Info, "", "The version");
        family.add(&[("version", "1")], 1.0);
        let times = [0, 500_000_000, 500_000_000, 600_000_000];
        let family = page.family("midair_delay_seconds", Kind::Histogram, "seconds", "Delays");
        family.add(&[], Value::Delays(Delays::from_iter(times)));
        let bytes = write(&page);
        let mut left = bytes.as_slice();
        let mut all = Vec::new();
        while !left.is_empty() {
            all.push(MetricFamily::decode_length_delimited(&mut left).unwrap());
        }
        let names: Vec<&str> = all.iter().map(MetricFamily::name).collect();
        let wanted = [
            "midair_kernels_total",
            "midair_build_info",
            "midair_delay_seconds",
        ];
        assert_eq!(names, wanted);
        let counter = &all[0].metric[0];
        assert_eq!(counter.label[1].value(), "gemm");
        assert_eq!(counter.counter.as_ref().unwrap().value(), 7.0);
        let histogram = all[2].metric[0].histogram.as_ref().unwrap();
        assert_eq!((histogram.sample_count(), histogram.zero_count()), (4, 1));
        // The class up to half a second is -8; 0.6 s is in the third one above it.
        assert_eq!(histogram.positive_span[0].offset(), -8);
        assert_eq!(histogram.positive_delta, [2, -2, 0, 1]);
        assert!((histogram.sample_sum() - 1.6).abs() < 1e-9);
    }
}
