//! The decision: tenancy, limits, resolution, counters, gates and settlement, pure and without input or output.
