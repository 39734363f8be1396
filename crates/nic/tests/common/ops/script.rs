//! The operations of a script. Numbers that name an object are taken modulo the objects there are.

use arbitrary::Arbitrary;
use warpverbs_dev::QueueFormat;

/// How the world begins, and what is done to it.
#[derive(Arbitrary, Debug)]
pub(crate) struct Script {
    pub(crate) setup: Setup,
    pub(crate) ops: Vec<Op>,
}

/// How NIC and ports are made.
#[derive(Arbitrary, Debug)]
pub(crate) struct Setup {
    /// Of the queues of each QP.
    pub(crate) formats: [u8; 3],
    pub(crate) policy: u8,
    pub(crate) watch_rewrites: bool,
    /// One for each QP, and for every one made later.
    pub(crate) ports: [PortSetup; 3],
    /// Which objects go first at the end.
    pub(crate) farewell: u8,
}

pub(crate) fn format(number: u8) -> QueueFormat {
    QueueFormat::ALL[usize::from(number) % QueueFormat::ALL.len()]
}

/// How a port is made.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) struct PortSetup {
    pub(crate) log_sq: u8,
    pub(crate) log_cq: u8,
    pub(crate) receives: Receives,
    /// Bit 0: collapsed send CQ; bit 1: only sends stop; bits 2 to 5: what announces work; bit 6:
    /// CQEs of 128 bytes; bit 7: payload in CQEs. All from bit 2 on: consume only. Formats other than
    /// mlx5's have only bit 0.
    pub(crate) flags: u8,
}

/// Where a port takes receives from.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) enum Receives {
    Own(u8),
    Shared,
    None,
}

/// An address in or near a registered region, or anywhere, with a key.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) enum Place {
    /// Wholly inside, unless the length does not fit, 8-byte aligned.
    In {
        key: u8,
        slot: u8,
    },
    /// From just before the region to just behind it.
    Near {
        key: u8,
        offset: u16,
    },
    Wild {
        addr: u64,
        key: u32,
    },
}

/// Bytes, from one to some slices' worth.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) enum Len {
    Short(u8),
    Long(u16),
    Wild(u32),
}

/// One entry of a list.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) place: Place,
    pub(crate) len: Len,
}

/// Up to three entries.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) struct Entries {
    pub(crate) count: u8,
    pub(crate) list: [Entry; 3],
}

/// The payload of a request.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) enum Payload {
    One(Entry),
    Several(Entries),
    Inline(u8),
}

/// A request that the builder makes.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) enum Request {
    Write { to: Place, payload: Payload, imm: Option<u32> },
    Read { from: Place, to: Entry },
    Send { payload: Payload, imm: Option<u32> },
    SendInval { key: Place, payload: Payload },
    Atomic { at: Place, masked: Option<bool>, swap: bool, operands: [u64; 2], result: Place },
    LocalInval { key: Place },
    Nop,
    Wait { cqn: u8, index: u8 },
    Dump { from: Entry },
}

/// How what was put in a ring is announced.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) enum Announce {
    Both,
    Record,
    Doorbell,
    /// With the first bytes of the WQE.
    Last,
    Nothing,
}

/// A fault to switch on.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) enum Fault {
    DelaySteps(Option<u8>),
    DelayMicros(Option<u16>),
    Lose { count: u8, recovery: Option<u8> },
    NotReady(u8),
    Stick(bool),
}

/// A 24-bit mask's worth of attributes and small values for them.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) struct Attrs {
    pub(crate) given: u16,
    pub(crate) values: [u8; 6],
}

/// One thing done by a poster, an owner, a peer, or time.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) enum Op {
    /// A request as built, with bits flipped in up to one byte (`patch` of offset and mask).
    Post {
        port: u8,
        request: Request,
        flags: u8,
        patch: Option<(u8, u8)>,
        announce: Announce,
    },
    /// 64 bytes as they are, but for what makes it this queue's next.
    Raw {
        port: u8,
        bytes: [u8; 64],
        announce: Announce,
    },
    Receive {
        port: u8,
        entries: Entries,
    },
    RawReceive {
        port: u8,
        bytes: [u8; 64],
    },
    SharedReceive {
        link: u8,
        entries: Entries,
        posted: u16,
    },
    /// Any value, or the right one with two bytes changed.
    Doorbell {
        port: u8,
        own: bool,
        value: [u8; 8],
    },
    /// Announces `ahead` units more than were put.
    Ahead {
        port: u8,
        ahead: i8,
    },
    /// Half of mlx5's record, or of another format's last doorbell of receives.
    Record {
        port: u8,
        receive: bool,
        word: u32,
    },
    /// Changes a byte of a ring, announced or not.
    Scribble {
        port: u8,
        receive: bool,
        at: u16,
        byte: u8,
    },
    Step {
        times: u8,
    },
    Advance {
        log_nanos: u8,
    },
    /// Lets copies of an engine land.
    Land {
        engine: bool,
        copies: u8,
    },
    BreakDown {
        engine: bool,
    },
    Poll {
        port: u8,
        receives: bool,
        times: u8,
    },
    Modify {
        port: u8,
        to: u8,
        attrs: Attrs,
    },
    /// The usual way to RTS, through RESET, towards any port.
    Connect {
        port: u8,
        to: u8,
        attrs: Attrs,
    },
    DestroyPort {
        port: u8,
    },
    CreatePort {
        port: u8,
    },
    Deregister {
        key: u8,
    },
    Register {
        key: u8,
        access: u8,
    },
    Revoke {
        key: u8,
        revoked: bool,
    },
    SrqLimit {
        limit: u16,
    },
    DropSrq,
    Fault {
        port: u8,
        fault: Fault,
    },
}
