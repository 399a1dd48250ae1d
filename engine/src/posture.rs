//! How strictly a limit is applied: when it admits, whether it is evaluated, whether it refuses (SPEC section 3).

/// When a spend or token limit admits.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Default, Debug)]
pub enum Admit {
    /// While `observed + held < amount`.
    #[default]
    WhileUnder,
    /// When `observed + held + estimate <= amount`.
    IfFits,
}

impl Admit {
    /// The word in the config.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Admit::WhileUnder => "while_under",
            Admit::IfFits => "if_fits",
        }
    }

    /// The rule of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Admit> {
        [Admit::WhileUnder, Admit::IfFits].into_iter().find(|admit| admit.name() == text)
    }
}

/// Whether a limit is evaluated and counted.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Default, Debug)]
pub enum Mode {
    /// Neither evaluated nor counted.
    Off,
    /// Counted; a would-be refusal is only told.
    Shadow,
    /// In force.
    #[default]
    On,
}

/// What a limit that is over does.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Default, Debug)]
pub enum Enforce {
    /// Refuses with 429.
    #[default]
    Hard,
    /// Admits, with an alert.
    AlertOnly,
}

/// What happens when a limit cannot be evaluated.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Default, Debug)]
pub enum Fail {
    /// Admits.
    #[default]
    Open,
    /// Refuses.
    Closed,
}

impl Mode {
    /// The word in the config.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Off => "off",
            Mode::Shadow => "shadow",
            Mode::On => "on",
        }
    }

    /// The mode of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Mode> {
        [Mode::Off, Mode::Shadow, Mode::On].into_iter().find(|mode| mode.name() == text)
    }
}

impl Enforce {
    /// The word in the config.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Enforce::Hard => "hard",
            Enforce::AlertOnly => "alert_only",
        }
    }

    /// The rule of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Enforce> {
        [Enforce::Hard, Enforce::AlertOnly].into_iter().find(|enforce| enforce.name() == text)
    }
}

impl Fail {
    /// The word in the config.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Fail::Open => "open",
            Fail::Closed => "closed",
        }
    }

    /// The rule of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Fail> {
        [Fail::Open, Fail::Closed].into_iter().find(|fail| fail.name() == text)
    }
}

/// How strictly a limit is applied. The default is `on / hard / open`.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Default, Debug)]
pub struct Posture {
    /// Evaluated and counted, or not.
    pub mode: Mode,
    /// Refuse or alert.
    pub enforce: Enforce,
    /// What to do when it cannot be evaluated.
    pub fail: Fail,
}

impl Posture {
    /// The one word of listings: `off`, `shadow`, `alert_only`, `hard`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self.mode {
            Mode::Off | Mode::Shadow => self.mode.name(),
            Mode::On => self.enforce.name(),
        }
    }
}
