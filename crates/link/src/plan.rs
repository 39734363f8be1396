//! Which faults a link has, as a value and as text: `loss=1%,delay=100us,seed=7`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// A probability in steps of a millionth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chance(u32);

impl Chance {
    /// 0 %.
    pub const NEVER: Self = Self(0);
    /// 100 %.
    pub const ALWAYS: Self = Self(1_000_000);

    /// A probability of `n` in a thousand; a thousand or more is always.
    pub const fn thousandths(n: u32) -> Self {
        if n < 1000 { Self(n * 1000) } else { Self::ALWAYS }
    }

    /// Of a million.
    pub const fn millionths(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / 1e4)
    }
}

impl FromStr for Chance {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let refused = || PlanError::Chance { text: text.into() };
        let percent = text.strip_suffix('%').ok_or_else(refused)?;
        let (whole, rest) = percent.split_once('.').unwrap_or((percent, ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let dot = percent.len() > whole.len();
        if whole.is_empty() || !digits(whole) || !digits(rest) || rest.len() > 4 {
            return Err(refused());
        }
        if dot && rest.is_empty() {
            return Err(refused());
        }
        let whole: u32 = whole.parse().map_err(|_| refused())?;
        let rest: u32 = format!("{rest:0<4}").parse().map_err(|_| refused())?;
        let millionths = whole.checked_mul(10_000).and_then(|whole| whole.checked_add(rest));
        let chance = Self(millionths.ok_or_else(refused)?);
        if chance <= Self::ALWAYS { Ok(chance) } else { Err(refused()) }
    }
}

/// Which faults a link has; by default none. As text, a list of `loss=P`, `dup=P`, `reorder=P`,
/// `corrupt=P` (each a percentage with its sign), `delay=T`, `late=T` (each a time with its unit)
/// and `seed=N`, in any order, none twice.
///
/// ```
/// # use warpverbs_link::{Chance, FaultPlan};
/// let plan: FaultPlan = "loss=1%,delay=100us,seed=7".parse()?;
/// assert_eq!((plan.loss, plan.seed), (Chance::thousandths(10), 7));
/// assert_eq!(plan.to_string(), "loss=1%,delay=100µs,seed=7");
/// # Ok::<(), warpverbs_link::PlanError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// Draws everything below.
    pub seed: u64,
    /// Datagrams that vanish.
    pub loss: Chance,
    /// Datagrams that arrive twice.
    pub duplicate: Chance,
    /// Datagrams that are held back for `late`, so that others overtake them.
    pub reorder: Chance,
    /// Datagrams of which one bit is turned over.
    pub corrupt: Chance,
    /// How long every datagram takes.
    pub delay: Duration,
    /// How much longer one that is held back takes. In text it is 1 ms unless given.
    pub late: Duration,
}

/// How late a datagram is that is reordered, if the text does not say.
const LATE: Duration = Duration::from_millis(1);
/// The longest delay: beyond it every request would have been given up.
const LONGEST: Duration = Duration::from_secs(10);

/// The reason why a text is not a [`FaultPlan`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Not a fault.
    #[error(
        "{part:?}: expected loss=P, dup=P, reorder=P, corrupt=P, delay=T, late=T or seed=N, \
         separated by commas"
    )]
    Part {
        /// The text.
        part: String,
    },
    /// A fault given twice.
    #[error("{name} is given twice")]
    Twice {
        /// Its name.
        name: String,
    },
    /// The text cannot be read as a probability.
    #[error(
        "{text:?} is not a probability, expected 0% to 100% with at most 4 decimals, such as 0.1%"
    )]
    Chance {
        /// The text.
        text: String,
    },
    /// Not a time.
    #[error(
        "{text:?} is not a delay, expected digits and ns, us, ms or s, at most 10 s, such as 200us"
    )]
    Time {
        /// The text.
        text: String,
    },
    /// Not a seed.
    #[error("{text:?} is not a seed, expected a number from 0 to 18446744073709551615")]
    Seed {
        /// The text.
        text: String,
    },
}

fn time(text: &str) -> Result<Duration, PlanError> {
    let refused = || PlanError::Time { text: text.into() };
    let at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(refused)?;
    let (digits, unit) = text.split_at(at);
    let number: u64 = digits.parse().map_err(|_| refused())?;
    let scale = match unit {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(refused()),
    };
    let time = number.checked_mul(scale).map(Duration::from_nanos);
    time.filter(|time| *time <= LONGEST).ok_or_else(refused)
}

impl FaultPlan {
    /// Whether a link with this plan is like one without.
    pub fn is_none(&self) -> bool {
        Self { seed: 0, late: Duration::ZERO, ..*self } == Self::default()
    }

    fn set(
        &mut self,
        name: &str,
        value: &str,
        late: &mut Option<Duration>,
    ) -> Result<(), PlanError> {
        match name {
            "loss" => self.loss = value.parse()?,
            "dup" => self.duplicate = value.parse()?,
            "reorder" => self.reorder = value.parse()?,
            "corrupt" => self.corrupt = value.parse()?,
            "delay" => self.delay = time(value)?,
            "late" => *late = Some(time(value)?),
            "seed" => {
                self.seed = value.parse().map_err(|_| PlanError::Seed { text: value.into() })?;
            }
            _ => return Err(PlanError::Part { part: format!("{name}={value}") }),
        }
        Ok(())
    }
}

impl FromStr for FaultPlan {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let (mut plan, mut late, mut names) = (Self::default(), None, Vec::new());
        for part in text.split(',').map(str::trim) {
            let (name, value) =
                part.split_once('=').ok_or_else(|| PlanError::Part { part: part.into() })?;
            plan.set(name, value, &mut late)?;
            if names.contains(&name) {
                return Err(PlanError::Twice { name: name.into() });
            }
            names.push(name);
        }
        let usual = if plan.reorder == Chance::NEVER { Duration::ZERO } else { LATE };
        plan.late = late.unwrap_or(usual);
        Ok(plan)
    }
}

impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chances = [
            ("loss", self.loss),
            ("dup", self.duplicate),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
        ];
        for (name, chance) in chances {
            if chance != Chance::NEVER {
                write!(f, "{name}={chance},")?;
            }
        }
        for (name, time) in [("delay", self.delay), ("late", self.late)] {
            if time != Duration::ZERO {
                write!(f, "{name}={},", Whole(time))?;
            }
        }
        write!(f, "seed={}", self.seed)
    }
}

/// A time in the largest unit that leaves no fraction, as it is read.
struct Whole(Duration);

impl fmt::Display for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"), (1, "ns")];
        let (scale, unit) =
            units.into_iter().find(|(scale, _)| nanos.is_multiple_of(*scale)).unwrap_or((1, "ns"));
        write!(f, "{}{unit}", nanos / scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_read_and_print_as_they_are_read() {
        let text = "loss=1%,dup=0.1%,reorder=20%,corrupt=0.0001%,delay=100us,late=3ms,seed=9";
        let plan: FaultPlan = text.parse().unwrap();
        let expected = FaultPlan {
            seed: 9,
            loss: Chance::thousandths(10),
            duplicate: Chance::thousandths(1),
            reorder: Chance::thousandths(200),
            corrupt: Chance(1),
            delay: Duration::from_micros(100),
            late: Duration::from_millis(3),
        };
        assert_eq!(plan, expected);
        assert_eq!(plan.to_string().parse(), Ok(plan));
        assert_eq!("reorder=1%".parse::<FaultPlan>().unwrap().late, LATE);
        assert_eq!(" seed=4 , loss=100% ".parse::<FaultPlan>().unwrap().loss, Chance::ALWAYS);
        for time in ["1ns", "1500us", "7µs", "10s"] {
            let plan: FaultPlan = format!("delay={time}").parse().unwrap();
            assert_eq!(plan.to_string().parse(), Ok(plan), "{time}");
        }
    }

    #[test]
    fn a_seed_alone_disturbs_nothing() {
        assert!("seed=7".parse::<FaultPlan>().unwrap().is_none());
        assert!("loss=0%".parse::<FaultPlan>().unwrap().is_none());
        assert!(!"delay=1ns".parse::<FaultPlan>().unwrap().is_none());
    }

    #[test]
    fn what_is_no_plan_is_refused_with_what_was_expected() {
        let refused = |text: &str, word: &str| {
            let error = text.parse::<FaultPlan>().unwrap_err().to_string();
            assert!(error.contains(word), "{text:?}: {error}");
        };
        for part in ["", "loss", "loss=1%,", "lost=1%", "Loss=1%"] {
            refused(part, "expected loss=P, dup=P");
        }
        for chance in
            ["1", "", "%", "-1%", "101%", "1.%", ".5%", "1.00001%", "0,5%", "99999999999%"]
        {
            refused(&format!("loss={chance}"), "expected");
        }
        for time in ["1", "us", "11s", "1.5ms", "-1us", "99999999999999999999s", "1m"] {
            refused(&format!("delay={time}"), "is not a delay");
        }
        refused("seed=-1", "is not a seed");
        refused("loss=1%,loss=2%", "loss is given twice");
    }
}
