//! What a request means for a CUDA process: one table of what there is (docs/cuda.md has it for people).

use crate::install::{Install, Tools};
use crate::request::Request;
use crate::rights;
use midair_failure::{Failure, Kind};
use midair_procinfo::Tid;
use midair_settings::{CUDA_DRIVER_API_TRACE, CUDA_RUNTIME_API_TRACE, CUPTI, Settings};

/// The remedy where there is no CUPTI.
pub(crate) const NO_CUPTI: &str = "name one with --cupti PATH (as the process sees it), or install one there: pip install \
    nvidia-cuda-cupti-cu12 for CUDA 12, nvidia-cuda-cupti for CUDA 13, or the CUDA toolkit";
/// The remedy where another profiler is at work.
pub(crate) const OTHER_PROFILER: &str =
    "CUPTI serves one profiler at a time: attach again when the other one is gone";

/// What CUPTI tells.
const THERE: [&str; 6] = [
    "ROCPROF_KERNEL_TRACE",
    "ROCPROF_MEMORY_COPY_TRACE",
    "ROCPROF_MARKER_API_TRACE",
    "ROCPROF_MEMORY_ALLOCATION_TRACE",
    CUDA_RUNTIME_API_TRACE,
    CUDA_DRIVER_API_TRACE,
];
/// What is recorded where nobody said what: the cheap part.
const USUAL: [&str; 2] = ["ROCPROF_KERNEL_TRACE", "ROCPROF_MEMORY_COPY_TRACE"];
/// What only AMD's runtimes have: variable, and the beginning of the options that ask for it by name.
const NOT_THERE: [(&str, &str); 7] = [
    ("ROCPROF_HIP_RUNTIME_API_TRACE", "hip-"),
    ("ROCPROF_HIP_COMPILER_API_TRACE", "hip-"),
    ("ROCPROF_HSA_CORE_API_TRACE", "hsa-"),
    ("ROCPROF_HSA_AMD_EXT_API_TRACE", "hsa-"),
    ("ROCPROF_HSA_IMAGE_EXT_API_TRACE", "hsa-"),
    ("ROCPROF_HSA_FINALIZER_EXT_API_TRACE", "hsa-"),
    ("ROCPROF_SCRATCH_MEMORY_TRACE", "scratch-"),
];

/// A request as it is carried out in a CUDA process.
#[derive(Debug)]
pub(crate) struct ForCuda {
    pub(crate) request: Request,
    /// What the user asked for in so many words, and will not get.
    pub(crate) warnings: Vec<String>,
    /// What he can know.
    pub(crate) notes: Vec<String>,
}

/// Works it out for the process that `tid` is a live thread of.
///
/// # Errors
/// [`Kind::Usage`] when all that was asked for is what only AMD's runtimes have, [`Kind::NotPermitted`] when a CUPTI was named that the
/// caller's rights do not suffice for.
pub(crate) fn request(
    request: &Request,
    tools: &Tools,
    install: &Install,
    tid: Tid,
) -> Result<ForCuda, Failure> {
    let (settings, mut warnings, notes) = settings_for(request, tid)?;
    if *tools != install.default_tools() {
        warnings.push(
            "the tool libraries that were named work with HIP and HSA: none is loaded into a CUDA process"
                .to_owned(),
        );
    }
    Ok(ForCuda {
        request: Request {
            settings,
            ..request.clone()
        },
        warnings,
        notes,
    })
}

/// The settings, what the user asked for and will not get, and what he can know.
///
/// # Errors
/// As [`request()`].
pub(crate) fn settings_for(request: &Request, tid: Tid) -> Result<Told, Failure> {
    may_name_cupti(&request.settings, tid)?;
    settings(request)
}

/// What is recorded with such settings, in words.
pub(crate) fn recorded(settings: &Settings) -> String {
    const WORDS: [&str; 5] = ["kernels", "copies", "NVTX", "memory", "calls"];
    let on: Vec<&str> = THERE
        .iter()
        .zip(WORDS)
        .filter_map(|(variable, word)| settings.is_on(variable).then_some(word))
        .collect();
    if on.is_empty() {
        // The library's own choice then.
        return WORDS[..USUAL.len()].join(", ");
    }
    on.join(", ")
}

/// A CUPTI that the caller names is loaded with the process's rights, as a tool is.
fn may_name_cupti(settings: &Settings, tid: Tid) -> Result<(), Failure> {
    let Some(path) = settings.text(CUPTI) else {
        return Ok(());
    };
    let why = match rights::exceeding(tid) {
        Ok(None) => return Ok(()),
        Ok(Some(why)) => why,
        Err(why) => format!("its rights cannot be read: {why}"),
    };
    Err(Failure::new(
        Kind::NotPermitted,
        format!("{path} may not be loaded there: {why}"),
    )
    .hint("omit --cupti: the process's own is found; or run this as root"))
}

/// Settings, warnings, notes.
pub(crate) type Told = (Settings, Vec<String>, Vec<String>);

fn settings(request: &Request) -> Result<Told, Failure> {
    let mut settings = request.settings.clone();
    let asked: Vec<(&str, &str)> = NOT_THERE
        .into_iter()
        .filter(|(variable, _)| settings.is_on(variable))
        .collect();
    if request.asked.nothing {
        for variable in THERE {
            settings.remove(variable);
        }
        for variable in USUAL {
            settings.set(variable, "1");
        }
    } else if !asked.is_empty() && !THERE.iter().any(|variable| settings.is_on(variable)) {
        return Err(Failure::new(
            Kind::Usage,
            format!(
                "process {} is a CUDA process, and only {} were asked for",
                request.pid,
                words(asked.iter().map(|(_, option)| *option))
            ),
        )
        .hint("--cuda-trace records calls of CUDA, --kernel-trace kernels, --memory-copy-trace copies"));
    }
    for (variable, _) in NOT_THERE {
        settings.remove(variable);
    }
    let by_name: Vec<&str> = NOT_THERE
        .into_iter()
        .map(|(_, option)| option)
        .filter(|option| {
            request
                .asked
                .by_name
                .iter()
                .any(|long| long.starts_with(option))
        })
        .collect();
    let (mut warnings, mut notes) = (Vec::new(), Vec::new());
    if request.asked.nothing {
        notes.push(
            "kernels and copies are recorded, to which --cuda-trace adds calls of CUDA".to_owned(),
        );
    } else if !by_name.is_empty() {
        warnings.push(format!(
            "process {} is a CUDA process, without {}: --cuda-trace records calls of CUDA",
            request.pid,
            words(by_name.into_iter())
        ));
    } else if !asked.is_empty() {
        notes.push(format!(
            "a CUDA process has no {}",
            words(asked.iter().map(|(_, option)| *option))
        ));
    }
    Ok((settings, warnings, notes))
}

/// Each group of options in words, once.
fn words<'a>(options: impl Iterator<Item = &'a str>) -> String {
    let mut said: Vec<&str> = Vec::new();
    for option in options {
        let word = match option {
            "hip-" => "calls of HIP",
            "hsa-" => "calls of HSA",
            _ => "changes of scratch memory",
        };
        if !said.contains(&word) {
            said.push(word);
        }
    }
    match said.as_slice() {
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        said => said.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Asked;

    fn told(on: &[&str], asked: Asked) -> Result<Told, Failure> {
        let settings: Settings = on.iter().map(|variable| (*variable, "1")).collect();
        settings_of(Request {
            asked,
            ..Request::new(midair_procinfo::Pid::own(), settings)
        })
    }

    fn settings_of(request: Request) -> Result<Told, Failure> {
        settings(&request)
    }

    fn on(told: &Settings) -> Vec<&str> {
        told.iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn without_a_word_kernels_and_copies_are_recorded() {
        let all = [
            &THERE[..],
            &["ROCPROF_HIP_API_TRACE", "ROCPROF_SCRATCH_MEMORY_TRACE"],
        ]
        .concat();
        let asked = Asked {
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
    }

    #[test]
    fn what_only_amd_has_is_told_and_left_out() {
        let asked = [
            "ROCPROF_KERNEL_TRACE",
            "ROCPROF_HIP_RUNTIME_API_TRACE",
            "ROCPROF_HIP_COMPILER_API_TRACE",
            "ROCPROF_HSA_CORE_API_TRACE",
        ];
        // By an aggregate: it can be known.
        let (settings, warnings, notes) = told(&asked, Asked::default()).unwrap();
        assert_eq!(on(&settings), ["ROCPROF_KERNEL_TRACE"]);
        assert!(warnings.is_empty());
        assert_eq!(
            notes,
            ["a CUDA process has no calls of HIP and calls of HSA"]
        );
        // By name: it should be known.
        let by_name = Asked {
            nothing: false,
            by_name: vec!["kernel-trace", "hip-trace"],
        };
        let (_, warnings, notes) = told(&asked, by_name).unwrap();
        assert!(notes.is_empty());
        assert_eq!(warnings.len(), 1);
        assert!(
            warnings[0].contains("without calls of HIP: --cuda-trace"),
            "{warnings:?}"
        );
        let (_, warnings, notes) = told(&THERE, Asked::default()).unwrap();
        assert!(warnings.is_empty() && notes.is_empty());
    }

    #[test]
    fn nothing_but_what_only_amd_has_is_refused() {
        for variable in ["ROCPROF_HIP_API_TRACE", "ROCPROF_SCRATCH_MEMORY_TRACE"] {
            let failure = told(&[variable], Asked::default()).unwrap_err();
            assert_eq!(failure.kind, Kind::Usage, "{failure}");
            assert!(failure.hint.contains("--cuda-trace"));
        }
        // As AMD's command line without any option: the library in the process then takes the usual.
        assert!(told(&[], Asked::default()).is_ok());
    }

    #[test]
    fn a_cupti_may_be_named_for_a_process_of_equal_rights() {
        let mut settings = Settings::new();
        settings.set(CUPTI, "/x/libcupti.so.13");
        let us = midair_procinfo::Pid::own().leader();
        may_name_cupti(&settings, us).unwrap();
        // A process that is not there has rights that nobody knows.
        let failure = may_name_cupti(&settings, Tid::MAX).unwrap_err();
        assert_eq!(failure.kind, Kind::NotPermitted);
        may_name_cupti(&Settings::new(), Tid::MAX).unwrap();
    }
}
