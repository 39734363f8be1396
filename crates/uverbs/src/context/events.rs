//! Asynchronous events: their channels, and which object's events go where.

use super::{Context, handle_bytes};
use crate::Refusal;
use crate::call::Call;
use crate::device::Device;
use crate::event::{EventForm, EventSource};
use crate::objects::{DevxChannel, Object, Objects, file};
use crate::schema::DRIVER;

/// `MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA`.
const OMIT_DATA: u64 = 1;

/// The channel that a context opened first, for events of the device, and of objects that name no
/// channel.
pub(super) struct First<D: Device> {
    file: Option<u64>,
    /// Events of the device itself.
    device: Option<D::Report>,
}

impl<D: Device> Default for First<D> {
    fn default() -> Self {
        Self { file: None, device: None }
    }
}

impl<D: Device> First<D> {
    /// Sends the events of a new object to the channel that the call names in attribute `id`, or to
    /// the first one. The program's own name of the object is in attribute `name`.
    pub(super) fn report(
        &self,
        (device, objects): (&D, &mut Objects<D>),
        call: &Call,
        handle: u32,
        (id, name): (u16, u16),
    ) {
        let named = call.handle(id).and_then(|fd| device.file(fd));
        let Some(file) = named.or(self.file) else { return };
        let Some(source) = objects.source(handle) else { return };
        // The program may have closed the first one.
        let channel = objects.async_channel(file).ok();
        let Some(channel) = channel.filter(|c| !device.is_closed(c)) else { return };
        let form = EventForm::Verbs { element: call.number(name) };
        // Every source raises asynchronous events.
        if let Ok(report) = device.report(source, channel, form) {
            objects.add_report(handle, report);
        }
    }
}

impl<D: Device> Context<D> {
    pub(super) fn open_async_channel(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let (channel, fd) = self.device.open_async_channel()?;
        let first = self.first.file.is_none();
        if first {
            let form = EventForm::Verbs { element: 0 };
            let report = self.device.report(EventSource::Device, &channel, form);
            self.first.device = Some(report.inspect_err(|_| self.device.withdraw(fd))?);
        }
        let file = self.add_fd(call, Object::AsyncEvent(channel), fd)?;
        if first {
            self.first.file = Some(file);
        }
        call.answer(0, handle_bytes(fd));
        Ok(())
    }

    pub(super) fn open_devx_events(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let omit_data = call.flags(DRIVER + 1, OMIT_DATA)? != 0;
        let (channel, fd) = self.device.open_async_channel()?;
        let channel = DevxChannel { channel, omit_data, reports: Vec::new() };
        self.add_fd(call, Object::DevxEvents(channel), fd)?;
        call.answer(DRIVER, handle_bytes(fd));
        Ok(())
    }

    /// Subscribes to kinds of events of an object, or of the device.
    pub(super) fn subscribe(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let list = call.bytes(DRIVER + 2).unwrap_or(&[]);
        let (kinds, rest) = list.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(Refusal::invalid(format!("{} bytes of 16-bit numbers", list.len())));
        }
        let kinds = kinds.iter().map(|kind| u16::from_ne_bytes(*kind)).collect();
        let cookie = call.bytes(DRIVER + 4).map_or(0, |_| call.number(DRIVER + 4));
        let handle = call.handle(DRIVER + 1);
        let source = match handle {
            None => EventSource::Device,
            Some(handle) => self
                .objects
                .source(handle)
                .ok_or_else(|| Refusal::invalid(format!("object {handle:#x} raises no events")))?,
        };
        let fd = call.handle(DRIVER).unwrap_or(u32::MAX);
        let file = file(&self.device, fd.into())?;
        let Some(channel) = self.objects.devx_channel(file) else {
            return Err(Refusal::invalid(format!("descriptor {fd} is not a DEVX event channel")));
        };
        let report = match call.bytes(DRIVER + 3) {
            None => {
                let form = EventForm::Mlx5 { cookie, kinds, omit_data: channel.omit_data };
                self.device.report(source, &channel.channel, form)?
            }
            Some(_) => {
                let eventfd = self.device.open_eventfd(call.number(DRIVER + 3) as i32)?;
                self.device.report(source, &eventfd, EventForm::Counted { kinds })?
            }
        };
        match handle {
            None => channel.reports.push(report),
            Some(handle) => self.objects.add_report(handle, report),
        }
        Ok(())
    }
}
