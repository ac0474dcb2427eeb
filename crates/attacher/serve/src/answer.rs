//! What goes back.

use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use hyper::header::{CONTENT_DISPOSITION, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use midair_failure::{Failure, Kind};
use serde_json::{Value, json};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc::Receiver;

/// JSON.
pub(crate) const JSON: &str = "application/json";

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum Body {
    /// All of it.
    Whole(Option<Bytes>),
    /// Parts from a thread, and how many bytes are left, where that is known.
    Parts(Receiver<io::Result<Bytes>>, Option<u64>),
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Body::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Body::Parts(parts, left) => {
                let part = std::task::ready!(parts.poll_recv(context));
                if let (Some(Ok(bytes)), Some(left)) = (&part, left) {
                    *left = left.saturating_sub(bytes.len() as u64);
                }
                Poll::Ready(part.map(|part| part.map(Frame::data)))
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Body::Parts(_, Some(left)) => SizeHint::with_exact(*left),
            Body::Parts(_, None) => SizeHint::default(),
        }
    }
}

/// An answer.
pub(crate) type Answer = Response<Body>;

/// Makes an answer. Nothing of it is kept by a cache, guessed at, or read by another site's page.
pub(crate) fn answer(status: StatusCode, kind: &'static str, body: Body) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in [
        ("cache-control", "no-store"),
        (
            "content-security-policy",
            "default-src 'none'; frame-ancestors 'none'",
        ),
        ("cross-origin-resource-policy", "same-origin"),
        ("x-content-type-options", "nosniff"),
    ] {
        let name = HeaderName::from_static(name);
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// Makes an answer of text.
pub(crate) fn text(kind: &'static str, text: String) -> Answer {
    answer(StatusCode::OK, kind, Body::Whole(Some(text.into())))
}

/// Makes an answer of a document.
pub(crate) fn document(document: &Value) -> Answer {
    text(JSON, format!("{document}\n"))
}

/// Makes an answer that a browser saves under this name.
pub(crate) fn file(name: &str, body: Body) -> Answer {
    let mut answer = answer(StatusCode::OK, "application/octet-stream", body);
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
        answer.headers_mut().insert(CONTENT_DISPOSITION, value);
    }
    answer
}

/// Makes the answer to what is refused.
pub(crate) fn refused(status: StatusCode, what: &str) -> Answer {
    let text = format!("{}\n", json!({ "error": what }));
    answer(status, JSON, Body::Whole(Some(text.into())))
}

/// Makes the answer to what failed.
pub(crate) fn failed(failure: &Failure) -> Answer {
    let document = json!({
        "error": failure.what,
        "hint": failure.hint,
        "exit_code": failure.kind.exit_code(),
    });
    let body = Body::Whole(Some(format!("{document}\n").into()));
    answer(status(failure.kind), JSON, body)
}

fn status(kind: Kind) -> StatusCode {
    match kind {
        Kind::Usage | Kind::NotBuilt => StatusCode::BAD_REQUEST,
        Kind::NoProcess | Kind::Zombie | Kind::KernelThread | Kind::NotGpu => StatusCode::NOT_FOUND,
        Kind::NotPermitted => StatusCode::FORBIDDEN,
        Kind::Busy | Kind::OtherProfiler | Kind::Stopped => StatusCode::CONFLICT,
        Kind::NoAnswer => StatusCode::GATEWAY_TIMEOUT,
        Kind::Full => StatusCode::INSUFFICIENT_STORAGE,
        _ => StatusCode::BAD_GATEWAY,
    }
}
