//! The formats of a page, and which one a scraper prefers.

use crate::exposition;
use crate::page::Page;
use crate::text::{self, Text};
use hyper::body::Bytes;

/// The formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Text(Text),
    Protobuf,
}

impl Form {
    /// The number of formats.
    pub(crate) const ALL: usize = 3;

    /// Returns its number, below [`Form::ALL`].
    pub(crate) fn number(self) -> usize {
        match self {
            Form::Text(Text::Prometheus) => 0,
            Form::Text(Text::Open) => 1,
            Form::Protobuf => 2,
        }
    }

    /// Returns the format that this `Accept` prefers: the highest weight, or else the first. The older text is for
    /// whoever accepts none of them.
    pub(crate) fn accepted(accept: &str) -> Form {
        let mut best = (Form::Text(Text::Prometheus), 0.0);
        for range in accept.split(',') {
            let mut words = range.split(';').map(str::trim);
            let kind = words.next().unwrap_or_default().to_ascii_lowercase();
            let parameters: Vec<(&str, &str)> =
                words.filter_map(|word| word.split_once('=')).collect();
            let get = |key: &str| {
                let found = parameters
                    .iter()
                    .find(|(it, _)| it.eq_ignore_ascii_case(key));
                found.map(|(_, value)| value.trim_matches('"'))
            };
            let form = match kind.as_str() {
                "application/vnd.google.protobuf" => {
                    let proto = get("proto") == Some("io.prometheus.client.MetricFamily");
                    let delimited = get("encoding") == Some("delimited");
                    match proto && delimited {
                        true => Form::Protobuf,
                        false => continue,
                    }
                }
                "application/openmetrics-text" => Form::Text(Text::Open),
                "text/plain" => Form::Text(Text::Prometheus),
                _ => continue,
            };
            let weight = get("q").map_or(Some(1.0), |q| q.parse().ok());
            match weight {
                Some(weight) if weight > best.1 => best = (form, weight),
                _ => {}
            }
        }
        best.0
    }

    /// Returns the content type.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Form::Text(Text::Open) => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Form::Text(Text::Prometheus) => "text/plain; version=0.0.4; charset=utf-8",
            Form::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }

    /// Writes a page.
    pub(crate) fn write(self, page: &Page) -> Bytes {
        match self {
            Form::Text(text) => text::write(page, text).into(),
            Form::Protobuf => exposition::write(page).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scraper_gets_what_it_prefers() {
        let (open, older) = (Form::Text(Text::Open), Form::Text(Text::Prometheus));
        for (accept, wanted) in [
            ("", older),
            ("*/*", older),
            ("text/html, text/plain", older),
            ("application/openmetrics-text", open),
            // Prometheus, without and with native histograms.
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                open,
            ),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,\
                application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2",
                Form::Protobuf,
            ),
            (
                "application/vnd.google.protobuf;proto=x;encoding=delimited",
                older,
            ),
            ("text/plain;q=0.1,application/openmetrics-text;q=x", older),
        ] {
            assert_eq!(Form::accepted(accept), wanted, "{accept}");
        }
    }
}
