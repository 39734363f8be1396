//! Plugins and backends.

use crate::agent::{Agent, Backend};
use crate::border::{Out, Text};
use crate::call::{Code, Failure, call};
use crate::handle::Handle;
use crate::params::Params;
use crate::strings::{Kinds, Strings};
use warpverbs_nixl::Plugin;

/// The names of all plugins.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_get_available_plugins(
    agent: Handle<Agent>,
    plugins: Out<Handle<Strings>>,
) -> Code {
    call("nixl_capi_get_available_plugins", || {
        agent.get()?;
        let plugins = plugins.place("plugins")?;
        plugins.set(Handle::new(Strings::new(Plugin::ALL.map(Plugin::name))));
        Ok(())
    })
}

/// Kinds of memory and parameters that a plugin takes.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_get_plugin_params(
    agent: Handle<Agent>,
    plugin_name: Text,
    mems: Out<Handle<Kinds>>,
    params: Out<Handle<Params>>,
) -> Code {
    call("nixl_capi_get_plugin_params", || {
        agent.get()?;
        let name = plugin_name.get("plugin_name")?;
        let (mems, params) = (mems.place("mems")?, params.place("params")?);
        let plugin = Plugin::named(name).map_err(Failure::backend)?;
        mems.set(Handle::new(Kinds(plugin.kinds())));
        params.set(Handle::new(Params::new(plugin.params())));
        Ok(())
    })
}

/// Creates a backend.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_create_backend(
    agent: Handle<Agent>,
    plugin_name: Text,
    params: Handle<Params>,
    backend: Out<Handle<Backend>>,
) -> Code {
    call("nixl_capi_create_backend", || {
        let (agent, params, backend) = (agent.get()?, params.get()?, backend.place("backend")?);
        let name = plugin_name.get("plugin_name")?;
        let id = agent.nixl.create_backend(name, &params.copy()).map_err(Failure::backend)?;
        let plugin = agent.nixl.backend_plugin(id)?;
        agent.created(plugin, id);
        backend.set(Handle::new(Backend::new(&agent, plugin, id)));
        Ok(())
    })
}

/// Frees the handle of a backend; the backend stays the agent's.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_destroy_backend(backend: Handle<Backend>) -> Code {
    call("nixl_capi_destroy_backend", || backend.take().map(drop))
}

/// Kinds of memory that a backend takes, and the parameters that it has.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_get_backend_params(
    agent: Handle<Agent>,
    backend: Handle<Backend>,
    mems: Out<Handle<Kinds>>,
    params: Out<Handle<Params>>,
) -> Code {
    call("nixl_capi_get_backend_params", || {
        let (agent, backend) = (agent.get()?, backend.get()?);
        let (mems, params) = (mems.place("mems")?, params.place("params")?);
        if !backend.is_of(&agent) {
            return Err(Failure::new(Code::BACKEND, "the backend is another agent's"));
        }
        let found = agent.nixl.backend_params(backend.id()).map_err(Failure::backend)?;
        mems.set(Handle::new(Kinds(backend.plugin().kinds())));
        params.set(Handle::new(Params::new(found)));
        Ok(())
    })
}
