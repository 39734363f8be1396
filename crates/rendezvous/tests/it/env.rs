//! Settings of launchers.

use std::ffi::OsString;

use proptest::prelude::*;
use warpverbs_rendezvous::env::{Conflict, Launcher, NodeListError, Setting, first_host};
use warpverbs_rendezvous::{EnvError, Flags, RankInfo};

fn launch(flags: &Flags, vars: &[(&str, &str)]) -> Result<RankInfo, EnvError> {
    RankInfo::from_vars(flags, &|name| {
        vars.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
    })
}

fn environment(vars: &[(&str, &str)]) -> Result<RankInfo, EnvError> {
    launch(&Flags::default(), vars)
}

const TORCHRUN: [(&str, &str); 8] = [
    ("RANK", "3"),
    ("WORLD_SIZE", "4"),
    ("LOCAL_RANK", "1"),
    ("MASTER_ADDR", "node0"),
    ("MASTER_PORT", "12345"),
    ("TORCHELASTIC_RUN_ID", "run/7"),
    ("TORCHELASTIC_RESTART_COUNT", "2"),
    ("TORCHELASTIC_USE_AGENT_STORE", "True"),
];

const SLURM: [(&str, &str); 5] = [
    ("SLURM_PROCID", "5"),
    ("SLURM_NTASKS", "8"),
    ("SLURM_LOCALID", "1"),
    ("SLURM_NODELIST", "gpu[07-09,12],login"),
    ("SLURM_JOB_ID", "4242"),
];

#[test]
fn torchrun_is_understood() {
    let launch = environment(&TORCHRUN).unwrap();
    let expected = RankInfo {
        launcher: Launcher::Torchrun,
        rank: 3,
        world_size: 4,
        local_rank: Some(1),
        master_addr: "node0".into(),
        master_port: 12345,
        job: "run_7".into(),
        generation: 2,
        store_is_launchers: true,
        conflicts: vec![],
    };
    assert_eq!(launch, expected);
}

#[test]
fn open_mpi_is_understood() {
    let vars = [
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ("PMIX_NAMESPACE", "prterun-1@1"),
    ];
    let launch = environment(&vars).unwrap();
    assert_eq!((launch.launcher, launch.rank, launch.world_size), (Launcher::OpenMpi, 1, 2));
    assert_eq!((launch.master_addr.as_str(), launch.master_port), ("127.0.0.1", 29500));
    assert_eq!((launch.job.as_str(), launch.local_rank), ("prterun-1@1", Some(1)));
    assert_eq!(
        environment(&vars[..3]).unwrap_err(),
        EnvError::NoMaster { launcher: Launcher::OpenMpi, world_size: 2 },
        "the ranks may be on two machines"
    );
}

/// As `mpiexec.hydra -n 2` of MPICH 4.0.2 sets them.
const HYDRA: [(&str, &str); 5] = [
    ("MPI_LOCALNRANKS", "2"),
    ("MPI_LOCALRANKID", "1"),
    ("PMI_FD", "8"),
    ("PMI_RANK", "1"),
    ("PMI_SIZE", "2"),
];

#[test]
fn pmi_starters_are_understood() {
    let one = environment(&HYDRA).unwrap();
    assert_eq!((one.launcher, one.rank, one.world_size), (Launcher::Pmi, 1, 2));
    assert_eq!((one.local_rank, one.job.as_str()), (Some(1), "default"));
    assert_eq!((one.master_addr.as_str(), one.master_port), ("127.0.0.1", 29500));
    // Two machines of two ranks.
    let with = |changes: &[(&'static str, &'static str)]| {
        let kept = HYDRA.iter().filter(|(name, _)| changes.iter().all(|(other, _)| other != name));
        let vars: Vec<_> = kept.chain(changes).copied().collect();
        environment(&vars)
    };
    let error = with(&[("PMI_SIZE", "4")]).unwrap_err();
    assert_eq!(error, EnvError::NoMaster { launcher: Launcher::Pmi, world_size: 4 });
    assert!(error.to_string().contains("mpiexec -genv MASTER_ADDR HOST"), "{error}");
    let far = with(&[("PMI_SIZE", "4"), ("MASTER_ADDR", "node0")]).unwrap();
    assert_eq!(far.master_addr, "node0");
    for (changes, words) in [
        (&[("PMI_RANK", "2")][..], "PMI_RANK=\"2\": expected a rank below the world size, 2"),
        (&[("PMI_SIZE", "")], "PMI_RANK is set and PMI_SIZE is not"),
        (&[("MPI_LOCALNRANKS", "3")], "MPI_LOCALNRANKS=\"3\" contradicts PMI_SIZE=\"2\""),
        (
            &[("MPI_LOCALNRANKS", "1")],
            "MPI_LOCALNRANKS=\"1\" contradicts MPI_LOCALRANKID=\"1\": expected a local rank below",
        ),
    ] {
        let error = with(changes).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn pmi_inside_slurm_is_the_inner_one_unless_srun_speaks_it() {
    let pmi = [("PMI_RANK", "1"), ("PMI_SIZE", "8"), ("MASTER_ADDR", "here")];
    let hydra = environment(&[&SLURM[..], &pmi].concat()).unwrap();
    assert_eq!((hydra.launcher, hydra.rank), (Launcher::Pmi, 1));
    assert_eq!(hydra.conflicts.len(), 1, "{:?}", hydra.conflicts);
    let pmi = [("PMI_RANK", "5"), ("PMI_SIZE", "8")];
    let srun = environment(&[&SLURM[..], &pmi].concat()).unwrap();
    assert_eq!((srun.launcher, srun.master_addr.as_str()), (Launcher::Slurm, "gpu07"));
    assert_eq!(srun.conflicts, []);
}

#[test]
fn slurm_is_understood() {
    let launch = environment(&SLURM).unwrap();
    assert_eq!((launch.launcher, launch.rank, launch.world_size), (Launcher::Slurm, 5, 8));
    assert_eq!((launch.master_addr.as_str(), launch.job.as_str()), ("gpu07", "4242"));
    let batch = environment(&SLURM[1..]).unwrap_err();
    assert_eq!(batch, EnvError::NoRank, "a batch script is no rank, though SLURM_NTASKS is set");
    let mut broken = SLURM;
    broken[3].1 = "gpu[07";
    let error = environment(&broken).unwrap_err();
    assert!(error.to_string().contains("SLURM_NODELIST=\"gpu[07\""), "{error}");
}

#[test]
fn the_innermost_launcher_is_believed_and_the_rest_reported() {
    let vars = [&SLURM[..], &TORCHRUN].concat();
    let launch = environment(&vars).unwrap();
    assert_eq!((launch.launcher, launch.rank), (Launcher::Torchrun, 3));
    let setting = |name, value: &str| Setting { name, value: value.into() };
    let conflict = |used, mine, ignored, theirs| Conflict {
        used: setting(used, mine),
        ignored: setting(ignored, theirs),
    };
    assert_eq!(
        launch.conflicts,
        [
            conflict("RANK", "3", "SLURM_PROCID", "5"),
            conflict("WORLD_SIZE", "4", "SLURM_NTASKS", "8"),
        ]
    );
    let text = launch.conflicts[0].to_string();
    assert_eq!(text, "SLURM_PROCID=\"5\" is ignored: RANK=\"3\" is used instead");
}

#[test]
fn flags_win() {
    let flags = Flags {
        rank: Some(0),
        world_size: Some(2),
        master_addr: Some("here".into()),
        master_port: Some(1),
        job: Some("mine".into()),
        generation: Some(9),
        ..Flags::default()
    };
    let bare = launch(&flags, &[]).unwrap();
    assert_eq!((bare.launcher, bare.rank, bare.world_size), (Launcher::Flags, 0, 2));
    let inside = launch(&flags, &TORCHRUN).unwrap();
    assert_eq!((inside.master_addr.as_str(), inside.master_port), ("here", 1));
    assert_eq!((inside.job.as_str(), inside.generation), ("mine", 9));
    assert!(!inside.store_is_launchers);
    assert_eq!(inside.conflicts.len(), 2);
    let one = Flags { rank: Some(1), ..Flags::default() };
    let mixed = launch(&one, &TORCHRUN).unwrap();
    assert_eq!((mixed.rank, mixed.world_size), (1, 4), "one flag stands for one variable");
    assert_eq!(mixed.conflicts[0].used.name, "--rank");
    let error = launch(&one, &[]).unwrap_err();
    assert_eq!(error, EnvError::Incomplete { present: "--rank", missing: "--world-size" });
}

#[test]
fn errors_name_the_variable_its_value_and_what_was_expected() {
    let error = |vars: &[(&str, &str)]| environment(vars).unwrap_err().to_string();
    let says = |vars: &[(&str, &str)], text: &str| {
        let error = error(vars);
        assert!(error.contains(text), "{error}");
    };
    says(&[], "torchrun");
    says(&[("RANK", "1")], "RANK is set and WORLD_SIZE is not");
    says(&[("WORLD_SIZE", "1")], "WORLD_SIZE is set and RANK is not");
    says(&[("RANK", "-1"), ("WORLD_SIZE", "2")], "RANK=\"-1\": expected a number from 0 to 65535");
    says(
        &[("RANK", "2"), ("WORLD_SIZE", "2")],
        "RANK=\"2\": expected a rank below the world size, 2",
    );
    says(&[("RANK", "0"), ("WORLD_SIZE", "0")], "WORLD_SIZE=\"0\"");
    says(&[("RANK", "0"), ("WORLD_SIZE", "2")], "--master-addr");
    let one = [("RANK", "0"), ("WORLD_SIZE", "1")];
    says(&[&one[..], &[("MASTER_PORT", "99999")]].concat(), "MASTER_PORT=\"99999\"");
    says(&[&one[..], &[("WARPVERBS_JOB", "a/b")]].concat(), "WARPVERBS_JOB=\"a/b\"");
    says(&[&one[..], &[("WARPVERBS_GENERATION", "x")]].concat(), "WARPVERBS_GENERATION=\"x\"");
    assert_eq!(environment(&one).unwrap().master_addr, "127.0.0.1");
}

#[cfg(unix)]
#[test]
fn text_that_is_not_utf8_is_an_error() {
    use std::os::unix::ffi::OsStringExt;
    let lookup = |name: &str| (name == "RANK").then(|| OsString::from_vec(vec![0xff]));
    let error = RankInfo::from_vars(&Flags::default(), &lookup).unwrap_err();
    assert!(matches!(error, EnvError::Invalid { setting: Setting { name: "RANK", .. }, .. }));
}

#[test]
fn node_lists_give_their_first_host() {
    let ok = |list: &str| first_host(list).unwrap();
    assert_eq!(ok("login"), "login");
    assert_eq!(ok("a.example.org,b"), "a.example.org");
    assert_eq!(ok("node[01-04,07],gpu3"), "node01");
    assert_eq!(ok("node[7]"), "node7");
    assert_eq!(ok("rack[1-2]gpu[3,5]-ib,x"), "rack1gpu3-ib");
    let error = |list: &str| first_host(list).unwrap_err();
    assert_eq!(error(""), NodeListError::Empty);
    assert_eq!(error(",a"), NodeListError::Empty);
    assert_eq!(error("a]"), NodeListError::Bracket { at: 1 });
    assert_eq!(error("a[1[2]]"), NodeListError::Bracket { at: 3 });
    assert_eq!(error("a[1-2"), NodeListError::Bracket { at: 1 });
    assert_eq!(error("a[]"), NodeListError::Range { range: String::new() });
    assert_eq!(error("a[x-2]"), NodeListError::Range { range: "x-2".into() });
    assert_eq!(error("a b"), NodeListError::Host { host: "a b".into() });
}

proptest! {
    #[test]
    fn any_variables_do_no_harm(vars in proptest::collection::vec((0..15usize, ".{0,8}"), 0..8)) {
        let names = [
            "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID",
            "SLURM_NTASKS", "SLURM_NODELIST", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
            "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "WARPVERBS_JOB", "WARPVERBS_GENERATION",
        ];
        let vars: Vec<_> = vars.iter().map(|(at, value)| (names[*at], value.as_str())).collect();
        if let Ok(launch) = environment(&vars) {
            prop_assert!(launch.rank < launch.world_size);
        }
    }

    #[test]
    fn any_node_list_does_no_harm(list in "[a-c0-9,\\[\\]-]{0,20}") {
        if let Ok(host) = first_host(&list) {
            prop_assert!(!host.is_empty() && !host.contains(['[', ']', ',']));
        }
    }
}
