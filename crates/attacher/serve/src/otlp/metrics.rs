//! A page as a request of OTLP. Names and labels are Prometheus' ones, so that the same queries hold behind a
//! collector.

use super::messages::{
    Attribute, CUMULATIVE, Classes, Gauge, Histogram, HistogramPoint, Metric, Metrics, Point,
    Resource, ResourceMetrics, ScopeMetrics, Sum, attribute, host, scope,
};
use crate::page::{Family, Kind, Page, Sample, Value};
use midair_live::{DELAY_SCHEMA, Delays};
use prost::Message;

/// Since when sums are counted, and the present: ns since 1970.
type Times = (u64, u64);

/// Returns the request.
pub(super) fn request(page: &Page, start: u64, now: u64) -> Vec<u8> {
    let mut attributes = vec![attribute("service.name", "midair-serve")];
    attributes.extend(host());
    let families = page.0.iter().filter(|family| !family.samples.is_empty());
    let metrics = families
        .map(|family| metric(family, (start, now)))
        .collect();
    let resource = ResourceMetrics {
        resource: Some(Resource { attributes }),
        scopes: vec![ScopeMetrics {
            scope: Some(scope()),
            metrics,
        }],
    };
    Metrics {
        resources: vec![resource],
    }
    .encode_to_vec()
}

fn metric(family: &Family, times: Times) -> Metric {
    let numbers = family.samples.iter();
    let points = numbers.filter_map(|sample| match sample.value {
        Value::Number(number) => Some(point(sample, number, times)),
        Value::Delays(_) => None,
    });
    let mut metric = Metric {
        name: match family.kind {
            Kind::Info => family.sampled(),
            _ => family.name.to_owned(),
        },
        description: format!("{}.", family.help),
        unit: match family.unit {
            "seconds" => "s",
            "bytes" => "By",
            _ => "1",
        }
        .to_owned(),
        ..Metric::default()
    };
    match family.kind {
        Kind::Counter => {
            metric.sum = Some(Sum {
                points: points.collect(),
                temporality: CUMULATIVE,
                is_monotonic: true,
            });
        }
        Kind::Gauge | Kind::Info => {
            metric.gauge = Some(Gauge {
                points: points.collect(),
            });
        }
        Kind::Histogram => {
            let delays = family.samples.iter();
            let points = delays.filter_map(|sample| match &sample.value {
                Value::Delays(delays) => Some(histogram(sample, delays, times)),
                Value::Number(_) => None,
            });
            metric.histogram = Some(Histogram {
                points: points.collect(),
                temporality: CUMULATIVE,
            });
        }
    }
    metric
}

fn attributes(sample: &Sample) -> Vec<Attribute> {
    let labels = sample.labels.iter();
    labels.map(|(key, text)| attribute(key, text)).collect()
}

fn point(sample: &Sample, value: f64, (start, time): Times) -> Point {
    Point {
        start,
        time,
        value: Some(value),
        attributes: attributes(sample),
    }
}

fn histogram(sample: &Sample, delays: &Delays, (start, time): Times) -> HistogramPoint {
    let (first, counts) = delays.classes();
    HistogramPoint {
        attributes: attributes(sample),
        start,
        time,
        count: delays.count(),
        sum: Some(delays.sum() as f64 / 1e9),
        scale: DELAY_SCHEMA,
        zero: delays.zero(),
        // OTLP numbers a class by its lower bound, Prometheus by its upper one.
        positive: Some(Classes {
            offset: first - 1,
            counts: counts.to_vec(),
        }),
    }
}
