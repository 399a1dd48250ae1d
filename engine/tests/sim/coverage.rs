//! A tally of where the worlds came: a generator that never gets somewhere proves nothing about it.

macro_rules! kinds {
    ($($kind:ident),* $(,)?) => {
        /// Something that happened.
        #[derive(Copy, Clone, Eq, PartialEq, Debug)]
        pub enum Kind { $($kind),* }

        impl Kind {
            pub const ALL: &[Kind] = &[$(Kind::$kind),*];
        }
    };
}

kinds! {
    // Verdicts.
    GateOneAdmitted, GateOneRefused, GateOneRefusedBySeveral, GateOneAlerted,
    Admitted, AdmittedInSecondRound, Alerted, Shadowed, NothingToAsk,
    RefusedInFirstRound, RefusedInSecondRound, RefusedBySeveralOwners, RefusedBySeveralOwnersInSecondRound,
    Over, HeldOnly, Unpriced, NeverFits,
    RefusedByRpm, RefusedByConcurrency, RefusedByTpm, RefusedByQuotaRequests, RefusedByQuotaTokens, RefusedByBudget,
    // Endings.
    Settled, SettledAboveHold, SettledAtZero, SettledEstimated, SettledUnpriced, SettledTooLate, Voided, DroppedAdmitted,
    CancelledBeforeAsking, CancelledBetweenAsks, CancelledWaiting, DroppedWaiting, LateVoid, VoidOvertookReserve,
    HoldExpired,
    // Cores and rings.
    RingFull, AskPutAside, CoreStopped, CoreLost, CoreLostWithHolds, CoreLostWithParcels, AnswerNeverCame, MarkRestored,
    HighWaterResumed,
    Journaled, CountersSwept, CellsSwept, FiguresAsked,
    // Clocks.
    ExactBoundary, WallBack, WallForward, WindowKeptThoughWallBack, WindowRolledOverHold, BucketLeftHold,
    // Rules.
    Reloaded, AmountEdited, PostureEdited, Rotated, Rezoned, LimitAdded, LimitRemoved, Overridden,
}

/// How often each [`Kind`] happened.
#[derive(Clone, Debug)]
pub struct Coverage([u64; Kind::ALL.len()]);

impl Coverage {
    pub fn new() -> Coverage {
        Coverage([0; Kind::ALL.len()])
    }

    pub fn note(&mut self, kind: Kind) {
        self.0[kind as usize] += 1;
    }

    pub fn note_if(&mut self, happened: bool, kind: Kind) {
        self.0[kind as usize] += u64::from(happened);
    }

    pub fn of(&self, kind: Kind) -> u64 {
        self.0[kind as usize]
    }

    pub fn add(&mut self, other: &Coverage) {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }

    pub fn print(&self) {
        for kind in Kind::ALL {
            eprintln!("{:>12} {kind:?}", self.of(*kind));
        }
    }
}
