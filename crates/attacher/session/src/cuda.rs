//! What a request means for a CUDA process (docs/cuda.md describes it for users).

use crate::install::{Install, Tools};
use crate::request::Request;
use crate::rights;
use midair_domain::{Domain, Ranked, built, of_setting};
use midair_failure::{Failure, Kind};
use midair_procinfo::Tid;
use midair_settings::options::option;
use midair_settings::{CUPTI, Settings};

/// The remedy where there is no CUPTI.
pub(crate) const NO_CUPTI: &str = "give one with --cupti PATH (as the process sees it), or install one there: pip install \
    nvidia-cuda-cupti-cu12 for CUDA 12, nvidia-cuda-cupti for CUDA 13, or the CUDA toolkit";
/// The remedy where another profiler is active.
pub(crate) const OTHER_PROFILER: &str =
    "CUPTI serves one profiler at a time: attach again when the other one has finished";

/// Returns the domains that CUPTI provides and that can be asked for.
fn there() -> impl Iterator<Item = &'static Domain> {
    built().filter(|domain| domain.runtimes.cuda && !domain.asks().is_empty())
}

/// Returns the domains that only AMD's runtimes have, except those whose settings also ask for
/// something in a CUDA process.
fn not_there() -> impl Iterator<Item = &'static Domain> {
    built().filter(|domain| {
        let mut asks = domain.asks().iter();
        !domain.asks().is_empty()
            && asks.all(|ask| of_setting(ask.name()).all(|other| !other.runtimes.cuda))
    })
}

/// Whether a setting asks for a domain.
fn is_on(settings: &Settings, domain: &Domain) -> bool {
    let mut asks = domain.asks().iter();
    asks.any(|ask| settings.is_on(ask.name()))
}

/// A request as it applies to a CUDA process.
#[derive(Debug)]
pub(crate) struct CudaRequest {
    pub(crate) request: Request,
    /// What the user asked for by name and will not get.
    pub(crate) warnings: Vec<String>,
    /// Further information.
    pub(crate) notes: Vec<String>,
}

/// Adapts a request to the process that `tid` is a live thread of.
///
/// # Errors
/// [`Kind::Usage`] when only traces of AMD's runtimes were asked for, [`Kind::NotPermitted`] when a CUPTI was named for
/// which the caller's rights do not suffice.
pub(crate) fn request(
    request: &Request,
    tools: &Tools,
    install: &Install,
    tid: Tid,
) -> Result<CudaRequest, Failure> {
    let (settings, mut warnings, notes) = settings_for(request, tid)?;
    if *tools != install.default_tools() {
        warnings.push(
            "tool libraries work only with HIP and HSA: midair loads none into a CUDA process"
                .to_owned(),
        );
    }
    Ok(CudaRequest {
        request: Request {
            settings,
            ..request.clone()
        },
        warnings,
        notes,
    })
}

/// Returns the adapted settings, with warnings about what the user will not get, and notes.
///
/// # Errors
/// As [`request()`].
pub(crate) fn settings_for(request: &Request, tid: Tid) -> Result<Adapted, Failure> {
    may_name_cupti(&request.settings, tid)?;
    settings(request)
}

/// Returns in words what is recorded with these settings.
pub(crate) fn recorded(settings: &Settings) -> String {
    let mut on: Vec<&Domain> = there().filter(|domain| is_on(settings, domain)).collect();
    if on.is_empty() {
        // If none is on, the library in the process uses its default.
        on = there().filter(|domain| domain.usual).collect();
    }
    phrases(&on).join(", ")
}

/// Checks the rights for a CUPTI that the caller named. It is loaded with the process's rights, as
/// a tool is.
fn may_name_cupti(settings: &Settings, tid: Tid) -> Result<(), Failure> {
    let Some(path) = settings.text(CUPTI) else {
        return Ok(());
    };
    let why = match rights::exceeding(tid) {
        Ok(None) => return Ok(()),
        Ok(Some(why)) => why,
        Err(why) => format!("cannot read its privileges: {why}"),
    };
    Err(Failure::new(
        Kind::NotPermitted,
        format!("cannot load {path} there: {why}"),
    )
    .hint("omit --cupti, so that midair finds the process's own; or run this as root"))
}

/// Settings, warnings, notes.
pub(crate) type Adapted = (Settings, Vec<String>, Vec<String>);

fn settings(request: &Request) -> Result<Adapted, Failure> {
    let mut settings = request.settings.clone();
    let asked: Vec<&Domain> = not_there()
        .filter(|domain| is_on(&settings, domain))
        .collect();
    if request.asked.nothing {
        for ask in there().flat_map(Domain::asks) {
            settings.remove(ask.name());
        }
        for ask in there().filter(|domain| domain.usual).flat_map(Domain::asks) {
            settings.set(ask.name(), "1");
        }
    } else if !asked.is_empty() && !there().any(|domain| is_on(&settings, domain)) {
        return Err(Failure::new(
            Kind::Usage,
            format!(
                "process {} is a CUDA process, but only {} were requested",
                request.pid,
                words(&asked)
            ),
        )
        .hint("use --cuda-trace for CUDA calls, --kernel-trace for kernels, --memory-copy-trace for copies"));
    }
    for ask in not_there().flat_map(Domain::asks) {
        settings.remove(ask.name());
    }
    let by_name: Vec<&Domain> = not_there()
        .filter(|domain| {
            let mut named = request.asked.by_name.iter();
            named.any(|long| reaches(long, domain))
        })
        .collect();
    let (mut warnings, mut notes) = (Vec::new(), Vec::new());
    if request.asked.nothing {
        notes.push("midair records kernels and copies; add --cuda-trace for CUDA calls".to_owned());
    } else if !by_name.is_empty() {
        warnings.push(format!(
            "process {} is a CUDA process and has no {}: --cuda-trace records CUDA calls",
            request.pid,
            words(&by_name)
        ));
    } else if !asked.is_empty() {
        notes.push(format!("a CUDA process has no {}", words(&asked)));
    }
    Ok((settings, warnings, notes))
}

/// Refuses a request for a process without CUDA if it asks only for what CUDA processes have:
/// nothing would be recorded.
///
/// # Errors
/// [`Kind::Usage`].
pub(crate) fn refuse_cuda_alone(request: &Request) -> Result<(), Failure> {
    let settings = &request.settings;
    let of_amd = |domain: &&Domain| domain.runtimes.amd && !domain.asks().is_empty();
    let asked: Vec<&Domain> = there()
        .filter(|domain| {
            let mut asks = domain.asks().iter();
            let shared = asks.any(|ask| of_setting(ask.name()).any(|other| other.runtimes.amd));
            !shared && is_on(settings, domain)
        })
        .collect();
    let others = built().filter(of_amd).any(|domain| is_on(settings, domain));
    if asked.is_empty() || others || settings.asks_for_counters() {
        return Ok(());
    }
    Err(Failure::new(
        Kind::Usage,
        format!(
            "process {} is a HIP or HSA process, but only {} of CUDA were requested",
            request.pid,
            words(&asked)
        ),
    )
    .hint(
        "use --hip-trace for HIP calls, --kernel-trace for kernels, --memory-copy-trace for copies",
    ))
}

/// Whether the option with this name asks for a domain, by itself or through what it switches on.
fn reaches(long: &str, domain: &Domain) -> bool {
    option(long).is_some_and(|option| domain.asks().iter().any(|ask| option.reaches(ask.option)))
}

/// Returns the descriptions of domains, each phrase once.
fn phrases(domains: &[&Domain]) -> Vec<&'static str> {
    let mut phrases: Vec<Ranked> = domains
        .iter()
        .filter_map(|domain| domain.files.phrase)
        .collect();
    phrases.sort_by_key(|phrase| phrase.rank);
    phrases.dedup();
    phrases.into_iter().map(|phrase| phrase.name).collect()
}

/// Returns the descriptions as a part of a sentence.
fn words(domains: &[&Domain]) -> String {
    match phrases(domains).as_slice() {
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        phrases => phrases.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Requested;
    use midair_domain::Ask;
    use midair_settings::{CUDA_DRIVER_API_TRACE, CUDA_RUNTIME_API_TRACE};

    fn settings_there() -> Vec<&'static str> {
        there().flat_map(Domain::asks).map(Ask::name).collect()
    }

    fn told(on: &[&str], asked: Requested) -> Result<Adapted, Failure> {
        let settings: Settings = on.iter().map(|variable| (*variable, "1")).collect();
        settings_of(Request {
            asked,
            ..Request::new(midair_procinfo::Pid::own(), settings)
        })
    }

    fn settings_of(request: Request) -> Result<Adapted, Failure> {
        settings(&request)
    }

    #[test]
    fn what_only_cuda_has_is_refused_alone_in_a_hip_process() {
        let refused = |on: &[&str]| {
            let settings: Settings = on.iter().map(|variable| (*variable, "1")).collect();
            refuse_cuda_alone(&Request::new(midair_procinfo::Pid::own(), settings))
        };
        let failure = refused(&[CUDA_RUNTIME_API_TRACE, CUDA_DRIVER_API_TRACE]).unwrap_err();
        assert_eq!(failure.kind, Kind::Usage);
        assert!(
            failure.what.contains("is a HIP or HSA process"),
            "{failure}"
        );
        refused(&[CUDA_RUNTIME_API_TRACE, "ROCPROF_KERNEL_TRACE"]).unwrap();
        refused(&["ROCPROF_HIP_RUNTIME_API_TRACE"]).unwrap();
        refused(&[]).unwrap();
    }

    fn on(told: &Settings) -> Vec<&str> {
        told.iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn without_a_word_kernels_and_copies_are_recorded() {
        let amds = ["ROCPROF_HIP_API_TRACE", "ROCPROF_SCRATCH_MEMORY_TRACE"];
        let all = [&settings_there()[..], &amds].concat();
        let asked = Requested {
            nothing: true,
            by_name: Vec::new(),
        };
        let (settings, warnings, notes) = told(&all, asked).unwrap();
        assert_eq!(
            on(&settings),
            ["ROCPROF_KERNEL_TRACE", "ROCPROF_MEMORY_COPY_TRACE"]
        );
        assert!(warnings.is_empty() && notes.len() == 1);
        assert_eq!(recorded(&settings), "kernels, copies");
        assert_eq!(recorded(&Settings::new()), "kernels, copies");
        let calls: Settings = [(CUDA_RUNTIME_API_TRACE, "1")].into_iter().collect();
        assert_eq!(recorded(&calls), "calls");
        let calls: Settings = [(CUDA_DRIVER_API_TRACE, "1")].into_iter().collect();
        assert_eq!(recorded(&calls), "calls");
        let everything: Settings = settings_there()
            .into_iter()
            .map(|name| (name, "1"))
            .collect();
        assert_eq!(
            recorded(&everything),
            "kernels, copies, NVTX, memory, calls"
        );
    }

    #[test]
    fn what_only_amd_has_is_told_and_left_out() {
        let asked = [
            "ROCPROF_KERNEL_TRACE",
            "ROCPROF_HIP_RUNTIME_API_TRACE",
            "ROCPROF_HIP_COMPILER_API_TRACE",
            "ROCPROF_HSA_CORE_API_TRACE",
        ];
        // It was asked for by an aggregate option, so it is a note.
        let (settings, warnings, notes) = told(&asked, Requested::default()).unwrap();
        assert_eq!(on(&settings), ["ROCPROF_KERNEL_TRACE"]);
        assert!(warnings.is_empty());
        assert_eq!(
            notes,
            ["a CUDA process has no calls of HIP and calls of HSA"]
        );
        // It was asked for by name, so it is a warning.
        let by_name = Requested {
            nothing: false,
            by_name: vec!["kernel-trace", "hip-trace"],
        };
        let (_, warnings, notes) = told(&asked, by_name).unwrap();
        assert!(notes.is_empty());
        assert_eq!(warnings.len(), 1);
        assert!(
            warnings[0]
                .contains("has no calls of HIP, launches of graphs and HIP events: --cuda-trace"),
            "{warnings:?}"
        );
        let (_, warnings, notes) = told(&settings_there(), Requested::default()).unwrap();
        assert!(warnings.is_empty() && notes.is_empty());
    }

    #[test]
    fn nothing_but_what_only_amd_has_is_refused() {
        for variable in ["ROCPROF_HIP_API_TRACE", "ROCPROF_SCRATCH_MEMORY_TRACE"] {
            let failure = told(&[variable], Requested::default()).unwrap_err();
            assert_eq!(failure.kind, Kind::Usage, "{failure}");
            assert!(failure.hint.contains("--cuda-trace"));
        }
        // This is AMD's command line without any option. The library in the process then records
        // its default.
        assert!(told(&[], Requested::default()).is_ok());
    }

    #[test]
    fn a_cupti_may_be_named_for_a_process_of_equal_rights() {
        let mut settings = Settings::new();
        settings.set(CUPTI, "/x/libcupti.so.13");
        let us = midair_procinfo::Pid::own().leader();
        may_name_cupti(&settings, us).unwrap();
        // The rights of a process that does not exist are unknown.
        let failure = may_name_cupti(&settings, Tid::MAX).unwrap_err();
        assert_eq!(failure.kind, Kind::NotPermitted);
        may_name_cupti(&Settings::new(), Tid::MAX).unwrap();
    }
}
