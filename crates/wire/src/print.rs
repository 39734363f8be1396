//! One line a packet, in the manner of tcpdump.

use core::fmt;

use crate::{Aeth, Deth, Envelope, Extension, Ip, NakCode, Packet, Reth, Syndrome, Transport, udp};

impl fmt::Display for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (src_port, dst_port) = (self.udp.src_port, udp::PORT);
        match self.ip {
            Ip::V4(ip) => write!(f, "IP {}.{src_port} > {}.{dst_port}", ip.src, ip.dst),
            Ip::V6(ip) => write!(f, "IP6 {}.{src_port} > {}.{dst_port}", ip.src, ip.dst),
        }
    }
}

impl fmt::Display for NakCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NakCode::PsnSequenceError => f.write_str("PSN sequence error"),
            NakCode::InvalidRequest => f.write_str("invalid request"),
            NakCode::RemoteAccessError => f.write_str("remote access error"),
            NakCode::RemoteOperationalError => f.write_str("remote operational error"),
            NakCode::InvalidRdRequest => f.write_str("invalid RD request"),
            NakCode::Unknown(code) => write!(f, "unknown code {code}"),
        }
    }
}

impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Syndrome::Ack(credits) => match credits.count() {
                Some(count) => write!(f, "ack credits {count}"),
                None => f.write_str("ack"),
            },
            Syndrome::RnrNak(timer) => write!(f, "rnr nak {:?}", timer.delay()),
            Syndrome::Nak(code) => write!(f, "nak {code}"),
            Syndrome::Unknown(byte) => write!(f, "unknown syndrome {byte:#04x}"),
        }
    }
}

impl fmt::Display for Aeth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} msn {}", self.syndrome, self.msn)
    }
}

impl fmt::Display for Reth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "va {:#x} rkey {} dmalen {}", self.va, self.rkey, self.dma_len)
    }
}

impl fmt::Display for Deth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "qkey {:#010x} from qp {}", self.qkey, self.src_qpn)
    }
}

impl fmt::Display for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Extension::Empty => Ok(()),
            Extension::Imm(imm) => write!(f, "imm {:#010x}", imm.data),
            Extension::Ieth(ieth) => write!(f, "invalidate rkey {}", ieth.rkey),
            Extension::Reth(reth) => fmt::Display::fmt(reth, f),
            Extension::RethImm(reth, imm) => write!(f, "{reth} imm {:#010x}", imm.data),
            Extension::Aeth(aeth) => fmt::Display::fmt(aeth, f),
            Extension::AethAtomicAck(aeth, ack) => {
                write!(f, "{aeth} original {:#x}", ack.original)
            }
            Extension::Deth(deth) => fmt::Display::fmt(deth, f),
            Extension::DethImm(deth, imm) => write!(f, "{deth} imm {:#010x}", imm.data),
            Extension::Atomic(atomic) => write!(
                f,
                "va {:#x} rkey {} swap/add {:#x} compare {:#x}",
                atomic.va, atomic.rkey, atomic.swap_add, atomic.compare
            ),
        }
    }
}

impl fmt::Display for Transport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bth = &self.bth;
        let service = if bth.opcode.is_datagram() { "UD" } else { "RC" };
        write!(f, "{service} {} qp {} psn {}", bth.opcode, bth.dest_qpn, bth.psn)?;
        for (set, flag) in [
            (bth.ack_request, " ackreq"),
            (bth.solicited, " solicited"),
            (!bth.migrated, " rearm"),
            (bth.fecn, " fecn"),
            (bth.becn, " becn"),
        ] {
            f.write_str(if set { flag } else { "" })?;
        }
        if self.ext != Extension::Empty {
            write!(f, ", {}", self.ext)?;
        }
        write!(f, ", length {}", self.payload.len())
    }
}

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: RoCEv2 {}", self.envelope, self.transport)
    }
}
