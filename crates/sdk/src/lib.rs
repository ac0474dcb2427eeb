//! Interception, queues and records inside a target; the tool-facing API.
