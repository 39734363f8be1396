//! Opening a context, descriptors, doorbell pages and firmware commands.

use super::{Context, handle_bytes};
use crate::Refusal;
use crate::call::Call;
use crate::device::{Device, UarKind};
use crate::objects::{Object, UarObject, file};
use crate::schema::{DRIVER, UHW_OUT};

impl<D: Device> Context<D> {
    pub(super) fn get_context(&mut self, call: &mut Call) -> Result<(), Refusal> {
        if self.cqe_version.is_some() {
            return Err(Refusal::invalid("the context is open already"));
        }
        let profile = self.device.profile();
        let (driver, cqe_version, answer) = profile.driver.open(call, profile)?;
        let vectors = profile.comp_vectors;
        call.answer(0, vectors.to_ne_bytes());
        call.answer(1, [0; 8]);
        call.answer(UHW_OUT, answer);
        self.driver = driver;
        self.cqe_version = Some(cqe_version);
        Ok(())
    }

    /// Adds a channel; says what its descriptor stands for.
    pub(super) fn add_fd(
        &mut self,
        call: &mut Call,
        object: Object<D>,
        fd: u32,
    ) -> Result<u64, Refusal> {
        let file = file(&self.device, fd.into())?;
        call.note_made(object.class(), fd);
        self.objects.insert_file(&self.device, file, object);
        Ok(file)
    }

    pub(super) fn alloc_uar(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let kind = match call.number(DRIVER + 1) {
            0 => UarKind::BlueFlame,
            1 => UarKind::NonCached,
            kind => return Err(Refusal::invalid(format!("UAR of kind {kind}, expected 0 or 1"))),
        };
        let (uar, page) = self.device.alloc_uar(kind)?;
        let handle = self.add(call, Object::Uar(UarObject { uar, id: page.id }), &[])?;
        call.answer(DRIVER, handle_bytes(handle));
        call.answer(DRIVER + 2, page.offset.to_ne_bytes());
        call.answer(DRIVER + 3, page.len.to_ne_bytes());
        call.answer(DRIVER + 4, page.id.to_ne_bytes());
        Ok(())
    }

    /// A firmware command. Its answer is written also when it failed.
    pub(super) fn command(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let mut answer = vec![0; call.room(DRIVER + 1).unwrap_or(0)];
        let done = self.device.command(call.bytes(DRIVER).unwrap_or(&[]), &mut answer);
        call.answer(DRIVER + 1, answer);
        done
    }
}
