//! Questions about files that are not registered yet.

use crate::agent::Agent;
use crate::border::Out;
use crate::call::{Code, Failure, call};
use crate::handle::{Handle, Object};
use crate::lists::RegList;
use crate::lock;
use crate::options::{Options, of_call};
use crate::params::Params;
use crate::strings::entry;
use std::sync::Mutex;

/// For each descriptor what is known of it, if it exists.
#[derive(Default)]
struct Answers(Mutex<Vec<Option<warpverbs_nixl::Params>>>);

impl Object for Answers {
    const NAME: &'static str = "nixl_capi_query_resp_list_t";
}

/// Without answers.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_create_query_resp_list(list: Out<Handle<Answers>>) -> Code {
    call("nixl_capi_create_query_resp_list", || {
        let list = list.place("list")?;
        list.set(Handle::new(Answers::default()));
        Ok(())
    })
}

/// Frees answers.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_destroy_query_resp_list(list: Handle<Answers>) -> Code {
    call("nixl_capi_destroy_query_resp_list", || list.take().map(drop))
}

/// How many answers.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_query_resp_list_size(list: Handle<Answers>, size: Out<usize>) -> Code {
    call("nixl_capi_query_resp_list_size", || {
        let (list, size) = (list.get()?, size.place("size")?);
        size.set(lock(&list.0).len());
        Ok(())
    })
}

/// Whether what was asked for exists.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_query_resp_list_has_value(
    list: Handle<Answers>,
    index: usize,
    has_value: Out<bool>,
) -> Code {
    call("nixl_capi_query_resp_list_has_value", || {
        let (list, has_value) = (list.get()?, has_value.place("has_value")?);
        has_value.set(entry(&lock(&list.0), index, "answer")?.is_some());
        Ok(())
    })
}

/// The answer about something that exists, as parameters that the caller frees.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_query_resp_list_get_params(
    list: Handle<Answers>,
    index: usize,
    params: Out<Handle<Params>>,
) -> Code {
    call("nixl_capi_query_resp_list_get_params", || {
        let (list, params) = (list.get()?, params.place("params")?);
        let found = entry(&lock(&list.0), index, "answer")?.clone();
        let found = found.ok_or_else(|| {
            Failure::invalid(format!("answer {index}: what was asked for does not exist"))
        })?;
        params.set(Handle::new(Params::new(found)));
        Ok(())
    })
}

/// Asks what is known of each descriptor, and puts the answers in the list, in place of what it has.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_query_mem(
    agent: Handle<Agent>,
    descs: Handle<RegList>,
    resp: Handle<Answers>,
    opt_args: Handle<Options>,
) -> Code {
    call("nixl_capi_query_mem", || {
        let (agent, list, resp) = (agent.get()?, descs.get()?.list()?, resp.get()?);
        of_call(&opt_args, &agent, Some(list.kind))?;
        let backend = agent.backend_for(list.kind)?;
        *lock(&resp.0) = agent.nixl.query(&list, backend)?;
        Ok(())
    })
}
