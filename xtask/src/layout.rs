//! What is shipped, and where it lies.

use std::path::{Path, PathBuf};

/// Where a shipped file comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// cargo's output directory: this file.
    Built(&'static str),
    /// The project: this file.
    File(&'static str),
    /// The project: everything below this directory.
    Tree(&'static str),
}

/// One shipped file or tree.
#[derive(Debug, Clone, Copy)]
pub struct Item {
    /// Where it comes from.
    pub source: Source,
    /// Where it goes, below the prefix.
    pub to: &'static str,
    /// Links to it, beside it.
    pub links: &'static [&'static str],
    /// To be run.
    pub executable: bool,
}

const fn library(artefact: &'static str, to: &'static str, links: &'static [&'static str]) -> Item {
    Item {
        source: Source::Built(artefact),
        to,
        links,
        executable: true,
    }
}

const fn program(artefact: &'static str, to: &'static str) -> Item {
    Item {
        source: Source::Built(artefact),
        to,
        links: &[],
        executable: true,
    }
}

/// The packages that make the built files.
pub const PACKAGES: &[&str] = &[
    "midair-aqlprofile",
    "midair-nvmetrics",
    "midair-cli",
    "midair-compute",
    "midair-sdk-so",
    "midair-cuda-so",
    "midair-sdk-attach-so",
    "midair-tool-so",
    "midair-launch-so",
    "midair-register-so",
    "midair-rocattach-so",
    "midair-roctx-so",
    "midair-rocpd-so",
];

/// Everything that is shipped. The names of libraries are their SONAMEs (design 1): cargo cannot make them, since a
/// library's name must be an identifier there. The links are for linking and for programs that load by an older name.
pub const ITEMS: &[Item] = &[
    program("midair", "bin/midair"),
    program("rocprofv3", "bin/rocprofv3"),
    program("rocprof-compute", "bin/rocprof-compute"),
    Item {
        source: Source::File("python/rocprof-attach.py"),
        to: "bin/rocprof-attach",
        links: &["rocprof-attach.py"],
        executable: true,
    },
    // The same file as a package, for programs that import it.
    Item {
        source: Source::File("python/rocprof-attach.py"),
        to: "lib/python3/site-packages/rocprof_attach/__init__.py",
        links: &[],
        executable: false,
    },
    Item {
        source: Source::File("python/rocprof_attach_main.py"),
        to: "lib/python3/site-packages/rocprof_attach/__main__.py",
        links: &[],
        executable: false,
    },
    library(
        "librocprofiler_sdk_rocattach.so",
        "lib/librocprofiler-sdk-rocattach.so.1",
        &[
            "librocprofiler-sdk-rocattach.so",
            "librocprofiler-attach.so",
            "librocprofv3-attach.so",
        ],
    ),
    library(
        "librocprofiler_register.so",
        "lib/librocprofiler-register.so.0",
        &["librocprofiler-register.so"],
    ),
    library(
        "librocprofiler_sdk.so",
        "lib/librocprofiler-sdk.so.1",
        &["librocprofiler-sdk.so"],
    ),
    // Sent into CUDA processes in the SDK's place.
    library("libmidair_cuda_agent.so", "lib/libmidair-cuda.so", &[]),
    // The old name, too: programs linked against the ROCTx of roctracer then need no other library.
    library(
        "librocprofiler_sdk_roctx.so",
        "lib/librocprofiler-sdk-roctx.so.1",
        &[
            "librocprofiler-sdk-roctx.so",
            "libroctx64.so.4",
            "libroctx64.so",
        ],
    ),
    library(
        "librocprofiler_sdk_rocpd.so",
        "lib/librocprofiler-sdk-rocpd.so.1",
        &["librocprofiler-sdk-rocpd.so"],
    ),
    library(
        "librocprofiler_sdk_attach.so",
        "lib/librocprofiler-sdk-attach.so.1",
        &["librocprofiler-sdk-attach.so"],
    ),
    library(
        "libmidair_launch.so",
        "lib/rocprofiler-sdk/libmidair-launch.so.1",
        &[],
    ),
    library(
        "librocprofiler_sdk_tool.so",
        "lib/rocprofiler-sdk/librocprofiler-sdk-tool.so.1",
        &["librocprofiler-sdk-tool.so"],
    ),
    // Loads AMD's packet library for the attacher, in a process of its own.
    program("midair-aqlprofile", "lib/rocprofiler-sdk/midair-aqlprofile"),
    // The same for NVIDIA's: GPUs are sampled from a process of ours.
    program("midair-nvmetrics", "lib/rocprofiler-sdk/midair-nvmetrics"),
    Item {
        source: Source::Tree("include"),
        to: "include",
        links: &[],
        executable: false,
    },
    Item {
        source: Source::Tree("cmake"),
        to: "lib/cmake",
        links: &[],
        executable: false,
    },
    Item {
        source: Source::Tree("pkgconfig"),
        to: "lib/pkgconfig",
        links: &[],
        executable: false,
    },
];

/// Files made by the staged programs: arguments of `midair`, and where its standard output goes.
pub const GENERATED: &[(&[&str], &str)] = &[
    (&["man", "midair"], "share/man/man1/midair.1"),
    (&["man", "midair-attach"], "share/man/man1/midair-attach.1"),
    (&["man", "midair-run"], "share/man/man1/midair-run.1"),
    (&["man", "midair-top"], "share/man/man1/midair-top.1"),
    (&["man", "midair-ps"], "share/man/man1/midair-ps.1"),
    (&["man", "midair-doctor"], "share/man/man1/midair-doctor.1"),
    (
        &["man", "midair-counters"],
        "share/man/man1/midair-counters.1",
    ),
    (&["man", "rocprofv3"], "share/man/man1/rocprofv3.1"),
    (
        &["man", "midair-compute"],
        "share/man/man1/midair-compute.1",
    ),
    (
        &["man", "rocprof-compute"],
        "share/man/man1/rocprof-compute.1",
    ),
    (
        &["man", "rocprof-compute-profile"],
        "share/man/man1/rocprof-compute-profile.1",
    ),
    (
        &["man", "rocprof-compute-live"],
        "share/man/man1/rocprof-compute-live.1",
    ),
    (
        &["man", "rocprof-compute-analyze"],
        "share/man/man1/rocprof-compute-analyze.1",
    ),
    (
        &["completions", "bash"],
        "share/bash-completion/completions/midair",
    ),
    (
        &["completions", "bash", "--command", "rocprofv3"],
        "share/bash-completion/completions/rocprofv3",
    ),
    (
        &["completions", "bash", "--command", "rocprof-compute"],
        "share/bash-completion/completions/rocprof-compute",
    ),
    (&["completions", "zsh"], "share/zsh/site-functions/_midair"),
    (
        &["completions", "zsh", "--command", "rocprofv3"],
        "share/zsh/site-functions/_rocprofv3",
    ),
    (
        &["completions", "zsh", "--command", "rocprof-compute"],
        "share/zsh/site-functions/_rocprof-compute",
    ),
    (
        &["completions", "fish"],
        "share/fish/vendor_completions.d/midair.fish",
    ),
    (
        &["completions", "fish", "--command", "rocprofv3"],
        "share/fish/vendor_completions.d/rocprofv3.fish",
    ),
    (
        &["completions", "fish", "--command", "rocprof-compute"],
        "share/fish/vendor_completions.d/rocprof-compute.fish",
    ),
];

impl Item {
    /// The source's path.
    pub fn path(&self, project: &Path, built: &Path) -> PathBuf {
        match self.source {
            Source::Built(name) => built.join(name),
            Source::File(name) | Source::Tree(name) => project.join(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_items_share_a_path() {
        let mut places = BTreeSet::new();
        for item in ITEMS {
            let to = Path::new(item.to);
            assert!(places.insert(to.to_path_buf()), "{}", item.to);
            for link in item.links {
                assert!(places.insert(to.parent().unwrap().join(link)), "{link}");
            }
        }
        for (_, to) in GENERATED {
            assert!(places.insert(PathBuf::from(to)), "{to}");
        }
    }

    #[test]
    fn every_documented_name_is_there() {
        let names: Vec<&str> = ITEMS
            .iter()
            .flat_map(|item| std::iter::once(item.to).chain(item.links.iter().copied()))
            .collect();
        for name in [
            "bin/midair",
            "bin/rocprofv3",
            "bin/rocprof-attach",
            "lib/librocprofiler-sdk-rocattach.so.1",
            "librocprofiler-attach.so",
            "librocprofv3-attach.so",
            "lib/librocprofiler-register.so.0",
            "lib/librocprofiler-sdk.so.1",
            "lib/libmidair-cuda.so",
            "lib/librocprofiler-sdk-attach.so.1",
            "librocprofiler-sdk-attach.so",
            "lib/rocprofiler-sdk/librocprofiler-sdk-tool.so.1",
            "librocprofiler-sdk-tool.so",
        ] {
            assert!(names.contains(&name), "{name}");
        }
    }
}
