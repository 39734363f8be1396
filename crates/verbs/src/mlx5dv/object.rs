//! Objects that firmware commands make.

use super::devx::{Devx, exchange};
use super::error::Mlx5Error;
use super::sys::mlx5dv_devx_obj;
use crate::Owned;
use nix::errno::Errno;
use std::any::Any;
use std::fmt;
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
    object: Owned<mlx5dv_devx_obj, Devx, Box<dyn Any + Send + Sync>>,
    number: u32,
    made_by: &'static str,
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
        let destroy = ("mlx5dv_devx_obj_destroy", api.mlx5dv_devx_obj_destroy);
        // SAFETY: made above.
        let object = unsafe { Owned::new(ptr, destroy, devx.clone(), uses) };
        Ok(Self { object, number, made_by: command.name() })
    }

    pub(super) fn ptr(&self) -> NonNull<mlx5dv_devx_obj> {
        self.object.ptr()
    }

    /// Its number: a QP's or CQ's.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Changes it.
    pub fn modify(&self, command: &Command) -> Result<(), Mlx5Error> {
        let api = self.object.parent().api();
        exchange(command, &mut [0; ANSWER], |input, inlen, out, outlen| {
            // SAFETY: a live object, and both mailboxes with their lengths.
            unsafe { (api.mlx5dv_devx_obj_modify)(self.ptr().as_ptr(), input, inlen, out, outlen) }
        })
    }

    /// The context of a QP.
    pub fn query_qp(&self) -> Result<QpContext, Mlx5Error> {
        let api = self.object.parent().api();
        let mut answer = [0; QUERIED];
        let command = Command::QueryQp { qpn: self.number };
        exchange(&command, &mut answer, |input, inlen, out, outlen| {
            // SAFETY: a live object, and both mailboxes with their lengths.
            unsafe { (api.mlx5dv_devx_obj_query)(self.ptr().as_ptr(), input, inlen, out, outlen) }
        })?;
        Ok(QpContext::read(&answer[ANSWER_QP_CONTEXT..]))
    }
}
