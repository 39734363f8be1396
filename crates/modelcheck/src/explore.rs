//! All runs of a scenario, or many at random.

use crate::machine::{Choice, Limits, Machine, Sharing, Stacks, State};
use crate::report::{Failure, Report, from_text, to_text};
use crate::scenario::{Mutant, Scenario};
use rustc_hash::FxHashSet;

/// How much of a scenario to explore.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Runs at random, before anything else. They also find out which locations are shared.
    pub walks: u64,
    /// Seed of these.
    pub seed: u64,
    /// Whether to go through all runs, within the limits below.
    pub exhaustive: bool,
    /// Times that a running thread may be stopped for another; `None` for any number.
    pub preemptions: Option<u32>,
    /// Times that a paused thread looks again although nothing has changed.
    pub spurious: u32,
    /// Times that one thread pauses.
    pub pauses: u32,
    /// States at which an exploration is given up as too large.
    pub states: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            walks: 200,
            seed: 1,
            exhaustive: true,
            preemptions: None,
            spurious: 0,
            pauses: 12,
            states: 2_000_000,
        }
    }
}

impl Settings {
    fn limits(&self) -> Limits {
        let Self { preemptions: switches, spurious, pauses, .. } = *self;
        Limits { switches, spurious, pauses }
    }
}

/// Explores `scenario`, weakened by `mutant`, up to the first failure.
pub fn explore(scenario: &Scenario, mutant: Option<&Mutant>, settings: &Settings) -> Report {
    let mut sharing = Sharing::default();
    let mut stacks = Stacks::new();
    let mut report = Report::default();
    let job = Job { scenario, mutant, settings };
    let failed = job.walk(&mut report, &mut sharing, &mut stacks).err();
    let failed = failed.or_else(|| {
        if !settings.exhaustive {
            return None;
        }
        // A location that is found to be shared was treated as private before: begin again.
        loop {
            sharing.grown = false;
            let failed = job.all(&mut report, &mut sharing, &mut stacks).err();
            if failed.is_some() || !sharing.grown {
                return failed;
            }
        }
    });
    if let Some((failure, schedule)) = failed {
        report.complete = false;
        report.failure = Some(explain(scenario, mutant, settings, failure, &schedule));
    }
    report
}

/// Runs `scenario` along a [`Failure::schedule`] and tells every step; the failure it ends in.
pub fn replay(
    scenario: &Scenario,
    mutant: Option<&Mutant>,
    settings: &Settings,
    schedule: &str,
) -> Result<Option<Failure>, String> {
    let steps = from_text(schedule)?;
    let (mut sharing, mut stacks) = (Sharing::default(), Stacks::new());
    let limits = settings.limits();
    let mut machine = Machine::new(scenario, mutant, limits, &mut sharing, &mut stacks);
    machine.trace = Some(Vec::new());
    let mut result = machine.start();
    for step in steps {
        result = result.and_then(|()| machine.apply(step));
    }
    // The end of the run has its own rules.
    let result = result.and_then(|()| match machine.choices()?.is_empty() {
        true => machine.finish(),
        false => Ok(()),
    });
    let trace = machine.trace.take().unwrap_or_default();
    machine.give_stacks(&mut stacks);
    Ok(result.err().map(|f| Failure { schedule: schedule.to_owned(), trace, ..f }))
}

fn explain(
    scenario: &Scenario,
    mutant: Option<&Mutant>,
    settings: &Settings,
    failure: Failure,
    schedule: &[Choice],
) -> Failure {
    let schedule = to_text(schedule);
    match replay(scenario, mutant, settings, &schedule) {
        Ok(Some(told)) => told,
        _ => Failure { schedule, ..failure },
    }
}

/// A failure with the steps that led to it.
type Failed = (Failure, Vec<Choice>);

struct Job<'a> {
    scenario: &'a Scenario,
    mutant: Option<&'a Mutant>,
    settings: &'a Settings,
}

impl Job<'_> {
    /// Runs at random.
    fn walk(
        &self,
        report: &mut Report,
        sharing: &mut Sharing,
        stacks: &mut Stacks,
    ) -> Result<(), Failed> {
        let limits = Limits { switches: None, ..self.settings.limits() };
        for run in 0..self.settings.walks {
            let mut random = Random(self.settings.seed ^ run.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let mut machine = Machine::new(self.scenario, self.mutant, limits, sharing, stacks);
            let mut schedule = Vec::new();
            let result = walk_once(&mut machine, &mut random, &mut schedule);
            report.sites.append(&mut machine.sites);
            report.runs += 1;
            match &result {
                Ok(true) => {
                    report.outcomes.insert(machine.state.notes);
                }
                Ok(false) => report.cut += 1,
                Err(_) => {}
            }
            machine.give_stacks(stacks);
            result.map_err(|failure| (failure, schedule))?;
        }
        Ok(())
    }

    /// All runs, depth first. A state that was reached before is not gone on from: what a thread
    /// knows is determined by the answers it had, so states can be told apart without a look at
    /// its stack.
    fn all(
        &self,
        report: &mut Report,
        sharing: &mut Sharing,
        stacks: &mut Stacks,
    ) -> Result<(), Failed> {
        let limits = self.settings.limits();
        let mut machine = Machine::new(self.scenario, self.mutant, limits, sharing, stacks);
        let mut search = Search::default();
        let result = search.run(&mut machine, stacks, report, self.settings.states);
        report.sites.append(&mut machine.sites);
        report.states = search.known.len() as u64;
        machine.give_stacks(stacks);
        report.complete = *result.as_ref().unwrap_or(&false);
        result.map(|_| ()).map_err(|failure| (failure, search.schedule))
    }
}

fn walk_once(
    machine: &mut Machine<'_>,
    random: &mut Random,
    schedule: &mut Vec<Choice>,
) -> Result<bool, Failure> {
    machine.start()?;
    // How often the running thread goes on, and the newest value is read, in sixteenths.
    let (stay, fresh) = (random.below(16), random.below(16));
    loop {
        if machine.overlong() {
            return Ok(false);
        }
        let choices = machine.choices()?;
        if choices.is_empty() {
            machine.finish()?;
            return Ok(true);
        }
        let mut choice = choices[random.below(choices.len())];
        if random.below(16) < stay {
            choice.thread = choices[0].thread;
        }
        let ways: Vec<Choice> = choices.into_iter().filter(|c| c.thread == choice.thread).collect();
        let way = if random.below(16) < fresh { 0 } else { random.below(ways.len()) };
        choice = ways[way];
        schedule.push(choice);
        machine.apply(choice)?;
    }
}

/// A point at which there was a choice.
struct Node {
    state: State,
    log: usize,
    schedule: usize,
    left: Vec<Choice>,
}

#[derive(Default)]
struct Search {
    nodes: Vec<Node>,
    known: FxHashSet<u64>,
    schedule: Vec<Choice>,
}

impl Search {
    /// True if all was explored.
    fn run(
        &mut self,
        machine: &mut Machine<'_>,
        stacks: &mut Stacks,
        report: &mut Report,
        most: u64,
    ) -> Result<bool, Failure> {
        machine.start()?;
        loop {
            self.descend(machine, report)?;
            report.runs += 1;
            if self.known.len() as u64 > most {
                return Ok(false);
            }
            let Some(choice) = self.back(machine, stacks) else { return Ok(true) };
            self.schedule.push(choice);
            machine.apply(choice)?;
        }
    }

    /// Goes on to the end of the run, or to a state that is known.
    fn descend(&mut self, machine: &mut Machine<'_>, report: &mut Report) -> Result<(), Failure> {
        loop {
            if machine.overlong() {
                report.cut += 1;
                return Ok(());
            }
            let mut choices = machine.choices()?;
            if choices.is_empty() {
                report.outcomes.insert(machine.state.notes);
                return machine.finish();
            }
            if choices.len() > 1 {
                if !self.known.insert(machine.hash()) {
                    return Ok(());
                }
                choices.reverse();
            }
            let Some(choice) = choices.pop() else { return Ok(()) };
            if !choices.is_empty() {
                let (state, log) = (machine.state.clone(), machine.log.len());
                let schedule = self.schedule.len();
                self.nodes.push(Node { state, log, schedule, left: choices });
            }
            self.schedule.push(choice);
            machine.apply(choice)?;
        }
    }

    /// Goes back to the last point with a choice left; that choice.
    fn back(&mut self, machine: &mut Machine<'_>, stacks: &mut Stacks) -> Option<Choice> {
        let node = self.nodes.last_mut()?;
        let choice = node.left.pop()?;
        self.schedule.truncate(node.schedule);
        let log = node.log;
        let state = match node.left.is_empty() {
            true => self.nodes.pop()?.state,
            false => node.state.clone(),
        };
        machine.rewind(state, log, stacks);
        Some(choice)
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ x >> 31) % end as u64) as usize
    }
}
