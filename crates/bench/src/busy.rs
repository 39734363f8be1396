//! Whether other programs wanted the cores while something was measured.

use std::time::{Duration, Instant};

/// CPU time of the machine and of this program, from some moment on.
pub struct Watch {
    since: Instant,
    before: Option<Times>,
}

/// Clock ticks of CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    /// Of all cores: with something to do, the host of a virtual machine included; without.
    busy: u64,
    idle: u64,
    /// Of this program and of those that it has waited for.
    own: u64,
}

/// Ticks a second, on every architecture that Linux has.
const HZ: f64 = 100.0;
/// Cores that others may use, and idle ones below which that disturbs.
const OTHERS: f64 = 0.2;
const SPARE: f64 = 1.0;
/// Below this, ticks tell nothing.
const SHORTEST: Duration = Duration::from_millis(100);

impl Watch {
    /// Begins to watch.
    pub fn start() -> Self {
        Self { since: Instant::now(), before: Times::now() }
    }

    /// A sentence, if others used cores that this program may have wanted.
    pub fn hint(&self) -> Option<String> {
        let elapsed = self.since.elapsed();
        if elapsed < SHORTEST {
            return None;
        }
        hint(self.before?, Times::now()?, elapsed.as_secs_f64())
    }
}

fn hint(before: Times, now: Times, seconds: f64) -> Option<String> {
    let cores = |after: u64, before: u64| after.saturating_sub(before) as f64 / HZ / seconds;
    let own = cores(now.own, before.own);
    let others = (cores(now.busy, before.busy) - own).max(0.0);
    let idle = cores(now.idle, before.idle);
    (others > OTHERS && idle < SPARE).then(|| {
        format!(
            "other programs used {others:.1} cores meanwhile and {idle:.1} were idle: figures are of \
             a busy machine, and a missed bound says nothing"
        )
    })
}

impl Times {
    fn now() -> Option<Self> {
        let machine = std::fs::read_to_string("/proc/stat").ok()?;
        let own = std::fs::read_to_string("/proc/self/stat").ok()?;
        Self::parse(&machine, &own)
    }

    /// From proc(5): user, nice, system, idle, iowait, irq, softirq, steal of the first line; fields
    /// 14 to 17 of the second file, counted behind the name in brackets, which may have blanks.
    fn parse(machine: &str, own: &str) -> Option<Self> {
        let cpu = machine.lines().next()?.strip_prefix("cpu ")?;
        let cpu: Vec<u64> = cpu.split_whitespace().map_while(|word| word.parse().ok()).collect();
        let idle = cpu.get(3)? + cpu.get(4)?;
        let busy = cpu.iter().take(8).sum::<u64>() - idle;
        let fields: Vec<&str> = own.rsplit_once(')')?.1.split_whitespace().collect();
        let own: Option<Vec<u64>> = fields.get(11..15)?.iter().map(|f| f.parse().ok()).collect();
        Some(Self { busy, idle, own: own?.iter().sum() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_linux_writes_them() {
        let machine = "cpu  10 1 20 300 4 5 6 7 0 0\ncpu0 1 1 1 1\n";
        let own = "42 (a (b) c) R 1 1 1 0 -1 4194304 2 3 4 5 100 20 3 4 20 0 1 0 9";
        assert_eq!(Times::parse(machine, own), Some(Times { busy: 49, idle: 304, own: 127 }));
        assert_eq!(Times::parse("", own), None);
        assert_eq!(Times::parse(machine, "42 (a) R 1"), None);
        assert!(Times::now().is_some());
    }

    #[test]
    fn others_disturb_where_no_core_is_left() {
        let times = |busy, idle, own| Times { busy, idle, own };
        let begin = times(0, 0, 0);
        // Two cores for one second, as ticks.
        assert_eq!(hint(begin, times(200, 0, 190), 1.0), None);
        assert_eq!(hint(begin, times(100, 100, 60), 1.0), None);
        let busy = hint(begin, times(200, 0, 90), 1.0).unwrap_or_default();
        assert!(busy.contains("1.1 cores") && busy.contains("says nothing"), "{busy}");
    }
}
