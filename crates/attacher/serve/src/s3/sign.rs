//! Signs a request to S3, with the whole of its body (AWS's Signature Version 4).

use super::credentials::Credentials;
use crate::push::place::date;
use ring::digest::{SHA256, digest};
use ring::hmac;
use std::fmt::Write;
use std::time::Duration;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const SERVICE: &str = "s3";

/// What is signed.
#[derive(Debug)]
pub(super) struct Put<'a> {
    pub(super) region: &'a str,
    /// The header `Host`.
    pub(super) host: &'a str,
    /// The path as it travels, without a query.
    pub(super) path: &'a str,
    pub(super) body: &'a [u8],
    /// Since 1970.
    pub(super) time: Duration,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn hash(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

fn mac(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

/// Returns the headers to add, but for `Host`.
pub(super) fn headers(put: &Put<'_>, by: &Credentials) -> Vec<(&'static str, String)> {
    let seconds = put.time.as_secs();
    let (year, month, day) = date(seconds / 86_400);
    let day = format!("{year:04}{month:02}{day:02}");
    let of_day = seconds % 86_400;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let time = format!("{day}T{hour:02}{minute:02}{second:02}Z");
    let mut headers = vec![
        ("x-amz-content-sha256", hash(put.body)),
        ("x-amz-date", time.clone()),
    ];
    if let Some(session) = &by.session {
        headers.push(("x-amz-security-token", session.clone()));
    }
    // Both lists are in the order of names.
    let all = || [("host", put.host)].into_iter();
    let all = || all().chain(headers.iter().map(|(name, value)| (*name, value.as_str())));
    let lines: String = all()
        .map(|(name, value)| format!("{name}:{value}\n"))
        .collect();
    let names = all().map(|(name, _)| name).collect::<Vec<_>>().join(";");
    let body = hash(put.body);
    let request = format!("PUT\n{}\n\n{lines}\n{names}\n{body}", put.path);
    let scope = format!("{day}/{}/{SERVICE}/aws4_request", put.region);
    let text = format!("{ALGORITHM}\n{time}\n{scope}\n{}", hash(request.as_bytes()));
    let mut key = mac(format!("AWS4{}", by.secret).as_bytes(), &day);
    for part in [put.region, SERVICE, "aws4_request"] {
        key = mac(key.as_ref(), part);
    }
    let signature = hex(mac(key.as_ref(), &text).as_ref());
    let id = &by.id;
    let signed =
        format!("{ALGORITHM} Credential={id}/{scope},SignedHeaders={names},Signature={signature}");
    headers.push(("authorization", signed));
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by Python's `hmac` and `hashlib`; `tests/python/s3_stub.py` checks each upload of the end-to-end tests so.
    #[test]
    fn a_signature_is_that_of_another_implementation() {
        let mut by = Credentials {
            id: "AKIDEXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned(),
            session: None,
        };
        let put = Put {
            region: "eu-central-1",
            host: "127.0.0.1:9000",
            path: "/bucket/a/host%3Dx/f.parquet",
            body: b"PAR1",
            time: Duration::from_secs(1_709_210_096),
        };
        let signature = |by: &Credentials| {
            let headers = headers(&put, by);
            let (_, authorization) = headers.last().unwrap().clone();
            authorization.rsplit_once('=').unwrap().1.to_owned()
        };
        assert_eq!(headers(&put, &by)[1].1, "20240229T123456Z");
        assert_eq!(
            signature(&by),
            "696d27c5b6e6028fe8a15bb03ae3efa9641b6fbdb0d9c5698c2e31d4ca44a44d"
        );
        by.session = Some("session/token==".to_owned());
        assert_eq!(
            signature(&by),
            "7473dcc09c43a3b79321d57d5554336d4780e9e5ffde3dc074b10ffcc10911dc"
        );
    }
}
