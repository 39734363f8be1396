//! One open device file.

mod device;
mod devx;
mod events;
mod fault;
mod memory;
mod modify;
mod profile;
mod queues;
mod write;

pub use fault::Fault;

use crate::abi::DestroyCqResp;
use crate::call::{Call, VERBS_IOCTL};
use crate::device::Device;
use crate::objects::{Made, Object, Objects};
use crate::schema::{Access, Class, DRIVER, Kind};
use crate::{Driver, Errno, Refusal, UserMemory};
use events::First;
use profile::{query_eqn, query_gid_entry, query_gid_table, query_port};
use zerocopy::IntoBytes;

/// One open device file, and the objects that were made through it. They go with it.
pub struct Context<D: Device> {
    device: D,
    objects: Objects<D>,
    /// The device's driver, as the program's library wants it.
    driver: Driver,
    /// Version of CQEs that GET_CONTEXT agreed on; `None` before it.
    cqe_version: Option<u8>,
    first: First<D>,
    /// A call that is to fail.
    fault: Option<Fault>,
}

impl<D: Device> Context<D> {
    /// A file that was just opened.
    pub fn new(device: D) -> Self {
        Self {
            driver: device.profile().driver,
            device,
            objects: Objects::default(),
            cqe_version: None,
            first: First::default(),
            fault: None,
        }
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// The number by which the device knows the object of this handle; 0 of one that has none, or is none.
    pub fn number(&self, handle: u32) -> u32 {
        self.objects.number(handle)
    }

    /// The CQ of this handle.
    ///
    /// # Errors
    /// It is that of another object, or of none.
    pub fn cq(&self, handle: u32) -> Result<&D::Cq, Refusal> {
        self.objects.any_cq(handle)
    }

    /// The QP of this handle.
    ///
    /// # Errors
    /// As for a CQ.
    pub fn qp(&self, handle: u32) -> Result<&D::Qp, Refusal> {
        self.objects.any_qp(handle).map(|object| &object.qp)
    }

    /// Answers `ioctl(fd, request, at)`: reads the list of attributes at `at` in the program's
    /// memory, and writes the answer there.
    ///
    /// # Errors
    /// The number for `errno`, and a reason in words, with the name of the call.
    pub fn ioctl(
        &mut self,
        memory: &impl UserMemory,
        request: u64,
        at: u64,
    ) -> Result<(), Refusal> {
        if request != VERBS_IOCTL {
            let why = format!("request {request:#x}, expected {VERBS_IOCTL:#x}");
            return Err(Refusal::new(Errno::ENOTTY, why));
        }
        let mut call = Call::decode(memory, at, self.driver, |class, access, name| {
            self.objects.check(&self.device, class, access, name)
        })?;
        let mut done =
            Fault::count(&mut self.fault, &mut call).and_then(|()| self.dispatch(&mut call));
        // A firmware command that failed says why in its answer.
        if matches!(&done, Ok(()) | Err(Refusal { errno: Errno::EREMOTEIO, .. })) {
            done = self.finish(memory, &call).and(done);
        }
        done.map_err(|refusal| refusal.of(call.name()))
    }

    /// Whether CQEs of a new queue carry a value of the program in place of the number of an SRQ.
    fn has_user_indexes(&self) -> bool {
        self.cqe_version == Some(1)
    }

    fn dispatch(&mut self, call: &mut Call) -> Result<(), Refusal> {
        match (call.object.id, call.method.id) {
            (0, 0) => return self.invoke_write(call),
            (0, 3) => return self.get_context(call),
            _ if self.cqe_version.is_none() => return Err(not_open()),
            (0, 2) => query_port(self.device.profile(), call)?,
            (0, 5) => query_gid_table(self.device.profile(), call)?,
            (0, 6) => query_gid_entry(self.device.profile(), call)?,
            (3, 0) => self.create_cq(call)?,
            (4, 0) => self.create_qp(call)?,
            (5, 0) => self.create_srq(call)?,
            (7, 4) => self.reg_dmabuf_mr(call)?,
            (16, 0) => self.open_async_channel(call)?,
            (DRIVER, DRIVER) => return self.command(call),
            (DRIVER, 0x1003) => self.subscribe(call)?,
            (0x1005, DRIVER) => self.open_devx_events(call)?,
            (DRIVER, 0x1001) => self.query_uar(call)?,
            (DRIVER, 0x1002) => query_eqn(self.device.profile(), call)?,
            (0x1001, DRIVER) => return self.create_by_mailbox(call),
            (0x1001, 0x1002) => return self.modify_by_mailbox(call),
            (0x1001, 0x1003) => return self.query_by_mailbox(call),
            (0x1002, DRIVER) => self.reg_umem(call)?,
            (0x1008, DRIVER) => self.alloc_uar(call)?,
            _ => return self.destroy(call),
        }
        Ok(())
    }

    /// Destroys the object that the call names; its other attribute is what was reported of it.
    fn destroy(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let attrs = call.method.attrs.unwrap_or(&[]);
        let destroyed = attrs.iter().find_map(|attr| match attr.kind {
            Kind::Object(class, Access::Destroy) => Some((class, attr.id)),
            _ => None,
        });
        let Some((class, id)) = destroyed else {
            return Err(Refusal::new(Errno::EPROTONOSUPPORT, "this method is not modelled"));
        };
        let removed = self.objects.remove(class, call.handle(id).unwrap_or(u32::MAX))?;
        // The program waits until it has acknowledged as many events as it has read.
        let events: u32 = removed.reports.iter().map(|r| self.device.close_report(r)).sum();
        match removed.object {
            Object::Cq(cq) if class == Class::Cq => {
                let answer = DestroyCqResp {
                    comp_events_reported: self.device.close_cq(&cq),
                    async_events_reported: events,
                };
                call.answer(1, answer.as_bytes());
            }
            Object::Qp(_) | Object::Srq(_) if class != Class::DevxObj => {
                call.answer(1, events.to_ne_bytes());
            }
            _ => {}
        }
        Ok(())
    }

    /// Writes the answer. The objects that it names are destroyed again if it cannot be written.
    fn finish(&mut self, memory: &impl UserMemory, call: &Call) -> Result<(), Refusal> {
        let written = call.finish(memory);
        if written.is_err() {
            for (class, handle) in call.made() {
                match class.is_fd() {
                    true => self.withdraw(handle),
                    // It was made by this call, so nothing uses it yet.
                    false => drop(self.objects.remove(class, handle)),
                }
            }
        }
        written
    }

    /// Takes back a channel whose descriptor the program does not get to know.
    fn withdraw(&mut self, fd: u32) {
        if let Some(file) = self.device.file(fd) {
            self.objects.remove_file(file);
        }
        self.device.withdraw(fd);
    }

    /// Adds an object that a call has made.
    fn add(&mut self, call: &mut Call, object: Object<D>, uses: &[u32]) -> Result<u32, Refusal> {
        self.add_made(call, object, Made::default(), uses)
    }

    /// Adds an object that has a number.
    fn add_made(
        &mut self,
        call: &mut Call,
        object: Object<D>,
        made: Made,
        uses: &[u32],
    ) -> Result<u32, Refusal> {
        let class = if made.by_mailbox { Class::DevxObj } else { object.class() };
        let handle = self.objects.insert(object, made, uses)?;
        call.note_made(class, handle);
        Ok(handle)
    }
}

fn not_open() -> Refusal {
    Refusal::invalid("GET_CONTEXT was not called")
}

/// A new object's handle, as the data of its attribute.
fn handle_bytes(handle: u32) -> [u8; 8] {
    u64::from(handle).to_ne_bytes()
}
