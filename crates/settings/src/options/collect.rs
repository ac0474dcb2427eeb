//! Which part is recorded.

use super::{Category::Filter, Opt, Sets, Shape};

pub(super) const OPTIONS: &[Opt] = &[
    Opt::new(
        "kernel-include-regex",
        Filter,
        Shape::Text("REGEX"),
        Sets::Words(&["ROCPROF_KERNEL_FILTER_INCLUDE_REGEX"], ""),
        "Record and count only kernels with such names",
    )
    .more("The name as it is in the results. An expression finds a part of it: ^ and $ stand for its ends."),
    Opt::new(
        "kernel-exclude-regex",
        Filter,
        Shape::Text("REGEX"),
        Sets::Words(&["ROCPROF_KERNEL_FILTER_EXCLUDE_REGEX"], ""),
        "Do not record and count kernels with such names",
    ),
    Opt::new(
        "kernel-iteration-range",
        Filter,
        Shape::Texts("RANGE"),
        Sets::Words(&["ROCPROF_KERNEL_FILTER_RANGE"], ", "),
        "Record and count only these launches of each kernel, as in [1-2]",
    )
    .more("Counted from 1 where recording begins."),
    Opt::new(
        "collection-period",
        Filter,
        Shape::Texts("DELAY:LENGTH:REPEAT"),
        Sets::Words(&["ROCPROF_COLLECTION_PERIOD"], ";"),
        "Record periodically; only for programs started by this command",
    )
    .short('P')
    .not_with_attach("--collection-period is not compatible with attach mode"),
    Opt::new(
        "collection-period-unit",
        Filter,
        Shape::OneOf(&["hour", "min", "sec", "msec", "usec", "nsec"]),
        Sets::Nothing,
        "Unit of --collection-period",
    )
    .later(),
    Opt::new(
        "selected-regions",
        Filter,
        Shape::Boolean,
        Sets::Switch("ROCPROF_SELECTED_REGIONS"),
        "Record only between roctxProfilerResume and roctxProfilerPause",
    )
    .more(
        "The recording begins paused. The program's calls hold for all its threads. They are \
         honoured with --marker-trace, too, which begins recording at once.",
    ),
    Opt::new(
        "selected-regions-ref-count",
        Filter,
        Shape::Boolean,
        Sets::Switch("ROCPROF_SELECTED_REGIONS_REF_COUNT"),
        "Count nested pairs of the two calls: only the outermost have an effect",
    )
    .more("The program's first call is not counted if it is a pause. Alone, without --selected-regions, the recording begins at once."),
    Opt::new(
        "profile-mpi-ranks",
        Filter,
        Shape::Text("RANKS"),
        Sets::Words(&["ROCPROF_MPI_RANKS"], ""),
        "Record only these MPI ranks, as in 0-3,8",
    )
    .later(),
    Opt::new(
        "mpi-world-rank-variable",
        Filter,
        Shape::Text("NAME"),
        Sets::Words(&["ROCPROF_MPI_RANK_VAR"], ""),
        "Variable that holds the MPI rank",
    )
    .later(),
    Opt::new(
        "mpi-world-size-variable",
        Filter,
        Shape::Text("NAME"),
        Sets::Words(&["ROCPROF_MPI_SIZE_VAR"], ""),
        "Variable that holds the number of MPI ranks",
    )
    .later(),
];
