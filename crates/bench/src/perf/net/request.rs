//! The user's flags, checked in full before anything is set up; and a client's request to a server,
//! checked by the same rules.

use super::messages::{EngineMode, Group, Setup};
use super::side::NicArgs;
use super::timed::Amount;
use crate::rig::plan::{self, MAX_MESSAGE, Mem, Op, PlanError, Span, mtu, within};
use crate::rig::plot::Output;
use anyhow::Result;
use clap::Args;
use std::time::Duration;
use warpverbs::raw::nic::LinkKind;
use warpverbs::raw::nic::link::{Chance, FaultPlan};

/// Options of the measurement and its output.
#[derive(Args, Clone, Debug)]
pub(crate) struct MeasureArgs {
    #[command(flatten)]
    span: Span,
    /// Operations per queue pair, instead of a time
    #[arg(short = 'n', long, conflicts_with = "duration")]
    iters: Option<u32>,
    /// Seconds of each measurement
    #[arg(short = 'D', long, default_value_t = 0.5)]
    duration: f64,
    /// Operations before measuring; with --duration, no longer than that
    #[arg(short = 'w', long, default_value_t = 200)]
    warmup: u32,
    /// Operations of a queue pair that may be under way
    #[arg(long, default_value_t = 128)]
    tx_depth: u32,
    /// Path MTU at most: 256, 512, 1024, 2048 or 4096 [default: 4096 on this machine, else 1024]
    #[arg(long)]
    mtu: Option<u32>,
    /// Latency only: one operation at a time
    #[arg(long, conflicts_with = "bw")]
    lat: bool,
    /// Bandwidth and message rate only
    #[arg(long)]
    bw: bool,
    /// Has a kernel of the client's post instead of the host: auto, simt, cuda[:N] or hip[:N]
    #[arg(long)]
    gpu: Option<String>,
    /// Blocks of a posting kernel [default: 1]
    #[arg(short = 'c', long, requires = "gpu")]
    blocks: Option<u32>,
    /// Threads per block of a posting kernel [default: 32]
    #[arg(short = 't', long, requires = "gpu")]
    threads: Option<u32>,
    /// Where the payload of ends with kernels lies
    #[arg(long, value_enum, default_value = "device", requires = "gpu")]
    mem: Mem,
    /// Thread that runs the NIC's engine, at both ends: the one that measures, or one of its own
    /// [default: inline, thread where a kernel posts]
    #[arg(long, value_enum)]
    engine: Option<EngineMode>,
    #[command(flatten)]
    pub(crate) nic: NicArgs,
    /// Datagrams that both ends' links lose, such as 1% or 0.1%
    #[arg(long)]
    loss: Option<Chance>,
    /// Seed of the choice of lost datagrams
    #[arg(long, requires = "loss", default_value_t = 1)]
    seed: u64,
    /// Link to the peer: udp, shm (memory that both processes share) or auto
    /// [default: what WARPVERBS_LINK says, or udp]
    #[arg(long)]
    link: Option<LinkKind>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// A checked request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) setup: Setup,
    /// Where a posting kernel runs; without it, the host posts.
    pub(crate) gpu: Option<String>,
    pub(crate) blocks: u32,
    pub(crate) threads: u32,
    pub(crate) sizes: Vec<u64>,
    pub(crate) qps: Vec<u32>,
    pub(crate) latency: bool,
    pub(crate) bandwidth: bool,
    pub(crate) amount: Amount,
    pub(crate) warmup: u64,
    /// UDP port of the client's NIC, 0 for any.
    pub(crate) udp_port: u16,
    pub(crate) nic: NicArgs,
}

impl MeasureArgs {
    /// Checks everything that can be checked without a server.
    pub(crate) fn request(&self, op: Op, udp_port: u16) -> Result<Request> {
        let sizes = self.span.sizes(op)?;
        let (blocks, threads) = plan::grid(self.blocks, self.threads)?;
        within("-q", (self.span.qps.len() * sizes.len()) as u64, 1, u64::from(MAX_PARTS) / 2)?;
        let setup = Setup {
            op,
            engine: self.engine()?,
            mtu: self.mtu,
            mem: self.mem,
            tx_depth: self.tx_depth,
            faults: self.loss.map(|loss| {
                FaultPlan { loss, seed: self.seed, ..FaultPlan::default() }.to_string()
            }),
            link: self.link.map(|link| link.to_string()),
            row_limit_s: self.span.row_limit,
        };
        check_setup(&setup)?;
        Ok(Request {
            setup,
            gpu: self.gpu.clone(),
            blocks,
            threads,
            sizes,
            qps: self.span.qps.clone(),
            latency: !self.bw,
            bandwidth: !self.lat,
            amount: self.amount()?,
            warmup: plan::check_warmup(self.warmup)?,
            udp_port,
            nic: self.nic.clone(),
        })
    }

    fn engine(&self) -> Result<EngineMode, PlanError> {
        match (self.engine, &self.gpu) {
            (Some(EngineMode::Inline), Some(_)) => Err(PlanError::Conflict {
                flag: "--engine inline",
                with: "--gpu",
                why: "the thread that measures waits for the kernel",
            }),
            (Some(engine), _) => Ok(engine),
            (None, Some(_)) => Ok(EngineMode::Thread),
            (None, None) => Ok(EngineMode::Inline),
        }
    }

    fn amount(&self) -> Result<Amount, PlanError> {
        if let Some(n) = self.iters {
            return Ok(Amount::Operations(plan::check_iters(n)?));
        }
        let millis = (self.duration * 1e3) as u64;
        within("-D in milliseconds", millis, 1, self.span.row_limit.saturating_mul(900))?;
        Ok(Amount::Time(Duration::from_millis(millis)))
    }
}

/// Timed parts of a connection at most: the data of each differ.
pub(crate) const MAX_PARTS: u32 = 2048;

/// Checks the settings of a whole measurement.
pub(crate) fn check_setup(setup: &Setup) -> Result<()> {
    within("--tx-depth", setup.tx_depth.into(), 1, 16384)?;
    plan::check_row_limit(setup.row_limit_s)?;
    if let Some(faults) = &setup.faults {
        let FaultPlan { loss, .. } = faults.parse()?;
        within("--loss in millionths", loss.millionths().into(), 0, 500_000)?;
    }
    if let Some(link) = &setup.link {
        link.parse::<LinkKind>()?;
    }
    setup.mtu.map(mtu).transpose()?;
    Ok(())
}

/// Checks the queue pairs that a client asks for.
pub(crate) fn check_group(group: &Group) -> Result<(), PlanError> {
    within("message size", group.max_bytes, 1, MAX_MESSAGE)?;
    plan::check_qps(&[group.qps], group.max_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: MeasureArgs,
    }

    fn request(op: Op, line: &str) -> Result<Request, String> {
        let words = std::iter::once("perf").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        line.args.request(op, 0).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_asked_for_is_what_is_done() {
        let plain = request(Op::Write, "").unwrap();
        assert_eq!(plain.sizes.last(), Some(&(1 << 20)));
        assert_eq!((plain.latency, plain.bandwidth), (true, true));
        assert_eq!(plain.amount, Amount::Time(Duration::from_millis(500)));
        let other = request(Op::Read, "-b 64 -e 4K -f 64 -q 1,16 -n 7 --lat --loss 1%").unwrap();
        assert_eq!((other.sizes, other.qps), (vec![64, 4096], vec![1, 16]));
        assert_eq!((other.latency, other.bandwidth), (true, false));
        assert_eq!(other.amount, Amount::Operations(7));
        assert_eq!(other.setup.faults.as_deref(), Some("loss=1%,seed=1"));
        assert_eq!(request(Op::Atomic, "").unwrap().sizes, [8]);
        assert_eq!(request(Op::Write, "-w 0 -q 1025 -e 8").unwrap().warmup, 0);
    }

    #[test]
    fn a_bad_value_names_its_flag() {
        for (line, words) in [
            ("-b 0", "-b is 0"),
            ("-b 64 -e 8", "-e is 8"),
            ("-f 1", "-f is 1"),
            ("-q 1,5000", "-q is 5000"),
            ("-q 64 -e 1G", "lower -e or -q"),
            ("-n 0", "-n is 0"),
            ("-n 5 -D 2", "cannot be used with"),
            ("-D 0", "-D in milliseconds is 0"),
            ("-D 1e9", "-D in milliseconds"),
            ("--tx-depth 0", "--tx-depth is 0"),
            ("--mtu 1500", "--mtu is 1500"),
            ("--lat --bw", "cannot be used with"),
            ("--seed 4", "--loss"),
            ("--loss 1", "not a probability"),
            ("--loss 51%", "--loss in millionths is 510000"),
            ("-c 2", "--gpu"),
            ("--gpu simt -t 2000", "-t is 2000"),
            ("--gpu simt --engine inline", "--engine inline has no meaning with --gpu"),
            ("--row-limit 0", "--row-limit is 0"),
        ] {
            let error = request(Op::Write, line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
        assert!(request(Op::Atomic, "-e 64").unwrap_err().contains("8 bytes"));
    }
}
