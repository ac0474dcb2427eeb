//! What a collector gets by OTLP, read with the messages of OpenTelemetry's own crate.

use super::http::Server;
use super::{named, sum};
use midair_tests::Result;
use midair_tests::modellog::ModelLog;
use midair_tests::target::{PATIENCE, until};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{metric, number_data_point};
use prost::Message;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// A request, as it came.
#[derive(Debug, Clone)]
struct Request {
    path: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

/// A collector that first has no time, and then takes everything.
struct Receiver {
    address: SocketAddr,
    all: Arc<Mutex<Vec<Request>>>,
}

impl Receiver {
    /// Refuses so many requests.
    fn start(mut busy: usize) -> Result<Receiver> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let all = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&all);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if let Ok(asked) = take(stream, busy > 0) {
                    busy = busy.saturating_sub(1);
                    kept.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(asked);
                }
            }
        });
        Ok(Receiver { address, all })
    }

    fn of(&self, path: &str) -> Vec<Request> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter(|it| it.path == path).cloned().collect()
    }

    fn metrics(&self) -> Result<Vec<ExportMetricsServiceRequest>> {
        let all = self.of("/v1/metrics");
        let all = all
            .iter()
            .map(|it| Ok(Message::decode(it.body.as_slice())?));
        all.collect()
    }

    fn profiles(&self) -> Result<Vec<ExportProfilesServiceRequest>> {
        let all = self.of("/v1development/profiles");
        let all = all
            .iter()
            .map(|it| Ok(Message::decode(it.body.as_slice())?));
        all.collect()
    }
}

fn take(mut stream: TcpStream, is_busy: bool) -> Result<Request> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut from = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    from.read_line(&mut line)?;
    let path = line.split(' ').nth(1).ok_or("no path")?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        from.read_line(&mut line)?;
        let Some((key, value)) = line.trim().split_once(": ") else {
            break;
        };
        headers.insert(key.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").ok_or("no length")?.parse()?;
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    let status = match is_busy {
        true => "503 Service Unavailable\r\nRetry-After: 0",
        false => "200 OK",
    };
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")?;
    Ok(Request {
        path,
        headers,
        body,
    })
}

fn text<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let found = attributes.iter().find(|it| it.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        any_value::Value::StringValue(text) => Some(text),
        _ => None,
    }
}

/// Returns the sum of the points of a metric that are this process's.
fn metric_sum(request: &ExportMetricsServiceRequest, name: &str, pid: &str) -> f64 {
    let resources = request.resource_metrics.iter();
    let scopes = resources.flat_map(|it| &it.scope_metrics);
    let metrics = scopes
        .flat_map(|it| &it.metrics)
        .filter(|it| it.name == name);
    let mut sum = 0.0;
    for metric in metrics {
        match metric.data.as_ref() {
            Some(metric::Data::Sum(all)) => {
                assert!(all.is_monotonic && all.aggregation_temporality == 2);
                let points = all.data_points.iter();
                for point in points.filter(|it| text(&it.attributes, "pid") == Some(pid)) {
                    assert!(point.start_time_unix_nano < point.time_unix_nano);
                    if let Some(number_data_point::Value::AsDouble(value)) = point.value {
                        sum += value;
                    }
                }
            }
            Some(metric::Data::ExponentialHistogram(all)) => {
                let points = all.data_points.iter();
                for point in points.filter(|it| text(&it.attributes, "pid") == Some(pid)) {
                    let positive = point
                        .positive
                        .as_ref()
                        .map_or(0, |it| it.bucket_counts.iter().sum());
                    assert_eq!((point.scale, point.zero_count + positive), (3, point.count));
                    sum += point.count as f64;
                }
            }
            _ => {}
        }
    }
    sum
}

/// Returns the sum of all samples of a kind, and by kernel, of all profiles so far.
fn profile_sums(all: &[ExportProfilesServiceRequest], kind: &str) -> Result<BTreeMap<String, i64>> {
    let mut sums = BTreeMap::new();
    for request in all {
        let dictionary = request.dictionary.as_ref().ok_or("no dictionary")?;
        let string = |at: i32| dictionary.string_table[at as usize].as_str();
        // The first entry of each table is the empty one.
        assert_eq!(string(0), "");
        let scopes = request
            .resource_profiles
            .iter()
            .flat_map(|it| &it.scope_profiles);
        for profile in scopes.flat_map(|it| &it.profiles) {
            assert!(profile.profile_id.len() == 16 && profile.duration_nano > 0);
            let sample_type = profile.sample_type.ok_or("no type")?;
            if string(sample_type.type_strindex) != kind {
                continue;
            }
            for sample in &profile.samples {
                let stack = &dictionary.stack_table[sample.stack_index as usize];
                let [location] = stack.location_indices.as_slice() else {
                    return Err(format!("{stack:?}").into());
                };
                let location = &dictionary.location_table[*location as usize];
                let function =
                    &dictionary.function_table[location.lines[0].function_index as usize];
                let name = string(function.system_name_strindex).to_owned();
                assert!(!name.is_empty() && !string(function.name_strindex).is_empty());
                *sums.entry(name).or_default() += sample.values[0];
            }
        }
    }
    Ok(sums)
}

#[test]
fn a_collector_gets_what_the_gpus_did() -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir()?;
    let log = dir.path().join("log");
    let target = named(&dir.path().join("served-by-otlp"), &log)?;
    let receiver = Receiver::start(1)?;
    let token = dir.path().join("token");
    std::fs::write(&token, "collector-0123456789")?;
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600))?;
    let token = token.to_str().ok_or("a path is text")?;
    let url = format!("http://{}", receiver.address);
    let only = ["--always", "20%", "--only-name", "served-by-otlp"];
    let to = [
        "--otlp",
        &url,
        "--otlp-every",
        "1s",
        "--otlp-token-file",
        token,
    ];
    let server = Server::start(&[only.as_slice(), &to].concat())?;
    let pid = target.pid().to_string();
    until("kernels", || {
        let all = receiver.metrics()?;
        let last = all.last();
        Ok(last.is_some_and(|it| metric_sum(it, "midair_kernels", &pid) > 20.0))
    })?;
    // Nothing runs any more, so that all that is asked for is of one moment.
    target.signal(libc::SIGSTOP)?;
    let page = || -> Result<String> { Ok(String::from_utf8(server.get("/metrics")?.bytes(200)?)?) };
    let of = |family: &str| format!("{family}{{pid=\"{pid}\"");
    let mut kernels = 0.0;
    until("the last profile", || {
        kernels = sum(&page()?, &of("midair_kernels_total"));
        let counted: i64 = profile_sums(&receiver.profiles()?, "kernels")?
            .values()
            .sum();
        let metrics = receiver.metrics()?;
        let last = metrics.last().ok_or("no metrics")?;
        Ok(counted as f64 == kernels && metric_sum(last, "midair_kernels", &pid) == kernels)
    })?;
    let metrics = receiver.metrics()?;
    let (last, text) = (metrics.last().ok_or("no metrics")?, page()?);
    let ns = profile_sums(&receiver.profiles()?, "gpu_time")?;
    let seconds = ns.values().sum::<i64>() as f64 / 1e9;
    for (what, shown) in [
        ("a profile", seconds),
        ("the page", sum(&text, &of("midair_kernel_seconds_total"))),
    ] {
        let sent = metric_sum(last, "midair_kernel_seconds", &pid);
        assert!((sent / shown - 1.0).abs() < 1e-6, "{what}: {sent}, {shown}");
    }
    let delays = sum(&text, &of("midair_launch_delay_seconds_count"));
    assert_eq!(
        metric_sum(last, "midair_launch_delay_seconds", &pid),
        delays
    );
    // The log has these kernels, at least as many, and their mean time.
    let log = ModelLog::read(&log)?;
    let times = log.dispatches().map(|it| it.packet.end - it.packet.start);
    let times: Vec<f64> = times.map(|ns| ns as f64 / 1e9).collect();
    assert!(kernels <= times.len() as f64, "{kernels}");
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    let shown = seconds / kernels;
    assert!((shown / mean - 1.0).abs() < 0.2, "{shown}, not {mean}");

    // The first request came twice, since the collector was busy, and that is counted.
    let all = receiver.of("/v1/metrics");
    assert_eq!(all[0].body, all[1].body);
    let again = "midair_otlp_requests_total{signal=\"metrics\",outcome=\"again\"} 1\n";
    assert!(text.contains(again), "{text}");
    let profiles = receiver.of("/v1development/profiles");
    for asked in [&all[0], &profiles[0]] {
        let get = |key: &str| asked.headers.get(key).map(String::as_str);
        assert_eq!(get("content-type"), Some("application/x-protobuf"));
        assert_eq!(get("authorization"), Some("Bearer collector-0123456789"));
    }
    let version = profiles[0].headers.get("otlp-profiles-development-version");
    assert_eq!(version.map(String::as_str), Some("1"));
    target.signal(libc::SIGCONT)?;
    server.end()
}
