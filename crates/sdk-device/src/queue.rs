//! Kernel times of queues that were there before us, and of those made since (`docs/sources.md#hsa`).
//!
//! The application's threads come by in [`mod@crate::hooks`]: a write-index call tells which queue and who reserves; a doorbell tells
//! that packets are ready. Then, under the queue's spin word, the packets since the last time are looked at: a dispatch without a
//! completion signal gets one of our [`pool`]; one with its own keeps it and is put under [`watch`]. Each goes into the queue's
//! [`flight`] ring. The worker thread follows the flights and writes the records ([`harvest`]); the application's threads never wait
//! for the device and do not allocate. They call into the runtime for a queue's indices, and once per queue to switch its times on.

pub mod flight;
pub mod harvest;
pub mod pool;
pub mod queue_state;
pub mod scan;
pub mod settle;
pub mod state;
pub mod watch;
