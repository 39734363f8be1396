//! Views of memory for GPU kernels, which need NIXL's own device code inside of the program: the lists
//! can be made, a view of them cannot.

use crate::agent::Agent;
use crate::border::{Out, Text};
use crate::call::{Code, Failure, call};
use crate::handle::{Handle, Object};
use crate::lists::XferList;
use crate::lock;
use crate::options::{Options, of_call};
use crate::strings::kind_of;
use std::ffi::c_uint;
use std::sync::Mutex;
use warpverbs_nixl::{Desc, Kind, MOST_DESCRIPTORS};

/// Descriptors of memory of several peers.
struct RemoteList {
    _kind: Option<Kind>,
    all: Mutex<Vec<(Desc, Option<String>)>>,
}

impl Object for RemoteList {
    const NAME: &'static str = "nixl_capi_remote_dlist_t";
}

/// A view. There is none.
enum View {}

impl Object for View {
    const NAME: &'static str = "nixl_capi_mem_view_t";
}

fn unsupported() -> Failure {
    let why = "views for kernels are not here: NIXL's device code, which is compiled into the program, \
               reads UCX's structures in them; kernels of this project have views of their own";
    Failure::new(Code::BACKEND, why)
}

/// A list without descriptors.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_create_remote_dlist(
    mem_type: c_uint,
    dlist: Out<Handle<RemoteList>>,
) -> Code {
    call("nixl_capi_create_remote_dlist", || {
        let dlist = dlist.place("dlist")?;
        dlist.set(Handle::new(RemoteList { _kind: kind_of(mem_type)?, all: Mutex::default() }));
        Ok(())
    })
}

/// Frees a list.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_destroy_remote_dlist(dlist: Handle<RemoteList>) -> Code {
    call("nixl_capi_destroy_remote_dlist", || dlist.take().map(drop))
}

/// Adds a descriptor of a peer's memory; without a peer it only takes its place in the list.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_remote_dlist_add_desc(
    dlist: Handle<RemoteList>,
    addr: usize,
    len: usize,
    dev_id: u64,
    remote_agent: Text,
) -> Code {
    call("nixl_capi_remote_dlist_add_desc", || {
        let (dlist, peer) = (dlist.get()?, remote_agent.maybe("remote_agent")?);
        let mut all = lock(&dlist.all);
        if all.len() >= MOST_DESCRIPTORS {
            return Err(Failure::invalid(format!("the list has {MOST_DESCRIPTORS} descriptors")));
        }
        let desc = Desc { addr: addr as u64, len: len as u64, dev: dev_id };
        all.push((desc, peer.map(str::to_owned)));
        Ok(())
    })
}

/// Refuses: there are no views of own memory.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_prep_mem_view_local(
    agent: Handle<Agent>,
    descs: Handle<XferList>,
    mvh: Out<Handle<View>>,
    opt_args: Handle<Options>,
) -> Code {
    call("nixl_capi_prep_mem_view_local", || {
        let agent = agent.get()?;
        descs.get()?;
        mvh.place("mvh")?;
        of_call(&opt_args, &agent, None)?;
        Err(unsupported())
    })
}

/// Refuses: there are no views of peers' memory. Peers that are not known are named first.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_prep_mem_view_remote(
    agent: Handle<Agent>,
    descs: Handle<RemoteList>,
    mvh: Out<Handle<View>>,
    opt_args: Handle<Options>,
) -> Code {
    call("nixl_capi_prep_mem_view_remote", || {
        let (agent, descs) = (agent.get()?, descs.get()?);
        mvh.place("mvh")?;
        of_call(&opt_args, &agent, None)?;
        let all = lock(&descs.all);
        let mut peers = all.iter().filter_map(|(_, peer)| peer.as_deref()).peekable();
        let not_found = |why: String| Err(Failure::new(Code::NOT_FOUND, why));
        if peers.peek().is_none() {
            return not_found("no descriptor of the list names a peer".into());
        }
        match peers.find(|peer| !agent.nixl.knows(peer, None)) {
            Some(peer) => not_found(format!("no metadata of {peer} are loaded")),
            None => Err(unsupported()),
        }
    })
}

/// Refuses: no handle is one of a view.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_release_mem_view(agent: Handle<Agent>, mvh: Handle<View>) -> Code {
    call("nixl_capi_release_mem_view", || {
        agent.get()?;
        mvh.take().map(drop)
    })
}
