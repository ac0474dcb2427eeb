//! `midair serve`: what it answers is what the modelled GPUs did, and who may not ask gets nothing.

mod growth;
mod http;
mod kills;
mod otlp;
mod push;
mod readers;
mod s3;
mod tls;

use http::{Reply, Server, say};
use midair_tests::modellog::ModelLog;
use midair_tests::stage::workload;
use midair_tests::target::{PATIENCE, Target, until};
use midair_tests::{Result, python, workspace};
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Starts a program that works until it is ended. Its model writes a log.
fn working(log: &Path) -> Result<Target> {
    let mut command = workload(&[])?;
    command.env("MODEL_LOG", log);
    let mut target = Target::spawn(command)?;
    target.expect("iter 3")?;
    Ok(target)
}

/// Starts such a program under a name of its own, so that no other test's process is recorded.
fn named(program: &Path, log: &Path) -> Result<Target> {
    let usual = workload(&[])?;
    std::fs::copy(usual.get_program(), program)?;
    let mut command = Command::new(program);
    command.env_clear().args(usual.get_args());
    let variables = usual.get_envs();
    let variables = variables.filter_map(|(name, value)| Some((name, value?)));
    command.envs(variables).env("MODEL_LOG", log);
    let mut target = Target::spawn(command)?;
    target.expect("iter 3")?;
    Ok(target)
}

/// Returns a profile as a document.
fn profile(profile: &[u8]) -> Result<Value> {
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("gpu.pb.gz");
    std::fs::write(&file, profile)?;
    let output = Command::new(python()?)
        .arg(workspace().join("tests/python/pprof_read.py"))
        .arg(&file)
        .output()?;
    let said: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&output.stderr)))?;
    Ok(said)
}

/// Returns the samples of a profile: launches, and frames, the kernel first.
fn samples(bytes: &[u8]) -> Result<Vec<(u64, Vec<String>)>> {
    let said = profile(bytes)?;
    let samples = said["samples"].as_array().into_iter().flatten();
    let sample = |sample: &Value| {
        let frames = sample["frames"].as_array().into_iter().flatten();
        let frames = frames.map(|frame| frame[0].as_str().unwrap_or_default().to_owned());
        let launches = sample["values"][0].as_u64().unwrap_or(0);
        (launches, frames.collect())
    };
    Ok(samples.map(sample).collect())
}

#[test]
fn answers_are_what_the_gpus_did() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let log = dir.path().join("log");
    let mut target = working(&log)?;
    let server = Server::start(&["--sessions", "1"])?;
    let pid = target.pid();

    let listed = server.get("/processes")?.document(200)?;
    let all = listed["processes"].as_array().ok_or("no processes")?;
    let ours = all.iter().find(|it| it["pid"] == pid);
    assert_eq!(ours.ok_or("not listed")?["attachable"], true);

    // The profile has no more launches than the GPUs ran meanwhile. How many it lacks depends on the time
    // that attach and detach take on a busy machine.
    let count = || -> Result<u64> { Ok(ModelLog::read(&log)?.dispatches().count() as u64) };
    let before = count()?;
    let profile = server.get(&format!("/debug/pprof/gpu?pid={pid}&seconds=1"))?;
    let ran = count()? - before;
    let samples = samples(&profile.bytes(200)?)?;
    let copies = |frames: &[String]| frames.first().is_some_and(|it| it.contains("MEMORY_COPY"));
    let kernels = samples.iter().filter(|(_, frames)| !copies(frames));
    let launches: u64 = kernels.map(|(launches, _)| launches).sum();
    assert!(
        launches > ran / 20 && launches <= ran,
        "{launches} of {ran}"
    );

    let top = server
        .get(&format!("/top/{pid}?seconds=0.6"))?
        .document(200)?;
    assert_eq!(
        (&top["schema"], &top["pid"]),
        (&"midair.top/1".into(), &pid.into())
    );
    let rate = top.pointer("/kernels/0/rate").and_then(Value::as_f64);
    assert!(rate.is_some_and(|rate| rate > 0.0), "{top}");
    let events = server.get(&format!("/top/{pid}?stream=1&interval=0.25&seconds=0.6"))?;
    let text = String::from_utf8(events.bytes(200)?)?;
    let events: Vec<&str> = text.split("\n\n").filter(|it| !it.is_empty()).collect();
    assert_eq!(events.len(), 2, "{text}");
    for event in events {
        let event = event.strip_prefix("data: ").ok_or("no event")?;
        assert_eq!(serde_json::from_str::<Value>(event)?["pid"], pid);
    }

    let why = server
        .get(&format!("/why/{pid}?seconds=0.1"))?
        .document(200)?;
    assert_eq!(
        why.pointer("/pid").and_then(Value::as_i64),
        Some(pid.into()),
        "{why}"
    );

    let trace = server.get(&format!("/record/{pid}?seconds=0.3&format=json"))?;
    let trace: Value = serde_json::from_slice(&trace.bytes(200)?)?;
    assert!(trace.get("rocprofiler-sdk-tool").is_some());

    // A page that takes long on a busy machine is the next one's.
    for line in [
        "midair_serve_requests_total{kind=\"pprof\",status=\"200\"} 1",
        "midair_serve_requests_total{kind=\"top\",status=\"200\"} 2",
    ] {
        until(line, || {
            let metrics = String::from_utf8(server.get("/metrics")?.bytes(200)?)?;
            Ok(metrics.lines().any(|it| it == line))
        })?;
    }
    until("the end of the last session", || {
        let metrics = String::from_utf8(server.get("/metrics")?.bytes(200)?)?;
        Ok(metrics.contains("\nmidair_serve_sessions 0\n"))
    })?;
    target.expect("iter")?;
    server.end()
}

#[test]
fn whoever_leaves_ends_what_they_asked_for() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let log = dir.path().join("log");
    let mut target = working(&log)?;
    let mut server = Server::start(&["--sessions", "1"])?;
    let record = format!("/record/{}?seconds=60", target.pid());
    let one = server.open(&record, &[])?;
    let is = |count: &str| -> Result<bool> {
        let metrics = String::from_utf8(server.get("/metrics")?.bytes(200)?)?;
        Ok(metrics.contains(&format!("\nmidair_serve_sessions {count}\n")))
    };
    until("a session", || is("1"))?;
    // No more than so many at a time.
    let busy = server.get(&format!("/why/{}", target.pid()))?;
    assert_eq!((busy.status, busy.header("retry-after")), (503, Some("1")));
    drop(one);
    until("the end of the session", || is("0"))?;

    // The server is killed in the middle of an attach: the program goes on, to its own end.
    let one = server.open(&record, &[])?;
    until("a session", || is("1"))?;
    server.process.signal(libc::SIGKILL)?;
    until("the server's end", || Ok(!server.process.is_running()?))?;
    drop(one);
    let last = target.lines().len();
    until("iterations", || Ok(target.lines().len() > last + 3))?;
    assert!(target.is_running()?);
    Ok(())
}

#[test]
fn a_signal_ends_the_server_and_leaves_the_process_as_it_was() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut target = working(&dir.path().join("log"))?;
    let socket = dir.path().join("socket");
    let server = Server::start(&["--listen", &format!("unix:{}", socket.display())])?;
    let pid = target.pid();
    let one = server.open(&format!("/top/{pid}?stream=1&interval=0.25"), &[])?;
    until("a session", || {
        let metrics = String::from_utf8(server.get("/metrics")?.bytes(200)?)?;
        Ok(metrics.contains("\nmidair_serve_sessions 1\n"))
    })?;
    let by_socket = http::by_socket(&socket, "/")?;
    assert_eq!(by_socket.status, 200);
    server.end()?;
    drop(one);
    assert!(!socket.exists(), "the socket is left");
    // The session was detached from: another one starts at once.
    let server = Server::start(&[])?;
    server
        .get(&format!("/top/{pid}?seconds=0.3"))?
        .document(200)?;
    target.expect("iter")?;
    server.end()
}

#[test]
fn a_profile_of_all_processes_has_their_labels() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let names = ["served-in-two-a", "served-in-two-b"];
    let started = names.map(|name| named(&dir.path().join(name), &dir.path().join("log")));
    let targets = started.into_iter().collect::<Result<Vec<_>>>()?;
    let server = Server::start(&["--only-name", "served-in-two"])?;
    let bytes = server.get("/debug/pprof/gpu?seconds=0.5")?.bytes(200)?;
    let said = profile(&bytes)?;
    let samples = said["samples"].as_array().into_iter().flatten();
    let mut launches = std::collections::BTreeMap::new();
    for sample in samples {
        let labels = &sample["labels"];
        let key = (labels["program"].to_string(), labels["pid"].as_i64());
        *launches.entry(key).or_insert(0) += sample["values"][0].as_u64().unwrap_or(0);
    }
    let wanted = names.iter().zip(&targets);
    let wanted: Vec<_> = wanted
        .map(|(name, target)| (format!("\"{name}\""), Some(i64::from(target.pid()))))
        .collect();
    assert_eq!(launches.keys().cloned().collect::<Vec<_>>(), wanted);
    assert!(launches.values().all(|count| *count > 0), "{launches:?}");
    // One is chosen by its label, and none where none has it.
    let one = server.get("/debug/pprof/gpu?seconds=0.3&program=served-in-two-b")?;
    let said = profile(&one.bytes(200)?)?;
    let samples = said["samples"].as_array().ok_or("no samples")?;
    let programs: Vec<_> = samples.iter().map(|it| &it["labels"]["program"]).collect();
    assert!(
        !programs.is_empty() && programs.iter().all(|it| **it == "served-in-two-b"),
        "{said}"
    );
    let none = server.get("/debug/pprof/gpu?seconds=0.3&program=served-in-two-b&job=7")?;
    assert_eq!(none.status, 404);
    server.end()
}

/// A process that cannot be entered costs its own answer only.
#[test]
fn a_stopped_process_delays_no_other() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let names = ["served-not-stopped", "served-not-going"];
    let started = names.map(|name| named(&dir.path().join(name), &dir.path().join("log")));
    let [goes, stopped]: [Target; 2] = (started.into_iter())
        .collect::<Result<Vec<_>>>()?
        .try_into()
        .map_err(|_| "two programs")?;
    stopped.signal(libc::SIGSTOP)?;
    let server = Server::start(&["--always", "20%", "--only-name", "served-not"])?;
    let of = |target: &Target| format!("midair_recorded_seconds_total{{pid=\"{}\"", target.pid());
    until("bursts of one and a refusal of the other", || {
        let text = String::from_utf8(server.get("/metrics")?.bytes(200)?)?;
        let refused = sum(&text, "midair_attach_failures_total{exit_code=\"19\"}");
        assert_eq!(sum(&text, &of(&stopped)), 0.0);
        Ok(refused > 0.0 && sum(&text, &of(&goes)) > 0.0)
    })?;
    let refused = server.get(&format!("/top/{}", stopped.pid()))?;
    assert_eq!(refused.document(409)?["exit_code"], 19);
    stopped.signal(libc::SIGCONT)?;
    let path = format!("/top/{}?seconds=0.3", stopped.pid());
    server.get(&path)?.document(200)?;
    server.end()
}

/// The client in Python's package, at a unix socket.
#[test]
fn python_asks_at_a_socket() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let target = named(
        &dir.path().join("served-to-python"),
        &dir.path().join("log"),
    )?;
    let socket = format!("unix:{}", dir.path().join("socket").display());
    let server = Server::start(&["--listen", &socket, "--only-name", "served-to-python"])?;
    let output = Command::new(python()?)
        .arg(workspace().join("tests/python/serve_client.py"))
        .arg(midair_tests::stage::stage()?.join("lib/python3/site-packages"))
        .args([&socket, &target.pid().to_string()])
        .arg(dir.path())
        .output()?;
    let said: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&output.stderr)))?;
    let pid = target.pid();
    assert_eq!(said["pids"], serde_json::json!([pid]));
    assert_eq!(said["follow"], serde_json::json!([pid, pid]));
    assert_eq!(
        (&said["top"], &said["why"]),
        (&"midair.top/1".into(), &pid.into())
    );
    // The first bytes of what gzip has packed.
    assert_eq!(said["profile"], "1f8b");
    assert!(
        said["record"].as_u64() > Some(1000) && said["metrics"] == true,
        "{said}"
    );
    assert_eq!(
        (&said["refused"][0], &said["refused"][1]),
        (&404.into(), &10.into())
    );
    server.end()
}

/// The chart asks for no more than the DaemonSet, as helm renders it.
#[test]
fn the_chart_has_the_rights_of_the_daemon_set() -> Result<()> {
    let examples = workspace().join("examples/serve");
    let output = Command::new(python()?)
        .arg(workspace().join("tests/python/helm_chart.py"))
        .args([
            examples.join("helm/midair-serve"),
            examples.join("kubernetes.yaml"),
        ])
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let why = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        said.trim(),
        "DaemonSet NetworkPolicy ServiceAccount",
        "{why}"
    );
    Ok(())
}

/// Returns the sum of the samples with this start.
fn sum(metrics: &str, start: &str) -> f64 {
    let lines = metrics.lines().filter(|line| line.starts_with(start));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum()
}

#[test]
fn what_is_always_recorded_is_what_the_gpus_did() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let log = dir.path().join("log");
    let mut target = named(&dir.path().join("served-by-one"), &log)?;
    let server = Server::start(&["--always", "20%", "--only-name", "served-by-one"])?;
    let pid = target.pid();
    let of = |family: &str| format!("midair_{family}{{pid=\"{pid}\"");
    let metrics =
        || -> Result<String> { Ok(String::from_utf8(server.get("/metrics")?.bytes(200)?)?) };
    let recorded = |text: &str| sum(text, &of("recorded_seconds_total"));
    until("a second of bursts", || Ok(recorded(&metrics()?) > 1.0))?;
    let text = metrics()?;
    assert!(text.contains("program=\"served-by-one\""), "{text}");
    assert_eq!(sum(&text, &of("lost_records_total")), 0.0);
    // Each moment of a burst has one state on each GPU.
    for gpu in ["0", "1"] {
        let states = format!("{},gpu=\"{gpu}\"", of("gpu_time_seconds_total"));
        let all = sum(&text, &states);
        assert!((all - recorded(&text)).abs() < 1e-6, "{all}: {text}");
    }
    // The log has the same mean time of a kernel, and about as many kernels in a second.
    let log = ModelLog::read(&log)?;
    let ran: Vec<_> = log.dispatches().collect();
    let times: Vec<f64> = (ran.iter().map(|it| it.packet.end - it.packet.start))
        .map(|ns| ns as f64 / 1e9)
        .collect();
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    let kernels = sum(&text, &of("kernels_total"));
    let shown = sum(&text, &of("kernel_seconds_total")) / kernels;
    assert!((shown / mean - 1.0).abs() < 0.2, "{shown}, not {mean}");
    let first = ran.iter().map(|it| it.packet.start).min().ok_or("no log")?;
    let last = ran.iter().map(|it| it.packet.end).max().ok_or("no log")?;
    let rate = ran.len() as f64 / ((last - first) as f64 / 1e9);
    let shown = kernels / recorded(&text);
    assert!((0.5..2.0).contains(&(shown / rate)), "{shown}, not {rate}");

    // A request has the process for itself, and afterwards its turn goes on from the same sums.
    server
        .get(&format!("/top/{pid}?seconds=0.3"))?
        .document(200)?;
    let before = recorded(&text);
    until("the next turn", || Ok(recorded(&metrics()?) > before + 0.2))?;
    server.end()?;
    // Nothing is left of it.
    let server = Server::start(&[])?;
    server
        .get(&format!("/top/{pid}?seconds=0.3"))?
        .document(200)?;
    target.expect("iter")?;
    server.end()
}

/// Attacks: whoever may not ask, or asks for what is not theirs to ask for, gets nothing.
#[test]
fn strangers_and_tricks_get_nothing() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let target = working(&dir.path().join("log"))?;
    let server = Server::start(&["--only-name", "no-such-program", "--host", "gpu7"])?;
    let pid = target.pid();

    // Processes that the policy does not name are as if they were not there.
    for path in [
        format!("/top/{pid}"),
        format!("/why/{pid}"),
        format!("/debug/pprof/gpu?pid={pid}"),
        format!("/record/{}", std::process::id()),
        "/why/1".to_owned(),
    ] {
        let refused = server.get(&path)?.document(404)?;
        assert_eq!(refused["exit_code"], 10, "{path}: {refused}");
    }
    let listed = server.get("/processes")?.document(200)?;
    assert_eq!(listed["processes"], Value::Array(Vec::new()));

    // A page of another site that reaches this machine by a name of its own, or from its own address.
    let host = server.address.to_string();
    for headers in [
        ["Host: evil.example", ""],
        ["Host: 0.0.0.0:9468", ""],
        ["Host: localhost.evil.example", ""],
        [&format!("Host: {host}"), "Origin: http://evil.example"],
        [&format!("Host: {host}"), "Sec-Fetch-Site: cross-site"],
    ] {
        assert_eq!(
            server.with("/processes", &headers)?.status,
            403,
            "{headers:?}"
        );
    }
    assert_eq!(server.with("/metrics", &["Host: gpu7:9468"])?.status, 200);

    for (request, wanted) in [
        ("GET /../../etc/passwd HTTP/1.1", 404),
        ("GET /%2e%2e/metrics HTTP/1.1", 404),
        ("GET http://evil.example/metrics HTTP/1.1", 400),
        ("POST /metrics HTTP/1.1", 405),
        ("GET /metrics HTTP/1.1\r\nContent-Length: 99999999999", 400),
        ("GET /record/1?format=../../x HTTP/1.1", 400),
        (&format!("GET /metrics?{} HTTP/1.1", "a".repeat(4000)), 414),
        ("nonsense", 400),
    ] {
        let reply = say(
            server.address,
            &format!("{request}\r\nHost: {host}\r\nConnection: close\r\n\r\n"),
        )?;
        assert_eq!(reply.status, wanted, "{request}");
    }
    let long = format!(
        "GET /metrics HTTP/1.1\r\nHost: {host}\r\nX: {}",
        "x".repeat(1 << 20)
    );
    assert!(say(server.address, &long).is_ok_and(|it| it.status == 431));

    // Another user of this machine, whom the kernel names.
    // SAFETY: the call only returns a number.
    if unsafe { libc::geteuid() } == 0 {
        let text = "exec 3<>/dev/tcp/127.0.0.1/$0; printf 'GET /metrics HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' >&3; head -n 1 <&3";
        let ask = |uid: u32| -> Result<String> {
            let port = server.address.port().to_string();
            let output = Command::new("bash")
                .args(["-c", text, &port])
                .uid(uid)
                .output()?;
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        assert_eq!(ask(65_534)?, "HTTP/1.1 403 Forbidden");
        assert_eq!(ask(0)?, "HTTP/1.1 200 OK");
    }
    server.end()
}

#[test]
fn a_token_lets_in_and_nothing_else_does() -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir()?;
    let token = dir.path().join("token");
    std::fs::write(&token, "0123456789abcdef\n")?;
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600))?;
    let token = token.to_str().ok_or("a path is text")?;
    let server = Server::start(&["--token-file", token])?;
    let address = server.address;
    let ask = |word: &str| -> Result<Reply> {
        let head = "GET /metrics HTTP/1.1\r\nConnection: close\r\nHost:";
        say(
            address,
            &format!("{head} {address}\r\n{word}\r\n\r\n").replace("\r\n\r\n\r\n", "\r\n\r\n"),
        )
    };
    assert_eq!(ask("")?.status, 401);
    assert_eq!(ask("Authorization: Bearer 0123456789abcdeg")?.status, 401);
    assert_eq!(ask("Authorization: Bearer 0123456789abcdef")?.status, 200);
    // The file is read again where it changes, and not where others may read it.
    let write = |text: &str, mode| -> Result<()> {
        let new = dir.path().join("new");
        std::fs::write(&new, text)?;
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(mode))?;
        Ok(std::fs::rename(new, token)?)
    };
    write("fedcba9876543210", 0o600)?;
    until("the new token", || {
        Ok(ask("Authorization: Bearer fedcba9876543210")?.status == 200)
    })?;
    assert_eq!(ask("Authorization: Bearer 0123456789abcdef")?.status, 401);
    write("0123456789abcdef", 0o644)?;
    server.says("others may read or replace it; what was read before stays")?;
    assert_eq!(ask("Authorization: Bearer fedcba9876543210")?.status, 200);
    server.end()?;
    // Without it nothing is opened to other machines.
    let refused =
        midair_tests::stage::run_staged("midair", &["serve", "--listen", "0.0.0.0:0"], PATIENCE)?;
    assert_eq!(refused.status.code(), Some(2), "{refused}");
    Ok(())
}
