//! Transitions of a QP.

use super::profile::{check_port, check_route};
use crate::Refusal;
use crate::abi::ModifyQp;
use crate::device::{Attributes, Device, Profile};
use crate::objects::Objects;
use warpverbs_rdma::{AttrMask, Mtu, QpState, Transition};

/// `IB_QP_STATE`: the new state is given.
const STATE: u32 = 1;
/// `IB_QP_RATE_LIMIT`, of the extended command.
const RATE_LIMIT: u32 = 1 << 25;
/// Rights that a QP may grant: `IB_ACCESS_*`.
const RIGHTS: u32 = 0xf;

/// The rest of the extended command: limits of the rate, which are not modelled.
fn check_rest(mask: u32, rest: &[u8]) -> Result<(), Refusal> {
    if mask & RATE_LIMIT != 0 || rest.iter().any(|byte| *byte != 0) {
        return Err(Refusal::unsupported("a limit of the rate is not modelled"));
    }
    Ok(())
}

fn state(value: u8) -> Result<QpState, Refusal> {
    let found = QpState::from_value(value.into());
    found.ok_or_else(|| Refusal::invalid(format!("state {value}, expected 0 to 6")))
}

/// Does what the command asks for; `rest` is what the extended form adds.
pub(super) fn change_qp<D: Device>(
    device: &D,
    objects: &mut Objects<D>,
    request: &ModifyQp,
    rest: &[u8],
) -> Result<(), Refusal> {
    check_rest(request.attr_mask, rest)?;
    let bits = request.attr_mask;
    let Some(mask) = AttrMask::from_bits(bits & !STATE) else {
        return Err(Refusal::unsupported(format!("attributes {bits:#x} are not all known")));
    };
    let qp = objects.any_qp(request.qp_handle)?;
    let from = device.query_qp(&qp.qp).state;
    let to = if bits & STATE != 0 { state(request.qp_state)? } else { from };
    if mask.contains(AttrMask::CUR_STATE) && state(request.cur_qp_state)? != from {
        return Err(Refusal::invalid(format!("the QP is in {from}, not in the state given")));
    }
    let allowed = Transition::find_of(qp.service, from, to).and_then(|row| match to {
        // They take nothing, and what is given along is passed over.
        QpState::Reset | QpState::Err => Ok(()),
        _ => row.check(mask),
    });
    allowed.map_err(|wrong| Refusal::invalid(wrong.to_string()))?;
    let attrs = attributes(device.profile(), request, mask)?;
    device.modify_qp(&qp.qp, to, &attrs)?;
    let qp = objects.qp_mut(request.qp_handle)?;
    match to {
        QpState::Reset => qp.attrs = ModifyQp::default(),
        _ => merge(&mut qp.attrs, request, mask),
    }
    Ok(())
}

/// The attributes that `mask` says are given, if they are possible.
fn attributes(
    profile: &Profile,
    request: &ModifyQp,
    mask: AttrMask,
) -> Result<Attributes, Refusal> {
    let unsupported = AttrMask::ALTERNATE | AttrMask::MIGRATION;
    if mask.intersects(unsupported) {
        return Err(Refusal::unsupported(format!("{} is not modelled", mask & unsupported)));
    }
    let given = |attr| mask.contains(attr);
    if given(AttrMask::PORT) {
        check_port(request.port_num.into())?;
    }
    if given(AttrMask::PKEY_INDEX) && request.pkey_index != 0 {
        let why = format!("P_Key {}, there is only P_Key 0", request.pkey_index);
        return Err(Refusal::invalid(why));
    }
    if given(AttrMask::ACCESS) && request.qp_access_flags & !RIGHTS != 0 {
        let why = format!("access flags {:#x} are unknown", request.qp_access_flags & !RIGHTS);
        return Err(Refusal::invalid(why));
    }
    if given(AttrMask::PATH) {
        let path = &request.dest;
        check_route(profile, path.port_num, path.is_global, path.sgid_index)?;
    }
    let mtu = match given(AttrMask::MTU) {
        false => None,
        true => Some(Mtu::from_code(request.path_mtu).ok_or_else(|| {
            Refusal::invalid(format!("path MTU {}, expected 1 to 5", request.path_mtu))
        })?),
    };
    Ok(Attributes {
        access: given(AttrMask::ACCESS).then_some(request.qp_access_flags),
        dgid: given(AttrMask::PATH).then_some(request.dest.dgid),
        mtu,
        dest_qpn: given(AttrMask::DEST_QPN).then_some(request.dest_qp_num),
        qkey: given(AttrMask::QKEY).then_some(request.qkey),
        rq_psn: given(AttrMask::RQ_PSN).then_some(request.rq_psn & 0xff_ffff),
        sq_psn: given(AttrMask::SQ_PSN).then_some(request.sq_psn & 0xff_ffff),
        timeout: given(AttrMask::TIMEOUT).then_some(request.timeout),
        retry: given(AttrMask::RETRY).then_some(request.retry_cnt),
        rnr_retry: given(AttrMask::RNR_RETRY).then_some(request.rnr_retry),
        min_rnr_timer: given(AttrMask::MIN_RNR_TIMER).then_some(request.min_rnr_timer),
        max_rd_atomic: given(AttrMask::MAX_RD_ATOMIC).then_some(request.max_rd_atomic),
        max_dest_rd_atomic: given(AttrMask::MAX_DEST_RD_ATOMIC)
            .then_some(request.max_dest_rd_atomic),
    })
}

/// Keeps what was given, for QUERY_QP.
fn merge(kept: &mut ModifyQp, given: &ModifyQp, mask: AttrMask) {
    macro_rules! keep {
        ($($attr:ident: $member:ident,)*) => {
            $(if mask.contains(AttrMask::$attr) { kept.$member = given.$member; })*
        };
    }
    keep! {
        ACCESS: qp_access_flags,
        PKEY_INDEX: pkey_index,
        PORT: port_num,
        PATH: dest,
        MTU: path_mtu,
        TIMEOUT: timeout,
        RETRY: retry_cnt,
        RNR_RETRY: rnr_retry,
        RQ_PSN: rq_psn,
        MAX_RD_ATOMIC: max_rd_atomic,
        MIN_RNR_TIMER: min_rnr_timer,
        SQ_PSN: sq_psn,
        MAX_DEST_RD_ATOMIC: max_dest_rd_atomic,
        DEST_QPN: dest_qp_num,
        QKEY: qkey,
    }
}
