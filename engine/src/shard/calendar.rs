//! The counter of a budget or a quota: one calendar window, the newest ever entered (SPEC §4.6, §4.10).
//!
//! A window is named by its index, a civil date; the counter enters a window only if its index is greater, so a wall
//! clock that is set back re-opens nothing and loses nothing. Entering a window starts it at zero, holds included: a
//! request belongs to the window it was admitted in, and what it settles after that window has passed changes nothing.
//!
//! The end of the window is kept, so the civil arithmetic runs once a window and not once a request.
//!
//! Invariants: the index never goes back. `held` is the sum of the live holds booked in this window, `pending` the number
//! of requests in flight counted in it. Units: those of the limit.

use std::sync::Arc;

use jiff::Timestamp;

use crate::bounds;
use crate::calendar::{CalendarPeriod, CalendarWindow, WindowIndex, window_at};
use crate::limits::Zone;

use super::high_water::HighWater;
use super::mark::CounterMark;

#[derive(Debug)]
pub(crate) struct CalendarCounter {
    window: WindowIndex,
    /// End of the window, and the zone it was computed in; `None` when the counter was restored and nobody has come yet.
    end: Option<(Timestamp, Arc<str>)>,
    /// An instant by which the window has begun.
    begun: Timestamp,
    /// An instant by which it is over in every zone: the limit's zone may be edited, and the window last longer.
    over: Timestamp,
    pub(crate) observed: u128,
    pub(crate) held: u128,
    /// Part of `observed` that requests in flight were counted for, and may give back.
    pub(crate) pending: u128,
    /// Part of `observed` that a crash left open: it was promised to the journal, and may not have been spent.
    pub(crate) uncertain: u128,
    pub(crate) estimated: bool,
    pub(crate) unpriced: bool,
    pub(crate) high_water: HighWater,
}

impl CalendarCounter {
    /// In a window that holds `at`.
    pub(crate) fn new(
        period: CalendarPeriod,
        window: CalendarWindow,
        zone: &Zone,
        at: Timestamp,
    ) -> CalendarCounter {
        CalendarCounter {
            window: window.index,
            end: Some((window.resets_at, Arc::clone(&zone.name))),
            begun: at,
            over: period.over_everywhere(window.index),
            observed: 0,
            held: 0,
            pending: 0,
            uncertain: 0,
            estimated: false,
            unpriced: false,
            high_water: HighWater::default(),
        }
    }

    /// As it was written down: at its high water, for so much may have been spent. In which zone is not known.
    pub(crate) fn restored(period: CalendarPeriod, mark: &CounterMark) -> CalendarCounter {
        let over = period.over_everywhere(mark.window);
        CalendarCounter {
            window: mark.window,
            end: None,
            begun: over,
            over,
            observed: mark.resumes_at(),
            held: 0,
            pending: 0,
            uncertain: mark.uncertain.0 + mark.set_aside().0,
            estimated: mark.estimated,
            unpriced: mark.unpriced,
            high_water: HighWater::written(mark.resumes_at()),
        }
    }

    /// Takes in another mark of the same window: the greater figure stands.
    pub(crate) fn merge(&mut self, mark: &CounterMark) {
        self.estimated |= mark.estimated;
        self.unpriced |= mark.unpriced;
        if mark.resumes_at() > self.observed {
            self.uncertain = mark.uncertain.0 + mark.set_aside().0;
            self.observed = mark.resumes_at();
            self.high_water = HighWater::written(self.observed);
        }
    }

    /// What the counter stands at if every hold is used up.
    pub(crate) fn level(&self) -> u128 {
        self.observed.saturating_add(self.held)
    }

    pub(crate) fn window(&self) -> WindowIndex {
        self.window
    }

    /// The window that counts at `wall`: the counter's own, or a newer one.
    pub(crate) fn window_now(&self, period: CalendarPeriod, zone: &Zone, wall: Timestamp) -> CalendarWindow {
        if let Some((end, name)) = &self.end
            && wall < *end
            && (Arc::ptr_eq(name, &zone.name) || **name == *zone.name)
        {
            return CalendarWindow { index: self.window, resets_at: *end };
        }
        let mut window = window_at(period, &zone.zone, wall);
        for _ in 0..bounds::WINDOWS_AHEAD {
            if window.index >= self.window {
                break;
            }
            let next = window_at(period, &zone.zone, window.resets_at);
            if next.index > self.window {
                // This zone skips the counter's window, which another zone had: it is over when the next begins.
                break;
            }
            window = next;
        }
        CalendarWindow { index: window.index.max(self.window), ..window }
    }

    /// Observed and held in `window`: zero if the counter has not entered it.
    pub(crate) fn figures_in(&self, window: WindowIndex) -> (u128, u128) {
        if window == self.window { (self.observed, self.held) } else { (0, 0) }
    }

    /// Makes `window`, which [`CalendarCounter::window_now`] gave at `wall`, the counter's own; at zero if it is a newer
    /// one.
    pub(crate) fn enter(
        &mut self,
        period: CalendarPeriod,
        window: CalendarWindow,
        zone: &Zone,
        wall: Timestamp,
    ) {
        debug_assert!(window.index >= self.window, "a window index went back");
        if window.index > self.window {
            *self = CalendarCounter::new(period, window, zone, wall);
            return;
        }
        match &mut self.end {
            Some((end, name)) if **name == *zone.name => *end = window.resets_at,
            end => *end = Some((window.resets_at, Arc::clone(&zone.name))),
        }
    }

    /// Whether the window has passed, or nothing was ever counted in it: then forgetting the counter changes nothing, if no
    /// counter is begun in a window before that of `wall` from then on.
    pub(crate) fn is_spent(&self, wall: Timestamp) -> bool {
        let empty = self.observed == 0 && self.held == 0 && !self.estimated && !self.unpriced;
        self.over <= wall || (empty && self.begun <= wall)
    }
}
