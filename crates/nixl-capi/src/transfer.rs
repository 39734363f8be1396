//! Prepared lists, and transfers.

use crate::agent::{Agent, Backend};
use crate::border::{Indices, Out, Text};
use crate::call::{Code, Failure, call, call_for};
use crate::handle::{Handle, Object};
use crate::lists::XferList;
use crate::lock;
use crate::options::{Options, of_call};
use std::ffi::c_uint;
use std::sync::{Arc, Mutex};
use warpverbs_nixl::Op;

/// A list that has been looked up.
struct Prepared(warpverbs_nixl::Prepared);

impl Object for Prepared {
    const NAME: &'static str = "nixl_capi_xfer_dlist_handle_t";
}

/// A transfer, until it is released.
struct Request(Mutex<Option<Arc<warpverbs_nixl::Transfer>>>);

impl Object for Request {
    const NAME: &'static str = "nixl_capi_xfer_req_t";
}

impl Request {
    fn new(transfer: warpverbs_nixl::Transfer) -> Self {
        Self(Mutex::new(Some(Arc::new(transfer))))
    }

    fn transfer(&self) -> Result<Arc<warpverbs_nixl::Transfer>, Failure> {
        lock(&self.0).clone().ok_or_else(released)
    }
}

fn released() -> Failure {
    Failure::invalid("the transfer was released")
}

fn op(number: c_uint) -> Result<Op, Failure> {
    match number {
        0 => Ok(Op::Read),
        1 => Ok(Op::Write),
        _ => Err(Failure::invalid(format!("operation {number}, expected 0 (read) or 1 (write)"))),
    }
}

/// Looks up a list: of this agent's side of transfers if the name is empty, else of that peer's memory.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_prep_xfer_dlist(
    agent: Handle<Agent>,
    agent_name: Text,
    descs: Handle<XferList>,
    dlist_hndl: Out<Handle<Prepared>>,
    opt_args: Handle<Options>,
) -> Code {
    call("nixl_capi_prep_xfer_dlist", || {
        let (agent, name) = (agent.get()?, agent_name.get("agent_name")?);
        let (list, dlist_hndl) = (descs.get()?.list()?, dlist_hndl.place("dlist_hndl")?);
        of_call(&opt_args, &agent, Some(list.kind))?;
        dlist_hndl.set(Handle::new(Prepared(agent.nixl.prepare(name, &list)?)));
        Ok(())
    })
}

/// Frees what was looked up; transfers made of it go on.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_release_xfer_dlist_handle(
    agent: Handle<Agent>,
    dlist_handle: Handle<Prepared>,
) -> Code {
    call("nixl_capi_release_xfer_dlist_handle", || {
        agent.get()?;
        dlist_handle.take().map(drop)
    })
}

/// A transfer between blocks of lists that have been looked up.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_make_xfer_req(
    agent: Handle<Agent>,
    operation: c_uint,
    local_descs: Handle<Prepared>,
    local_indices: Indices,
    local_indices_count: usize,
    remote_descs: Handle<Prepared>,
    remote_indices: Indices,
    remote_indices_count: usize,
    req_hndl: Out<Handle<Request>>,
    opt_args: Handle<Options>,
) -> Code {
    call("nixl_capi_make_xfer_req", || {
        let (agent, op) = (agent.get()?, op(operation)?);
        let (local, remote) = (local_descs.get()?, remote_descs.get()?);
        let here = local_indices.get(local_indices_count, "local_indices")?;
        let there = remote_indices.get(remote_indices_count, "remote_indices")?;
        let req_hndl = req_hndl.place("req_hndl")?;
        let notification = of_call(&opt_args, &agent, None)?.notification();
        let (local, remote) = ((&local.0, &here[..]), (&remote.0, &there[..]));
        let transfer = agent.nixl.make(op, local, remote, notification)?;
        req_hndl.set(Handle::new(Request::new(transfer)));
        Ok(())
    })
}

/// A transfer between all blocks of two lists. Any failure but a wrong parameter of the call itself is that
/// of a backend, as NIXL has it.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_create_xfer_req(
    agent: Handle<Agent>,
    operation: c_uint,
    local_descs: Handle<XferList>,
    remote_descs: Handle<XferList>,
    remote_agent: Text,
    req_hndl: Out<Handle<Request>>,
    opt_args: Handle<Options>,
) -> Code {
    call("nixl_capi_create_xfer_req", || {
        let (agent, op) = (agent.get()?, op(operation)?);
        let (local, remote) = (local_descs.get()?.list()?, remote_descs.get()?.list()?);
        let (peer, req_hndl) = (remote_agent.get("remote_agent")?, req_hndl.place("req_hndl")?);
        let notification = of_call(&opt_args, &agent, None)?.notification();
        let transfer = agent.nixl.create(op, &local, &remote, peer, notification);
        req_hndl.set(Handle::new(Request::new(transfer.map_err(Failure::backend)?)));
        Ok(())
    })
}

/// How long a transfer may take. The method is 0 if rates of its paths were measured, 1 if it is a guess.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_estimate_xfer_cost(
    agent: Handle<Agent>,
    req_hndl: Handle<Request>,
    opt_args: Handle<Options>,
    duration_us: Out<i64>,
    err_margin_us: Out<i64>,
    method: Out<c_uint>,
) -> Code {
    call("nixl_capi_estimate_xfer_cost", || {
        let (agent, request) = (agent.get()?, req_hndl.get()?);
        of_call(&opt_args, &agent, None)?;
        let duration = duration_us.place("duration_us")?;
        let (margin, method) = (err_margin_us.place("err_margin_us")?, method.place("method")?);
        let estimate = request.transfer()?.estimate()?;
        duration.set(estimate.duration_us.try_into().unwrap_or(i64::MAX));
        margin.set(estimate.margin_us.try_into().unwrap_or(i64::MAX));
        method.set(u32::from(!estimate.measured));
        Ok(())
    })
}

/// Begins to move the blocks; they may be in place on return. A notification of the options goes before the
/// one that the transfer was made with.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_post_xfer_req(
    agent: Handle<Agent>,
    req_hndl: Handle<Request>,
    opt_args: Handle<Options>,
) -> Code {
    call_for("nixl_capi_post_xfer_req", || {
        let (agent, request) = (agent.get()?, req_hndl.get()?);
        let notification = of_call(&opt_args, &agent, None)?.notification();
        Ok(Code::of(request.transfer()?.post(notification)?))
    })
}

/// Where a transfer stands.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_get_xfer_status(agent: Handle<Agent>, req_hndl: Handle<Request>) -> Code {
    call_for("nixl_capi_get_xfer_status", || {
        agent.get()?;
        Ok(Code::of(req_hndl.get()?.transfer()?.status()?))
    })
}

/// A new handle of the backend that moves the bytes.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_query_xfer_backend(
    agent: Handle<Agent>,
    req_hndl: Handle<Request>,
    backend: Out<Handle<Backend>>,
) -> Code {
    call("nixl_capi_query_xfer_backend", || {
        let (agent, request) = (agent.get()?, req_hndl.get()?);
        let backend = backend.place("backend")?;
        backend.set(Handle::new(agent.backend(request.transfer()?.plugin())?));
        Ok(())
    })
}

/// Ends a transfer; what is in progress is cancelled. Its handle is freed by
/// [`nixl_capi_destroy_xfer_req`].
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_release_xfer_req(agent: Handle<Agent>, req: Handle<Request>) -> Code {
    call("nixl_capi_release_xfer_req", || {
        agent.get()?;
        let transfer = lock(&req.get()?.0).take();
        transfer.map(drop).ok_or_else(released)
    })
}

/// Frees the handle of a transfer that was released.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_destroy_xfer_req(req: Handle<Request>) -> Code {
    call("nixl_capi_destroy_xfer_req", || {
        if lock(&req.get()?.0).is_some() {
            let why = "the transfer was not released: nixl_capi_release_xfer_req comes first";
            return Err(Failure::new(Code::INVALID_STATE, why));
        }
        req.take().map(drop)
    })
}

/// The cost of a transfer's last post, as the interface has it.
#[repr(C)]
struct Telemetry {
    /// Microseconds since 1970.
    start_time_us: u64,
    post_duration_us: u64,
    xfer_duration_us: u64,
    total_bytes: u64,
    desc_count: u64,
}

/// The cost of a transfer's last post.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_get_xfer_telemetry(
    agent: Handle<Agent>,
    req_hndl: Handle<Request>,
    telemetry: Out<Telemetry>,
) -> Code {
    call("nixl_capi_get_xfer_telemetry", || {
        agent.get()?;
        let (request, telemetry) = (req_hndl.get()?, telemetry.place("telemetry")?);
        let cost = request.transfer()?.telemetry()?;
        telemetry.set(Telemetry {
            start_time_us: cost.start_us,
            post_duration_us: cost.post_us,
            xfer_duration_us: cost.transfer_us,
            total_bytes: cost.bytes,
            desc_count: cost.descriptors as u64,
        });
        Ok(())
    })
}
