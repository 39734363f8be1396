//! Each error number where the kernel gives it, and what the device is asked for.

use crate::common::call::{Attr, Call, MANDATORY, Program, header};
use crate::common::memory::BASE;
use warpverbs_uverbs::schema::{OBJECTS, UHW_IN, UHW_OUT};
use warpverbs_uverbs::{Errno, VERBS_IOCTL, WRITE_COMMANDS};

/// The first thing that libibverbs does: a wrapped command without buffers. Any answer but
/// EPROTONOSUPPORT and ENOTTY has it wrap all later ones.
#[test]
fn the_probe_of_libibverbs_finds_the_interface() {
    let mut program = Program::closed();
    let mut call = Call::new(0, 0);
    call.number(2, 1, 8);
    let refusal = program.make(&call).unwrap_err();
    assert_eq!(refusal.errno, Errno::ENOSPC);
    assert_eq!(refusal.call, "DEVICE.INVOKE_WRITE(QUERY_DEVICE)");
    let names = OBJECTS.iter().flat_map(|object| object.methods.iter().map(|m| object.call(m)));
    let names: Vec<String> = names.collect();
    for name in ["QP.CREATE", "MR.ADVISE_MR", "DEVX_OBJ.CREATE", "UAR.OBJ_ALLOC"] {
        assert!(names.iter().any(|found| found == name), "{name}");
    }
}

#[test]
fn what_is_not_modelled_says_so_with_its_name() {
    let mut program = Program::open();
    for object in OBJECTS {
        for method in object.methods.iter().filter(|method| method.attrs.is_none()) {
            let refusal = program.make(&Call::new(object.id, method.id)).unwrap_err();
            assert_eq!(refusal.errno, Errno::EPROTONOSUPPORT);
            assert_eq!(refusal.call, object.call(method));
        }
    }
    for (object, method) in [(0, 7), (7, 5), (17, 0), (0x100a, 0x1000), (2, 0)] {
        assert_eq!(program.errno(&Call::new(object, method)), Errno::EPROTONOSUPPORT);
    }
    for command in WRITE_COMMANDS.iter().filter(|command| command.sizes.is_none()) {
        let refusal = program.write_command(command.id, &[0; 64], 64, 0).unwrap_err();
        assert_eq!(refusal.errno, Errno::EOPNOTSUPP);
        assert_eq!(refusal.call, format!("DEVICE.INVOKE_WRITE({})", command.short_name()));
    }
    let unknown = [(41, Errno::EINVAL), (1 << 31 | 58, Errno::EOPNOTSUPP), (0x101, Errno::EINVAL)];
    for (id, errno) in unknown {
        assert_eq!(program.write_command(id, &[0; 8], 8, 0).unwrap_err().errno, errno);
    }
}

#[test]
fn every_mandatory_attribute_is_missed() {
    let mut program = Program::open();
    for object in OBJECTS {
        for method in object.methods.iter() {
            for attr in method.attrs.unwrap_or(&[]).iter().filter(|attr| attr.mandatory) {
                let mut call = Call::minimal(&program.memory, object.id, method.id);
                call.attrs.retain(|given| given.id != attr.id);
                let refusal = program.make(&call).unwrap_err();
                // A method that destroys or uses an object looks it up first.
                let expected = [Errno::EINVAL, Errno::ENOENT, Errno::EBADF];
                assert!(expected.contains(&refusal.errno), "{} {refusal}", attr.name);
            }
        }
    }
}

#[test]
fn headers_are_checked() {
    let mut program = Program::open();
    let mut refused = |bytes: &[u8]| {
        program.memory.put(BASE, bytes);
        program.context.ioctl(&program.memory, VERBS_IOCTL, BASE).unwrap_err().errno
    };
    assert_eq!(refused(&header(24, 99, 0, 0, 1)), Errno::EPROTONOSUPPORT);
    assert_eq!(refused(&header(25, 0, 2, 0, 1)), Errno::EINVAL);
    assert_eq!(refused(&header(24, 0, 2, 1, 1)), Errno::EINVAL);
    // 4104 bytes are longer than a page.
    assert_eq!(refused(&header(24 + 255 * 16, 0, 2, 255, 1)), Errno::EINVAL);
    assert_eq!(refused(&header(24, 0, 2, 0, 2)), Errno::EINVAL);
    for at in [8, 15, 20, 23] {
        let mut bytes = header(24, 0, 2, 0, 1);
        bytes[at] = 1;
        assert_eq!(refused(&bytes), Errno::EPROTONOSUPPORT);
    }
    let Program { memory, context, .. } = &mut program;
    let mut ioctl = |request, at| context.ioctl(memory, request, at).unwrap_err().errno;
    assert_eq!(ioctl(VERBS_IOCTL, 0), Errno::EFAULT);
    assert_eq!(ioctl(VERBS_IOCTL, u64::MAX - 10), Errno::EFAULT);
    assert_eq!(ioctl(VERBS_IOCTL + 1, BASE), Errno::ENOTTY);
    // The list itself reaches beyond the memory.
    let end = BASE + (1 << 17) - 24;
    memory.put(end, &header(40, 0, 2, 1, 1));
    assert_eq!(ioctl(VERBS_IOCTL, end), Errno::EFAULT);
}

/// Change of the attributes of a good call.
type Change<'a> = &'a dyn Fn(&mut Vec<Attr>);

#[test]
fn attributes_are_checked() {
    let mut program = Program::open();
    let mut query = Call::new(0, 2);
    query.number(0, 1, 8).output(1, 48);
    program.make(&query).unwrap();
    let with = |change: Change| {
        let mut call = Call::new(0, 2);
        call.attrs = query.attrs.clone();
        change(&mut call.attrs);
        call
    };
    let extra = Attr { id: 77, len: 8, flags: MANDATORY, reserved: 0, data: 0 };
    let rows: [(Change, Errno); 8] = [
        (&|attrs| attrs.push(attrs[0]), Errno::EINVAL),
        (&|attrs| attrs.push(extra), Errno::EPROTONOSUPPORT),
        (&|attrs| attrs[0].reserved = 1, Errno::EINVAL),
        (&|attrs| attrs[0].len = 7, Errno::EINVAL),
        (&|attrs| attrs[0].len = 0, Errno::EINVAL),
        (&|attrs| attrs[1].len = 47, Errno::EINVAL),
        (&|attrs| attrs[1].data = 8, Errno::EFAULT),
        (&|attrs| attrs[0].data = 2, Errno::EINVAL),
    ];
    for (i, (change, errno)) in rows.into_iter().enumerate() {
        assert_eq!(program.errno(&with(change)), errno, "row {i}");
    }
    // An attribute that is unknown and optional is passed over.
    program.make(&with(&|attrs| attrs.push(Attr { flags: 0, ..extra }))).unwrap();
}

#[test]
fn nothing_works_before_the_context_is_open() {
    let mut program = Program::closed();
    let mut query = Call::new(0, 2);
    query.number(0, 1, 8).output(1, 48);
    assert_eq!(program.errno(&query), Errno::EINVAL);
    assert_eq!(program.write_command(3, &[0; 8], 4, 4).unwrap_err().errno, Errno::EINVAL);
    program.get_context().unwrap();
    program.make(&query).unwrap();
    assert_eq!(program.get_context().unwrap_err().errno, Errno::EINVAL);
}

#[test]
fn a_context_is_opened_with_possible_wishes_only() {
    let good = |at: usize, byte: u8| {
        let mut request = [0; 40];
        (request[0], request[4], request[8], request[24]) = (16, 4, 1, 3);
        request[at] = byte;
        request
    };
    let rows = [
        (good(0, 0), 32, Errno::EINVAL),  // no register at all
        (good(4, 16), 32, Errno::EINVAL), // all of them for low latency
        (good(1, 8), 32, Errno::ENOMEM),  // 2064 registers
        (good(8, 2), 32, Errno::EINVAL),  // an unknown flag
        (good(12, 1), 32, Errno::EOPNOTSUPP),
        (good(24, 1), 32, Errno::EOPNOTSUPP), // pages are not taken one by one
        (good(0, 16), 31, Errno::EINVAL),
    ];
    for (i, (request, len, errno)) in rows.into_iter().enumerate() {
        let mut program = Program::closed();
        let mut call = Call::new(0, 3);
        call.input(&program.memory, UHW_IN, &request[..len]).output(UHW_OUT, 72);
        assert_eq!(program.errno(&call), errno, "row {i}");
    }
    // A CQE's version is the device's, not more than the library's.
    for (library, agreed) in [(0, 0), (1, 1), (2, 1)] {
        let mut program = Program::closed();
        let mut call = Call::new(0, 3);
        call.input(&program.memory, UHW_IN, &good(16, library)[..32]);
        let answer = call.output(UHW_OUT, 72).last();
        program.make(&call).unwrap();
        let word = |at: u64| program.memory.word(answer + at);
        assert_eq!((word(4), word(8), word(40)), (512, 0, 72));
        // QUERY_DEVICE and CREATE_AH answer the driver as well.
        assert_eq!(word(44), 0x0001_0300 + agreed);
    }
}

#[test]
fn the_device_describes_itself() {
    let mut program = Program::open();
    let (core, uhw) = program.write_command(1 << 31 | 1, &[0; 8], 304, 104).unwrap();
    let word = |at: u64| program.memory.word(at);
    // max_qp, max_qp_wr, max_sge, max_cqe; response_length, that of the driver.
    assert_eq!((word(core + 52), word(core + 56)), (1024, 32768));
    assert_eq!((word(core + 64), word(core + 76)), (30, (1 << 22) - 1));
    assert_eq!((word(core + 180), word(uhw + 4)), (304, 104));
    let refusal = program.write_command(1 << 31 | 1, &[1, 0, 0, 0, 0, 0, 0, 0], 304, 0);
    assert_eq!(refusal.unwrap_err().errno, Errno::EINVAL);
    // The classic form.
    let (core, _) = program.write_command(1, &[0; 8], 176, 0).unwrap();
    assert_eq!(program.memory.word(core + 52), 1024);
    assert_eq!(program.write_command(1, &[0; 8], 175, 0).unwrap_err().errno, Errno::ENOSPC);
}

#[test]
fn gids_are_found_by_number_and_in_a_table() {
    let mut program = Program::open();
    let mut entry = Call::new(0, 6);
    entry.number(0, 1, 8).number(1, 0, 8).number(2, 0, 4);
    let at = entry.output(3, 32).last();
    program.make(&entry).unwrap();
    let expected = program.model.profile.gids[0].gid;
    assert_eq!(program.memory.get::<16>(at), expected);
    assert_eq!(program.memory.word(at + 24), 2);
    entry.attrs[1].data = 1;
    assert_eq!(program.errno(&entry), Errno::EINVAL);
    (entry.attrs[1].data, entry.attrs[2].data) = (0, 1);
    assert_eq!(program.errno(&entry), Errno::EINVAL);

    let mut table = Call::new(0, 5);
    let at = table.number(0, 40, 8).output(2, 100).last();
    let count = table.output(3, 8).last();
    program.make(&table).unwrap();
    assert_eq!((program.memory.get::<16>(at), program.memory.word(count)), (expected, 1));
    for (size, room) in [(31, 100), (40, 39), (u64::MAX, 100)] {
        (table.attrs[0].data, table.attrs[1].len) = (size, room);
        assert_eq!(program.errno(&table), Errno::EINVAL, "{size} {room}");
    }
}

#[test]
fn a_firmware_command_that_fails_still_answers() {
    let mut program = Program::open();
    let mut call = Call::new(0x1000, 0x1000);
    call.input(&program.memory, 0x1000, &[7; 20]);
    let answer = call.output(0x1001, 16).last();
    program.make(&call).unwrap();
    assert_eq!(program.model.seen.borrow().mailbox, [7; 20]);
    program.memory.put(answer, &[0xff; 16]);
    program.model.fails.set(Some(Errno::EREMOTEIO));
    assert_eq!(program.errno(&call), Errno::EREMOTEIO);
    assert_eq!(program.memory.get::<2>(answer), [2, 0]);
    // Any other failure writes nothing.
    program.memory.put(answer, &[0xff; 16]);
    program.model.fails.set(Some(Errno::EIO));
    assert_eq!(program.errno(&call), Errno::EIO);
    assert_eq!(program.memory.get::<2>(answer), [0xff, 0xff]);
    call.attrs[0].len = 15;
    assert_eq!(program.errno(&call), Errno::EINVAL);
}
