//! Optional arguments of calls.

use crate::agent::{Agent, Backend};
use crate::border::{Data, Out, Text, given};
use crate::call::{Code, Failure, call};
use crate::handle::{Handle, Object};
use crate::lock;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex};
use warpverbs_nixl::{Kind, Place};

/// The port at which agents listen unless they say otherwise.
const PORT: u16 = 8888;

#[derive(Default)]
struct Given {
    backends: Vec<Arc<Backend>>,
    message: Vec<u8>,
    has_notif: bool,
    skip_merge: bool,
    custom: Vec<u8>,
    host: String,
    port: Option<u16>,
}

/// Arguments that a program has set.
#[derive(Default)]
pub(crate) struct Options(Mutex<Given>);

impl Object for Options {
    const NAME: &'static str = "nixl_capi_opt_args_t";
}

impl Options {
    /// The notification to be sent, if one is wished.
    pub(crate) fn notification(&self) -> Option<Vec<u8>> {
        let given = lock(&self.0);
        given.has_notif.then(|| given.message.clone())
    }

    /// Where metadata go to or come from.
    pub(crate) fn place(&self) -> Place {
        let given = lock(&self.0);
        match given.host.is_empty() {
            true => Place::Store { label: String::new() },
            false => Place::Agent { host: given.host.clone(), port: given.port.unwrap_or(PORT) },
        }
    }

    /// Whether the call may use a backend of this agent, one that takes such memory. The agent chooses
    /// among all it has; a list that leaves it none is refused.
    fn check(&self, agent: &Arc<Agent>, kind: Option<Kind>) -> Result<(), Failure> {
        let given = lock(&self.0);
        if given.backends.is_empty() {
            return Ok(());
        }
        let mut own = given.backends.iter().filter(|one| one.is_of(agent)).peekable();
        if own.peek().is_none() {
            return Err(Failure::invalid(
                "the backends of the optional arguments are another agent's",
            ));
        }
        match kind {
            Some(kind) if !own.any(|one| one.plugin().kinds().contains(&kind)) => {
                let why = format!("no backend of the optional arguments takes {kind}");
                Err(Failure::new(Code::NOT_FOUND, why))
            }
            _ => Ok(()),
        }
    }
}

/// The options of a call on an agent; null for none.
pub(crate) fn of_call(
    options: &Handle<Options>,
    agent: &Arc<Agent>,
    kind: Option<Kind>,
) -> Result<Arc<Options>, Failure> {
    let options = options.maybe()?.unwrap_or_default();
    options.check(agent, kind)?;
    Ok(options)
}

/// Without options.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_create_opt_args(args: Out<Handle<Options>>) -> Code {
    call("nixl_capi_create_opt_args", || {
        let args = args.place("args")?;
        args.set(Handle::new(Options::default()));
        Ok(())
    })
}

/// Frees options.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_destroy_opt_args(args: Handle<Options>) -> Code {
    call("nixl_capi_destroy_opt_args", || args.take().map(drop))
}

/// Adds a backend to those that a call may use.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_opt_args_add_backend(
    args: Handle<Options>,
    backend: Handle<Backend>,
) -> Code {
    call("nixl_capi_opt_args_add_backend", || {
        let (args, backend) = (args.get()?, backend.get()?);
        lock(&args.0).backends.push(backend);
        Ok(())
    })
}

fn copied(bytes: &[u8], data: &Out<*mut c_void>, len: &Out<usize>) -> Result<(), Failure> {
    let (data, len) = (data.place("data")?, len.place("len")?);
    data.set(if bytes.is_empty() { ptr::null_mut() } else { given(bytes)? });
    len.set(bytes.len());
    Ok(())
}

/// Sets the bytes of the notification.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_opt_args_set_notif_msg(
    args: Handle<Options>,
    data: Data,
    len: usize,
) -> Code {
    call("nixl_capi_opt_args_set_notif_msg", || {
        let args = args.get()?;
        lock(&args.0).message = data.get(len, "data")?.to_vec();
        Ok(())
    })
}

/// A copy of the bytes of the notification, which the caller frees; null if there are none.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_opt_args_get_notif_msg(
    args: Handle<Options>,
    data: Out<*mut c_void>,
    len: Out<usize>,
) -> Code {
    call("nixl_capi_opt_args_get_notif_msg", || {
        let args = args.get()?;
        let message = lock(&args.0).message.clone();
        copied(&message, &data, &len)
    })
}

/// Sets bytes for a backend, none of which takes any.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_opt_args_set_custom_param(
    args: Handle<Options>,
    data: Data,
    len: usize,
) -> Code {
    call("nixl_capi_opt_args_set_custom_param", || {
        let args = args.get()?;
        lock(&args.0).custom = data.get(len, "data")?.to_vec();
        Ok(())
    })
}

/// A copy of the bytes for a backend, which the caller frees; null if there are none.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_opt_args_get_custom_param(
    args: Handle<Options>,
    data: Out<*mut c_void>,
    len: Out<usize>,
) -> Code {
    call("nixl_capi_opt_args_get_custom_param", || {
        let args = args.get()?;
        let custom = lock(&args.0).custom.clone();
        copied(&custom, &data, &len)
    })
}

/// Whether a transfer ends with a notification.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_opt_args_set_has_notif(args: Handle<Options>, has_notif: bool) -> Code {
    call("nixl_capi_opt_args_set_has_notif", || {
        lock(&args.get()?.0).has_notif = has_notif;
        Ok(())
    })
}

/// Whether a transfer ends with a notification.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_opt_args_get_has_notif(
    args: Handle<Options>,
    has_notif: Out<bool>,
) -> Code {
    call("nixl_capi_opt_args_get_has_notif", || {
        let (args, has_notif) = (args.get()?, has_notif.place("has_notif")?);
        has_notif.set(lock(&args.0).has_notif);
        Ok(())
    })
}

/// Whether neighbouring descriptors stay apart. It changes nothing: agents merge what they can.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_opt_args_set_skip_desc_merge(
    args: Handle<Options>,
    skip_merge: bool,
) -> Code {
    call("nixl_capi_opt_args_set_skip_desc_merge", || {
        lock(&args.get()?.0).skip_merge = skip_merge;
        Ok(())
    })
}

/// Whether neighbouring descriptors stay apart, as it was set.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_opt_args_get_skip_desc_merge(
    args: Handle<Options>,
    skip_merge: Out<bool>,
) -> Code {
    call("nixl_capi_opt_args_get_skip_desc_merge", || {
        let (args, skip_merge) = (args.get()?, skip_merge.place("skip_merge")?);
        skip_merge.set(lock(&args.0).skip_merge);
        Ok(())
    })
}

/// Sets the host of the agent with which metadata are exchanged.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_opt_args_set_ip_addr(args: Handle<Options>, ip_addr: Text) -> Code {
    call("nixl_capi_opt_args_set_ip_addr", || {
        let args = args.get()?;
        lock(&args.0).host = ip_addr.get("ip_addr")?.to_owned();
        Ok(())
    })
}

/// Sets the port of the agent with which metadata are exchanged.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_opt_args_set_port(args: Handle<Options>, port: u16) -> Code {
    call("nixl_capi_opt_args_set_port", || {
        lock(&args.get()?.0).port = Some(port);
        Ok(())
    })
}
