//! Notifications, by their senders.

use crate::agent::Agent;
use crate::border::{Data, Out, Text};
use crate::call::{Code, Failure, call};
use crate::handle::{Handle, Object};
use crate::lock;
use crate::options::{Options, of_call};
use crate::strings::{entry, terminated};
use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_void};
use std::sync::Mutex;

/// Notifications of one sender. Each has a zero byte behind its last one, for programs that print it.
struct Sender {
    name: CString,
    all: Vec<Box<[u8]>>,
}

/// Notifications of all senders.
#[derive(Default)]
struct Notifs(Mutex<BTreeMap<String, Sender>>);

impl Object for Notifs {
    const NAME: &'static str = "nixl_capi_notif_map_t";
}

impl Notifs {
    fn with<T>(
        &self,
        name: &str,
        look: impl FnOnce(&Sender) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let senders = lock(&self.0);
        look(
            senders.get(name).ok_or_else(|| {
                Failure::invalid(format!("the map has no notification of {name}"))
            })?,
        )
    }
}

/// Without notifications.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_create_notif_map(notif_map: Out<Handle<Notifs>>) -> Code {
    call("nixl_capi_create_notif_map", || {
        let notif_map = notif_map.place("notif_map")?;
        notif_map.set(Handle::new(Notifs::default()));
        Ok(())
    })
}

/// Frees notifications.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_destroy_notif_map(notif_map: Handle<Notifs>) -> Code {
    call("nixl_capi_destroy_notif_map", || notif_map.take().map(drop))
}

/// Adds what has come since the last call. Pointers to what is in the map stay.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_get_notifs(
    agent: Handle<Agent>,
    notif_map: Handle<Notifs>,
    opt_args: Handle<Options>,
) -> Code {
    call("nixl_capi_get_notifs", || {
        let (agent, map) = (agent.get()?, notif_map.get()?);
        of_call(&opt_args, &agent, None)?;
        let mut senders = lock(&map.0);
        for (name, all) in agent.nixl.notifications() {
            let sender = senders
                .entry(name)
                .or_insert_with_key(|name| Sender { name: terminated(name), all: Vec::new() });
            sender.all.extend(all.into_iter().map(|mut bytes| {
                bytes.push(0);
                bytes.into_boxed_slice()
            }));
        }
        Ok(())
    })
}

/// Sends a notification that belongs to no transfer, and waits until the peer has it.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_gen_notif(
    agent: Handle<Agent>,
    remote_agent: Text,
    data: Data,
    len: usize,
    opt_args: Handle<Options>,
) -> Code {
    call("nixl_capi_gen_notif", || {
        let (agent, peer) = (agent.get()?, remote_agent.get("remote_agent")?);
        of_call(&opt_args, &agent, None)?;
        Ok(agent.nixl.notify(peer, data.get(len, "data")?)?)
    })
}

/// How many senders.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_notif_map_size(map: Handle<Notifs>, size: Out<usize>) -> Code {
    call("nixl_capi_notif_map_size", || {
        let (map, size) = (map.get()?, size.place("size")?);
        size.set(lock(&map.0).len());
        Ok(())
    })
}

/// The name of a sender, in the order of the names; it stays until the map is cleared.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_notif_map_get_agent_at(
    map: Handle<Notifs>,
    index: usize,
    agent_name: Out<*const c_char>,
) -> Code {
    call("nixl_capi_notif_map_get_agent_at", || {
        let (map, agent_name) = (map.get()?, agent_name.place("agent_name")?);
        let senders = lock(&map.0);
        let sender = senders.values().nth(index).ok_or_else(|| {
            let count = senders.len();
            Failure::invalid(format!("sender {index}, expected less than their number, {count}"))
        })?;
        agent_name.set(sender.name.as_ptr());
        Ok(())
    })
}

/// How many notifications of a sender.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_notif_map_get_notifs_size(
    map: Handle<Notifs>,
    agent_name: Text,
    size: Out<usize>,
) -> Code {
    call("nixl_capi_notif_map_get_notifs_size", || {
        let (map, size) = (map.get()?, size.place("size")?);
        size.set(map.with(agent_name.get("agent_name")?, |sender| Ok(sender.all.len()))?);
        Ok(())
    })
}

/// A notification, which stays until the map is cleared.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_notif_map_get_notif(
    map: Handle<Notifs>,
    agent_name: Text,
    index: usize,
    data: Out<*const c_void>,
    len: Out<usize>,
) -> Code {
    call("nixl_capi_notif_map_get_notif", || {
        let map = map.get()?;
        let (data, len) = (data.place("data")?, len.place("len")?);
        map.with(agent_name.get("agent_name")?, |sender| {
            let bytes = entry(&sender.all, index, "notification")?;
            data.set(bytes.as_ptr().cast());
            len.set(bytes.len() - 1);
            Ok(())
        })
    })
}

/// Forgets all notifications.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_notif_map_clear(map: Handle<Notifs>) -> Code {
    call("nixl_capi_notif_map_clear", || {
        lock(&map.get()?.0).clear();
        Ok(())
    })
}
