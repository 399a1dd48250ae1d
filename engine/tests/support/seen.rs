//! A tally of where the random histories came.

/// How often the histories came where they should: a generator that never gets there proves nothing.
#[derive(Default, Debug)]
pub struct Seen {
    pub refused_at_gate_one: u32,
    pub admitted: u32,
    pub refused_by_several_owners: u32,
    pub second_round_admitted: u32,
    pub second_round_refused: u32,
    pub second_round_refused_by_several_owners: u32,
    pub alerted: u32,
    pub abandoned: u32,
    pub lost: u32,
}

impl Seen {
    pub fn counts(&self) -> [u32; 9] {
        [
            self.refused_at_gate_one,
            self.admitted,
            self.refused_by_several_owners,
            self.second_round_admitted,
            self.second_round_refused,
            self.second_round_refused_by_several_owners,
            self.alerted,
            self.abandoned,
            self.lost,
        ]
    }

    pub fn add(&mut self, other: &Seen) {
        self.refused_at_gate_one += other.refused_at_gate_one;
        self.admitted += other.admitted;
        self.refused_by_several_owners += other.refused_by_several_owners;
        self.second_round_admitted += other.second_round_admitted;
        self.second_round_refused += other.second_round_refused;
        self.second_round_refused_by_several_owners += other.second_round_refused_by_several_owners;
        self.alerted += other.alerted;
        self.abandoned += other.abandoned;
        self.lost += other.lost;
    }
}
