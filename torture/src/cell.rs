//! The cells of the matrix, and how one is run.

use crate::kit::Kit;
use crate::methods::Method;
use crate::rig::{Harm, Rig};
use crate::spec::{Spec, Want};
use crate::tally::{Cycle, Tally};
use midair_tests::Result;
use std::time::{Duration, Instant};

/// Makes the target of a cell, or says why it cannot be had here.
pub type Make = Box<dyn Fn(&Kit) -> std::result::Result<Spec, String>>;

/// Runs a special cell, which has its own way of doing it.
pub type Manner = Box<dyn Fn(&Kit) -> Result<Tally>>;

/// How a cell is run.
pub enum Run {
    /// The same cycles on a target, by every attach method.
    Target(Make),
    /// The same cycles on several targets in turn.
    Targets(Vec<Make>),
    /// The same cycles on a target, by an attacher in a process of its own.
    Elsewhere {
        /// Makes the target.
        make: Make,
        /// The command under which the attacher runs.
        under: Vec<String>,
        /// Whether it runs in the target's namespaces.
        inside: bool,
    },
    /// A special cell, only for our own attach method.
    Special(Manner),
}

/// One cell.
pub struct Cell {
    /// Row of the matrix.
    pub row: u8,
    /// The kind of target, or what is done to it.
    pub name: String,
    /// The result that an attach must have.
    pub want: Want,
    /// Whether the other attach methods are tried as well.
    pub others: bool,
    /// Whether the target has so many busy threads that each of them, and ours, waits long for a
    /// processor. Such a cell has fewer cycles in the quick form, and more time for each.
    pub heavy: bool,
    /// Whether each refusal takes its full time. Such a cell may take as long as a heavy one.
    pub slow: bool,
    /// How it is run.
    pub run: Run,
}

impl Cell {
    /// Makes a cell with a target.
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

    /// Makes a cell whose attacher runs under a command.
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

    /// Makes the attacher run in the target's namespaces.
    #[must_use]
    pub fn inside(mut self) -> Cell {
        if let Run::Elsewhere { inside, .. } = &mut self.run {
            *inside = true;
        }
        self
    }

    /// Makes a special cell.
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

    /// Sets the result that an attach must have.
    #[must_use]
    pub fn want(mut self, want: Want) -> Cell {
        self.want = want;
        self
    }

    /// Marks the cell as one with many busy threads.
    #[must_use]
    pub fn heavy(mut self) -> Cell {
        self.heavy = true;
        self
    }

    /// Marks the cell as one whose refusals take long.
    #[must_use]
    pub fn slow(mut self) -> Cell {
        self.slow = true;
        self
    }

    /// Returns how long all cycles of the cell by this attach method may take together.
    pub fn budget(&self, method: &dyn Method) -> Duration {
        // Only our own method gets more time: the others manage enough cycles in the time that
        // every cell has.
        match (self.heavy || self.slow) && method.name() == "midair" {
            true => slower(LONG),
            false => slower(BUDGET),
        }
    }

    /// Returns the time after which a cycle counts as a hang.
    pub fn limit(&self) -> Duration {
        match self.heavy {
            true => slower(STARVED),
            false => limit(),
        }
    }

    /// Leaves the other attach methods out.
    #[must_use]
    pub fn ours_only(mut self) -> Cell {
        self.others = false;
        self
    }

    /// Returns whether the results are right for our own attach method.
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

/// The time after which a cycle counts as a hang.
const LIMIT: Duration = Duration::from_secs(5);
/// The same time where hundreds of threads compete for the processors.
const STARVED: Duration = Duration::from_secs(30);

/// Returns how long something may take that takes this long on a real processor.
pub fn slower(time: Duration) -> Duration {
    time * midair_tests::kernel::times_slower()
}

/// The time after which a cycle counts as a hang in a cell with few threads.
pub fn limit() -> Duration {
    slower(LIMIT)
}

/// Cycles on one target. It is then replaced by a new one, because libraries that were loaded stay
/// in it.
const PER_TARGET: u64 = 20;
/// How many targets an attach method may ruin in one cell before the cell ends, since more of them
/// would show nothing new.
const RUINED: u64 = 10;
/// How long a cell may take by one attach method.
const BUDGET: Duration = Duration::from_secs(75);
/// The same for ours where a cycle takes a second or two: with hundreds of busy threads, or where
/// each cycle ends in a refusal.
const LONG: Duration = Duration::from_secs(480);

/// Runs the cycles of a cell by one attach method.
///
/// # Errors
/// Fails only for a reason on our own side.
pub fn run(
    kit: &Kit,
    makes: &[&Make],
    method: &mut dyn Method,
    cycles: u64,
    (limit, budget): (Duration, Duration),
) -> Result<Tally> {
    let mut tally = Tally::default();
    let end = Instant::now() + budget;
    // Each kind of target gets its share of the cycles.
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

/// Runs a target's whole life and counts any harm to it in the tally.
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
            method.release(rig.pid);
            return Ok(());
        }
        if matches!(cycle, Cycle::Hung(_)) {
            // The remains of the hanging cycle are left alone: the target is killed next.
            method.release(rig.pid);
            return Ok(());
        }
    }
    if let Err(harm) = rig.all_go_on() {
        suffered(tally, harm);
        method.release(rig.pid);
        return Ok(());
    }
    count_residue(kit, &rig, method, tally)?;
    if let Err(harm) = rig.finish() {
        suffered(tally, harm);
    }
    Ok(())
}

/// Counts a target that is not as it was. Where an attach was refused on its way out, the next
/// attach removes what stayed. So further attaches are tried a few times first.
///
/// # Errors
/// Fails when the target is gone.
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
        if matches!(method.cycle(kit, rig.pid, limit())?, Cycle::Entered(_)) {
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

/// Shortens a text to what fits a table's footnote.
pub fn short(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match text.char_indices().nth(1200) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}
