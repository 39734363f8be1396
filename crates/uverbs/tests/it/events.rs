//! Where events go, and what is told of them when objects are destroyed.

use crate::common::call::{Call, Program};
use crate::queues::cq_call;
use warpverbs_uverbs::{Errno, EventForm, EventSource};

const DRIVER: u16 = 0x1000;

fn async_channel(program: &mut Program) -> u32 {
    let mut call = Call::new(16, 0);
    call.handle(0, 0);
    program.make(&call).unwrap();
    program.data(0) as u32
}

/// A CQ whose events go to `channel`, or to the first; its handle.
fn cq(program: &mut Program, channel: Option<u32>) -> u32 {
    let mut call = cq_call(program, 15, 64);
    if let Some(channel) = channel {
        call.handle(7, channel.into());
    }
    program.make(&call).unwrap();
    program.data(0) as u32
}

#[test]
fn events_go_to_the_first_channel_or_the_one_named() {
    let mut program = Program::open();
    let report = |program: &Program| program.model.seen.borrow_mut().report.take();
    let quiet = cq(&mut program, None);
    assert_eq!(report(&program), None, "there is no channel");
    let first = async_channel(&mut program);
    let device = (EventSource::Device, EventForm::Verbs { element: 0 });
    assert_eq!(report(&program), Some(device));
    let second = async_channel(&mut program);
    assert_eq!(report(&program), None, "events of the device go to the first");
    for channel in [None, Some(second)] {
        let cq = cq(&mut program, channel);
        let Some((EventSource::Cq(_), form)) = report(&program) else { panic!("no CQ") };
        assert_eq!(form, EventForm::Verbs { element: 77 });
        // Completions that were read, and other events.
        let destroy = Call::destroy(3, 1, cq);
        let at = destroy.last();
        program.make(&destroy).unwrap();
        assert_eq!((program.memory.word(at), program.memory.word(at + 4)), (3, 5));
    }
    // The first is closed.
    program.model.close(first);
    cq(&mut program, None);
    assert_eq!(report(&program), None);
    let destroy = Call::destroy(3, 1, quiet);
    let at = destroy.last();
    program.make(&destroy).unwrap();
    assert_eq!(program.memory.word(at + 4), 0);
}

#[test]
fn events_of_firmware_are_subscribed_to() {
    let mut program = Program::open();
    let mut open = Call::new(0x1005, DRIVER);
    open.handle(DRIVER, 0).number(DRIVER + 1, 1, 4);
    program.make(&open).unwrap();
    let channel = program.data(0) as u32;
    let other = async_channel(&mut program);
    let cq = cq(&mut program, None);
    let subscribe = |program: &mut Program, channel: u32, object: Option<u32>, kinds: &[u8]| {
        let mut call = Call::new(0x1000, DRIVER + 3);
        call.handle(DRIVER, channel.into());
        if let Some(object) = object {
            call.handle(DRIVER + 1, object.into());
        }
        call.input(&program.memory, DRIVER + 2, kinds).number(DRIVER + 4, 99, 8);
        program.make(&call).map_err(|refusal| refusal.errno)?;
        Ok(program.model.seen.borrow_mut().report.take())
    };
    let form = |kinds: &[u16]| EventForm::Mlx5 { cookie: 99, kinds: kinds.into(), omit_data: true };
    let done = subscribe(&mut program, channel, None, &[8, 0, 9, 0]);
    assert_eq!(done, Ok(Some((EventSource::Device, form(&[8, 9])))));
    let Ok(Some((EventSource::Cq(_), found))) = subscribe(&mut program, channel, Some(cq), &[0, 0])
    else {
        panic!("no CQ")
    };
    assert_eq!(found, form(&[0]));
    let pd = program.pd();
    for (channel, object, kinds, errno) in [
        (other, Some(cq), vec![0, 0], Errno::EBADF),
        (channel, Some(cq), vec![0, 0, 1], Errno::EINVAL),
        (channel, Some(pd), vec![0, 0], Errno::EINVAL),
        (channel, Some(999), vec![0, 0], Errno::ENOENT),
    ] {
        assert_eq!(subscribe(&mut program, channel, object, &kinds), Err(errno));
    }
    // The device may have no such events of an object.
    program.model.fails.set(Some(Errno::EOPNOTSUPP));
    let refused = subscribe(&mut program, channel, Some(cq), &[0, 0]);
    assert_eq!(refused, Err(Errno::EOPNOTSUPP));
    program.model.fails.set(None);
    // An eventfd, and a flag that nobody knows.
    let mut eventfd = |fd: u64| {
        let mut call = Call::new(0x1000, DRIVER + 3);
        call.handle(DRIVER, channel.into()).input(&program.memory, DRIVER + 2, &[9, 0]);
        call.number(DRIVER + 3, fd, 4);
        program.make(&call).map_err(|refusal| refusal.errno)?;
        Ok(program.model.seen.borrow_mut().report.take())
    };
    let counted = EventForm::Counted { kinds: vec![9] };
    assert_eq!(eventfd(4), Ok(Some((EventSource::Device, counted))));
    assert_eq!(eventfd(0xffff_ffff), Err(Errno::EBADF));
    open.attrs[1].data = 2;
    assert_eq!(program.errno(&open), Errno::EINVAL);
}
