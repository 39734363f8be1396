//! An open device as a target of firmware commands.

use super::error::{Answer, Mlx5Error};
use super::sys::Mlx5Api;
use crate::call::check;
use crate::{CallError, Context, explain};
use std::ffi::{c_int, c_void};
use std::fmt;
use std::sync::{Mutex, PoisonError};
use warpverbs_mlx5::prm::{
    ANSWER_CAPABILITIES, AtomicCaps, CapabilityKind, Command, GeneralCaps, MAX_COMMAND,
};

/// Names the libmlx5 to load instead of the one the loader finds: a path or a file name. It must be
/// the one that libibverbs uses as its driver.
pub const LIBMLX5_ENV: &str = "WARPVERBS_LIBMLX5";

pub(super) const LIBRARY: &str = "libmlx5.so.1";
/// Bytes of the answer to QUERY_HCA_CAP.
const CAPABILITIES: usize = ANSWER_CAPABILITIES + 0x1000;

/// An open mlx5 device and the library that takes its commands. Cloning shares it.
#[derive(Clone)]
pub struct Devx {
    context: Context,
    api: &'static Mlx5Api,
}

impl fmt::Debug for Devx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Devx({})", self.context.device().name())
    }
}

/// libmlx5, loaded once.
fn library() -> Result<&'static Mlx5Api, Mlx5Error> {
    static LOADED: Mutex<Option<&'static Mlx5Api>> = Mutex::new(None);
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(api) = *loaded {
        return Ok(api);
    }
    let file = std::env::var(LIBMLX5_ENV).unwrap_or_else(|_| LIBRARY.to_owned());
    // SAFETY: the library of this name, or the one its user vouches for.
    let api = unsafe { Mlx5Api::load(&file) }.map_err(|failure| explain(&file, 22, failure))?;
    let api: &'static Mlx5Api = Box::leak(Box::new(api));
    *loaded = Some(api);
    Ok(api)
}

impl Devx {
    /// The device of `context`, if it is libmlx5's.
    ///
    /// # Errors
    /// There is no libmlx5, or the device is another's. Whether the firmware takes commands shows
    /// with the first.
    pub fn of(context: &Context) -> Result<Self, Mlx5Error> {
        let api = library()?;
        let device = context.device();
        // SAFETY: a live device.
        match unsafe { (api.mlx5dv_is_supported)(device.ptr().as_ptr()) } {
            true => Ok(Self { context: context.clone(), api }),
            false => Err(Mlx5Error::NotMlx5 { device: device.name().to_owned() }),
        }
    }

    /// The open device.
    pub fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn api(&self) -> &'static Mlx5Api {
        self.api
    }

    /// Current capabilities of a kind, 0x1000 bytes.
    fn capabilities(&self, kind: CapabilityKind) -> Result<Vec<u8>, Mlx5Error> {
        let command = Command::QueryHcaCap { kind: kind as u16, current: true };
        let context = self.context.ptr().as_ptr();
        let mut answer = vec![0; CAPABILITIES];
        exchange(&command, &mut answer, |input, inlen, out, outlen| {
            // SAFETY: a live context, and both mailboxes with their lengths.
            unsafe { (self.api.mlx5dv_devx_general_cmd)(context, input, inlen, out, outlen) }
        })?;
        answer.drain(..ANSWER_CAPABILITIES);
        Ok(answer)
    }

    /// Sizes, numbers and services.
    pub fn general_caps(&self) -> Result<GeneralCaps, Mlx5Error> {
        Ok(GeneralCaps::read(&self.capabilities(CapabilityKind::General)?))
    }

    /// Atomics.
    pub fn atomic_caps(&self) -> Result<AtomicCaps, Mlx5Error> {
        Ok(AtomicCaps::read(&self.capabilities(CapabilityKind::Atomic)?))
    }

    /// Number of the event queue of a completion vector, which every CQ must name.
    pub fn event_queue(&self, vector: u32) -> Result<u32, Mlx5Error> {
        let mut number = 0;
        let context = self.context.ptr().as_ptr();
        // SAFETY: a live context; the call writes one word.
        let code = unsafe { (self.api.mlx5dv_devx_query_eqn)(context, vector, &mut number) };
        check("mlx5dv_devx_query_eqn", code)?;
        Ok(number)
    }
}

/// Sends a command by `send`, which gets both mailboxes and their lengths.
pub(super) fn exchange(
    command: &Command,
    answer: &mut [u8],
    send: impl FnOnce(*const c_void, usize, *mut c_void, usize) -> c_int,
) -> Result<(), Mlx5Error> {
    let mut mailbox = [0; MAX_COMMAND];
    let len = command.emit(&mut mailbox);
    let code = send(mailbox.as_ptr().cast(), len, answer.as_mut_ptr().cast(), answer.len());
    check(command.name(), code).map_err(|CallError { call: command, errno }| Mlx5Error::Command {
        command,
        errno,
        answer: Answer::of(answer),
    })
}
