//! Why a transition was refused. The kernel says little more than "invalid argument", so what was
//! given is compared with the table of transitions, with the fields' ranges, and with what the
//! device and its port tell of themselves.

use super::{Finding, ModifyError, Path, QpAttrs};
use crate::CallError;
use crate::safe::{Context, GidEntry, LinkLayer, PortAttr, PortState};
use nix::errno::Errno;
use warpverbs_rdma::{AttrMask, Mtu, QpState, Transition};

/// Attributes of the device and of the port that the QP uses, as far as they could be asked.
#[derive(Default)]
struct Facts {
    ports: Option<u8>,
    max_rd_atomic: Option<u32>,
    max_dest_rd_atomic: Option<u32>,
    port: Option<PortAttr>,
    gids: Option<Vec<GidEntry>>,
}

pub(super) fn explain(
    context: &Context,
    qpn: u32,
    from: Option<QpState>,
    to: QpState,
    attrs: &QpAttrs,
    given: AttrMask,
    source: CallError,
) -> Box<ModifyError> {
    let attr = context.attr().ok();
    let port = attrs.port.or(attrs.path.map(|path| path.port));
    let facts = Facts {
        ports: attr.as_ref().map(|a| a.ports),
        max_rd_atomic: attr.as_ref().map(|a| a.max_rd_atomic),
        max_dest_rd_atomic: attr.as_ref().map(|a| a.max_dest_rd_atomic),
        port: port.and_then(|port| context.port(port).ok()),
        gids: port.and_then(|port| context.gids(port).ok()),
    };
    let mut findings = against_table(from, to, given);
    findings.extend(against_ranges(attrs, &facts));
    findings.extend(against_port(attrs, &facts, source.errno));
    let device = context.device().name().to_owned();
    Box::new(ModifyError { device, qpn, from, to, given, findings, source })
}

fn against_table(from: Option<QpState>, to: QpState, given: AttrMask) -> Vec<Finding> {
    let Some(from) = from else { return Vec::new() };
    match Transition::find(from, to) {
        Ok(row) => row.errors(given).map(Finding::Transition).collect(),
        Err(error) => vec![Finding::Transition(error)],
    }
}

fn against_ranges(attrs: &QpAttrs, facts: &Facts) -> Vec<Finding> {
    let number = |value: Option<u8>| value.map(u64::from);
    let limit = |value: Option<u32>| u64::from(value.unwrap_or(255).min(255));
    let pkeys = facts.port.as_ref().map_or(u16::MAX, |p| p.pkey_count);
    let mtu = facts.port.as_ref().and_then(|p| p.active_mtu).map_or(4096, Mtu::bytes);
    let rows = [
        (AttrMask::PORT, number(attrs.port), facts.ports.unwrap_or(255).into()),
        (AttrMask::PATH, attrs.path.map(|p| p.port.into()), facts.ports.unwrap_or(255).into()),
        (AttrMask::PKEY_INDEX, attrs.pkey_index.map(u64::from), u64::from(pkeys).max(1) - 1),
        (AttrMask::MTU, attrs.mtu.map(|m| m.bytes() as u64), mtu as u64),
        (AttrMask::DEST_QPN, attrs.dest_qpn.map(u64::from), 0xff_ffff),
        (AttrMask::RQ_PSN, attrs.rq_psn.map(u64::from), 0xff_ffff),
        (AttrMask::SQ_PSN, attrs.sq_psn.map(u64::from), 0xff_ffff),
        (AttrMask::MIN_RNR_TIMER, number(attrs.min_rnr_timer), 31),
        (AttrMask::TIMEOUT, number(attrs.timeout), 31),
        (AttrMask::RETRY, number(attrs.retry), 7),
        (AttrMask::RNR_RETRY, number(attrs.rnr_retry), 7),
        (AttrMask::MAX_RD_ATOMIC, number(attrs.max_rd_atomic), limit(facts.max_rd_atomic)),
        (
            AttrMask::MAX_DEST_RD_ATOMIC,
            number(attrs.max_dest_rd_atomic),
            limit(facts.max_dest_rd_atomic),
        ),
    ];
    let beyond = rows.into_iter().filter_map(|(attr, value, max)| {
        let value = value.filter(|&value| value > max)?;
        Some(Finding::TooLarge { attr, value, max })
    });
    beyond.collect()
}

fn against_port(attrs: &QpAttrs, facts: &Facts, errno: Errno) -> Vec<Finding> {
    let mut out = Vec::new();
    let mut unfit = |attr, why: String| out.push(Finding::Unfit(attr, why));
    if attrs.port == Some(0) || attrs.path.is_some_and(|path| path.port == 0) {
        unfit(AttrMask::PORT, "ports are numbered from 1".to_owned());
    }
    if let Some(port) = &facts.port
        && !matches!(port.state, PortState::Active | PortState::ActiveDefer)
    {
        unfit(AttrMask::PORT, format!("it is {:?}, not active", port.state));
    }
    if let Some(path) = attrs.path {
        for why in path_findings(&path, facts, errno) {
            unfit(AttrMask::PATH, why);
        }
    }
    out
}

fn path_findings(path: &Path, facts: &Facts, errno: Errno) -> Vec<String> {
    let mut out = Vec::new();
    let needs_route =
        facts.port.as_ref().is_some_and(|p| p.link_layer == LinkLayer::Ethernet || p.grh_required);
    let Some(route) = path.global else {
        if needs_route {
            out.push("the port needs a route by GIDs, none is given".to_owned());
        }
        return out;
    };
    if route.flow_label > 0xf_ffff {
        out.push(format!("flow label is {:#x}, it has 20 bits", route.flow_label));
    }
    if let Some(gids) = &facts.gids {
        let own = gids.iter().find(|gid| gid.index == u32::from(route.sgid_index));
        match own {
            None => out.push(format!("GID {} of the port is not in use", route.sgid_index)),
            Some(own) if own.gid.ipv4().is_some() != route.dgid.ipv4().is_some() => {
                out.push(format!(
                    "own GID {} and the peer's {} are not of one IP version",
                    own.gid, route.dgid
                ));
            }
            Some(_) => {}
        }
    }
    if matches!(errno, Errno::ETIMEDOUT | Errno::EHOSTUNREACH | Errno::ENETUNREACH) {
        out.push(format!(
            "no way to {}: is there a route, and does the peer answer ARP or neighbour discovery?",
            route.dgid
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::safe::{Gid, GidKind};
    use crate::sys;
    use std::net::Ipv6Addr;
    use warpverbs_mem::Access;
    use warpverbs_rdma::TransitionError;

    fn facts() -> Facts {
        let mut raw: sys::ibv_port_attr = sys::zeroed();
        raw.state = sys::IBV_PORT_ACTIVE;
        raw.active_mtu = sys::IBV_MTU_1024;
        raw.pkey_tbl_len = 1;
        raw.link_layer = sys::IBV_LINK_LAYER_ETHERNET as u8;
        let gid = Gid("::ffff:10.0.0.1".parse::<Ipv6Addr>().unwrap().octets());
        Facts {
            ports: Some(1),
            max_rd_atomic: Some(16),
            max_dest_rd_atomic: Some(16),
            port: Some(PortAttr::from_raw(&raw)),
            gids: Some(vec![GidEntry { index: 1, gid, kind: GidKind::RoceV2, interface: None }]),
        }
    }

    fn words(attrs: &QpAttrs, errno: Errno) -> String {
        let facts = facts();
        let mut all = against_ranges(attrs, &facts);
        all.extend(against_port(attrs, &facts, errno));
        all.iter().map(|f| format!("{f}\n")).collect()
    }

    #[test]
    fn the_table_names_what_is_missing_and_what_is_too_much() {
        let (from, to) = (QpState::Reset, QpState::Init);
        let given = QpAttrs::init(1, Access::empty()).given() | AttrMask::TIMEOUT;
        assert_eq!(
            against_table(Some(from), to, given - AttrMask::PORT),
            [
                Finding::Transition(TransitionError::Missing { from, to, missing: AttrMask::PORT }),
                Finding::Transition(TransitionError::Unexpected {
                    from,
                    to,
                    unexpected: AttrMask::TIMEOUT
                }),
            ]
        );
        let skipped = against_table(Some(QpState::Reset), QpState::Rts, given);
        let none = TransitionError::NoTransition { from, to: QpState::Rts };
        assert_eq!(skipped, [Finding::Transition(none)]);
        assert_eq!(against_table(Some(QpState::Rts), QpState::Err, AttrMask::empty()), []);
    }

    #[test]
    fn values_beyond_device_and_port_are_named() {
        let peer = Gid("::ffff:10.0.0.2".parse::<Ipv6Addr>().unwrap().octets());
        let good = QpAttrs::rtr(Path::roce(1, 1, peer), Mtu::B1024, 5, 0);
        assert_eq!(words(&good, Errno::EINVAL), "");
        let bad = QpAttrs {
            mtu: Some(Mtu::B4096),
            max_dest_rd_atomic: Some(17),
            dest_qpn: Some(1 << 24),
            ..good
        };
        assert_eq!(
            words(&bad, Errno::EINVAL),
            "MTU is 4096, at most 1024 is possible\n\
             DEST_QPN is 16777216, at most 16777215 is possible\n\
             MAX_DEST_RD_ATOMIC is 17, at most 16 is possible\n"
        );
        let init = QpAttrs { pkey_index: Some(1), ..QpAttrs::init(2, Access::empty()) };
        let text = words(&init, Errno::EINVAL);
        assert!(
            text.contains("PORT is 2, at most 1") && text.contains("PKEY_INDEX is 1"),
            "{text}"
        );
    }

    #[test]
    fn paths_that_do_not_go_with_the_port_are_named() {
        let v6 = Gid("2001:db8::2".parse::<Ipv6Addr>().unwrap().octets());
        let to = |path| words(&QpAttrs::rtr(path, Mtu::B1024, 5, 0), Errno::ETIMEDOUT);
        assert!(to(Path::infiniband(1, 4)).contains("needs a route by GIDs"));
        assert!(to(Path::roce(1, 0, v6)).contains("GID 0 of the port is not in use"));
        let both = to(Path::roce(1, 1, v6));
        assert!(both.contains("not of one IP version") && both.contains("ARP"), "{both}");
        assert!(to(Path::roce(0, 1, v6)).contains("from 1"));
    }
}
