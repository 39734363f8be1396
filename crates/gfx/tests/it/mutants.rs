//! Code objects without an instruction that makes an order, and whether some seed in lazy mode notices.
use crate::clang::{self, Line};
use std::path::Path;
use warpverbs_gfx::CodeObject;

/// Seeds of which one notices that an instruction is missing.
const SEEDS: u64 = 4000;

/// Words for the place of an instruction, if it is a write-back, an invalidation, or a wait for global memory.
fn without(line: &Line) -> Option<Vec<u32>> {
    match line.text.split(' ').next() {
        // Of gfx90a without a scope, it stays: hosts and NICs need it, and the L2 is the only one.
        Some("buffer_wbl2") if line.text == "buffer_wbl2" => Some(Vec::new()),
        Some("buffer_wbl2" | "buffer_inv" | "buffer_wbinvl1_vol") => Some(vec![0xbf80_0000; 2]),
        // All bits of vmcnt: no wait for it.
        Some("s_waitcnt") if line.text.contains("vmcnt") => Some(vec![line.words[0] | 0xc00f]),
        _ => None,
    }
}

/// Which instructions a mutant lacks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lacks {
    /// One.
    One,
    /// All of a kernel with its text; of waits, those behind a write-back.
    All,
}

/// An instruction without which there is a mutant. Of waits that follow each other one would be enough, so they are one.
struct Site {
    function: String,
    text: String,
    /// Write-back directly before a wait.
    behind: Option<String>,
    /// Address and new word.
    changes: Vec<(u64, u32)>,
}

fn sites(object: &Path) -> Vec<Site> {
    let (mut all, mut end): (Vec<Site>, _) = (Vec::new(), 0);
    for line in clang::disassemble(object) {
        let Some(nothing) = without(&line) else { continue };
        let addresses = (0..).map(|word| line.address + 4 * word);
        let changes: Vec<_> = addresses.zip(nothing).collect();
        let before = all.last_mut().filter(|_| end == line.address);
        end = line.address + 4 * line.words.len() as u64;
        let waits = line.text.starts_with("s_waitcnt");
        let behind = match before {
            Some(wait) if waits && wait.text.starts_with("s_waitcnt") => {
                wait.changes.extend(changes);
                continue;
            }
            before => before.filter(|site| waits && site.text.contains("wbl2")),
        };
        let behind = behind.map(|site| site.text.clone());
        all.push(Site { function: line.function, text: line.text, behind, changes });
    }
    all
}

/// A code object without an instruction, or some.
struct Mutant {
    name: String,
    /// Its place in the list.
    kernel: usize,
    object: Vec<u8>,
}

fn mutants(object: &[u8], kernels: &[&str], lacks: Lacks) -> Vec<Mutant> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("mutants.co");
    std::fs::write(&path, object).expect("room for the object");
    let parsed = CodeObject::parse(object).unwrap_or_else(|error| panic!("{error}"));
    let (start, code) = parsed.code();
    let file = object.windows(code.len()).position(|bytes| bytes == code).expect("its code");
    let mut all: Vec<Mutant> = Vec::new();
    for site in sites(&path).into_iter().filter(|site| !site.changes.is_empty()) {
        let Some(kernel) = kernels.iter().position(|name| *name == site.function) else { continue };
        let name = match (lacks, site.behind) {
            (Lacks::One, _) => {
                let text = format!("{}: {} #", site.function, site.text);
                let before = all.iter().filter(|other| other.name.starts_with(&text)).count();
                format!("{text}{before}")
            }
            (Lacks::All, Some(behind)) => format!("{}: s_waitcnt behind {behind}", site.function),
            (Lacks::All, None) if site.text.starts_with("s_waitcnt") => continue,
            (Lacks::All, None) => format!("{}: {}", site.function, site.text),
        };
        let known = all.iter().position(|mutant| mutant.name == name).unwrap_or(all.len());
        if known == all.len() {
            all.push(Mutant { name, kernel, object: object.to_vec() });
        }
        for (address, word) in site.changes {
            let at = file + (address - start) as usize;
            all[known].object[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
    }
    all
}

/// Runs the mutants of kernels, but those of the list, which has a reason why each may pass. `complaints` of an object, under
/// a seed and of the kernel of that place, are none if nothing is wrong.
pub(crate) fn check(
    object: &[u8],
    kernels: &[&str],
    lacks: Lacks,
    may_pass: &[(&str, &str)],
    complaints: impl Fn(&[u8], u64, usize) -> Result<u64, String>,
) {
    let all = mutants(object, kernels, lacks);
    let is = |mutant: &Mutant, name: &str| mutant.name == name;
    for (name, _) in may_pass {
        assert!(all.iter().any(|mutant| is(mutant, name)), "no mutant is called {name}");
    }
    let mut passed = Vec::new();
    for mutant in all.iter().filter(|mutant| may_pass.iter().all(|(name, _)| !is(mutant, name))) {
        let run = |seed: &u64| complaints(&mutant.object, *seed, mutant.kernel) != Ok(0);
        let noticed = (0..SEEDS).find(run);
        println!("{}: {noticed:?}", mutant.name);
        if noticed.is_none() {
            passed.push(&mutant.name);
        }
    }
    println!("{} mutants, {} of which may pass", all.len(), may_pass.len());
    assert!(passed.is_empty(), "no seed notices {passed:#?}");
}
