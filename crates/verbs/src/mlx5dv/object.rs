//! Objects that firmware commands make.

use super::devx::{Devx, exchange};
use super::error::Mlx5Error;
use super::sys::mlx5dv_devx_obj;
use nix::errno::Errno;
use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use warpverbs_mlx5::prm::{ANSWER_NUMBER, ANSWER_QP_CONTEXT, Command, Field, QpContext};

/// Bytes of every answer but that to a query.
const ANSWER: usize = 0x10;
/// Bytes of the answer to QUERY_QP.
const QUERIED: usize = 0x110;
/// The number of a new object.
const NUMBER: Field = Field { name: "number", at: ANSWER_NUMBER as u16, high: 23, low: 0 };

/// An object that a command made. It is destroyed when it is dropped, and what it uses after it.
pub struct Object {
    ptr: NonNull<mlx5dv_devx_obj>,
    number: u32,
    made_by: &'static str,
    devx: Devx,
    // Dropped by hand, and never if the device does not give the object up.
    uses: ManuallyDrop<Box<dyn Any + Send + Sync>>,
}

// SAFETY: libmlx5 allows the use of an object from any thread.
unsafe impl Send for Object {}
// SAFETY: as above, at the same time too: every call is one ioctl.
unsafe impl Sync for Object {}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: a live object, destroyed once, here.
        let code = unsafe { (self.devx.api().mlx5dv_devx_obj_destroy)(self.ptr.as_ptr()) };
        match code {
            // SAFETY: nothing uses it any more; dropped once, here.
            0 => unsafe { ManuallyDrop::drop(&mut self.uses) },
            code => tracing::error!(object = ?self, code, "not destroyed, so its memory is kept"),
        }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({} {:#x})", self.made_by, self.number)
    }
}

impl Object {
    /// Makes what `command` says; `uses` is whatever its mailbox names, and is kept as long.
    pub fn create(
        devx: &Devx,
        command: &Command,
        uses: impl Any + Send + Sync,
    ) -> Result<Self, Mlx5Error> {
        let (api, context) = (devx.api(), devx.context().ptr().as_ptr());
        let (mut answer, mut made) = ([0; ANSWER], None);
        exchange(command, &mut answer, |input, inlen, out, outlen| {
            // SAFETY: a live context, and both mailboxes with their lengths.
            let ptr = unsafe { (api.mlx5dv_devx_obj_create)(context, input, inlen, out, outlen) };
            made = NonNull::new(ptr);
            if made.is_some() { 0 } else { -1 }
        })?;
        let Some(ptr) = made else {
            let (command, answer) = (command.name(), super::Answer::of(&answer));
            return Err(Mlx5Error::Command { command, errno: Errno::EREMOTEIO, answer });
        };
        let number = NUMBER.get(&answer) as u32;
        let uses: Box<dyn Any + Send + Sync> = Box::new(uses);
        let (devx, uses) = (devx.clone(), ManuallyDrop::new(uses));
        Ok(Self { ptr, number, made_by: command.name(), devx, uses })
    }

    pub(super) fn ptr(&self) -> NonNull<mlx5dv_devx_obj> {
        self.ptr
    }

    /// Its number: a QP's or CQ's.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Changes it.
    pub fn modify(&self, command: &Command) -> Result<(), Mlx5Error> {
        let api = self.devx.api();
        exchange(command, &mut [0; ANSWER], |input, inlen, out, outlen| {
            // SAFETY: a live object, and both mailboxes with their lengths.
            unsafe { (api.mlx5dv_devx_obj_modify)(self.ptr.as_ptr(), input, inlen, out, outlen) }
        })
    }

    /// The context of a QP.
    pub fn query_qp(&self) -> Result<QpContext, Mlx5Error> {
        let api = self.devx.api();
        let mut answer = [0; QUERIED];
        let command = Command::QueryQp { qpn: self.number };
        exchange(&command, &mut answer, |input, inlen, out, outlen| {
            // SAFETY: a live object, and both mailboxes with their lengths.
            unsafe { (api.mlx5dv_devx_obj_query)(self.ptr.as_ptr(), input, inlen, out, outlen) }
        })?;
        Ok(QpContext::read(&answer[ANSWER_QP_CONTEXT..]))
    }
}
