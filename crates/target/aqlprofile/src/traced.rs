//! Turns the settings for thread traces into the plan of a session.

use crate::prepare::gpu;
use crate::traces::{Question, Request};
use midair_agents::Agent;
use midair_counters::{Architecture, group};
use midair_failure::{Failure, Kind};
use midair_record::trace_plan::{Trace, is_small};
use midair_settings::{Settings, ThreadTrace};

/// The most bytes that a trace's memory may have above its buffers: the control block, and what AMD's
/// library adds to each engine's buffer to align it.
const ROUNDING: u64 = 1 << 20;

/// Returns what is traced on each GPU; nothing where the settings ask for nothing. `ask` has the packets
/// for a kind of GPU made, each time by a fresh process: AMD's library asks for the GPU once.
///
/// # Errors
/// GPUs and counters that cannot be traced, and the errors of `ask`.
pub fn of_agents(
    settings: &Settings,
    agents: &[Agent],
    mut ask: impl FnMut(&Question) -> Result<Trace, Failure>,
) -> Result<Vec<Trace>, Failure> {
    let asked = settings.thread_trace();
    let Some(asked) = asked.map_err(|what| Failure::new(Kind::Usage, what))? else {
        return Ok(Vec::new());
    };
    if settings.asks_for_counters() {
        return Err(Failure::new(
            Kind::Usage,
            "cannot trace threads and count: --att and --pmc both want the packets around a kernel",
        )
        .hint("use --att-perfcounters for counters in the trace, or two sessions"));
    }
    let gpus = agents
        .iter()
        .filter_map(|agent| Some((agent.node_id, gpu(agent)?)));
    let is_chosen = |number: u32| asked.gpus.is_empty() || asked.gpus.contains(&number);
    let mut made: Vec<(Question, Trace)> = Vec::new();
    let mut traces: Vec<Trace> = Vec::new();
    for (_, (node, gpu)) in (0..).zip(gpus).filter(|(number, _)| is_chosen(*number)) {
        let request = request(&asked, &gpu.name)?;
        let question = Question { gpu, request };
        let known = made.iter().find(|(other, _)| *other == question);
        let trace = match known {
            Some((_, trace)) => trace.clone(),
            None => sized(ask(&question)?, &question)?,
        };
        made.push((question, trace.clone()));
        traces.push(Trace { node, ..trace });
    }
    if !is_small(&traces) {
        return Err(Failure::new(
            Kind::Usage,
            "cannot trace threads: the buffers of all GPUs take more than 256 GiB",
        )
        .hint("lower --att-buffer-size, or choose GPUs with --att-gpu-index"));
    }
    if traces.is_empty() {
        return Err(Failure::new(
            Kind::NoCounters,
            "cannot trace threads: the process sees no such GPU of AMD's driver",
        )
        .hint("midair doctor PID shows its GPUs; --att-gpu-index counts them from 0"));
    }
    Ok(traces)
}

/// Refuses a trace whose memory is larger than the question's buffers.
fn sized(trace: Trace, question: &Question) -> Result<Trace, Failure> {
    let most = question.request.bytes.saturating_add(ROUNDING);
    if trace.memory <= most {
        return Ok(trace);
    }
    let (name, memory, bytes) = (&question.gpu.name, trace.memory, question.request.bytes);
    Err(Failure::new(
        Kind::NoCounters,
        format!(
            "cannot trace threads of {name}: AMD's library wants {memory} bytes for buffers of {bytes}"
        ),
    ))
}

/// Returns what is traced on a kind of GPU.
fn request(asked: &ThreadTrace, gpu: &str) -> Result<Request, Failure> {
    let usage = |what: String| Failure::new(Kind::Usage, what);
    let mut counters = Vec::new();
    for (name, simds) in &asked.counters {
        let architecture = Architecture::find(gpu)
            .ok_or_else(|| usage(format!("cannot trace counters: midair knows none of {gpu}")))?;
        let events = group::one(architecture, &[name.as_str()])
            .map_err(|error| usage(error.to_string()))?
            .events;
        match &events[..] {
            [event] if event.block == "SQ" => counters.push((event.event, *simds)),
            _ => {
                let what = format!("cannot trace {name}: it is not a counter of SQ alone");
                return Err(usage(what));
            }
        }
    }
    Ok(Request {
        unit: asked.unit,
        engines: asked.engines,
        simds: asked.simds,
        bytes: asked.bytes,
        waves_only: asked.waves_only,
        interval: asked.interval,
        units: match asked.target_only {
            true => 1 << asked.unit,
            false => u32::MAX,
        },
        counters,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use midair_agents::AgentType;

    fn asked(pairs: &[(&str, &str)]) -> Result<(Vec<Trace>, Vec<Question>), Failure> {
        answered(pairs, |_| 0)
    }

    /// The same with answers that name this much memory.
    fn answered(
        pairs: &[(&str, &str)],
        memory: impl Fn(&Question) -> u64,
    ) -> Result<(Vec<Trace>, Vec<Question>), Failure> {
        let on = [("ROCPROF_ADVANCED_THREAD_TRACE", "1")];
        let settings: Settings = on.iter().chain(pairs).copied().collect();
        let agent = |node_id, name: &str| Agent {
            node_id,
            name: name.to_owned(),
            agent_type: if name == "cpu" {
                AgentType::Cpu
            } else {
                AgentType::Gpu
            },
            ..Agent::default()
        };
        let agents = [
            agent(0, "cpu"),
            agent(1, "gfx942"),
            agent(2, "gfx942"),
            agent(3, "gfx90a"),
        ];
        let mut questions = Vec::new();
        let traces = of_agents(&settings, &agents, |question| {
            questions.push(question.clone());
            Ok(Trace {
                memory: memory(question),
                ..Trace::default()
            })
        })?;
        Ok((traces, questions))
    }

    #[test]
    fn each_kind_of_gpu_is_asked_for_once() {
        let (traces, questions) = asked(&[]).unwrap();
        let nodes: Vec<u32> = traces.iter().map(|trace| trace.node).collect();
        assert_eq!((nodes, questions.len()), (vec![1, 2, 3], 2));
        let (traces, _) = asked(&[("ROCPROF_ATT_PARAM_GPU_INDEX", "1")]).unwrap();
        assert_eq!(
            traces.iter().map(|trace| trace.node).collect::<Vec<_>>(),
            [2]
        );
        let refused = asked(&[("ROCPROF_ATT_PARAM_GPU_INDEX", "7")]).unwrap_err();
        assert!(refused.what.contains("sees no such GPU"), "{refused}");
    }

    #[test]
    fn memory_beyond_the_buffers_is_refused() {
        let (traces, _) = answered(&[], |of| of.request.bytes + ROUNDING).unwrap();
        assert_eq!(traces[2].memory, (96 << 20) + ROUNDING);
        for more in [ROUNDING + 1, u64::MAX - (96 << 20)] {
            let refused = answered(&[], |of| of.request.bytes + more).unwrap_err();
            assert!(
                refused.what.contains("for buffers of 100663296"),
                "{refused}"
            );
        }
        let large = [("ROCPROF_ATT_PARAM_BUFFER_SIZE", "103079215104")];
        let refused = answered(&large, |of| of.request.bytes).unwrap_err();
        assert!(refused.what.contains("more than 256 GiB"), "{refused}");
    }

    #[test]
    fn counters_are_events_of_sq() {
        let with = |names: &str| {
            asked(&[
                ("ROCPROF_ATT_PARAM_PERFCOUNTERS", names),
                ("ROCPROF_ATT_PARAM_PERFCOUNTER_CTRL", "2"),
            ])
        };
        let (_, questions) = with("SQ_WAVES SQ_INSTS_VALU:0x1").unwrap();
        let request = &questions[0].request;
        assert_eq!(
            (&request.counters[..], request.interval),
            (&[(4, 15), (26, 1)][..], Some(2))
        );
        for (name, why) in [
            ("TCC_HIT", "not a counter of SQ alone"),
            ("SQ_NONE", "SQ_NONE"),
        ] {
            let refused = with(name).unwrap_err();
            assert!(refused.what.contains(why), "{refused}");
        }
        let both = asked(&[("ROCPROF_COUNTERS", "pmc: SQ_WAVES")]).unwrap_err();
        assert!(both.what.contains("--att and --pmc"), "{both}");
    }
}
