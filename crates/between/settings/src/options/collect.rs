//! Which part is recorded.

use super::{Category::Filter, Opt, Sets, Shape};
use crate::periods::COLLECTION_PERIOD;
use crate::ranks::{RANK_VARIABLE, RANKS, SIZE_VARIABLE};

/// An attach names its processes.
const NO_RANKS: &str = "MPI ranks can only be selected when a program is started: with an attach, name the processes instead";

pub(super) const OPTIONS: &[Opt] = &[
    Opt::new(
        "kernel-include-regex",
        Filter,
        Shape::Text("REGEX"),
        Sets::Words(&["ROCPROF_KERNEL_FILTER_INCLUDE_REGEX"], ""),
        "Record and count only kernels whose name matches",
    )
    .more("Matches any part of the name as shown in the results; anchor with ^ and $."),
    Opt::new(
        "kernel-exclude-regex",
        Filter,
        Shape::Text("REGEX"),
        Sets::Words(&["ROCPROF_KERNEL_FILTER_EXCLUDE_REGEX"], ""),
        "Exclude kernels whose name matches",
    ),
    Opt::new(
        "kernel-iteration-range",
        Filter,
        Shape::Texts("RANGE"),
        Sets::Words(&["ROCPROF_KERNEL_FILTER_RANGE"], ", "),
        "Record and count only these launches of each kernel, as in [1-2]",
    )
    .more("Launches are counted from 1, starting when recording starts."),
    Opt::new(
        "collection-period",
        Filter,
        Shape::Texts("DELAY:LENGTH:REPEAT"),
        Sets::Periods(COLLECTION_PERIOD),
        "Record periodically: wait DELAY, record for LENGTH, REPEAT times",
    )
    .short('P')
    .more(
        "1:2:3 waits one second, records for two, and does both three times. Several periods run one after the other. The first \
         starts with the program, or with the recording of a running process; nothing is recorded after the last. Work that \
         starts within a period is recorded, even if it ends later.",
    ),
    Opt::new(
        "collection-period-unit",
        Filter,
        Shape::OneOf(&["hour", "min", "sec", "msec", "usec", "nsec"]),
        Sets::Nothing,
        "Set the unit of --collection-period (default sec)",
    ),
    Opt::new(
        "selected-regions",
        Filter,
        Shape::Boolean,
        Sets::Switch("ROCPROF_SELECTED_REGIONS"),
        "Record only between roctxProfilerResume and roctxProfilerPause",
    )
    .more(
        "Recording starts paused. Pause and resume apply to all threads. --marker-trace honours these calls too, but starts \
         recording at once.",
    ),
    Opt::new(
        "selected-regions-ref-count",
        Filter,
        Shape::Boolean,
        Sets::Switch("ROCPROF_SELECTED_REGIONS_REF_COUNT"),
        "Count nested roctxProfilerResume/Pause pairs; only the outermost pair has an effect",
    )
    .more("If the program's first call is a pause, it is not counted. Without --selected-regions, recording starts at once."),
    Opt::new(
        "profile-mpi-ranks",
        Filter,
        Shape::Text("RANKS"),
        Sets::Words(&[RANKS], ""),
        "Record only these MPI ranks of a started program, as in 0-3,8",
    )
    .more(
        "Other ranks run without the profiler. The rank comes from the variables of PBS, Slurm, PMI, MVAPICH, Open MPI or Intel \
         MPI, or from the variables that the next two options name. If none is set, the program is recorded.",
    )
    .not_with_attach(NO_RANKS),
    Opt::new(
        "mpi-world-rank-variable",
        Filter,
        Shape::Text("NAME"),
        Sets::Words(&[RANK_VARIABLE], ""),
        "Read the MPI rank from this variable; requires --mpi-world-size-variable",
    )
    .not_with_attach(NO_RANKS),
    Opt::new(
        "mpi-world-size-variable",
        Filter,
        Shape::Text("NAME"),
        Sets::Words(&[SIZE_VARIABLE], ""),
        "Read the number of MPI ranks from this variable; requires --mpi-world-rank-variable",
    )
    .not_with_attach(NO_RANKS),
];
