//! Cells of the matrix, and how one is run.

use crate::kit::Kit;
use crate::methods::Method;
use crate::rig::{Harm, Rig};
use crate::spec::{Spec, Want};
use crate::tally::{Cycle, Tally};
use midair_tests::Result;
use std::time::{Duration, Instant};

/// Makes the target of a cell, or says why it cannot be had here.
pub type Make = Box<dyn Fn(&Kit) -> std::result::Result<Spec, String>>;

/// Runs a cell of its own manner.
pub type Manner = Box<dyn Fn(&Kit) -> Result<Tally>>;

/// How a cell is run.
pub enum Run {
    /// The same cycles on a target, for every attach method.
    Target(Make),
    /// On several targets in turn.
    Targets(Vec<Make>),
    /// On a target, by an attacher in a process of its own under this command, `inside` the target's namespaces.
    Elsewhere {
        /// Makes the target.
        make: Make,
        /// What the attacher runs under.
        under: Vec<String>,
        /// Whether it runs in the target's namespaces.
        inside: bool,
    },
    /// In its own manner, only for ours.
    Special(Manner),
}

/// One cell.
pub struct Cell {
    /// Row of the matrix.
    pub row: u8,
    /// What the target is, or what is done.
    pub name: String,
    /// What an attach must do.
    pub want: Want,
    /// Whether the other attach methods are tried as well.
    pub others: bool,
    /// It has so many busy threads that each of them, and ours, waits long for a processor: fewer
    /// cycles in the quick form, more time for each.
    pub heavy: bool,
    /// Each refusal of it takes its full time: it may take as long as a heavy one.
    pub slow: bool,
    /// How it is run.
    pub run: Run,
}

impl Cell {
    /// A cell on a target.
    pub fn on(
        row: u8,
        name: impl Into<String>,
        make: impl Fn(&Kit) -> std::result::Result<Spec, String> + 'static,
    ) -> Cell {
        Cell {
            row,
            name: name.into(),
            want: Want::In,
            others: true,
            heavy: false,
            slow: false,
            run: Run::Target(Box::new(make)),
        }
    }

    /// A cell whose attacher runs under a command.
    pub fn under(
        row: u8,
        name: impl Into<String>,
        under: &[&str],
        make: impl Fn(&Kit) -> std::result::Result<Spec, String> + 'static,
    ) -> Cell {
        let mut cell = Cell::on(row, name, |_| Err(String::new())).ours_only();
        cell.run = Run::Elsewhere {
            make: Box::new(make),
            under: under.iter().map(|word| (*word).to_owned()).collect(),
            inside: false,
        };
        cell
    }

    /// The attacher runs in the target's namespaces.
    #[must_use]
    pub fn inside(mut self) -> Cell {
        if let Run::Elsewhere { inside, .. } = &mut self.run {
            *inside = true;
        }
        self
    }

    /// A cell of its own manner.
    pub fn special(
        row: u8,
        name: impl Into<String>,
        run: impl Fn(&Kit) -> Result<Tally> + 'static,
    ) -> Cell {
        Cell {
            row,
            name: name.into(),
            want: Want::In,
            others: false,
            heavy: false,
            slow: false,
            run: Run::Special(Box::new(run)),
        }
    }

    /// What an attach must do.
    #[must_use]
    pub fn want(mut self, want: Want) -> Cell {
        self.want = want;
        self
    }

    /// With many busy threads.
    #[must_use]
    pub fn heavy(mut self) -> Cell {
        self.heavy = true;
        self
    }

    /// With refusals that take long.
    #[must_use]
    pub fn slow(mut self) -> Cell {
        self.slow = true;
        self
    }

    /// How long its cycles by this attach method may take together.
    pub fn budget(&self, method: &dyn Method) -> Duration {
        // Only ours: the others have cycles enough in the time that all cells have.
        match (self.heavy || self.slow) && method.name() == "midair" {
            true => LONG,
            false => BUDGET,
        }
    }

    /// What takes longer is a hang.
    pub fn limit(&self) -> Duration {
        match self.heavy {
            true => STARVED,
            false => LIMIT,
        }
    }

    /// Not for the others.
    #[must_use]
    pub fn ours_only(mut self) -> Cell {
        self.others = false;
        self
    }

    /// Whether what came of it is right for ours.
    pub fn passes(&self, tally: &Tally) -> bool {
        if tally.left_out.is_some() {
            return true;
        }
        let refusals_are_right = tally.refused.keys().all(|name| self.want.allows(name));
        let entered_is_right = match self.want {
            Want::In => tally.entered == tally.cycles,
            Want::InOr(_) => true,
            Want::Refused(_) => tally.entered == 0,
        };
        tally.cycles > 0
            && tally.harm() == 0
            && tally.failed == 0
            && refusals_are_right
            && entered_is_right
    }
}

/// What takes longer is a hang.
pub const LIMIT: Duration = Duration::from_secs(5);
/// The same where hundreds of threads want the processors.
const STARVED: Duration = Duration::from_secs(30);
/// Cycles on one target: what is loaded stays, so it is renewed.
const PER_TARGET: u64 = 20;
/// Targets that an attach method may ruin in one cell; then the picture is clear.
const RUINED: u64 = 10;
/// How long a cell may take by one attach method.
const BUDGET: Duration = Duration::from_secs(75);
/// The same for ours where a cycle takes a second or two: with hundreds of busy threads, or where
/// each ends in a refusal.
const LONG: Duration = Duration::from_secs(480);

/// Runs the cycles of a cell by one attach method.
///
/// # Errors
/// What is wrong on our own side.
pub fn run(
    kit: &Kit,
    makes: &[&Make],
    method: &mut dyn Method,
    cycles: u64,
    (limit, budget): (Duration, Duration),
) -> Result<Tally> {
    let mut tally = Tally::default();
    let end = Instant::now() + budget;
    // Each kind of target gets its share.
    let share = PER_TARGET.min(cycles.div_ceil(makes.len() as u64)).max(1);
    for make in makes.iter().cycle() {
        let ruined = tally.hung + tally.crashed + tally.wrong;
        if tally.cycles >= cycles || ruined >= RUINED {
            break;
        }
        if Instant::now() > end {
            tally.note(format!("ended after {budget:?}"));
            break;
        }
        let spec = match make(kit).and_then(|spec| method.dress(kit, spec)) {
            Ok(spec) => spec,
            Err(why) => return Ok(Tally::left_out(why)),
        };
        let rig = Rig::start(kit, &spec)?;
        let most = share.min(cycles - tally.cycles);
        one_target(kit, rig, method, (most, limit), end, &mut tally)?;
    }
    Ok(tally)
}

/// A target's whole life; what harm it takes is in the tally.
fn one_target(
    kit: &Kit,
    mut rig: Rig,
    method: &mut dyn Method,
    (most, limit): (u64, Duration),
    end: Instant,
    tally: &mut Tally,
) -> Result<()> {
    if let Err(harm) = rig.all_go_on() {
        return Err(format!("the target is not well before anybody came: {harm:?}").into());
    }
    rig.begin_gaps();
    std::thread::sleep(Duration::from_millis(20));
    tally.rest.extend(rig.gap(Duration::from_millis(20)));
    for _ in 0..most {
        if Instant::now() > end {
            break;
        }
        rig.begin_gaps();
        let cycle = method.cycle(kit, rig.pid, limit)?;
        tally.count(&cycle);
        let mut chosen = None;
        if let Cycle::Entered(entry) = &cycle {
            match entry.tier.as_str() {
                "T0" => rig.expect_one_mark(),
                _ => rig.expect_mark(),
            }
            chosen = entry.thread;
            tally.gaps.extend(rig.gap(Duration::from_millis(50)));
        }
        if let Err(harm) = rig.check(tally, chosen) {
            suffered(tally, harm);
            method.let_go(rig.pid);
            return Ok(());
        }
        if matches!(cycle, Cycle::Hung(_)) {
            // What is left of it is dropped: the target is killed.
            method.let_go(rig.pid);
            return Ok(());
        }
    }
    if let Err(harm) = rig.all_go_on() {
        suffered(tally, harm);
        method.let_go(rig.pid);
        return Ok(());
    }
    count_residue(kit, &rig, method, tally)?;
    if let Err(harm) = rig.finish() {
        suffered(tally, harm);
    }
    Ok(())
}

/// Counts a target that is not as it was. Where an attach was refused on its way out, what stayed
/// is the next one's to take away: that is tried a few times first.
///
/// # Errors
/// When the target is gone.
pub fn count_residue(
    kit: &Kit,
    rig: &Rig,
    method: &mut dyn Method,
    tally: &mut Tally,
) -> Result<()> {
    let mut residue = rig.residue()?;
    for _ in 0..10 {
        if residue.is_empty() || tally.refusals() == 0 {
            break;
        }
        if matches!(method.cycle(kit, rig.pid, LIMIT)?, Cycle::Entered(_)) {
            tally.note("what a cycle had left the next one took away");
        }
        residue = rig.residue()?;
    }
    if !residue.is_empty() {
        tally.residue += 1;
        tally.note(format!("left: {}", residue.to_string().replace('\n', "; ")));
    }
    Ok(())
}

/// Counts harm to a target.
pub fn suffered(tally: &mut Tally, harm: Harm) {
    match harm {
        Harm::Crashed(words) => {
            tally.crashed += 1;
            tally.note(format!("crashed: {}", short(&words)));
        }
        Harm::Wrong(words) => {
            tally.wrong += 1;
            tally.note(format!("wrong: {}", short(&words)));
        }
    }
}

/// As much of a text as fits a table's footnote.
pub fn short(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(1200) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}
