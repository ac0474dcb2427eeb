//! CUDA processes, on the stand-in for NVIDIA's libraries (`sim/cuda`). The records are what the
//! log of the devices says, and afterwards the process is as it was. Needs no GPU and no root.

mod bursts;
mod capture;
mod cycles;
mod ends;
mod fronts;
mod gpu_metrics;
mod hardware;
pub(crate) mod kit;
mod recorder;
mod refusals;
mod torch_profiler;
