//! The decision: tenancy, limits, resolution, counters, gates and settlement, pure and without input or output.
//!
//! Reading order: [`tenancy`] and [`limits`] say what there is, [`ruleset`] compiles it, [`resolve`] turns a chain into
//! the instances that bind a request, [`counter_identity`] names each instance's counter. [`identity`] is about
//! virtual keys; [`routing`], [`prices`], [`usage`] and [`estimator`] about models. [`money`], [`units`], [`time`], [`calendar`]
//! and [`glob`] are the arithmetic below. All bounds are in [`bounds`].
//!
//! Then the counting: [`cells`] is gate 1, [`gates`] how a request asks gate 2, [`shard`] how a core answers,
//! [`verdict`] what both say.
//!
//! Nothing here knows of sockets, files, threads or clocks: the time is an argument.

#![forbid(unsafe_code)]

pub mod bounds;
pub mod calendar;
pub mod cells;
pub mod counter_identity;
pub mod dims;
pub mod estimator;
pub mod explain;
pub mod gates;
pub mod glob;
pub mod identity;
pub mod limit_types;
pub mod limits;
pub mod metrics;
pub mod money;
pub mod posture;
pub mod prices;
pub mod report;
pub mod resolve;
pub mod routing;
pub mod ruleset;
pub mod shard;
mod sync;
pub mod tenancy;
pub mod time;
pub mod units;
pub mod usage;
pub mod verdict;
pub mod window;

pub use calendar::{CalendarPeriod, CalendarWindow, WindowIndex, window_at};
pub use cells::{Admission, CellTable, Counted, GateOnePlan, GateOneVerdict};
pub use counter_identity::{CoreId, Identity};
pub use estimator::{Estimator, Lesson};
pub use explain::{Dropped, Explanation};
pub use gates::{
    Answer, Ask, Asks, Conjunction, Estimate, GateTwoPlan, PartialRefusal, Reservation, ReservationId,
    Reserved, Settlement, Step,
};
pub use glob::{BadPattern, Glob};
pub use identity::{Key, KeyRing, Kid, Scopes};
pub use limits::{
    Admit, Algorithm, Attach, Class, DIM_NAMES, Dims, Enforce, Fail, Figure, Gate, Limit, LimitId, LimitType,
    Match, Mode, OverridePolicy, Posture, Window, Zone,
};
pub use metrics::{Exchanges, Gauges, Histogram, LimitEvents, Metrics, Notice, Outcome};
pub use money::{MoneyError, PicoUsd, TokenPrice};
pub use prices::{Above, Expected, ModelPrice, PriceBook, Rates};
pub use report::{JournalNews, Probe, ProbeAnswer, Report, UsageKey, UsageRow, UsageSum};
pub use resolve::{Instance, Selected};
pub use routing::{Api, ProviderId, Route, Routes};
pub use ruleset::{CompileError, DroppedOverride, Override, Ruleset};
pub use shard::{CounterMark, MarkNumber, Marks, Shard};
pub use tenancy::{Chain, Level, NodeId, Tree};
pub use time::{DurationError, Monotonic, Now, Span};
pub use units::{Requests, Tokens, Units};
pub use usage::Usage;
pub use verdict::{Cause, RateLeft, Reading, Refusal, Tripped, Wait};
