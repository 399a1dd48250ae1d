//! A mean and a mean deviation that follow what they are shown, as RFC 6298 §2 smooths round trips: the mean takes an eighth
//! of each error, the deviation a quarter of the difference to its size.
//!
//! Both are kept multiplied by what they are divided by (Jacobson, "Congestion Avoidance and Control", 1988, appendix A), so
//! that nothing is lost to rounding: shown the same value again and again, they end at just that value.

/// The largest value that is kept; what is larger counts as this.
pub(super) const LARGEST: u32 = 1 << 28;

/// What has been seen of one figure.
#[derive(Copy, Clone, Eq, PartialEq, Default, Debug)]
pub(super) struct Smoothed {
    /// In eighths; 0 before anything was seen.
    mean: u32,
    /// In quarters.
    deviation: u32,
}

impl Smoothed {
    /// Takes in a value; zero counts as one.
    pub(super) fn add(&mut self, value: u32) {
        let value = value.clamp(1, LARGEST);
        if self.mean == 0 {
            // RFC 6298 takes half of a first round trip as its deviation, because a timer that goes off early is the dear
            // mistake. Here a hold of three times the first value would refuse what fits: an eighth.
            *self = Smoothed { mean: value * 8, deviation: value / 2 };
            return;
        }
        let mean = self.mean / 8;
        self.mean = self.mean - mean + value;
        self.deviation = self.deviation - self.deviation / 4 + value.abs_diff(mean);
    }

    /// What the next value will hardly exceed: the mean and four deviations; 0 before anything was seen. With values as
    /// they fall from a bell curve, one in a thousand does.
    pub(super) fn likely_most(self) -> u32 {
        self.mean / 8 + self.deviation / 4 * 4
    }
}
