//! Which fields of each mailbox are set, and why; all others are left, and why.
//!
//! Sources: "rdma-core" is `tests/mlx5_base.py` (`Mlx5DevxRcResources`), the client of this
//! interface that runs on hardware in rdma-core's own tests; "NVSHMEM" is its `ibgda.cpp`, "DOCA" is
//! GPUNetIO's `doca_verbs_qp.cpp`. Names are those of NVIDIA's headers as far as these print them.

use super::command::*;
use crate::provider::PathSpec;
use crate::{FabricAddress, Mtu, NicId};
use warpverbs_mem::Access;
use warpverbs_mlx5::prm::{
    AddressPath, Command, CqContext, Field, MAX_COMMAND, QpContext, RmpChange, RmpContext,
    UmemBuffer,
};
use warpverbs_verbs::mlx5dv::AddressVector;
use warpverbs_verbs::{Gid, Path};

/// Fields with a value, in the order of the declaration.
type Set<'a> = &'a [(&'a str, u64)];

/// Byte of a mailbox where the piece begins that these fields are of.
const CQ: usize = 0x10;
const CQ_BUFFER: usize = 0x50;
const QP: usize = 0x18;
const PATH: usize = QP + 0x18;
const QP_BUFFER: usize = 0x100;
const POOL: usize = 0x20;
const POOL_CHANGE: usize = 8;

/// The mailbox holds these values at `at`, and zero in every other field of the piece.
fn check(command: &Command, at: usize, fields: &[Field], expected: Set<'_>) {
    let mut mailbox = [0; MAX_COMMAND];
    let len = command.emit(&mut mailbox);
    // The software device's decoder refuses a bit that it does not know.
    assert_eq!(Command::parse(&mailbox[..len]).as_ref(), Ok(command));
    for (name, _) in expected {
        assert!(fields.iter().any(|field| field.name == *name), "{name} is not a field");
    }
    for field in fields {
        let wanted = expected.iter().find(|(name, _)| *name == field.name);
        let wanted = wanted.map_or(0, |(_, value)| *value);
        let found = field.get(&mailbox[at..]);
        assert_eq!(found, wanted, "{}: {}", command.name(), field.name);
    }
}

/// Every field is set in one of the mailboxes, or named here with the reason why it is not.
fn all_are_decided(fields: &[Field], set: &[Set<'_>], left: &[(&str, &str)]) {
    for field in fields {
        let is_set = set.iter().any(|set| set.iter().any(|(name, _)| *name == field.name));
        let is_left = left.iter().any(|(name, _)| *name == field.name);
        assert!(is_set != is_left, "{}: set {is_set}, left {is_left}", field.name);
    }
}

#[test]
fn a_cq_is_a_ring_in_the_posters_memory() {
    let place = CqPlace { umem: 0x31, buf: 0x4000, record: 0x80c0, uar: 5, eqn: 7, log_size: 10 };
    let context: Set<'_> = &[
        // All three sources give a umem for the record, and its offset in it.
        ("dbr_umem_valid", 1),
        ("dbr_umem_id", 0x31),
        ("log_cq_size", 10),
        // Needed, though nobody rings it (NVSHMEM says so).
        ("uar_page", 5),
        // Of `mlx5dv_devx_query_eqn`; a CQ without one is refused.
        ("c_eqn", 7),
        ("dbr_addr", 0x80c0),
    ];
    let buffer: Set<'_> = &[("offset", 0x4000), ("umem", 0x31), ("valid", 1)];
    let command = create_cq(&place);
    check(&command, CQ, CqContext::FIELDS, context);
    check(&command, CQ_BUFFER, UmemBuffer::FIELDS, buffer);
    all_are_decided(
        CqContext::FIELDS,
        &[context],
        &[
            ("status", "the device's answer"),
            ("cqe_size", "64 bytes"),
            ("collapsed", "a flush would cover the first error"),
            ("ignore_overrun", "pollers keep the record, and depths fit"),
            ("state", "not armed; the device's"),
            ("log_page_size", "reserved with a umem, whose pages the firmware knows (DOCA)"),
            ("consumer_counter", "begins at 0; the device's"),
            ("producer_counter", "begins at 0; the device's"),
        ],
    );
}

fn place() -> QpPlace {
    QpPlace {
        umem: 0x32,
        wq: (0x32, 0x1000),
        record: 0x80,
        uar: 9,
        pd: 3,
        cqs: [0x101, 0x102],
        log_sq: 8,
        receives: Receives::Own(6, 5),
    }
}

const CREATED: Set<'_> = &[
    ("path_migration", 3),
    ("pd", 3),
    ("log_rq_size", 6),
    // 32 bytes, in units of 16.
    ("log_rq_stride", 1),
    ("log_sq_size", 8),
    // Devices with real-time clocks refuse 0 (rdma-core asks for the default).
    ("ts_format", 1),
    ("uar_page", 9),
    ("cqn_send", 0x101),
    ("cqn_receive", 0x102),
    ("dbr_addr", 0x80),
    ("dbr_umem_valid", 1),
    ("dbr_umem_id", 0x32),
];

#[test]
fn a_qp_is_one_piece_of_the_posters_memory() {
    let command = create_qp(&place());
    check(&command, QP, QpContext::FIELDS, CREATED);
    check(&command, PATH, AddressPath::FIELDS, &[]);
    let buffer: Set<'_> = &[("offset", 0x1000), ("umem", 0x32), ("valid", 1)];
    check(&command, QP_BUFFER, UmemBuffer::FIELDS, buffer);
    // Without receives the queue has a kind of its own.
    let mut expected = CREATED.to_vec();
    expected.retain(|(name, _)| !name.starts_with("log_rq"));
    expected.push(("rq_type", 3));
    let none = QpPlace { receives: Receives::None, ..place() };
    check(&create_qp(&none), QP, QpContext::FIELDS, &expected);
    expected.pop();
    expected.extend(SHARED);
    let shared = QpPlace { receives: Receives::Shared(0x77), ..place() };
    check(&create_qp(&shared), QP, QpContext::FIELDS, &expected);
    // A send queue in memory of its own.
    let apart: Set<'_> = &[("offset", 0x2000), ("umem", 0x33), ("valid", 1)];
    let command = create_qp(&QpPlace { wq: (0x33, 0x2000), ..none });
    check(&command, QP_BUFFER, UmemBuffer::FIELDS, apart);
}

/// Receives of a pool (UCX).
const SHARED: &[(&str, u64)] = &[("rq_type", 1), ("srqn", 0x77)];

#[test]
fn a_pool_is_a_list_in_the_hosts_memory() {
    let place =
        PoolPlace { umem: 0x34, buf: 0x40, record: 0x8000, pd: 3, log_size: 9, log_stride: 5 };
    let context: Set<'_> = &[
        // Ready, the only state in which it is used (UCX).
        ("state", 1),
        ("pd", 3),
        ("dbr_addr", 0x8000),
        ("log_stride", 5),
        ("log_size", 9),
        ("dbr_umem_id", 0x34),
        ("wq_umem_id", 0x34),
        ("wq_umem_offset", 0x40),
    ];
    check(&create_pool(&place), POOL, RmpContext::FIELDS, context);
    let limit: Set<'_> = &[("state", 1), ("limit", 5)];
    let command = limit_pool(0x77, 5);
    check(&command, POOL, RmpContext::FIELDS, limit);
    let change: Set<'_> = &[("state", 1), ("number", 0x77), ("limit", 1)];
    check(&command, POOL_CHANGE, RmpChange::FIELDS, change);
    let left = [("wq_type", "0: a list, whose links say which receive is next")];
    all_are_decided(RmpContext::FIELDS, &[context, limit], &left);
}

const INIT: Set<'_> = &[
    ("path_migration", 3),
    // 8 bytes, and extended atomics of 4 (NVSHMEM).
    ("atomic_mode", 3),
    ("remote_read", 1),
    ("remote_write", 1),
    ("remote_atomic", 1),
];

fn spec() -> PathSpec {
    PathSpec {
        dest_qpn: 0x456,
        dest_nic: NicId([0; 16]),
        dest: FabricAddress::Local,
        mtu: Mtu::B1024,
        rq_psn: 0x77,
        sq_psn: 0x99,
        max_dest_rd_atomic: 5,
        max_rd_atomic: 5,
        ack_timeout: 14,
        retry: 7,
        rnr_retry: 6,
        min_rnr_timer: 12,
    }
}

const RTR: Set<'_> = &[
    ("mtu", 3),
    // 2^30 bytes, what all sources ask for.
    ("log_msg_max", 30),
    ("remote_qpn", 0x456),
    // 5 are served: room for 8.
    ("log_rra_max", 3),
    ("min_rnr_nak", 12),
    ("next_receive_psn", 0x77),
];

const RTS: Set<'_> = &[
    // 5 may be asked for at a time: 4 are.
    ("log_sra_max", 2),
    ("retry_count", 7),
    ("rnr_retry", 6),
    ("next_send_psn", 0x99),
];

const ROCE: Set<'_> = &[
    ("src_addr_index", 2),
    ("hop_limit", 64),
    ("tclass", 0x68),
    ("rgid_high", 0),
    ("rgid_low", 0x0000_ffff_c000_0201),
    // The upper bits of the traffic class.
    ("dscp", 0x1a),
    ("udp_sport", 0xc123),
    ("eth_prio", 3),
    ("vhca_port_num", 1),
    ("rmac_high", 0x0200),
    ("rmac_low", 0x1122_3344),
];

const INFINIBAND: Set<'_> = &[
    ("grh", 1),
    ("mlid", 1),
    ("rlid", 0x17),
    ("stat_rate", 2),
    ("src_addr_index", 2),
    ("hop_limit", 64),
    ("tclass", 0x68),
    ("flow_label", 0x5),
    ("rgid_high", 0),
    ("rgid_low", 0x0000_ffff_c000_0201),
    ("sl", 3),
    ("vhca_port_num", 1),
];

fn found(path: &Path) -> AddressVector {
    AddressVector {
        rmac: [2, 0, 0x11, 0x22, 0x33, 0x44],
        rgid: path.global.unwrap().dgid,
        rlid: 0xc123,
        tclass: 0x68,
        hop_limit: 64,
    }
}

fn path() -> Path {
    let gid = Gid(std::net::Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped().octets());
    let mut path = Path { sl: 3, ..Path::roce(1, 2, gid) };
    path.global.as_mut().unwrap().flow_label = 5;
    path
}

#[test]
fn transitions_set_what_they_need() {
    let command = to_init(0x123, 1, Access::all());
    check(&command, QP, QpContext::FIELDS, INIT);
    check(&command, PATH, AddressPath::FIELDS, &[("vhca_port_num", 1)]);
    let nothing = to_init(0x123, 1, Access::empty());
    check(&nothing, QP, QpContext::FIELDS, &INIT[..2]);

    let roce = to_rtr(0x123, &spec(), &path(), &found(&path()), true);
    check(&roce, QP, QpContext::FIELDS, RTR);
    check(&roce, PATH, AddressPath::FIELDS, ROCE);
    let path = Path { dlid: 0x17, src_path_bits: 1, static_rate: 2, ..path() };
    let infiniband = to_rtr(0x123, &spec(), &path, &found(&path), false);
    check(&infiniband, PATH, AddressPath::FIELDS, INFINIBAND);

    let command = to_rts(0x123, &spec(), 1);
    check(&command, QP, QpContext::FIELDS, RTS);
    check(&command, PATH, AddressPath::FIELDS, &[("ack_timeout", 14), ("vhca_port_num", 1)]);
    // Fields of one READ at a time are 0.
    let one = PathSpec { max_dest_rd_atomic: 1, max_rd_atomic: 0, ..spec() };
    check(&to_rts(0x123, &one, 1), QP, QpContext::FIELDS, &RTS[1..]);

    for command in [to_init(0x123, 1, Access::all()), roce, infiniband, command] {
        let Command::ModifyQp { qpn, options, .. } = command else { panic!("{command:?}") };
        assert_eq!((qpn, options), (0x123, 0), "no attribute is optional");
    }
}

#[test]
fn no_field_is_zero_by_accident() {
    all_are_decided(
        QpContext::FIELDS,
        &[CREATED, SHARED, INIT, RTR, RTS],
        &[
            ("state", "the device's answer"),
            ("service", "0: reliable connection"),
            ("no_sq", "there is always a send queue"),
            ("user_index", "CQEs carry it, and nobody looks at it there"),
            ("log_page_size", "reserved with a umem (DOCA)"),
            ("log_ack_req_freq", "0: an acknowledgement is asked for where the device sees fit"),
            ("page_offset", "reserved with a umem"),
            ("sq_wqebb_counter", "begins at 0; the device's"),
            ("cs_req", "0: no payload in CQEs, where posters do not look for it"),
            ("cs_res", "0: the same of receives"),
            ("dc_access_key", "of dynamic connections"),
        ],
    );
    all_are_decided(
        AddressPath::FIELDS,
        &[ROCE, INFINIBAND, &[("ack_timeout", 14)]],
        &[("pkey_index", "0: the default partition")],
    );
}
