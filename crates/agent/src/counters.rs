//! The counts of an agent as programs and Prometheus see them.

use crate::control::Control;
use crate::memories::Memories;
use crate::names::{Op, PathKind};
use crate::peers::Peers;
use crate::tally::{Cause, Done};
use std::fmt::{self, Display, Write};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Transfers of one path and direction that are done. Probes of [`Agent::explain`](crate::Agent::explain)
/// and messages of streams are among them; what kernels post by themselves is not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moved {
    /// The path, or none for transfers between several memories that took different ones.
    pub path: Option<PathKind>,
    /// The direction.
    pub op: Op,
    /// How many.
    pub transfers: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their times from post to done, added up. Those of transfers at the same time overlap.
    pub time: Duration,
}

/// Transfers of one path and direction that ended for one reason before they were done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Undone {
    /// As in [`Moved`].
    pub path: Option<PathKind>,
    /// The direction.
    pub op: Op,
    /// The reason.
    pub cause: Cause,
    /// How many.
    pub transfers: u64,
}

/// The counts of an agent since its start, and all that it has at this moment. Made by
/// [`Agent::counters`](crate::Agent::counters).
///
/// A transfer that is posted twice counts twice. A post that is refused because the transfer is in progress
/// does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Transfers that are done: an entry for each path and direction.
    pub moved: Vec<Moved>,
    /// Transfers that failed or were cancelled: an entry for each path, direction and cause.
    pub undone: Vec<Undone>,
    /// Posts that have not ended, and whose calls have returned.
    pub in_progress: u64,
    /// How often each path was found to be the best one between two memories.
    pub chosen: Vec<(PathKind, u64)>,
    /// How often no path was found that works and is allowed: transfers that could not be made.
    pub no_path: u64,
    /// Notifications that peers have confirmed, those to the agent itself included.
    pub notifications_sent: u64,
    /// Notifications that have arrived, those of the agent itself included.
    pub notifications_received: u64,
    /// Notifications that were declined because too many wait to be taken.
    pub notifications_declined: u64,
    /// Notifications that wait to be taken.
    pub notifications_waiting: u64,
    /// Registrations.
    pub registrations: u64,
    /// Bytes of all registrations; memory that is registered twice counts twice.
    pub registered_bytes: u64,
    /// Peers that are known and not lost.
    pub peers: u64,
    /// How often a peer was lost: its process or agent ended, it fell silent, it broke a rule, or a newer start of it
    /// took its name. Peers that the program removes, and those whose invalidation was loaded, are not lost.
    pub peers_lost: u64,
    /// Control connections to peers.
    pub connections_out: u64,
    /// Control connections of peers to this agent.
    pub connections_in: u64,
}

fn ways() -> impl Iterator<Item = (Option<PathKind>, Op)> {
    let paths = PathKind::ALL.into_iter().map(Some).chain([None]);
    paths.flat_map(|path| [Op::Read, Op::Write].map(|op| (path, op)))
}

impl Counters {
    pub(crate) fn of(control: &Control, memories: &Memories, peers: &Peers) -> Self {
        let tally = &*control.tally;
        let moved = ways().map(|(path, op)| {
            let Done { transfers, bytes, time } = tally.all_done(op, path);
            Moved { path, op, transfers, bytes, time }
        });
        let moved: Vec<_> = moved.collect();
        let undone = ways().flat_map(|(path, op)| {
            let one = move |cause| (cause, tally.all_failed(op, path, cause));
            let all = Cause::ALL.into_iter().map(one);
            all.map(move |(cause, transfers)| Undone { path, op, cause, transfers })
        });
        let undone: Vec<_> = undone.collect();
        let (registrations, registered_bytes) = memories.size();
        let (known, connections_out) = peers.size();
        Self {
            moved,
            undone,
            in_progress: tally.in_progress(),
            chosen: PathKind::ALL.map(|path| (path, tally.chosen(path))).to_vec(),
            no_path: tally.no_path.load(Ordering::Relaxed),
            notifications_sent: tally.notifications_sent.load(Ordering::Relaxed),
            notifications_received: tally.notifications_received.load(Ordering::Relaxed),
            notifications_declined: tally.notifications_declined.load(Ordering::Relaxed),
            notifications_waiting: control.inbox.waiting(),
            registrations,
            registered_bytes,
            peers: known,
            peers_lost: tally.peers_lost.load(Ordering::Relaxed),
            connections_out,
            connections_in: control.connected(),
        }
    }

    /// They as text that Prometheus reads, in its format 0.0.4. `name` becomes the label `agent` of each
    /// sample. All samples are there from the start, so that rates of the first ones are seen.
    pub fn to_prometheus(&self, name: &str) -> String {
        let mut page = Page { text: String::with_capacity(24 << 10), agent: escaped(name) };
        self.write_transfers(&mut page);
        self.write_rest(&mut page);
        page.text
    }

    fn write_transfers(&self, page: &mut Page) {
        page.head("transfers_total", "counter", "Transfers that are done.");
        for one in &self.moved {
            page.sample("transfers_total", &way(one.path, one.op), one.transfers);
        }
        let help = "Transfers that failed or were cancelled, by cause.";
        page.head("transfers_failed_total", "counter", help);
        for one in &self.undone {
            let labels = format!("{},cause=\"{}\"", way(one.path, one.op), one.cause);
            page.sample("transfers_failed_total", &labels, one.transfers);
        }
        page.head("transfer_bytes_total", "counter", "Bytes of transfers that are done.");
        for one in &self.moved {
            page.sample("transfer_bytes_total", &way(one.path, one.op), one.bytes);
        }
        let help = "Time from post to done of transfers that are done, added up.";
        page.head("transfer_seconds_total", "counter", help);
        for one in &self.moved {
            let seconds = format!("{}.{:09}", one.time.as_secs(), one.time.subsec_nanos());
            page.sample("transfer_seconds_total", &way(one.path, one.op), seconds);
        }
        page.one("transfers_in_progress", "gauge", "Posts that have not ended.", self.in_progress);
        let help = "How often a path was found to be the best between two memories.";
        page.head("paths_chosen_total", "counter", help);
        for (path, count) in &self.chosen {
            page.sample("paths_chosen_total", &format!(",path=\"{}\"", path.word()), count);
        }
        let help = "How often no path was found that works and is allowed.";
        page.one("paths_not_found_total", "counter", help, self.no_path);
    }

    fn write_rest(&self, page: &mut Page) {
        let help = "Notifications that peers have confirmed.";
        page.one("notifications_sent_total", "counter", help, self.notifications_sent);
        let help = "Notifications that have arrived.";
        page.one("notifications_received_total", "counter", help, self.notifications_received);
        let help = "Notifications declined because too many wait to be taken.";
        page.one("notifications_declined_total", "counter", help, self.notifications_declined);
        let help = "Notifications that wait to be taken.";
        page.one("notifications_waiting", "gauge", help, self.notifications_waiting);
        page.one("registrations", "gauge", "Registrations of memory.", self.registrations);
        let help = "Bytes of all registrations.";
        page.one("registered_bytes", "gauge", help, self.registered_bytes);
        page.one("peers", "gauge", "Peers that are known and not lost.", self.peers);
        page.one("peers_lost_total", "counter", "How often a peer was lost.", self.peers_lost);
        page.head("connections", "gauge", "Control connections, by which end made them.");
        page.sample("connections", ",made_by=\"agent\"", self.connections_out);
        page.sample("connections", ",made_by=\"peer\"", self.connections_in);
    }
}

/// Labels of a path and a direction.
fn way(path: Option<PathKind>, op: Op) -> String {
    let op = match op {
        Op::Read => "read",
        Op::Write => "write",
    };
    format!(",path=\"{}\",op=\"{op}\"", path.map_or("several", PathKind::word))
}

/// The value of a label as it stands between quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A text that grows.
struct Page {
    text: String,
    agent: String,
}

impl Page {
    fn line(&mut self, line: fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.text.write_fmt(line);
        self.text.push('\n');
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP warpverbs_agent_{name} {help}"));
        self.line(format_args!("# TYPE warpverbs_agent_{name} {kind}"));
    }

    /// `labels` follow the agent's.
    fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let agent = std::mem::take(&mut self.agent);
        self.line(format_args!("warpverbs_agent_{name}{{agent=\"{agent}\"{labels}}} {value}"));
        self.agent = agent;
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.head(name, kind, help);
        self.sample(name, "", value);
    }
}
