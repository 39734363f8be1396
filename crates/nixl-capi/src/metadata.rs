//! Metadata: by which agents know each other and each other's memory.

use crate::agent::Agent;
use crate::border::{Data, Out, Text, given};
use crate::call::{Code, Failure, call};
use crate::handle::Handle;
use crate::lists::{RegList, XferList};
use crate::options::{Options, of_call};
use crate::strings::terminated;
use std::ffi::{c_char, c_void};

fn hand_over(bytes: &[u8], data: &Out<*mut c_void>, len: &Out<usize>) -> Result<(), Failure> {
    let (data, len) = (data.place("data")?, len.place("len")?);
    data.set(given(bytes)?);
    len.set(bytes.len());
    Ok(())
}

/// The metadata of this agent and of all its registered memory, which the caller frees.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_get_local_md(
    agent: Handle<Agent>,
    data: Out<*mut c_void>,
    len: Out<usize>,
) -> Code {
    call("nixl_capi_get_local_md", || hand_over(&agent.get()?.nixl.metadata()?, &data, &len))
}

/// As [`nixl_capi_get_local_md`], with the registrations of the list alone.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_get_local_partial_md(
    agent: Handle<Agent>,
    descs: Handle<RegList>,
    data: Out<*mut c_void>,
    len: Out<usize>,
    opt_args: Handle<Options>,
) -> Code {
    call("nixl_capi_get_local_partial_md", || {
        let (agent, list) = (agent.get()?, descs.get()?.list()?);
        of_call(&opt_args, &agent, Some(list.kind))?;
        hand_over(&agent.nixl.partial_metadata(&list)?, &data, &len)
    })
}

/// Loads a peer's metadata, and gives its name, which the caller frees.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_load_remote_md(
    agent: Handle<Agent>,
    data: Data,
    len: usize,
    agent_name: Out<*mut c_char>,
) -> Code {
    call("nixl_capi_load_remote_md", || {
        let (agent, bytes) = (agent.get()?, data.get(len, "data")?);
        let agent_name = agent_name.place("agent_name")?;
        if bytes.is_empty() {
            return Err(Failure::invalid("len is 0, expected metadata"));
        }
        let name = terminated(&agent.nixl.load(bytes)?);
        agent_name.set(given(name.as_bytes_with_nul())?.cast());
        Ok(())
    })
}

/// Forgets a peer. Its transfers fail.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_invalidate_remote_md(agent: Handle<Agent>, remote_agent: Text) -> Code {
    call("nixl_capi_invalidate_remote_md", || {
        Ok(agent.get()?.nixl.forget(remote_agent.get("remote_agent")?)?)
    })
}

/// Has those who know this agent by an address or a store forget it. It is done while the program goes on.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_invalidate_local_md(
    agent: Handle<Agent>,
    opt_args: Handle<Options>,
) -> Code {
    call("nixl_capi_invalidate_local_md", || {
        let agent = agent.get()?;
        let options = of_call(&opt_args, &agent, None)?;
        Ok(agent.nixl.withdraw_metadata(options.place())?)
    })
}

/// Whether a peer is known, and all of the list, if there is one, is in memory that its metadata describe.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_check_remote_md(
    agent: Handle<Agent>,
    remote_name: Text,
    descs: Handle<XferList>,
) -> Code {
    call("nixl_capi_check_remote_md", || {
        let (agent, name) = (agent.get()?, remote_name.get("remote_name")?);
        let list = descs.maybe()?.map(|list| list.list()).transpose()?;
        match agent.nixl.knows(name, list.as_ref()) {
            true => Ok(()),
            false => {
                let why = format!("no metadata of {name}, or not of all of the list");
                Err(Failure { code: Code::NOT_FOUND, why, expected: true })
            }
        }
    })
}

/// Sends the metadata of this agent to an address or a store. It is done while the program goes on.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_send_local_md(agent: Handle<Agent>, opt_args: Handle<Options>) -> Code {
    call("nixl_capi_send_local_md", || {
        let agent = agent.get()?;
        let options = of_call(&opt_args, &agent, None)?;
        Ok(agent.nixl.send_metadata(None, options.place())?)
    })
}

/// As [`nixl_capi_send_local_md`], with the registrations of the list alone.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_send_local_partial_md(
    agent: Handle<Agent>,
    descs: Handle<RegList>,
    opt_args: Handle<Options>,
) -> Code {
    call("nixl_capi_send_local_partial_md", || {
        let (agent, list) = (agent.get()?, descs.get()?.list()?);
        let options = of_call(&opt_args, &agent, Some(list.kind))?;
        Ok(agent.nixl.send_metadata(Some(&list), options.place())?)
    })
}

/// Loads a peer's metadata from an address or a store, while the program goes on.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_fetch_remote_md(
    agent: Handle<Agent>,
    remote_name: Text,
    opt_args: Handle<Options>,
) -> Code {
    call("nixl_capi_fetch_remote_md", || {
        let (agent, name) = (agent.get()?, remote_name.get("remote_name")?);
        let options = of_call(&opt_args, &agent, None)?;
        Ok(agent.nixl.fetch_metadata(name, options.place())?)
    })
}
