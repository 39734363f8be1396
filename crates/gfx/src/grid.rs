//! A launch: its groups and waves, and whose turn it is.
use crate::cache::{Caches, Port};
use crate::code::VECTOR;
use crate::error::{Cause, LaunchError, Place};
use crate::execute::{self, Step};
use crate::inst::Inst;
use crate::late::Group;
use crate::launch::{Config, Launch, PACKET};
use crate::lines;
use crate::memory::Ranges;
use crate::module::Module;
use crate::object::{Kernel, USER_SIZES};
use crate::wave::{SCRATCH_BASE, SCRATCH_WORDS, State, Wave};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Instructions of one turn at most.
const TURN: u32 = 64;
/// Turns between two checks of the clock.
const LOOK: u32 = 64;
/// Bytes of scratch memory of each lane, beside those that the compiler counted, for kernels that call functions
/// which it cannot see.
const DYNAMIC_STACK: u64 = 16 << 10;
/// Waves that an error lists.
const LISTED: usize = 16;

/// A wave by its group's number, and its own in the group.
type Turn = (u64, usize);

impl Group {
    /// Lets a wave execute an instruction.
    fn step(&mut self, number: usize, inst: &Inst, port: &mut Port<'_>) -> Result<Step, Cause> {
        self.some(port)?;
        let step = execute::step(&mut self.waves[number], inst, port, &mut self.lds)?;
        match step {
            Step::Issue(pending) => self.issue(number, pending, port)?,
            Step::Wait(left) => self.wait(number, left, port)?,
            Step::Pause(State::Ended) => {
                self.wait(number, 0, port)?;
                return Ok(step);
            }
            other => return Ok(other),
        }
        Ok(Step::Next)
    }
}

struct Grid<'a> {
    module: &'a Module,
    kernel: &'a Kernel,
    launch: &'a Launch<'a>,
    packet: u64,
    /// Those that have begun and not ended, by number.
    groups: BTreeMap<u64, Group>,
    ready: Vec<Turn>,
    begun: u64,
    live: usize,
    caches: Option<Caches>,
}

/// Runs all groups of the launch, whose dispatch packet and arguments are at `packet`.
pub(crate) fn run(
    ranges: &Ranges,
    config: Config,
    module: &Module,
    kernel: &Kernel,
    launch: &Launch<'_>,
    packet: u64,
) -> Result<(), LaunchError> {
    let mut grid = Grid {
        module,
        kernel,
        launch,
        packet,
        groups: BTreeMap::new(),
        ready: Vec::new(),
        begun: 0,
        live: 0,
        caches: config.lazy.then(|| Caches::new(config.seed, config.target)),
    };
    let mut random = SmallRng::seed_from_u64(config.seed);
    let (mut turns, mut asleep) = (0, 0);
    loop {
        grid.begin(config.waves);
        if grid.ready.is_empty() {
            grid.caches.iter_mut().for_each(|caches| caches.flush(&ranges.view()));
            return Ok(());
        }
        let turn = random.random_range(0..grid.ready.len());
        let most = grid.caches.as_ref().map_or(TURN, |caches| caches.turn);
        let length = random.random_range(1..=most);
        let slept = grid.turn(turn, length, ranges)?;
        // If every wave sleeps, they wait for another thread: let it run.
        asleep = if slept { asleep + 1 } else { 0 };
        if asleep > 2 * grid.ready.len() {
            asleep = 0;
            std::thread::sleep(Duration::from_micros(20));
        }
        turns += 1;
        if turns % LOOK == 0 || slept {
            grid.look()?;
        }
        grid.drift(ranges)?;
    }
}

impl Grid<'_> {
    /// Begins groups while there is room.
    fn begin(&mut self, room: usize) {
        let total = self.launch.grid.iter().map(|&groups| u64::from(groups)).product::<u64>();
        let waves = self.launch.block.iter().product::<u32>().div_ceil(64) as usize;
        while self.begun < total && (self.live == 0 || self.live + waves <= room) {
            let index = self.begun;
            let group = Group {
                index,
                unit: self.caches.as_mut().map_or(0, Caches::unit),
                lds: vec![0; (self.kernel.metadata.lds + self.launch.dynamic_lds) as usize],
                waves: (0..waves).map(|wave| self.wave(index, wave as u32)).collect(),
                late: Vec::new(),
            };
            self.groups.insert(index, group);
            self.ready.extend((0..waves).map(|wave| (index, wave)));
            self.begun += 1;
            self.live += waves;
        }
    }

    /// Registers as the hardware's dispatcher leaves them.
    fn wave(&self, group: u64, number: u32) -> Wave {
        let (kernel, block, grid) = (self.kernel, self.launch.block, self.launch.grid);
        let threads = block.iter().product::<u32>() - 64 * number;
        let exec = if threads >= 64 { u64::MAX } else { (1 << threads) - 1 };
        let stack = u64::from(kernel.metadata.scratch)
            + if kernel.metadata.dynamic_stack { DYNAMIC_STACK } else { 0 };
        let mut wave = Wave::new(self.module.base(), kernel.entry, exec, stack);
        let mut next = 0;
        let wanted = |bit: &usize| kernel.user >> bit & 1 != 0;
        for bit in (0..USER_SIZES.len()).filter(wanted) {
            match bit {
                0 => {
                    wave.write64(next, SCRATCH_BASE);
                    wave.write64(next + 2, SCRATCH_WORDS);
                }
                1 => wave.write64(next, self.packet),
                3 => wave.write64(next, self.packet + PACKET),
                5 => wave.write64(next, SCRATCH_BASE),
                6 => wave.write32(next, kernel.metadata.scratch),
                _ => {}
            }
            next += USER_SIZES[bit];
        }
        let (x, y) = (u64::from(grid[0]), u64::from(grid[1]));
        // Another one for each wave of a group.
        let scratch = 0x1_0000 * u64::from(number + 1);
        wave.scratch_at = SCRATCH_BASE + scratch;
        let ids = [group % x, group / x % y, group / x / y, 0, scratch];
        for (&id, _) in ids.iter().zip(kernel.group_ids).filter(|(_, wanted)| *wanted) {
            wave.write32(next, id as u32);
            next += 1;
        }
        for lane in 0..64 {
            let thread = 64 * number + lane;
            let rest = thread / block[0];
            let [x, y, z] = [thread % block[0], rest % block[1], rest / block[1]];
            wave.set_lane(VECTOR, lane as usize, x | y << 10 | z << 20);
        }
        wave
    }

    /// Lets a wave execute `length` instructions at most. Returns whether it executed `s_sleep`.
    fn turn(&mut self, ready: usize, length: u32, ranges: &Ranges) -> Result<bool, LaunchError> {
        let (at, number) = self.ready[ready];
        let Some(group) = self.groups.get_mut(&at) else { return Ok(false) };
        let mut port = Port::new(ranges, self.caches.as_mut().map(|caches| (caches, group.unit)));
        port.drift();
        for _ in 0..length {
            let step = match self.module.instruction(group.waves[number].pc) {
                Some(Ok(inst)) => group.step(number, inst, &mut port),
                Some(Err(error)) => Err(Cause::Decode(error.clone())),
                None => Err(Cause::Left),
            };
            match step {
                Ok(Step::Next | Step::Issue(_) | Step::Wait(_)) => {}
                Ok(Step::Sleep) => return Ok(true),
                Ok(Step::Pause(state)) => {
                    group.waves[number].state = state;
                    self.live -= usize::from(state == State::Ended);
                    self.ready.swap_remove(ready);
                    drop(port);
                    self.meet(at);
                    return Ok(false);
                }
                Err(cause) => return Err(fault(self.module, self.kernel, group, number, cause)),
            }
        }
        Ok(false)
    }

    /// After a wave came to the barrier or ended: releases the waves that wait, or the group.
    fn meet(&mut self, at: u64) {
        let Some(group) = self.groups.get_mut(&at) else { return };
        let mut left = group.waves.iter().filter(|wave| wave.state != State::Ended).peekable();
        if left.peek().is_none() {
            self.groups.remove(&at);
        } else if left.all(|wave| wave.state == State::AtBarrier) {
            let waves = group.waves.iter_mut().enumerate();
            for (number, wave) in waves.filter(|(_, wave)| wave.state == State::AtBarrier) {
                wave.state = State::Runs;
                self.ready.push((at, number));
            }
        }
    }

    /// Accesses of any group complete, also where none of its waves has its turn soon.
    fn drift(&mut self, ranges: &Ranges) -> Result<(), LaunchError> {
        let Some(caches) = &mut self.caches else { return Ok(()) };
        let any = caches
            .any(self.ready.len())
            .and_then(|ready| self.groups.get_mut(&self.ready[ready].0));
        let Some(group) = any else { return Ok(()) };
        let done = group.some(&mut Port::new(ranges, Some((caches, group.unit))));
        // Of whichever wave it is, for a fault.
        done.map_err(|cause| fault(self.module, self.kernel, group, 0, cause))
    }

    fn look(&self) -> Result<(), LaunchError> {
        let (late, stopped) = (Instant::now() >= self.launch.deadline, self.launch.stop.is_set());
        if !late && !stopped {
            return Ok(());
        }
        let groups = self.groups.values();
        let waves = groups.flat_map(|group| (0..group.waves.len()).map(move |wave| (group, wave)));
        let left =
            waves.filter(|(group, wave)| group.waves[*wave].state != State::Ended).take(LISTED);
        let places = left.map(|(group, wave)| place(self.module, group, wave)).collect();
        let (kernel, left) = (self.kernel.metadata.name.clone(), self.live);
        let target = self.module.object.target;
        Err(LaunchError::Unfinished { target, kernel, stopped, left, places })
    }
}

fn fault(
    module: &Module,
    kernel: &Kernel,
    group: &Group,
    number: usize,
    cause: Cause,
) -> LaunchError {
    let place = Box::new(place(module, group, number));
    let target = module.object.target;
    LaunchError::Fault { target, kernel: kernel.metadata.name.clone(), place, cause }
}

fn place(module: &Module, group: &Group, number: usize) -> Place {
    let wave = &group.waves[number];
    let instruction = match module.instruction(wave.pc) {
        Some(Ok(inst)) => inst.to_string(),
        Some(Err(_)) => "no instruction".into(),
        None => "outside of the code".into(),
    };
    Place {
        group: group.index,
        wave: number as u32,
        pc: wave.pc,
        instruction,
        source: lines::source(&module.object.file, wave.pc),
        exec: wave.exec(),
        waits: (wave.state == State::AtBarrier).then_some("barrier"),
    }
}
