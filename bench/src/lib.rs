//! Benchmarks of the parts, with their results.
