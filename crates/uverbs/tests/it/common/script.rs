//! Random calls, made from the schema and then spoilt: the body of the fuzz target `uverbs_calls`,
//! also run by the ordinary tests.

use super::call::{Attr, Call, MANDATORY, Program};
use super::device::Model;
use super::memory::{BASE, Memory};
use arbitrary::{Arbitrary, Unstructured};
use std::rc::Rc;
use warpverbs_uverbs::schema::{Access, Class, Kind, Method, OBJECTS};
use warpverbs_uverbs::{Context, Errno, VERBS_IOCTL, WRITE_COMMANDS};

const CALLS: usize = 64;

/// How an attribute departs from what the schema says.
#[derive(Arbitrary, Debug)]
enum Spoil {
    LeftOut,
    Twice,
    Length(u16),
    Id(u16),
    Reserved(u16),
    Address(u64),
    Optional,
}

/// Something that happens in a tenth of all cases.
#[derive(Arbitrary, Debug)]
struct Rare<T>(u8, T);

impl<T> Rare<T> {
    fn get(&self) -> Option<&T> {
        (self.0 >= 230).then_some(&self.1)
    }
}

#[derive(Arbitrary, Debug)]
struct AttrScript {
    /// The data of short inputs, or a handle, in small numbers that objects have.
    small: u8,
    wide: Rare<u64>,
    /// Bytes of long inputs, repeated.
    bytes: [u8; 8],
    spoil: Rare<Spoil>,
}

#[derive(Arbitrary, Debug)]
struct CallScript {
    object: u8,
    method: u8,
    command: u8,
    attrs: [AttrScript; 6],
    spoilt_header: Rare<(u8, u8)>,
    /// The device refuses.
    fails: Rare<()>,
    close: Rare<u8>,
}

/// Outcome of a script.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) calls: usize,
    pub(crate) done: usize,
    pub(crate) most_objects: usize,
}

/// With each driver. Panics if a call does, if a refused call writes, if a call writes elsewhere than into its
/// attributes and outputs, or if an object is lost or left behind.
pub(crate) fn exercise(input: &[u8]) -> Outcome {
    exercise_as(input, Program::bnxt());
    exercise_as(input, Program::ionic());
    exercise_as(input, Program::open())
}

/// By a program that has opened its device.
fn exercise_as(input: &[u8], program: Program) -> Outcome {
    let mut bytes = Unstructured::new(input);
    let mut outcome = Outcome::default();
    let Program { memory, model, mut context } = program;
    memory.take_writes();
    while outcome.calls < CALLS && !bytes.is_empty() {
        let Ok(script) = CallScript::arbitrary(&mut bytes) else { break };
        outcome.calls += 1;
        outcome.done += usize::from(carry_out(&script, &memory, &model, &mut context));
        outcome.most_objects = outcome.most_objects.max(model.live.get());
    }
    drop(context);
    assert_eq!(model.live.get(), 0, "objects left behind");
    assert_eq!(Rc::strong_count(&model.reports), 1, "reports left behind");
    outcome
}

fn carry_out(
    script: &CallScript,
    memory: &Memory,
    model: &Model,
    context: &mut Context<Model>,
) -> bool {
    let object = &OBJECTS[usize::from(script.object) % OBJECTS.len()];
    let Some(count) = object.methods.len().checked_sub(1) else { return false };
    let method = &object.methods[usize::from(script.method) % (count + 1)];
    let attrs = attributes(script, method, memory);
    let mut call = Call::new(object.id, method.id);
    call.attrs.clone_from(&attrs);
    call.put(memory, model.profile.driver.number());
    if let Some((at, byte)) = script.spoilt_header.get() {
        memory.put(BASE + u64::from(*at % 24), &[*byte]);
    }
    model.fails.set(script.fails.get().map(|()| Errno::ENOMEM));
    let (before, descriptors) = (model.live.get(), model.descriptors());
    let result = context.ioctl(memory, VERBS_IOCTL, BASE);
    model.fails.set(None);
    check_writes(memory, &attrs, result.as_ref().err().map(|refusal| refusal.errno));
    check_objects(method, &attrs, before, model.live.get(), result.is_ok());
    // A descriptor that the program does not get to know would never be closed.
    let made = model.descriptors() - descriptors;
    assert!(made <= usize::from(result.is_ok()), "{}: {made} descriptors", method.name);
    if let Some(fd) = script.close.get() {
        model.close(u32::from(*fd));
    }
    result.is_ok()
}

/// The attributes of a call: as the schema says, then spoilt.
fn attributes(script: &CallScript, method: &Method, memory: &Memory) -> Vec<Attr> {
    let mut out = Vec::new();
    for (i, attr) in method.attrs.unwrap_or(&[]).iter().enumerate() {
        let with = &script.attrs[i % script.attrs.len()];
        let place = BASE + 0x2000 + 0x400 * i as u64;
        let value = with.wide.get().copied().unwrap_or(u64::from(with.small % 4));
        let (len, data) = match attr.kind {
            Kind::In { min, max, .. } if max <= 8 => (min, value),
            Kind::In { max, .. } => {
                let long: Vec<u8> = with.bytes.iter().copied().cycle().take(0x400).collect();
                memory.put(place, &long);
                (max.min(if attr.id == 0 { 120 } else { 32 }), place)
            }
            Kind::Out { min, max, .. } => (min.max(max.min(304)), place),
            Kind::Object(..) | Kind::Descriptor => (0, value),
        };
        let is_command = attr.name == "UVERBS_ATTR_WRITE_CMD" && with.wide.get().is_none();
        let command = &WRITE_COMMANDS[usize::from(script.command) % WRITE_COMMANDS.len()];
        let data = if is_command { command.id.into() } else { data };
        let mut made = Attr { id: attr.id, len, flags: MANDATORY, reserved: 0, data };
        match with.spoil.get() {
            Some(Spoil::LeftOut) => continue,
            Some(Spoil::Twice) => out.push(made),
            Some(Spoil::Length(len)) => made.len = *len,
            Some(Spoil::Id(id)) => made.id = *id,
            Some(Spoil::Reserved(word)) => made.reserved = *word,
            Some(Spoil::Address(address)) => made.data = *address,
            Some(Spoil::Optional) => made.flags = 0,
            None => {}
        }
        out.push(made);
    }
    out
}

/// Everything written lies in an attribute's own 16 bytes, or in the buffer that it names.
fn check_writes(memory: &Memory, attrs: &[Attr], errno: Option<Errno>) {
    let list = 24 + 16 * attrs.len() as u64;
    for (address, len) in memory.take_writes() {
        assert!(
            matches!(errno, None | Some(Errno::EFAULT | Errno::EREMOTEIO)),
            "refused with {errno:?}, and {len} bytes at {address:#x} written"
        );
        let end = address + len as u64;
        let in_list = address >= BASE + 24 && end <= BASE + list;
        let in_buffer =
            |attr: &Attr| address >= attr.data && end - attr.data <= u64::from(attr.len);
        assert!(in_list || attrs.iter().any(in_buffer), "{len} bytes at {address:#x}: {attrs:x?}");
    }
}

/// A call makes at most one object, and only if it succeeds; a destruction ends exactly one.
fn check_objects(method: &Method, attrs: &[Attr], before: usize, after: usize, done: bool) {
    let destroys = method
        .attrs
        .unwrap_or(&[])
        .iter()
        // The device does not know of umems and address handles.
        .any(|attr| match attr.kind {
            Kind::Object(class, Access::Destroy) => !matches!(class, Class::Umem | Class::Ah),
            _ => false,
        });
    match (destroys, done) {
        (true, true) => assert_eq!(after + 1, before, "{} {attrs:x?}", method.name),
        // A descriptor of the same number replaces one that was closed unseen.
        (false, true) => assert!(after <= before + 1, "{} {attrs:x?}", method.name),
        // The answer of a destruction may meet a fault when the object is gone.
        (true, false) => assert!(after <= before && after + 1 >= before, "{}", method.name),
        (false, false) => assert_eq!(after, before, "{} {attrs:x?}", method.name),
    }
}
