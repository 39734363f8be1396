//! A stream from the model of the kernel: every byte arrives once, in place, and every token
//! returns.

use crate::common::kernel::{DMABUF_ID, Kernel, PAGE, bytes_at};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng};
use warpverbs_dev::seeds;
use warpverbs_devmem::receive::{Incoming, Limits, Message};
use warpverbs_devmem::{Fragment, ReceiveError, Source};
use zerocopy::IntoBytes as _;

const LANDING: usize = 64 << 10;
const ERRORS_THAT_PASS: [i32; 2] = [11, 525];

struct Run {
    rng: StdRng,
    kernel: Kernel,
    incoming: Incoming,
    landing: Vec<u8>,
    holding: Vec<Fragment>,
    kinds: [u64; 3],
    calls: u64,
}

impl Run {
    fn new(seed: u64, total: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let pages = rng.random_range(20..200);
        let watermark = rng.random_range(1..pages as u32 / 4 + 2);
        let limits = Limits { landing: LANDING as u64, tokens: 1 << 14, watermark };
        let mut incoming = Incoming::new(limits);
        incoming.bind(DMABUF_ID + 1, 1);
        incoming.bind(DMABUF_ID, (pages * PAGE) as u64);
        let mut kernel = Kernel::new(rng.random(), pages);
        kernel.send(&bytes_at(0, total as usize));
        kernel.ended = true;
        let landing = vec![0; LANDING];
        Self { rng, kernel, incoming, landing, holding: Vec::new(), kinds: [0; 3], calls: 0 }
    }

    /// Receives once; `None` at the end of the stream.
    fn receive(&mut self) -> Result<Option<u64>, i32> {
        let span = self.incoming.room(self.rng.random_range(1..40_000));
        let iov = &mut self.landing[span.offset as usize..][..span.len as usize];
        if iov.is_empty() {
            return Ok(Some(0));
        }
        let room = self.rng.random_range(0..30) * 40 + self.rng.random_range(0..40);
        let got = match self.kernel.recvmsg(iov, room) {
            Ok(got) if got.bytes == 0 => return Ok(None),
            Ok(got) => got,
            Err(error) if ERRORS_THAT_PASS.contains(&error) => return Ok(Some(0)),
            Err(error) => return Err(error),
        };
        let (first, mut at) = (self.holding.len(), self.incoming.position());
        let message = Message { bytes: got.bytes as u64, control: &got.control, truncated: false };
        self.incoming.received(message, &mut self.holding).unwrap();
        for fragment in &self.holding[first..] {
            assert_eq!(fragment.at, at, "fragments are in order and without gaps");
            at += fragment.len;
            self.kinds[match fragment.source {
                Source::Dmabuf(_) => 0,
                Source::Linear => 1,
                Source::Plain => 2,
            }] += fragment.len;
        }
        assert_eq!(at, self.incoming.position());
        Ok(Some(got.bytes as u64))
    }

    /// Looks at some of what is held, and gives it back, whole or in parts.
    fn consume(&mut self, most: usize) {
        self.holding.shuffle(&mut self.rng);
        for _ in 0..most.min(self.holding.len()) {
            let Some(mut fragment) = self.holding.pop() else { break };
            let part = Fragment { len: self.rng.random_range(1..=fragment.len), ..fragment };
            self.check(&part);
            self.incoming.give_back(&[part]).unwrap();
            if part.len < fragment.len {
                fragment.at += part.len;
                fragment.offset += part.len;
                fragment.len -= part.len;
                self.holding.push(fragment);
            }
        }
    }

    fn check(&self, fragment: &Fragment) {
        let (start, len) = (fragment.offset as usize, fragment.len as usize);
        let mut bytes = vec![0; len];
        match fragment.source.is_host() {
            true => bytes.copy_from_slice(&self.landing[start..start + len]),
            false => self.kernel.dmabuf.read(start as u64, &mut bytes).unwrap(),
        }
        assert!(bytes == bytes_at(fragment.at, bytes.len()), "{fragment:?}");
    }

    fn return_tokens(&mut self) {
        loop {
            let ledger = self.incoming.ledger_mut();
            let batch = ledger.batch();
            if batch.is_empty() {
                return;
            }
            let freed = self.kernel.dontneed(batch.as_bytes()).unwrap();
            ledger.returned(freed).unwrap();
            self.calls += 1;
        }
    }

    /// Until all is received, or the connection fails.
    fn go(&mut self) -> Result<(), i32> {
        loop {
            for _ in 0..self.rng.random_range(0..3) {
                self.kernel.arrive();
            }
            let Some(bytes) = self.receive()? else { break };
            // Nobody may wait for tokens that he holds himself.
            let stuck = bytes == 0;
            let most = if stuck { usize::MAX } else { self.rng.random_range(0..40) };
            self.consume(most);
            if stuck || self.incoming.ledger().is_due() {
                self.return_tokens();
            }
        }
        Ok(())
    }

    fn finish(&mut self) {
        while !self.holding.is_empty() {
            self.consume(usize::MAX);
        }
        self.return_tokens();
        assert_eq!((self.incoming.ledger().held(), self.incoming.ledger().unreturned()), (0, 0));
        assert_eq!(self.kernel.unknown, 0, "no token is returned twice");
        assert_eq!(self.kernel.tokens.len(), 0);
    }
}

#[test]
fn every_byte_arrives_once_and_every_token_returns() {
    let (mut kinds, mut starved) = ([0; 3], 0);
    let seeds = seeds(60);
    let many = seeds.len() >= 60;
    for seed in seeds {
        let total = 1_000_000;
        let mut run = Run::new(seed, total);
        run.kernel.partial = seed % 3 == 0;
        run.go().unwrap();
        assert_eq!(run.incoming.position(), total);
        run.finish();
        assert!(run.kernel.all_free());
        assert_eq!(run.kinds.iter().sum::<u64>(), total);
        (0..3).for_each(|kind| kinds[kind] += run.kinds[kind]);
        starved += run.kernel.starved;
    }
    println!("bytes in dmabuf, linear, plain: {kinds:?}; packets without pages: {starved}");
    assert!(!many || kinds.iter().all(|bytes| *bytes > 10_000) && starved > 0);
}

#[test]
fn after_a_reset_all_tokens_return() {
    for seed in seeds(20) {
        let mut run = Run::new(seed, 1_000_000);
        run.kernel.reset_at = Some(300_000);
        assert_eq!(run.go(), Err(104));
        run.finish();
    }
}

/// One word of the control data of a genuine message is replaced. With any word, no fragment is
/// outside of memory, and no token is lost.
#[test]
fn a_spoilt_message_touches_nothing_outside_and_loses_no_token() {
    let mut refused = 0;
    let seeds = seeds(400);
    let many = seeds.len() >= 400;
    for seed in seeds {
        let mut run = Run::new(seed, 200_000);
        (0..8).for_each(|_| run.kernel.arrive());
        let span = run.incoming.room(LANDING as u64);
        let iov = &mut run.landing[span.offset as usize..][..span.len as usize];
        let mut got = run.kernel.recvmsg(iov, 40 * 100).unwrap();
        let words = got.control.len() / 4;
        if words == 0 {
            continue;
        }
        let at = run.rng.random_range(0..words) * 4;
        let word = match run.rng.random_range(0..3) {
            0 => run.rng.random_range(0..64),
            1 => u32::MAX - run.rng.random_range(0..8),
            _ => run.rng.random(),
        };
        got.control[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        let message = Message { bytes: got.bytes as u64, control: &got.control, truncated: false };
        match run.incoming.received(message, &mut run.holding) {
            Ok(()) => {}
            Err(error) => {
                refused += 1;
                assert!(run.holding.is_empty(), "{error}");
                assert_eq!(run.incoming.ledger().held(), 0, "{error}");
                let again = run.incoming.received(message, &mut run.holding);
                assert!(matches!(again, Err(ReceiveError::Failed)));
            }
        }
        for fragment in &run.holding {
            let (landing, dmabuf) = (run.landing.len(), run.kernel.dmabuf.len());
            let size = if fragment.source.is_host() { landing } else { dmabuf };
            assert!(fragment.offset + fragment.len <= size as u64);
        }
        assert!(run.incoming.ledger().unreturned() <= words as u64);
    }
    assert!(refused > 100 || !many, "{refused}");
}
