//! From a request to its answer.

use crate::always::Ran;
use crate::answer::{Answer, Body, answer, document, refused, text};
use crate::ask::{Ask, NotAsked};
use crate::clients::{Peer, Refused};
use crate::form::Form;
use crate::metrics::{self, Counts, Sources};
use crate::options::Options;
use crate::otlp::outbox::Exported;
use crate::page::Page;
use crate::pages::Pages;
use crate::push::pushed::Pushed;
use crate::strangers::Strangers;
use crate::work::Work;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AGE, ALLOW, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, Request, StatusCode, Version};
use midair_failure::Failure;
use std::sync::Arc;

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) options: Arc<Options>,
    pub(crate) counts: Counts,
    /// Connections whose clients have no right to ask so far.
    pub(crate) strangers: Arc<Strangers>,
    pages: Pages,
    /// What was sent to a collector, where that was asked for.
    pub(crate) exported: Option<Arc<Exported>>,
    /// What was written as files, where that was asked for.
    pub(crate) pushed: Option<Arc<Pushed>>,
    work: Work,
}

/// What there is to ask for.
const INDEX: &str = "\
/metrics                                   for Prometheus (OpenMetrics)
/processes                                 as midair ps --json
/top/PID?seconds=1                         as midair top --json; stream=1: server-sent events
/why/PID?seconds=1                         as midair why --json
/debug/pprof/gpu?pid=PID&seconds=5         the GPU's time by launch stack, for pprof; without pid of all processes, or of job=, rank=, pod=, container=, program=
/record/PID?seconds=5&format=pftrace       a recording as a file
";

impl Server {
    /// Detaches from all processes.
    pub(crate) fn end(&self) {
        if let Some(always) = self.work.always() {
            always.end();
        }
    }

    /// # Errors
    /// Where what `--always` asks for cannot start.
    pub(crate) fn new(options: Arc<Options>) -> Result<Server, Failure> {
        Ok(Server {
            work: Work::new(Arc::clone(&options))?,
            counts: Counts::new(),
            strangers: Arc::new(Strangers::new()),
            pages: Pages::default(),
            exported: options.otlp.is_some().then(Arc::default),
            pushed: options.push.is_some().then(Arc::default),
            options,
        })
    }

    /// Returns the kernels of all processes that are always recorded.
    pub(crate) fn ran(&self) -> Vec<Ran> {
        self.work.always().map_or_else(Vec::new, |it| it.ran())
    }

    /// Makes the page of metrics.
    pub(crate) fn page(&self) -> Page {
        let recorded = self.work.always().map(|always| always.shown());
        let from = Sources {
            under_way: self.work.under_way(),
            strangers: self.strangers.refused(),
            exported: self.exported.as_deref(),
            pushed: self.pushed.as_deref(),
            recorded: recorded.as_ref(),
        };
        metrics::page(&self.counts, &from)
    }
}

/// Answers a request. Its body is not read.
pub(crate) async fn route(server: &Arc<Server>, peer: Peer, request: &Request<Incoming>) -> Answer {
    let (kind, answer) = match allowed(server, peer, request) {
        Ok(ask) => {
            let accept = request.headers().get(ACCEPT);
            let accept = accept.and_then(|accept| accept.to_str().ok());
            let form = Form::accepted(accept.unwrap_or_default());
            (ask.kind(), obey(server, ask, form).await)
        }
        Err(answer) => ("none", *answer),
    };
    server.counts.answered(kind, answer.status().as_u16());
    answer
}

fn allowed(server: &Server, peer: Peer, request: &Request<Incoming>) -> Result<Ask, Box<Answer>> {
    if let Err(why) = server.options.clients.check(peer, request.headers()) {
        return Err(Box::new(forbidden(why)));
    }
    let uri = request.uri();
    if request.version() != Version::HTTP_11 && request.version() != Version::HTTP_10
        || uri.authority().is_some()
    {
        let what = "only a path can be asked for";
        return Err(Box::new(refused(StatusCode::BAD_REQUEST, what)));
    }
    if request.method() != Method::GET {
        let mut answer = refused(StatusCode::METHOD_NOT_ALLOWED, "only GET is allowed");
        answer
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET"));
        return Err(Box::new(answer));
    }
    let asked = Ask::read(uri.path(), uri.query().unwrap_or_default(), &server.options);
    asked.map_err(|why| {
        Box::new(match why {
            NotAsked::Path => refused(StatusCode::NOT_FOUND, "there is no such path; see /"),
            NotAsked::Long => refused(StatusCode::URI_TOO_LONG, "the path is too long"),
            NotAsked::Query(what) => refused(StatusCode::BAD_REQUEST, &what),
        })
    })
}

fn forbidden(why: Refused) -> Answer {
    match why {
        Refused::Token => {
            let what = "a token is required: Authorization: Bearer TOKEN";
            let mut answer = refused(StatusCode::UNAUTHORIZED, what);
            answer
                .headers_mut()
                .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            answer
        }
        Refused::User => refused(
            StatusCode::FORBIDDEN,
            "this user may not ask; see midair serve --client-user and --token-file",
        ),
        Refused::Site => refused(
            StatusCode::FORBIDDEN,
            "the request is for another host or from another site; see midair serve --host",
        ),
    }
}

async fn obey(server: &Arc<Server>, ask: Ask, form: Form) -> Answer {
    let work = &server.work;
    match ask {
        Ask::Index => text("text/plain; charset=utf-8", INDEX.to_owned()),
        Ask::Metrics => {
            let of = Arc::clone(server);
            match server.pages.get(form, move || form.write(&of.page())).await {
                None => refused(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "making the page takes too long",
                ),
                Some(made) => {
                    let page = Body::Whole(Some(made.page.clone()));
                    let mut page = answer(StatusCode::OK, form.kind(), page);
                    let age = HeaderValue::from(made.age().as_secs());
                    page.headers_mut().insert(AGE, age);
                    page
                }
            }
        }
        Ask::Processes => work.processes().await,
        Ask::Top { pid, time } => match work.top(pid, time).await {
            Ok(shown) => document(&shown),
            Err(answer) => *answer,
        },
        Ask::Follow {
            pid,
            time,
            interval,
        } => work.follow(pid, time, interval).await,
        Ask::Why { pid, time } => work.why(pid, time).await,
        Ask::Record(record) => work.record(record).await,
    }
}
