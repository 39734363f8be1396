//! Writes calls as a library does.

use super::device::Model;
use super::memory::{BASE, Memory};
use warpverbs_uverbs::schema::{Access, DRIVER, Kind, OBJECTS, UHW_IN, UHW_OUT};
use warpverbs_uverbs::{Context, Errno, Refusal, VERBS_IOCTL};

/// Where calls are written.
const CALL: u64 = BASE;
/// Where long inputs and outputs lie, one behind the other.
const DATA: u64 = BASE + 0x1000;

pub(crate) const MANDATORY: u16 = 1;

/// One call to be made.
#[derive(Default)]
pub(crate) struct Call {
    object: u16,
    method: u16,
    pub(crate) attrs: Vec<Attr>,
    used: u64,
}

/// One attribute, as it goes into memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attr {
    pub(crate) id: u16,
    pub(crate) len: u16,
    pub(crate) flags: u16,
    pub(crate) reserved: u16,
    pub(crate) data: u64,
}

impl Attr {
    pub(crate) fn bytes(&self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..2].copy_from_slice(&self.id.to_ne_bytes());
        out[2..4].copy_from_slice(&self.len.to_ne_bytes());
        out[4..6].copy_from_slice(&self.flags.to_ne_bytes());
        out[6..8].copy_from_slice(&self.reserved.to_ne_bytes());
        out[8..].copy_from_slice(&self.data.to_ne_bytes());
        out
    }
}

/// Header of a call.
pub(crate) fn header(length: u16, object: u16, method: u16, attrs: u16, driver: u32) -> [u8; 24] {
    let mut out = [0; 24];
    out[..2].copy_from_slice(&length.to_ne_bytes());
    out[2..4].copy_from_slice(&object.to_ne_bytes());
    out[4..6].copy_from_slice(&method.to_ne_bytes());
    out[6..8].copy_from_slice(&attrs.to_ne_bytes());
    out[16..20].copy_from_slice(&driver.to_ne_bytes());
    out
}

/// A program with a context: the memory, the device, and the file.
pub(crate) struct Program {
    pub(crate) memory: Memory,
    pub(crate) model: Model,
    pub(crate) context: Context<Model>,
}

impl Program {
    /// A file that was just opened.
    pub(crate) fn closed() -> Self {
        Self::of(Model::default())
    }

    fn of(model: Model) -> Self {
        Self { memory: Memory::new(1 << 17), context: Context::new(model.clone()), model }
    }

    /// A file with a context.
    pub(crate) fn open() -> Self {
        let mut program = Self::closed();
        program.get_context().unwrap();
        program
    }

    /// A file of bnxt_re that was just opened.
    pub(crate) fn closed_bnxt() -> Self {
        Self::of(Model::bnxt())
    }

    /// A file of bnxt_re with a context.
    pub(crate) fn bnxt() -> Self {
        let mut program = Self::closed_bnxt();
        program.make(Call::new(0, 3).output(UHW_OUT, 48)).unwrap();
        program
    }

    /// A file of ionic with a context.
    pub(crate) fn ionic() -> Self {
        let mut program = Self::of(Model::ionic());
        let mut call = Call::new(0, 3);
        call.input(&program.memory, UHW_IN, &[0; 8]).output(UHW_OUT, 32);
        program.make(&call).unwrap();
        program
    }

    pub(crate) fn get_context(&mut self) -> Result<(), Refusal> {
        let mut request = [0; 32];
        request[..4].copy_from_slice(&16u32.to_ne_bytes());
        request[4..8].copy_from_slice(&4u32.to_ne_bytes());
        request[8] = 1;
        request[16] = 1;
        request[24] = 3;
        let mut call = Call::new(0, 3);
        call.input(&self.memory, UHW_IN, &request).output(UHW_OUT, 72);
        self.make(&call)
    }

    /// Makes a call. Attributes are where the call lies, see [`Program::handle`].
    pub(crate) fn make(&mut self, call: &Call) -> Result<(), Refusal> {
        self.make_as(call, self.model.profile.driver.number())
    }

    /// The same, for the driver of this number.
    pub(crate) fn make_as(&mut self, call: &Call, driver: u32) -> Result<(), Refusal> {
        call.put(&self.memory, driver);
        self.context.ioctl(&self.memory, VERBS_IOCTL, CALL)
    }

    pub(crate) fn errno(&mut self, call: &Call) -> Errno {
        self.make(call).unwrap_err().errno
    }

    /// The data of attribute `i` of the last call: the handle of a new object.
    pub(crate) fn data(&self, i: usize) -> u64 {
        u64::from_ne_bytes(self.memory.get(CALL + 24 + 16 * i as u64 + 8))
    }

    /// A wrapped command of the older interface; where its output is.
    pub(crate) fn write_command(
        &mut self,
        id: u32,
        input: &[u8],
        output: u16,
        driver: u16,
    ) -> Result<(u64, u64), Refusal> {
        let mut call = Call::new(0, 0);
        call.input(&self.memory, 0, input);
        let core = call.output(1, output).last();
        call.number(2, u64::from(id), 8);
        let uhw = call.output(UHW_OUT, driver).last();
        self.make(&call).map(|()| (core, uhw))
    }

    /// A protection domain; its handle.
    pub(crate) fn pd(&mut self) -> u32 {
        let (core, _) = self.write_command(3, &[0; 8], 4, 4).unwrap();
        self.memory.word(core)
    }

    /// A doorbell page; handle and number.
    pub(crate) fn uar(&mut self) -> (u32, u32) {
        let mut call = Call::new(0x1008, 0x1000);
        call.handle(0x1000, 0).number(0x1001, 1, 8).output(0x1002, 8).output(0x1003, 4);
        let id = call.output(0x1004, 4).last();
        self.make(&call).unwrap();
        (self.data(0) as u32, self.memory.word(id))
    }
}

impl Call {
    pub(crate) fn new(object: u16, method: u16) -> Self {
        Self { object, method, ..Self::default() }
    }

    /// A call with everything that the schema says is mandatory, inputs zero.
    pub(crate) fn minimal(memory: &Memory, object: u16, method: u16) -> Self {
        let found = OBJECTS.iter().find(|o| o.id == object).unwrap().method(method).unwrap();
        let mut call = Self::new(object, method);
        for attr in found.attrs.unwrap().iter().filter(|attr| attr.mandatory) {
            match attr.kind {
                Kind::In { min, .. } => call.input(memory, attr.id, &vec![0; min.into()]),
                Kind::Out { min, .. } => call.output(attr.id, min),
                Kind::Object(_, Access::New) => call.handle(attr.id, 0),
                Kind::Object(..) => call.handle(attr.id, u64::MAX),
                Kind::Descriptor => call.handle(attr.id, 0),
            };
        }
        call
    }

    /// Destroys an object; what was reported of it is its second attribute.
    pub(crate) fn destroy(object: u16, method: u16, handle: u32) -> Self {
        let mut call = Self::new(object, method);
        call.handle(if object < DRIVER { 0 } else { DRIVER }, handle.into());
        match object {
            3 => drop(call.output(1, 8)),
            4 | 5 => drop(call.output(1, 4)),
            _ => {}
        }
        call
    }

    pub(crate) fn attr(&mut self, id: u16, len: u16, data: u64) -> &mut Self {
        self.attrs.push(Attr { id, len, flags: MANDATORY, reserved: 0, data });
        self
    }

    /// An input: in the attribute if it is short, in memory otherwise.
    pub(crate) fn input(&mut self, memory: &Memory, id: u16, bytes: &[u8]) -> &mut Self {
        if bytes.len() <= 8 {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            return self.attr(id, bytes.len() as u16, u64::from_ne_bytes(word));
        }
        let at = self.place(bytes.len());
        memory.put(at, bytes);
        self.attr(id, bytes.len() as u16, at)
    }

    pub(crate) fn number(&mut self, id: u16, value: u64, len: u16) -> &mut Self {
        self.attr(id, len, value)
    }

    pub(crate) fn output(&mut self, id: u16, len: u16) -> &mut Self {
        let at = self.place(len.into());
        self.attr(id, len, at)
    }

    pub(crate) fn handle(&mut self, id: u16, handle: u64) -> &mut Self {
        self.attr(id, 0, handle)
    }

    /// Room in memory for this many bytes.
    fn place(&mut self, len: usize) -> u64 {
        let at = DATA + self.used;
        self.used += (len as u64).next_multiple_of(8);
        at
    }

    /// The data of the last attribute.
    pub(crate) fn last(&self) -> u64 {
        self.attrs.last().unwrap().data
    }

    pub(crate) fn put(&self, memory: &Memory, driver: u32) {
        let count = self.attrs.len() as u16;
        memory.put(CALL, &header(24 + 16 * count, self.object, self.method, count, driver));
        for (i, attr) in self.attrs.iter().enumerate() {
            memory.put(CALL + 24 + 16 * i as u64, &attr.bytes());
        }
    }
}
