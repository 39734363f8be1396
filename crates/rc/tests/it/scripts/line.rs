//! Lines of a script: packets as text and back, and fields `name=value`.

use std::str::FromStr;

use crate::common::host::{BASE, RKEY};
use warpverbs_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Credits, Extension, HeaderSet, Ieth, ImmDt, Msn, NakCode,
    Opcode, Psn, Qpn, Reth, Rkey, RnrTimer, Syndrome,
};

/// The words of a line after its first.
pub(crate) struct Fields<'a>(pub(crate) Vec<&'a str>);

impl<'a> Fields<'a> {
    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        let text = self.text(name)?;
        let number = match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => u64::from_str(text),
        };
        Some(number.unwrap_or_else(|_| panic!("{name}={text} is not a number")))
    }

    pub(crate) fn need(&self, name: &str) -> u64 {
        self.number(name).unwrap_or_else(|| panic!("{name}= is missing"))
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.0.contains(&name)
    }

    pub(crate) fn va(&self) -> u64 {
        BASE.wrapping_add(self.need("at"))
    }

    pub(crate) fn rkey(&self) -> Rkey {
        self.number("rkey").map_or(RKEY, |key| Rkey(key as u32))
    }
}

/// A packet as a line.
pub(crate) fn show(bth: &Bth, ext: &Extension, len: usize) -> String {
    let mut line = format!("{} psn={}", bth.opcode, bth.psn);
    let mut add = |text: String| line.push_str(&format!(" {text}"));
    let reth =
        |reth: &Reth| format!("at={:#x} dmalen={}", reth.va.wrapping_sub(BASE), reth.dma_len);
    match ext {
        Extension::Empty => {}
        Extension::Imm(imm) => add(format!("imm={:#x}", imm.data)),
        Extension::Ieth(ieth) => add(format!("invalidate={:#x}", ieth.rkey.0)),
        Extension::Reth(eth) => add(reth(eth)),
        Extension::RethImm(eth, imm) => add(format!("{} imm={:#x}", reth(eth), imm.data)),
        Extension::Aeth(aeth) => add(show_aeth(aeth)),
        Extension::AethAtomicAck(aeth, ack) => {
            add(format!("{} original={:#x}", show_aeth(aeth), ack.original));
        }
        Extension::Atomic(eth) => add(format!(
            "at={:#x} operand={:#x} compare={:#x}",
            eth.va.wrapping_sub(BASE),
            eth.swap_add,
            eth.compare
        )),
        Extension::Deth(_) | Extension::DethImm(..) => panic!("{ext} on a connection"),
    }
    if len > 0 {
        add(format!("len={len}"));
    }
    for (flag, name) in [(bth.ack_request, "ackreq"), (bth.solicited, "solicited")] {
        if flag {
            add(name.into());
        }
    }
    line
}

fn show_aeth(aeth: &Aeth) -> String {
    let syndrome = match aeth.syndrome {
        Syndrome::Ack(credits) => match credits.count() {
            None => "ack".into(),
            Some(count) => format!("ack credits={count}"),
        },
        Syndrome::RnrNak(timer) => format!("rnr={}", timer.code()),
        Syndrome::Nak(code) => format!("nak={code:?}"),
        Syndrome::Unknown(byte) => format!("syndrome={byte:#x}"),
    };
    format!("{syndrome} msn={}", aeth.msn)
}

/// A packet from a line: opcode name, then fields.
pub(crate) fn packet(line: &str) -> (Bth, Extension, Vec<u8>) {
    let opcode = (Opcode::ALL.iter().copied())
        .filter(|opcode| line.strip_prefix(opcode.name()).is_some_and(|r| r.starts_with(' ')))
        .max_by_key(|opcode| opcode.name().len())
        .unwrap_or_else(|| panic!("no opcode in {line:?}"));
    let fields = Fields(line[opcode.name().len()..].split_whitespace().collect());
    let psn = Psn::new(fields.need("psn") as u32).expect("a PSN has 24 bits");
    let mut bth = Bth::new(opcode, Qpn::from_low_bits(7), psn);
    bth.ack_request = fields.flag("ackreq");
    bth.solicited = fields.flag("solicited");
    let byte = fields.number("byte").unwrap_or(0) as u8;
    let payload = vec![byte; fields.number("len").unwrap_or(0) as usize];
    (bth, extension(opcode.headers(), &fields, payload.len()), payload)
}

fn extension(headers: HeaderSet, fields: &Fields<'_>, len: usize) -> Extension {
    let imm = || ImmDt { data: fields.need("imm") as u32 };
    let reth = || Reth {
        va: fields.va(),
        rkey: fields.rkey(),
        dma_len: fields.number("dmalen").unwrap_or(len as u64) as u32,
    };
    let aeth =
        || Aeth { syndrome: syndrome(fields), msn: Msn::from_low_bits(fields.need("msn") as u32) };
    match headers {
        HeaderSet::Empty => Extension::Empty,
        HeaderSet::Imm => Extension::Imm(imm()),
        HeaderSet::Ieth => Extension::Ieth(Ieth { rkey: Rkey(fields.need("invalidate") as u32) }),
        HeaderSet::Reth => Extension::Reth(reth()),
        HeaderSet::RethImm => Extension::RethImm(reth(), imm()),
        HeaderSet::Aeth => Extension::Aeth(aeth()),
        HeaderSet::AethAtomicAck => {
            Extension::AethAtomicAck(aeth(), AtomicAckEth { original: fields.need("original") })
        }
        HeaderSet::Atomic => Extension::Atomic(AtomicEth {
            va: fields.va(),
            rkey: fields.rkey(),
            swap_add: fields.need("operand"),
            compare: fields.number("compare").unwrap_or(0),
        }),
        HeaderSet::Deth | HeaderSet::DethImm => panic!("{headers} on a connection"),
    }
}

fn syndrome(fields: &Fields<'_>) -> Syndrome {
    if let Some(code) = fields.number("rnr") {
        return Syndrome::RnrNak(RnrTimer::from_code(code as u8));
    }
    match fields.text("nak") {
        None => Syndrome::Ack(match fields.number("credits") {
            None => Credits::UNLIMITED,
            Some(count) => Credits::at_most(count as u32),
        }),
        Some("PsnSequenceError") => Syndrome::Nak(NakCode::PsnSequenceError),
        Some("InvalidRequest") => Syndrome::Nak(NakCode::InvalidRequest),
        Some("RemoteAccessError") => Syndrome::Nak(NakCode::RemoteAccessError),
        Some("RemoteOperationalError") => Syndrome::Nak(NakCode::RemoteOperationalError),
        Some(other) => panic!("nak={other} is not known"),
    }
}
