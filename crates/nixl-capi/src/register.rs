//! Registering memory and files, and connecting.

use crate::agent::Agent;
use crate::border::Text;
use crate::call::{Code, call};
use crate::handle::Handle;
use crate::lists::RegList;
use crate::options::{Options, of_call};
use std::sync::Arc;
use warpverbs_gpu::Adopter;

/// Registers memory or files, all of the list or nothing. Memory must stay mapped, readable and writable,
/// until its deregistration has succeeded.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_register_mem(
    agent: Handle<Agent>,
    dlist: Handle<RegList>,
    opt_args: Handle<Options>,
) -> Code {
    call("nixl_capi_register_mem", || {
        let (agent, list) = (agent.get()?, dlist.get()?.list()?);
        of_call(&opt_args, &agent, Some(list.kind))?;
        let mut adopter = Adopter::new(Arc::new(()));
        let registered = agent.nixl.register(&list, &mut |gpu, desc| {
            // SAFETY: by the interface the program keeps the memory until its deregistration has succeeded.
            let adopted = unsafe { adopter.adopt(gpu.map(|gpu| &**gpu), desc.addr, desc.len) };
            adopted.map_err(|error| error.to_string())
        });
        Ok(registered?)
    })
}

/// Ends registrations, and waits until no transfer and no peer can touch the memory any more. On success
/// the program may free it. If a peer did not confirm in time, the status is that of a failed backend, and
/// the memory must stay.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_deregister_mem(
    agent: Handle<Agent>,
    dlist: Handle<RegList>,
    opt_args: Handle<Options>,
) -> Code {
    call("nixl_capi_deregister_mem", || {
        let (agent, list) = (agent.get()?, dlist.get()?.list()?);
        of_call(&opt_args, &agent, Some(list.kind))?;
        Ok(agent.nixl.deregister(&list)?)
    })
}

/// Connects to a peer, which its first transfer would do otherwise.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_agent_make_connection(
    agent: Handle<Agent>,
    remote_agent: Text,
    opt_args: Handle<Options>,
) -> Code {
    call("nixl_capi_agent_make_connection", || {
        let (agent, peer) = (agent.get()?, remote_agent.get("remote_agent")?);
        of_call(&opt_args, &agent, None)?;
        Ok(agent.nixl.connect(peer)?)
    })
}
