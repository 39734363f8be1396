//! Cases: commands in two guests, and what has to come of them.

use super::bed::{Bed, Nic};
use anyhow::{Result, ensure};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// For one case on emulated machines that others keep busy, with room.
const LIMIT: Duration = Duration::from_secs(300);
/// How often a case is run that fails by what its `again` names.
const ATTEMPTS: u32 = 4;

pub(super) struct Part {
    pub(super) name: &'static str,
    /// Programs that the guests need, as `/bin/NAME`.
    pub(super) programs: Vec<PathBuf>,
    pub(super) cases: Vec<Case>,
}

pub(super) struct Case {
    name: String,
    nics: [Nic; 2],
    work: Work,
    shown: Shown,
    words: Vec<String>,
    again: Option<&'static str>,
    check: Check,
}

/// Looks closer at the outputs; what is shown of them.
type Check = Box<dyn Fn(&mut Bed, &[String; 2]) -> Result<String>>;

type Act = Box<dyn Fn(&mut Bed) -> Result<String>>;

enum Work {
    /// In guest 1.
    One(String),
    /// A server in guest 1 and its client in guest 2, which begins when something listens at the
    /// port, or a second later.
    Pair([String; 2], Option<u16>),
    /// More than commands.
    Act(Act),
}

/// The output that is shown, and in which words are looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    Nothing,
    Server,
    Client,
    Both,
}

impl Case {
    fn new(name: impl Into<String>, nics: [Nic; 2], work: Work, shown: Shown) -> Self {
        let check = Box::new(|_: &mut Bed, _: &[String; 2]| Ok(String::new()));
        Self { name: name.into(), nics, work, shown, words: Vec::new(), again: None, check }
    }

    /// A command in guest 1 that succeeds.
    pub(super) fn one(name: impl Into<String>, nics: [Nic; 2], command: impl Into<String>) -> Self {
        Self::new(name, nics, Work::One(command.into()), Shown::Server)
    }

    /// A server in guest 1 and its client in guest 2, which both succeed.
    pub(super) fn pair(name: impl Into<String>, nics: [Nic; 2], both: [String; 2]) -> Self {
        Self::new(name, nics, Work::Pair(both, None), Shown::Client)
    }

    /// A case that commands alone cannot do.
    pub(super) fn act(
        name: impl Into<String>,
        nics: [Nic; 2],
        act: impl Fn(&mut Bed) -> Result<String> + 'static,
    ) -> Self {
        Self::new(name, nics, Work::Act(Box::new(act)), Shown::Server)
    }

    pub(super) fn shown(self, shown: Shown) -> Self {
        Self { shown, ..self }
    }

    /// The output has all of these words.
    pub(super) fn words(self, words: &[&str]) -> Self {
        Self { words: words.iter().map(|&word| word.into()).collect(), ..self }
    }

    /// The client begins when the server listens at a TCP port.
    pub(super) fn on_port(mut self, port: u16) -> Self {
        if let Work::Pair(_, at) = &mut self.work {
            *at = Some(port);
        }
        self
    }

    /// A failure that says this is none of the case's: it is run again.
    pub(super) fn again(self, words: &'static str) -> Self {
        Self { again: Some(words), ..self }
    }

    /// Looks closer at the outputs of server and client, and may add lines to what is shown.
    pub(super) fn check(
        self,
        check: impl Fn(&mut Bed, &[String; 2]) -> Result<String> + 'static,
    ) -> Self {
        Self { check: Box::new(check), ..self }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Runs it; the lines to show.
    fn run(&self, bed: &mut Bed) -> Result<String> {
        bed.renew()?;
        bed.have(self.nics)?;
        let mut attempt = 1;
        let said = loop {
            match self.outputs(bed) {
                Err(error)
                    if attempt < ATTEMPTS
                        && self.again.is_some_and(|text| format!("{error:#}").contains(text)) =>
                {
                    println!("tried again: {}", self.name);
                    attempt += 1;
                }
                said => break said,
            }
        };
        let said = said?;
        let left = bed.leftovers()?;
        ensure!(left.is_empty(), "{left}");
        let shown = match self.shown {
            Shown::Nothing => &said[..0],
            Shown::Server => &said[..1],
            Shown::Client => &said[1..],
            Shown::Both => &said[..],
        };
        for (text, word) in shown.iter().flat_map(|text| self.words.iter().map(move |w| (text, w)))
        {
            ensure!(text.contains(word), "no '{word}' in {text}");
        }
        let more = (self.check)(bed, &said)?;
        Ok(format!("{}\n{more}", shown.concat()))
    }

    fn outputs(&self, bed: &mut Bed) -> Result<[String; 2]> {
        match &self.work {
            Work::One(command) => Ok([bed.one.check(command, LIMIT)?, String::new()]),
            Work::Pair(both, port) => bed.pair(both.each_ref().map(|line| &**line), *port, LIMIT),
            Work::Act(act) => Ok([act(bed)?, String::new()]),
        }
    }
}

/// Runs cases, each at most `tries` times; prints what came of each. One that fails is the last one in
/// its guests.
pub(super) fn run(bed: &mut Bed, cases: &[Case], tries: u32) -> Result<()> {
    let mut failed = Vec::new();
    for case in cases {
        for attempt in 1..=tries {
            let began = Instant::now();
            let outcome = case.run(bed);
            let (name, seconds) = (&case.name, began.elapsed().as_secs_f64());
            match outcome {
                Ok(text) => {
                    let late = if attempt > 1 { ", at a later try, in new guests" } else { "" };
                    println!("ok      {name} ({seconds:.0} s){late}");
                    let lines = text.lines().filter(|line| !line.is_empty());
                    lines.for_each(|line| println!("        {line}"));
                    break;
                }
                Err(error) => {
                    println!("FAILED  {name} ({seconds:.0} s): {error:#}");
                    bed.spoil().lines().for_each(|line| println!("        {line}"));
                }
            }
            failed.extend((attempt == tries).then_some(name.as_str()));
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join("; "));
    Ok(())
}
