//! Test kit and end-to-end tests on real processes.
