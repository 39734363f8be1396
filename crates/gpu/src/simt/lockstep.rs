//! Which lanes of a warp may have turns where lanes run in lockstep, as a wavefront's do: the hardware
//! runs one path at a time, and lanes that took another stand still until the paths meet again.

/// Lanes by their numbers in the warp.
pub(crate) type Lanes = u64;

/// Lanes that keep the others of their warp from running.
#[derive(Clone, Default, Hash)]
pub(crate) struct Lockstep {
    /// Sections that must not be left half done, the innermost last.
    sections: Vec<Section>,
    /// A lane that spins, and the lanes that it waits for in a collective.
    spins: Option<Lanes>,
}

/// `wv::Unbroken`.
#[derive(Clone, Hash)]
struct Section {
    lanes: Lanes,
    begun: Lanes,
    ended: Lanes,
    /// The lanes that spun outside of it.
    spun: Option<Lanes>,
}

impl Lockstep {
    /// Lanes that may run if they are ready.
    pub(crate) fn allowed(&self) -> Lanes {
        let inside = self.sections.last().map_or(Lanes::MAX, |section| section.lanes);
        inside & self.spins.unwrap_or(Lanes::MAX)
    }

    /// `lane` spins: nobody else runs until it joins others, or ends.
    pub(crate) fn spin(&mut self, lane: u32) {
        self.spins = Some(1 << lane);
    }

    /// Whether any lane spins.
    pub(crate) fn spins(&self) -> bool {
        self.spins.is_some()
    }

    /// `lane` waits in a collective of `mask`, and `waits_for` tells of a lane for whom it waits in one.
    pub(crate) fn join(&mut self, lane: u32, mask: Lanes, waits_for: impl Fn(u32) -> Lanes) {
        let Some(mut all) = self.spins.filter(|spins| spins >> lane & 1 == 1) else { return };
        let mut new = mask & !all;
        while new != 0 {
            all |= new;
            let more = (0..Lanes::BITS).filter(|lane| new >> lane & 1 == 1).map(&waits_for);
            new = more.fold(0, |lanes, mask| lanes | mask) & !all;
        }
        self.spins = Some(all);
    }

    /// `lane` waits for its block, or has ended.
    pub(crate) fn leave(&mut self, lane: u32) {
        self.spins = self.spins.map(|spins| spins & !(1 << lane)).filter(|spins| *spins != 0);
    }

    /// Paths meet: nobody spins any more.
    pub(crate) fn meet(&mut self) {
        self.spins = None;
    }

    /// `lane` begins a section of `lanes`.
    pub(crate) fn begin(&mut self, lane: u32, lanes: Lanes) {
        let own = 1 << lane;
        match self.sections.last_mut() {
            Some(section) if section.lanes == lanes && section.begun & own == 0 => {
                section.begun |= own;
            }
            _ => {
                let spun = self.spins.take();
                self.sections.push(Section { lanes, begun: own, ended: 0, spun });
            }
        }
    }

    /// `lane` ends its innermost section, and goes no further until all lanes of it have: then it is
    /// over, and these are its lanes.
    pub(crate) fn end(&mut self, lane: u32) -> Option<Lanes> {
        self.spins = None;
        let section = self.sections.last_mut()?;
        section.ended |= 1 << lane;
        if section.ended != section.lanes {
            return None;
        }
        let section = self.sections.pop()?;
        self.spins = section.spun;
        Some(section.lanes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_spins_runs_alone_until_it_joins_others() {
        let mut warp = Lockstep::default();
        assert_eq!(warp.allowed(), Lanes::MAX);
        warp.spin(3);
        assert_eq!(warp.allowed(), 0b1000);
        // Lane 4 waits for lane 5 in turn.
        warp.join(3, 0b1_1000, |lane| if lane == 4 { 0b11_0000 } else { 0 });
        assert_eq!(warp.allowed(), 0b11_1000);
        warp.leave(3);
        warp.leave(4);
        assert_eq!(warp.allowed(), 0b10_0000);
        warp.leave(5);
        assert_eq!(warp.allowed(), Lanes::MAX);
    }

    #[test]
    fn a_section_is_left_by_all_of_its_lanes() {
        let mut warp = Lockstep::default();
        warp.spin(1);
        warp.begin(1, 0b110);
        warp.begin(2, 0b110);
        warp.spin(2);
        warp.begin(2, 0b100);
        assert_eq!(warp.allowed(), 0b100);
        assert_eq!(warp.end(2), Some(0b100));
        assert_eq!(warp.allowed(), 0b100, "it spins still");
        assert_eq!(warp.end(2), None);
        assert_eq!(warp.allowed(), 0b110);
        assert_eq!(warp.end(1), Some(0b110));
        assert_eq!(warp.allowed(), 0b10, "as before the section");
    }
}
