//! Mailboxes of firmware commands.

use proptest::prelude::*;
use warpverbs_mlx5::prm::*;

/// A mailbox, its words written down by hand.
fn mailbox(len: usize, words: &[(usize, u32)]) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for (at, word) in words {
        bytes[*at..at + 4].copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

/// CREATE_CQ as NVSHMEM sends it: collapsed, overrun ignored, 1024 entries.
#[test]
fn a_collapsed_cq_is_understood() {
    let words = [
        (0x00, 0x0400_0007),
        (0x10, 0x0212_0000),
        (0x14, 0x31),
        (0x1c, 0x0a00_0005),
        (0x24, 0x0000_0007),
        (0x28, 0x0400_0000),
        (0x4c, 0x0000_0040),
        (0x54, 0x0000_1000),
        (0x58, 0x0000_0030),
        (0x5c, 0x8000_0000),
    ];
    let context = CqContext {
        dbr_umem_valid: 1,
        collapsed: 1,
        ignore_overrun: 1,
        dbr_umem_id: 0x31,
        log_cq_size: 10,
        uar_page: 5,
        c_eqn: 7,
        log_page_size: 4,
        dbr_addr: 0x40,
        ..CqContext::default()
    };
    let buffer = UmemBuffer { offset: 0x1000, umem: 0x30, valid: 1 };
    let expected = Command::CreateCq { context, buffer };
    assert_eq!(Command::parse(&mailbox(0x110, &words)), Ok(expected));
}

/// CREATE_QP of a reliable connection.
#[test]
fn a_qp_is_understood() {
    let words = [
        (0x00, 0x0500_0000),
        (0x18, 0x0000_1800),
        (0x1c, 0x0000_0003),
        (0x20, 0x0022_3800),
        (0x24, 0x0000_0009),
        (0x28, 0x0000_0011),
        (0x94, 0x0000_0101),
        (0xb4, 0x0000_0102),
        (0xbc, 0x0000_0080),
        (0xc4, 0x0100_0055),
        (0xe8, 0x1000_0000),
        (0xfc, 0x0000_0033),
        (0x104, 0x0000_2000),
        (0x108, 0x0000_0032),
        (0x10c, 0x8000_0000),
    ];
    let context = QpContext {
        path_migration: 3,
        pd: 3,
        log_rq_size: 4,
        log_rq_stride: 2,
        log_sq_size: 7,
        uar_page: 9,
        user_index: 0x11,
        cqn_send: 0x101,
        cqn_receive: 0x102,
        dbr_addr: 0x80,
        rq_type: 1,
        srqn: 0x55,
        dbr_umem_valid: 1,
        dbr_umem_id: 0x33,
        ..QpContext::default()
    };
    let buffer = UmemBuffer { offset: 0x2000, umem: 0x32, valid: 1 };
    let expected = Command::CreateQp { context, path: AddressPath::default(), buffer };
    assert_eq!(Command::parse(&mailbox(0x110, &words)), Ok(expected));
}

/// INIT2RTR over RoCE.
#[test]
fn a_transition_is_understood() {
    let words = [
        (0x00, 0x0503_0000),
        (0x08, 0x0000_0123),
        (0x20, 0x7e00_0000),
        (0x2c, 0x0000_0456),
        (0x38, 0x0000_00ff),
        (0x48, 0x0000_ffff),
        (0x4c, 0x7f00_0009),
        (0x50, 0x0000_c001),
        (0x54, 0x0001_0200),
        (0x58, 0x7f00_0009),
        (0xa8, 0x0080_0000),
        (0xac, 0x0c00_0007),
    ];
    let path = AddressPath {
        hop_limit: 255,
        rgid_low: 0x0000_ffff_7f00_0009,
        udp_sport: 0xc001,
        vhca_port_num: 1,
        rmac_high: 0x200,
        rmac_low: 0x7f00_0009,
        ..AddressPath::default()
    };
    let context = QpContext {
        mtu: 3,
        log_msg_max: 30,
        remote_qpn: 0x456,
        log_rra_max: 4,
        min_rnr_nak: 12,
        next_receive_psn: 7,
        ..QpContext::default()
    };
    let transition = Transition::InitToRtr;
    let expected = Command::ModifyQp { transition, qpn: 0x123, options: 0, context, path };
    assert_eq!(Command::parse(&mailbox(0x110, &words)), Ok(expected));
}

#[test]
fn a_key_and_a_pool_are_understood() {
    let words = [
        (0x00, 0x0200_0000),
        (0x10, 0x0000_7f00),
        (0x14, 0xffff_ff42),
        (0x1c, 0x0000_0003),
        (0x24, 0x0001_0000),
        (0x2c, 0x0000_4000),
        (0x44, 0x0000_0004),
        (0x48, 0x0000_000c),
        (0x64, 0x0000_0002),
    ];
    let Ok(Command::CreateMkey { context, translations }) = Command::parse(&mailbox(0x110, &words))
    else {
        panic!("no key");
    };
    assert_eq!((context.access_mode_low, context.atomic, context.local_read), (3, 1, 1));
    assert_eq!((context.qpn, context.variant, context.pd), (0xff_ffff, 0x42, 3));
    assert_eq!((context.start, context.len, context.log_entity_size), (0x1_0000, 0x4000, 12));
    assert_eq!((context.translations_octword_size, translations), (4, 2));

    let words = [
        (0x00, 0x090c_0000),
        (0x20, 0x0010_0000),
        (0x58, 0x0000_0003),
        (0x64, 0x0000_0040),
        (0x70, 0x0005_0008),
        (0x78, 0x0000_0031),
        (0x7c, 0x0000_0032),
        (0x84, 0x0000_0100),
    ];
    let context = RmpContext {
        state: 1,
        pd: 3,
        dbr_addr: 0x40,
        log_stride: 5,
        log_size: 8,
        dbr_umem_id: 0x31,
        wq_umem_id: 0x32,
        wq_umem_offset: 0x100,
        ..RmpContext::default()
    };
    let expected = Command::CreateRmp { context };
    assert_eq!(Command::parse(&mailbox(MAX_COMMAND, &words)), Ok(expected));
}

/// `arm_rmp_cmd` of the kernel's driver: the state beside the number, the bit of the limit in the mask,
/// and the limit in the queue's context.
#[test]
fn the_limit_of_a_pool_is_changed() {
    let words = [
        (0x00, 0x090d_0000),
        (0x08, 0x1000_0077),
        (0x14, 0x0000_0001),
        (0x20, 0x0010_0000),
        (0x54, 0x0000_0005),
    ];
    let change = RmpChange { state: 1, number: 0x77, limit: 1 };
    let context = RmpContext { state: 1, limit: 5, ..RmpContext::default() };
    let expected = Command::ModifyRmp { change, context };
    assert_eq!(Command::parse(&mailbox(MAX_COMMAND, &words)), Ok(expected));
}

#[test]
fn what_is_no_command_is_refused_with_its_place() {
    let parse = |len, words: &[(usize, u32)]| Command::parse(&mailbox(len, words)).unwrap_err();
    let error = parse(16, &[(0, 0x0777_0000)]);
    assert_eq!(
        (error, error.status()),
        (CommandError::Opcode { opcode: 0x777 }, Status::BadOpcode)
    );
    let error = parse(0x10f, &[(0, 0x0400_0000)]);
    assert_eq!(error.to_string(), "command 0x400 has 271 bytes, expected at least 272");
    assert_eq!(error.status(), Status::BadInputLength);
    assert_eq!(Command::parse(&[4]).unwrap_err().status(), Status::BadInputLength);
    let error = parse(0x110, &[(0, 0x0400_0000), (0x10, 0x0000_4000)]);
    let place =
        "CqContext: bits 0x00004000 of the word at byte 0x0 belong to no known field, expected 0";
    assert_eq!((error.to_string().as_str(), error.status()), (place, Status::BadParameter));
    let error = parse(0x110, &[(0, 0x0500_0000), (0x18 + 0x10, 0x4000_0000)]);
    assert!(error.to_string().starts_with("QpContext: bits 0x40000000"), "{error}");
    let error = parse(0x10, &[(0, 0x0100_0000), (0xc, 1)]);
    assert_eq!(
        error.to_string(),
        "rest of the command: bits 0x00000001 of the word at byte 0xc belong to no known field, expected 0"
    );
}

/// No two fields of a mailbox share a bit, and all lie inside.
#[test]
fn fields_are_disjoint() {
    let all: [(&str, usize, &[Field]); 9] = [
        ("CQ", CqContext::SIZE, CqContext::FIELDS),
        ("QP", QpContext::SIZE, QpContext::FIELDS),
        ("path", AddressPath::SIZE, AddressPath::FIELDS),
        ("RMP", RmpContext::SIZE, RmpContext::FIELDS),
        ("key", MkeyContext::SIZE, MkeyContext::FIELDS),
        ("address", RoceAddress::SIZE, RoceAddress::FIELDS),
        ("general", GeneralCaps::SIZE, GeneralCaps::FIELDS),
        ("atomic", AtomicCaps::SIZE, AtomicCaps::FIELDS),
        ("RoCE", RoceCaps::SIZE, RoceCaps::FIELDS),
    ];
    for (name, size, fields) in all {
        let mut bytes = vec![0; size];
        for field in fields {
            assert_eq!(field.get(&bytes), 0, "{name}.{} overlaps", field.name);
            field.set(&mut bytes, u64::MAX);
            let bits = u32::from(field.high - field.low) + 1;
            assert_eq!(field.get(&bytes).count_ones(), bits, "{name}.{}", field.name);
        }
        assert_eq!(bytes.len(), size);
    }
    // The path has its place in the context of a QP.
    let holes = 0x18..0x18 + AddressPath::SIZE;
    assert!(QpContext::FIELDS.iter().all(|field| !holes.contains(&usize::from(field.at))));
}

/// The capabilities that libmlx5 and DevX users read, at the places of their own headers.
#[test]
fn capabilities_are_where_their_readers_look() {
    let word = |bytes: &[u8], at: usize| {
        u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    };
    let mut general = vec![0; 0x1000];
    capabilities(CapabilityKind::General, &mut general);
    let expected = [
        (0x04, 0x8000_0000),
        (0x10, 0x0f0f_000d),
        (0x18, 0x0016_0014),
        (0x1c, 0x0014_0000),
        (0x34, 0x0000_0101),
        (0x38, 0x1e00_0000),
        (0x3c, 0x0000_0001),
        (0x40, 0x0000_0006),
        (0x44, 0x0000_0001),
        (0x48, 0x8000_0000),
        (0x4c, 0x8009_0001),
        (0x50, 0x0000_0400),
        (0x54, 0x0000_0200),
        (0x70, 0x1000_0000),
    ];
    for at in (0..0x1000).step_by(4) {
        let value = expected.iter().find(|(place, _)| *place == at).map_or(0, |(_, value)| *value);
        assert_eq!(word(&general, at), value, "general, byte {at:#x}");
    }
    let mut atomic = vec![0; 0x1000];
    capabilities(CapabilityKind::Atomic, &mut atomic);
    assert_eq!((word(&atomic, 8), word(&atomic, 0x10)), (0x4200_0000, 0xf));
    assert_eq!((word(&atomic, 0x14), word(&atomic, 0x18)), (0xc, 0xc));
    let mut roce = vec![0; 0x1000];
    capabilities(CapabilityKind::Roce, &mut roce);
    assert_eq!((word(&roce, 0x18), word(&roce, 0x1c)), (0xffff_c000, 8));
    let mut none = vec![0; 0x1000];
    capabilities(CapabilityKind::Odp, &mut none);
    assert_eq!(none, [0; 0x1000]);
    assert_eq!(CapabilityKind::from_number(0x20), Some(CapabilityKind::General2));
    assert_eq!(CapabilityKind::from_number(5), None);
}

#[test]
fn a_status_is_the_first_byte_of_an_answer() {
    let mut answer = [0xff; 16];
    Status::BadResource.emit(0x1234, &mut answer);
    assert_eq!(answer[..8], [5, 0, 0, 0, 0, 0, 0x12, 0x34]);
    Status::Ok.emit(0, &mut answer[..4]);
    assert_eq!(answer[0], 5, "no room");
    assert_eq!(Status::parse(&answer), (Some(Status::BadResource), 0x1234));
    assert_eq!(
        Status::parse(&[0x10, 0, 0, 0, 1, 0, 0, 2]),
        (Some(Status::BadQpState), 0x0100_0002)
    );
    assert_eq!(Status::parse(&[0xee; 8]), (None, 0xeeee_eeee));
    assert_eq!(Status::parse(&[5; 7]), (None, 0));
}

/// A device's answer has bits that are not known here.
#[test]
fn answers_are_read_whatever_else_is_in_them() {
    let caps = GeneralCaps::read(&[0xff; 0x1000]);
    assert_eq!((caps.log_max_qp_sz, caps.rc, caps.port_type), (0xff, 1, 3));
    assert!(GeneralCaps::parse(&[0xff; 0x1000]).is_err());
    assert_eq!(AtomicCaps::read(&[0xff; 9]).req_8b_endianness_mode, 3);
    assert_eq!(AtomicCaps::read(&[0xff; 9]).operations, 0, "beyond the answer");
}

proptest! {
    /// A command that is understood is written back bit by bit, but for the user's number.
    #[test]
    fn commands_survive(
        opcode in prop::sample::select(vec![
            0x100u16, 0x200, 0x202, 0x400, 0x401, 0x500, 0x501, 0x502, 0x503, 0x504, 0x505,
            0x507, 0x50a, 0x50b, 0x50e, 0x760, 0x90c, 0x90e,
        ]),
        noise in prop::collection::vec((4usize..MAX_COMMAND * 8, any::<bool>()), 0..40),
    ) {
        let mut bytes = [0; MAX_COMMAND];
        bytes[..2].copy_from_slice(&opcode.to_be_bytes());
        // Bits are set one by one, those that are not understood taken back.
        let mut understood = Command::parse(&bytes).unwrap();
        for (bit, _) in noise.iter().filter(|(bit, set)| *set && *bit >= 32) {
            bytes[bit / 8] ^= 0x80 >> (bit % 8);
            match Command::parse(&bytes) {
                Ok(command) => understood = command,
                Err(CommandError::Reserved(_)) => bytes[bit / 8] ^= 0x80 >> (bit % 8),
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
        let mut out = [0xaa; MAX_COMMAND];
        let len = understood.emit(&mut out);
        prop_assert_eq!(&out[..len], &bytes[..len]);
        prop_assert_eq!(Command::parse(&out[..len]), Ok(understood));
    }

    #[test]
    fn any_bytes_are_a_command_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Command::parse(&bytes);
    }
}
