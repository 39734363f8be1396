//! The objects of a context, by handle or descriptor.

use crate::abi::{ModifyQp, QpCap};
use crate::device::Device;
use crate::event::EventSource;
use crate::schema::{Access, Class};
use crate::{Errno, Refusal};
use std::collections::BTreeMap;
use warpverbs_rdma::Service;

/// An object of the device, with what the interface itself knows of it.
pub(crate) enum Object<D: Device> {
    Pd(D::Pd),
    #[allow(dead_code, reason = "kept alive")]
    Mr(D::Mr),
    CompChannel(D::Channel),
    AsyncEvent(D::Channel),
    DevxEvents(DevxChannel<D>),
    Cq(D::Cq),
    Srq(SrqObject<D>),
    Qp(Box<QpObject<D>>),
    Uar(UarObject<D>),
    Umem(Umem),
    /// Without the device's, programs put the address itself into their WQEs.
    #[allow(dead_code, reason = "kept alive")]
    Ah(Option<D::Ah>),
}

/// Memory of the program in which queues lie that mailboxes make.
#[derive(Clone, Copy)]
pub(crate) struct Umem {
    pub(crate) start: u64,
    pub(crate) len: u64,
}

/// How an object was made.
#[derive(Clone, Copy, Default)]
pub(crate) struct Made {
    /// Its number, by which mailboxes name it.
    pub(crate) number: u32,
    /// By a mailbox: verbs do not know its handle.
    pub(crate) by_mailbox: bool,
}

pub(crate) struct DevxChannel<D: Device> {
    pub(crate) channel: D::Channel,
    /// Messages are the cookie alone.
    pub(crate) omit_data: bool,
    /// Subscriptions to events of the device.
    pub(crate) reports: Vec<D::Report>,
}

pub(crate) struct SrqObject<D: Device> {
    pub(crate) srq: D::Srq,
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
}

pub(crate) struct UarObject<D: Device> {
    pub(crate) uar: D::Uar,
    pub(crate) id: u32,
}

pub(crate) struct QpObject<D: Device> {
    pub(crate) qp: D::Qp,
    pub(crate) cap: QpCap,
    /// Attributes as they were given last.
    pub(crate) attrs: ModifyQp,
    pub(crate) signals_all: bool,
    pub(crate) service: Service,
}

impl<D: Device> Object<D> {
    fn channel(&self) -> Option<&D::Channel> {
        match self {
            Self::CompChannel(channel) | Self::AsyncEvent(channel) => Some(channel),
            Self::DevxEvents(events) => Some(&events.channel),
            _ => None,
        }
    }

    pub(crate) fn class(&self) -> Class {
        match self {
            Self::Pd(_) => Class::Pd,
            Self::Mr(_) => Class::Mr,
            Self::CompChannel(_) => Class::CompChannel,
            Self::AsyncEvent(_) => Class::AsyncEvent,
            Self::DevxEvents(_) => Class::DevxEvents,
            Self::Cq(_) => Class::Cq,
            Self::Srq(_) => Class::Srq,
            Self::Qp(_) => Class::Qp,
            Self::Uar(_) => Class::Uar,
            Self::Umem(_) => Class::Umem,
            Self::Ah(_) => Class::Ah,
        }
    }
}

/// The open file of a descriptor that a call names.
pub(crate) fn file<D: Device>(device: &D, fd: u64) -> Result<u64, Refusal> {
    let none = || Refusal::new(Errno::EBADF, format!("there is no descriptor {fd:#x}"));
    u32::try_from(fd).ok().and_then(|fd| device.file(fd)).ok_or_else(none)
}

struct Entry<D: Device> {
    object: Object<D>,
    made: Made,
    /// Objects that use this one.
    users: u32,
    /// Handles of objects that this one uses.
    uses: Vec<u32>,
    /// Subscriptions to its events.
    reports: Vec<D::Report>,
}

/// An object that was taken out.
pub(crate) struct Removed<D: Device> {
    pub(crate) object: Object<D>,
    pub(crate) reports: Vec<D::Report>,
}

impl<D: Device> Entry<D> {
    fn class(&self) -> Class {
        if self.made.by_mailbox { Class::DevxObj } else { self.object.class() }
    }
}

/// All objects of a context. Handles are never used twice.
pub(crate) struct Objects<D: Device> {
    handles: BTreeMap<u32, Entry<D>>,
    /// By the file that their descriptors stand for.
    descriptors: BTreeMap<u64, Object<D>>,
    next: u32,
}

impl<D: Device> Default for Objects<D> {
    fn default() -> Self {
        Self { handles: BTreeMap::new(), descriptors: BTreeMap::new(), next: 0 }
    }
}

impl<D: Device> Objects<D> {
    /// Adds an object that uses those with the handles `uses`, and says its handle.
    pub(crate) fn insert(
        &mut self,
        object: Object<D>,
        made: Made,
        uses: &[u32],
    ) -> Result<u32, Refusal> {
        let handle = self.next;
        let next = handle.checked_add(1);
        self.next = next.ok_or(Refusal::new(Errno::ENOMEM, "every handle was used"))?;
        for used in uses {
            if let Some(entry) = self.handles.get_mut(used) {
                entry.users += 1;
            }
        }
        let (uses, reports) = (uses.to_vec(), Vec::new());
        self.handles.insert(handle, Entry { object, made, users: 0, uses, reports });
        Ok(handle)
    }

    /// How many have handles.
    pub(crate) fn len(&self) -> usize {
        self.handles.len()
    }

    /// Adds an object with a descriptor, which stands for `file`. Those whose descriptors the program
    /// has closed meanwhile go.
    pub(crate) fn insert_file(&mut self, device: &D, file: u64, object: Object<D>) {
        self.descriptors.retain(|_, known| known.channel().is_none_or(|c| !device.is_closed(c)));
        self.descriptors.insert(file, object);
    }

    /// Takes out what has a descriptor that stands for `file`.
    pub(crate) fn remove_file(&mut self, file: u64) {
        self.descriptors.remove(&file);
    }

    /// Whether a call may name an object so.
    pub(crate) fn check(
        &self,
        device: &D,
        class: Class,
        access: Access,
        name: u64,
    ) -> Result<(), Refusal> {
        let name = match class.is_fd() && access != Access::New {
            true => file(device, name)?,
            false => name,
        };
        match access {
            Access::New => Ok(()),
            Access::Use => self.find(class, name).map(drop),
            Access::Destroy => self.check_unused(class, name),
        }
    }

    fn find(&self, class: Class, name: u64) -> Result<&Object<D>, Refusal> {
        let (found, errno) = match class.is_fd() {
            true => {
                let found = self.descriptors.get(&name);
                (found.map(|object| (object, object.class())), Errno::EBADF)
            }
            false => {
                let found = u32::try_from(name).ok().and_then(|h| self.handles.get(&h));
                (found.map(|entry| (&entry.object, entry.class())), Errno::ENOENT)
            }
        };
        match found {
            None => Err(Refusal::new(errno, format!("there is no object {name:#x}"))),
            Some((_, found)) if found != class && class != Class::Any => {
                let errno = if class.is_fd() { Errno::EBADF } else { Errno::EINVAL };
                let why = format!("{name:#x} is a {found:?}, expected a {class:?}");
                Err(Refusal::new(errno, why))
            }
            Some((object, _)) => Ok(object),
        }
    }

    fn check_unused(&self, class: Class, name: u64) -> Result<(), Refusal> {
        self.find(class, name)?;
        let users = u32::try_from(name).ok().and_then(|h| self.handles.get(&h)).map(|e| e.users);
        match users {
            Some(users @ 1..) => {
                Err(Refusal::new(Errno::EBUSY, format!("{users} object(s) use {name:#x}")))
            }
            _ => Ok(()),
        }
    }

    /// Takes an object out, unless another uses it.
    pub(crate) fn remove(&mut self, class: Class, handle: u32) -> Result<Removed<D>, Refusal> {
        self.check_unused(class, handle.into())?;
        let none = || Refusal::new(Errno::ENOENT, format!("there is no object {handle:#x}"));
        let entry = self.handles.remove(&handle).ok_or_else(none)?;
        for used in entry.uses {
            if let Some(entry) = self.handles.get_mut(&used) {
                entry.users -= 1;
            }
        }
        Ok(Removed { object: entry.object, reports: entry.reports })
    }

    /// Whose events an object raises.
    pub(crate) fn source(&self, handle: u32) -> Option<EventSource> {
        let entry = self.handles.get(&handle)?;
        let number = entry.made.number;
        match entry.object {
            Object::Cq(_) => Some(EventSource::Cq(number)),
            Object::Srq(_) => Some(EventSource::Srq(number)),
            Object::Qp(_) => Some(EventSource::Qp(number)),
            _ => None,
        }
    }

    /// Adds a report of an object's events, which goes with it.
    pub(crate) fn add_report(&mut self, handle: u32, report: D::Report) {
        if let Some(entry) = self.handles.get_mut(&handle) {
            entry.reports.push(report);
        }
    }

    /// The channel of asynchronous events whose descriptors stand for `file`.
    pub(crate) fn devx_channel(&mut self, file: u64) -> Option<&mut DevxChannel<D>> {
        match self.descriptors.get_mut(&file) {
            Some(Object::DevxEvents(channel)) => Some(channel),
            _ => None,
        }
    }

    /// The handle of the object with this number, however it was made.
    pub(crate) fn numbered(&self, class: Class, number: u32) -> Option<u32> {
        let is = |entry: &Entry<D>| entry.object.class() == class && entry.made.number == number;
        self.handles.iter().find(|(_, entry)| is(entry)).map(|(handle, _)| *handle)
    }

    /// The number of an object that has one.
    pub(crate) fn number(&self, handle: u32) -> u32 {
        self.handles.get(&handle).map_or(0, |entry| entry.made.number)
    }

    /// A CQ, however it was made.
    pub(crate) fn any_cq(&self, handle: u32) -> Result<&D::Cq, Refusal> {
        match self.find(Class::Any, handle.into())? {
            Object::Cq(cq) => Ok(cq),
            _ => Err(Refusal::invalid(format!("object {handle:#x} is not a CQ"))),
        }
    }

    /// An SRQ, however it was made.
    pub(crate) fn any_srq(&self, handle: u32) -> Result<&D::Srq, Refusal> {
        Ok(&self.any_pool(handle)?.srq)
    }

    /// The same with its limits.
    pub(crate) fn any_pool(&self, handle: u32) -> Result<&SrqObject<D>, Refusal> {
        match self.find(Class::Any, handle.into())? {
            Object::Srq(srq) => Ok(srq),
            _ => Err(Refusal::invalid(format!("object {handle:#x} is not an SRQ"))),
        }
    }

    /// A QP, however it was made.
    pub(crate) fn any_qp(&self, handle: u32) -> Result<&QpObject<D>, Refusal> {
        match self.find(Class::Any, handle.into())? {
            Object::Qp(qp) => Ok(qp),
            _ => Err(Refusal::invalid(format!("object {handle:#x} is not a QP"))),
        }
    }

    /// The doorbell page of this number.
    pub(crate) fn uar(&self, id: u32) -> Result<&D::Uar, Refusal> {
        let found = self.handles.values().find_map(|entry| match &entry.object {
            Object::Uar(uar) if uar.id == id => Some(&uar.uar),
            _ => None,
        });
        found.ok_or_else(|| Refusal::invalid(format!("there is no doorbell page {id:#x}")))
    }
}

/// Typed look-ups: `EINVAL` for an object of another class.
macro_rules! look_up {
    ($($name:ident: $variant:ident -> $ty:ty;)*) => {
        impl<D: Device> Objects<D> {
            $(pub(crate) fn $name(&self, name: impl Into<u64>) -> Result<&$ty, Refusal> {
                match self.find(Class::$variant, name.into())? {
                    Object::$variant(object) => Ok(object),
                    _ => Err(Refusal::invalid("an object of another class")),
                }
            })*
        }
    };
}

look_up! {
    pd: Pd -> D::Pd;
    channel: CompChannel -> D::Channel;
    async_channel: AsyncEvent -> D::Channel;
    cq: Cq -> D::Cq;
    srq: Srq -> SrqObject<D>;
    qp: Qp -> QpObject<D>;
    umem: Umem -> Umem;
}

impl<D: Device> Objects<D> {
    pub(crate) fn qp_mut(&mut self, handle: u32) -> Result<&mut QpObject<D>, Refusal> {
        match self.handles.get_mut(&handle).map(|entry| &mut entry.object) {
            Some(Object::Qp(qp)) => Ok(qp),
            _ => Err(Refusal::invalid(format!("there is no QP {handle:#x}"))),
        }
    }
}
