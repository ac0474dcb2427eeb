//! The one table of the options of `midair serve`: the command line, its help, the manual page, the
//! completions, and the program that serves are made of it.

/// An option.
#[derive(Debug, Clone, Copy)]
pub struct ServeOption {
    /// Its name, without the dashes.
    pub long: &'static str,
    /// What its value is called in help.
    pub value: &'static str,
    /// Whether it may be given more than once.
    pub many: bool,
    /// Its help.
    pub help: &'static str,
    /// Its value where it is not given.
    pub default: Option<&'static str>,
}

const fn once(long: &'static str, value: &'static str, help: &'static str) -> ServeOption {
    ServeOption {
        long,
        value,
        many: false,
        help,
        default: None,
    }
}

const fn many(long: &'static str, value: &'static str, help: &'static str) -> ServeOption {
    ServeOption {
        many: true,
        ..once(long, value, help)
    }
}

const fn with(default: &'static str, option: ServeOption) -> ServeOption {
    ServeOption {
        default: Some(default),
        ..option
    }
}

/// All options.
pub const SERVE: &[ServeOption] = &[
    with(
        "127.0.0.1:9468",
        many(
            "listen",
            "ADDRESS",
            "Listen at this IP:PORT, or at unix:PATH; an address that is not loopback requires --token-file or --tls-client-ca",
        ),
    ),
    once(
        "token-file",
        "FILE",
        "Require 'Authorization: Bearer TOKEN' of every request, with the token in this file, which only its owner may read",
    ),
    once(
        "tls-cert",
        "FILE",
        "Accept connections over TCP by TLS alone, with the certificates in this file (PEM)",
    ),
    once(
        "tls-key",
        "FILE",
        "Use the private key in this file (PEM) for --tls-cert; only its owner may read it",
    ),
    once(
        "tls-client-ca",
        "FILE",
        "Require a certificate of this authority (PEM) of every client over TCP; no token is required then",
    ),
    once(
        "tls-client-crl",
        "FILE",
        "Refuse clients' certificates that are in these lists (PEM) of the authority of --tls-client-ca",
    ),
    many(
        "client-user",
        "USER",
        "Also accept local clients of this user, by name or number, besides root and the server's own user",
    ),
    many(
        "host",
        "NAME",
        "Also accept requests to this host name, besides localhost and IP addresses",
    ),
    many(
        "only-user",
        "USER",
        "Serve only processes of this user, by name or number",
    ),
    many(
        "only-cgroup",
        "PATH",
        "Serve only processes in this cgroup or below it, such as /kubepods.slice",
    ),
    many(
        "only-name",
        "REGEX",
        "Serve only processes whose command line matches",
    ),
    once(
        "always",
        "PERCENT",
        "Keep every GPU process recorded in bursts, at this cost at most, for /metrics",
    ),
    once(
        "otlp",
        "URL",
        "Send metrics, and with --always profiles, to this OpenTelemetry collector, such as http://127.0.0.1:4318",
    ),
    once(
        "otlp-ca",
        "FILE",
        "Trust this authority (PEM) for a collector at https://, instead of the system's",
    ),
    with(
        "60s",
        once("otlp-every", "TIME", "Send them this often, 1s to 1h"),
    ),
    once(
        "otlp-token-file",
        "FILE",
        "Send 'Authorization: Bearer TOKEN' to the collector, with the token in this file, which only its owner may read",
    ),
    once(
        "push",
        "WHERE",
        "Write metrics as Parquet files below this directory, or into s3://BUCKET/PREFIX, by host and day, for DuckDB and others",
    ),
    once(
        "push-endpoint",
        "URL",
        "Reach the bucket of --push at this store, instead of AWS_ENDPOINT_URL; AWS_* variables or a file of theirs have the keys",
    ),
    once(
        "push-keep",
        "DIRECTORY",
        "Keep files here until the bucket of --push has them, instead of in a temporary directory",
    ),
    with(
        "5m",
        once(
            "push-every",
            "TIME",
            "Write such a file this often, 1s to 1h",
        ),
    ),
    with(
        "4",
        once(
            "sessions",
            "NUMBER",
            "Limit attaches and looks at the same time, 1 to 64",
        ),
    ),
    with(
        "60s",
        once("longest", "TIME", "Limit what one request may record"),
    ),
    with(
        "256",
        once(
            "most-mib",
            "MIB",
            "Limit the records of one request, and its answer, in MiB",
        ),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_and_no_two_are_the_same() {
        for (at, option) in SERVE.iter().enumerate() {
            let is_word = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
            assert!(option.long.bytes().all(is_word), "{}", option.long);
            let later = SERVE.iter().skip(at + 1);
            assert!(later.clone().all(|other| other.long != option.long));
            assert!(!option.help.ends_with('.') && !option.value.is_empty());
        }
    }
}
