//! A bucket of a store that speaks S3's protocol: one request puts one object, whole.

mod credentials;
mod sign;

use crate::answer::Body;
use crate::remote::Remote;
use crate::usage::usage;
use credentials::{Source, variable};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Request, StatusCode};
use midair_failure::Failure;
use sign::Put;
use std::error::Error;
use std::fmt::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::spawn_blocking;

/// How an address of a bucket starts.
pub(crate) const SCHEME: &str = "s3://";
/// How long one upload may take in all.
const PATIENCE: Duration = Duration::from_secs(60);
/// The most bytes of a prefix.
const MOST_PREFIX: usize = 512;
/// Where these clients look for a store, in this order.
const ENDPOINTS: [&str; 2] = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"];
const REGIONS: [&str; 2] = ["AWS_REGION", "AWS_DEFAULT_REGION"];
const AUTHORITY: &str = "AWS_CA_BUNDLE";

/// A bucket, and where in it.
#[derive(Debug)]
pub(crate) struct Bucket {
    remote: Remote,
    /// The bucket and the start of all names in it.
    path: String,
    region: String,
    source: Source,
}

/// Why an object is not there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotPut {
    pub(crate) why: String,
    /// When the store wants to be asked again.
    pub(crate) after: Option<Duration>,
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.remote, self.path)
    }
}

fn of_variables(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| variable(name))
}

/// Whether a name has only such characters, and as many.
fn is_name(name: &str, most: usize, others: &[u8]) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || others.contains(&byte);
    (1..=most).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Returns the bucket and the prefix of an address without its scheme.
fn path(address: &str) -> Option<String> {
    let (bucket, prefix) = address.split_once('/').unwrap_or((address, ""));
    let prefix = prefix.trim_end_matches('/');
    let is_part =
        |part: &str| is_name(part, MOST_PREFIX, b"._-=") && !part.trim_matches('.').is_empty();
    let fits = prefix.is_empty() || (prefix.len() <= MOST_PREFIX && prefix.split('/').all(is_part));
    let is_bucket =
        bucket.len() >= 3 && is_name(bucket, 63, b"._-") && bucket.trim_matches('.') == bucket;
    let separator = if prefix.is_empty() { "" } else { "/" };
    (is_bucket && fits).then(|| format!("{bucket}{separator}{prefix}"))
}

impl Bucket {
    /// Reads an address after its scheme. The rest is in variables.
    ///
    /// # Errors
    /// Where it is none, or nothing says who writes.
    pub(crate) fn new(address: &str, endpoint: Option<&str>) -> Result<Bucket, Failure> {
        let path = path(address).ok_or_else(|| {
            usage(format!("--push {SCHEME}{address} is not a bucket"))
                .hint("such as s3://metrics/midair")
        })?;
        let region = of_variables(&REGIONS).unwrap_or_else(|| "us-east-1".to_owned());
        if !is_name(&region, 64, b"-_") {
            return Err(usage(format!("{} is not a region", REGIONS[0])));
        }
        let (from, endpoint) = match endpoint {
            Some(endpoint) => ("--push-endpoint", Some(endpoint.to_owned())),
            None => ("AWS_ENDPOINT_URL", of_variables(&ENDPOINTS)),
        };
        let usual = || format!("https://s3.{region}.amazonaws.com");
        let ca = variable(AUTHORITY);
        let ca = (AUTHORITY, ca.as_deref().map(Path::new));
        Ok(Bucket {
            remote: Remote::new(from, &endpoint.unwrap_or_else(usual), ca)?,
            path,
            region,
            source: Source::find(variable)?,
        })
    }

    /// Puts an object, once. Its name has parts with slashes between them.
    pub(crate) async fn put(&self, name: &str, bytes: Bytes) -> Result<(), NotPut> {
        self.put_within(PATIENCE, name, bytes).await
    }

    async fn put_within(&self, time: Duration, name: &str, bytes: Bytes) -> Result<(), NotPut> {
        let sent = tokio::time::timeout(time, self.exchange(name, bytes)).await;
        sent.unwrap_or_else(|_| {
            let why = format!("no answer within {} s", time.as_secs_f64());
            Ok(Err(NotPut { why, after: None }))
        })
        .unwrap_or_else(|error| {
            let why = error.to_string();
            Err(NotPut { why, after: None })
        })
    }

    async fn exchange(
        &self,
        name: &str,
        bytes: Bytes,
    ) -> Result<Result<(), NotPut>, Box<dyn Error + Send + Sync>> {
        let source = self.source.clone();
        let by = spawn_blocking(move || source.read()).await?;
        let by = by.map_err(|failure| failure.what)?;
        let path = encoded(&format!("{}/{}/{name}", self.remote.base, self.path));
        let time = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let headers = sign::headers(
            &Put {
                region: &self.region,
                host: &self.remote.authority,
                path: &path,
                body: &bytes,
                time,
            },
            &by,
        );
        let mut request = Request::put(path)
            .header(HOST, &self.remote.authority)
            .header(CONTENT_TYPE, "application/vnd.apache.parquet")
            .header(
                USER_AGENT,
                concat!("midair-serve/", env!("CARGO_PKG_VERSION")),
            );
        for (name, value) in headers {
            let mut value = HeaderValue::try_from(value)?;
            value.set_sensitive(true);
            request = request.header(name, value);
        }
        let answer = self
            .remote
            .exchange(request.body(Body::Whole(Some(bytes)))?)
            .await?;
        if answer.status == StatusCode::OK {
            return Ok(Ok(()));
        }
        let code = code(&answer.body.unwrap_or_default());
        let why = format!("status {}{code}", answer.status.as_u16());
        let after = answer.after;
        Ok(Err(NotPut { why, after }))
    }
}

/// Returns a path as it travels.
fn encoded(path: &str) -> String {
    path.bytes().fold(String::new(), |mut text, byte| {
        let is_plain = byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
        let _ = match is_plain {
            true => text.write_char(byte.into()),
            false => write!(text, "%{byte:02X}"),
        };
        text
    })
}

/// Returns the name of an error in the body of an answer, behind a space.
fn code(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let rest = text.split_once("<Code>").map(|(_, rest)| rest);
    let code = rest
        .and_then(|rest| rest.split_once("</Code>"))
        .map(|(code, _)| code);
    let code = code.filter(|code| is_name(code, 64, b"."));
    code.map_or_else(String::new, |code| format!(" {code}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_a_name_and_a_prefix_has_no_tricks() {
        for (address, wanted) in [
            ("bucket", Some("bucket")),
            ("bucket/", Some("bucket")),
            ("my.bucket-1/a/b=c/", Some("my.bucket-1/a/b=c")),
            ("", None),
            ("ab", None),
            ("../bucket", None),
            ("bucket/../other", None),
            ("bucket//other", None),
            ("bucket/a?b", None),
            ("bucket/a b", None),
            ("user:secret@bucket", None),
            (".bucket", None),
        ] {
            assert_eq!(path(address).as_deref(), wanted, "{address}");
        }
        assert!(path(&format!("bucket/{}", "x".repeat(600))).is_none());
        assert_eq!(encoded("/b/host=a b/~x"), "/b/host%3Da%20b/~x");
    }

    #[test]
    fn an_error_of_the_store_has_its_name() {
        let body =
            b"<?xml version=\"1.0\"?><Error><Code>NoSuchBucket</Code><Message>x</Message></Error>";
        assert_eq!(code(body), " NoSuchBucket");
        for none in [
            &b""[..],
            b"<Code>",
            b"<Code>\x1b[2J</Code>",
            b"<Code></Code>",
        ] {
            assert_eq!(code(none), "");
        }
    }

    /// Puts into a store that answers with these bytes, one at a time with such a pause. Returns what it was sent, too.
    fn put(answer: &'static [u8], pause: Duration) -> (Result<(), NotPut>, String) {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let store = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut words = vec![0; 4096];
            let read = stream.read(&mut words).unwrap();
            words.truncate(read);
            for byte in answer.chunks(if pause.is_zero() { answer.len() } else { 1 }) {
                std::thread::sleep(pause);
                if stream.write_all(byte).is_err() {
                    break;
                }
            }
            String::from_utf8(words).unwrap()
        });
        let variables = |name: &str| name.starts_with("AWS_").then(|| "word".to_owned());
        let bucket = Bucket {
            remote: Remote::new("x", &format!("http://{at}/base/"), ("x", None)).unwrap(),
            path: path("bucket/prefix").unwrap(),
            region: "r".to_owned(),
            source: Source::find(variables).unwrap(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let short = Duration::from_secs(2);
        let bytes = Bytes::from_static(b"PAR1");
        let put = runtime
            .unwrap()
            .block_on(bucket.put_within(short, "host=x/f", bytes));
        (put, store.join().unwrap())
    }

    #[test]
    fn an_object_is_there_where_the_store_says_so_in_time() {
        let (done, sent) = put(
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            Duration::ZERO,
        );
        assert_eq!(done, Ok(()));
        assert!(
            sent.starts_with("PUT /base/bucket/prefix/host%3Dx/f HTTP/1.1\r\n"),
            "{sent}"
        );
        assert!(sent.contains("x-amz-security-token: word\r\n"), "{sent}");
        let busy = b"HTTP/1.1 503 X\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n";
        let (busy, _) = put(busy, Duration::ZERO);
        assert_eq!(
            busy,
            Err(NotPut {
                why: "status 503".to_owned(),
                after: Some(Duration::from_secs(7))
            })
        );
        // It is followed nowhere, and what says nothing, or says it slowly, has not taken it.
        let moved = b"HTTP/1.1 307 X\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n";
        for (answer, pause, wanted) in [
            (&moved[..], Duration::ZERO, "status 307"),
            (b"nonsense\r\n", Duration::ZERO, ""),
            (b"HTTP/1.1 ", Duration::ZERO, ""),
            (
                b"HTTP/1.1 200 OK\r\n\r\n",
                Duration::from_millis(500),
                "no answer within 2 s",
            ),
        ] {
            let why = put(answer, pause).0.unwrap_err().why;
            assert!(why.contains(wanted), "{why}");
        }
    }
}
