//! CUDA processes, on the stand-in for NVIDIA's libraries (`sim/cuda`): what is recorded is what
//! the log of the devices says, and the process is as it was afterwards. Needs no GPU and no root.

mod capture;
mod cycles;
mod ends;
mod fronts;
mod gpu_metrics;
mod kit;
mod refusals;
