//! The shipped files, and their places.

use std::path::{Path, PathBuf};

/// Where a shipped file comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// This file in cargo's output directory.
    Built(&'static str),
    /// This file of the project.
    File(&'static str),
    /// Everything below this directory of the project.
    Tree(&'static str),
}

/// One shipped file or tree.
#[derive(Debug, Clone, Copy)]
pub struct Item {
    /// The place that it comes from.
    pub source: Source,
    /// Its place below the prefix.
    pub to: &'static str,
    /// Names of links to it in the same directory.
    pub links: &'static [&'static str],
    /// Whether it can be executed.
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

/// The packages from which the built files come.
pub const PACKAGES: &[&str] = &[
    "midair-aqlprofile",
    "midair-nvmetrics",
    "midair-disassemble",
    "midair-cli",
    "midair-collector",
    "midair-compute",
    "midair-serve",
    "midair-sdk-so",
    "midair-cuda-so",
    "midair-sdk-attach-so",
    "midair-tool-so",
    "midair-launch-so",
    "midair-kokkos-so",
    "midair-register-so",
    "midair-rocattach-so",
    "midair-roctx-so",
    "midair-rocpd-so",
    "midair-so",
    // What `midair demo` starts.
    "midair-sim-hsa",
    "midair-sim-hip",
];

/// The packages that `cargo xtask demo` builds, which are half of the work of [`PACKAGES`].
pub const PACKAGES_OF_DEMO: &[&str] = &[
    "midair-cli",
    "midair-sdk-so",
    "midair-tool-so",
    "midair-sim-hsa",
    "midair-sim-hip",
];

/// The places of the files that `cargo xtask demo` lays out.
pub const ITEMS_OF_DEMO: &[&str] = &[
    "bin/midair",
    "lib/librocprofiler-sdk.so.1",
    "lib/rocprofiler-sdk/librocprofiler-sdk-tool.so.1",
];

/// The place below the prefix of the stand-in runtimes and the program of `midair demo`.
pub const DEMO: &str = "lib/midair-demo";

/// Everything that is shipped. The names of libraries are their SONAMEs (design 1). cargo cannot
/// give such names to files, because in cargo a library's name must be an identifier. The links are
/// for linking, and for programs that load a library by an older name.
pub const ITEMS: &[Item] = &[
    // It is each of these by the name that it is called by.
    Item {
        source: Source::Built("midair"),
        to: "bin/midair",
        links: &["rocpd", "rocprofv3-avail"],
        executable: true,
    },
    program("rocprofv3", "bin/rocprofv3"),
    program("rocprof-compute", "bin/rocprof-compute"),
    Item {
        source: Source::File("python/rocprof-attach.py"),
        to: "bin/rocprof-attach",
        links: &["rocprof-attach.py"],
        executable: true,
    },
    // The same file as a Python package, for programs that import it.
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
    // rocpd as a Python package.
    Item {
        source: Source::File("python/rocpd/__init__.py"),
        to: "lib/python3/site-packages/rocpd/__init__.py",
        links: &[],
        executable: false,
    },
    Item {
        source: Source::File("python/rocpd/__main__.py"),
        to: "lib/python3/site-packages/rocpd/__main__.py",
        links: &[],
        executable: false,
    },
    Item {
        source: Source::File("python/rocpd/importer.py"),
        to: "lib/python3/site-packages/rocpd/importer.py",
        links: &[],
        executable: false,
    },
    Item {
        source: Source::File("python/rocpd/output_config.py"),
        to: "lib/python3/site-packages/rocpd/output_config.py",
        links: &[],
        executable: false,
    },
    // The package for recording from Python. The wheel has its own copy.
    Item {
        source: Source::File("python/midair/__init__.py"),
        to: "lib/python3/site-packages/midair/__init__.py",
        links: &[],
        executable: false,
    },
    Item {
        source: Source::File("python/midair/_attach.py"),
        to: "lib/python3/site-packages/midair/_attach.py",
        links: &[],
        executable: false,
    },
    Item {
        source: Source::File("python/midair/_results.py"),
        to: "lib/python3/site-packages/midair/_results.py",
        links: &[],
        executable: false,
    },
    Item {
        source: Source::File("python/midair/serve.py"),
        to: "lib/python3/site-packages/midair/serve.py",
        links: &[],
        executable: false,
    },
    Item {
        source: Source::File("python/midair/py.typed"),
        to: "lib/python3/site-packages/midair/py.typed",
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
    // The library that is loaded into CUDA processes instead of the SDK.
    library("libmidair_cuda_agent.so", "lib/libmidair-cuda.so", &[]),
    // The links include the old name, so programs that are linked against roctracer's ROCTx need no
    // other library.
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
    // For C programs that attach and read records.
    library("libmidair_so.so", "lib/libmidair.so.0", &["libmidair.so"]),
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
    // Kokkos loads it, with --kokkos-trace.
    library(
        "libmidair_kokkos.so",
        "lib/rocprofiler-sdk/libmidair-kokkos.so.1",
        &[],
    ),
    library(
        "librocprofiler_sdk_tool.so",
        "lib/rocprofiler-sdk/librocprofiler-sdk-tool.so.1",
        &["librocprofiler-sdk-tool.so"],
    ),
    // A program that writes the files where no attacher does, next to a started program.
    program("midair-collector", "lib/rocprofiler-sdk/midair-collector"),
    // A program that loads AMD's packet library for the attacher, in a process of its own.
    program("midair-aqlprofile", "lib/rocprofiler-sdk/midair-aqlprofile"),
    // A program that does the same with NVIDIA's library: GPUs are sampled from a midair process.
    program("midair-nvmetrics", "lib/rocprofiler-sdk/midair-nvmetrics"),
    // A program that loads AMD's disassembler, or starts LLVM's, for the instructions that were sampled.
    program(
        "midair-disassemble",
        "lib/rocprofiler-sdk/midair-disassemble",
    ),
    // The only program with network code. `midair serve` becomes it.
    program("midair-serve", "lib/rocprofiler-sdk/midair-serve"),
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

/// Files that the staged programs generate: the arguments of `midair`, and the place for its
/// standard output.
pub const GENERATED: &[(&[&str], &str)] = &[
    (&["man", "midair"], "share/man/man1/midair.1"),
    (&["man", "midair-attach"], "share/man/man1/midair-attach.1"),
    (&["man", "midair-flame"], "share/man/man1/midair-flame.1"),
    (&["man", "midair-run"], "share/man/man1/midair-run.1"),
    (&["man", "midair-top"], "share/man/man1/midair-top.1"),
    (&["man", "midair-why"], "share/man/man1/midair-why.1"),
    (&["man", "midair-show"], "share/man/man1/midair-show.1"),
    (&["man", "midair-ps"], "share/man/man1/midair-ps.1"),
    (&["man", "midair-doctor"], "share/man/man1/midair-doctor.1"),
    (
        &["man", "midair-counters"],
        "share/man/man1/midair-counters.1",
    ),
    (&["man", "midair-demo"], "share/man/man1/midair-demo.1"),
    (&["man", "midair-fleet"], "share/man/man1/midair-fleet.1"),
    (&["man", "midair-serve"], "share/man/man1/midair-serve.1"),
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
        &["man", "rocprofv3-avail"],
        "share/man/man1/rocprofv3-avail.1",
    ),
    (&["man", "rocpd"], "share/man/man1/rocpd.1"),
    (&["man", "rocpd-convert"], "share/man/man1/rocpd-convert.1"),
    (&["man", "rocpd-query"], "share/man/man1/rocpd-query.1"),
    (&["man", "rocpd-summary"], "share/man/man1/rocpd-summary.1"),
    (&["man", "rocpd-merge"], "share/man/man1/rocpd-merge.1"),
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
    (
        &["completions", "bash", "--command", "rocpd"],
        "share/bash-completion/completions/rocpd",
    ),
    (
        &["completions", "bash", "--command", "rocprofv3-avail"],
        "share/bash-completion/completions/rocprofv3-avail",
    ),
    (
        &["completions", "zsh", "--command", "rocprofv3-avail"],
        "share/zsh/site-functions/_rocprofv3-avail",
    ),
    (
        &["completions", "fish", "--command", "rocprofv3-avail"],
        "share/fish/vendor_completions.d/rocprofv3-avail.fish",
    ),
    (
        &["completions", "zsh", "--command", "rocpd"],
        "share/zsh/site-functions/_rocpd",
    ),
    (
        &["completions", "fish", "--command", "rocpd"],
        "share/fish/vendor_completions.d/rocpd.fish",
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
    /// Returns the source's path.
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
            "rocpd",
            "rocprofv3-avail",
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
