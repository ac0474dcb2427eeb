//! The words of the program, by the table in `midair-settings`.

use crate::clients::{Clients, Token, read_token};
use crate::current::{Current, Refresh};
use crate::otlp::client::Collector;
use crate::policy::Policy;
use crate::push::kept::Kept;
use crate::push::to::To;
use crate::s3::{Bucket, SCHEME};
use crate::tls::{Files, Tls};
use crate::usage::usage;
use midair_failure::Failure;
use midair_settings::{SERVE, ServeOption, duration_word};
use nix::unistd::User;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The longest time that `--longest` may name.
const LONGEST: Duration = Duration::from_secs(600);
/// The most attaches at the same time, whatever `--sessions` says.
const MOST_SESSIONS: u64 = 64;

/// How often metrics may be sent or written.
const EVERY: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

/// The most that `--always` may name.
const MOST_OVERHEAD: u32 = 50;

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// What the words ask for.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) listen: Vec<Address>,
    pub(crate) clients: Clients,
    token: Option<Arc<Token>>,
    /// TLS of connections over TCP.
    pub(crate) tls: Option<Tls>,
    pub(crate) policy: Policy,
    /// The most attaches and looks at the same time.
    pub(crate) sessions: usize,
    /// The longest recording of one request.
    pub(crate) longest: Duration,
    /// What recording all processes all the time may cost each, in percent, where that is asked for.
    pub(crate) always: Option<u32>,
    /// Where metrics are sent to, and how often.
    pub(crate) otlp: Option<(Collector, Duration)>,
    /// Where metrics are written to, and how often.
    pub(crate) push: Option<(To, Duration)>,
    /// The most MiB of one request's records, and of its answer.
    pub(crate) most_mib: u64,
}

/// The values that were given, by option.
struct Given<'a>(Vec<(&'static ServeOption, &'a str)>);

impl<'a> Given<'a> {
    fn read(words: &'a [String]) -> Result<Given<'a>, Failure> {
        let mut given: Vec<(&'static ServeOption, &str)> = Vec::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let long = word.strip_prefix("--").unwrap_or_default();
            let (long, inline) = match long.split_once('=') {
                Some((long, value)) => (long, Some(value)),
                None => (long, None),
            };
            let known = SERVE.iter().find(|option| option.long == long);
            let option = known.ok_or_else(|| {
                usage(format!("there is no option {word}")).hint("see midair serve --help")
            })?;
            let value = inline.or_else(|| words.next().map(String::as_str));
            let value = value.ok_or_else(|| usage(format!("--{long} requires a value")))?;
            if !option.many && given.iter().any(|(other, _)| other.long == long) {
                return Err(usage(format!("--{long} is given twice")));
            }
            given.push((option, value));
        }
        Ok(Given(given))
    }

    /// Returns all values of an option, or its default.
    fn all(&self, long: &str) -> Vec<&'a str> {
        let given = self.0.iter().filter(|(option, _)| option.long == long);
        let values: Vec<&str> = given.map(|(_, value)| *value).collect();
        let known = SERVE.iter().find(|option| option.long == long);
        match known.and_then(|option| option.default) {
            Some(default) if values.is_empty() => vec![default],
            _ => values,
        }
    }

    fn one(&self, long: &str) -> Option<&'a str> {
        self.all(long).first().copied()
    }

    fn number(&self, long: &str, most: u64) -> Result<u64, Failure> {
        let word = self.one(long).unwrap_or_default();
        let number = word.parse().ok();
        let fits = number.filter(|number| (1..=most).contains(number));
        fits.ok_or_else(|| usage(format!("--{long} {word} is not a number from 1 to {most}")))
    }
}

impl Options {
    /// Whether a client over TCP is known by its token or its certificate, and not by its user.
    pub(crate) fn knows_otherwise(&self) -> bool {
        self.clients.has_token() || self.tls.as_ref().is_some_and(|tls| tls.asks_clients)
    }

    /// Returns the files that are read again when they change.
    pub(crate) fn files(&self) -> Vec<Arc<dyn Refresh>> {
        let mut all: Vec<Arc<dyn Refresh>> = Vec::new();
        if let Some(token) = &self.token {
            all.push(Arc::clone(token) as Arc<dyn Refresh>);
        }
        if let Some(tls) = &self.tls {
            all.push(Arc::clone(&tls.acceptor) as Arc<dyn Refresh>);
        }
        let collector = self
            .otlp
            .as_ref()
            .and_then(|(collector, _)| collector.token());
        all.extend(collector.map(|token| Arc::clone(token) as Arc<dyn Refresh>));
        all
    }

    /// Reads the words.
    ///
    /// # Errors
    /// [`midair_failure::Kind::Usage`] for what is not an option or a value of one, and where strangers would get in.
    pub(crate) fn parse(words: &[String]) -> Result<Options, Failure> {
        let given = Given::read(words)?;
        let listen: Vec<Address> = (given.all("listen").into_iter())
            .map(address)
            .collect::<Result<_, _>>()?;
        let token = given.one("token-file").map(Path::new);
        let token = token.map(read_again).transpose()?;
        let open =
            |address: &&Address| matches!(address, Address::Tcp(at) if !at.ip().is_loopback());
        let tls = tls(&given)?;
        let known = token.is_some() || tls.as_ref().is_some_and(|tls| tls.asks_clients);
        if !known && let Some(Address::Tcp(at)) = listen.iter().find(open) {
            return Err(usage(format!(
                "{at} can be reached from other machines, and nothing says who may ask"
            ))
            .hint("give a --token-file or a --tls-client-ca, or listen on 127.0.0.1"));
        }
        let longest = given.one("longest").unwrap_or_default();
        let longest = duration_word(longest)
            .filter(|time| (Duration::from_millis(1)..=LONGEST).contains(time))
            .ok_or_else(|| usage(format!("--longest {longest} is not a time of at most 10m")))?;
        let hosts = given.all("host").into_iter();
        Ok(Options {
            listen,
            clients: Clients::new(
                token.clone(),
                users(&given.all("client-user"))?,
                hosts.map(str::to_ascii_lowercase).collect(),
                tls.is_some(),
            ),
            token,
            tls,
            policy: Policy::new(
                users(&given.all("only-user"))?,
                &given.all("only-cgroup"),
                &given.all("only-name"),
            )?,
            sessions: given.number("sessions", MOST_SESSIONS)? as usize,
            longest,
            always: given.one("always").map(percent).transpose()?,
            otlp: otlp(&given)?,
            push: push(&given)?,
            most_mib: given.number("most-mib", 1 << 20)?,
        })
    }
}

fn percent(word: &str) -> Result<u32, Failure> {
    let number = word.strip_suffix('%').unwrap_or(word).parse().ok();
    let fits = number.filter(|number| (1..=MOST_OVERHEAD).contains(number));
    fits.ok_or_else(|| {
        usage(format!(
            "--always {word} is not a percentage from 1% to {MOST_OVERHEAD}%"
        ))
    })
}

/// Reads the token of `--token-file`, now and when it changes.
fn read_again(file: &Path) -> Result<Arc<Token>, Failure> {
    let path = file.to_owned();
    let read = move || read_token("--token-file", &path);
    Current::new(&[Some(file)], read).map(Arc::new)
}

fn tls(given: &Given<'_>) -> Result<Option<Tls>, Failure> {
    let path = |option: &str| given.one(option).map(PathBuf::from);
    let (ca, crl) = (path("tls-client-ca"), path("tls-client-crl"));
    if crl.is_some() && ca.is_none() {
        return Err(usage(
            "--tls-client-crl requires --tls-client-ca".to_owned(),
        ));
    }
    match (path("tls-cert"), path("tls-key"), &ca) {
        (None, None, None) => Ok(None),
        (Some(cert), Some(key), _) => Tls::new(Files { cert, key, ca, crl }).map(Some),
        _ => Err(usage("TLS requires --tls-cert and --tls-key".to_owned())),
    }
}

fn push(given: &Given<'_>) -> Result<Option<(To, Duration)>, Failure> {
    let every = every(given, "push-every")?;
    let (keep, endpoint) = (given.one("push-keep"), given.one("push-endpoint"));
    let to = match given.one("push") {
        Some(word) => match word.strip_prefix(SCHEME) {
            Some(address) => {
                let bucket = Bucket::new(address, endpoint)?;
                let kept = Kept::new(keep.map(Path::new))?;
                return Ok(Some((To::Bucket(Arc::new((bucket, kept))), every)));
            }
            None => Some(To::Directory(PathBuf::from(word))),
        },
        None => None,
    };
    match keep.or(endpoint) {
        None => Ok(to.map(|to| (to, every))),
        Some(_) => Err(usage(
            "--push-keep and --push-endpoint require --push s3://BUCKET".to_owned(),
        )),
    }
}

/// Reads how often something happens.
fn every(given: &Given<'_>, option: &str) -> Result<Duration, Failure> {
    let word = given.one(option).unwrap_or_default();
    let time = duration_word(word).filter(|time| EVERY.contains(time));
    time.ok_or_else(|| usage(format!("--{option} {word} is not a time from 1s to 1h")))
}

fn otlp(given: &Given<'_>) -> Result<Option<(Collector, Duration)>, Failure> {
    let every = every(given, "otlp-every")?;
    let token = given.one("otlp-token-file").map(Path::new);
    match (given.one("otlp"), token) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err(usage("--otlp-token-file requires --otlp".to_owned())),
        (Some(url), token) => {
            let ca = given.one("otlp-ca").map(Path::new);
            Ok(Some((Collector::new(url, token, ca)?, every)))
        }
    }
}

fn address(word: &str) -> Result<Address, Failure> {
    if let Some(path) = word.strip_prefix("unix:") {
        let path = PathBuf::from(path);
        return match path.is_absolute() {
            true => Ok(Address::Unix(path)),
            false => Err(usage(format!("--listen {word} is not an absolute path"))),
        };
    }
    word.parse().map(Address::Tcp).map_err(|_| {
        usage(format!("--listen {word} is neither IP:PORT nor unix:PATH"))
            .hint("such as 127.0.0.1:9468, [::1]:9468 or unix:/run/midair.sock")
    })
}

fn users(words: &[&str]) -> Result<Vec<u32>, Failure> {
    let number = |word: &&str| match word.parse() {
        Ok(number) => Ok(number),
        Err(_) => match User::from_name(word) {
            Ok(Some(user)) => Ok(user.uid.as_raw()),
            _ => Err(usage(format!("there is no user {word}"))),
        },
    };
    words.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&words).map_err(|failure| failure.what)
    }

    #[test]
    fn defaults_are_the_table_s_and_are_loopback() {
        let options = parse("").unwrap();
        assert_eq!(
            options.listen,
            [Address::Tcp("127.0.0.1:9468".parse().unwrap())]
        );
        assert_eq!((options.sessions, options.most_mib), (4, 256));
        assert_eq!(options.longest, Duration::from_secs(60));
    }

    #[test]
    fn words_that_mean_nothing_are_refused() {
        for (line, wanted) in [
            ("--lisen 127.0.0.1:1", "there is no option"),
            ("stray", "there is no option"),
            ("--listen", "requires a value"),
            ("--listen localhost:80", "neither IP:PORT"),
            ("--listen unix:run/x", "not an absolute path"),
            ("--sessions 0", "from 1 to 64"),
            ("--sessions 65", "from 1 to 64"),
            ("--sessions 2 --sessions 3", "given twice"),
            ("--always 0%", "a percentage"),
            ("--always 51", "a percentage"),
            ("--longest 11m", "at most 10m"),
            ("--client-user no-such-user-here", "there is no user"),
            ("--tls-cert /x", "requires --tls-cert and --tls-key"),
            ("--tls-client-ca /x", "requires --tls-cert and --tls-key"),
            ("--tls-cert /nowhere/x --tls-key /nowhere/y", "/nowhere/x"),
            ("--tls-client-crl /x", "requires --tls-client-ca"),
            ("--push s3://", "is not a bucket"),
            ("--push s3://b/../c", "is not a bucket"),
            ("--push /x --push-keep /y", "require --push s3://"),
            ("--push-endpoint http://x", "require --push s3://"),
            ("--otlp ftp://collector", "--otlp"),
            ("--otlp http://", "--otlp"),
            ("--otlp http://c/?x=1", "--otlp"),
            ("--otlp http://user@c", "--otlp"),
            ("--otlp-every 1ms", "from 1s to 1h"),
            ("--otlp-token-file /x", "requires --otlp"),
            ("--only-name (", "--only-name"),
            ("--only-cgroup kubepods", "--only-cgroup"),
            ("--token-file /nowhere/token", "/nowhere/token"),
        ] {
            let said = parse(line).unwrap_err();
            assert!(said.contains(wanted), "{line}: {said}");
        }
    }

    #[test]
    fn other_machines_get_in_with_a_token_only() {
        for open in ["0.0.0.0:80", "10.0.0.1:80", "[::]:80"] {
            let said = parse(&format!("--listen 127.0.0.1:1 --listen {open}")).unwrap_err();
            assert!(said.contains("other machines"), "{said}");
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, "0123456789abcdef\n").unwrap();
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        parse(&format!(
            "--listen 0.0.0.0:80 --token-file {}",
            file.display()
        ))
        .unwrap();
    }
}
