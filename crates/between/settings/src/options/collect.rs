//! Which part is recorded.

use super::{Category::Filter, Opt, Sets, Shape};
use crate::periods::COLLECTION_PERIOD;
use crate::ranks::{RANK_VARIABLE, RANKS, SIZE_VARIABLE};

/// An attach names its processes.
const NO_RANKS: &str =
    "MPI ranks are chosen where a program is started: with an attach, name the processes instead";

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
        Sets::Periods(COLLECTION_PERIOD),
        "Record only at these times: wait, record, so many times",
    )
    .short('P')
    .more(
        "1:2:3 waits a second, records for two, and does both three times. Several periods come one after the other. \
         The first begins when the program is started, or when the recording of a running process begins; nothing is \
         recorded after the last. What begins in a period is recorded, whenever it ends.",
    ),
    Opt::new(
        "collection-period-unit",
        Filter,
        Shape::OneOf(&["hour", "min", "sec", "msec", "usec", "nsec"]),
        Sets::Nothing,
        "Unit of the times of --collection-period (default sec)",
    ),
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
        Sets::Words(&[RANKS], ""),
        "Record a started program only if it has one of these MPI ranks, as in 0-3,8",
    )
    .more(
        "Other ranks run without the profiler. The rank is taken from the variables of PBS, Slurm, PMI, MVAPICH, Open MPI \
         or Intel MPI, or from those that the next two options name; where there are none, the program is recorded.",
    )
    .not_with_attach(NO_RANKS),
    Opt::new(
        "mpi-world-rank-variable",
        Filter,
        Shape::Text("NAME"),
        Sets::Words(&[RANK_VARIABLE], ""),
        "Variable that holds the MPI rank; goes with the next option",
    )
    .not_with_attach(NO_RANKS),
    Opt::new(
        "mpi-world-size-variable",
        Filter,
        Shape::Text("NAME"),
        Sets::Words(&[SIZE_VARIABLE], ""),
        "Variable that holds the number of MPI ranks; goes with the previous option",
    )
    .not_with_attach(NO_RANKS),
];
