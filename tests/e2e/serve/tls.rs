//! TLS, asked by Python's: certificates for a hundred years are in the directory `tls` here.

use super::http::Server;
use midair_tests::target::{PATIENCE, Target};
use midair_tests::{Result, python, workspace};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Asks for a path by TLS 1.3, with a certificate or without one, and a token or none. Prints the status, or why there is none.
const ASK: &str = "
import http.client, json, ssl, sys
port, ca, cert, key, token = sys.argv[1:]
context = ssl.create_default_context(cafile=ca)
if cert:
    context.load_cert_chain(cert, key)
try:
    server = http.client.HTTPSConnection('127.0.0.1', int(port), context=context, timeout=20)
    server.request('GET', '/processes', headers={'Authorization': 'Bearer ' + token} if token else {})
    answer = server.getresponse()
    print(json.dumps([answer.status, server.sock.version() if server.sock else '']))
except (OSError, http.client.HTTPException) as error:
    print(json.dumps([0, type(error).__name__]))
";

fn file(name: &str) -> PathBuf {
    workspace().join("tests/e2e/serve/tls").join(name)
}

/// Asks again and again over one connection, and prints how often that was answered when it ends.
const STAY: &str = "
import http.client, ssl, sys, time
port, ca, cert, key = sys.argv[1:]
context = ssl.create_default_context(cafile=ca)
context.load_cert_chain(cert, key)
server = http.client.HTTPSConnection('127.0.0.1', int(port), context=context, timeout=20)
server.connect()
# It does not connect again.
server.auto_open = 0
print('connected', flush=True)
try:
    while True:
        server.request('GET', '/')
        assert server.getresponse().read()
        time.sleep(0.05)
except (OSError, http.client.HTTPException) as error:
    print('ended', type(error).__name__, flush=True)
";

/// Holds silent connections from so many addresses, and then asks with a token from another, as that is known.
const FLOOD: &str = "
import http.client, socket, ssl, sys
port, ca, token = sys.argv[1:]
context = ssl.create_default_context(cafile=ca)
def ask():
    server = http.client.HTTPSConnection('127.0.0.1', int(port), context=context, timeout=8)
    server.request('GET', '/', headers={'Authorization': 'Bearer ' + token})
    return server.getresponse().status
first = ask()
held = []
for number in range(2, 42):
    for _ in range(8):
        silent = socket.create_connection(('127.0.0.1', int(port)), timeout=8, source_address=(f'127.0.0.{number}', 0))
        held.append(silent)
refused = 0
for silent in held:
    silent.settimeout(0.05)
    try:
        refused += silent.recv(1) == b''
    except TimeoutError:
        pass
    except ConnectionError:
        refused += 1
print(first, ask(), len(held), refused)
";

/// Strangers that shake no hands take few places, and none of those who are known.
#[test]
fn a_flood_of_strangers_keeps_no_one_out() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let key = secret(dir.path(), "server.key")?;
    let token = dir.path().join("token");
    std::fs::write(&token, "0123456789abcdef")?;
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600))?;
    let [cert, ca] = ["server.pem", "ca.pem"].map(|name| file(name).display().to_string());
    let token = token.display().to_string();
    let server = Server::start(&[
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
        "--token-file",
        &token,
    ])?;
    let output = Command::new(python()?)
        .args([
            "-c",
            FLOOD,
            &server.address.port().to_string(),
            &ca,
            "0123456789abcdef",
        ])
        .output()?;
    let said = String::from_utf8(output.stdout)?;
    let why = String::from_utf8_lossy(&output.stderr);
    let numbers: Vec<u32> = said
        .split_whitespace()
        .map(str::parse)
        .collect::<std::result::Result<_, _>>()?;
    let [first, second, held, refused] = numbers[..] else {
        return Err(format!("{said}: {why}").into());
    };
    assert_eq!((first, second, held), (200, 200, 320), "{why}");
    // 64 wait for their deadline, as many as may.
    assert!(refused >= held - 64, "{refused}");
    server.end()
}

/// A certificate that its authority takes back lets no one in, with no restart; a connection that it has opened ends.
#[test]
fn a_certificate_on_a_list_lets_no_one_in() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let key = secret(dir.path(), "server.key")?;
    let [cert, ca] = ["server.pem", "clients-ca.pem"].map(|name| file(name).display().to_string());
    let list = dir.path().join("list");
    let lists = |name: &str| -> Result<()> {
        let new = dir.path().join("new");
        std::fs::copy(file(name), &new)?;
        Ok(std::fs::rename(new, &list)?)
    };
    lists("none.crl")?;
    let crl = list.display().to_string();
    let words = [
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
        "--tls-client-ca",
        &ca,
        "--tls-client-crl",
        &crl,
    ];
    let server = Server::start(&words)?;
    for client in ["listed", "listed-not"] {
        assert_eq!(ask(&server, client, "")?, 200, "{client}");
    }
    let mut stays = Command::new(python()?);
    stays
        .args(["-c", STAY, &server.address.port().to_string()])
        .args(["ca.pem", "listed.pem", "listed.key"].map(file));
    let mut stays = Target::spawn(stays)?;
    stays.expect("connected")?;
    lists("one.crl")?;
    stays.expect("ended")?;
    assert_eq!(ask(&server, "listed", "")?, 0);
    assert_eq!(ask(&server, "listed-not", "")?, 200);
    // A list that cannot be read changes nothing.
    lists("server.pem")?;
    server.says("there is no list of revoked certificates in it")?;
    assert_eq!(ask(&server, "listed", "")?, 0);
    assert_eq!(ask(&server, "listed-not", "")?, 200);
    server.end()
}

fn ask(server: &Server, client: &str, token: &str) -> Result<i64> {
    let (cert, key) = match client {
        "" => (PathBuf::new(), PathBuf::new()),
        name => (file(&format!("{name}.pem")), file(&format!("{name}.key"))),
    };
    let output = Command::new(python()?)
        .args(["-c", ASK, &server.address.port().to_string()])
        .args([file("ca.pem"), cert, key])
        .arg(token)
        .output()?;
    let said: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&output.stderr)))?;
    said[0].as_i64().ok_or_else(|| "no status".into())
}

/// Copies a secret to where only its owner may read it.
fn secret(directory: &Path, name: &str) -> Result<String> {
    let path = directory.join(name);
    std::fs::copy(file(name), &path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok(path.display().to_string())
}

#[test]
fn a_certificate_lets_in_and_nothing_else_does() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let key = secret(dir.path(), "server.key")?;
    let [cert, ca] = ["server.pem", "ca.pem"].map(|name| file(name).display().to_string());
    let tls = ["--tls-cert", &cert, "--tls-key", &key];
    // An address that is not loopback is opened by an authority for clients, and not by encryption alone.
    let open = ["--listen", "0.0.0.0:0"];
    let refused = [&["serve"], open.as_slice(), &tls].concat();
    let refused = midair_tests::stage::run_staged("midair", &refused, PATIENCE)?;
    assert_eq!(refused.status.code(), Some(2), "{refused}");
    let server = Server::start(&[tls.as_slice(), &["--tls-client-ca", &ca], &open].concat())?;
    assert_eq!(ask(&server, "client", "")?, 200);
    for stranger in ["", "stranger"] {
        assert_eq!(ask(&server, stranger, "")?, 0, "{stranger}");
    }
    // Text is no answer's worth.
    assert!(server.get("/processes").is_err());
    server.end()?;

    // Without that authority the token decides, encrypted.
    let token = dir.path().join("token");
    std::fs::write(&token, "0123456789abcdef")?;
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600))?;
    let token = token.display().to_string();
    let server = Server::start(&[tls.as_slice(), &["--token-file", &token], &open].concat())?;
    assert_eq!(ask(&server, "", "0123456789abcdef")?, 200);
    assert_eq!(ask(&server, "client", "")?, 401);
    server.end()?;

    // A key that others may read is none.
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o604))?;
    let refused = [&["serve"], tls.as_slice()].concat();
    let refused = midair_tests::stage::run_staged("midair", &refused, PATIENCE)?;
    assert_eq!(refused.status.code(), Some(2), "{refused}");
    Ok(())
}
