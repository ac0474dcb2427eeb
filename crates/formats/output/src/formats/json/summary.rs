//! `summary[]`: statistics of each domain, only with `--stats` or a summary.

use super::emit::Emit;
use crate::job::Job;
use crate::stats;
use midair_trace::index::Stat;
use std::io;

pub(super) fn write<W: io::Write>(out: &mut Emit<W>, job: &Job<'_>) -> io::Result<()> {
    out.key("summary")?;
    out.open_array()?;
    let wanted = job.plan.stats || job.plan.has_summary();
    let domains = if wanted {
        stats::collect(std::slice::from_ref(job))
    } else {
        Vec::new()
    };
    for (n, stats) in domains.iter().enumerate() {
        out.open_object()?;
        out.text("domain", stats.domain.name)?;
        out.key("stats")?;
        out.open_object()?;
        // AMD's serialiser names the version of a type where the type occurs first.
        numbers(out, &stats.total, n == 0)?;
        out.key("operations")?;
        out.open_array()?;
        for (m, (name, stat)) in stats.operations.iter().enumerate() {
            out.open_object()?;
            out.text("key", name)?;
            out.key("value")?;
            out.open_object()?;
            numbers(out, stat, (n, m) == (0, 0))?;
            out.close_object()?;
            out.close_object()?;
        }
        out.close_array()?;
        out.close_object()?;
        out.close_object()?;
    }
    out.close_array()
}

fn numbers<W: io::Write>(out: &mut Emit<W>, stat: &Stat, first: bool) -> io::Result<()> {
    if first {
        out.number("cereal_class_version", 0)?;
    }
    out.number("count", stat.calls)?;
    out.number("sum", stat.total)?;
    out.whole("sqr", stat.squares)?;
    out.number("min", stat.min)?;
    out.number("max", stat.max)?;
    out.real("mean", stat.mean())?;
    out.real("stddev", stat.deviation())?;
    out.real("variance", stat.variance())
}
